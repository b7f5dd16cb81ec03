"""One connection's session: TLS, the handshake, and the renewal before the session ends (KIP-368).

A client's `Connection` and the proxy's `UpstreamLink` have one each. It says what to send and when; they send it, and
bound the time that it takes.

Rules:
- The handshake begins once TLS is established. No other request is sent before it is done, or while it is repeated to
  renew the session: the broker would serve none.
- A session is renewed before its end. If that needs a token and there is none, requests go on until the session ends;
  then any token will do.

Source: SaslClientAuthenticator.java.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.codec.wire import Buffer
from ottla.errors import AuthenticationFailed
from ottla.sdk.connection.credentials import ConnectionCredentials
from ottla.sdk.connection.handshake import HINT_BEFORE, OURS, Features, Handshake, HandshakeRequest, Software
from ottla.sdk.connection.versions import Range
from ottla.sdk.connection.wire import Wire

if TYPE_CHECKING:
    from ottla.tls import TlsConnection  # given by the caller: a machine does not import OpenSSL

SHORTEST_SESSION = 1.0
"""Seconds between two renewals; brokers refuse an earlier one. Source: KafkaChannel.java."""


class Session:
    """The session of a new connection.

    Args:
        renewal: returns the part of a session after which to renew it.
        software: the client that introduces itself.
        wire: makes the bytes of a connection from this side of TLS.

    Attributes:
        wire: its bytes.
        versions: per API key, the broker's lowest and highest version; empty before the handshake is done.
        features: the cluster's features; empty before the handshake is done.
        renew_at, over_at: when to renew the session, and when it ends; infinite if it lasts as long as the connection.
    """

    def __init__(
        self,
        credentials: ConnectionCredentials,
        renewal: Callable[[], float],
        software: Software = OURS,
        wire: "Callable[[TlsConnection | None], Wire]" = Wire,
    ) -> None:
        self._wire = wire
        self.wire = wire(None)
        self.versions: Mapping[int, Range] = {}
        self.features = Features()
        self.renew_at = self.over_at = math.inf
        self._credentials, self._renewal, self._software = credentials, renewal, software
        self._lifetime = math.inf
        self._connected = False
        self._handshake: Handshake | None = None
        """The handshake under way, or the last one; ``None`` until TLS is established."""
        self._done = False
        """The handshake under way is done."""
        self._asked_at = math.nan
        """When its last request was sent."""

    @property
    def stage(self) -> str:
        """The current stage of the handshake, for messages; empty before it."""
        return self._handshake.stage.name if self._handshake else ""

    @property
    def usual_cause(self) -> str:
        """The usual cause if the broker does not answer now, to follow the reason; empty if there is none."""
        return self._handshake.usual_cause if self._handshake and not self._done else ""

    @property
    def hint(self) -> str:
        """The usual cause if the broker closes the connection now, to follow the reason; empty if there is none."""
        if self._handshake is None:
            return HINT_BEFORE if self._connected and not self.wire.agreed else ""
        return "" if self._done else self._handshake.stage.hint

    def connected(self, tls: "TlsConnection | None") -> None:
        """The connection is open: start ``tls``, this side of TLS; ``None`` for plaintext."""
        self._connected = True
        self.wire = self._wire(tls)
        self.wire.begin()

    def secured(self, now: float) -> HandshakeRequest | None:
        """The first request of the handshake, once, as soon as TLS is established."""
        if not self._connected or self._handshake is not None or not self.wire.agreed:
            return None
        return self._begin(Handshake(credentials=self._credentials, software=self._software), now)

    def renew(self, now: float) -> HandshakeRequest:
        """Authenticate again, on the same connection; returns the first request."""
        return self._begin(Handshake(credentials=self._credentials, versions=self.versions), now)

    def renewable(self, now: float) -> bool:
        """Whether to renew the session now; fetches a token for that, if one is needed."""
        if now < self.renew_at:
            return False
        credentials = self._credentials
        return credentials.renewed(self._lifetime, now) or (now >= self.over_at and credentials.usable(now))

    def answered(self, frame: Buffer, now: float) -> HandshakeRequest | None:
        """Handle a response of the handshake; returns the next request, or ``None`` when the handshake is done.

        Raises:
            AuthenticationFailed: the broker refuses the credentials, or has no such mechanism.
            RemoteProtocolError: the broker violates the protocol.
            BrokerError: the two sides have no common version.
        """
        assert self._handshake is not None
        try:
            following = self._handshake.answered(frame)
        except AuthenticationFailed:
            self._credentials.refused(now)
            raise
        if following is None:
            self._agreed(self._handshake)
        else:
            self._asked_at = now
        return following

    def _begin(self, handshake: Handshake, now: float) -> HandshakeRequest:
        self._handshake, self._done, self._asked_at = handshake, False, now
        return handshake.begin()

    def _agreed(self, handshake: Handshake) -> None:
        self._done = True
        if not self.versions:  # a renewal does not ask for them again
            self.versions, self.features = handshake.versions, handshake.features
        self._lifetime = handshake.session_lifetime or math.inf
        self.renew_at = self._asked_at + max(self._lifetime * self._renewal(), SHORTEST_SESSION)
        self.over_at = self._asked_at + max(self._lifetime, SHORTEST_SESSION)
