"""Compaction: which records remain, in examples and in rules for every log."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.brokerlite.machines.partitions.compaction import (
    CleanedTransactions,
    Cleaner,
    LastBatch,
    OffsetMap,
    Round,
    grouped,
    next_round,
)
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.retention import MAX_RELATIVE_OFFSET, SegmentState
from ottla.codec.compression import Compression
from ottla.codec.records import BatchBuilder, Record, RecordBatch, parse_batch, rebased
from ottla.codec.stored.control import ABORT, COMMIT, ControlRecord, EndTxnMarker, build_control
from ottla.codec.stored.indexes import AbortedTxn

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000


class Log:
    """A partition's batches, in order."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.aborted: list[AbortedTxn] = []
        self.end = 0
        self._sequences: dict[int, int] = {}
        self._running: dict[int, int] = {}
        """Producer -> first offset of its transaction."""

    def write(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        producer: int = -1,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
    ) -> RecordBatch:
        builder = BatchBuilder()
        for key, value in pairs:
            builder.append(NOW + self.end + builder.count, key, value)
        sequence = self._sequences.get(producer, 0) if producer >= 0 else -1
        self._sequences[producer] = sequence + len(pairs)
        if transactional:
            self._running.setdefault(producer, self.end)
        data = builder.build(
            compression=compression,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self._add(data)

    def finish(self, producer: int, kind: int) -> RecordBatch:
        """Append the marker of a transaction."""
        builder = BatchBuilder()
        builder.append(NOW + self.end, *build_control(ControlRecord(kind, 0, EndTxnMarker(coordinator_epoch=0))))
        first = self._running.pop(producer, None)
        if kind == ABORT and first is not None:
            self.aborted.append(
                AbortedTxn(producer_id=producer, first_offset=first, last_offset=self.end, last_stable_offset=self.end)
            )
        data = builder.build(producer_id=producer, producer_epoch=0, transactional=True, control=True)
        return self._add(data)

    @property
    def running(self) -> list[int]:
        return list(self._running)

    def _add(self, data: bytes) -> RecordBatch:
        batch = parse_batch(rebased(data, self.end, 0))
        self.batches.append(batch)
        self.end = batch.next_offset
        return batch


def compact(
    log: Log,
    *,
    dirty_from: int = 0,
    producers: Mapping[int, LastBatch] | None = None,
    now: int = NOW,
    most: int = 1000,
    end: int | None = None,
    keep_last: bool = False,
) -> Log:
    """The log after a round; without ``keep_last`` the round may remove its last batch, too."""
    end = log.end if end is None else end
    offsets = OffsetMap(dirty_from, log.aborted, most)
    for batch in log.batches:
        if dirty_from < batch.next_offset <= end and not offsets.add(batch):
            break
    cleaner = Cleaner(
        offsets,
        aborted=log.aborted,
        producers=producers or {},
        ends=[end] if keep_last else [],
        now=now,
        delete_retention_ms=DAY,
    )
    left = Log()
    for batch in log.batches:
        data = cleaner.clean(batch) if batch.next_offset <= end else batch.data
        if data:
            left.batches.append(parse_batch(data))
            assert left.batches[-1].crc_matches
    assert not cleaner.unreadable
    left.aborted, left.end = cleaner.transactions.kept, log.end
    return left


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in records(log) if each is not None]


def records(log: Log) -> Iterator[Record]:
    for batch in log.batches:
        if not batch.control:
            yield from batch.records()


def offsets(log: Log) -> list[int]:
    return [record.offset for record in records(log)]


# -- records


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    log = Log()
    log.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.write((b"a", b"3"))
    assert pairs(compact(log)) == [(1, b"b", b"1"), (3, b"a", b"3")]


def test_long_keys_that_differ_in_their_last_byte_are_two_keys() -> None:
    log = Log()
    for last in b"ab", b"ab":
        log.write(*((b"k" * 100 + bytes((byte,)), b"v") for byte in last))
    assert offsets(compact(log)) == [2, 3]


def test_records_without_a_key_are_removed() -> None:
    log = Log()
    log.write((None, b"1"), (b"a", b"1"))
    assert offsets(compact(log)) == [1]


def test_what_lies_behind_the_end_of_the_map_stays() -> None:
    log = Log()
    log.write((b"a", b"1"))
    log.write((b"b", b"1"), (b"c", b"1"))
    log.write((b"a", b"2"))
    log.write((b"a", b"3"))
    assert offsets(compact(log, most=2)) == [0, 1, 2, 3, 4]
    assert offsets(compact(log, most=3)) == [1, 2, 4]


def test_a_batch_with_more_keys_than_the_map_holds_is_cleaned_too() -> None:
    log = Log()
    log.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    assert offsets(compact(log, most=1)) == [1, 2]


def test_the_clean_part_loses_keys_that_the_dirty_part_has_again() -> None:
    log = Log()
    log.write((b"a", b"1"), (b"b", b"1"))
    log.write((b"a", b"2"))
    assert offsets(compact(log, dirty_from=2)) == [1, 2]


def test_a_batch_that_is_not_changed_keeps_its_bytes() -> None:
    log = Log()
    batch = log.write((b"a", b"1"), (b"b", b"2"), compression=Compression.ZSTD)
    assert compact(log).batches[0].data == batch.data


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_that_loses_records_is_compressed_as_it_was(compression: Compression) -> None:
    log = Log()
    log.write((b"a", b"1"), (b"b", b"2"), compression=compression)
    log.write((b"a", b"2"))
    left = compact(log).batches[0]
    assert left.compression == compression and (left.base_offset, left.last_offset) == (0, 1)


def test_a_batch_that_cannot_be_read_stays_as_it_is() -> None:
    log = Log()
    log.write((b"a", b"1"))
    bad = bytearray(log.write((b"b", b"1")).data)
    bad[60] = 9  # more records than the batch has
    cleaner = Cleaner(OffsetMap(0), producers={}, ends=[], now=NOW, delete_retention_ms=DAY)
    damaged = parse_batch(bad)
    assert OffsetMap(0).add(damaged)
    assert cleaner.clean(damaged) == bytes(bad)
    assert list(cleaner.unreadable) == [1] and "records" in cleaner.unreadable[1]


# -- tombstones


def test_a_tombstone_stays_until_its_delete_horizon() -> None:
    log = Log()
    log.write((b"a", b"1"))
    log.write((b"a", None))
    once = compact(log)
    assert pairs(once) == [(1, b"a", None)] and once.batches[0].delete_horizon == NOW + DAY
    assert pairs(compact(once, now=NOW + DAY - 1)) == [(1, b"a", None)]
    assert pairs(compact(once, now=NOW + DAY)) == []


def test_a_delete_horizon_is_set_once() -> None:
    log = Log()
    log.write((b"a", None), (b"b", b"1"))
    once = compact(log)
    assert compact(once, now=NOW + 1000).batches[0].data == once.batches[0].data


def test_a_tombstone_goes_at_once_when_its_key_has_a_later_record() -> None:
    log = Log()
    log.write((b"a", None))
    log.write((b"a", b"1"))
    assert offsets(compact(log)) == [1]


def test_beside_a_tombstone_that_expired_a_value_stays() -> None:
    log = Log()
    log.write((b"a", None), (b"b", b"1"))
    late = compact(compact(log), now=NOW + DAY)
    assert pairs(late) == [(1, b"b", b"1")] and late.batches[0].delete_horizon == NOW + DAY


# -- producers, and the end of a round


def test_the_last_batch_of_an_active_producer_stays_without_records() -> None:
    log = Log()
    log.write((b"a", b"1"), (b"a", b"2"), producer=7)
    log.write((b"a", b"3"))
    left = compact(log, producers={7: LastBatch(1, 0)})
    assert offsets(left) == [2]
    kept = left.batches[0]
    assert (kept.count, kept.producer_id, kept.last_sequence, kept.last_offset) == (0, 7, 1, 1)
    assert compact(left, producers={7: LastBatch(1, 0)}).batches[0].data == kept.data
    assert len(compact(left).batches) == 1


def test_the_last_batch_of_a_segment_stays_without_records() -> None:
    log = Log()
    log.write((b"a", b"1"))
    log.write((b"a", None))
    late = compact(compact(log), now=NOW + DAY, keep_last=True)
    assert [(batch.base_offset, batch.count) for batch in late.batches] == [(1, 0)]


def test_the_last_marker_of_a_producer_without_data_stays_for_its_epoch() -> None:
    log = Log()
    log.write((b"a", b"1"), producer=7, transactional=True)
    log.finish(7, ABORT)
    for now in (NOW, NOW, NOW + DAY, NOW + 2 * DAY):
        log = compact(log, now=now, producers={7: LastBatch(-1, 0)})
    assert [(batch.control, batch.count) for batch in log.batches] == [(True, 0)]
    assert compact(log, now=NOW + 3 * DAY).batches == []


# -- transactions


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_goes_a_day_after_the_round_that_met_no_data(kind: int) -> None:
    log = Log()
    log.write((b"a", b"1"), producer=7, transactional=True)
    marker = log.finish(7, kind)
    log.write((b"a", b"2"))
    once = compact(log)
    assert offsets(once) == [2] and once.batches[0].data == marker.data
    twice = compact(once)
    assert twice.batches[0].delete_horizon == NOW + DAY
    assert compact(twice, now=NOW + DAY - 1).batches[0].data == twice.batches[0].data
    assert len(compact(twice, now=NOW + DAY).batches) == 1


def test_an_aborted_record_does_not_take_the_place_of_an_older_one() -> None:
    log = Log()
    log.write((b"a", b"1"))
    log.write((b"a", b"2"), producer=7, transactional=True)
    log.finish(7, ABORT)
    assert pairs(compact(log)) == [(0, b"a", b"1")]


def test_transactions_of_two_producers_may_overlap() -> None:
    log = Log()
    log.write((b"a", b"1"), producer=7, transactional=True)
    log.write((b"b", b"1"), producer=8, transactional=True)
    log.finish(7, ABORT)
    log.write((b"c", b"1"), producer=7, transactional=True)
    log.finish(8, COMMIT)
    log.finish(7, COMMIT)
    assert pairs(compact(log)) == [(1, b"b", b"1"), (3, b"c", b"1")]


def test_an_abort_whose_marker_is_lost_ends_where_the_marker_was() -> None:
    log = Log()
    log.write((b"a", b"1"), producer=7, transactional=True)
    log.finish(7, ABORT)
    log.write((b"b", b"1"), producer=7, transactional=True)
    del log.batches[1]
    assert offsets(compact(log)) == [2]


def test_an_index_over_what_is_left_has_the_aborted_transactions_whose_data_were_met() -> None:
    log = Log()
    log.write((b"a", b"1"), producer=7, transactional=True)
    log.finish(7, ABORT)
    once = compact(log)
    assert once.aborted == log.aborted
    assert compact(once).aborted == []


def test_control_batches_of_another_kind_stay() -> None:
    builder = BatchBuilder()
    builder.append(NOW, b"\0\0\0\x63", b"\0\0\0\0\0\0")
    batch = parse_batch(builder.build(producer_id=7, producer_epoch=0, control=True))
    assert not CleanedTransactions().over(batch)


# -- which logs are cleaned, and when


def segments(*sizes: int, size: int = 10, **fields: int) -> list[SegmentState]:
    """Segments of ten offsets each; the last is the active one."""
    return [
        SegmentState(size * i, size * (i + 1), each, first_timestamp=NOW - 1000, max_timestamp=NOW - 1000, **fields)
        for i, each in enumerate(sizes)
    ]


def due(
    log: list[SegmentState], *, up_to: int = -1, start: int = 0, stable: int = 10_000, **settings: Any
) -> Round | None:
    known = LogSettings(compacted=True, **settings)
    return next_round(log, known, cleaned_up_to=up_to, start_offset=start, last_stable_offset=stable, now=NOW)


def test_a_log_is_cleaned_up_to_its_active_segment() -> None:
    assert due(segments(5, 5, 5)) == Round(0, 20, 1.0)
    assert due(segments(5)) is None


def test_a_log_is_cleaned_once_enough_of_it_is_dirty() -> None:
    assert due(segments(5, 5, 1), up_to=10) is None
    assert due(segments(5, 6, 1), up_to=10) == Round(10, 20, 6 / 11)
    assert due(segments(5, 5, 1), up_to=10, min_cleanable_dirty_ratio=0.4) == Round(10, 20, 0.5)
    assert due(segments(5, 5, 1), up_to=20, min_cleanable_dirty_ratio=0.0) is None


def test_records_from_the_last_stable_offset_on_are_not_cleaned() -> None:
    assert due(segments(5, 5, 5), stable=19) == Round(0, 10, 1.0)
    assert due(segments(5, 5, 5), stable=9) is None


def test_records_younger_than_the_least_lag_are_not_cleaned() -> None:
    log = segments(5, 5, 5, 5)
    log[1] = log[1]._replace(max_timestamp=NOW - 999)
    assert due(log, min_compaction_lag_ms=1000) == Round(0, 10, 1.0)
    assert due(log, min_compaction_lag_ms=999) == Round(0, 30, 1.0)


def test_a_log_that_has_waited_for_the_longest_lag_is_cleaned_however_little_is_dirty() -> None:
    assert due(segments(50, 1, 1), up_to=10, max_compaction_lag_ms=1000) is None
    assert due(segments(50, 1, 1), up_to=10, max_compaction_lag_ms=999) == Round(10, 20, 1 / 51)


def test_a_checkpoint_outside_of_the_log_is_not_believed() -> None:
    assert due(segments(5, 5, 5), up_to=31) == Round(0, 20, 1.0)
    assert due(segments(5, 5, 5)[1:], up_to=5, start=10) == Round(10, 20, 1.0)


def test_neighbours_are_cleaned_into_one_segment_that_is_no_larger_than_it_may_be() -> None:
    log = segments(40, 40, 40, 90, 0, 10, index_size=1)
    sizes = [[each.size for each in group] for group in grouped(log, 100, 100)]
    assert sizes == [[40, 40], [40], [90, 0, 10]]
    assert [len(group) for group in grouped(log, 1000, 2)] == [2, 2, 2]


def test_a_cleaned_segment_has_no_offset_that_its_index_cannot_hold() -> None:
    log = [
        SegmentState(0, 10, 1),
        SegmentState(10, MAX_RELATIVE_OFFSET + 1, 1),
        SegmentState(MAX_RELATIVE_OFFSET + 1, MAX_RELATIVE_OFFSET + 2, 1),
    ]
    assert [len(group) for group in grouped(log, 1000, 1000)] == [2, 1]


# -- rules for every log

keys = st.sampled_from([b"a", b"b", b"c", b"a key that is hashed because it is long"])
values = st.none() | st.binary(max_size=3)
steps: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.tuples(st.just("plain"), st.lists(st.tuples(keys, values), min_size=1, max_size=3)),
    st.tuples(st.sampled_from([7, 8]), st.lists(st.tuples(keys, values), min_size=1, max_size=3)),
    st.tuples(st.just("commit"), st.sampled_from([7, 8])),
    st.tuples(st.just("abort"), st.sampled_from([7, 8])),
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    for kind, what in draw(st.lists(steps, max_size=12)):
        match kind:
            case "plain":
                log.write(*what, compression=draw(st.sampled_from(Compression)))
            case 7 | 8:
                log.write(*what, producer=kind, transactional=True)
            case _ if what in log.running:
                log.finish(what, COMMIT if kind == "commit" else ABORT)
    for producer in log.running:
        log.finish(producer, draw(st.sampled_from([COMMIT, ABORT])))
    return log


def committed(log: Log, start: int = 0) -> list[Record]:
    """The records that a read_committed reader gets."""
    return [
        record
        for batch in log.batches
        if not batch.control
        for record in batch.records()
        if record.offset >= start
        and not any(
            batch.transactional and each.producer_id == batch.producer_id
            and each.first_offset <= record.offset < each.last_offset
            for each in log.aborted
        )
    ]  # fmt: skip


def table(seen: Iterable[Record]) -> dict[bytes | None, bytes]:
    """The table that a reader has built from the records."""
    result: dict[bytes | None, bytes] = {}
    for record in seen:
        if record.value is None:
            result.pop(record.key, None)
        else:
            result[record.key] = record.value
    return result


@given(logs(), st.integers(1, 5))
def test_every_key_keeps_its_last_record(log: Log, most: int) -> None:
    left = compact(log, most=most)
    last = {record.key: record for record in committed(log)}
    kept = committed(left)
    assert all(record in kept for record in last.values())
    assert all(record in committed(log) for record in kept)


@given(logs())
def test_a_full_round_leaves_one_record_of_each_key(log: Log) -> None:
    assert committed(compact(log)) == sorted({r.key: r for r in committed(log)}.values(), key=lambda r: r.offset)


@given(logs(), st.integers(0, 30), st.integers(1, 5), st.sampled_from([NOW, NOW + 2 * DAY]))
def test_records_behind_the_cleanable_end_are_unchanged(log: Log, near: int, most: int, now: int) -> None:
    ends = [0, *(batch.next_offset for batch in log.batches)]
    end = max(each for each in ends if each <= near)
    left = compact(log, end=end, most=most, now=now)
    assert [b.data for b in left.batches if b.base_offset >= end] == [
        b.data for b in log.batches if b.base_offset >= end
    ]


@given(logs())
def test_more_rounds_do_not_change_the_clean_part(log: Log) -> None:
    twice = compact(compact(log))  # the second round sets the horizons of markers whose data the first has removed
    assert [batch.data for batch in compact(twice).batches] == [batch.data for batch in twice.batches]


@given(logs(), st.integers(1, 5), st.integers(0, 30))
def test_a_reader_that_is_overtaken_by_a_round_ends_with_the_same_table(log: Log, most: int, offset: int) -> None:
    left = compact(log, most=most)
    seen = [record for record in committed(log) if record.offset < offset] + committed(left, offset)
    assert [record.offset for record in seen] == sorted({record.offset for record in seen})
    assert table(seen) == table(committed(log))


@given(logs(), st.integers(0, 30))
def test_a_reader_within_the_delete_retention_misses_no_tombstone(log: Log, offset: int) -> None:
    once = compact(log)
    later = compact(once, now=NOW + DAY - 1)
    seen = [record for record in committed(log) if record.offset < offset] + committed(later, offset)
    assert table(seen) == table(committed(log))


@given(logs())
def test_in_the_end_only_the_table_is_left(log: Log) -> None:
    for days in range(4):
        log_before, log = log, compact(log, now=NOW + days * DAY)
        assert table(committed(log)) == table(committed(log_before))
    assert {record.key: record.value for record in committed(log)} == table(committed(log))
