"""The batches that a Fetch returned for one partition, until the user takes them: `Fetched`.

Rules:
- A few bytes may decompress to many, so a response is handed out in parts of at most `fetch_batch_memory` bytes. It is
  not refused: ordinary records, too, may be compressed to a thousandth.

Source: CompletedFetch.java.
"""

from collections.abc import Iterator
from dataclasses import field, replace
from itertools import chain

from ottla.codec.columns import Columns
from ottla.codec.compression import DECOMPRESSED_LIMIT
from ottla.codec.records import BEYOND, Record, RecordBatch, Records, read_columns
from ottla.errors import DecodeError, MemoryLimitExceeded, OttlaError
from ottla.late_dataclass import dataclass
from ottla.sdk.consume.partitions.record_sets import AnyBatch, located, sound


@dataclass(slots=True)
class Fetched:
    """The batches of one partition in a Fetch response, or a part of them."""

    topic: str
    partition: int
    first_offset: int
    """Records before this offset were not asked for."""
    batches: list[AnyBatch]
    high_watermark: int
    next_offset: int
    """The offset after these records, and after records skipped behind them: the offset to commit."""
    leader_epoch: int
    """The leader epoch of the record before `next_offset`; the commit contains it; -1: unknown."""
    size: int = 0
    """Bytes on the wire."""
    memory: int = DECOMPRESSED_LIMIT
    """Limit in bytes for all batches together once they are decompressed; a single batch may take as many."""
    cut: Records | None = None
    """The part of the only batch that this object stands for, if the batch was too large to be handed out at once."""
    verified: bool | None = None
    """Whether all checksums are right; ``None``: they are not compared yet."""
    fits: bool = False
    """This may be handed out as it is: `split` would not divide it."""
    count: int = field(init=False)
    """The number of records that is known without decompressing: a message from before Kafka 0.11 counts as one."""

    def __post_init__(self) -> None:
        batches = sum(max(each.count, 0) if isinstance(each, RecordBatch) else 1 for each in self.batches)
        self.count = batches if self.cut is None else len(self.cut)

    def split(self, most: int | None = None) -> list["Fetched"]:
        """Divide this into parts that take at most `memory` bytes each once they are decompressed.

        A part has at least one batch, and whole batches only. A damaged batch is not divided: the damage is found when
        its records are used.

        Args:
            most: the maximum number of records per part. The first part is also divided within its only batch if that
                has more. For the other parts this is done in their turn, because it decompresses the batch.
        """
        ends: list[int] = []
        if len(self.batches) > 1:
            begin = memory = count = 0
            for index, batch in enumerate(self.batches):
                bound, records = batch.memory_bound, 0 if most is None else _records_in(batch)
                memory, count = memory + bound, count + records
                if index > begin and (memory > self.memory or (most is not None and count > most)):
                    ends.append(index)
                    begin, memory, count = index, bound, records
        parts = self._split_at(ends) if ends else [self]
        first = parts[0]
        if most is not None and len(first.batches) == 1:
            count = len(first.cut) if first.cut is not None else _records_in(first.batches[0])
            if count > most:
                parts[:1] = first._cut_at(most)
        parts[0]._keep_whole()
        return parts

    def _keep_whole(self) -> None:
        """Take note that `split` need not divide this again."""
        self.fits = True

    def skip(self, batch: AnyBatch) -> None:
        """Commit the offset after ``batch``, which follows these records, and which the user may not see."""
        self.next_offset, self.leader_epoch = batch.next_offset, epoch_of(batch)

    def is_sound(self, isolation: int) -> bool:
        """Whether all checksums are right; they are compared once."""
        if self.verified is None:
            self.verified = sound(self.batches, isolation)[1] is None
        return self.verified

    def intact(self, isolation: int) -> tuple["Fetched", OttlaError | None]:
        """The part before the first damaged batch, perhaps without any batch, and the damage, if any."""
        if self.is_sound(isolation):
            return self, None
        good, damage = sound(self.batches, isolation)
        following, epoch = (good[-1].next_offset, epoch_of(good[-1])) if good else (self.first_offset, -1)
        size = sum(len(each.data) for each in good)
        whole = replace(self, batches=good, next_offset=following, leader_epoch=epoch, size=size, verified=True)
        return whole, damage

    def _split_at(self, ends: list[int]) -> list["Fetched"]:
        """Divide this before the batches with these indices."""
        parts: list[Fetched] = []
        first_offset, start, done = self.first_offset, 0, 0
        for end in [*ends, len(self.batches)]:
            batches, size = self.batches[start:end], self.size * end // len(self.batches)
            following, epoch = self.next_offset, self.leader_epoch
            if end < len(self.batches):
                following, epoch = batches[-1].next_offset, epoch_of(batches[-1])
            part = replace(
                self,
                first_offset=first_offset,
                batches=batches,
                next_offset=following,
                leader_epoch=epoch,
                size=size - done,
                fits=len(batches) > 1,  # a single batch may have to be cut
            )
            parts.append(part)
            first_offset, start, done = following, end, size
        return parts

    def _cut_at(self, most: int) -> list["Fetched"]:
        """Divide this in two within its only batch, if that has more records than ``most``."""
        try:
            [records] = self.parts()
        except DecodeError:
            return [self]
        if len(records) <= most:
            return [self]
        following, size = records[most].offset, self.size * most // len(records)
        first, rest = records.between(-BEYOND, following), records.between(following, BEYOND)
        epoch = epoch_of(self.batches[0])
        begin = replace(self, next_offset=following, leader_epoch=epoch, size=size, cut=first)
        return [begin, replace(self, first_offset=following, size=self.size - size, cut=rest)]

    def can_wait(self, partitions: int) -> bool:
        """Whether other partitions may come first: no batch is open here, or there is memory for one per partition."""
        return self.cut is None or self.can_be_cut(partitions)

    def can_be_cut(self, partitions: int) -> bool:
        """Whether `memory` suffices if ``partitions`` partitions decompress a batch like the first one here."""
        return self.batches[0].memory_bound * partitions <= self.memory

    def parts(self) -> list[Records]:
        """The requested records of each batch, decompressed and checked, but not decoded.

        Raises:
            DecodeError: a batch is damaged; the error says which.
            MemoryLimitExceeded: the only batch takes more than `memory`.
        """
        if self.cut is not None:
            return [self.cut]
        try:
            return [batch.records(self.memory).between(self.first_offset, BEYOND) for batch in self.batches]
        except DecodeError as error:
            raise self._here(error) from None

    def records(self) -> list[Record]:
        """The requested records, decoded; raises as `parts`."""
        return list(chain.from_iterable(self.parts()))

    def columns(self) -> Columns:
        """The requested records as columns, without creating an object per record; raises as `parts`."""
        batches = [each for each in self.batches if isinstance(each, RecordBatch)]
        if len(batches) < len(self.batches) or self.cut is not None:  # messages from before Kafka 0.11, or a part
            return Columns.of(self.parts())
        try:
            return read_columns(batches, self.first_offset, self.memory)
        except DecodeError as error:
            raise self._here(error) from None

    def _here(self, error: DecodeError) -> DecodeError:
        advice = f"; raise fetch_batch_memory, an option of connect, or seek to offset {self.next_offset}"
        advice = advice if isinstance(error, MemoryLimitExceeded) else ""
        return located(error, f"{self.topic}-{self.partition}", advice)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())


def _records_in(batch: AnyBatch) -> int:
    """An upper bound of the number of requested records in the batch."""
    if isinstance(batch, RecordBatch):
        return batch.count
    try:
        return len(batch.records())
    except DecodeError:
        return 1


def epoch_of(batch: AnyBatch) -> int:
    """The leader epoch of the batch; -1: unknown."""
    return batch.partition_leader_epoch if isinstance(batch, RecordBatch) else -1
