"""TLS between a client and a server that meet in memory: all bytes arrive, and each error names its cause."""

import contextlib
import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as to
from cryptography.hazmat.primitives.asymmetric import ec

from ottla._pem import file
from ottla.errors import AuthenticationFailed, ConfigurationError, ConnectionLost, OttlaError
from ottla.throwaway_ca import ThrowawayCA
from ottla.tls import TLS, ClientCertificates, ServerTLS, TlsConnection
from tests.tls import serving, without_subject

HOST = "broker.example.com"
_REFUSED = (
    "the {0} does not accept this side's certificate: it has expired or is not valid yet, or the CA that signed it is "
    "missing in the {0}'s truststore"
)
REFUSED_BY_CLIENT, REFUSED_BY_BROKER = _REFUSED.format("client"), _REFUSED.format("broker")


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def pem(*blobs: trustme.Blob) -> str:
    return "".join(each.bytes().decode() for each in blobs)


def client(ca: trustme.CA, host: str = HOST, **options: Any) -> TlsConnection:
    return TLS(ca=pem(ca.cert_pem), **options).connection(host)


def server(
    ca: trustme.CA, certificate: trustme.LeafCert | None = None, change: Callable[[ssl.SSLContext], object] = id
) -> TlsConnection:
    """The listening side, with a certificate of the CA for `HOST`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (certificate or ca.issue_cert(HOST)).configure_cert(context)
    change(context)
    return TlsConnection(context, server_side=True)


def wants_certificate(ca: trustme.CA) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        ca.configure_trust(context)

    return change


def issued(key: ec.EllipticCurvePrivateKey, subject: str, ca: ec.EllipticCurvePrivateKey) -> str:
    """A certificate of "our CA" without key identifiers, as older versions of openssl create it."""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "our CA")]),
        subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=1),
        not_valid_after=now + datetime.timedelta(days=1),
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=key is ca, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    return builder.sign(ca, hashes.SHA256()).public_bytes(to.Encoding.PEM).decode()


def self_signed() -> str:
    """The certificate of "our CA"."""
    key = ec.generate_private_key(ec.SECP256R1())
    return issued(key, "our CA", key)


def issued_by_a_namesake() -> str:
    """A certificate and its key, of another CA that has the name of `self_signed`."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()).decode()
    return issued(key, "a-service", ec.generate_private_key(ec.SECP256R1())) + own


def meet(client: TlsConnection, server: TlsConnection, pieces: int = 2**16) -> tuple[OttlaError | None, ...]:
    """Carry bytes between the two until no more come; return the error that each of them raised."""
    raised: dict[TlsConnection, OttlaError | None] = {client: None, server: None}

    def feed(one: TlsConnection, data: bytes) -> bytes:
        answer = b""
        for start in range(0, len(data), pieces):
            if raised[one] is None:
                try:
                    answer += one.feed(data[start : start + pieces])
                    if one.agreed:
                        one.read(1)
                except OttlaError as error:
                    raised[one] = error
                    answer += one.finish()  # the alert
        return answer

    data = client.begin()
    while data:
        data = feed(client, feed(server, data))
    return raised[client], raised[server]


@pytest.mark.parametrize("pieces", [1, 7, 2**16])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_what_one_side_seals_the_other_reads(ca: trustme.CA, version: ssl.TLSVersion, pieces: int) -> None:
    ours, theirs = client(ca), server(ca, change=lambda context: setattr(context, "maximum_version", version))
    assert meet(ours, theirs, pieces) == (None, None)
    assert ours.agreed and theirs.agreed
    parts: list[bytes | bytearray | memoryview] = [b"first", bytearray(b"second"), memoryview(bytes(200_000)), b""]
    sealed = b"".join(ours.seal(parts))
    assert b"first" not in sealed
    for start in range(0, len(sealed), 1000):
        assert theirs.feed(sealed[start : start + 1000]) == b""
    room = memoryview(bytearray(11))
    assert theirs.read_into(room) == 5 and theirs.read_into(room[5:]) == 6  # one write at a time
    assert bytes(room) == b"firstsecond"
    got = bytearray()
    while data := theirs.read(2**16):
        got += data
    assert bytes(got) == bytes(200_000)
    assert theirs.read_into(room) == 0


def test_a_side_that_finishes_is_heard(ca: trustme.CA) -> None:
    ours, theirs = client(ca), server(ca)
    meet(ours, theirs)
    theirs.feed(b"".join(ours.seal([b"last"])) + ours.finish())
    assert theirs.read(10) == b"last" and not theirs.ended
    assert theirs.read(10) == b"" and theirs.ended
    ours.feed(theirs.finish())
    assert ours.read_into(memoryview(bytearray(10))) == 0 and ours.ended


def test_a_side_that_has_sent_no_more_for_now_has_not_ended(ca: trustme.CA) -> None:
    ours, theirs = client(ca), server(ca)
    meet(ours, theirs)
    assert theirs.read(10) == b"" and theirs.read_into(memoryview(bytearray(10))) == 0
    assert not theirs.ended


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "broker.example.com", "other.example.com"])
def test_the_certificate_has_to_name_the_host(ca: trustme.CA, host: str) -> None:
    theirs = ca.issue_cert("127.0.0.1", "::1", HOST)
    error, _ = meet(client(ca, host), server(ca, theirs))
    if host == "other.example.com":
        assert isinstance(error, AuthenticationFailed) and not error.retriable
        assert str(error) == (
            "the broker's certificate is not trusted: it is not for 'other.example.com'; it has to name what brokers "
            "advertise; TLS(check_hostname=False) accepts any name"
        )
        assert meet(client(ca, host, check_hostname=False), server(ca, theirs)) == (None, None)
    else:
        assert error is None


def test_the_name_is_asked_for(ca: trustme.CA) -> None:
    asked = []
    theirs = server(ca, change=lambda each: setattr(each, "sni_callback", lambda _, name, __: asked.append(name)))
    meet(client(ca), theirs)
    assert asked == [HOST]


@pytest.mark.parametrize("check_hostname", [True, False])
def test_a_certificate_of_another_ca_is_refused_whatever_is_checked(ca: trustme.CA, check_hostname: bool) -> None:
    error, said = meet(client(trustme.CA(), check_hostname=check_hostname), server(ca))
    assert str(error) == (
        "the broker's certificate is not trusted: unable to get local issuer certificate; give the CA that signed it "
        "as tls=TLS(ca=…)"
    )
    assert str(said) == REFUSED_BY_CLIENT


def test_a_ca_of_the_same_name_is_another_ca() -> None:
    theirs = ServerTLS(certificate=issued_by_a_namesake()).connection()
    error, said = meet(TLS(ca=self_signed()).connection(HOST), theirs)
    assert str(error) == (
        "the broker's certificate is not trusted: certificate signature failure; give the CA that signed it as "
        "tls=TLS(ca=…)"
    )
    assert isinstance(said, AuthenticationFailed)
    assert str(said).startswith("the client does not accept this side's certificate: it has expired")


def test_the_broker_hears_that_a_client_may_have_expected_another_name(ca: trustme.CA) -> None:
    _, said = meet(client(ca, "other.example.com"), server(ca))
    assert str(said) == f"{REFUSED_BY_CLIENT}, or it does not name the host to which the client connects"


def test_a_certificate_that_has_expired_is_refused(ca: trustme.CA) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    old = ca.issue_cert(HOST, not_before=yesterday - datetime.timedelta(days=1), not_after=yesterday)
    error, _ = meet(client(ca), server(ca, old))
    said = "certificate has expired; it has to be renewed, or the CA that signed it"
    assert str(error) == f"the broker's certificate is not trusted: {said}"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
class TestTheBrokerWantsACertificate:
    def change(self, ca: trustme.CA, version: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
        def change(context: ssl.SSLContext) -> None:
            wants_certificate(ca)(context)
            context.maximum_version = version

        return change

    def test_one_that_it_trusts_is_taken(self, ca: trustme.CA, version: ssl.TLSVersion) -> None:
        own = ca.issue_cert("a-service")
        ours = client(ca, certificate=pem(*own.cert_chain_pems), key=pem(own.private_key_pem))
        assert meet(ours, server(ca, change=self.change(ca, version))) == (None, None)

    def test_its_subject_may_be_empty_which_is_not_the_same_as_no_certificate(
        self, ca: trustme.CA, version: ssl.TLSVersion
    ) -> None:
        own = without_subject(ca, "spiffe://example.com/app")
        ours = client(ca, certificate=pem(*own.cert_chain_pems), key=pem(own.private_key_pem))
        theirs = server(ca, change=self.change(ca, version))
        assert meet(ours, theirs) == (None, None)
        assert theirs.subject == ""

    def test_where_there_is_none_the_error_says_so(self, ca: trustme.CA, version: ssl.TLSVersion) -> None:
        error, said = meet(client(ca), server(ca, change=self.change(ca, version)))
        assert (
            isinstance(error, AuthenticationFailed) and "certificate" in str(error) and "TLS(certificate=" in str(error)
        )
        assert str(said) == "the client sent no certificate, and one is required"

    def test_where_it_trusts_another_ca_the_error_says_so(self, ca: trustme.CA, version: ssl.TLSVersion) -> None:
        own = trustme.CA().issue_cert("a-service")
        ours = client(ca, certificate=pem(own.private_key_pem, *own.cert_chain_pems))
        error, _ = meet(ours, server(ca, change=self.change(ca, version)))
        assert isinstance(error, AuthenticationFailed)
        assert str(error) == REFUSED_BY_BROKER

    def test_where_it_trusts_a_ca_of_the_same_name_the_error_says_so(
        self, ca: trustme.CA, version: ssl.TLSVersion
    ) -> None:
        trusted, own = self_signed(), issued_by_a_namesake()

        def change(context: ssl.SSLContext) -> None:
            context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version
            context.load_verify_locations(cadata=trusted)

        error, said = meet(client(ca, certificate=own), server(ca, change=change))
        assert isinstance(error, AuthenticationFailed)
        assert str(error) == REFUSED_BY_BROKER
        assert str(said) == (
            "the client's certificate is not trusted: certificate signature failure; give the CA that signed it as "
            "ServerTLS(ca=…)"
        )


def test_a_peer_that_speaks_no_tls_is_recognised(ca: trustme.CA) -> None:
    ours = client(ca)
    ours.begin()
    with pytest.raises(AuthenticationFailed, match="the broker does not speak TLS: its listener is for plaintext"):
        ours.feed(b"\0\0\0\x10" + bytes(16))


@pytest.mark.parametrize("junk", [b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"\x15\x03\x03\0\x02\x02\x30", bytes(32)])
def test_whatever_comes_after_data_says_nothing_about_trust(ca: trustme.CA, junk: bytes) -> None:
    ours, theirs = client(ca), server(ca)
    meet(ours, theirs)
    ours.feed(b"".join(theirs.seal([b"an answer"])))
    assert ours.read(100) == b"an answer"
    with pytest.raises(ConnectionLost, match=r"^TLS: "):
        ours.feed(junk)
        ours.read(100)


def test_bytes_that_are_no_tls_once_it_is_agreed_on_do_not_mean_a_plaintext_listener(ca: trustme.CA) -> None:
    ours, theirs = client(ca), server(ca)
    meet(ours, theirs)
    with pytest.raises(ConnectionLost, match=r"^TLS: "):
        ours.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        ours.read(100)


def test_a_peer_that_ends_tls_before_it_is_agreed_on_is_met_again(ca: trustme.CA) -> None:
    ours = client(ca)
    ours.begin()
    close_notify = b"\x15\x03\x03\0\x02\x01\0"
    with pytest.raises(ConnectionLost, match="TLS: the broker has ended it"):
        ours.feed(close_notify)


def test_a_key_that_is_no_ascii_is_refused_and_not_shown(ca: trustme.CA) -> None:
    own = ca.issue_cert("a-service")
    key = pem(own.private_key_pem).replace("-----END", "é\n-----END", 1)
    with pytest.raises(ConfigurationError, match="is not PEM, which is ASCII only") as raised:
        TLS(certificate=pem(*own.cert_chain_pems), key=key)
    assert "PRIVATE" not in repr(raised.value) and raised.value.__suppress_context__


def test_a_version_that_is_too_old_is_refused(ca: trustme.CA) -> None:
    def old(context: ssl.SSLContext) -> None:
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.warns(DeprecationWarning):
        error, _ = meet(client(ca), server(ca, change=old))
    assert isinstance(error, AuthenticationFailed)


def test_what_was_changed_on_its_way_ends_the_connection(ca: trustme.CA) -> None:
    ours, theirs = client(ca), server(ca)
    meet(ours, theirs)
    sealed = bytearray(b"".join(theirs.seal([b"paid 100"])))
    sealed[-1] ^= 1
    ours.feed(sealed)
    with pytest.raises(ConnectionLost, match=r"TLS: .*bad record mac"):
        ours.read(100)


# -- files and texts ---------------------------------------------------------------------------------------------------


def test_files_are_read_again_when_they_have_changed(ca: trustme.CA, tmp_path: Path) -> None:
    other = trustme.CA()
    path = tmp_path / "ca.pem"
    path.write_text(pem(other.cert_pem))
    tls = TLS(ca=path)
    assert isinstance(meet(tls.connection(HOST), server(ca))[0], AuthenticationFailed)
    path.write_text(pem(ca.cert_pem))
    assert meet(tls.connection(HOST), server(ca)) == (None, None)


def test_files_that_cannot_be_used_are_passed_over_until_they_can(ca: trustme.CA, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(pem(ca.cert_pem))
    tls = TLS(ca=path)
    assert tls.stale == ""
    for written in ("-----BEGIN", ""):
        path.write_text(written)
        assert meet(tls.connection(HOST), server(ca)) == (None, None)
        assert str(path) in tls.stale
    path.unlink()
    assert meet(tls.connection(HOST), server(ca)) == (None, None)
    assert "cannot be read: No such file or directory" in tls.stale
    path.write_text(pem(ca.cert_pem))
    assert meet(tls.connection(HOST), server(ca)) == (None, None)
    assert tls.stale == ""


def encrypted(own: trustme.LeafCert, password: bytes) -> str:
    from cryptography.hazmat.primitives import serialization as to

    key = to.load_pem_private_key(own.private_key_pem.bytes(), None)
    kind = to.BestAvailableEncryption(password)
    return key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, kind).decode()


def test_a_key_may_be_encrypted(ca: trustme.CA) -> None:
    own = ca.issue_cert("a-service")
    options: dict[str, Any] = {"certificate": pem(*own.cert_chain_pems), "key": encrypted(own, b"secret")}
    ours = client(ca, key_password="secret", **options)
    assert meet(ours, server(ca, change=wants_certificate(ca))) == (None, None)
    with pytest.raises(
        ConfigurationError, match="the text of key is encrypted, and does not open with this key_password"
    ):
        TLS(key_password="other", **options)
    with pytest.raises(ConfigurationError, match="the text of key is encrypted, and needs a key_password"):
        TLS(**options)


def test_options_that_cannot_be_used_say_which_and_why(ca: trustme.CA, tmp_path: Path) -> None:
    one, two = ca.issue_cert("one"), ca.issue_cert("two")
    binary = tmp_path / "trust.jks"
    binary.write_bytes(b"\xfe\xed\xfe\xed")
    for options, says in [
        ({"ca": tmp_path / "none.pem"}, "ca '.*none.pem' cannot be read: No such file"),
        ({"ca": "none.pem"}, "ca 'none.pem' cannot be read: No such file"),
        ({"ca": binary}, "ca '.*trust.jks' is not PEM, which is text; convert JKS"),
        ({"ca": "-----BEGIN rubbish"}, "the text of ca has no certificates in PEM"),
        ({"certificate": binary}, "certificate '.*trust.jks' is not PEM"),
        (
            {"certificate": pem(*one.cert_chain_pems)},
            "the text of certificate must have a certificate and its key, in PEM: give the key as key=",
        ),
        ({"key": pem(one.private_key_pem)}, "there is a key without a certificate"),
        (
            {"certificate": pem(*one.cert_chain_pems), "key": pem(two.private_key_pem)},
            "the text of key does not belong to the text of certificate",
        ),
        ({"check_hostname": 0}, "check_hostname must be True or False, not 0"),
    ]:
        with pytest.raises(ConfigurationError, match=says):
            TLS(**options)  # type: ignore[arg-type]


def test_no_secret_is_shown(ca: trustme.CA) -> None:
    own = ca.issue_cert("a-service")
    tls = TLS(certificate=pem(*own.cert_chain_pems), key=encrypted(own, b"hunter2"), key_password="hunter2")
    assert "hunter2" not in repr(tls) and "PRIVATE" not in repr(tls)
    both = TLS(certificate=pem(own.private_key_pem, *own.cert_chain_pems))
    assert repr(both) == "TLS(certificate=the text of certificate, check_hostname=True)"


@pytest.mark.parametrize("host", ["", ".example.com", "a" * 64 + ".example.com", "a\0b"])
def test_a_host_that_no_certificate_can_name_is_refused(ca: trustme.CA, host: str) -> None:
    with pytest.raises(AuthenticationFailed, match="no certificate can name the host"):
        client(ca, host)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
@pytest.mark.parametrize("wanted", ["none", "requested", "required"])
def test_a_client_with_a_certificate_shows_it_for_each_connection(
    ca: trustme.CA, version: ssl.TLSVersion, wanted: ClientCertificates
) -> None:
    """A resumed session would let it in also when the certificate has expired."""
    theirs = serving(ca, HOST, wanted)
    context = ssl.create_default_context()
    ca.configure_trust(context)
    ca.issue_cert("a-service").configure_cert(context)
    context.maximum_version = version
    session, resumed = None, []
    for _ in range(2):
        server, (incoming, outgoing) = theirs.connection(), (ssl.MemoryBIO(), ssl.MemoryBIO())
        client = context.wrap_bio(incoming, outgoing, False, HOST, session)
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            incoming.write(server.feed(outgoing.read()))
        incoming.write(b"".join(server.seal([b"a"])))
        assert client.read(1) == b"a"  # with it come the tickets
        session = client.session
        resumed.append(client.session_reused)
    assert resumed == [False, wanted == "none"]


# -- certificates of a throwaway CA


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_peers_that_check_strictly_trust_a_throwaway_ca(version: ssl.TLSVersion) -> None:
    ca = ThrowawayCA()
    ours, theirs = ca.client("alice").context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    its = ca.server(HOST, certificates=True)
    with contextlib.ExitStack() as stack:
        theirs.load_cert_chain(file(stack, "certificate", its.certificate), file(stack, "key", its.key or ""))
    theirs.load_verify_locations(cadata=ca.pem)
    theirs.verify_mode, theirs.maximum_version = ssl.CERT_REQUIRED, version
    for each in (ours, theirs):
        each.verify_flags |= ssl.VERIFY_X509_STRICT
    asking, asked = TlsConnection(ours, server_hostname=HOST), TlsConnection(theirs, server_side=True)
    assert meet(asking, asked) == (None, None)
    assert asked.subject == "CN=alice"


def test_another_throwaway_ca_is_not_trusted() -> None:
    error, _ = meet(
        ThrowawayCA().client().connection(HOST), ThrowawayCA().server(HOST, certificates=False).connection()
    )
    assert "unable to get local issuer certificate; give the CA that signed it as tls=TLS(ca=…)" in str(error)


def test_no_certificate_outlives_its_throwaway_ca() -> None:
    ca = ThrowawayCA()
    chains = ca.pem, ca.server(HOST, certificates=False).certificate, ca.client("alice").certificate
    ends = {x509.load_pem_x509_certificate(str(each).encode()).not_valid_after_utc for each in chains}
    assert len(ends) == 1
