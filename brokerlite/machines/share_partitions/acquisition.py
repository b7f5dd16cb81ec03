"""One acquisition: chooses the records that a member gets, among the records read from the log.

Rules:
- A batch that was delivered before is delivered again as a whole, unless it is split, or only a part of it was read.
- From half of the delivery limit on a batch is delivered in smaller and smaller parts, and a record alone at its last
  delivery: a record that makes consumers fail must not use up the deliveries of its neighbours.
- Records that were never delivered are divided into batches at the boundaries of the log's batches.

Source: SharePartition.java (acquire, acquireSubsetBatchRecords), KIP-1206 (acquire modes).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.brokerlite.machines.share_partitions.delivery_states import DeliveryState
from ottla.brokerlite.machines.share_partitions.in_flight import InFlightBatch, OffsetSpan, RecordRun, changed, joined
from ottla.brokerlite.machines.share_partitions.share_settings import ShareLimits

_LEAST_THROTTLED = 2
"""The least number of deliveries after which a batch is delivered in parts."""


class Wanted(NamedTuple):
    """The records that a member would like to acquire.

    Attributes:
        fetch_offset: where the log was read.
        max_records: how many; with ``strict`` no more, otherwise batches of the log are acquired whole.
        batch_size: how many records an acquired batch should have.
    """

    member: str
    fetch_offset: int
    max_records: int
    batch_size: int
    strict: bool = False


class FoundBatch(NamedTuple):
    """A batch that was read from the log.

    Attributes:
        aborted: its transaction was aborted, and the group reads only committed records.
    """

    base_offset: int
    last_offset: int
    aborted: bool = False


class AcquiredRun(NamedTuple):
    """Records that a member has acquired, both offsets inclusive.

    Attributes:
        deliveries: how many times they were delivered, this time included.
    """

    first: int
    last: int
    deliveries: int


class InFlightRecords(Protocol):
    """The records in flight of a share partition: `SharePartition`."""

    limits: ShareLimits

    @property
    def next_offset(self) -> int:
        """The first offset that was never in flight."""

    def append(self, batches: Sequence[InFlightBatch]) -> None:
        """Take new batches in flight, after all others."""

    def replace(self, fresh: InFlightBatch, batches: Sequence[InFlightBatch]) -> None:
        """Put batches with the same offsets in the place of one."""


class Acquisition:
    """Walks over the records that were read, and takes the available ones.

    Args:
        last: the last offset to acquire.
        limit: how many records to acquire.
        deadline: when the locks expire.
    """

    def __init__(
        self,
        partition: InFlightRecords,
        wanted: Wanted,
        found: Sequence[FoundBatch],
        last: int,
        limit: int,
        deadline: float,
    ) -> None:
        self._partition, self._wanted, self._found = partition, wanted, found
        self._last, self._limit, self._deadline = last, limit, deadline
        self._base = found[0].base_offset
        self._taken: list[AcquiredRun] = []
        self._count = 0

    @property
    def _left(self) -> int:
        return self._limit - self._count

    def run(self, batches: Sequence[InFlightBatch]) -> list[AcquiredRun]:
        """Acquire, and return the acquired records in order."""
        known = [each for each in batches if each.last >= self._base and each.first <= self._last]
        for batch in known:
            if self._left <= 0:
                break
            if batch.fresh:
                self._take_fresh(batch)
            elif self._is_throttled(batch):
                if self._count == 0:
                    self._take_parts(batch)
                if self._count:
                    self._limit = 0  # the records of this batch are delivered alone
            elif batch.split or self._exceeds(batch):
                self._take_parts(batch)
            elif batch.whole.state is DeliveryState.AVAILABLE:
                self._take_whole(batch)
        begin = known[-1].last + 1 if known else max(self._base, self._partition.next_offset)
        if self._left > 0 and begin <= self._last:
            self._partition.append(self._locked(self._cut(begin, self._last)))
        return self._taken

    def _exceeds(self, batch: InFlightBatch) -> bool:
        """Whether only a part of the batch was read, or may be acquired."""
        covered = batch.first >= self._base and batch.last <= self._last
        return not covered or (self._wanted.strict and batch.last - batch.first + 1 > self._left)

    def _lock(self, run: RecordRun, _: int = 0) -> RecordRun:
        return run.acquire(self._wanted.member, self._deadline)

    def _take_whole(self, batch: InFlightBatch) -> None:
        batch.take([self._lock(batch.whole)], split=False)
        self._note([batch.whole])

    # -- batches that were delivered before

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        runs = batch.within(self._base, self._last)
        most = max((run.deliveries for run in runs if run.state is DeliveryState.AVAILABLE), default=0)
        return most >= self._throttled_from

    @property
    def _throttled_from(self) -> int:
        return max(_LEAST_THROTTLED, -(-self._partition.limits.delivery_count // 2))

    def _take_parts(self, batch: InFlightBatch) -> None:
        if not batch.split and batch.whole.state is not DeliveryState.AVAILABLE:
            return
        parts = list(self._parts(batch))
        if parts:
            spans = [OffsetSpan(run.first, run.last) for run in parts]
            batch.take(changed(batch.runs, spans, self._lock))
            self._note(joined(map(self._lock, parts)))

    def _parts(self, batch: InFlightBatch) -> Iterator[RecordRun]:
        """Yield the available parts of a batch that are to be acquired together."""
        most = self._left if self._wanted.strict else batch.size
        limit, throttled_from = self._partition.limits.delivery_count, self._throttled_from
        throttled, taken = False, 0
        for run in batch.within(self._base, self._last):
            if run.state is not DeliveryState.AVAILABLE:
                continue
            is_last = limit > 2 and run.deliveries == limit - 1
            if is_last:
                if taken == 0:
                    yield run.cut(run.first, run.first)
                return
            if run.deliveries >= throttled_from and not throttled:
                throttled = True
                most = min(most, max(1, batch.size >> (run.deliveries - throttled_from + 1)))
            if taken >= most:
                return
            part = run.cut(run.first, run.first + most - taken - 1)
            yield part
            taken += part.size

    # -- records that were never delivered

    def _take_fresh(self, batch: InFlightBatch) -> None:
        """Acquire records of a batch that a restart has made; the rest of the batch stays fresh."""
        first = max(batch.first, self._base)
        taken = self._cut(first, min(batch.last, self._last))
        before = list(batch.within(batch.first, first - 1))
        after = list(batch.within(taken[-1].last + 1, batch.last))
        left = [InFlightBatch(runs, fresh=True) if runs else None for runs in (before, after)]
        pieces = [left[0], *self._locked(taken), left[1]]
        self._partition.replace(batch, [each for each in pieces if each is not None])

    def _cut(self, first: int, last: int) -> list[RecordRun]:
        """Divide the offsets into batches, as far as the limit allows; the batches of the log stay whole."""
        if self._left < last - first + 1:
            last = min(self._end_of_batch(first + self._left - 1), last)
        batch_size = max(1, self._wanted.batch_size)
        begun = [first]
        if not self._wanted.strict and last - first + 1 > batch_size:
            for each in self._found:
                if each.base_offset > last:
                    break
                if each.base_offset - begun[-1] >= batch_size:
                    begun.append(each.base_offset)
        ends = [each - 1 for each in begun[1:]] + [last]
        return [RecordRun(*each, DeliveryState.AVAILABLE, 0) for each in zip(begun, ends, strict=True)]

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the log's batch with ``offset``."""
        found = (each.last_offset for each in self._found if each.base_offset <= offset <= each.last_offset)
        return next(found, offset)

    def _locked(self, taken: Sequence[RecordRun]) -> list[InFlightBatch]:
        """Return new batches with records that are acquired: all, or as many as a strict limit allows."""
        batches = []
        for run in taken:
            batch = InFlightBatch([run])
            if self._wanted.strict and run.size > self._left:
                locked = OffsetSpan(run.first, run.first + self._left - 1)
                batch.take(changed([run], [locked], self._lock))
            else:
                batch.take([self._lock(run)], split=False)
            self._note(each for each in batch.runs if each.state is DeliveryState.ACQUIRED)
            batches.append(batch)
        return batches

    def _note(self, runs: Iterable[RecordRun]) -> None:
        for run in runs:
            self._taken.append(AcquiredRun(run.first, run.last, run.deliveries))
            self._count += run.size
