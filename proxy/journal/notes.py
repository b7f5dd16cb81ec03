"""What stands in the journal: each entry is one `Entry`, all that one poll of the machine has changed.

An entry has the whole state of what has changed, so that the last word counts: a reader takes entry after entry, and
keeps the newest of each producer, window, stream and topic. Client batches stand apart from the windows that have them
under way, because their bytes never change.
"""

from uuid import UUID

from ottla.codec.wire import (
    NO_UUID,
    Array,
    Boolean,
    Buffer,
    Bytes,
    Int16,
    Int32,
    Int64,
    String,
    Uuid,
    message,
    struct,
    wire,
)


@struct
class NotedRules:
    """Those of one time."""

    rules: tuple[str, ...] = wire(Array(String))


@struct
class NotedProducer:
    producer_id: int = wire(Int64)
    since: int = wire(Int32)
    """Which rules were in force when it was given."""


@struct
class NotedTopic:
    """Where its keys go."""

    name: str = wire(String)
    topic_id: UUID = wire(Uuid, default=NO_UUID)
    partitions: int = wire(Int32)
    partitioner: str = wire(String)


@struct
class NotedBatch:
    """A client's batch, as it came."""

    number: int = wire(Int64)
    """Counts up; windows and streams name it by this."""
    topic_id: UUID = wire(Uuid, default=NO_UUID)
    partitions: int = wire(Int32)
    partitioner: str = wire(String)
    data: Buffer = wire(Bytes)


@struct
class NotedPart:
    """Records of a client's batch: ``count`` of those that go to the stream's partition, from ``first`` on."""

    batch: int = wire(Int64)
    first: int = wire(Int32)
    count: int = wire(Int32)
    alone: bool = wire(Boolean)
    maybe_in: tuple[UUID, ...] = wire(Array(Uuid), default=())
    """Topics that may have them, which others have replaced."""


@struct
class NotedSent:
    """What is numbered, and not settled or not told yet."""

    sequence: int = wire(Int32)
    stored: bool = wire(Boolean)
    refused: bool = wire(Boolean)
    named: bool = wire(Boolean)
    maybe_stored: bool = wire(Boolean)
    parts: tuple[NotedPart, ...] = wire(Array(NotedPart))


@struct
class NotedStream:
    producer_id: int = wire(Int64)
    topic: str = wire(String)
    partition: int = wire(Int32)
    topic_id: UUID = wire(Uuid, default=NO_UUID)
    epoch: int = wire(Int32)
    next_sequence: int = wire(Int32)
    lost: bool = wire(Boolean)
    last_offset: int = wire(Int64)
    sent: tuple[NotedSent, ...] = wire(Array(NotedSent))
    waiting: tuple[NotedPart, ...] = wire(Array(NotedPart))


@struct
class NotedOutcome:
    """Of a batch that was told of."""

    sequence: int = wire(Int32)
    count: int = wire(Int32)
    error_code: int = wire(Int16)
    base_offset: int = wire(Int64)
    message: str | None = wire(String, null="0+")


@struct
class NotedUnstored:
    """Records of a batch under way that are not stored."""

    partition: int = wire(Int32)
    first: int = wire(Int32)
    count: int = wire(Int32)
    unknown: bool = wire(Boolean)
    """Nobody can know whether they are."""


@struct
class NotedUnderWay:
    batch: int = wire(Int64)
    begun: bool = wire(Boolean)
    refused: bool = wire(Boolean)
    failed: bool = wire(Boolean)
    error_code: int = wire(Int16)
    message: str | None = wire(String, null="0+")
    unknown: bool = wire(Boolean)
    offset: int = wire(Int64)
    left_out: tuple[int, ...] = wire(Array(Int32))
    unstored: tuple[NotedUnstored, ...] = wire(Array(NotedUnstored))


@struct
class NotedWindow:
    producer_id: int = wire(Int64)
    topic: str = wire(String)
    partition: int = wire(Int32)
    epoch: int = wire(Int32)
    next_sequence: int = wire(Int32)
    fenced: bool = wire(Boolean)
    done: tuple[NotedOutcome, ...] = wire(Array(NotedOutcome))
    under_way: tuple[NotedUnderWay, ...] = wire(Array(NotedUnderWay))
    stored: tuple[int, ...] = wire(Array(Int64))
    others: tuple[int, ...] = wire(Array(Int64))
    unknown: tuple[int, ...] = wire(Array(Int64))
    """Fingerprints of records of refused batches: that are stored, that are not, of which nobody knows."""


@struct
class NotedAdded:
    """Partitions that were added to a transaction."""

    name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class NotedTransaction:
    """What is known of the transactions of a producer in one epoch."""

    producer_id: int = wire(Int64)
    transactional_id: str = wire(String)
    epoch: int = wire(Int16)
    implicit: bool = wire(Boolean)
    failed: bool = wire(Boolean)
    """The one that is open has to be aborted."""
    error_code: int = wire(Int16)
    message: str | None = wire(String, null="0+")
    unknown: bool = wire(Boolean)
    aborting: bool = wire(Boolean)
    added: tuple[NotedAdded, ...] = wire(Array(NotedAdded))


@message(key=0, versions="0", flexible="0+")
class Entry:
    """
    Attributes:
        cluster_id: upstream's; ``None`` if nothing has changed.
        rules: all that are remembered, from the first on; none if nothing has changed.
        producers: ids that were allocated to clients.
        forgotten: those of which nothing is remembered any more, unless this entry names them again.
    """

    cluster_id: str | None = wire(String, null="0+", default=None)
    rules: tuple[NotedRules, ...] = wire(Array(NotedRules), default=())
    producers: tuple[NotedProducer, ...] = wire(Array(NotedProducer), default=())
    forgotten: tuple[int, ...] = wire(Array(Int64), default=())
    topics: tuple[NotedTopic, ...] = wire(Array(NotedTopic), default=())
    batches: tuple[NotedBatch, ...] = wire(Array(NotedBatch), default=())
    windows: tuple[NotedWindow, ...] = wire(Array(NotedWindow), default=())
    streams: tuple[NotedStream, ...] = wire(Array(NotedStream), default=())
    transactions: tuple[NotedTransaction, ...] = wire(Array(NotedTransaction), default=())
