"""An OpenID provider on loopback: a token endpoint with TLS, and the keys with which brokers verify its tokens."""

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.patience import HUNG

CLIENT, SECRET = "billing", "tell-nobody"
HOST = "127.0.0.1"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class Provider:
    """An OpenID provider, with a key of its own.

    Attributes:
        lasts: lifetime of each token in seconds.
        answers: responses of the endpoint instead of a token, the oldest first: status and body.
        asked: the forms of all requests, each with its ``Authorization``.
    """

    lasts: float = 3600.0
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    port: int = 0
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def endpoint(self) -> str:
        return f"https://{HOST}:{self.port}/token"

    def keys(self) -> str:
        """The JWKS."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": _number(numbers.n), "e": _number(numbers.e)}
        return json.dumps({"keys": [key]})

    def token(self, lasts: float | None = None, key: rsa.RSAPrivateKey | None = None, **claims: Any) -> str:
        """A signed JWT."""
        now = int(time.time())
        said = {"iss": "ottla-tests", "sub": CLIENT, "iat": now, "exp": int(now + (lasts or self.lasts)), **claims}
        signed = ".".join(_text(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "1"}, said))
        signature = (key or self._key).sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"

    def answer(self, form: dict[str, str]) -> tuple[int, bytes]:
        self.asked.append(form)
        if self.answers:
            return self.answers.pop(0)
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if form["Authorization"] != f"Basic {login}":
            return 401, b'{"error": "invalid_client", "error_description": "Unknown client, or a wrong secret"}'
        self.issued.append(self.token())
        return 200, json.dumps({"access_token": self.issued[-1], "expires_in": self.lasts}).encode()


@contextmanager
def serving(provider: Provider, ca: trustme.CA) -> Iterator[Provider]:
    """Serve the token endpoint, with a certificate of the CA, on the provider's port or any free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, answer = provider.answer({**form, "Authorization": self.headers["Authorization"]})
            self.send_response(status)
            if status == 302:
                self.send_header("Location", answer.decode())
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer((HOST, provider.port), Handler)
    provider.port = server.server_port
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(HOST).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(HUNG)


@contextmanager
def dripping(begins: bytes, pause: float = 0.02) -> Iterator[str]:
    """The URL of an endpoint without TLS that sends ``begins``, then a byte every ``pause`` seconds for ever."""
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        with suppress(OSError):  # the client or the test has ended
            client = listener.accept()[0]
            with client:
                client.recv(2**16)
                client.sendall(begins)
                while True:
                    client.sendall(b"x")
                    time.sleep(pause)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}/token"
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread if no client has connected
        thread.join(HUNG)
        listener.close()


def kafka_settings(home: Path, provider: Provider, listener: str) -> tuple[dict[str, str], str]:
    """The settings of a broker that accepts the provider's tokens at a listener, and the flag of its JVM."""
    keys = home / "jwks.json"
    keys.write_text(provider.keys())
    module = "org.apache.kafka.common.security.oauthbearer"
    prefix = f"listener.name.{listener.lower()}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{module}.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{module}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.oauthbearer.connections.max.reauth.ms": "3600000",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "ottla-tests",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
