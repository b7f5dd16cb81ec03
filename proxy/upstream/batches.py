"""Parts of clients' batches, and the batches built from them for one partition of upstream."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.codec.compression import Compression
from ottla.codec.records import NO_PRODUCER_ID, NO_SEQUENCE, BatchBuilder, Record, RecordBatch, Records, parse_batch
from ottla.codec.rewrite import numbered
from ottla.codec.wire import Buffer
from ottla.errors import EncodeError

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.proxy")

SomeRecords = Records | list[Record]
"""Some records of a client's batch."""


class PartResult(NamedTuple):
    """The outcome of a part."""

    error_code: int
    offset: int = -1
    """The offset of its first record; -1 if it is unknown."""
    message: str | None = None
    unknown: bool = False
    """Outcome unknown: the part may or may not be stored."""


class PartOwner(Protocol):
    """A client's batch with unsettled parts."""

    @property
    def refused(self) -> bool:
        """A batch before it failed, so it must not be stored: its unsent parts are never sent."""

    def parted(self) -> None:
        """Count one more part, because a part was split in two."""

    def settled(self, part: "Part", result: PartResult, now: float) -> None:
        """Take the outcome of a part: stored, refused or unknown."""


@dataclass(slots=True, eq=False)
class Part:
    """The records of a client's batch for one partition.

    Attributes:
        first: index of its first record among the records of its batch for this partition.
        size: approximate bytes before compression.
        since: when it arrived.
        whole: a batch with exactly these records: the client's own batch, or one that a thread has built.
        building: a thread is building `whole`.
        alone: it shares no batch with other parts: it is large, or a batch that it shared was refused.
        noted: its entry in the journal, which is written again whenever its stream changes.
        maybe_in: the ids of replaced topics in which it may be stored.
    """

    sender: PartOwner
    partition: int
    records: SomeRecords
    size: int
    compression: Compression
    since: float
    whole: RecordBatch | None = None
    first: int = 0
    alone: bool = False
    building: bool = False
    noted: Any = None
    maybe_in: "frozenset[UUID]" = frozenset()

    def begin_building(self) -> None:
        """Have it share no batch, and wait for the batch that a thread builds of it."""
        self.building = self.alone = True

    def end_building(self, whole: RecordBatch | None) -> None:
        """Take the batch that a thread has built; ``None`` if that failed."""
        self.building, self.whole = False, whole

    def halves(self) -> tuple["Part", "Part"]:
        """Split it in two, because upstream refused it as too large."""
        half, each = len(self.records) // 2, self.size // len(self.records)

        def some(start: int, end: int) -> Part:
            records = self.records[start:end]
            size = each * (end - start)
            kind, partition, since = self.compression, self.partition, self.since
            first = self.first + start
            return Part(
                self.sender, partition, records, size, kind, since, None, first, alone=True, maybe_in=self.maybe_in
            )

        return some(0, half), some(half, len(self.records))


class UpstreamBatch:
    """Parts that are sent together under one sequence. Retries send the same bytes.

    Attributes:
        tries: how many times it was sent.
        named: an attempt named the topic by name, so any topic of this name may have stored it.
        maybe_stored: an attempt ended with its outcome unknown.
        stored: upstream has stored it.
        refused: upstream has refused it under this sequence.
        given_up: its parts are settled or wait again; a late answer is ignored.
        noted: its entry in the journal, as with a part.
    """

    __slots__ = (
        "count",
        "data",
        "given_up",
        "in_flight",
        "maybe_stored",
        "named",
        "noted",
        "parts",
        "refused",
        "sequence",
        "stored",
        "tries",
    )

    def __init__(self, parts: Sequence[Part], data: Buffer, sequence: int) -> None:
        self.parts = list(parts)
        self.data, self.sequence = data, sequence
        self.count = sum(len(part.records) for part in parts)
        self.tries = 0
        self.noted: Any = None
        self.in_flight = self.named = self.maybe_stored = self.stored = self.refused = self.given_up = False


def built(
    parts: Sequence[Part], producer_id: int, epoch: int, sequence: int, *, transactional: bool = False
) -> tuple[int, Buffer]:
    """Build a batch of the first parts; returns how many it took, at least one, and its bytes.

    A single part that has a batch already is not compressed again. A part whose timestamps are too far from the earlier
    ones for one batch is left for the next batch.
    """
    whole = parts[0].whole
    if len(parts) == 1 and whole is not None:
        return 1, numbered(whole, producer_id, epoch, sequence)
    builder, count = BatchBuilder(), 0
    for part in parts:
        try:
            builder.extend(part.records)
        except EncodeError:
            if not count:
                raise
            break
        count += 1
    data = builder.build_in_place(
        compression=parts[0].compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return count, data


def build_whole(part: Part, *, transactional: bool) -> RecordBatch | None:
    """Build a batch of a part, without producer id and sequence; runs in a thread. ``None`` if it fails: a bug."""
    try:
        return parse_batch(built([part], NO_PRODUCER_ID, -1, NO_SEQUENCE, transactional=transactional)[1])
    except Exception:
        log.exception("a bug in the proxy, please report it: a batch for partition %d", part.partition)
        return None
