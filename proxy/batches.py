"""Upstream batches, made of the records of one or several clients' batches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.codec.compression import UNLIMITED, Compression
from ottla.codec.records import BatchBuilder, Headers, Record, parse_batch
from ottla.errors import EncodeError
from ottla.proxy.control import Identity

Row = tuple[int, bytes | None, bytes | None, Headers]
"""A record: timestamp in ms, key, value, headers."""


def rows_of(records: Iterable[Record]) -> list[Row]:
    return [(each.timestamp, each.key, each.value, each.headers) for each in records]


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
    """An upstream batch: open to more records until it is sealed."""

    __slots__ = ("builder", "compression", "data", "parts", "since", "uncertain")

    def __init__(self, compression: Compression, now: float) -> None:
        self.compression = compression
        self.builder = BatchBuilder()
        self.parts: list[Part] = []
        self.since = now
        self.data: bytes | None = None
        """As it was sent; a sealed batch takes no more records."""
        self.uncertain = False
        """An attempt ended without an answer that says whether it was stored."""

    def add(self, rows: Sequence[Row], sender: Sender) -> None:
        self.parts.append(Part(sender, self.builder.extend(rows), len(rows)))

    def takes(self, rows: Sequence[Row], sender: Sender) -> bool:
        """Add the rows, unless their timestamps lie too far from those of others that are in the batch."""
        try:
            self.add(rows, sender)
        except EncodeError:
            return False
        return True

    def seal(self, identity: Identity, sequence: int) -> bytes:
        if self.data is None:
            self.data = self.builder.build(
                compression=self.compression,
                producer_id=identity[0],
                producer_epoch=identity[1],
                base_sequence=sequence,
            )
        return self.data

    def single_parts(self) -> list["Batch"]:
        """A batch for each part."""
        assert self.data is not None, "only a batch that was refused is taken apart"
        rows = rows_of(parse_batch(self.data).records(UNLIMITED))
        batches = []
        for part in self.parts:
            batch = Batch(self.compression, self.since)
            batch.add(rows[part.first : part.first + part.count], part.sender)
            batches.append(batch)
        return batches
