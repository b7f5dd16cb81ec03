"""What goes to a partition of upstream: parts of clients' batches, and the batches that are made of them."""

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
"""Records of a client's batch."""


class Result(NamedTuple):
    """What became of a part."""

    error_code: int
    offset: int = -1
    """Of its first record; -1 where it is unknown."""
    message: str | None = None
    unknown: bool = False
    """Nobody can know whether it is stored."""


class Sender(Protocol):
    """A client's batch, parts of which are under way."""

    @property
    def refused(self) -> bool:
        """It is not to be stored, since a batch before it was not: those of its parts that were not sent never are."""

    def parted(self) -> None:
        """One of its parts has become two."""

    def settled(self, part: "Part", result: Result, now: float) -> None:
        """A part is stored, refused, or nobody can know."""


@dataclass(slots=True, eq=False)
class Part:
    """Records of a client's batch that go to the same partition.

    Attributes:
        first: its place among all those of its batch that go there.
        size: bytes before compression, about.
        since: when it came.
        whole: a batch of just these records: the client's, if they are all of it, or one that a thread has built.
        building: a thread does so.
        alone: it shares no batch: it is large, or one with others was refused.
        noted: what the journal has written of it, which is written again whenever its stream changes.
        maybe_in: the ids of topics that may have it, which others have replaced.
    """

    sender: Sender
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

    def halves(self) -> tuple["Part", "Part"]:
        """The same in two, for what is too large together."""
        half, each = len(self.records) // 2, self.size // len(self.records)

        def some(start: int, end: int) -> Part:
            records = self.records[start:end]
            size = each * (end - start)
            kind, place, since = self.compression, self.partition, self.since
            first = self.first + start
            return Part(self.sender, place, records, size, kind, since, None, first, alone=True, maybe_in=self.maybe_in)

        return some(0, half), some(half, len(self.records))


class Batch:
    """Some parts under one sequence; what it is made of never changes.

    Attributes:
        tries: how often it was sent.
        named: an attempt went to whatever topic has this name, not to the one of an id.
        maybe_stored: an attempt ended without an answer that says whether it was stored.
        stored: upstream has it.
        refused: upstream will not take it under this sequence.
        given_up: nobody waits for its end any more, and an answer that still comes is of no interest.
        noted: what the journal has written of it, as with a part.
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
    """How many of the parts one batch takes, at least one, and its bytes.

    A part that is alone in it and has a batch already is not compressed again. Parts whose timestamps lie too far from
    those before them are left for the next batch.
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
    """A batch of a part, without numbers; in a thread. ``None`` where it cannot be made, which is a bug."""
    try:
        return parse_batch(built([part], NO_PRODUCER_ID, -1, NO_SEQUENCE, transactional=transactional)[1])
    except Exception:
        log.exception("a bug in the proxy, please report it: a batch for partition %d", part.partition)
        return None
