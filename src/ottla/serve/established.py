"""Shares the connections that a listener may have among the users of its clients.

Rules:
- When all are taken, the listener closes a connection of the user with the most, for a new one: an idle one before
  others, and the longest-idle first. If the new client's user would then have as many, the listener closes the new
  connection instead: clients of one user do not close each other's connections.
- Each user keeps a quarter of all connections, so that an attacker with many hosts cannot take all of a single host.
- A client whose user is unknown belongs to its host; a host with IPv6 has a whole network of addresses.
- A connection counts once its client has authenticated, or at once if it need not. Before, it is a newcomer
  (`ottla.serve.newcomers`). `spare` newcomers find room even if all connections are taken.
"""

from ottla.addresses import network_of
from ottla.client_info import ANONYMOUS, ClientInfo
from ottla.serve.newcomers import Arrival, Complain
from ottla.serve.traffic import ListenerTraffic, Refusal


def spare(most: int) -> int:
    """How many newcomers there may be beside ``most`` connections."""
    return max(8, min(most // 20, 100))


def owner_of(session: ClientInfo) -> str:
    """The user of a client, or its host, for limits."""
    return network_of(session.peer_host) if session.principal == ANONYMOUS else session.principal


class Established:
    """Closes connections beyond ``most``."""

    def __init__(self, most: int, traffic: ListenerTraffic, complain: Complain) -> None:
        self._most, self._traffic, self._complain = most, traffic, complain
        self._of: dict[str, dict[Arrival, None]] = {}
        """Owner -> its connections; no owner is without one."""
        self._owners: dict[Arrival, str] = {}

    def enter(self, connection: Arrival) -> None:
        """Count a connection whose user is known; closes one, maybe this, if there are too many."""
        owner = self._owners[connection] = owner_of(connection.session)
        theirs = self._of.setdefault(owner, {})
        theirs[connection] = None
        if len(self._owners) <= self._most:
            return
        largest = max(self._of.values(), key=len)
        if len(largest) == len(theirs) or len(largest) <= self._most // 4:
            self._close(connection, f"connection refused: {self._most} are open")
        else:
            idlest = min(largest, key=lambda each: (not each.is_idle, each.active_at))
            self._close(idlest, f"connection closed, to make room for {owner}: {self._most} are open")

    def left(self, connection: Arrival) -> None:
        """Forget a connection."""
        if (owner := self._owners.pop(connection, None)) is not None:
            theirs = self._of[owner]
            del theirs[connection]
            if not theirs:
                del self._of[owner]

    def _close(self, connection: Arrival, why: str) -> None:
        self._traffic.refused(Refusal.LIMIT)
        self._complain(why, connection.session)
        self.left(connection)
        connection.close(why)
