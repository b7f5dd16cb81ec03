"""A partition as one share group reads it: the members of its records, and their results.

    taken = partition.acquire(wanted, found, now)          # the records that a member gets, of those read from the log
    partition.acknowledge(member, acknowledgements, now)   # their results
    partition.release(member), partition.expire(now)       # records that their member gave back, or kept too long

Theory of operation: everything before `start_offset` is done. From there on come the records in flight, in batches as
they were acquired, up to `next_offset`; later records were never delivered. The start moves on when the records behind
it are final. A result is stored before it counts; an acquisition is not stored, so after a crash the record is
available again, with the count of its last stored result.

Rules:
- A record has one member at a time, which alone may acknowledge it.
- An acknowledgement request counts as a whole, or not at all.
- A lock that expires is released even if the disk refuses to store that: the record must not stay locked.
- Records in flight are bounded by `ShareLimits.record_locks`, and by the batch of the log that exceeds the bound.
- From half of the delivery limit on a batch is delivered in smaller and smaller parts, and a record alone at its last
  delivery: a record that makes consumers fail must not use up the deliveries of its neighbours.
- A restart makes the records between stored ones a fresh batch, which no one has acquired: Kafka's gap window.

Source: SharePartition.java, ShareFetchUtils.java; KIP-932, KIP-1206 (acquire modes), KIP-1222 (renewed locks).
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.brokerlite.machines.share_partitions.delivery_states import DeliveryInput, DeliveryState
from ottla.brokerlite.machines.share_partitions.in_flight import InFlightBatch, OffsetSpan, RecordRun, changed, joined
from ottla.brokerlite.machines.share_partitions.stored_state import StoredBatch, StoredState
from ottla.codec.apis.share_fetch import ACCEPT, GAP, REJECT, RELEASE, RENEW
from ottla.errors import BrokerError, InvalidRecordState, InvalidRequest

_INPUTS = {GAP: DeliveryInput.REJECTED, ACCEPT: DeliveryInput.ACCEPTED, REJECT: DeliveryInput.REJECTED}
_LEAST_THROTTLED = 2
"""The least number of deliveries after which a batch is delivered in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The settings of the group that apply to its partitions; seconds."""

    lock_duration: float = 30.0
    delivery_count: int = 5
    record_locks: int = 2000
    renewable: bool = True
    """Whether members may renew their locks."""


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


class RecordResults(NamedTuple):
    """The results of records, as a request has them: one type for all offsets, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]

    def tally(self) -> Mapping[int, int]:
        """Return how many records have each type."""
        return Counter(self.types) if len(self.types) > 1 else {self.types[0]: self.last - self.first + 1}


class StoreProgress(Protocol):
    """Stores the progress of one share partition; may raise a `BrokerError`."""

    def __call__(self, start_offset: int, final: int, batches: Sequence[StoredBatch]) -> None:
        """Store batches, both offsets inclusive, and the start offset.

        Args:
            final: how many records from the start on are final.
        """


class SharePartition:
    """The records of one partition that are in flight for one share group.

    Args:
        limits: `configure` may replace them at any time.
        store: stores results.
        stored: the state before.

    Attributes:
        start_offset: all records before it are final.
    """

    def __init__(self, limits: ShareLimits, store: StoreProgress, stored: StoredState) -> None:
        self.limits = limits
        self.start_offset = stored.start_offset
        self._store = store
        self._batches: list[InFlightBatch] = []
        self._may_be_available = True
        """Whether a record in flight may be available: otherwise it need not be searched."""
        for each in stored.batches:
            if each.first > self.next_offset:
                gap = RecordRun(self.next_offset, each.first - 1, DeliveryState.AVAILABLE, 0)
                self._batches.append(InFlightBatch([gap], fresh=True))
            self._batches.append(
                InFlightBatch([RecordRun(each.first, each.last, DeliveryState(each.state), each.deliveries)])
            )
        self._advance()

    def configure(self, limits: ShareLimits) -> None:
        """Use other limits from now on; locks keep their deadlines."""
        self.limits = limits

    # -- offsets and locks

    @property
    def next_offset(self) -> int:
        """The first offset that was never in flight."""
        return self._batches[-1].last + 1 if self._batches else self.start_offset

    @property
    def fetch_offset(self) -> int:
        """Where to read the log next: at the first record that is available, or else at `next_offset`."""
        if self._may_be_available:
            for batch in self._batches:
                if (offset := batch.first_available()) is not None:
                    return offset
            self._may_be_available = False
        return self.next_offset

    @property
    def in_flight(self) -> int:
        """The number of offsets in flight, final ones included."""
        return self.next_offset - self.start_offset

    @property
    def may_acquire(self) -> bool:
        """Whether a member may get records: some are available again, or there is room for more."""
        return self.fetch_offset != self.next_offset or self.in_flight < self.limits.record_locks

    @property
    def is_idle(self) -> bool:
        """Whether no member has a record."""
        return self.next_deadline is None

    @property
    def next_deadline(self) -> float | None:
        """When the first lock expires."""
        return min((run.deadline for run in self._runs() if run.state is DeliveryState.ACQUIRED), default=None)

    def runs(self) -> list[RecordRun]:
        """Return the records in flight, as runs with the same state."""
        return list(joined(self._runs()))

    def _runs(self) -> Iterator[RecordRun]:
        for batch in self._batches:
            yield from batch.runs

    # -- acquiring

    def acquire(self, wanted: Wanted, found: Sequence[FoundBatch], now: float) -> list[AcquiredRun]:
        """Let a member acquire records of the batches that were read at ``wanted.fetch_offset``.

        This stores no record. Records of aborted transactions are archived.
        """
        if wanted.max_records <= 0 or not found or found[-1].last_offset < self.start_offset:
            return []
        last, limit = self._room(wanted, found[-1].last_offset)
        if limit <= 0:
            return []
        if wanted.fetch_offset < found[0].base_offset:
            self._drop_missing(wanted.fetch_offset, found[0].base_offset)
        acquisition = _Acquisition(self, wanted, found, last, limit, now + self.limits.lock_duration)
        acquired = acquisition.run(self._batches)
        aborted = [OffsetSpan(each.base_offset, each.last_offset) for each in found if each.aborted]
        if aborted:
            self._drop_aborted(aborted)
            acquired = list(_without(acquired, aborted))
        self._advance()
        return acquired

    def _room(self, wanted: Wanted, last: int) -> tuple[int, int]:
        """Return the last offset to acquire, and how many records may be acquired."""
        room = self.limits.record_locks - self.in_flight if self._batches else self.limits.record_locks
        end = self.next_offset - 1
        if room <= 0 and wanted.fetch_offset <= end:
            # Records that are available again do not need more room; those after the end would.
            return min(last, end), min(wanted.max_records, end - wanted.fetch_offset + 1)
        return last, min(wanted.max_records, room)

    def append(self, batches: Sequence[InFlightBatch]) -> None:
        """Take new batches in flight, after all others."""
        if not self._batches:
            self.start_offset = batches[0].first
        self._batches += batches
        if any(batch.split for batch in batches):  # a strict limit has left records available
            self._may_be_available = True

    def replace(self, fresh: InFlightBatch, batches: Sequence[InFlightBatch]) -> None:
        """Put batches with the same offsets in the place of one."""
        at = self._batches.index(fresh)
        self._batches[at : at + 1] = batches

    def _drop_missing(self, fetch_offset: int, base_offset: int) -> None:
        """Archive available records that the log no longer has: compaction took them."""
        self._drop(DeliveryState.AVAILABLE, [OffsetSpan(fetch_offset, base_offset - 1)])

    def _drop_aborted(self, aborted: Sequence[OffsetSpan]) -> None:
        self._drop(DeliveryState.ACQUIRED, aborted)

    def _drop(self, state: DeliveryState, spans: Sequence[OffsetSpan]) -> None:
        def drop(run: RecordRun, _: int) -> RecordRun:
            return run.go(DeliveryInput.DROPPED) if run.state is state else run

        first, last = spans[0].first, spans[-1].last
        for batch in self._between(first, last):
            begin, end = bisect_left(spans, batch.first, key=_last), bisect_right(spans, batch.last, key=_first)
            batch.take(changed(batch.runs, spans[begin:end], drop), split=False)

    def _between(self, first: int, last: int) -> list[InFlightBatch]:
        return [batch for batch in self._batches if batch.last >= first and batch.first <= last]

    # -- results

    def acknowledge(self, member: str, acknowledgements: Iterable[RecordResults], now: float) -> None:
        """Take the results of records that the member has acquired, all or none.

        Args:
            acknowledgements: in the order of their offsets.

        Raises:
            InvalidRecordState: the member has not acquired one of the records, or not any longer.
            InvalidRequest: records that were never acquired.
            BrokerError: the results could not be stored.
        """
        spans: dict[InFlightBatch, list[OffsetSpan]] = {}
        split: set[InFlightBatch] = set()
        last = -1
        for each in acknowledgements:
            if each.last < self.start_offset:
                continue
            if each.first <= last:
                raise InvalidRecordState("The record state is invalid. An offset is acknowledged twice.")
            last = each.last
            for batch in self._acknowledged(each):
                if len(each.types) > 1 or not each.first <= batch.first <= batch.last <= each.last:
                    split.add(batch)
                spans.setdefault(batch, []).extend(_spans(each, batch.first, batch.last))
        changes = _Changes()
        for batch, of_batch in spans.items():
            if not batch.split:
                _check_batch(batch.whole, member)
            changes.put(batch, self._settled(batch, of_batch, member, now), of_batch, split=batch in split)
        self._commit(changes)

    def _acknowledged(self, asked: RecordResults) -> list[InFlightBatch]:
        """Return the batches that an acknowledgement is about."""
        known = self._batches
        if not known or (asked.first < known[0].first and asked.first >= self.start_offset):
            raise InvalidRecordState("Batch record not found. The request batch offsets are not found in the cache.")
        begin = bisect_left(known, asked.first, key=_last)
        end = bisect_right(known, asked.last, key=_first)
        for offset, which in ((asked.first, "first"), (asked.last, "last")):
            if end == 0 or offset > known[end - 1].last:
                raise InvalidRequest(f"Batch record not found. The {which} offset in request is past acquired records.")
        return known[begin:end]

    def _settled(self, batch: InFlightBatch, spans: Iterable[OffsetSpan], member: str, now: float) -> list[RecordRun]:
        """Return the runs of a batch with these results."""
        deadline = now + self.limits.lock_duration

        def settle(run: RecordRun, kind: int) -> RecordRun:
            _check_run(run, member)
            if kind == RENEW:
                if not self.limits.renewable:
                    raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
                return run._replace(deadline=deadline)
            return run.release(self.limits.delivery_count) if kind == RELEASE else run.go(_INPUTS[kind])

        return changed(batch.runs, spans, settle)

    def release(self, member: str) -> bool:
        """Give back all records that the member has; return whether there were any.

        Raises:
            BrokerError: that could not be stored; the member keeps them until their locks expire.
        """
        changes = self._releases(lambda run: run.member == member)
        self._commit(changes)
        return bool(changes)

    def expire(self, now: float) -> tuple[int, BrokerError | None]:
        """Give back the records whose locks have expired, also if that cannot be stored.

        Returns:
            How many records that are, and the disk's error.
        """
        expired = sum(run.size for run in self._runs() if run.has_expired(now))
        changes = self._releases(lambda run: run.has_expired(now))
        try:
            self._commit(changes)
        except BrokerError as error:
            changes.apply()
            self._advance()
            self._may_be_available = True
            return expired, error
        return expired, None

    def _releases(self, which: "_Which") -> "_Changes":
        changes = _Changes()
        limit = self.limits.delivery_count

        def release(run: RecordRun, _: int) -> RecordRun:
            return run.release(limit)

        for batch in self._batches:
            if held := [OffsetSpan(run.first, run.last) for run in batch.runs if which(run)]:
                changes.put(batch, changed(batch.runs, held, release), held, split=False)
        return changes

    def _commit(self, changes: "_Changes") -> None:
        """Store changes, and take them over."""
        if stored := changes.stored():
            start, final = self._progress(changes)
            self._store(start, final, [each for each in stored if each.last >= start])
        changes.apply()
        self._may_be_available = True
        self._advance()

    def _progress(self, changes: "_Changes") -> tuple[int, int]:
        """Return the start offset and the number of final records after it, as they are after the changes."""
        start, final = self.next_offset, 0
        moving = True
        for batch in self._batches:
            for run in changes.runs_of(batch):
                if moving and not run.state.is_final:
                    start, moving = run.first, False
                elif not moving and run.state.is_final:
                    final += run.size
        return start, final

    # -- moving on

    def trim(self, log_start: int) -> None:
        """Notice that the log begins at ``log_start``, without earlier records. It is stored with the next result."""
        if log_start > self.start_offset:
            self.start_offset = log_start
            self._batches = [batch for batch in self._batches if batch.last >= log_start]
            if self._batches:
                self._batches[0].trim(log_start)
                self._advance()

    def _advance(self) -> None:
        """Move the start behind the records that are final."""
        first_open = next((run.first for run in self._runs() if not run.state.is_final), self.next_offset)
        if first_open > self.start_offset:
            self.start_offset = first_open
            self._batches = [batch for batch in self._batches if batch.last >= first_open]
            if self._batches:
                self._batches[0].trim(first_open)


class _Which(Protocol):
    def __call__(self, run: RecordRun) -> bool: ...


class _Changes:
    """New runs of batches, until they are stored."""

    def __init__(self) -> None:
        self._new: dict[InFlightBatch, tuple[list[RecordRun], Sequence[OffsetSpan], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._new)

    def runs_of(self, batch: InFlightBatch) -> list[RecordRun]:
        """Return the runs of a batch, as they will be."""
        new = self._new.get(batch)
        return batch.runs if new is None else new[0]

    def put(self, batch: InFlightBatch, runs: list[RecordRun], spans: Sequence[OffsetSpan], *, split: bool) -> None:
        """Add the new runs of a batch, which differ from its runs within the spans only."""
        self._new[batch] = runs, spans, split

    def stored(self) -> list[StoredBatch]:
        """Return the batches to store: the records that changed, but no renewed ones."""
        found: list[StoredBatch] = []
        for runs, spans, _ in self._new.values():
            parts: list[RecordRun] = []

            def note(run: RecordRun, _: int, parts: list[RecordRun] = parts) -> RecordRun:
                parts.append(run)
                return run

            changed(runs, spans, note)
            settled = joined(part for part in parts if part.state is not DeliveryState.ACQUIRED)
            found += (StoredBatch(run.first, run.last, run.state, run.deliveries) for run in settled)
        return found

    def apply(self) -> None:
        for batch, (runs, _, split) in self._new.items():
            batch.take(runs, split=split)


def _check_batch(run: RecordRun, member: str) -> None:
    """Check the member of a batch that is not split."""
    if not run.member:
        raise InvalidRecordState("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if run.member != member:
        raise InvalidRecordState("Member is not the owner of batch record")


def _check_run(run: RecordRun, member: str) -> None:
    if run.state is not DeliveryState.ACQUIRED:
        raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
    if run.member != member:
        raise InvalidRecordState("Member is not the owner of offset")


def _spans(asked: RecordResults, first: int, last: int) -> Iterator[OffsetSpan]:
    """Yield the results from ``first`` to ``last``, neighbours with the same type as one span."""
    first, last = max(first, asked.first), min(last, asked.last)
    if len(asked.types) == 1:
        yield OffsetSpan(first, last, asked.types[0])
        return
    begun = first
    for offset in range(first, last + 1):
        kind = asked.types[offset - asked.first]
        if offset == last or asked.types[offset + 1 - asked.first] != kind:
            yield OffsetSpan(begun, offset, kind)
            begun = offset + 1


def _first(batch: InFlightBatch | OffsetSpan) -> int:
    return batch.first


def _last(batch: InFlightBatch | OffsetSpan) -> int:
    return batch.last


def _without(acquired: Iterable[AcquiredRun], dropped: Iterable[OffsetSpan]) -> Iterator[AcquiredRun]:
    """Yield the acquired records that are in none of the spans; both ascend."""
    rest = iter(dropped)
    span = next(rest, None)
    for each in acquired:
        first = each.first
        while span is not None and span.first <= each.last:
            if span.first > first:
                yield each._replace(first=first, last=span.first - 1)
            first = max(first, span.last + 1)
            if span.last > each.last:
                break
            span = next(rest, None)
        if first <= each.last:
            yield each._replace(first=first)


class _Acquisition:
    """One acquisition: walks over the records that were read, and takes the available ones.

    Args:
        last: the last offset to acquire.
        limit: how many records to acquire.
        deadline: when the locks expire.
    """

    def __init__(
        self,
        partition: SharePartition,
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
