"""Declares the format of the journal: each entry is one `JournalEntry` with the changes of one poll.

An entry has the whole new state of each changed object. So a reader takes entry after entry, and keeps the newest state
of each producer, window, stream and topic. Client batches are separate from their windows, because their bytes never
change.
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
    """The number of the topic rules at its allocation."""
    host: str = wire(String)
    """The host of its client."""
    principal: str = wire(String, default="", tag=0)
    """The name of its client's user at upstream, without credentials; empty: the proxy's."""


@struct
class NotedTopic:
    """Where its keys go."""

    name: str = wire(String)
    topic_id: UUID = wire(Uuid, default=NO_UUID)
    partitions: int = wire(Int32)
    partitioner: str = wire(String)
    fans_out: bool = wire(Boolean, default=False, tag=0)


@struct
class NotedBatch:
    """A client's batch, unchanged."""

    number: int = wire(Int64)
    """Unique; windows and streams refer to the batch by it."""
    topic_id: UUID = wire(Uuid, default=NO_UUID)
    partitions: int = wire(Int32)
    partitioner: str = wire(String)
    data: Buffer = wire(Bytes)
    fans_out: bool = wire(Boolean, default=False, tag=0)
    """Its records without a key are spread, too."""
    copies: tuple[NotedTopic, ...] = wire(Array(NotedTopic), default=(), tag=1)
    """The further topics that get its records."""


@struct
class NotedPart:
    """Part of a client's batch: ``count`` of its records for the stream's partition, from ``first`` on."""

    batch: int = wire(Int64)
    first: int = wire(Int32)
    count: int = wire(Int32)
    alone: bool = wire(Boolean)
    maybe_in: tuple[UUID, ...] = wire(Array(Uuid), default=())
    """Ids of replaced topics in which they may be stored."""


@struct
class NotedSent:
    """A numbered batch in a stream."""

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
    """The outcome of an answered batch."""

    sequence: int = wire(Int32)
    count: int = wire(Int32)
    error_code: int = wire(Int16)
    base_offset: int = wire(Int64)
    append_time: int = wire(Int64, default=-1)
    message: str | None = wire(String, null="0+")
    untold: tuple[int, ...] = wire(Array(Int64))


@struct
class NotedUnstored:
    """Records of a batch under way that are not stored."""

    partition: int = wire(Int32)
    first: int = wire(Int32)
    count: int = wire(Int32)
    unknown: bool = wire(Boolean)
    """Their outcome is unknown."""
    topic: str = wire(String, default="", tag=0)
    """The topic, if they are copies for another one than the client's."""


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
    append_time: int = wire(Int64, default=-1)
    left_out: tuple[int, ...] = wire(Array(Int32))
    unstored: tuple[NotedUnstored, ...] = wire(Array(NotedUnstored))


@struct
class NotedFingerprint:
    """See `ottla.proxy.clients.windows.Fingerprint`."""

    timed: int = wire(Int64)
    numbered: int = wire(Int64)


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
    """See `ottla.proxy.clients.windows.RefusedRecords`."""
    numbered: tuple[NotedFingerprint, ...] = wire(Array(NotedFingerprint), default=(), tag=0)


@struct
class NotedAdded:
    """Partitions that were added to a transaction."""

    name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class NotedTransaction:
    """The transaction state of a producer in one epoch."""

    producer_id: int = wire(Int64)
    transactional_id: str = wire(String)
    epoch: int = wire(Int16)
    implicit: bool = wire(Boolean)
    failed: bool = wire(Boolean)
    """The open transaction must be aborted."""
    error_code: int = wire(Int16)
    message: str | None = wire(String, null="0+")
    unknown: bool = wire(Boolean)
    aborting: bool = wire(Boolean)
    added: tuple[NotedAdded, ...] = wire(Array(NotedAdded))


@message(key=0, versions="0", flexible="0+")
class JournalEntry:
    """
    Attributes:
        cluster_id: upstream's; ``None`` if it has not changed.
        rules: all remembered rules, from the first on; empty if they have not changed.
        producers: producer ids allocated to clients.
        forgotten: forgotten producer ids, unless this entry names them again.
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
