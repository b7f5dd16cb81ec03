"""Decides when a log's active segment is rolled, and when segments are deleted.

Rules:
- Segments are deleted from the oldest on: segments before the log's start offset; and, if `cleanup.policy` has
  ``delete``, segments without which the log is still at least `retention.bytes` large, and segments whose largest
  timestamp is older than `retention.ms`. Nothing at or after the high watermark is deleted.
- The active segment may be deleted, too; a new one is begun first. An empty active segment stays.
- The time of a segment is the largest timestamp of its records, or if no record has one, its last modification. A
  segment that has lost all of its records has no time and no size: it is deleted together with a later segment, so that
  readers learn of the loss.
- The active segment is rolled before a batch that would make it or its index too large, that is too far from its first
  offset, or that is `segment.ms` younger than its first batch. Their timestamps are compared, so a backfill makes the
  segments that it would have made at its time. A segment that begins without a timestamp is not rolled by time.

Times are milliseconds since 1970, sizes bytes.

Source: UnifiedLog.java (deletableSegments, deleteOldSegments, maybeRoll), LogSegment.java (shouldRoll,
timeWaitedForRoll), LogConfig.java.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.codec.records import RecordBatch

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Indexes store offsets relative to the segment's base offset, in 32 bits."""


class ActiveSegment(Protocol):
    """The state that decides whether the active segment is full; attributes as in `SegmentState`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def index_size(self) -> int: ...
    @property
    def first_timestamp(self) -> int: ...


class SegmentState(NamedTuple):
    """The state of a segment that decides about its deletion and compaction."""

    base_offset: int
    end_offset: int
    """Where the next segment begins; for the active segment, where the log ends."""
    size: int
    """Bytes of its log file."""
    index_size: int = 0
    """Bytes of its larger index."""
    first_timestamp: int = -1
    """The largest timestamp of its first batch; -1 for none."""
    max_timestamp: int = -1
    """The largest timestamp of its records; -1 for none."""
    modified: int = 0
    """When it was last written to."""

    @property
    def time(self) -> int:
        """The time from which its retention counts."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified


class Deletion(NamedTuple):
    """Segments to delete."""

    segments: int = 0
    """Their number, from the oldest on. If it is all segments, a new one must be begun first."""
    why: str = ""
    """The reason, as logged."""


def deletable(
    segments: Sequence[SegmentState], settings: LogSettings, start_offset: int, high_watermark: int, now: int
) -> Deletion:
    """Return how many of ``segments`` are to be deleted now."""
    behind = sum(segment.end_offset <= start_offset for segment in segments[:-1])
    if not settings.delete:
        return Deletion(behind, f"before the start offset {start_offset}" if behind else "")
    candidates = [
        each for each in segments if each.end_offset <= high_watermark and (each.size or each is not segments[-1])
    ]
    by_size = _beyond_size(segments, candidates, settings.retention_bytes)
    by_time = _beyond_time(candidates, settings.retention_ms, now)
    reasons = (
        Deletion(behind, f"before the start offset {start_offset}"),
        Deletion(by_size, f"the log is larger than retention.bytes = {settings.retention_bytes}"),
        Deletion(by_time, f"older than retention.ms = {settings.retention_ms}"),
    )
    most = max(reasons, key=lambda each: each.segments)
    return most if most.segments else Deletion()


def _beyond_size(segments: Sequence[SegmentState], candidates: list[SegmentState], limit: int) -> int:
    excess = sum(segment.size for segment in segments) - limit
    if limit < 0 or excess < 0:
        return 0
    count = 0
    for i, segment in enumerate(candidates, 1):
        excess -= segment.size
        if excess < 0:
            break
        if segment.size:
            count = i
    return count


def _beyond_time(candidates: list[SegmentState], limit: int, now: int) -> int:
    if limit < 0:
        return 0
    count = 0
    for i, segment in enumerate(candidates, 1):
        if segment.size:
            if now - segment.time <= limit:
                break
            count = i
    return count


def is_full(active: ActiveSegment, settings: LogSettings, name: str, batch: RecordBatch) -> bool:
    """Return whether the active segment must be rolled before a batch.

    Args:
        name: the partition's name; the jitter depends on it, so partitions that began together do not roll together.
    """
    if (size := active.size) == 0:
        return False
    waited = batch.max_timestamp - active.first_timestamp if active.first_timestamp >= 0 else 0
    return (
        size > settings.segment_bytes - len(batch.data)
        or active.index_size >= settings.segment_index_bytes
        or batch.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        or waited > settings.segment_ms - jitter(settings, name, active.base_offset)
    )


def jitter(settings: LogSettings, name: str, base_offset: int) -> int:
    """Return how much before `segment.ms` a segment is rolled: a different part of `segment.jitter.ms` for each."""
    most = min(settings.segment_jitter_ms, settings.segment_ms)
    return crc32(f"{name} {base_offset}".encode()) % most if most > 0 else 0
