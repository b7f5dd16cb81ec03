"""Handshakes that both servers refuse: old versions of TLS, downgrades, and certificates that are not valid.

Each server runs whole, with clients that stay connected meanwhile. A ClientHello is written by hand where OpenSSL would
not send one.
"""

import datetime
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as to
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.brokerlite.config import BrokerConfig
from ottla.codec import frames
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.proxy.listeners import ProxyListener
from ottla.testing import Broker
from tests import tls
from tests.patience import HUNG
from tests.proxy.running import proxied
from tests.proxy.secured import rules

HOST = "127.0.0.1"
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)

PROTOCOL_VERSION, INAPPROPRIATE_FALLBACK = 70, 86
"""Alerts of TLS."""


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@contextmanager
def broker(ca: trustme.CA) -> Iterator[str]:
    listener = ListenerConfig(protocol=SecurityProtocol.SSL, port=0, tls=tls.serving(ca, HOST, "required"))
    with Broker(BrokerConfig(listeners=(listener,))) as running:
        yield running.bootstrap


@contextmanager
def proxy(ca: trustme.CA) -> Iterator[str]:
    listener = ProxyListener(protocol=SecurityProtocol.SSL, port=0, tls=tls.serving(ca, HOST, "required"))
    acls = rules(allow_if_none=True)
    with Broker() as upstream, proxied(upstream.bootstrap, listeners=(listener,), acls=acls) as running:
        yield running.bootstrap


@pytest.fixture(params=[broker, proxy], ids=lambda each: each.__name__)
def server(request: pytest.FixtureRequest, ca: trustme.CA) -> Iterator[str]:
    with request.param(ca) as address:
        yield address


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), HUNG)


def secured(
    address: str, ca: trustme.CA, own: trustme.LeafCert | None, change: Callable[..., object] = id
) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    change(context)
    with connected(address) as sock:
        return context.wrap_socket(sock, server_hostname=HOST)


def answers(client: ssl.SSLSocket) -> bool:
    """Whether the server answers a request; raises OSError if it has ended the connection."""
    client.sendall(frames.build_request(MetadataRequest(topics=()), 4, 1, "test"))
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = client.recv(2**16)
        if not more:
            return False
        data += more
    return bool(frames.parse_response(MetadataResponse, 4, data[4:])[1].brokers)


@contextmanager
def unnoticed(address: str, ca: trustme.CA) -> Iterator[None]:
    """A client that was connected before the block, and a new one after it, get their answers."""
    with secured(address, ca, ca.issue_cert(common_name="good")) as other:
        assert answers(other)
        yield
        assert answers(other)
    with secured(address, ca, ca.issue_cert(common_name="good")) as another:
        assert answers(another)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.getMessage().startswith("connection refused")]


# -- versions


def hello(version: int, *, offers: tuple[int, ...] = (), falls_back: bool = False) -> bytes:
    """A ClientHello with ciphers for all versions; extension 43 of TLS 1.3 lists the versions that it ``offers``."""
    ciphers = [0x1301, 0xC02B, 0xC02F, 0xC009, 0xC013, 0x002F] + [0x5600] * falls_back
    listed = struct.pack(f">{len(ciphers)}H", *ciphers)
    extensions = struct.pack(">4H", 10, 4, 2, 23) + struct.pack(">7H", 13, 10, 8, 0x0403, 0x0804, 0x0401, 0x0201)
    if offers:
        extensions += struct.pack(f">HHB{len(offers)}H", 43, 1 + 2 * len(offers), 2 * len(offers), *offers)
    body = struct.pack(">H32xBH", version, 0, len(listed)) + listed + b"\1\0"
    body += struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return struct.pack(">BHH", 22, min(version, 0x0301), len(message)) + message


def answer(address: str, data: bytes) -> bytes:
    """The first record that the server sends, or all until it closes."""
    got = b""
    with connected(address) as sock:
        sock.sendall(data)
        while len(got) < 5 or len(got) < 5 + int.from_bytes(got[3:5], "big"):
            more = sock.recv(2**16)
            if not more:
                break
            got += more
    return got


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["TLS 1.0", "TLS 1.1"])
def test_a_client_of_an_old_version_is_refused(
    server: str, ca: trustme.CA, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    def old(context: ssl.SSLContext) -> None:
        context.set_ciphers("ALL:@SECLEVEL=0")  # otherwise OpenSSL itself refuses to send it
        context.minimum_version = context.maximum_version = version

    with unnoticed(server, ca), pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        secured(server, ca, None, old)
    assert refusals(caplog) == [
        "connection refused: the client shares no version of TLS with this side, which supports TLS 1.2 and newer"
    ]


@pytest.mark.parametrize(
    "data",
    [hello(0x0300), hello(0x0301), hello(0x0302), hello(0x0303, offers=(0x0302, 0x0301))],
    ids=["SSL 3", "TLS 1.0", "TLS 1.1", "TLS 1.1, offered as TLS 1.3 does"],
)
def test_an_old_hello_gets_an_alert_whatever_its_form(
    server: str, ca: trustme.CA, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with unnoticed(server, ca):
        got = answer(server, data)
    assert (got[0], got[5]) == (21, 2), "a fatal alert"
    # RFC 6101 does not know the alert of newer versions.
    assert got[6] == (40 if data == hello(0x0300) else PROTOCOL_VERSION)
    assert refusals(caplog) == [
        "connection refused: the client shares no version of TLS with this side, which supports TLS 1.2 and newer"
    ]


def test_a_client_that_was_made_to_fall_back_is_refused(
    server: str, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody between the two made attempts with newer versions fail. (RFC 7507)"""
    with unnoticed(server, ca):
        got = answer(server, hello(0x0303, falls_back=True))
    assert got[0] == 21 and got[5:] == bytes((2, INAPPROPRIATE_FALLBACK))
    [line] = refusals(caplog)
    assert "the client fell back to an older version of TLS, although both sides support a newer one" in line


def test_an_answer_in_tls_1_2_tells_clients_of_tls_1_3_that_they_were_downgraded(server: str) -> None:
    """The end of the server's random bytes says that it supports TLS 1.3. (RFC 8446, section 4.1.3)"""
    got = answer(server, hello(0x0303, offers=(0x0303, 0x0302)))
    assert got[0] == 22 and got[9:11] == b"\3\3"
    assert got[11:43].endswith(b"DOWNGRD\x01")


# -- certificates


def for_servers_only(ca: trustme.CA) -> trustme.LeafCert:
    """A certificate that may be used by servers only."""
    key = ec.generate_private_key(ec.SECP256R1())
    signs = to.load_pem_private_key(ca.private_key_pem.bytes(), None)
    made = (
        x509.CertificateBuilder(
            issuer_name=x509.load_pem_x509_certificate(ca.cert_pem.bytes()).subject,
            subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server")]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=NOW - DAY,
            not_valid_after=NOW + DAY,
        )
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .sign(signs, hashes.SHA256())  # type: ignore[arg-type]  # the loader may return other kinds of keys
    )
    own = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    return trustme.LeafCert(own, made.public_bytes(to.Encoding.PEM), [])


def expired(ca: trustme.CA) -> trustme.LeafCert:
    return ca.issue_cert(common_name="late", not_before=NOW - 2 * DAY, not_after=NOW - DAY)


def too_early(ca: trustme.CA) -> trustme.LeafCert:
    return ca.issue_cert(common_name="early", not_before=NOW + DAY, not_after=NOW + 2 * DAY)


def of_another_ca(ca: trustme.CA) -> trustme.LeafCert:
    return trustme.CA().issue_cert(common_name="good")


REFUSED: dict[Callable[[trustme.CA], trustme.LeafCert], str] = {
    expired: "certificate has expired; it has to be renewed, or the CA that signed it",
    too_early: "certificate is not yet valid; it was issued for later, or the clock of this machine is wrong",
    of_another_ca: "unable to get local issuer certificate; give the CA that signed it as ServerTLS(ca=…)",
    for_servers_only: "unsuitable certificate purpose; it has to be issued for clients (extendedKeyUsage clientAuth)",
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
@pytest.mark.parametrize("issue", REFUSED, ids=lambda each: each.__name__)
def test_a_certificate_that_is_not_valid_is_refused_and_the_log_says_why(
    server: str,
    ca: trustme.CA,
    issue: Callable[[trustme.CA], trustme.LeafCert],
    version: ssl.TLSVersion,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with unnoticed(server, ca), pytest.raises((ssl.SSLError, ConnectionResetError)):
        change = lambda context: setattr(context, "maximum_version", version)  # noqa: E731
        with secured(server, ca, issue(ca), change) as client:
            assert not answers(client)
            raise ConnectionResetError
    [line] = refusals(caplog)
    assert line.startswith("connection refused: the client's certificate is not trusted: ") and REFUSED[issue] in line
