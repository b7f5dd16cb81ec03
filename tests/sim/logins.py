"""Brokers that require OAUTHBEARER: short-lived tokens, sessions that expire (KIP-368), a token endpoint that fails.

Rules:
- A client sends no other request before it has authenticated, and none while it reauthenticates.
- A node closes a connection at the first request after its session has expired. A client renews the session in time,
  and sends a request after its end only if it has no token that lasts long enough.
- Nodes accept a token for some seconds after its expiry, as Kafka does because clocks differ.

Source: SaslServerAuthenticator.java, SocketServer.scala (processCompletedReceives).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.errors import ConnectionLost, SaslAuthenticationFailed
from ottla.sasl import OAuthBearer, Token
from ottla.sdk.connection.credentials import ENOUGH
from ottla.sdk.connection.session import SHORTEST_SESSION
from ottla.sdk.events import TokenFetched
from tests.sim.clock import Clock
from tests.sim.network import Link, Reply
from tests.sim.users import Process, Violation

BEFORE = "a client sends a request before it has authenticated"
HURRY = "a client renews a session more than once in a second"
ENDED = "a client lets a session expire though it has a token for the next one"

HANDSHAKE = ApiVersionsRequest | SaslHandshakeRequest | SaslAuthenticateRequest

SKEW = 30.0
"""Seconds for which an expired token is accepted: `sasl.oauthbearer.clock.skew.seconds`."""
LATEST = 1.0
"""Most seconds until a request arrives."""
_FAILURES = 3
"""Most failures of the endpoint in a row."""


@dataclass(frozen=True)
class Endpoint:
    """Stands for a user's function; the simulated process never calls it."""

    def __call__(self) -> Token:
        raise NotImplementedError


class Logins:
    """Args: until: after this time the endpoint does not fail."""

    def __init__(self, clock: Clock, chance: Random, features: Counter[str], until: float) -> None:
        self._clock, self._chance, self._features, self._until = clock, chance, features, until
        self.sasl = OAuthBearer(Endpoint())
        self._longest = chance.choice((2.0, 3.0, 60.0))
        """Most seconds of a session: `connections.max.reauth.ms`."""
        self._lasts = chance.choice((6.0, 12.0, 60.0))
        self._expire_at: dict[bytes, float] = {}
        self._failures: Counter[str] = Counter()

    # -- the endpoint ------------------------------------------------------------------------------------------------

    def fetch(self, process: Process) -> None:
        """Carry out `RunInThread` for a process."""
        self._clock.later(self._chance.choice((0.001, 0.02, 0.02, 0.3)), lambda: process.hear(self._fetched(process)))

    def _fetched(self, process: Process) -> TokenFetched:
        fails = self._clock.now < self._until and self._chance.random() < 0.3
        if fails and self._failures[process.name] < _FAILURES:
            self._failures[process.name] += 1
            self._features["no token can be fetched"] += 1
            return TokenFetched(error=ConnectionLost("the endpoint cannot be reached"))
        self._failures[process.name] = 0
        token = Token(f"t{len(self._expire_at)}", 0.0)
        lasts = self._lasts * self._chance.uniform(0.75, 1.0)
        self._expire_at[token.value.encode()] = self._clock.now + lasts
        return TokenFetched(token, lasts)

    # -- the nodes ---------------------------------------------------------------------------------------------------

    def serve(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        """Serve the requests of authentication, and check the session; ``False`` leaves the request to the cluster."""
        now = self._clock.now
        match message:
            case ApiVersionsRequest() if not link.logged_in:
                return False
            case SaslHandshakeRequest():
                if now < link.proved_at + 1.0:
                    raise Violation(HURRY, link.label)
                link.proving, link.proved_at = True, now
                reply(SaslHandshakeResponse(error_code=0, mechanisms=("OAUTHBEARER",)))
            case SaslAuthenticateRequest() if link.proving:
                link.proving = False
                reply(self._judged(link, version, message))
            case _ if link.proving or not link.logged_in:
                raise Violation(BEFORE, f"{link.label}: {type(message).__name__}")
            case _ if now > link.session_ends:
                self._features["a session ends under a request"] += 1
                close("the session has ended")
            case _:
                return False
        return True

    def _judged(self, link: Link, version: int, message: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        now = self._clock.now
        token = bytes(message.auth_bytes).partition(b"Bearer ")[2].partition(b"\x01")[0]
        expires_at = self._expire_at[token]
        if now > expires_at + SKEW:
            return SaslAuthenticateResponse(
                error_code=SaslAuthenticationFailed.code, error_message="expired", auth_bytes=b""
            )
        self._features["a session is renewed"] += link.logged_in
        link.logged_in = True
        lasts = 0
        if version >= 1:
            lasts = max(1, int(min(self._longest, expires_at - now) * 1000))
            link.session_began, link.session, link.session_ends = now, lasts / 1000, now + lasts / 1000
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=lasts)

    # -- the clients' requests ---------------------------------------------------------------------------------------

    def sent(self, link: Link, message: Any) -> None:
        if isinstance(message, HANDSHAKE) or link.writing:
            return
        assert isinstance(link.client, Process)
        credentials = link.client.core.connections.credentials
        now, may = self._clock.now, link.session_began + SHORTEST_SESSION + LATEST
        lasts = credentials._expires_at - now >= link.session * ENOUGH
        if now > max(link.session_ends, may) and lasts:
            raise Violation(ENDED, f"{link.label}: {type(message).__name__}")
