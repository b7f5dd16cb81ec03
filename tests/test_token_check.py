"""Tokens of OAUTHBEARER, checked by a listener, and the keys that sign them."""

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwk

from ottla.errors import ConfigurationError
from ottla.sasl_server.exchanges import Refused
from ottla.sasl_server.keys import SigningKeys
from ottla.sasl_server.settings import OAuthSettings
from ottla.sasl_server.tokens import TokenCheck
from tests import oidc
from tests.patience import HUNG


@pytest.fixture(scope="module")
def provider() -> oidc.Provider:
    return oidc.Provider()


@pytest.fixture
def jwks(provider: oidc.Provider, tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(provider.keys())
    return path


def check(jwks: Path, token: str, **settings: Any) -> tuple[str, float]:
    return TokenCheck(OAuthSettings(jwks=str(jwks), **settings)).check(token)


def test_a_token_names_its_user_and_its_end(provider: oidc.Provider, jwks: Path) -> None:
    user, expires_at = check(jwks, provider.token(100), issuer="ottla-tests")
    assert user == oidc.CLIENT and 0 < expires_at - time.time() <= 100
    user, _ = check(jwks, provider.token(aud=["x", "kafka"], name="alice"), audience=("kafka",), subject="name")
    assert user == "alice"


def unsigned(header: dict[str, Any], provider: oidc.Provider, signature: bytes = b"") -> str:
    """A token of the provider with another header and signature."""
    parts = provider.token().split(".")
    parts[0] = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    parts[2] = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    return ".".join(parts)


@pytest.mark.parametrize(
    "claims", [{"exp": 1}, {"exp": "soon"}, {"nbf": 2**33}, {"iat": 2**33}, {"sub": 7}, {"sub": ""}]
)
def test_a_token_of_another_time_or_without_a_user_is_refused(
    provider: oidc.Provider, jwks: Path, claims: dict[str, Any]
) -> None:
    with pytest.raises(Refused, match=r"^invalid_token$"):
        check(jwks, provider.token(**claims))


@pytest.mark.parametrize(
    ("claims", "settings"),
    [
        ({}, {"issuer": "another"}),
        ({"iss": None}, {"issuer": "ottla-tests"}),
        ({}, {"audience": ("kafka",)}),
        ({"aud": "other"}, {"audience": ("kafka",)}),
        ({}, {"subject": "name"}),
    ],
)
def test_a_token_for_others_is_refused(
    provider: oidc.Provider, jwks: Path, claims: dict[str, Any], settings: dict[str, Any]
) -> None:
    with pytest.raises(Refused):
        check(jwks, provider.token(**claims), **settings)


def test_a_clock_may_be_wrong_by_some_seconds(provider: oidc.Provider, jwks: Path) -> None:
    late = int(time.time()) - 20
    assert check(jwks, provider.token(exp=late))[0] == oidc.CLIENT
    with pytest.raises(Refused):
        check(jwks, provider.token(exp=late), clock_skew=0)


def test_a_token_that_nobody_or_somebody_else_has_signed_is_refused(provider: oidc.Provider, jwks: Path) -> None:
    foreign = rsa.generate_private_key(65537, 2048)
    forged = [
        provider.token(key=foreign),
        unsigned({"alg": "none", "kid": "1"}, provider),
        unsigned({"alg": "none"}, provider),
        unsigned({"alg": "HS256", "kid": "1"}, provider, b"x" * 32),
        unsigned({"alg": "RS256", "kid": ["1"]}, provider),
        unsigned({"alg": "RS256", "kid": "1", "crit": ["b64"], "b64": False}, provider),
        provider.token()[:-4],
        "",
        "a.b.c",
        "." * 1000,
        "[" * 10_000 + "." + ".",
    ]
    for token in forged:
        with pytest.raises(Refused):
            check(jwks, token)


def reason(jwks: Path, token: str, **settings: Any) -> str:
    with pytest.raises(Refused) as raised:
        check(jwks, token, **settings)
    assert str(raised.value) == "invalid_token", "the client learns no more"
    return raised.value.why


@pytest.mark.parametrize(
    ("claims", "settings", "why"),
    [
        ({"exp": 1_000}, {}, r"the token expired \d{10} s ago"),
        ({"exp": -(10**1000)}, {}, r"the token expired \d{10} s ago"),
        ({"exp": None}, {}, "the token has no exp"),
        ({"exp": "soon"}, {}, "its exp cannot be used"),
        ({"nbf": 2**33}, {}, "its nbf is in the future: check the clocks"),
        ({"iat": 2**33}, {}, "its iat is in the future: check the clocks"),
        ({"sub": ""}, {}, "its sub cannot be used|the token's sub is not a name"),
        ({}, {"subject": "name"}, "the token has no name"),
        ({}, {"issuer": "another"}, "its iss is not 'another'"),
        ({"aud": "secret\n"}, {"audience": ("kafka", "x")}, "its aud is none of 'kafka', 'x'"),
    ],
)
def test_the_log_learns_why_a_token_is_refused(
    provider: oidc.Provider, jwks: Path, claims: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    assert re.fullmatch(why, reason(jwks, provider.token(**claims), **settings))


def test_the_log_learns_why_a_signature_is_refused(provider: oidc.Provider, jwks: Path) -> None:
    foreign = rsa.generate_private_key(65537, 2048)
    assert reason(jwks, provider.token(key=foreign)) == "the signature is not by key '1'"
    assert reason(jwks, unsigned({"alg": "HS256", "kid": "1"}, provider)) == "the algorithm 'HS256' is not allowed"
    assert reason(jwks, unsigned({"alg": "RS256", "kid": "c\n\x1b[2J"}, provider)) == (r"there is no key 'c\n\x1b[2J'")
    assert len(reason(jwks, unsigned({"alg": "RS256", "kid": "c" * 10_000}, provider))) < 120
    assert reason(jwks, "x" * 70_000) == "the token is longer than 65536 bytes"
    assert reason(jwks, "a.b.c").startswith("it is not a token that can be checked (")


def test_the_public_key_is_no_secret_to_sign_with(provider: oidc.Provider, jwks: Path) -> None:
    from joserfc import jwt

    public = json.loads(provider.keys())["keys"][0]["n"]
    key = jwk.OctKey.import_key(public)
    claims = {"sub": "root", "exp": int(time.time()) + 60}
    with pytest.raises(Refused):
        check(jwks, jwt.encode({"alg": "HS256", "kid": "1"}, claims, key))


@pytest.mark.parametrize(
    "content", ["", "[]", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "eA", "kid": "1"}]}', None]
)
def test_a_file_without_keys_is_refused_at_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"sasl: the keys of .*jwks.json cannot be read"):
        TokenCheck(OAuthSettings(jwks=str(path)))


# -- keys that change


class KeyServer:
    """Serves a JWKS.

    Attributes:
        body: the response, or ``None``: an error.
        asked: how often.
    """

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.asked = 0
        self.url = ""


@contextmanager
def serving() -> Iterator[KeyServer]:
    its = KeyServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            its.asked += 1
            self.send_response(200 if its.body is not None else 503)
            self.end_headers()
            self.wfile.write(its.body or b"")

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    its.url = f"http://127.0.0.1:{server.server_port}/keys"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield its
    finally:
        server.shutdown()
        server.server_close()
        thread.join(HUNG)


def keys_named(*ids: str) -> bytes:
    numbers = json.loads(oidc.Provider().keys())["keys"][0]
    return json.dumps({"keys": [{**numbers, "kid": each} for each in ids]}).encode()


def test_an_unknown_key_is_looked_up_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    with serving() as server, caplog.at_level(logging.INFO):
        server.body = keys_named("a")
        keys = SigningKeys(OAuthSettings(jwks=server.url), jwk, lambda: now)
        assert keys.key("a") is not None
        assert server.asked == 1
        server.body = keys_named("a", "b")
        now = 11.0
        assert keys.key("b") is not None
        assert server.asked == 2
        for _ in range(100):
            with pytest.raises(LookupError):
                keys.key("stranger")
        assert server.asked == 2, "strangers cause no more requests"
        now = 22.0
        server.body = None
        with pytest.raises(LookupError):
            keys.key("stranger")
        assert server.asked == 3
        assert keys.key("a") is not None, "the old keys stay while the URL is down"
        now = 33.0
        with pytest.raises(LookupError):
            keys.key("stranger")
        told = [each.getMessage() for each in caplog.records]
        assert told == ["keys of OAUTHBEARER cannot be loaded, keeping the previous ones: HTTP 503"]
        server.body = keys_named("c")
        now = 44.0
        assert keys.key("c") is not None
        with pytest.raises(LookupError):
            keys.key("a")
        assert caplog.records[-1].getMessage() == "keys of OAUTHBEARER load again"


def test_a_withdrawn_key_ends_with_the_next_refresh() -> None:
    now = 0.0
    with serving() as server:
        server.body = keys_named("a", "b")
        keys = SigningKeys(OAuthSettings(jwks=server.url, refresh=60.0), jwk, lambda: now)
        assert keys.key("a") is not None
        server.body = keys_named("b")
        now = 59.0
        assert keys.key("a") is not None
        now = 61.0
        with pytest.raises(LookupError):
            keys.key("a")


def test_without_a_name_there_must_be_one_key_only() -> None:
    with serving() as server:
        server.body = keys_named("a", "b")
        keys = SigningKeys(OAuthSettings(jwks=server.url), jwk)
        with pytest.raises(LookupError):
            keys.key(None)
    with serving() as server:
        server.body = keys_named("a")
        assert SigningKeys(OAuthSettings(jwks=server.url), jwk).key(None) is not None
