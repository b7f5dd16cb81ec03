"""Limits what connections cost before their clients have authenticated.

Rules:
- A client has `ListenerLimits.handshake` seconds for the TLS handshake and for SASL together, from its connection on.
- At most a quarter of all connections may be newcomers. A new one closes the oldest of the host that has the most, so
  silent connections never keep others out, and one host cannot close the connections of another that has fewer.
- A host with IPv6 has a whole network of addresses: the first 64 bits count.
- Before a login by SASL, a request has at most the bytes that the service allows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from ottla.addresses import network_of
from ottla.client_info import ClientInfo
from ottla.serve.traffic import ListenerTraffic, Refusal

_LOGIN = 2.0
"""Seconds that a login may take even if other clients wait for its place."""
_LOOK = 1.0
"""Seconds between two checks for clients that do not authenticate."""


class Arrival(Protocol):
    """A connection, as far as it matters here."""

    session: ClientInfo

    @property
    def active_at(self) -> float: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def is_secured(self) -> bool: ...
    def limit_frames(self, size: int | None = None) -> None: ...
    def identified(self) -> None: ...
    def close(self, why: str) -> None: ...


class Complain(Protocol):
    """Logs a complaint about a client, if it is new; see `Complaints`."""

    def __call__(self, text: str, session: ClientInfo, kind: str = "") -> None: ...


@dataclass(slots=True)
class _Newcomer:
    """Facts about a newcomer.

    Attributes:
        until: when it must have authenticated.
        logs_in: a service authenticates it; otherwise the TLS handshake does.
        has_failed: it has failed, and ends soon.
    """

    until: float
    logs_in: bool = False
    has_failed: bool = False

    def needs_login(self) -> None:
        """The TLS handshake is not enough."""
        self.logs_in = True

    def fails(self) -> None:
        """Its authentication has failed."""
        self.has_failed = True


class Newcomers:
    """Closes connections that do not authenticate.

    Args:
        max_connections: of the listener.
        handshake: seconds until a client must have authenticated.
        identified: called with each connection whose client has authenticated, or need not.
    """

    def __init__(
        self,
        max_connections: int,
        handshake: float,
        traffic: ListenerTraffic,
        complain: Complain,
        identified: Callable[["Arrival"], None],
    ) -> None:
        self._handshake, self._traffic = handshake, traffic
        self._complain, self._identified = complain, identified
        self._hosts: dict[str, dict[Arrival, _Newcomer]] = {}
        """Host -> its newcomers, the oldest first; no host is without one."""
        self._count = 0
        self._most = max(max_connections // 4, 1)

    async def run(self) -> None:
        """Close connections that take too long, until cancelled."""
        while True:
            await trio.sleep(_LOOK)
            now, limit = trio.current_time(), f"{self._handshake:g} s"
            late = [
                connection
                for theirs in self._hosts.values()
                for connection, each in theirs.items()
                if each.until <= now and not each.has_failed
            ]
            for connection in late:
                done = "no authentication" if connection.is_secured else "TLS handshake not complete"
                self._close(connection, f"{done} within {limit}")

    def arrived(self, connection: Arrival, max_receive: int | None = None) -> None:
        """Take a new connection; again, if a service finds out that it authenticates its client.

        Args:
            max_receive: bytes of a request until the client has logged in; ``None``: it need not.
        """
        theirs = self._hosts.get(host_of(connection), {})
        if (newcomer := theirs.get(connection)) is None:
            if self._count >= self._most:
                self._make_room()
            newcomer = _Newcomer(trio.current_time() + self._handshake)
            self._hosts.setdefault(host_of(connection), {})[connection] = newcomer
            self._count += 1
        if max_receive is not None:
            newcomer.needs_login()
            connection.limit_frames(max_receive)

    def begun(self, connection: Arrival) -> None:
        """Take a connection that has begun, whose client may need neither a login nor a TLS handshake."""
        if connection not in self._hosts.get(host_of(connection), {}):
            self._identified(connection)

    def secured(self, connection: Arrival) -> None:
        """The TLS handshake is done, and the session has the client's principal if that has told it."""
        newcomer = self._hosts.get(host_of(connection), {}).get(connection)
        if newcomer is not None and not newcomer.logs_in:
            self.left(connection)
            self._identified(connection)

    def authenticated(self, connection: Arrival) -> None:
        """The client has authenticated: from now on its requests may have `ListenerLimits.max_frame` bytes.

        The session has its principal, unless only upstream knows that.
        """
        if self.left(connection):
            connection.limit_frames()
            self._identified(connection)

    def left(self, connection: Arrival) -> bool:
        """Forget a connection; return whether it was a newcomer."""
        theirs = self._hosts.get(host := host_of(connection), {})
        if theirs.pop(connection, None) is None:
            return False
        self._count -= 1
        if not theirs:
            del self._hosts[host]
        return True

    def failed(self, connection: Arrival, why: str, kind: str = "") -> None:
        """Count a failed authentication, and log it; the connection is about to be closed.

        Args:
            kind: what counts as the same failure; see `Complaints`.
        """
        if (newcomer := self._hosts.get(host_of(connection), {}).get(connection)) is not None:
            newcomer.fails()
        self._traffic.refused(Refusal.SASL if connection.is_secured else Refusal.TLS)
        what = "authentication failed" if connection.is_secured else "connection refused"
        self._complain(f"{what}: {why}", connection.session, kind)

    def make_room_for(self, host: str, most: int) -> bool:
        """Close the oldest newcomer of the host with the most, if that has more than this one would then have.

        If no host has more, the oldest of all gives way after some time: many hosts may have one silent client each.

        Args:
            most: how many connections are open.

        Returns:
            Whether there is room for a connection from ``host``.
        """
        if not self._hosts:
            return False
        theirs = max(self._hosts.values(), key=len)
        if len(theirs) <= len(self._hosts.get(host, ())) + 1:
            theirs = min(self._hosts.values(), key=lambda each: next(iter(each.values())).until)
            if next(iter(theirs.values())).until > trio.current_time() + self._handshake - _LOGIN:
                return False
        connection = next(iter(theirs))
        why = f"connection closed, to make room for {host}: {most} are open"
        self._traffic.refused(Refusal.LIMIT)
        self._complain(why, connection.session)
        self.left(connection)
        connection.close(why)
        return True

    def _make_room(self) -> None:
        theirs = max(self._hosts.values(), key=len)
        connection, newcomer = next(iter(theirs.items()))
        why = f"{self._count} connections have not authenticated yet, and this is the oldest of the host with the most"
        if newcomer.has_failed:  # which is logged
            self.left(connection)
            connection.close(why)
        else:
            self._close(connection, why)

    def _close(self, connection: Arrival, why: str) -> None:
        self.failed(connection, why)
        self.left(connection)
        connection.close(why)


def host_of(connection: Arrival) -> str:
    """The host of a client, for limits."""
    return network_of(connection.session.peer_host)
