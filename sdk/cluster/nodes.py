"""Which node to ask next: bootstrap addresses and the nodes known take turns.

Rules:
- Bootstrap addresses have negative ids. They stay in turn with the nodes known, and their names are resolved again by
  each attempt, so that a client survives the restart of a whole cluster elsewhere (KIP-899).
- Their order is another for each client.
"""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ottla.sdk.cluster.cluster import Cluster
from ottla.sdk.events import Node

if TYPE_CHECKING:
    from random import Random  # a machine is given chance, it does not take any


class Nodes:
    """The bootstrap ``addresses``, at least one, and the nodes of ``cluster``."""

    def __init__(self, addresses: Iterable[tuple[str, int]], cluster: Cluster, rng: "Random") -> None:
        self._cluster, self._rng = cluster, rng
        self._turn = 0
        self.seeds: list[Node] = []
        """The bootstrap addresses."""
        self.replace(addresses)

    @property
    def ids(self) -> set[int]:
        """Those of all."""
        return {each.id for each in self.seeds} | self._cluster.nodes.keys()

    def replace(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Others are the bootstrap addresses now."""
        self.seeds = [Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses)]
        self._rng.shuffle(self.seeds)

    def next(self, but: Container[int]) -> Node | None:
        """The next in turn whose id is not among ``but``."""
        pools = [pool for pool in ([*self._cluster.nodes.values()], self.seeds) if pool]
        for _ in range(2 * max(map(len, pools))):
            turn, which = divmod(self._turn, len(pools))
            self._turn += 1
            node = pools[which][turn % len(pools[which])]
            if node.id not in but:
                return node
        return None
