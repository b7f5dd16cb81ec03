"""No secret shows: clients log in to both servers, rightly and wrongly; then all that servers write is searched.

Everything is: the log at its lowest level, stdout and stderr, `/metrics`, `/report`, `/ready`, the access log, spans,
the data folder, the state folder, the file of users, and the `repr` of configurations.
"""

import base64
import hashlib
import hmac
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization as to
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ottla
from ottla.brokerlite.config import BrokerConfig
from ottla.brokerlite.serve import RunningBroker
from ottla.codec import frames
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.errors import AuthenticationFailed, OttlaError
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.sasl_server.settings import OAuthSettings, SaslSettings
from ottla.testing import Broker
from ottla.tls import TLS, ServerTLS
from tests import oidc, tls
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied
from tests.proxy.secured import MECHANISMS, rules, user_file

HOST = "127.0.0.1"
USERS = {"alice": "hush-of-alice+/=", "proxy": "hush-of-the-proxy"}
WRONG = "hush-that-is-wrong"
PASSPHRASE = "hush-of-the-key"
OURS: dict[str, Any] = {
    "PLAIN": ottla.Plain,
    "SCRAM-SHA-256": ottla.ScramSha256,
    "SCRAM-SHA-512": ottla.ScramSha512,
}


def forms(secret: bytes) -> set[bytes]:
    """The ways in which a log or a file might have a secret."""
    found = {secret, repr(secret)[2:-1].encode(), secret.hex().encode(), quote(secret).encode()}
    for before in (b"", b"\0alice\0", b"\0proxy\0", b"alice\0alice\0"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(before + secret).rstrip(b"="))
    return found


class Salted:
    """Computes salted passwords as `hashlib` does, and keeps the results."""

    def __init__(self) -> None:
        self._compute = hashlib.pbkdf2_hmac
        self.secrets: set[bytes] = set()
        self.hashes: set[bytes] = set()
        """What servers keep; they do not suffice to log in, but help to guess a password."""

    def __call__(self, name: str, *arguments: Any) -> bytes:
        salted = self._compute(name, *arguments)
        client_key = hmac.digest(salted, b"Client Key", name)
        self.secrets |= {salted, client_key}
        self.hashes |= {hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)}
        return salted


def with_passphrase(own: trustme.LeafCert) -> str:
    key = to.load_pem_private_key(own.private_key_pem.bytes(), None)
    kind = to.BestAvailableEncryption(PASSPHRASE.encode())
    return key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, kind).decode()


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def of_server(ca: trustme.CA) -> ServerTLS:
    its = ca.issue_cert(HOST)
    chain = "".join(map(tls.text, its.cert_chain_pems))
    return ServerTLS(certificate=chain, key=with_passphrase(its), key_password=PASSPHRASE)


def of_client(ca: trustme.CA) -> TLS:
    its = ca.issue_cert(common_name="a client")
    chain = "".join(map(tls.text, its.cert_chain_pems))
    return TLS(ca=tls.text(ca.cert_pem), certificate=chain, key=with_passphrase(its), key_password=PASSPHRASE)


def logs_in(address: str, sasl: Any, secure: TLS) -> None:
    """Log in, send a record, and read it."""

    async def work() -> None:
        async with ottla.connect(address, sasl=sasl, tls=secure, connect_timeout=HUNG) as client:
            async with client.producer() as producer:
                await producer.send("t", b"value", key=b"key")
            async with client.consumer("t", reset="beginning") as consumer:
                assert await anext(consumer)

    trio.run(work)


def strangers(token: str) -> Iterator[bytes]:
    """What peers send that know a password or a token, but not the protocol."""
    password = USERS["alice"].encode()
    plain, bearer = b"\0alice\0" + password, b"n,,\1auth=Bearer " + token.encode() + b"\1\1"
    for mechanism, secret in (("PLAIN", plain), ("OAUTHBEARER", bearer), ("SCRAM-SHA-256", plain), ("KERBEROS", plain)):
        handshake = [frames.build_request(SaslHandshakeRequest(mechanism=mechanism), each, 1, None) for each in (0, 1)]
        authenticate = frames.build_request(SaslAuthenticateRequest(auth_bytes=secret), 2, 2, None)
        yield authenticate  # without a handshake
        yield frames.framed(secret)  # bare, without a handshake
        yield handshake[0] + frames.framed(secret)  # bare, behind a handshake of its version
        yield handshake[1] + frames.framed(secret)  # bare, where a header is due
        yield handshake[1] + authenticate
        yield handshake[1] + authenticate.replace(secret, b"\0" + secret[1:])
        yield handshake[1] + frames.build_request(SaslAuthenticateRequest(auth_bytes=secret * 2), 2, 2, None)
        yield handshake[1] + authenticate[:-3] + b"\xff\xff\xff"
    yield plain
    yield b"POST /token HTTP/1.1\r\nAuthorization: Bearer " + token.encode() + b"\r\n\r\n"
    yield struct.pack(">i", 2**30) + plain


def sends(address: str, data: bytes, secure: TLS | None) -> None:
    """Send bytes and no more, and read until the server has answered and closes."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        sock = stack.enter_context(socket.create_connection((host, int(port)), HUNG))
        if secure is not None:
            sock = stack.enter_context(secure.context().wrap_socket(sock, server_hostname=host))
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(2**16):
                pass
        except OSError:  # closed before all was sent
            pass


def page(address: str | None, path: str) -> bytes:
    try:
        with urlopen(f"http://{address}{path}", timeout=HUNG) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        return error.read()


def contents(*folders: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for folder in folders for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def salted(monkeypatch: pytest.MonkeyPatch) -> Salted:
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", computed := Salted())
    return computed


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter := InMemorySpanExporter()))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.mark.slow
def test_no_secret_shows(
    ca: trustme.CA,
    tmp_path: Path,
    salted: Salted,
    spans: InMemorySpanExporter,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = oidc.Provider(lasts=3600)
    (tmp_path / "jwks.json").write_text(provider.keys())
    oauth = OAuthSettings(jwks=str(tmp_path / "jwks.json"), issuer="ottla-tests")
    good, bad = provider.token(sub="alice"), provider.token(sub="alice", iss="another")
    secure = of_client(ca)
    own = {"tls": tls.of_client(ca), "sasl": ottla.Plain("proxy", USERS["proxy"])}
    every = SaslSettings(mechanisms=(*MECHANISMS, "OAUTHBEARER"), oauth=oauth)
    written = {name: tmp_path / name for name in ("data", "state-1", "state-2", "users")}

    def listener(kind: Any, **options: Any) -> Any:
        return kind(protocol=SecurityProtocol.SASL_SSL, port=0, tls=of_server(ca), **options)

    def proxy(broker: Broker, number: int, **options: Any) -> ProxyThread:
        files = {"state": str(written[f"state-{number}"]), "access_log": str(tmp_path / f"access-{number}.log")}
        pages = {"health": f"{HOST}:0", "report": f"{HOST}:0", "report_keys": True}
        return stack.enter_context(proxied(broker.bootstrap, "t=rewrite", **files, **pages, **own, **options))

    with ExitStack() as stack:
        config = BrokerConfig(
            listeners=(listener(ListenerConfig, sasl=every),),
            data=written["data"],
            health=f"{HOST}:0",
            access_log=str(tmp_path / "access-0.log"),
        )
        broker = stack.enter_context(Broker(config))
        for name, password in USERS.items():
            broker._call(partial(RunningBroker.set_password, user=name, password=password))
        broker.create_topic("t")
        users = user_file(written["users"], {"alice": USERS["alice"]})
        forwarded = SaslSettings(mechanisms=("PLAIN", "OAUTHBEARER"), relayed=True)
        proxies = [
            proxy(
                broker, 1, listeners=(listener(ProxyListener, sasl=every),), acls=rules(allow_if_none=True), users=users
            ),
            proxy(broker, 2, listeners=(listener(ProxyListener, sasl=forwarded, mode=ClientMode.FORWARD),)),
        ]
        for address, mechanisms in (
            (broker.bootstrap, MECHANISMS),
            (proxies[0].bootstrap, MECHANISMS),
            (proxies[1].bootstrap, ("PLAIN",)),
        ):
            for mechanism in mechanisms:
                logs_in(address, OURS[mechanism]("alice", USERS["alice"]), secure)
                for name in ("alice", "nobody"):
                    with pytest.raises(AuthenticationFailed) as raised:
                        logs_in(address, OURS[mechanism](name, WRONG), secure)
                    assert WRONG not in str(raised.value)
            logs_in(address, ottla.OAuthBearer(lambda: good), secure)
            with pytest.raises(OttlaError) as refused:
                logs_in(address, ottla.OAuthBearer(lambda: bad), secure)
            assert bad not in str(refused.value)
            for data in strangers(good):
                sends(address, data, secure)
            sends(address, b"\0alice\0" + USERS["alice"].encode(), None)  # in the clear, where TLS is due
        running = broker._running
        assert running is not None
        shown = {
            **{f"broker {path}": page(running.health, path) for path in ("/metrics", "/ready")},
            **{
                f"proxy {number} {path}": page(each.running.report if path == "/report" else each.running.health, path)
                for number, each in enumerate(proxies, 1)
                for path in ("/metrics", "/ready", "/report")
            },
            "repr": repr([broker, broker.config, *(each.config for each in proxies), secure]).encode(),
        }
    assert b"ottla_server_connections_refused_total" in shown["broker /metrics"]
    assert all(b'"t"' in shown[f"proxy {number} /report"] for number in (1, 2)), "the report is not empty"
    shown["log"] = "\n".join(f"{each.getMessage()} {vars(each)} {each.exc_text}" for each in caplog.records).encode()
    assert shown["log"].count(b"authentication failed") > 10
    shown["output"] = "".join(capfd.readouterr()).encode()
    finished = spans.get_finished_spans()
    assert {"SaslHandshake", "SaslAuthenticate", "Produce"} <= {each.name for each in finished}
    shown["spans"] = "\n".join(each.to_json() for each in finished).encode()
    for number in range(3):
        shown[f"access log {number}"] = (tmp_path / f"access-{number}.log").read_bytes()
        assert b"SaslAuthenticate" in shown[f"access log {number}"]
    kept = contents(*written.values())
    assert any(b"alice" in each for each in kept.values())

    hidden = {each.encode() for each in (*USERS.values(), WRONG, PASSPHRASE, good, bad)}
    hidden |= {token.rpartition(".")[2].encode() for token in (good, bad)}  # the signature
    # Without a header, the first bytes of a token are taken for one, and the rest for a client id.
    hidden |= {each[4:] for each in hidden} | {token[10:60].encode() for token in (good, bad)}
    assert len(salted.secrets) > 10
    for places, searched in ((shown | kept, hidden | salted.secrets), (shown, salted.hashes)):
        found = {
            (place, form) for each in searched for form in forms(each) for place, data in places.items() if form in data
        }
        assert not found
    assert "BEGIN ENCRYPTED PRIVATE KEY" not in str(shown) + str(kept)
