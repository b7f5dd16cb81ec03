"""Knows which transactional id has a producer id at upstream.

Rules:
- The proxy remembers the producers whose ids were allocated through it, across restarts if it has a state directory.
- After a restart without one, it learns the pair when a transaction coordinator takes partitions or offsets into a
  transaction: a coordinator compares the two.
- If the two differ, the newer one holds: another proxy may have allocated the id, and upstream may have lost its data.
- Beyond its bound the proxy forgets a pair of the user who has most: the one that was used least recently. So a user
  with many transactional ids has only its own transactions aborted.
"""

from collections import OrderedDict
from typing import NamedTuple

from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.producers import ClientProducers
from ottla.proxy.upstream.producer import UpstreamTransaction

MOST_CONFIRMED = 10_000
"""The most pairs that are remembered beside the producers. The transaction of a forgotten one is aborted once."""


class _Confirmed(NamedTuple):
    """A coordinator's consent.

    Attributes:
        user: whose request had it.
        allocated: the transaction of the producer at that time; another one is newer.
    """

    transactional_id: str
    user: str
    allocated: UpstreamTransaction | None


class ProducerOwners:
    """Finds the owners of producer ids.

    Args:
        producers: with ids that were allocated through the proxy.
    """

    def __init__(self, producers: ClientProducers[ClientBatch]) -> None:
        self._producers = producers
        self._confirmed: dict[int, _Confirmed] = {}
        self._of_users: dict[str, OrderedDict[int, None]] = {}
        """User -> the producer ids in its pairs, the least recently used first."""

    def of(self, producer_id: int) -> str | None:
        """The transactional id that has a producer id; ``None``: it is unknown, or there is none."""
        allocated, confirmed = self._producers.transaction(producer_id), self._confirmed.get(producer_id)
        if confirmed is not None and (allocated is None or allocated is confirmed.allocated):
            self._of_users[confirmed.user].move_to_end(producer_id)
            return confirmed.transactional_id
        return None if allocated is None else allocated.transactional_id

    def confirm(self, transactional_id: str, producer_id: int, user: str) -> None:
        """Remember a pair that a coordinator has confirmed to a user."""
        if self.of(producer_id) == transactional_id:
            return
        if producer_id in self._confirmed:
            self._forget(producer_id)
        self._confirmed[producer_id] = _Confirmed(transactional_id, user, self._producers.transaction(producer_id))
        self._of_users.setdefault(user, OrderedDict())[producer_id] = None
        if len(self._confirmed) > MOST_CONFIRMED:
            most = max(self._of_users.values(), key=len)
            self._forget(next(iter(most)))

    def _forget(self, producer_id: int) -> None:
        user = self._confirmed.pop(producer_id).user
        del self._of_users[user][producer_id]
        if not self._of_users[user]:
            del self._of_users[user]
