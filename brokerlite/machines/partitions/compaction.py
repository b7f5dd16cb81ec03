"""Compaction: keeps only the last record of each key.

Theory of operation: a log has a clean part, in which no key occurs twice, followed by a dirty part. A round reads keys
of the dirty part into an `OffsetMap` until the map is full. Then every batch from the log's start to that offset passes
through a `Cleaner`, which returns the cleaned batch. The new segments replace the old ones, group by group; the next
round begins where the map ended.

Rules:
- The active segment, records at or after the last stable offset, and records younger than `min.compaction.lag.ms` are
  never cleaned.
- Offsets never change. A record is removed if it has no key, or if the map has a later offset for its key.
- A tombstone (a record without a value) stays for `delete.retention.ms` after it was first cleaned, so a consumer that
  has seen the older value also sees that it is gone. The end of that time is the batch's delete horizon (KIP-534).
- Records of an aborted transaction are removed at once. The marker of a transaction stays until a round has found none
  of its records, and then for another `delete.retention.ms`.
- The last batch of each active producer stays because of its sequence, and the last batch of each new segment because
  of its offset, if need be without records. (Kafka keeps only the last batch of the last segment. Here, if a start
  finds a new segment beside old ones that it replaces, the end offset tells which ones these are.)
- A batch that cannot be read stays as it is.

Source: LogCleaner.scala and Cleaner.java (buildOffsetMap, cleanInto, groupSegmentsBySize, CleanedTransactionMetadata),
LogCleanerManager (cleanableOffsets, grabFilthiestCompactedLog), MemoryRecords.java (filterTo).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.retention import MAX_RELATIVE_OFFSET, SegmentState
from ottla.codec.records import Record, RecordBatch
from ottla.codec.rewrite import emptied, retained
from ottla.codec.stored.control import ABORT, COMMIT, parse_control
from ottla.codec.stored.indexes import AbortedTxn
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError, EncodeError

MAP_ENTRIES = 500_000
"""The most keys of one round: about 100 MB."""
_DIGEST = 16
"""The most bytes that a key takes in the map, as in Kafka."""


class Round(NamedTuple):
    """A round of compaction that a log is due for."""

    first_dirty_offset: int
    end_offset: int
    """The base offset of the first segment that may not be cleaned."""
    ratio: float
    """Dirty bytes divided by all bytes before `end_offset`; the log with the largest ratio is cleaned first."""


def next_round(
    segments: Sequence[SegmentState],
    settings: LogSettings,
    *,
    cleaned_up_to: int,
    start_offset: int,
    last_stable_offset: int,
    now: int,
) -> Round | None:
    """Return the next round of a log; ``None`` if the log is not dirty enough yet.

    Args:
        segments: all segments; the last is the active one.
        cleaned_up_to: where the last round ended, as in ``cleaner-offset-checkpoint``; -1: there was none.
        now: milliseconds since 1970.
    """
    dirty_from = cleaned_up_to if start_offset <= cleaned_up_to <= segments[-1].end_offset else start_offset
    end = _first_uncleanable(segments, settings, dirty_from, last_stable_offset, now)
    dirty = [each for each in segments if dirty_from < each.end_offset <= end]
    dirty_bytes = sum(each.size for each in dirty)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / sum(each.size for each in segments if each.end_offset <= end)
    overdue = any(0 < each.first_timestamp < now - settings.max_compaction_lag_ms for each in dirty)
    return Round(dirty_from, end, ratio) if overdue or ratio > settings.min_cleanable_dirty_ratio else None


def _first_uncleanable(
    segments: Sequence[SegmentState], settings: LogSettings, dirty_from: int, last_stable_offset: int, now: int
) -> int:
    youngest = now - settings.min_compaction_lag_ms
    for segment in segments[:-1]:
        too_young = settings.min_compaction_lag_ms > 0 and segment.time > youngest and segment.end_offset > dirty_from
        if too_young or segment.end_offset > last_stable_offset:
            return segment.base_offset
    return segments[-1].base_offset


def grouped(segments: Iterable[SegmentState], segment_bytes: int, index_bytes: int) -> list[list[SegmentState]]:
    """Group adjacent segments that fit into one new segment, by its bytes, its index and its relative offsets."""
    groups: list[list[SegmentState]] = []
    size = index_size = 0
    for segment in segments:
        size, index_size = size + segment.size, index_size + segment.index_size
        far = groups and segment.end_offset - 1 - groups[-1][0].base_offset > MAX_RELATIVE_OFFSET
        if not groups or size > segment_bytes or index_size > index_bytes or (far and segment.size):
            groups.append([])
            size, index_size = segment.size, segment.index_size
        groups[-1].append(segment)
    return groups


class CleanedTransactions:
    """Follows the transactions of a log, batch by batch from its start.

    It finds aborted records, and markers whose records are all gone.

    Args:
        aborted: all aborted transactions that overlap with the batches.

    Attributes:
        kept: aborted transactions of which records were found; the index of the new segments must have them.
    """

    def __init__(self, aborted: Iterable[AbortedTxn] = ()) -> None:
        self.kept: list[AbortedTxn] = []
        self._ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        self._met: set[int] = set()
        """Producers of whose current transaction records were found."""

    def over(self, batch: RecordBatch) -> bool:
        """Return whether the next batch has aborted records, or is the marker of a transaction without records.

        Raises:
            DecodeError: it is a control batch that cannot be read.
        """
        while self._ahead and self._ahead[0].first_offset <= batch.last_offset:
            entry = self._ahead.popleft()
            self._aborted[entry.producer_id] = entry
        if batch.control:
            return self._is_needless(batch)
        if not batch.transactional:
            return False
        self._met.add(batch.producer_id)
        aborted = self._aborted.get(batch.producer_id)
        return aborted is not None and batch.last_offset < aborted.last_offset

    def _is_needless(self, marker: RecordBatch) -> bool:
        if marker.count == 0:  # an earlier round has emptied it
            return True
        for record in marker.records():
            control = parse_control(record.key, record.value)
            if control is None or control.type not in (ABORT, COMMIT):
                return False
        aborted = self._aborted.pop(marker.producer_id, None)
        if marker.producer_id not in self._met:
            return True
        self._met.discard(marker.producer_id)
        if aborted is not None:
            self.kept.append(aborted)
        return False


class OffsetMap:
    """Maps each key in a part of the log to the offset of its last record.

    Args:
        start_offset: where the part begins.
        most: the most keys in the map, unless one batch alone has more.

    Attributes:
        end_offset: where the part ends: after the last batch that was added.
    """

    def __init__(self, start_offset: int, aborted: Iterable[AbortedTxn] = (), most: int = MAP_ENTRIES) -> None:
        self.start_offset = self.end_offset = start_offset
        self._most = most
        self._transactions = CleanedTransactions(aborted)
        self._offsets: dict[bytes, int] = {}

    def add(self, batch: RecordBatch) -> bool:
        """Add the keys of the next batch; return ``False`` if they do not fit, so the part ends before it."""
        offsets = self._keys(batch)
        new = sum(key not in self._offsets for key in offsets)
        if self._offsets and len(self._offsets) + new > self._most:
            return False
        self._offsets.update(offsets)
        self.end_offset = max(self.end_offset, batch.next_offset)
        return True

    def skip_to(self, offset: int) -> None:
        """Extend the part to ``offset``: there are no more batches before it."""
        self.end_offset = max(self.end_offset, offset)

    def _keys(self, batch: RecordBatch) -> dict[bytes, int]:
        try:
            if self._transactions.over(batch) or batch.control:
                return {}
            records = batch.records()
        except DecodeError:  # the cleaner keeps the batch and reports it
            return {}
        start = self.start_offset
        return {
            _digest(key): record.offset
            for record in records
            if (key := record.key) is not None and record.offset >= start
        }

    def knows_later(self, key: bytes, offset: int) -> bool:
        """Return whether the part has a record with ``key`` after ``offset``."""
        return self._offsets.get(_digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    """Return a short key itself, which saves hashing most keys, or the digest of a long one.

    They cannot collide: a short key is shorter than any digest.
    """
    return key if len(key) < _DIGEST else blake2b(key, digest_size=_DIGEST).digest()


class LastBatch(NamedTuple):
    """The last batch of an active producer in a partition."""

    last_offset: int
    """The last offset of its last data batch; -1: it has none, and its last marker is kept because of its epoch."""
    epoch: int


class Cleaner:
    """Decides which records of each batch remain, and returns the cleaned batch.

    Args:
        offsets: the map of the dirty part.
        aborted: aborted transactions that overlap with the cleaned part.
        producers: the active producers, by id.
        ends: the end offsets of the new segments.
        now: milliseconds since 1970.

    Attributes:
        transactions: the transactions found so far.
        unreadable: the errors of batches that cannot be read and are kept as they are, by base offset.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        aborted: Iterable[AbortedTxn] = (),
        producers: Mapping[int, LastBatch],
        ends: Iterable[int],
        now: int,
        delete_retention_ms: int,
    ) -> None:
        self.transactions = CleanedTransactions(aborted)
        self.unreadable: dict[int, str] = {}
        self._offsets = offsets
        self._producers = producers
        self._ends = frozenset(ends)
        self._now = now
        self._horizon = now + delete_retention_ms

    def clean(self, batch: RecordBatch) -> Buffer:
        """Return the cleaned form of the next batch; ``b""`` if it is removed."""
        try:
            return self._control(batch) if batch.control else self._data(batch)
        except (DecodeError, EncodeError) as error:
            self.unreadable[batch.base_offset] = str(error)
            return batch.data

    def _control(self, batch: RecordBatch) -> Buffer:
        needless = self.transactions.over(batch)
        if needless and (batch.count == 0 or self._is_past_horizon(batch)):
            return self._without_records(batch)
        if needless and batch.delete_horizon is None:
            return retained(batch, [True] * batch.count, self._horizon)
        return batch.data

    def _data(self, batch: RecordBatch) -> Buffer:
        if self.transactions.over(batch):
            return self._without_records(batch)
        records = batch.records()
        past_horizon = self._is_past_horizon(batch)
        keep = [self._stays(record, past_horizon) for record in records]
        if not any(keep):
            return self._without_records(batch)
        first_clean = batch.delete_horizon is None and any(
            stays and record.value is None for stays, record in zip(keep, records, strict=True)
        )
        if all(keep) and not first_clean:
            return batch.data
        return retained(batch, keep, self._horizon if first_clean else None)

    def _stays(self, record: Record, past_horizon: bool) -> bool:
        if record.offset >= self._offsets.end_offset:
            return True
        key = record.key
        if key is None or (past_horizon and record.value is None):
            return False
        return not self._offsets.knows_later(key, record.offset)

    def _is_past_horizon(self, batch: RecordBatch) -> bool:
        return batch.delete_horizon is not None and batch.delete_horizon <= self._now

    def _without_records(self, batch: RecordBatch) -> Buffer:
        return emptied(batch) if self._is_needed(batch) else b""

    def _is_needed(self, batch: RecordBatch) -> bool:
        """Return whether a batch must stay even without records."""
        last = self._producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is not None:
            if last.last_offset >= 0 and batch.last_offset == last.last_offset:
                return True
            if last.last_offset < 0 and batch.control and batch.producer_epoch == last.epoch:
                return True
        return batch.next_offset in self._ends
