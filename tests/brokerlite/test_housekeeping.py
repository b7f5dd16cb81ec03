"""Housekeeping: retention, compaction and flushes, on a disk that is killed, full or damaged meanwhile."""

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ottla.brokerlite.machines.partitions.compaction import LastBatch, next_round
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.storage.folder_checkpoints import CLEANER_OFFSETS
from ottla.codec.records import BatchBuilder, Record, read_batches
from ottla.errors import KafkaStorageError, OffsetOutOfRange
from tests.brokerlite.machine import (
    TODAY,
    Machine,
    a_batch,
    fetching,
    idempotent,
    producing,
    store,
    values_of,
    work_off,
)
from tests.brokerlite.model_disk import Killed, ModelDisk
from tests.brokerlite.test_storage import OnePartition

DAY = 24 * 3600
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}


def keyed(*pairs: tuple[bytes, bytes | None], **build: Any) -> bytes:
    builder = BatchBuilder()
    for key, value in pairs:
        builder.append(TODAY, key, value)
    return builder.build(**build)


def read_all(log: PartitionLog, offset: int | None = None) -> list[Record]:
    """Every record from an offset on, as a consumer reads them: each fetch starts after the last batch."""
    records: list[Record] = []
    position = log.start_offset if offset is None else offset
    while position < log.end_offset:
        data = bytes(log.read(position, 300, at_least_one=True))
        if not data:
            break
        for batch in read_batches(data):
            records += [each for each in batch.records() if each.offset >= position]
            position = batch.next_offset
    return records


def table(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """The table that a reader builds from keyed records."""
    result: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            result.pop(record.key, None)
        else:
            result[record.key] = record.value
    return result


def segments_of(machine: Machine, topic: str = "t") -> list[int]:
    return [state.base_offset for state in machine.log(topic).segments.states()]


# -- retention


def with_topic(tmp_path: Path, common: Mapping[str, str] = MappingProxyType({}), **configs: str) -> Machine:
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 1, {**common, **{key.replace("_", "."): value for key, value in configs.items()}})
    return machine


def test_records_older_than_the_retention_are_gone_after_the_next_check(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, retention_ms="3600000", segment_bytes="1024")
    machine.produce(*(a_batch(b"x" * 400, timestamp=TODAY - 7200_000) for _ in range(5)), a_batch(b"young"))
    machine.pass_time(299)
    assert machine.log().start_offset == 0
    machine.pass_time(2)
    assert machine.log().start_offset == 4, "the segment with the young record stays"
    with pytest.raises(OffsetOutOfRange):
        machine.log().read(0, 1000)
    machine.pass_time(2 * 3600)
    assert (machine.log().start_offset, machine.log().end_offset) == (6, 6), "the active segment was rolled, and went"
    assert values_of(bytes(machine.log().read(6, 1000))) == []
    again = machine.restart()
    assert (again.log().start_offset, again.log().end_offset) == (6, 6)


def test_a_log_is_kept_within_its_size(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, retention_bytes="2000", segment_bytes="1024", retention_ms="-1")
    machine.produce(*(a_batch(b"x" * 400) for _ in range(20)))
    machine.pass_time(301)
    sizes = [state.size for state in machine.log().segments.states()]
    assert sum(sizes) >= 2000 > sum(sizes[1:]) and machine.log().end_offset == 20
    assert sorted(path.name for path in (tmp_path / "data" / "t-0").glob("*.log")) == [
        f"{base:020}.log" for base in segments_of(machine)
    ]


def test_what_expires_while_the_machine_sleeps_goes_at_the_next_check_and_nothing_waits_shorter(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, retention_ms="3600000", segment_bytes="1024")
    machine.produce(*(a_batch(b"x" * 400) for _ in range(5)))
    due = machine.core.deadline
    machine.core.clock.asleep += 7200
    machine.pass_time(1)
    assert machine.core.deadline == due and machine.log().start_offset == 0
    machine.pass_time(300)
    assert machine.log().start_offset == 5


@pytest.mark.parametrize(
    ("at_start", "now", "gone"),
    [(0, 0, 5), (30, 30, 5), (30, 0, 5), (0, 30, 5), (-30, -30, 0), (0, -30, 0), (-30, 0, 0)],
)
@pytest.mark.parametrize("old", [True, False])
def test_records_expire_when_the_clock_at_the_start_and_the_one_now_say_so(
    tmp_path: Path, old: bool, at_start: int, now: int, gone: int
) -> None:
    """The system's clock is days ahead or behind, at the start or now; the records' timestamps are right."""
    machine = with_topic(tmp_path, retention_ms=str(3600_000), segment_bytes="1024")
    machine.core.clock.epoch += at_start * DAY * 1000
    written = TODAY - (2 * 3600_000 if old else 0)
    machine.produce(*(a_batch(b"x" * 400, timestamp=written) for _ in range(5)))
    machine.core.clock.compare(machine.now, TODAY + now * DAY * 1000)
    machine.pass_time(301)
    wrong = at_start == now == 30  # then the clocks agree, and the error cannot be noticed
    assert machine.log().start_offset == (gone if old or wrong else 0)


def test_records_expire_once_a_clock_that_was_set_back_is_right_again(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, retention_ms=str(3600_000), segment_bytes="1024")
    machine.produce(*(a_batch(b"x" * 400, timestamp=TODAY - 2 * 3600_000) for _ in range(5)))
    machine.core.clock.compare(machine.now, TODAY - DAY * 1000)
    machine.pass_time(301)
    assert machine.log().start_offset == 0
    machine.core.clock.compare(machine.now, TODAY + 301_000)
    machine.pass_time(300)
    assert machine.log().start_offset == 5


def test_many_partitions_are_looked_at_in_several_goes(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", disk=ModelDisk())
    machine.core.create_topic("t", 1200, {"retention.ms": "1000"})
    for partition in (0, 700, 1199):
        machine.produce(a_batch(timestamp=TODAY - 5000), partition=partition)
    machine.now += 300
    polls = 0
    while machine.log(partition=1199).start_offset == 0:
        machine.poll()
        machine.now += 0.005
        polls += 1
    assert [machine.log(partition=each).start_offset for each in (0, 700, 1199)] == [1, 1, 1]
    assert polls == 3


def test_producers_are_forgotten_a_day_after_their_last_batch_by_the_brokers_clock(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, retention_ms="-1")
    machine.produce(a_batch(timestamp=5, producer_id=7, producer_epoch=0, base_sequence=0))
    machine.pass_time(DAY - 600)
    assert list(machine.log().producers.entries) == [7], "although its records are old"
    machine.pass_time(1200)
    assert list(machine.log().producers.entries) == []


# -- compaction


def fill(machine: Machine, topic: str = "t", rounds: int = 30) -> None:
    for i in range(rounds):
        machine.produce(keyed((b"a", b"%d" % i * 20), (b"b%d" % (i % 3), b"%d" % i)), topic=topic)


def test_a_compacted_topic_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED)
    fill(machine)
    before = read_all(machine.log())
    active = machine.log().segments.states()[-1].base_offset
    machine.pass_time(16)
    after = read_all(machine.log())
    assert table(after) == table(before) and set(after) < set(before)
    cleaned = [record for record in after if record.offset < active]
    assert len({record.key for record in cleaned}) == len(cleaned) == 4
    names = sorted(path.name for path in (tmp_path / "data" / "t-0").iterdir())
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    for clean in (True, False):
        machine = machine.restart(clean=clean)
        assert read_all(machine.log()) == after


def test_how_far_a_log_is_cleaned_is_known_after_a_restart(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED)
    fill(machine)
    machine.pass_time(16)
    cleaned_up_to = machine.log().segments.cleaned_up_to
    assert cleaned_up_to == machine.log().segments.states()[-1].base_offset > 0
    assert f"t 0 {cleaned_up_to}" in (tmp_path / "data" / CLEANER_OFFSETS).read_text().splitlines()
    assert machine.restart().log().segments.cleaned_up_to == cleaned_up_to


def test_the_dirtiest_log_is_compacted_first_and_then_the_next(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data")
    for topic, rounds in (("small", 20), ("large", 40)):
        machine.core.create_topic(topic, 1, COMPACTED)
        fill(machine, topic, rounds)
    machine.core.create_topic("plain", 1, {"segment.bytes": "1024"})
    fill(machine, "plain")
    machine.now += 15
    machine.core.poll(machine.now)
    (job,) = machine.core.jobs()
    assert machine.core.jobs() == [], "only one job at a time"
    work_off(job)
    done = [topic for topic in ("small", "large") if machine.log(topic).segments.cleaned_up_to > 0]
    assert len(done) == 1
    machine.poll()
    assert all(machine.log(topic).segments.cleaned_up_to > 0 for topic in ("small", "large"))
    assert machine.log("plain").segments.cleaned_up_to == -1


@pytest.mark.slow
def test_an_internal_topic_is_compacted_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data")
    log = machine.core.offsets_log
    for i in range(27_000):
        log.write([(b"key %d" % (i % 10), b"x" * 150)])
    assert len(segments_of(machine, log.name)) > 1
    machine.pass_time(16)
    assert machine.log(log.name).segments.states()[0].size < 4096


def test_compaction_and_retention_may_be_combined(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED, cleanup_policy="compact,delete", retention_ms="60000")
    fill(machine)
    machine.pass_time(16)
    assert machine.log().segments.cleaned_up_to > 0
    machine.pass_time(300)
    assert machine.log().start_offset == machine.log().end_offset == 60


def test_a_tombstone_is_gone_a_day_after_it_was_first_cleaned(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED)
    machine.produce(keyed((b"gone", b"1")), keyed((b"gone", None)))
    fill(machine)
    machine.pass_time(16)
    kept = [record.value for record in read_all(machine.log()) if record.key == b"gone"]
    assert kept == [None]
    machine.pass_time(DAY)
    fill(machine)  # otherwise the log is not dirty
    machine.pass_time(16)
    assert [record for record in read_all(machine.log()) if record.key == b"gone"] == []


def test_a_producer_may_go_on_after_its_batches_were_compacted_and_the_broker_killed(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED)
    machine.produce(*(idempotent(sequence) for sequence in range(3)))
    fill(machine)
    machine.produce(keyed((b"k", b"newer")))
    fill(machine)
    machine.pass_time(16)
    assert 7 in machine.log().producers.entries
    for clean in (False, True):
        machine = machine.restart(clean=clean)
        end = machine.log().end_offset
        machine.produce(idempotent(2))
        assert machine.log().end_offset == end, "a repeat, which is recognised"
    machine.produce(idempotent(3))
    assert machine.log().end_offset == end + 1


# -- in pieces, with a disk


SETTINGS = LogSettings(compacted=True, segment_bytes=600)


def dirty_log(disk: ModelDisk, settings: LogSettings = SETTINGS) -> OnePartition:
    """A synced partition with segments to compact, which are below the maximum size."""
    one = OnePartition(Path("/t-0"), settings=LogSettings(segment_bytes=300), disk=disk)
    for i in range(16):
        one.append(keyed((b"a", b"%d" % i * 10), (b"b%d" % (i % 3), b"%d" % i)))
    one.append(keyed((b"a", None)))
    return synced(one, settings)


def transactional_log(disk: ModelDisk) -> OnePartition:
    """The same with overlapping transactions of two producers; every third one is aborted."""
    one = OnePartition(Path("/t-0"), settings=LogSettings(segment_bytes=300), disk=disk)
    sequences = {7: 0, 8: 0}
    for i in range(5):
        for producer in sequences:
            pair = (b"%d" % (i % 2), b"%d of %d" % (i, producer))
            of = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            one.append(keyed(pair, transactional=True, **of))
            sequences[producer] += 1
        for producer in sequences:
            commit = (i + producer) % 3 != 0
            one.log.end_transaction(producer, 0, commit=commit, coordinator_epoch=0, timestamp=TODAY)
    return synced(one, SETTINGS)


def synced(one: OnePartition, settings: LogSettings) -> OnePartition:
    one.segments.begin_flush()()
    one.disk.sync_folder(one.folder.parent)
    one.settings = settings
    assert len(one.segments.states()) > 4
    return one


def committed(log: PartitionLog) -> list[Record]:
    """The records that a read_committed reader gets: it drops the transactions in the index of aborted ones."""
    aborted = log.segments.aborted(log.start_offset, log.end_offset)
    return [
        record
        for batch in log.batches()
        if not batch.control
        for record in batch.records()
        if not any(
            each.producer_id == batch.producer_id and each.first_offset <= record.offset < each.last_offset
            for each in aborted
        )
    ]


def job_of(one: OnePartition) -> Any:
    due = next_round(
        one.segments.states(), one.settings, cleaned_up_to=-1, start_offset=0, last_stable_offset=10_000, now=TODAY
    )
    assert due is not None
    return one.segments.compact(due, one.settings, dict[int, LastBatch](), TODAY)


def test_readers_see_a_legal_log_between_any_two_steps() -> None:
    one = dirty_log(ModelDisk())
    before, job = read_all(one.log), job_of(one).job()
    steps = 0
    while True:
        for start in range(0, one.log.end_offset, 3):
            seen = [record for record in before if record.offset < start] + read_all(one.log, start)
            assert table(seen) == table(before)
            assert [record.offset for record in seen] == sorted({record.offset for record in seen})
        if (work := next(job, None)) is None:
            break
        work()
        steps += 1
    assert steps > 4 and len(read_all(one.log)) < len(before)


@pytest.mark.parametrize("make", [dirty_log, transactional_log])
@pytest.mark.parametrize(
    ("end", "ordered", "seeds"),
    [
        pytest.param(ModelDisk.crash, True, 1, marks=pytest.mark.deep),
        (ModelDisk.power_cut, True, 1),
        pytest.param(ModelDisk.power_cut, False, 2, marks=pytest.mark.deep),
    ],
)
def test_a_kill_at_any_moment_of_a_compaction_harms_nothing(
    make: Callable[[ModelDisk], OnePartition], end: Callable[[ModelDisk], None], ordered: bool, seeds: int
) -> None:
    disk = ModelDisk()
    one = make(disk)
    before, end_offset, first = committed(one.log), one.log.end_offset, disk.operations
    work_off(job_of(one).job())
    after, operations = committed(one.log), disk.operations - first
    assert table(after) == table(before) and set(after) < set(before) and operations > 20
    for moment, seed in itertools.product(range(1, operations + 1), range(seeds)):
        disk = ModelDisk(random.Random(seed), ordered=ordered)
        one = make(disk)
        disk.kill_at = disk.operations + moment
        with pytest.raises(Killed):
            work_off(job_of(one).job())
        end(disk)
        one.reopen(recovery_point=end_offset)
        found = committed(one.log)
        assert table(found) == table(before), (moment, seed)
        assert one.log.end_offset == end_offset and set(after) <= set(found) <= set(before)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        names = disk.names(one.folder)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        work_off(job_of(one).job())
        assert committed(one.log) == after


@pytest.mark.parametrize("seed", range(10))
def test_an_index_of_aborted_transactions_that_is_lost_is_made_again_as_it_was(seed: int) -> None:
    rng, sequences, running = random.Random(seed), dict.fromkeys((7, 8, 9), 0), set[int]()
    one = OnePartition(Path("/t-0"), settings=LogSettings(segment_bytes=400), disk=ModelDisk())
    for _ in range(40):
        producer = rng.choice(list(sequences))
        if producer in running and rng.random() < 0.4:
            commit = rng.random() < 0.3
            one.log.end_transaction(producer, 0, commit=commit, coordinator_epoch=0, timestamp=TODAY)
            running.discard(producer)
            continue
        of = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
        one.append(keyed((b"k", b"v"), transactional=True, **of))
        sequences[producer] += 1
        running.add(producer)
    before, end = one.log.segments.aborted(0, one.log.end_offset), one.log.end_offset
    assert before
    for name in (*one.files(".txnindex"), *one.files(".aborted")):
        one.disk.unlink(one.folder / name)
    for name in (*one.files(".index"), *one.files(".timeindex")):
        one.disk.unlink(one.folder / name)
    one.reopen()
    assert one.log.segments.aborted(0, end) == before
    assert [one.log.segments.aborted(start, end) for start in range(end)] == [
        [each for each in before if each.last_offset >= start] for start in range(end)
    ]


def test_a_compacted_segment_has_an_index_of_the_aborted_transactions_of_which_something_is_left() -> None:
    one = transactional_log(ModelDisk())
    before = one.log.segments.aborted(0, one.log.end_offset)
    work_off(job_of(one).job())
    after = one.log.segments.aborted(0, one.log.end_offset)
    assert after == before, "this round removed their data"
    for _ in range(3):  # the next round notices that a transaction has no data left
        work_off(job_of(one).job())
    left = one.log.segments.aborted(0, one.log.end_offset)
    places = {(batch.producer_id, batch.base_offset) for batch in one.log.batches() if not batch.control}
    for each in before:
        is_left = any((each.producer_id, at) in places for at in range(each.first_offset, each.last_offset))
        assert (each in left) == is_left
    assert len(left) < len(before)
    one.reopen(recovery_point=one.log.end_offset)
    assert one.log.segments.aborted(0, one.log.end_offset) == left


def test_a_full_disk_ends_a_compaction_and_leaves_the_log_as_it_was() -> None:
    disk = ModelDisk()
    one = dirty_log(disk)
    before, names = read_all(one.log), sorted(disk.names(one.folder))
    disk.room = 10
    with pytest.raises(OSError):
        work_off(job_of(one).job())
    assert read_all(one.log) == before and sorted(disk.names(one.folder)) == names
    disk.room = None
    work_off(job_of(one).job())
    assert len(read_all(one.log)) < len(before)


def test_segments_that_go_meanwhile_do_not_come_back() -> None:
    one = dirty_log(ModelDisk())
    job = job_of(one).job()
    for _ in range(2):
        next(job)()
    start = one.segments.states()[2].base_offset
    one.segments.remove(one.segments.set_start_offset(start))
    left = read_all(one.log)
    work_off(job)
    assert one.log.start_offset == start
    assert table(read_all(one.log)) == table(left)
    one.reopen()
    assert one.log.start_offset == start and table(read_all(one.log)) == table(left)


def test_a_compaction_that_is_stopped_leaves_the_log_whole() -> None:
    one = dirty_log(ModelDisk())
    before, compaction = read_all(one.log), job_of(one)
    job = compaction.job()
    next(job)()
    work = next(job)
    compaction.stop()
    work()
    for each in job:
        each()
    assert read_all(one.log) == before and one.segments.cleaned_up_to == -1
    assert not [name for name in one.disk.names(one.folder) if name.endswith(".cleaned")]


def test_a_broker_that_ends_begins_no_compaction_and_stops_the_one_under_way(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED)
    fill(machine)
    machine.now += 15
    machine.core.poll(machine.now)
    (job,) = machine.core.jobs()
    work = next(job)
    machine.core.drain(machine.now)
    work()
    work_off(job)
    assert machine.log().segments.cleaned_up_to == -1
    machine.pass_time(3600)
    assert machine.log().segments.cleaned_up_to == -1 and machine.core.deadline is None


def test_a_segment_with_damage_is_not_compacted_and_the_others_are() -> None:
    disk = ModelDisk()
    one = dirty_log(disk, LogSettings(compacted=True, segment_bytes=300))
    second = one.segments.states()[1]
    path = one.folder / f"{second.base_offset:020}.log"
    disk.write(path, second.size - 1, b"\xff")
    damaged = disk.read_file(path)
    work_off(job_of(one).job())
    assert disk.read_file(path) == damaged
    assert one.segments.cleaned_up_to > second.end_offset
    assert one.segments.states()[0].size < 300


# -- flushes


def test_a_log_is_flushed_after_so_many_records(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, flush_messages="10")
    machine.produce(*(idempotent(sequence) for sequence in range(9)))
    assert machine.log().unflushed == 9
    machine.produce(idempotent(9))
    assert machine.log().unflushed == 0


def test_a_log_is_flushed_so_long_after_its_first_record(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, flush_ms="2000")
    machine.produce(idempotent(0))
    machine.pass_time(1.5)
    machine.produce(idempotent(1))
    assert machine.log().unflushed == 2
    machine.pass_time(1)
    assert machine.log().unflushed == 0
    machine.produce(idempotent(2))
    machine.pass_time(1.5)
    assert machine.log().unflushed == 1


def test_what_comes_during_a_flush_is_flushed_next(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, flush_messages="1")
    log = machine.log()
    store(log, idempotent(0), 12)
    machine.core.grown(log)
    (job,) = machine.core.jobs()
    work = next(job)
    store(log, idempotent(1), 12)
    machine.core.grown(log)
    assert machine.core.jobs() == []
    work()
    assert next(job, None) is None
    (again,) = machine.core.jobs()
    work_off(again)
    assert log.unflushed == 0


def test_a_fetch_reads_over_the_gaps_that_compaction_leaves(tmp_path: Path) -> None:
    machine = with_topic(tmp_path, COMPACTED)
    fill(machine)
    machine.pass_time(16)
    left = {record.offset for record in read_all(machine.log())}
    for offset in range(machine.log().end_offset):
        answer = machine.ask(fetching(offset)).responses[0].partitions[0]
        first = next(read_batches(bytes(answer.records)))
        assert answer.error_code == 0 and first.next_offset > offset
        assert not left & set(range(offset, first.base_offset)), "no record is skipped"


# -- a full disk


def test_a_full_disk_is_told_to_producers_and_forgotten_when_there_is_room_again() -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    machine.core.create_topic("t", 1, {"segment.bytes": "2000"})
    machine.produce(idempotent(0))
    for room in (0, 1, 50, 100):  # the last values leave room for a part of the batch
        disk.room = room
        answer = machine.ask(producing(idempotent(1, 50))).responses[0].partition_responses[0]
        assert answer.error_code == KafkaStorageError.code and "No space left" in answer.error_message
        assert values_of(machine.ask(fetching(0)).responses[0].partitions[0].records) == [b"0"]
        assert machine.log().end_offset == 1
    disk.room = None
    machine.produce(idempotent(1, 50))
    assert [batch.base_offset for batch in machine.log().batches()] == [0, 1]
    for clean in (False, True):
        machine = machine.restart(clean=clean)
        assert [batch.base_offset for batch in machine.log().batches()] == [0, 1]


def test_what_has_expired_goes_from_a_full_disk_and_makes_room_for_the_next_segment() -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    machine.core.create_topic("t", 1, {"segment.bytes": "1024", "retention.ms": "1000"})
    machine.produce(*(a_batch(b"x" * 400, timestamp=TODAY - 5000) for _ in range(5)))
    disk.room = 0
    machine.pass_time(301)
    assert machine.log().start_offset == machine.log().end_offset == 5
    machine.produce(a_batch())
