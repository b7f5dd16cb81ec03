"""Limits what connections cost before their clients have authenticated.

Rules:
- A client has `ListenerLimits.handshake` seconds to authenticate, from its connection on, TLS included.
- At most a quarter of all connections may be without authentication; a new one closes the oldest of them. So silent
  connections never keep others out.
- Before that, a request has at most the bytes that the service allows.
"""

import math
from typing import TYPE_CHECKING

import trio

from ottla.serve.listener_context import ListenerContext
from ottla.serve.traffic import Refusal

if TYPE_CHECKING:
    from ottla.serve.connection import AcceptedConnection

_LOOK = 1.0
"""Seconds between two checks for clients that do not authenticate."""


class Newcomers:
    """Closes connections that do not authenticate."""

    def __init__(self, shared: ListenerContext) -> None:
        self._shared = shared
        self._until: dict[AcceptedConnection, float] = {}
        """Connection -> when it must have authenticated, the oldest first; infinite: it has failed, and ends soon."""
        self._most = max(shared.limits.max_connections // 4, 1)

    async def run(self) -> None:
        """Close connections that take too long, until cancelled."""
        while True:
            await trio.sleep(_LOOK)
            now = trio.current_time()
            for connection in [each for each, until in self._until.items() if until <= now]:
                self._close(connection, f"no authentication within {self._shared.limits.handshake:g} s")

    def arrived(self, connection: "AcceptedConnection", max_receive: int) -> None:
        """Take a new connection, whose requests have at most ``max_receive`` bytes for now."""
        connection.limit_frames(max_receive)
        if len(self._until) >= self._most:
            oldest = next(iter(self._until))
            self._close(oldest, f"{len(self._until)} connections have not authenticated yet, and this is the oldest")
        self._until[connection] = trio.current_time() + self._shared.limits.handshake

    def authenticated(self, connection: "AcceptedConnection") -> None:
        """The client has authenticated: from now on its requests may have `ListenerLimits.max_frame` bytes."""
        if self._until.pop(connection, None) is not None:
            connection.limit_frames()

    def left(self, connection: "AcceptedConnection") -> None:
        self._until.pop(connection, None)

    def failed(self, connection: "AcceptedConnection", why: str) -> None:
        """Count a failed authentication, and log it; the connection is about to be closed."""
        if connection in self._until:
            self._until[connection] = math.inf
        self._shared.traffic.refused(Refusal.SASL)
        self._shared.complain(f"authentication failed: {why}", connection.session)

    def _close(self, connection: "AcceptedConnection", why: str) -> None:
        if self._until.pop(connection) < math.inf:
            self.failed(connection, why)
        connection.close(why)
