"""The users of clients for whom the proxy logs in to upstream: mode `forward`.

Rules:
- A user has the credentials of a login that upstream has accepted. They are in memory only: in no file, log, metric or
  report, and in no ``repr``.
- The proxy uses them no longer than the session that upstream has granted for them. It drops them when all clients of
  the user have been gone for ``keep`` seconds: no record waits longer.
- If upstream refuses them later, the proxy closes the connections of the user's clients, so that they log in again, and
  learn why they cannot.
- Of several logins the one counts whose session lasts longest; of equal ones the newest, which has the newest password.
- A user without credentials waits: its records are neither sent nor lost until it logs in again, or they expire.
- A user's name is the one by which upstream knows it. It tells users apart, so upstream has to use the same claim of
  tokens (`sasl.oauthbearer.sub.claim.name`).

Source: PlainSaslServer.java; OAuthBearerClientInitialResponse.java; KIP-368.
"""

import base64
import json
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakValueDictionary

from ottla.errors import RemoteProtocolError
from ottla.sasl_server.exchanges import PLAIN, parse_bearer
from ottla.sasl_server.scram import HASHES, Malformed, parse_first
from ottla.sdk.connection.credentials import ENOUGH
from ottla.sdk.timers import Timer, Timers

_LATE_REFUSAL = 10.0
"""Seconds after a login in which a refusal may be about the credentials before it, or one broker may not know them."""


@dataclass(frozen=True)
class FirstToken:
    """A mechanism of SASL whose first token a client has sent, and that the proxy sends on its own connections."""

    mechanism: str
    user: str
    token: bytes = field(repr=False)
    bearer: ClassVar[None] = None

    @property
    def who(self) -> str:
        """The client's name in messages."""
        return f"user {self.user!r:.200} by {self.mechanism}"

    @property
    def principal(self) -> str:
        """Kafka's name of the user."""
        return f"User:{self.user}"

    def exchange(self) -> "FirstToken":
        """Begin an exchange for one connection."""
        return self

    def begin(self) -> bytes:
        """Return the first token."""
        return self.token

    def answered(self, token: bytes) -> bytes | None:
        """Answer a token that says why the broker refuses, as OAUTHBEARER demands it; the error follows."""
        return b"\x01" if token else None


_LONGEST_NAME = 1000
"""The most bytes of a user's name."""


def user_of(mechanism: str, token: bytes, claim: str) -> str:
    """The name of the user in a client's first token, which upstream has accepted.

    Args:
        claim: of a JWT, with the name.

    Raises:
        RemoteProtocolError: it has none that the proxy can read.
    """
    user = _user_of_plain(token) if mechanism == PLAIN else _user_of_bearer(token, claim)
    if user and _can_be_stored(user):
        return user
    what = "the user" if mechanism == PLAIN else f"the claim {claim}"
    raise RemoteProtocolError(f"{what} cannot be read from the client's token, though upstream accepts it")


def user_named_in(mechanism: str, token: bytes) -> str | None:
    """The user that a client's first token names, for logs; ``None`` if it cannot be read, or only a claim has it."""
    if mechanism == PLAIN:
        return _user_of_plain(token)
    if mechanism not in HASHES:
        return None
    try:
        return parse_first(token).user
    except Malformed:
        return None


def _can_be_stored(user: str) -> bool:
    """Whether the journal has room for a name: an entry that cannot be written would fail the journal of all users."""
    try:
        return len(user.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can have
        return False


def _user_of_plain(token: bytes) -> str | None:
    parts = token.split(b"\0")
    try:
        return parts[1].decode() if len(parts) == 3 else None
    except UnicodeDecodeError:
        return None


def _user_of_bearer(token: bytes, claim: str) -> str | None:
    user = _claim(token, claim)
    return user if isinstance(user, str) else None


def expiry_of(token: bytes) -> float | None:
    """When a client's first token of OAUTHBEARER expires, in seconds since 1970; ``None`` if it does not say that."""
    expiry = _claim(token, "exp")
    if not isinstance(expiry, int | float):
        return None
    try:
        seconds = float(expiry)
    except OverflowError:  # JSON has integers of any length
        return None
    return seconds if math.isfinite(seconds) else None


def _claim(token: bytes, claim: str) -> object:
    """A claim of a JWT; ``None`` if it has none. Its signature is not checked: upstream has done that."""
    if (parsed := parse_bearer(token.decode("latin-1"))) is None:
        return None
    try:
        found: object = json.loads(base64.urlsafe_b64decode(parsed[1].split(".")[1] + "=="))[claim]
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
    return found


class Principal:
    """Lets the proxy log in as a user of clients, and wakes the connections that wait for its login.

    Attributes:
        name: in Kafka's form ``User:name``.
        sasl: the credentials of the last login that counts; ``None``: there was none, or they were dropped.
    """

    denied: ClassVar[None] = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.sasl: FirstToken | None = None
        self._ends_at = -math.inf
        self._logged_in_at = -math.inf
        self._clients: dict[int, Callable[[str], None]] = {}
        """Client -> closes its connection."""
        self._forgetting: Timer | None = None
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._watching: dict[Hashable, Callable[[], None]] = {}

    @property
    def missing(self) -> str:
        """Why a connection cannot begin; empty if it can."""
        return "" if self._ends_at > -math.inf else "its user has not logged in again"

    def usable(self, now: float) -> bool:
        """Whether the proxy may log in as this user."""
        return self.sasl is not None and now < self._ends_at

    def renewed(self, session: float, now: float) -> bool:
        """Whether a session of so many seconds, which ends soon, can be renewed."""
        return self.usable(now + session * ENOUGH)

    def exchange(self) -> FirstToken:
        """Start a SASL exchange for one connection."""
        assert self.sasl is not None, "only a user with credentials connects"
        return self.sasl.exchange()

    def refused(self, now: float) -> None:
        """Have all clients log in again, because upstream has refused the credentials."""
        if now < self._logged_in_at + _LATE_REFUSAL:
            return
        self._ends_at = -math.inf
        for close in list(self._clients.values()):
            close("upstream refuses the password or the token with which its user has logged in")

    def when_usable(self, waiting: Hashable, then: Callable[[], None]) -> bool:
        """Call ``then`` after the next login; returns whether ``waiting`` is the first that waits for it."""
        first = not self._waiting
        self._waiting[waiting] = then
        watching, self._watching = self._watching, {}
        for call in watching.values():
            call()
        return first

    def when_awaited(self, watching: Hashable, then: Callable[[], None]) -> None:
        """Call ``then`` once something waits for a login, or at once; `watch_no_more` withdraws that."""
        if self._waiting:
            then()
        else:
            self._watching[watching] = then

    def watch_no_more(self, watching: Hashable) -> None:
        """Forget the call of `when_awaited`, if there is one."""
        self._watching.pop(watching, None)

    # -- logins

    def logged_in(
        self, client: int, sasl: FirstToken, ends_at: float, close: Callable[[str], None], now: float
    ) -> None:
        """Take the credentials of a client that upstream has let in.

        Args:
            ends_at: when its session ends.
            close: closes the client's connection.
        """
        self._clients[client] = close
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        if ends_at >= self._ends_at:
            self.sasl, self._ends_at, self._logged_in_at = sasl, ends_at, now
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then()

    def left(self, client: int, timers: Timers, forget_at: float) -> None:
        """Notice that a client has disconnected; without others its credentials are dropped at ``forget_at``."""
        self._clients.pop(client, None)
        if not self._clients and self._forgetting is None:
            self._forgetting = timers.add(forget_at, self._forget)

    def _forget(self, now: float) -> None:
        self.sasl, self._ends_at, self._forgetting = None, -math.inf, None

    def __repr__(self) -> str:
        return f"Principal({self.name!r})"


class Principals:
    """Knows the users of clients by name, as long as anything belongs to them.

    Args:
        keep: seconds for which the proxy may speak for a user whose clients have disconnected.
    """

    def __init__(self, timers: Timers, keep: float) -> None:
        self._timers, self._keep = timers, keep
        self._known: WeakValueDictionary[str, Principal] = WeakValueDictionary()

    def named(self, name: str) -> Principal:
        """The user with this name, in Kafka's form."""
        principal = self._known.get(name)
        if principal is None:
            principal = self._known[name] = Principal(name)
        return principal

    def left(self, principal: Principal, client: int, now: float) -> None:
        """Notice that a client of a user has disconnected."""
        principal.left(client, self._timers, now + self._keep)
