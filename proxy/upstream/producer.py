"""A producer id upstream: its streams, its connections, and what is known of its transactions."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.proxy.upstream.batches import Result
from ottla.proxy.upstream.link import Link
from ottla.proxy.upstream.streams import Stream

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(slots=True, eq=False)
class Transaction:
    """What is known of the transactions of a transactional producer in one epoch.

    Attributes:
        epoch: as upstream's coordinator gave it.
        implicit: upstream adds the partitions to it by itself (``transaction.version`` 2).
        failure: why the one that is open has to be aborted.
        aborting: the one that is open is being aborted: nothing of it is sent any more.
        parked: record sets of it that wait for their topic to be described.
        waiting: what goes on once nothing of it is under way.
        number: counts up.
        ending: the last EndTxn that went to upstream; only its answer ends the one that is open.
        added: topic -> the partitions that were added to the one that is open, until its EndTxn has gone to upstream.
    """

    transactional_id: str
    epoch: int
    implicit: bool = False
    failure: Result | None = None
    aborting: bool = False
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
        return self.transaction is not None and self.transaction.aborting

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
