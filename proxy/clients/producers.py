"""Remembers the producer ids of clients.

Rules:
- A producer id counts once it writes to a rewritten topic. Clients that never do that get ids, too, and cost the others
  nothing: beside as many producers that write, the proxy remembers as many that have not written yet.
- Beyond that it forgets a producer of the host that has most: the idle one that was used least recently. So a client
  that opens one producer after the other has only its own fenced.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Generic

from ottla.errors import ProducerFenced
from ottla.proxy.clients.windows import B, Window
from ottla.proxy.routing import Destination
from ottla.proxy.upstream.principals import Principal
from ottla.proxy.upstream.producer import UpstreamProducer, UpstreamTransaction

REMEMBERED_PRODUCERS = 100_000
"""The most producers that have written to rewritten topics, and the most that have not. The proxy forgets the others,
and fences them if they send again."""
_SEARCHED = 1000
"""How many of a host's least recently used producers are searched for an idle one."""


class KnownProducer(UpstreamProducer, Generic[B]):
    """A client's producer id, which the proxy also uses upstream.

    Attributes:
        since: number of the topic rules when it was allocated (see `ottla.proxy.routing.RuleHistory`).
        host: of the client that has written last, or to which the id was allocated.
        writes: it has written to a rewritten topic.
    """

    __slots__ = ("host", "since", "windows", "writes")

    def __init__(
        self, producer_id: int, since: int, host: str, *, writes: bool, principal: Principal | None = None
    ) -> None:
        super().__init__(producer_id, principal)
        self.since, self.host, self.writes = since, host, writes
        self.windows: dict[Destination, Window[B]] = {}

    def allocated(self, since: int, principal: Principal | None) -> None:
        """Upstream has allocated its id, or a new epoch of it, to this user under these topic rules."""
        self.since, self.principal = since, principal

    def wrote(self, host: str) -> None:
        """A client on this host has written to a rewritten topic with it."""
        self.host, self.writes = host, True

    def window(self, place: Destination) -> Window[B]:
        """The window for the client's batches to the partition that it chose."""
        if place not in self.windows:
            self.windows[place] = Window()
        return self.windows[place]

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


class _Pool(Generic[B]):
    """Producers by the host of their client, the least recently used of each host first."""

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[int | None, KnownProducer[B]]] = {}
        self.size = 0

    def add(self, producer: KnownProducer[B]) -> None:
        self._of.setdefault(producer.host, OrderedDict())[producer.producer_id] = producer
        self.size += 1

    def remove(self, producer: KnownProducer[B]) -> None:
        own = self._of[producer.host]
        del own[producer.producer_id]
        if not own:
            del self._of[producer.host]
        self.size -= 1

    def use(self, producer: KnownProducer[B]) -> None:
        """Note that a producer is used now."""
        self._of[producer.host].move_to_end(producer.producer_id)

    def oldest(self) -> KnownProducer[B] | None:
        """The least recently used idle producer of the host that has most."""
        most = max(self._of.values(), key=len)
        return next((each for each in islice(most.values(), _SEARCHED) if each.may_be_forgotten), None)


class ClientProducers(Generic[B]):
    """Keeps the producer ids that were allocated through this proxy."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, KnownProducer[B]] = OrderedDict()
        self._writing: _Pool[B] = _Pool()
        self._others: _Pool[B] = _Pool()
        """Producers that have not written to a rewritten topic."""

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._known

    def __iter__(self) -> Iterator[KnownProducer[B]]:
        """The least recently used first."""
        return iter(self._known.values())

    def has(self, producer: UpstreamProducer) -> bool:
        """Whether this producer is known, and not only its id."""
        return producer.producer_id is not None and self._known.get(producer.producer_id) is producer

    def allocated(
        self, producer_id: int, since: int, host: str, *, writes: bool = False, principal: Principal | None = None
    ) -> KnownProducer[B]:
        """Remember an id that upstream has allocated to a client through this proxy.

        Args:
            since: the number of the topic rules at that time.
            host: of the client.
            writes: it has written to a rewritten topic.
            principal: the client's user at upstream; ``None``: the proxy's.
        """
        producer = self._known.get(producer_id)
        if producer is None:
            producer = self._known[producer_id] = KnownProducer(
                producer_id, since, host, writes=writes, principal=principal
            )
            self._pool(producer).add(producer)
        else:
            producer.allocated(since, principal)
            self._use(producer_id, producer)
        return producer

    def wrote(self, producer: KnownProducer[B], host: str) -> bool:
        """Move a producer to the pool of writers, under this host; returns false if it is there already."""
        if producer.writes and producer.host == host:
            return False
        self._pool(producer).remove(producer)
        producer.wrote(host)
        self._pool(producer).add(producer)
        return True

    def _pool(self, producer: KnownProducer[B]) -> _Pool[B]:
        return self._writing if producer.writes else self._others

    def _use(self, producer_id: int, producer: KnownProducer[B]) -> None:
        self._known.move_to_end(producer_id)
        self._pool(producer).use(producer)

    def forget_one(self) -> KnownProducer[B] | None:
        """Forget an idle producer, if there are too many of its kind, and return it."""
        for pool in (self._others, self._writing):
            if pool.size > REMEMBERED_PRODUCERS and (oldest := pool.oldest()) is not None:
                assert oldest.producer_id is not None, "clients' producers have an id"
                return self.pop(oldest.producer_id)
        return None

    def pop(self, producer_id: int) -> KnownProducer[B]:
        """Forget a known producer."""
        producer = self._known.pop(producer_id)
        self._pool(producer).remove(producer)
        return producer

    def known(self, producer_id: int) -> KnownProducer[B]:
        """A producer by its id.

        Raises:
            ProducerFenced: the id was not allocated through this proxy.
        """
        producer = self._known.get(producer_id)
        if producer is None:
            raise ProducerFenced(
                f"producer id {producer_id} was not allocated through this proxy, or the proxy has lost its state, so "
                "the proxy cannot tell new records from stored ones; open a new producer"
            )
        self._use(producer_id, producer)
        return producer

    def transaction(self, producer_id: int) -> UpstreamTransaction | None:
        """The transaction of a producer; ``None`` if the producer is unknown, or has none."""
        producer = self._known.get(producer_id)
        return None if producer is None else producer.transaction

    def in_transaction(self, producer_id: int, epoch: int) -> tuple[KnownProducer[B], UpstreamTransaction] | None:
        """A transactional producer and its transaction; ``None`` if this epoch is unknown."""
        producer = self._known.get(producer_id)
        if producer is None or producer.transaction is None or producer.transaction.epoch != epoch:
            return None
        self._use(producer_id, producer)
        return producer, producer.transaction
