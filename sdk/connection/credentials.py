"""What a client proves with who it is, for all of its connections: a password, or a token that does not last.

Rules:
- A password is always at hand. A token is fetched by the user's function, in a thread, when a connection needs one and
  there is none, or three quarters of its time are over; meanwhile connections go on with what they have.
- A session is renewed with a token that lasts for half as long again at least, lest it be renewed over and over.
- What cannot be fetched is asked for again after a pause, and logged once until it succeeds; connections wait, each
  request for as long as it would wait anyway. `AuthenticationFailed` and `ConfigurationError` end what waits at once.
- Of a token that a broker has refused another one is fetched for the next connection; but one that was just fetched is
  shown to the others as well.

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
    from random import Random  # a machine is given chance, it does not take any

    from ottla.sasl import Mechanism, OAuthBearer, SaslExchange, Token

log = logger("ottla.sdk.connection")

REFRESH_AFTER = 0.75
"""Of a token's time; another one is then fetched."""
ENOUGH = 0.5
"""Of a session: for so long a token has to last that renews it."""
MARGIN = 0.05
"""Of a token's time, at its end, in which no connection begins with it: it would run out on its way."""
SHORTEST_MARGIN, LONGEST_MARGIN = 2.0, 10.0
"""Seconds; brokers do not let a session be renewed within its first."""
SHORTEST_PAUSE = 1.0
"""Seconds between a token and the next."""
LONGEST_PAUSE = 10.0
"""Seconds between attempts to fetch a token; `sasl.login.retry.backoff.max.ms`."""

_NO_THREAD = TokenFetched(error=OttlaError("the system allows no more threads"))


class Actions(Protocol):
    """What a driver is to do."""

    def append(self, action: RunInThread, /) -> None: ...


class Credentials:
    """Those of one client.

    Args:
        wake: called when connections that have waited may go on.
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
        """Why no token is to be had, if another attempt would end alike."""
        self.missing = ""
        """Why a connection cannot begin; empty until one has asked without success."""
        self._why = ""
        """Why the last attempt to fetch a token failed."""

    def usable(self, now: float) -> bool:
        """Whether a connection can begin; fetches a token where it is time for that."""
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
        """For one connection; what is usable is shown."""
        if self._bearer is not None:
            assert self._token is not None
            return self._bearer.exchange_for(self._token)
        assert self.sasl is not None
        return self.sasl.exchange()

    def refused(self, now: float) -> None:
        """A broker did not take them."""
        if now >= self._fetched_at + LONGEST_PAUSE:
            self._refresh_at = self._expires_at = -math.inf

    def fetched(self, event: TokenFetched, now: float) -> None:
        """The user's function has returned, or raised."""
        self._fetching = False
        if event.error is None and event.token is not None and event.lifetime > 0:
            if self._failures:
                log.warning("a token could be fetched again", extra={"attempts": self._failures + 1})
            self._token, self._failures, self._fetched_at = event.token, 0, now
            self._retry_at = now + SHORTEST_PAUSE  # it may be the same as before, from somebody's cache
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
            why = f"the token that was fetched has expired {-event.lifetime:.0f} s ago; is this machine's clock right?"
        else:
            said = error if isinstance(error, OttlaError) else repr(error)
            # A UnicodeError shows the text that it is about, which may be a secret.
            why = f"no token could be fetched: {type(error).__name__ if isinstance(error, UnicodeError) else said}"
        pause = min(self._options.retry_backoff * 2.0 ** min(self._failures, 16), LONGEST_PAUSE)
        self._retry_at = now + pause * self._rng.uniform(0.8, 1.2)
        self._failures += 1
        self._why = why
        if now >= self._expires_at:  # else connections go on with the last one
            self.missing = why
        if self._failures == 1:
            log.warning("no token could be fetched; it is tried again", extra={"why": why})


def _fetched(bearer: "OAuthBearer") -> TokenFetched:
    """In a thread."""
    try:
        token = bearer.fetch()
    except Exception as error:  # whatever it is, the machine decides when to try again
        return TokenFetched(error=error)
    except BaseException as error:  # sys.exit() ends the thread alone
        return TokenFetched(error=RuntimeError(f"the token function ended by {type(error).__name__}"))
    return TokenFetched(token, token.lifetime)
