"""Parts of clients' batches, and the batches built from them for one partition of upstream."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.codec.compression import Compression
from ottla.codec.records import NO_PRODUCER_ID, NO_SEQUENCE, BatchBuilder, Record, RecordBatch, Records, parse_batch
from ottla.codec.rewrite import numbered
from ottla.codec.wire import Buffer
from ottla.errors import EncodeError
from ottla.proxy.journal.journaled import Journaled
from ottla.proxy.routing import Destination

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
    append_time: int = -1
    """The time that the broker gave its records, in ms (``LogAppendTime``); -1: they have their own times."""
    passed_on: bool = False
    """Upstream does not accept it now, and its client sends it again."""
    record_errors: tuple[tuple[int, str], ...] = ()
    """The indexes of refused records in the client's batch, and the reasons."""


class PartOwner(Protocol):
    """A client's batch with unsettled parts."""

    @property
    def refused(self) -> bool:
        """A batch before it failed, so it must not be stored: its unsent parts are never sent."""

    def parted(self) -> None:
        """Count one more part, because a part was split in two."""

    def settled(self, part: "Part", result: PartResult, now: float) -> None:
        """Take the outcome of a part: stored, refused or unknown."""

    def put_off(self, code: int, destination: Destination, now: float) -> None:
        """Take the error with which a partition refuses a part for now; the owner may take its parts back."""


@dataclass(slots=True, eq=False)
class Part(Journaled):
    """The records of a client's batch for one destination.

    Attributes:
        first: index of its first record among the records of its batch for this destination.
        size: approximate bytes before compression.
        since: when it arrived.
        whole: a batch with exactly these records: the client's own batch, or one that a thread has built.
        building: a thread is building `whole`.
        alone: it shares no batch with other parts: it is large, or a batch that it shared was refused.
        maybe_in: the ids of replaced topics in which it may be stored.
    """

    sender: PartOwner
    destination: Destination
    records: SomeRecords
    size: int
    compression: Compression
    since: float
    whole: RecordBatch | None = None
    first: int = 0
    alone: bool = False
    building: bool = False
    maybe_in: "frozenset[UUID]" = frozenset()

    def begin_building(self) -> None:
        """Have it share no batch, and wait for the batch that a thread builds of it."""
        self.building = True
        self.isolate()

    def end_building(self, whole: RecordBatch | None) -> None:
        """Take the batch that a thread has built; ``None`` if that failed."""
        self.building, self.whole = False, whole

    def isolate(self) -> None:
        """Have it share no batch from now on."""
        self.alone = True
        self.changed()

    def maybe_stored_in(self, topic_id: "UUID") -> None:
        """Remember a topic that may have stored it, because that topic was replaced before upstream confirmed it."""
        self.maybe_in |= {topic_id}
        self.changed()

    @property
    def size_of_half(self) -> int:
        """The size of the larger of its `halves`."""
        count = len(self.records)
        return self.size // count * (count - count // 2)

    def halves(self) -> tuple["Part", "Part"]:
        """Split it in two, because upstream refused it as too large; its sender has one more part to wait for."""
        self.sender.parted()
        half, each = len(self.records) // 2, self.size // len(self.records)

        def some(start: int, end: int) -> Part:
            records = self.records[start:end]
            size = each * (end - start)
            kind, destination, since = self.compression, self.destination, self.since
            first = self.first + start
            return Part(
                self.sender, destination, records, size, kind, since, None, first, alone=True, maybe_in=self.maybe_in
            )

        return some(0, half), some(half, len(self.records))


@dataclass(slots=True, eq=False)
class UpstreamBatch(Journaled):
    """Parts that are sent together under one sequence. Retries send the same bytes.

    Attributes:
        parts: the unsettled parts.
        count: how many records it has, also once its parts are settled.
        tries: how many times it was sent.
        named: an attempt named the topic by name, so any topic of this name may have stored it.
        maybe_stored: an attempt ended with its outcome unknown.
        unless_gone: it is ``maybe_stored`` only because a broker did not know the topic: a deleted one stores nothing.
        stored: upstream has stored it.
        refused: it is not sent again under this sequence.
        taken_back: its senders have taken all its parts back; surely none of them is stored.
    """

    parts: list[Part]
    data: Buffer
    sequence: int
    tries: int = 0
    named: bool = False
    maybe_stored: bool = False
    stored: bool = False
    refused: bool = False
    unless_gone: bool = field(default=False, init=False)
    taken_back: bool = field(default=False, init=False)
    in_flight: bool = field(default=False, init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = sum(len(part.records) for part in self.parts)

    def sent(self, *, by_id: bool) -> None:
        """Count an attempt, which is in flight now; ``by_id`` if its request has the topic's id."""
        self.in_flight = True
        self.tries += 1
        self.named = self.named or not by_id
        self.changed()

    def landed(self) -> None:
        """End the attempt in flight: it was answered, or its request failed."""
        self.in_flight = False
        self.changed()

    def failed(self, *, maybe_stored: bool, unless_gone: bool = False) -> None:
        """Take the failure of an attempt; the same bytes are sent again."""
        if maybe_stored:
            self.unless_gone = unless_gone and (self.unless_gone or not self.maybe_stored)
        self.maybe_stored = self.maybe_stored or maybe_stored
        self.changed()

    def gone(self) -> None:
        """Take note that its topic was deleted."""
        if self.unless_gone:
            self.maybe_stored = self.unless_gone = False
            self.changed()

    def take_back(self, sender: PartOwner) -> list[Part]:
        """Give a sender its parts back; the others are sent again under another sequence."""
        parts = [part for part in self.parts if part.sender is sender]
        if parts:
            self.parts = [part for part in self.parts if part.sender is not sender]
            self.refused, self.taken_back = True, not self.parts
            self.changed()
        return parts

    def confirmed(self) -> None:
        """Take the confirmation that upstream has stored it."""
        self.stored = True
        self.changed()

    def sequence_refused(self) -> None:
        """Take a refusal of its sequence; its parts are sent again under another one."""
        self.refused = True
        self.changed()

    def records_refused(self, *, too_large: bool) -> Part | None:
        """Take a refusal of its records, which upstream stores under no sequence.

        Returns the part to settle. There is none if the parts are sent again: each alone, because one of several is to
        blame, or in halves.
        """
        self.refused = True
        self.changed()
        if len(self.parts) > 1:
            for part in self.parts:
                part.isolate()
            return None
        [part] = self.parts
        if too_large and len(part.records) > 1:  # larger than the client's batch, or a lower limit
            self.parts = [*part.halves()]
            return None
        self.parts = []
        return part

    def expired(self) -> list[Part]:
        """Have it not sent again, and give back its parts."""
        self.refused = True
        self.changed()
        parts, self.parts = self.parts, []
        return parts


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
        log.exception("a bug in the proxy, please report it: a batch for %s", part.destination)
        return None
