"""A client's credentials, for all of its connections: a password, or a token that expires.

Rules:
- A password is always available. The user's function fetches a token, in a thread, when a connection needs one and
  there is none, or when three quarters of its lifetime have passed; meanwhile connections use the token they have.
- A session is renewed only with a token that lasts for at least half of another session, to avoid constant renewals.
- A failed fetch is retried after a pause, and logged once until one succeeds; connections wait, each request until its
  own deadline. `AuthenticationFailed` and `ConfigurationError` fail waiting requests at once.
- If a broker refuses a token, another one is fetched for the next connection; but a token that was fetched just now is
  tried on the other connections as well.

Source: ExpiringCredentialRefreshingLogin.java; KIP-255 (OAUTHBEARER), KIP-768 (its pauses).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.errors import AuthenticationFailed, ConfigurationError, OttlaError
from ottla.sdk.events import RunInThread, TokenFetched
from ottla.sdk.logs import logger
from ottla.sdk.options import Options
from ottla.sdk.timers import Timers

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

    from ottla.sasl import Mechanism, OAuthBearer, SaslExchange, Token

log = logger("ottla.sdk.connection")

REFRESH_AFTER = 0.75
"""The part of a token's lifetime after which another one is fetched."""
ENOUGH = 0.5
"""The part of a session for which a token must still last to renew that session."""
MARGIN = 0.05
"""The last part of a token's lifetime, in which no connection begins with it: it might expire on the way."""
SHORTEST_MARGIN, LONGEST_MARGIN = 2.0, 10.0
"""Bounds of the margin, in seconds; brokers refuse to renew a session within its first second."""
SHORTEST_PAUSE = 1.0
"""Seconds between a token and the next."""
LONGEST_PAUSE = 10.0
"""Seconds between attempts to fetch a token; `sasl.login.retry.backoff.max.ms`."""

_NO_THREAD = TokenFetched(error=OttlaError("the system allows no more threads"))


class Actions(Protocol):
    """A list of actions for the driver."""

    def append(self, action: RunInThread, /) -> None: ...


class ConnectionCredentials(Protocol):
    """The credentials of a connection, as its session uses them.

    Attributes:
        sasl: ``None``: the connection has no SASL.
        denied: why there are none, if another attempt would fail the same way.
        missing: why a connection cannot begin; empty until one has asked without success.
    """

    @property
    def sasl(self) -> "Mechanism | None": ...

    @property
    def denied(self) -> OttlaError | None: ...

    @property
    def missing(self) -> str: ...

    def usable(self, now: float) -> bool:
        """Whether a connection can begin."""
        ...

    def renewed(self, session: float, now: float) -> bool:
        """Whether a session of so many seconds, which ends soon, can be renewed."""
        ...

    def exchange(self) -> "SaslExchange":
        """Start a SASL exchange."""
        ...

    def refused(self, now: float) -> None:
        """A broker refused the credentials."""
        ...


class Credentials:
    """The credentials of one client.

    Args:
        wake: called when waiting connections may continue.
    """

    def __init__(
        self, options: Options, rng: "Random", timers: Timers, actions: Actions, wake: Callable[[], None]
    ) -> None:
        self.sasl: Mechanism | None = options.sasl
        self._options, self._rng, self._timers, self._actions, self._wake = options, rng, timers, actions, wake
        self._bearer: OAuthBearer | None = None if self.sasl is None else self.sasl.bearer
        self._token: Token | None = None
        self._fetched_at = self._refresh_at = self._expires_at = -math.inf
        self._fetching = False
        self._failures = 0
        self._retry_at = -math.inf
        self.denied: OttlaError | None = None
        """Why there is no token, if another attempt would fail the same way."""
        self.missing = ""
        """Why a connection cannot begin; empty until one has asked without success."""
        self._why = ""
        """Why the last fetch failed."""

    def usable(self, now: float) -> bool:
        """Whether a connection can begin; fetches a token if it is time for that."""
        if self._bearer is None:
            return True
        if now >= self._refresh_at:
            self._fetch(now)
        if now < self._expires_at:
            return True
        self.missing = self._why or "there is no token yet"
        return False

    def renewed(self, session: float, now: float) -> bool:
        """Whether a session of so many seconds, which ends soon, can be renewed; fetches a token for it if not."""
        if self._bearer is None or now + session * ENOUGH <= self._expires_at:
            return True
        self._fetch(now)
        return False

    def exchange(self) -> "SaslExchange":
        """Start a SASL exchange for one connection, with the current credentials."""
        if self._bearer is not None:
            assert self._token is not None
            return self._bearer.exchange_for(self._token)
        assert self.sasl is not None
        return self.sasl.exchange()

    def refused(self, now: float) -> None:
        """A broker refused the credentials."""
        if now >= self._fetched_at + LONGEST_PAUSE:
            self._refresh_at = self._expires_at = -math.inf

    def fetched(self, event: TokenFetched, now: float) -> None:
        """The user's function has returned, or raised."""
        self._fetching = False
        if event.error is None and event.token is not None and event.lifetime > 0:
            if self._failures:
                log.warning("token refresh recovered", extra={"attempts": self._failures + 1})
            self._token, self._failures, self._fetched_at = event.token, 0, now
            self._retry_at = now + SHORTEST_PAUSE  # a caching token function may return the same token again
            self._refresh_at = now + event.lifetime * REFRESH_AFTER
            margin = min(max(event.lifetime * MARGIN, SHORTEST_MARGIN), LONGEST_MARGIN)
            self._expires_at = now + event.lifetime - min(margin, event.lifetime * (1 - REFRESH_AFTER))
            self.missing = self._why = ""
        else:
            self._failed(event, now)
        self._timers.add(self._retry_at, lambda now: self._wake())
        self._wake()

    def _fetch(self, now: float) -> None:
        if self._fetching or now < self._retry_at:
            return
        assert self._bearer is not None
        self._fetching, self.denied = True, None
        self._actions.append(RunInThread(partial(_fetched, self._bearer), _NO_THREAD))

    def _failed(self, event: TokenFetched, now: float) -> None:
        error = event.error
        if isinstance(error, AuthenticationFailed | ConfigurationError):
            self.denied = error
        if error is None:
            why = f"the fetched token expired {-event.lifetime:.0f} s ago; is this machine's clock right?"
        else:
            said = error if isinstance(error, OttlaError) else repr(error)
            # A UnicodeError shows the text that it failed on, which may be a secret.
            why = f"token refresh failed: {type(error).__name__ if isinstance(error, UnicodeError) else said}"
        pause = min(self._options.retry_backoff * 2.0 ** min(self._failures, 16), LONGEST_PAUSE)
        self._retry_at = now + pause * self._rng.uniform(0.8, 1.2)
        self._failures += 1
        self._why = why
        if now >= self._expires_at:  # otherwise connections go on with the current token
            self.missing = why
        if self._failures == 1:
            log.warning("token refresh failed, retrying", extra={"why": why})


def _fetched(bearer: "OAuthBearer") -> TokenFetched:
    """Fetch a token, in a thread."""
    try:
        token = bearer.fetch()
    except Exception as error:  # of any kind: the machine decides when to try again
        return TokenFetched(error=error)
    except BaseException as error:  # sys.exit() in the user's function must only end this thread
        return TokenFetched(error=RuntimeError(f"the token function raised {type(error).__name__}"))
    return TokenFetched(token, token.lifetime)
