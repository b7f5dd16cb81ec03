"""The budget: counts the memory that the proxy holds for its clients, and says who may take more.

Rules:
- Everything counts: requests that are read, that wait, or that are queued for upstream; records in flight; responses
  that are read from upstream or queued for clients; records that are read only to be counted; denied entries that will
  be added to a response; records of refused batches that are remembered (`ottla.proxy.clients.refused_memory`).
- Within the budget there is no limit for a client. Above it, a client may take more only within its share: so what some
  clients hold delays no others.
- All owners have equal shares, and divide them equally among their clients. An owner is a user, or a host whose clients
  do not log in at the proxy: many connections do not get more than one. The clients of an owner take no more together
  than twice its share at that time.
- At three times the budget nothing more is taken: shares become smaller as owners come, and they may have taken theirs.
- A passage needs little memory, and always goes on: it waits for its own other side only, never for other clients.
"""

from collections import Counter
from collections.abc import Hashable, Mapping

from ottla.errors import NotEnoughReplicas

WINDOW = 4 * 2**20
"""The most bytes of passages that wait for one client, or for its upstream connection. Not less: when the proxy stops,
it still sends requests with ``acks=0`` that it has read, and no others."""
MOST_GONE = 10_000
"""The most disconnected clients whose users and hosts are remembered."""
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
        """Client -> its owner; a client that is not in it is its own."""
        self._gone: dict[int, None] = {}
        """Clients that have disconnected, the oldest first: their connections to upstream may take memory yet."""
        self._held: Counter[Hashable] = Counter()
        """Owner -> the bytes of its clients."""
        self._clients: Counter[Hashable] = Counter()
        """Owner -> its clients for whom something is held; no owner is without one."""

    def assign(self, client: int, owner: Hashable) -> None:
        """Take the user or the host of a client."""
        if client in self._gone:
            return
        held = self.of.get(client, 0)
        self.count(client, -held)
        self._owners[client] = owner
        self.count(client, held)

    def left(self, client: int) -> None:
        """Notice that a client has disconnected: its bytes count for its owner until they are gone."""
        self._gone[client] = None
        for _ in range(2):  # the first may have to stay
            if len(self._gone) > MOST_GONE:
                del self._gone[oldest := next(iter(self._gone))]
                if oldest in self.of:
                    self._gone[oldest] = None
                else:
                    self._owners.pop(oldest, None)

    def count(self, client: int, size: int) -> None:
        """Add ``size`` bytes to a client's; a negative size subtracts."""
        if not size:
            return
        owner, before = self.owner(client), self.of[client]
        self.total += size
        self.of[client] += size
        self._held[owner] += size
        if not before:
            self._clients[owner] += 1
        elif before == -size:
            self._let_go(client, owner)

    def _let_go(self, client: int, owner: Hashable) -> None:
        """Forget a client without bytes."""
        del self.of[client]
        self._clients[owner] -= 1
        if not self._clients[owner]:
            del self._clients[owner], self._held[owner]

    def owner(self, client: int) -> Hashable:
        """The user or the host of a client."""
        return self._owners.get(client, client)

    def shares(self) -> Mapping[Hashable, int]:
        """The share of each client for which something is held, by its owner."""
        of_owner = self.most // max(len(self._clients), 1)
        return {owner: of_owner // count for owner, count in self._clients.items()}

    def share(self, client: int) -> int:
        """The share of a client, whether something is held for it or not."""
        return self._share_of_owner(owner := self.owner(client)) // (self._clients[owner] + (client not in self.of))

    def _share_of_owner(self, owner: Hashable) -> int:
        return self.most // (len(self._clients) + (owner not in self._clients))

    def allows(self, client: int, size: int) -> bool:
        """Whether a client may take ``size`` more bytes now."""
        if self.total + size <= self.most:
            return True
        return self.total + size <= 3 * self.most and self._is_modest(client, size)

    def _is_modest(self, client: int, size: int) -> bool:
        owner = self.owner(client)
        within = self._held[owner] + size <= 2 * self._share_of_owner(owner)
        return within and self.of[client] + size <= self.share(client)

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
        if self.total > 2 * self.most and not self._is_modest(client, size):
            raise NotEnoughReplicas("the proxy's buffer is full, because upstream accepts no records at the moment")
