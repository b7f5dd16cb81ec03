"""Upstream batches, made of the records of one or several clients' batches."""

from dataclasses import dataclass
from typing import Protocol

from ottla.codec.compression import UNLIMITED, Compression
from ottla.codec.records import BatchBuilder, Record, RecordBatch, Records, parse_batch
from ottla.codec.rewrite import numbered
from ottla.errors import EncodeError
from ottla.proxy.control import Identity

SomeRecords = Records | list[Record]
"""Records of a client's batch."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a client batch's part in one partition."""

    error_code: int
    offset: int = -1
    """Of its first record; -1 where it is unknown."""
    message: str | None = None
    doubtful: bool = False
    """Nobody can know whether it is stored."""


class Sender(Protocol):
    """A client's batch, parts of which are under way."""

    def settled(self, partition: int, result: Result, now: float) -> None: ...


@dataclass(slots=True)
class Part:
    """A client batch's records within an upstream batch."""

    sender: Sender
    first: int
    count: int


class Batch:
    """An upstream batch: open to more records until it is sealed.

    A client batch that stays alone in it is neither opened nor compressed again.
    """

    __slots__ = ("_builder", "_whole", "compression", "count", "data", "parts", "since", "uncertain")

    def __init__(self, compression: Compression, now: float) -> None:
        self.compression = compression
        self.count = 0
        self._builder = BatchBuilder()
        self._whole: tuple[RecordBatch, SomeRecords] | None = None
        """A client's batch, and the records in it."""
        self.parts: list[Part] = []
        self.since = now
        self.data: bytes | None = None
        """As it was sent; a sealed batch takes no more records."""
        self.uncertain = False
        """An attempt ended without an answer that says whether it was stored."""

    @property
    def size(self) -> int:
        """Bytes before compression, about; of a client's batch that was not opened, as it came."""
        return len(self._whole[0].data) if self._whole else self._builder.size

    def add(self, records: SomeRecords, sender: Sender, whole: RecordBatch | None = None) -> None:
        """
        Args:
            whole: the client's batch, if these are all of its records.

        Raises:
            EncodeError: the timestamps lie too far from those of others that are in the batch.
        """
        if whole is not None and not self.parts:
            self._whole = whole, records
        else:
            if self._whole is not None:
                self._builder.extend(self._whole[1])
                self._whole = None
            self._builder.extend(records)
        self.parts.append(Part(sender, self.count, len(records)))
        self.count += len(records)

    def takes(self, records: SomeRecords, sender: Sender) -> bool:
        """Add the records, unless their timestamps lie too far from those of others that are in the batch."""
        try:
            self.add(records, sender)
        except EncodeError:
            return False
        return True

    def seal(self, identity: Identity, sequence: int) -> bytes:
        if self.data is None and self._whole is not None:
            self.data = numbered(self._whole[0], *identity, sequence)
        elif self.data is None:
            self.data = self._builder.build(
                compression=self.compression,
                producer_id=identity[0],
                producer_epoch=identity[1],
                base_sequence=sequence,
            )
        return self.data

    def single_parts(self) -> list["Batch"]:
        """A batch for each part."""
        assert self.data is not None, "only a batch that was refused is taken apart"
        records = parse_batch(self.data).records(UNLIMITED)
        batches = []
        for part in self.parts:
            batch = Batch(self.compression, self.since)
            batch.add(records[part.first : part.first + part.count], part.sender)
            batches.append(batch)
        return batches
