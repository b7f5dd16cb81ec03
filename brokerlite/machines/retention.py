"""When a log's segments begin, and when they go.

Rules:
- Segments go from the oldest on: those behind the log's start offset; where `cleanup.policy` has ``delete``, the log as
  long as it stays at least `retention.bytes` large without them, and those whose largest timestamp is older than
  `retention.ms`. Nothing at or beyond the high watermark goes.
- The active segment goes too when it is its turn: then another is begun first. An empty one stays.
- A segment's time is the largest timestamp of its records; where none has one, when it was last written to. One that
  has lost all of its records has no time and no size: it goes with the next that goes, so that readers learn of it.
- An active segment is rolled before a batch that would make it, or its index, too large, that is too far from its first
  offset, or that is `segment.ms` younger than its first batch: by the timestamps of the two, so that a backfill makes
  the segments that it would have made at its time. A segment that begins without a timestamp is not rolled by time.

Times are milliseconds since 1970, sizes bytes.

Source: UnifiedLog.java (deletableSegments, deleteOldSegments, maybeRoll), LogSegment.java (shouldRoll,
timeWaitedForRoll), LogConfig.java.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

from ottla.brokerlite.machines.configs import LogSettings
from ottla.codec.records import RecordBatch

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Indexes hold offsets relative to the segment's first, in 32 bits."""


class ActiveSegment(Protocol):
    """What decides whether a segment is full; as in `SegmentState`."""

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
    """What decisions about a segment need."""

    base_offset: int
    end_offset: int
    """Where the next segment begins, or of the active one where the log ends."""
    size: int
    """Bytes of its log file."""
    index_size: int = 0
    """Bytes of its larger index."""
    first_timestamp: int = -1
    """The largest of its first batch; -1: it has none."""
    max_timestamp: int = -1
    """The largest of all; -1: no record has one."""
    modified: int = 0
    """When it was last written to."""

    @property
    def time(self) -> int:
        """By which it expires."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified


class Deletion(NamedTuple):
    """Segments that go."""

    segments: int = 0
    """How many, from the oldest on. If all, another is begun first."""
    why: str = ""
    """For the log."""


def deletable(
    segments: Sequence[SegmentState], settings: LogSettings, start_offset: int, high_watermark: int, now: int
) -> Deletion:
    """Which of ``segments`` go now."""
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
    """Whether the active segment is rolled before a batch.

    Args:
        name: of the partition; the jitter depends on it, so that partitions that began together do not roll together.
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
    """How much earlier than `segment.ms` a segment is rolled: for each of them another part of `segment.jitter.ms`."""
    most = min(settings.segment_jitter_ms, settings.segment_ms)
    return crc32(f"{name} {base_offset}".encode()) % most if most > 0 else 0
