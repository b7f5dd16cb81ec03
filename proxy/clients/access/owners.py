"""Knows which transactional id has a producer id at upstream.

Rules:
- The proxy remembers the producers whose ids were allocated through it, across restarts if it has a state directory.
- After a restart without one, it learns the pair when a transaction coordinator takes partitions or offsets into a
  transaction: a coordinator compares the two.
"""

from collections import OrderedDict

from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.producers import ClientProducers

MOST_CONFIRMED = 10_000
"""The most pairs that are remembered beside the producers. The transaction of a forgotten one is aborted once."""


class ProducerOwners:
    """Finds the owners of producer ids.

    Args:
        producers: with ids that were allocated through the proxy.
    """

    def __init__(self, producers: ClientProducers[ClientBatch]) -> None:
        self._producers = producers
        self._confirmed: OrderedDict[int, str] = OrderedDict()

    def of(self, producer_id: int) -> str | None:
        """The transactional id that has a producer id; ``None``: it is unknown, or there is none."""
        return self._producers.transactional_id(producer_id) or self._confirmed.get(producer_id)

    def confirm(self, transactional_id: str, producer_id: int) -> None:
        """Remember a pair that a coordinator has confirmed."""
        if self.of(producer_id) != transactional_id:
            self._confirmed[producer_id] = transactional_id
            if len(self._confirmed) > MOST_CONFIRMED:
                self._confirmed.popitem(last=False)
