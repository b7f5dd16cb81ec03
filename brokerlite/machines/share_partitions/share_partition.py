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
- A restart makes the records between stored ones a fresh batch, which no one has acquired: Kafka's gap window.

Source: SharePartition.java, ShareFetchUtils.java; KIP-932, KIP-1222 (renewed locks).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ottla.brokerlite.machines.share_partitions.acquisition import AcquiredRun, Acquisition, FoundBatch, Wanted
from ottla.brokerlite.machines.share_partitions.delivery_states import DeliveryInput, DeliveryState
from ottla.brokerlite.machines.share_partitions.in_flight import InFlightBatch, OffsetSpan, RecordRun, changed, joined
from ottla.brokerlite.machines.share_partitions.record_results import RecordChanges, RecordResults
from ottla.brokerlite.machines.share_partitions.share_settings import ShareLimits
from ottla.brokerlite.machines.share_partitions.stored_state import StoredBatch, StoredState
from ottla.codec.apis.share_fetch import ACCEPT, GAP, REJECT, RELEASE, RENEW
from ottla.errors import BrokerError, InvalidRecordState, InvalidRequest

_INPUTS = {GAP: DeliveryInput.REJECTED, ACCEPT: DeliveryInput.ACCEPTED, REJECT: DeliveryInput.REJECTED}


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
        acquisition = Acquisition(self, wanted, found, last, limit, now + self.limits.lock_duration)
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
                spans.setdefault(batch, []).extend(each.spans(batch.first, batch.last))
        changes = RecordChanges()
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

    def _releases(self, which: Callable[[RecordRun], bool]) -> RecordChanges:
        changes = RecordChanges()
        limit = self.limits.delivery_count

        def release(run: RecordRun, _: int) -> RecordRun:
            return run.release(limit)

        for batch in self._batches:
            if held := [OffsetSpan(run.first, run.last) for run in batch.runs if which(run)]:
                changes.put(batch, changed(batch.runs, held, release), held, split=False)
        return changes

    def _commit(self, changes: RecordChanges) -> None:
        """Store changes, and take them over."""
        if stored := changes.stored():
            start, final = self._progress(changes)
            self._store(start, final, [each for each in stored if each.last >= start])
        changes.apply()
        self._may_be_available = True
        self._advance()

    def _progress(self, changes: RecordChanges) -> tuple[int, int]:
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
