"""Retention: which segments are deleted, when the active one is rolled, and when a log is flushed."""

import itertools
from typing import Any

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.retention import (
    MAX_RELATIVE_OFFSET,
    SegmentState,
    deletable,
    is_full,
    jitter,
)
from ottla.codec.records import RecordBatch

NOW = 1_700_000_000_000
HOUR = 3600 * 1000


def a_log(*sizes: int, ages: tuple[int, ...] = ()) -> list[SegmentState]:
    """Segments of ten records each; the last is active. ``ages``: of their largest timestamps, in milliseconds."""
    return [
        SegmentState(10 * i, 10 * i + 10 if size else 10 * i, size, max_timestamp=NOW - age)
        for i, (size, age) in enumerate(itertools.zip_longest(sizes, ages, fillvalue=0))
    ]


def gone(log: list[SegmentState], *, start: int = 0, high_watermark: int = 10_000, **settings: Any) -> int:
    return deletable(log, LogSettings(**settings), start, high_watermark, NOW).segments


def test_a_segment_goes_when_its_largest_timestamp_is_older_than_the_retention() -> None:
    log = a_log(5, 5, 5, ages=(3 * HOUR, 2 * HOUR, HOUR))
    assert gone(log, retention_ms=2 * HOUR) == 1
    assert gone(log, retention_ms=2 * HOUR - 1) == 2


def test_an_old_segment_behind_a_younger_one_stays() -> None:
    assert gone(a_log(5, 5, 5, ages=(HOUR, 3 * HOUR, 0)), retention_ms=2 * HOUR) == 0


def test_an_active_segment_that_has_expired_goes_too() -> None:
    assert gone(a_log(5, 5, ages=(3 * HOUR, 3 * HOUR)), retention_ms=HOUR) == 2


def test_an_empty_active_segment_stays() -> None:
    assert gone(a_log(5, 0, ages=(3 * HOUR, 3 * HOUR)), retention_ms=HOUR) == 1
    assert gone(a_log(0, ages=(3 * HOUR,)), retention_ms=HOUR) == 0


def test_a_segment_without_timestamps_expires_by_when_it_was_written() -> None:
    log = [SegmentState(0, 10, 5, modified=NOW - 3 * HOUR), SegmentState(10, 10, 0)]
    assert gone(log, retention_ms=2 * HOUR) == 1
    assert gone(log, retention_ms=4 * HOUR) == 0


def test_timestamps_in_the_future_keep_a_segment() -> None:
    assert gone(a_log(5, 5, ages=(-HOUR, 0)), retention_ms=0) == 0


def test_a_log_is_never_made_smaller_than_its_retention() -> None:
    log = a_log(100, 100, 100, 50)
    assert gone(log, retention_ms=-1, retention_bytes=350) == 0
    assert gone(log, retention_ms=-1, retention_bytes=250) == 1
    assert gone(log, retention_ms=-1, retention_bytes=249) == 1
    assert gone(log, retention_ms=-1, retention_bytes=150) == 2
    assert gone(log, retention_ms=-1, retention_bytes=0) == 4


def test_without_limits_nothing_goes() -> None:
    assert gone(a_log(5, 5, ages=(10**12, 0)), retention_ms=-1, retention_bytes=-1) == 0


def test_what_lies_before_the_start_offset_goes_whatever_the_policy() -> None:
    log = a_log(5, 5, 5)
    for delete in (True, False):
        assert gone(log, start=19, delete=delete, retention_ms=-1) == 1
        assert gone(log, start=20, delete=delete, retention_ms=-1) == 2
        assert gone(log, start=30, delete=delete, retention_ms=-1) == 2


def test_a_topic_that_is_only_compacted_loses_nothing_by_age_or_size() -> None:
    assert gone(a_log(5, 5, ages=(10**12, 0)), delete=False, retention_ms=1, retention_bytes=0) == 0


def test_nothing_beyond_the_high_watermark_goes() -> None:
    log = a_log(5, 5, 5, ages=(HOUR, HOUR, HOUR))
    assert gone(log, high_watermark=19, retention_ms=1) == 1
    assert gone(log, high_watermark=20, retention_ms=1) == 2


def test_the_reason_names_the_configuration() -> None:
    log = a_log(5, 5, 5, ages=(3 * HOUR, HOUR, 0))
    told = {
        deletable(log, LogSettings(retention_ms=2 * HOUR), 0, 30, NOW).why,
        deletable(log, LogSettings(retention_bytes=5), 0, 30, NOW).why,
        deletable(log, LogSettings(), 10, 30, NOW).why,
        deletable(log, LogSettings(), 0, 30, NOW).why,
    }
    assert [each for each in sorted(told) if each] == [
        "before the start offset 10",
        "older than retention.ms = 7200000",
        "the log is larger than retention.bytes = 5",
    ]


ACTIVE = SegmentState(100, 150, 1000, index_size=80, first_timestamp=NOW, max_timestamp=NOW + 5)
ROLLING = LogSettings(segment_bytes=2000, segment_ms=HOUR, segment_index_bytes=160)


def full(active: SegmentState = ACTIVE, *, size: int = 100, last_offset: int = 150, timestamp: int = NOW) -> bool:
    batch = RecordBatch()
    batch.base_offset, batch.last_offset_delta = last_offset, 0
    batch.max_timestamp, batch.data = timestamp, memoryview(bytes(size))
    return is_full(active, ROLLING, "t-0", batch)


def test_a_batch_that_would_make_the_segment_too_large_begins_another() -> None:
    assert not full(size=1000)
    assert full(size=1001)


def test_a_segment_whose_index_is_full_is_rolled() -> None:
    assert not full(ACTIVE._replace(index_size=159))
    assert full(ACTIVE._replace(index_size=160))


def test_an_offset_that_does_not_fit_the_index_begins_a_segment() -> None:
    assert not full(last_offset=100 + MAX_RELATIVE_OFFSET)
    assert full(last_offset=101 + MAX_RELATIVE_OFFSET)


def test_a_segment_is_rolled_by_the_timestamps_of_its_batches() -> None:
    assert not full(timestamp=NOW + HOUR)
    assert full(timestamp=NOW + HOUR + 1)


def test_a_segment_that_begins_without_a_timestamp_is_not_rolled_by_time() -> None:
    untimed = ACTIVE._replace(first_timestamp=-1, max_timestamp=-1)
    assert not full(untimed, timestamp=NOW)


def test_an_empty_segment_is_not_rolled() -> None:
    assert not full(ACTIVE._replace(size=0), size=10**9, timestamp=NOW + 1000 * HOUR)


def test_jitter_spreads_the_rolls_of_partitions_that_began_together() -> None:
    settings = LogSettings(segment_ms=HOUR, segment_jitter_ms=HOUR // 2)
    waits = [jitter(settings, f"t-{i}", 0) for i in range(100)]
    assert all(0 <= wait < HOUR // 2 for wait in waits) and len(set(waits)) > 90
    assert waits == [jitter(settings, f"t-{i}", 0) for i in range(100)]
    assert jitter(LogSettings(segment_ms=HOUR), "t-0", 0) == 0
