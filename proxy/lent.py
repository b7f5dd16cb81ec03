"""Producers: those of clients, and those of the proxy's own that are lent to clients without a producer id.

Rules:
- A client without a producer id is lent a producer, which is its alone until it leaves and everything of it is settled.
- One that has no id yet is not kept for others: ids are asked for only while somebody waits for one.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.proxy.batches import Result
from ottla.proxy.control import Control, Identity
from ottla.proxy.link import Link
from ottla.proxy.streams import Stream

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(slots=True, eq=False)
class Transaction:
    """What is known of the transactions of a transactional producer in one epoch.

    Attributes:
        epoch: as upstream's coordinator gave it.
        implicit: upstream adds the partitions to it by itself (``transaction.version`` 2).
        failure: why the one that is open has to be aborted.
        over: the one that is open is being aborted: nothing of it is sent any more.
        parked: record sets of it that wait for their topic to be described.
        waiting: what goes on once nothing of it is under way.
        number: counts up.
        ending: the last EndTxn that went to upstream; only its answer ends the one that is open.
        added: topic -> the partitions that were added to the one that is open.
    """

    transactional_id: str
    epoch: int
    implicit: bool = False
    failure: Result | None = None
    over: bool = False
    parked: int = 0
    waiting: list[Callable[[float], None]] = field(default_factory=list)
    number: int = 0
    ending: object = None
    added: dict[str, set[int]] = field(default_factory=dict)

    def go_on(self, now: float) -> None:
        """Nothing of it is under way."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each(now)


class Producer:
    """One producer id upstream, and what is sent under it.

    Attributes:
        producer_id: ``None`` where it is the proxy's own, and there is none yet.
        own: it is the proxy's, not a client's.
        epoch: in which new streams begin, outside of transactions.
        transaction: ``None`` where it is not transactional, or its epoch is not known.
        connections: by node.
        unopened: where it is lent, the client's batches that are not delivered yet, since they or others before them
            are being opened in a thread.
    """

    __slots__ = ("connections", "epoch", "own", "producer_id", "streams", "transaction", "unopened")

    def __init__(self, producer_id: int | None = None) -> None:
        self.producer_id = producer_id
        self.own = producer_id is None
        self.epoch = 0
        self.transaction: Transaction | None = None
        self.streams: dict[tuple[str, int], Stream] = {}
        self.connections: dict[int, Connection] = {}
        self.unopened: deque[Any] = deque()

    @property
    def idle(self) -> bool:
        return not self.unopened and all(stream.idle for stream in self.streams.values())

    @property
    def stopped(self) -> bool:
        """Nothing more is sent of its transaction."""
        return self.transaction is not None and self.transaction.over

    def stream(self, topic: str, partition: int, topic_id: "UUID") -> Stream:
        """Begin with a partition."""
        transactional = self.transaction is not None
        epoch = self.transaction.epoch if self.transaction else self.epoch
        stream = Stream(topic, partition, epoch, topic_id, transactional=transactional)
        self.streams[topic, partition] = stream
        return stream


class Connection:
    """A producer's way to one node.

    Attributes:
        link: ``None`` until something is to be sent, and after it was lost.
        version: of Produce.
        ready: streams that have something to send.
        in_flight: requests.
        not_before: nothing goes before: the node was unreachable, or has asked for patience (a quota).
        waits: it will be looked at then.
        failures: attempts to connect that failed since the last that did not.
        idle_since: when it carried something last.
    """

    __slots__ = (
        "failures",
        "idle_since",
        "in_flight",
        "link",
        "node",
        "not_before",
        "producer",
        "ready",
        "version",
        "waits",
    )

    def __init__(self, producer: Producer, node: int, now: float) -> None:
        self.producer, self.node = producer, node
        self.link: Link | None = None
        self.version = 0
        self.ready: dict[Stream, None] = {}
        self.in_flight = 0
        self.not_before = 0.0
        self.waits = False
        self.failures = 0
        self.idle_since = now

    @property
    def idle(self) -> bool:
        return not self.in_flight and not self.ready


class Lent:
    """The proxy's own producers.

    Args:
        identified: called with one that has got its producer id.
    """

    def __init__(self, control: Control, identified: Callable[[Producer], None]) -> None:
        self._control, self._identified = control, identified
        self._of: dict[int, Producer] = {}
        """Client -> the one that it has."""
        self._free: list[Producer] = []
        """Those that nobody has; something of them may still be under way."""

    def to(self, client: int) -> Producer:
        """The one that sends for a client."""
        if client not in self._of:
            idle = next((each for each in self._free if each.idle), None)
            if idle is not None:
                self._free.remove(idle)
            self._of[client] = idle or Producer()
        return self._of[client]

    def back(self, client: int) -> None:
        """The client has gone."""
        if producer := self._of.pop(client, None):
            self._free.append(producer)
            self.sweep()

    def use_up(self, producer: Producer) -> None:
        """A producer has had every epoch: whoever has it gets another."""
        self._of = {client: each for client, each in self._of.items() if each is not producer}
        self._free = [each for each in self._free if each is not producer]

    def sweep(self) -> None:
        """Forget those for which no id has come, and nothing waits any more."""
        gone = {each for each in self._free if each.producer_id is None and each.idle}
        if gone:
            self._free = [each for each in self._free if each not in gone]
            for each in gone:
                self._control.withdraw_identity(each)

    def has_id(self, producer: Producer) -> bool:
        """Whether there is a producer id; if there is none, one is requested."""
        if producer.producer_id is None:
            self._control.request_identity(producer, partial(self._identify, producer))
        return producer.producer_id is not None

    def _identify(self, producer: Producer, identity: Identity, now: float) -> None:
        producer.producer_id, producer.epoch = identity
        for stream in producer.streams.values():
            stream.renewed(producer.epoch)
        self._identified(producer)
