"""Remembers the producer ids of clients."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Generic

from ottla.errors import ProducerFenced
from ottla.proxy.clients.windows import B, Window
from ottla.proxy.upstream.producer import UpstreamProducer, UpstreamTransaction

REMEMBERED_PRODUCERS = 100_000
"""Beyond this the proxy forgets the least recently used idle producer, and fences it if it sends again."""
_SEARCHED = 1000
"""How many of the least recently used producers are searched for an idle one."""


class KnownProducer(UpstreamProducer, Generic[B]):
    """A client's producer id, which the proxy also uses upstream.

    Attributes:
        since: number of the topic rules when it was allocated (see `ottla.proxy.routing.RuleHistory`).
    """

    __slots__ = ("since", "windows")

    def __init__(self, producer_id: int, since: int) -> None:
        super().__init__(producer_id)
        self.since = since
        self.windows: dict[tuple[str, int], Window[B]] = {}

    def allocated(self, since: int) -> None:
        """Upstream has allocated its id, or a new epoch of it, under these topic rules."""
        self.since = since

    def window(self, topic: str, partition: int) -> Window[B]:
        """The window for the client's batches to a partition."""
        if (topic, partition) not in self.windows:
            self.windows[topic, partition] = Window()
        return self.windows[topic, partition]

    @property
    def settled(self) -> bool:
        """None of its batches is under way."""
        parked = self.transaction is not None and self.transaction.parked
        return not parked and not any(window.under_way for window in self.windows.values())

    def go_on_ending(self, now: float) -> None:
        """Continue with EndTxn if it waits and none of the batches is under way any more."""
        if self.transaction is not None and self.transaction.waiting and self.settled:
            self.transaction.go_on(now)

    @property
    def may_be_forgotten(self) -> bool:
        """None of its batches is under way, and no transaction of it must be aborted."""
        transaction = self.transaction
        return self.settled and (transaction is None or (transaction.failure is None and not transaction.waiting))


class ClientProducers(Generic[B]):
    """Keeps the producer ids that were allocated through this proxy."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, KnownProducer[B]] = OrderedDict()

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._known

    def __iter__(self) -> Iterator[KnownProducer[B]]:
        """The least recently used first."""
        return iter(self._known.values())

    def has(self, producer: UpstreamProducer) -> bool:
        """Whether this producer is known, and not only its id."""
        return producer.producer_id is not None and self._known.get(producer.producer_id) is producer

    def allocated(self, producer_id: int, since: int) -> KnownProducer[B]:
        """Remember an id that upstream has allocated to a client through this proxy.

        Args:
            since: the number of the topic rules at that time.
        """
        producer = self._known.setdefault(producer_id, KnownProducer(producer_id, since))
        producer.allocated(since)
        self._known.move_to_end(producer_id)
        return producer

    def forget_one(self) -> KnownProducer[B] | None:
        """Forget the least recently used idle producer, if there are too many producers, and return it."""
        if len(self._known) <= REMEMBERED_PRODUCERS:
            return None
        oldest = next((each for each in islice(self, _SEARCHED) if each.may_be_forgotten), None)
        if oldest is not None:
            assert oldest.producer_id is not None, "clients' producers have an id"
            del self._known[oldest.producer_id]
        return oldest

    def pop(self, producer_id: int) -> KnownProducer[B]:
        """Forget a known producer."""
        return self._known.pop(producer_id)

    def known(self, producer_id: int) -> KnownProducer[B]:
        """A producer by its id.

        Raises:
            ProducerFenced: the id was not allocated through this proxy.
        """
        producer = self._known.get(producer_id)
        if producer is None:
            raise ProducerFenced(
                f"producer id {producer_id} was not allocated through this proxy, or the proxy has lost its state: it "
                "cannot tell new records from stored ones, open a new producer"
            )
        self._known.move_to_end(producer_id)
        return producer

    def in_transaction(self, producer_id: int, epoch: int) -> tuple[KnownProducer[B], UpstreamTransaction] | None:
        """A transactional producer and its transaction; ``None`` if this epoch is unknown."""
        producer = self._known.get(producer_id)
        if producer is None or producer.transaction is None or producer.transaction.epoch != epoch:
            return None
        self._known.move_to_end(producer_id)
        return producer, producer.transaction
