"""Tokens: valid and invalid results of a user's function and of a token endpoint."""

import base64
import json
import pickle
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trustme

from ottla import TLS, ClientCredentials, OAuthBearer, Token
from ottla.errors import AuthenticationFailed, ConfigurationError, ConnectionLost
from tests.oidc import CLIENT, SECRET, Provider, dripping, serving
from tests.tls import text


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def provider(ca: trustme.CA) -> Iterator[Provider]:
    with serving(Provider(), ca) as provider:
        yield provider


def credentials(provider: Provider, ca: trustme.CA, **options: Any) -> ClientCredentials:
    given: dict[str, Any] = {"client_id": CLIENT, "client_secret": SECRET, "tls": TLS(ca=text(ca.cert_pem))} | options
    return ClientCredentials(provider.endpoint, **given)


def test_a_token_is_fetched_with_name_and_secret(provider: Provider, ca: trustme.CA) -> None:
    token = credentials(provider, ca, scope="kafka read", parameters={"audience": "us"})()
    assert token.value == provider.issued[0] and 3590 < token.lifetime <= 3600
    (form,) = provider.asked
    assert form.pop("Authorization").startswith("Basic ")
    assert form == {"grant_type": "client_credentials", "scope": "kafka read", "audience": "us"}


@pytest.mark.parametrize(("encoded", "sent"), [(True, b"a+b%2F:p%3Aw"), (False, b"a b/:p:w")])
def test_name_and_secret_are_encoded_as_the_rfc_or_as_java_does(
    provider: Provider, ca: trustme.CA, encoded: bool, sent: bytes
) -> None:
    fetch = credentials(provider, ca, client_id="a b/", client_secret="p:w", urlencode_header=encoded)
    with pytest.raises(AuthenticationFailed, match="HTTP 401"):
        fetch()
    (form,) = provider.asked
    assert base64.b64decode(form["Authorization"].removeprefix("Basic ")) == sent


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ((401, b'{"error": "invalid_client"}'), AuthenticationFailed, "HTTP 401 invalid_client"),
        (
            (400, b'{"error": "invalid_scope", "error_description": "no such scope"}'),
            AuthenticationFailed,
            "HTTP 400 invalid_scope: no such scope",
        ),
        ((503, b"busy"), ConnectionLost, "HTTP 503 Service Unavailable"),
        ((404, b"[" * 100_000), ConnectionLost, "HTTP 404 Not Found"),
        ((302, b"https://127.0.0.1:1/else"), ConnectionLost, "HTTP 302 Found"),
        ((200, b"<html>"), ConnectionLost, "answered without a token"),
        ((200, b'{"access_token": "opaque"}'), ConfigurationError, "not a JWT with an expiry time"),
        ((200, b'{"access_token": "opaque", "expires_in": "soon"}'), ConnectionLost, "expires_in"),
        ((200, b"x" * 2**21), ConnectionLost, "more than 1048576 bytes"),
    ],
)
def test_what_the_endpoint_says_instead_of_a_token_is_told(
    provider: Provider, ca: trustme.CA, answer: Any, error: type[Exception], says: str
) -> None:
    provider.answers = [answer]
    with pytest.raises(error) as raised:
        credentials(provider, ca)()
    assert says in str(raised.value) and SECRET not in str(raised.value)


def test_an_endpoint_that_is_not_there_or_not_trusted_is_told(provider: Provider, ca: trustme.CA) -> None:
    with pytest.raises(AuthenticationFailed, match=r"not trusted: .*ClientCredentials\(tls=TLS\(ca=…\)\)"):
        credentials(provider, ca, tls=TLS(ca=text(trustme.CA().cert_pem)))()
    gone = ClientCredentials("https://127.0.0.1:1/token", CLIENT, SECRET)
    with pytest.raises(ConnectionLost, match=r"https://127.0.0.1:1/token cannot be reached"):
        gone()


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 Busy\r\n\r\n"],
    ids=["status", "header", "body", "refusal"],
)
def test_an_answer_that_drips_is_waited_for_no_longer_than_the_timeout(begins: bytes) -> None:
    said = r"it has not answered within 0\.2 s|HTTP 503 Busy"
    with dripping(begins) as endpoint, pytest.raises(ConnectionLost, match=said):
        ClientCredentials(endpoint, CLIENT, SECRET, timeout=0.2)()


def test_an_answer_of_a_proxy_that_drips_is_waited_for_no_longer_than_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with dripping(b"HTTP/1.0 200 OK\r\nX: ") as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(ConnectionLost, match=r"it has not answered within 0\.2 s"):
            ClientCredentials("https://idp.example.com/token", CLIENT, SECRET, timeout=0.2)()


def test_a_token_that_says_when_it_expires_is_enough(provider: Provider) -> None:
    jwt = provider.token(lasts=60)
    assert 58 <= OAuthBearer(lambda: jwt).fetch().lifetime <= 60
    opaque = Token("opaque", time.time() + 5)
    assert OAuthBearer(lambda: opaque).fetch() is opaque


@pytest.mark.parametrize("value", ["opaque", "a.b.c", "", "two words", b"bytes", None, 7, "a.e30.c", 'a"\x01b'])
def test_what_is_no_token_is_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        OAuthBearer(lambda: value).fetch()
    assert "opaque" not in str(raised.value) and "two words" not in str(raised.value)


async def _coroutine() -> str:
    return ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a.token.it-is",), "must be a function that returns a token, not a str"),
        ((_coroutine,), "it cannot be async"),
        ((str, {"auth": "x"}), "not 'auth'"),
        ((str, {"a b": "x"}), "must be letters"),
        ((str, {"a": "x\x01y"}), "printable ASCII"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        OAuthBearer(*arguments)
    assert "token.it" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "idp.example.com/token",
        "ftp://idp/",
        "https://user:pass@idp/",
        "https:///x",
        "https://[::1/t",
        "https://idp:x/t",
    ],
)
def test_an_endpoint_is_a_url(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a URL") as raised:
        ClientCredentials(endpoint, CLIENT, SECRET)
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize("where", ["client_id", "client_secret", "scope", "parameters"])
def test_what_cannot_be_sent_is_refused_and_not_shown(where: str) -> None:
    given: dict[str, Any] = {"client_id": CLIENT, "client_secret": SECRET}
    given[where] = {"audience": "hunter2\udce9"} if where == "parameters" else "hunter2\udce9"
    with pytest.raises(ConfigurationError, match="UTF-8 can encode") as raised:
        ClientCredentials("https://idp.example.com/token", **given)
    assert "hunter2" not in repr(raised.value) and raised.value.__cause__ is None and raised.value.__suppress_context__


def test_a_function_is_not_shown_as_it_may_hold_a_secret() -> None:
    assert "hunter2" not in repr(OAuthBearer(partial(str, "hunter2")))


def test_the_exchange_is_one_token_and_an_error_is_answered_before_it_comes() -> None:
    sasl = OAuthBearer(lambda: "", {"logicalCluster": "lkc-1"})
    exchange = sasl.exchange_for(Token("abc", 0.0))
    assert exchange.begin() == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"
    assert exchange.answered(b"") is None
    assert exchange.answered(json.dumps({"status": "invalid_token"}).encode()) == b"\x01"


def test_secrets_are_shown_nowhere(provider: Provider, ca: trustme.CA) -> None:
    fetches = credentials(provider, ca)
    token = fetches()
    for each in (fetches, token, OAuthBearer(fetches)):
        assert SECRET not in repr(each) and token.value not in repr(each)
    assert SECRET not in repr(ClientCredentials(provider.endpoint, CLIENT, "-", parameters={"client_secret": SECRET}))
    assert pickle.loads(pickle.dumps(ClientCredentials(provider.endpoint, CLIENT, SECRET))).client_secret == SECRET
