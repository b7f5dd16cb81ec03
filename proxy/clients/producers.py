"""The producers of clients, as far as the proxy remembers them."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic

from ottla.errors import ProducerFenced
from ottla.proxy.clients.windows import B, Window
from ottla.proxy.upstream.producer import Producer, Transaction

REMEMBERED_PRODUCERS = 100_000
"""The longest unused of more are forgotten, and fenced if they come again, unless something of them is under way."""
_SEARCHED = 1000
"""Of the longest unused, so many are looked at."""


class KnownProducer(Producer, Generic[B]):
    """A client's producer id, which goes upstream as it is.

    Attributes:
        since: the number of the rules that were in force when it was given (see `ottla.proxy.routing.RuleHistory`).
    """

    __slots__ = ("since", "windows")

    def __init__(self, producer_id: int) -> None:
        super().__init__(producer_id)
        self.since = 0
        self.windows: dict[tuple[str, int], Window[B]] = {}

    def window(self, topic: str, partition: int) -> Window[B]:
        """The window for what it sends to a partition."""
        if (topic, partition) not in self.windows:
            self.windows[topic, partition] = Window()
        return self.windows[topic, partition]

    @property
    def settled(self) -> bool:
        """Nothing of it is under way."""
        parked = self.transaction is not None and self.transaction.parked
        return not parked and not any(window.under_way for window in self.windows.values())

    @property
    def may_be_forgotten(self) -> bool:
        """Its client loses nothing but its place: nothing is under way, and no transaction of it has to be aborted."""
        transaction = self.transaction
        return self.settled and (transaction is None or (transaction.failure is None and not transaction.waiting))


class Producers(Generic[B]):
    """The producer ids that were allocated through this proxy.

    Args:
        forgotten: called with one that is not remembered any more.
    """

    def __init__(self, forgotten: Callable[[Producer], None]) -> None:
        self._known: OrderedDict[int, KnownProducer[B]] = OrderedDict()
        self._forgotten = forgotten

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._known

    def __iter__(self) -> Iterator[KnownProducer[B]]:
        """The longest unused first."""
        return iter(self._known.values())

    def has(self, producer: Producer) -> bool:
        """Whether this very one is known."""
        return producer.producer_id is not None and self._known.get(producer.producer_id) is producer

    def allocated(self, producer_id: int) -> KnownProducer[B]:
        """Upstream gave a client this id, through this proxy."""
        producer = self._known.setdefault(producer_id, KnownProducer(producer_id))
        self._known.move_to_end(producer_id)
        if len(self._known) > REMEMBERED_PRODUCERS:
            oldest = next((each for each in islice(self, _SEARCHED) if each.may_be_forgotten), None)
            if oldest is not None:
                assert oldest.producer_id is not None, "it is a client's"
                self._forgotten(self._known.pop(oldest.producer_id))
        return producer

    def pop(self, producer_id: int) -> KnownProducer[B]:
        """Forget one that is known."""
        return self._known.pop(producer_id)

    def known(self, producer_id: int) -> KnownProducer[B]:
        """A producer by its id.

        Raises:
            ProducerFenced: the id was not allocated through this proxy.
        """
        producer = self._known.get(producer_id)
        if producer is None:
            raise ProducerFenced(
                f"producer id {producer_id} was not allocated through this proxy, or it has lost its state since, so "
                "it cannot tell new records from stored ones: open a new producer"
            )
        self._known.move_to_end(producer_id)
        return producer

    def in_transaction(self, producer_id: int, epoch: int) -> tuple[KnownProducer[B], Transaction] | None:
        """A transactional producer and what is known of its transactions; ``None`` where this epoch is not known."""
        producer = self._known.get(producer_id)
        if producer is None or producer.transaction is None or producer.transaction.epoch != epoch:
            return None
        self._known.move_to_end(producer_id)
        return producer, producer.transaction
