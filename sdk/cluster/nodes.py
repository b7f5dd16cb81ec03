"""Chooses the node to ask next: bootstrap addresses and known nodes take turns.

Rules:
- Bootstrap addresses have negative ids. They keep their turn beside the known nodes, and each attempt resolves their
  names again, so that a client survives when the whole cluster restarts at other addresses (KIP-899).
- Each client shuffles them.
"""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ottla.sdk.cluster.cluster import Cluster
from ottla.sdk.events import Node

if TYPE_CHECKING:
    from random import Random  # randomness is passed in: a machine draws none by itself


class Nodes:
    """Takes turns between the bootstrap ``addresses`` (at least one) and the nodes of ``cluster``."""

    def __init__(self, addresses: Iterable[tuple[str, int]], cluster: Cluster, rng: "Random") -> None:
        self._cluster, self._rng = cluster, rng
        self._turn = 0
        self.seeds: list[Node] = []
        """The bootstrap addresses."""
        self.replace(addresses)

    @property
    def ids(self) -> set[int]:
        """The ids of all nodes, bootstrap addresses included."""
        return {each.id for each in self.seeds} | self._cluster.nodes.keys()

    def replace(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Set new bootstrap addresses."""
        self.seeds = [Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses)]
        self._rng.shuffle(self.seeds)

    def next(self, but: Container[int]) -> Node | None:
        """The next node in turn whose id is not in ``but``."""
        pools = [pool for pool in ([*self._cluster.nodes.values()], self.seeds) if pool]
        for _ in range(2 * max(map(len, pools))):
            turn, which = divmod(self._turn, len(pools))
            self._turn += 1
            node = pools[which][turn % len(pools[which])]
            if node.id not in but:
                return node
        return None
