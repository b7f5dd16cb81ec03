"""The budget: counts the memory that the proxy holds for its clients, and says who may take more.

Rules:
- Everything counts: requests that are read, that wait, or that are queued for upstream; records in flight; responses
  that are read from upstream or queued for clients; records that are read only to be counted; denied entries that will
  be added to a response; records of refused batches that are remembered (`ottla.proxy.clients.refused_memory`).
- Within the budget there is no limit for a client. Above it, a client may take more only within its equal share: so
  what some clients hold delays no others. The users have equal shares, or the hosts of clients without a login, and
  divide theirs among their clients: so many connections do not get more.
- A passage needs little memory, and always goes on: it waits for its own other side only, never for other clients.
"""

from collections import Counter
from collections.abc import Hashable

from ottla.errors import NotEnoughReplicas

WINDOW = 4 * 2**20
"""The most bytes of passages that wait for one client, or for its upstream connection. Not less: when the proxy stops,
it still sends requests with ``acks=0`` that it has read, and no others."""
LEAST_WINDOW = 64 * 2**10
"""The same above the budget, for clients without a larger share."""


class Buffered:
    """Counts the approximate bytes that are held for each client.

    Args:
        most: the budget in bytes.

    Attributes:
        of: client -> bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self.of: Counter[int] = Counter()
        self._owners: dict[int, Hashable] = {}
        """Client -> its user or host; a client that is not in it is its own."""
        self._clients: Counter[Hashable] = Counter()
        """Owner -> its clients for whom something is held; no owner is without one."""

    def belongs(self, client: int, owner: Hashable) -> None:
        """Take the user or the host of a client, by which shares are computed."""
        held = self.of.get(client, 0)
        self.count(client, -held)
        self._owners[client] = owner
        self.count(client, held)

    def left(self, client: int) -> None:
        """Notice that a client has disconnected: what is still held for it counts as its own."""
        held = self.of.get(client, 0)
        self.count(client, -held)
        self._owners.pop(client, None)
        self.count(client, held)

    def count(self, client: int, size: int) -> None:
        """Add ``size`` bytes to a client's; a negative size subtracts."""
        if not size:
            return
        before = self.of[client]
        self.total += size
        self.of[client] += size
        owner = self._owners.get(client, client)
        if not before:
            self._clients[owner] += 1
        elif before == -size:
            del self.of[client]
            self._clients[owner] -= 1
            if not self._clients[owner]:
                del self._clients[owner]

    def share(self, client: int, others: int = 0) -> int:
        """The equal share of a client among those of its owner, which have an equal share together.

        Args:
            others: how many clients of other owners are expected.
        """
        owner = self._owners.get(client, client)
        owners = len(self._clients) + (owner not in self._clients)
        clients = self._clients[owner] + (client not in self.of)
        return self.most // (owners * clients + others)

    def allows(self, client: int, size: int) -> bool:
        """Whether a client may take ``size`` more bytes now."""
        return self.total + size <= self.most or self.of[client] + size <= self.share(client, 1)

    def window(self, client: int) -> int:
        """How many bytes of passages may wait for a client, or for its upstream connection."""
        if self.total <= self.most:
            return WINDOW
        return max(LEAST_WINDOW, min(WINDOW, self.share(client)))

    def check_room(self, client: int, size: int) -> None:
        """Refuse records if twice the budget is used and the client would exceed its fair share.

        Long before this the proxy stops reading from clients; this bounds what new connections bring while upstream
        is unavailable. A client within its share does not suffer from what others send.

        Raises:
            NotEnoughReplicas: there is no room for ``size`` more bytes of this client.
        """
        if self.total > 2 * self.most and self.of[client] + size > self.share(client, 1):
            raise NotEnoughReplicas("the proxy's buffer is full, because upstream accepts no records at the moment")
