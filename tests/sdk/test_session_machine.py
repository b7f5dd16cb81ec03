"""The session of a connection: its requests, its renewal, and its hints if the broker is silent or closes."""

import math
from random import Random

import pytest

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.errors import AuthenticationFailed
from ottla.sasl import OAuthBearer, Plain, Token
from ottla.sdk.connection.credentials import Credentials
from ottla.sdk.connection.handshake import HINT_SILENT
from ottla.sdk.connection.session import SHORTEST_SESSION, Session
from ottla.sdk.events import TokenFetched
from ottla.sdk.options import Options
from ottla.sdk.timers import Timers

VERSIONS = {17: (0, 1), 18: (0, 3), 36: (0, 2)}


def session(mechanism: Plain | OAuthBearer | None = None) -> tuple[Session, Credentials]:
    credentials = Credentials(Options(sasl=mechanism), Random(1), Timers(), [], lambda: None)
    return Session(credentials, lambda: 0.5), credentials


def answer(response: object, version: int) -> bytes:
    return frames.build_response(response, version, 0)[4:]


def versions() -> bytes:
    keys = tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in VERSIONS.items())
    return answer(ApiVersionsResponse(error_code=0, api_keys=keys), 3)


def let_in(lifetime: float = 0.0, error_code: int = 0) -> bytes:
    said = SaslAuthenticateResponse(
        error_code=error_code, error_message=None, auth_bytes=b"", session_lifetime_ms=int(lifetime * 1000)
    )
    return answer(said, 2)


def chosen() -> bytes:
    return answer(SaslHandshakeResponse(error_code=0, mechanisms=()), 1)


def authenticated(one: Session, lifetime: float, now: float) -> None:
    one.connected(None)
    one.secured(now)
    one.answered(versions(), now)
    one.answered(chosen(), now)
    assert one.answered(let_in(lifetime), now) is None


def test_the_stages_follow_one_another_and_the_session_has_an_end() -> None:
    one, _ = session(Plain("ann", "secret"))
    assert one.secured(0.0) is None, "there is no connection yet"
    one.connected(None)
    first = one.secured(1.0)
    assert first is not None and isinstance(first.request, ApiVersionsRequest)
    assert one.secured(1.0) is None, "only once"
    assert (one.stage, one.usual_cause) == ("ApiVersions", HINT_SILENT)
    second = one.answered(versions(), 2.0)
    assert second is not None and isinstance(second.request, SaslHandshakeRequest)
    assert one.usual_cause == "" and "PLAIN" in one.hint
    third = one.answered(chosen(), 3.0)
    assert third is not None and isinstance(third.request, SaslAuthenticateRequest)
    assert one.renew_at == math.inf and one.versions == {}
    assert one.answered(let_in(60.0), 4.0) is None
    assert (one.renew_at, one.over_at) == (33.0, 63.0), "counted from the last request"
    assert one.versions == VERSIONS and one.hint == one.usual_cause == ""


def test_a_session_without_an_end_is_never_renewed() -> None:
    one, _ = session()
    one.connected(None)
    one.secured(0.0)
    assert one.answered(versions(), 0.0) is None
    assert not one.renewable(1e12) and one.over_at == math.inf


def test_a_renewal_asks_for_no_versions_and_sets_a_new_end() -> None:
    one, _ = session(Plain("ann", "secret"))
    authenticated(one, 60.0, 0.0)
    assert not one.renewable(29.9) and one.renewable(30.0)
    assert isinstance(one.renew(30.0).request, SaslHandshakeRequest)
    one.answered(chosen(), 31.0)
    assert "PLAIN" in one.hint, "while it is under way"
    one.answered(let_in(10.0), 32.0)
    assert (one.renew_at, one.over_at) == (36.0, 41.0)
    assert one.versions == VERSIONS


def test_no_session_is_shorter_than_brokers_allow() -> None:
    one, _ = session(Plain("ann", "secret"))
    authenticated(one, 0.2, 0.0)
    assert one.renew_at == one.over_at == SHORTEST_SESSION


def test_a_renewal_waits_for_a_token_that_lasts_until_the_session_is_over() -> None:
    one, credentials = session(OAuthBearer(lambda: Token("t", 0)))
    credentials.fetched(TokenFetched(Token("t", 0), 70.0), 0.0)
    authenticated(one, 60.0, 0.0)
    assert not one.renewable(45.0), "half of another session is longer than the token lasts"
    assert one.renewable(60.0), "after its end any token will do"


def test_a_token_that_is_refused_is_not_used_again() -> None:
    one, credentials = session(OAuthBearer(lambda: Token("t", 0)))
    credentials.fetched(TokenFetched(Token("t", 0), 1000.0), 0.0)
    one.connected(None)
    one.secured(100.0)
    one.answered(versions(), 100.0)
    one.answered(chosen(), 100.0)
    with pytest.raises(AuthenticationFailed):
        one.answered(let_in(error_code=58), 100.0)
    assert not credentials.usable(100.0)
