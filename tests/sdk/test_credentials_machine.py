"""`Credentials` alone, without a connection or a clock: when it fetches a token, and how it behaves without one."""

import logging
import random
import re
from typing import Any

import pytest

from ottla.errors import AuthenticationFailed, ConfigurationError, ConnectionLost
from ottla.sasl import OAuthBearer, Plain, Token
from ottla.sdk.connection.credentials import LONGEST_PAUSE, Credentials
from ottla.sdk.events import Action, RunInThread, TokenFetched
from ottla.sdk.options import Options
from ottla.sdk.timers import Timers


class World:
    def __init__(self, sasl: Any = None) -> None:
        self.timers, self.actions, self.woken = Timers(), list[Action](), 0
        options = Options(sasl=sasl or OAuthBearer(lambda: ""))
        self.credentials = Credentials(options, random.Random(1), self.timers, self.actions, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def asked(self) -> int:
        """How many tokens were requested since the last call."""
        asked = len(self.actions)
        assert all(isinstance(each, RunInThread) for each in self.actions)
        self.actions.clear()
        return asked

    def fetched(self, now: float, lifetime: float = 100.0) -> None:
        self.credentials.fetched(TokenFetched(Token("t", 0.0), lifetime), now)

    def fails(self, now: float, error: Exception) -> None:
        self.credentials.fetched(TokenFetched(error=error), now)


def test_a_password_is_always_at_hand() -> None:
    world = World(Plain("alice", "secret"))
    assert world.credentials.usable(0.0) and world.credentials.renewed(1000.0, 0.0) and not world.asked()


def test_a_token_is_fetched_when_one_is_needed_and_no_more_while_that_is_under_way() -> None:
    world = World()
    assert not world.asked()
    assert not world.credentials.usable(0.0) and not world.credentials.usable(0.0)
    assert world.asked() == 1 and world.credentials.missing == "there is no token yet"
    world.fetched(1.0)
    assert world.woken == 1 and world.credentials.usable(1.0) and not world.credentials.missing
    assert world.credentials.usable(75.0) and not world.asked()
    assert world.credentials.usable(77.0) and world.asked() == 1, "still usable; the next one is being fetched"
    assert not world.credentials.usable(97.0), "it could expire before the broker checks it"


def test_a_session_is_renewed_with_a_token_that_lasts_for_half_as_long_at_least() -> None:
    world = World()
    world.credentials.usable(0.0)
    world.fetched(0.0)
    world.actions.clear()
    assert world.credentials.renewed(20.0, 50.0) and not world.asked(), "the token outlasts the session"
    assert not world.credentials.renewed(100.0, 85.0) and world.asked() == 1
    world.fetched(86.0)
    assert world.credentials.renewed(100.0, 86.0)


def test_a_token_that_somebody_keeps_is_not_asked_for_over_and_over() -> None:
    world = World()
    world.credentials.usable(0.0)
    world.fetched(0.0)
    world.actions.clear()
    assert not world.credentials.renewed(100.0, 85.0) and world.asked() == 1
    world.fetched(85.0, 15.0)  # the same token
    for tenth in range(20):
        world.credentials.renewed(100.0, 85.0 + tenth / 10)
    assert world.asked() == 1


def test_what_cannot_be_fetched_is_asked_for_again_after_pauses_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, asked_at = World(), []
    with caplog.at_level(logging.WARNING):
        for tenth in range(1000):
            now = tenth / 10
            while call := world.timers.due(now):
                call(now)
            world.credentials.usable(now)
            if world.asked():
                asked_at.append(now)
                world.fails(now, OSError("down"))
        world.credentials.usable(200.0)
        world.fetched(200.0)
    assert 12 <= len(asked_at) <= 20 and asked_at[-1] - asked_at[-2] <= 1.2 * LONGEST_PAUSE + 0.1
    assert world.woken >= 2 * len(asked_at), "at the failure and when the backoff has passed"
    assert [re.split("[;(]", each.getMessage())[0].strip() for each in caplog.records] == [
        "token refresh failed, retrying",
        "token refresh recovered",
    ]


@pytest.mark.parametrize("error", [AuthenticationFailed("who?"), ConfigurationError("no token")])
def test_what_would_end_alike_is_told_at_once_and_may_be_mended(error: Exception) -> None:
    world = World()
    assert not world.credentials.usable(0.0) and world.asked() == 1
    world.fails(0.0, error)
    assert world.credentials.denied is error and world.woken == 1
    assert not world.credentials.usable(0.05) and world.credentials.denied is error and not world.asked()
    assert not world.credentials.usable(1.0) and world.asked() == 1 and world.credentials.denied is None
    world.fetched(1.0)
    assert world.credentials.usable(1.0)


def test_a_token_that_has_expired_when_it_comes_is_not_shown_and_the_clock_is_suspected() -> None:
    world = World()
    world.credentials.usable(0.0)
    world.fetched(0.0, -3600.0)
    assert not world.credentials.usable(0.0)
    assert world.credentials.missing.endswith("expired 3600 s ago; is this machine's clock right?")


def test_a_refresh_that_fails_keeps_no_connection_from_the_token_that_still_lasts() -> None:
    world = World()
    world.fetched(0.0)
    assert world.credentials.usable(80.0) and world.asked() == 1, "while another one is fetched"
    world.fails(80.0, ConnectionLost("no endpoint"))
    assert world.credentials.usable(81.0) and not world.credentials.missing
    assert not world.credentials.usable(120.0) and "no endpoint" in world.credentials.missing


def test_an_error_that_shows_a_text_which_may_be_a_secret_is_named_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.credentials.usable(0.0)
    world.fails(1.0, UnicodeEncodeError("utf-8", "hunter2\udce9", 7, 8, "surrogates not allowed"))
    said = world.credentials.missing + "".join(str(each.__dict__) for each in caplog.records)
    assert "token refresh failed: UnicodeEncodeError" in said and "hunter2" not in said


def test_a_token_that_a_broker_refuses_is_replaced_unless_it_is_new() -> None:
    world = World()
    world.credentials.usable(0.0)
    world.fetched(0.0)
    world.actions.clear()
    world.credentials.refused(1.0)
    assert world.credentials.usable(1.0) and not world.asked()
    world.credentials.refused(20.0)
    assert not world.credentials.usable(20.0) and world.asked() == 1


def test_what_the_users_function_raises_is_told_and_not_what_it_held() -> None:
    def broken() -> str:
        secret = "tell-nobody"
        raise ConnectionLost(f"no answer within {len(secret)} s")

    world = World(OAuthBearer(broken))
    world.credentials.usable(0.0)
    (action,) = world.actions
    assert isinstance(action, RunInThread)
    event = action.call()
    assert isinstance(event, TokenFetched)
    world.credentials.fetched(event, 0.0)
    assert world.credentials.missing == "token refresh failed: no answer within 11 s"
