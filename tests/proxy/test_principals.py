"""The users for whom the proxy logs in to upstream: which credentials count, and for how long."""

from ottla.proxy.upstream.principals import _LATE_REFUSAL, FirstToken, Principal, Principals
from ottla.sdk.timers import Timers

OLD, NEW = FirstToken("PLAIN", "alice", b"\0alice\0old"), FirstToken("PLAIN", "alice", b"\0alice\0new")
FOR_EVER = float("inf")


class Login:
    """A user with clients; keeps which of them were closed."""

    def __init__(self) -> None:
        self.principal = Principal("User:alice")
        self.closed: list[int] = []

    def by(self, client: int, sasl: FirstToken, ends_at: float = FOR_EVER, now: float = 0.0) -> None:
        self.principal.logged_in(client, sasl, ends_at, lambda why: self.closed.append(client), now)


def test_of_equal_logins_the_newest_counts_because_passwords_change() -> None:
    login = Login()
    login.by(1, OLD)
    login.by(2, NEW)
    assert login.principal.exchange().begin() == NEW.token


def test_a_session_is_renewed_only_with_credentials_that_last_for_half_of_another() -> None:
    login = Login()
    login.by(1, OLD, ends_at=100.0)
    assert login.principal.renewed(60.0, 69.0) and not login.principal.renewed(60.0, 71.0)
    assert login.principal.usable(71.0) and not login.principal.usable(100.0)


def test_a_refusal_soon_after_a_login_may_be_about_the_credentials_before_it() -> None:
    """A connection may have begun with them; and not all brokers learn of a new password at once."""
    login = Login()
    login.by(1, OLD)
    login.by(1, NEW, now=20.0)
    login.principal.refused(20.0 + _LATE_REFUSAL - 1)
    assert login.principal.usable(30.0) and not login.closed
    login.principal.refused(20.0 + _LATE_REFUSAL)
    assert not login.principal.usable(30.0) and login.closed == [1]


def test_what_waits_goes_on_after_the_next_login_and_is_told_once() -> None:
    login, told = Login(), list[int]()
    assert login.principal.when_usable("first", lambda: told.append(1))
    assert not login.principal.when_usable("second", lambda: told.append(2))
    assert not login.principal.when_usable("second", lambda: told.append(3))
    login.by(1, OLD)
    login.by(2, OLD)
    assert told == [1, 3]


def test_a_reason_of_oauthbearer_is_answered_before_the_error_comes() -> None:
    token = FirstToken("OAUTHBEARER", "alice", b"n,,")
    assert token.answered(b'{"status":"invalid_token"}') == b"\x01"
    assert token.answered(b"") is None


def test_a_user_is_one_object_as_long_as_anything_belongs_to_it() -> None:
    principals = Principals(Timers(), keep=1.0)
    alice = principals.named("User:alice")
    assert principals.named("User:alice") is alice
    del alice
    assert not principals._known, "users come and go"
