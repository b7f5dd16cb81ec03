"""The data folder: recovery from every state after a kill, and folders of other programs."""

import json
import os
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.storage.checkpoints import OffsetCheckpoint
from ottla.brokerlite.storage.data_folder import CLEAN_SHUTDOWN, DataFolder
from ottla.brokerlite.storage.disk import Disk, FileSystem
from ottla.brokerlite.storage.find_topics import deleted_name
from ottla.brokerlite.storage.folder_checkpoints import RECOVERY_POINTS
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.brokerlite.storage.snapshot import snapshot_path
from ottla.brokerlite.storage.state_file import PRODUCER_IDS
from ottla.codec.records import parse_batch
from ottla.codec.stored.checkpoints import build_partition_metadata, parse_properties, parse_short_id
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    ConfigurationError,
    KafkaStorageError,
    OutOfOrderSequenceNumber,
)
from tests.brokerlite.machine import TODAY, Flushes, Machine, a_batch, idempotent, producing, store, values_of, work_off
from tests.brokerlite.model_disk import ModelDisk

NEWEST = 13
SMALL = LogSettings(segment_bytes=4096)


class OnePartition:
    """A partition's folder, which the test opens again and again."""

    def __init__(
        self, folder: Path, interval: int = 100, settings: LogSettings = SMALL, disk: Disk | None = None
    ) -> None:
        self.disk = disk or FileSystem()
        self.folder = folder
        self.settings = settings
        self.interval = interval
        segments = self._segments()
        segments.create(NO_UUID)
        self.log = PartitionLog("t-0", segments, settings=settings)
        self.segments = segments

    def _segments(self) -> PartitionSegments:
        return PartitionSegments(self.folder, self.interval, Flushes(lambda flush: flush()), self.disk)

    def append(self, *batches: bytes) -> None:
        for batch in batches:
            store(self.log, batch)

    def reopen(self, *, clean: bool = False, recovery_point: int = 0, **how: Any) -> None:
        self.disk.close()
        self.segments = self._segments()
        producers = self.segments.open(clean=clean, recovery_point=recovery_point, **how)
        self.log = PartitionLog("t-0", self.segments, producers, self.settings)

    def close(self) -> None:
        self.segments.close(self.log.producers, sync=False)

    def values(self) -> list[bytes | None]:
        values: list[bytes | None] = []
        while (offset := self.log.start_offset + len(values)) < self.log.end_offset:
            values += values_of(self.log.read(offset, 2**20, at_least_one=True))
        return values

    def files(self, suffix: str) -> dict[str, bytes]:
        names = sorted(name for name in self.disk.names(self.folder) if name.endswith(suffix))
        return {name: self.disk.read_file(self.folder / name) for name in names}


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OnePartition]:
    one = OnePartition(tmp_path / "t-0")
    yield one
    one.disk.close()


# -- one partition


def test_the_log_is_cut_at_the_first_batch_that_is_not_whole_wherever_it_was_torn(one: OnePartition) -> None:
    batches = [idempotent(0, 2), idempotent(2, 3), idempotent(5)]
    one.append(*batches)
    path = one.folder / f"{0:020}.log"
    whole = path.read_bytes()
    ends = [len(batches[0]), len(batches[0]) + len(batches[1]), len(whole)]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        one.reopen()
        left = sum(end <= cut for end in ends)
        assert one.log.end_offset == [0, 2, 5, 6][left]
        assert one.segments.truncated == cut - [0, *ends][left]
        assert path.stat().st_size == [0, *ends][left]
        assert one.values() == [b"%d" % i for i in range(one.log.end_offset)]
        sequence = one.log.end_offset
        one.append(idempotent(sequence, 2))
        assert one.log.end_offset == sequence + 2, "the next batch follows the last whole one"


def test_a_batch_with_garbage_behind_it_is_the_last(one: OnePartition) -> None:
    one.append(a_batch(b"a"))
    path = one.folder / f"{0:020}.log"
    whole = path.read_bytes()
    for garbage in (b"\0" * 5000, b"\xff" * 100, whole, os.urandom(3000), struct.pack(">qi", 1, 2**30) + bytes(80)):
        path.write_bytes(whole + garbage)
        one.reopen()
        assert one.values() == [b"a"] and path.stat().st_size == len(whole)


def test_a_flipped_bit_cuts_the_log_there_even_in_an_older_segment(one: OnePartition) -> None:
    one.append(*(idempotent(i) for i in range(100)))
    assert len(one.files(".log")) > 1
    path = one.folder / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(idempotent(0)) * 3 + 65] ^= 1
    path.write_bytes(data)
    one.reopen()
    assert one.values() == [b"0", b"1", b"2"]
    assert list(one.files(".log")) == [path.name], "the later segments are gone"
    assert not [name for name in one.files(".snapshot") if int(name[:20]) > 3]
    one.append(idempotent(3))


def test_damage_to_a_base_offset_is_seen_though_no_crc_covers_it(one: OnePartition) -> None:
    one.append(*(idempotent(i) for i in range(5)))
    path = one.folder / f"{0:020}.log"
    whole = path.read_bytes()
    for position in range(8):
        data = bytearray(whole)
        data[3 * len(idempotent(0)) + position] ^= 1
        path.write_bytes(data)
        one.reopen()
        assert one.log.end_offset == 3


def test_indexes_made_again_are_those_that_were_written_on_the_way(one: OnePartition) -> None:
    one.append(*(a_batch(bytes(i * 7 % 300), timestamp=TODAY + i * 7919 % 1000) for i in range(200)))
    one.close()
    written = one.files(".index"), one.files(".timeindex")
    assert len(written[0]) > 5 and sum(map(len, written[0].values())) > 500
    one.reopen()
    assert (one.files(".index"), one.files(".timeindex")) == written


def test_a_segment_too_short_for_an_index_has_both_or_none(one: OnePartition) -> None:
    one.append(a_batch(b"one"))
    one.close()
    assert one.files(".index") == {f"{0:020}.index": b""} and len(one.files(".timeindex")) == 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "odd", "empty", "beyond"])
def test_damaged_indexes_are_made_again_after_a_clean_shutdown_too(one: OnePartition, suffix: str, damage: str) -> None:
    one.append(*(a_batch(b"%d" % i) for i in range(200)))
    values = one.values()
    one.close()
    written = one.files(suffix)
    for path in one.folder.glob(f"*{suffix}"):
        if damage == "gone":
            path.unlink()
        elif damage == "odd":
            path.write_bytes(path.read_bytes() + b"\0")
        elif damage == "empty":
            path.write_bytes(b"")
        elif suffix == ".index":
            path.write_bytes(path.read_bytes() + struct.pack(">ii", 2**30, 2**30))
    one.reopen(clean=True)
    assert one.values() == values
    assert [work_off(one.log.first_at(TODAY))] == [work_off(one.log.first_at(0))]
    if damage != "beyond" or suffix == ".index":
        assert one.files(suffix) == written


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".indexcheck"])
def test_indexes_with_a_flipped_bit_are_made_again(one: OnePartition, suffix: str, clean: bool) -> None:
    one.append(*(a_batch(b"%d" % i, timestamp=TODAY + i) for i in range(200)))
    one.close()
    written = one.files("index"), one.files(".indexcheck")
    for number, path in enumerate(sorted(one.folder.glob(f"*{suffix}"))):
        data = bytearray(path.read_bytes())
        data[(number * 7 + 2) % len(data)] ^= 1
        path.write_bytes(data)
    one.reopen(clean=clean, recovery_point=200)
    found = [work_off(one.log.first_at(TODAY + i)) for i in range(200)]
    assert [each and each.offset for each in found] == list(range(200))
    assert (one.files("index"), one.files(".indexcheck")) == written
    assert one.segments.states()[0].max_timestamp < TODAY + 100


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_without_checksums_count_as_they_are_and_get_them_when_they_grow(
    one: OnePartition, clean: bool
) -> None:
    one.append(*(a_batch(b"%d" % i) for i in range(100)))
    one.close()
    for path in one.folder.glob("*.indexcheck"):
        path.unlink()
    one.reopen(clean=clean, recovery_point=100)
    one.append(*(a_batch(b"%d" % i) for i in range(20)))
    one.close()
    last = max(one.files(".index"))
    assert f"{last}check" in one.files(".indexcheck")
    written = one.files("index")
    one.reopen(clean=True, recovery_point=120)
    assert one.files("index") == written and len(one.values()) == 120


def test_a_clean_start_reads_the_end_of_the_log_only(one: OnePartition, monkeypatch: pytest.MonkeyPatch) -> None:
    one.append(*(idempotent(i) for i in range(300)))
    one.close()
    read = 0
    pread = os.pread

    def counting(descriptor: int, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(descriptor, size, position)
        read += len(data)
        return data

    monkeypatch.setattr("ottla.brokerlite.storage.recovery.TAIL_BYTES", 200)
    monkeypatch.setattr(os, "pread", counting)
    one.reopen(clean=True)
    size = sum(len(data) for data in one.files(".log").values())
    assert size > 20_000 > 4 * read
    assert one.log.end_offset == 300


def test_segments_before_the_recovery_point_are_not_read_again(one: OnePartition) -> None:
    one.append(*(idempotent(i) for i in range(100)))
    first = one.folder / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    one.reopen(recovery_point=one.log.end_offset - 1)
    assert one.log.end_offset == 100
    one.reopen(recovery_point=0)
    assert 0 < one.log.end_offset < 100


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, 5, 7, 60, 300])
def test_the_window_of_five_is_the_same_after_a_restart(one: OnePartition, clean: bool, count: int) -> None:
    one.append(*(idempotent(2 * i, 2) for i in range(count)))
    if clean:
        one.close()
    one.reopen(clean=clean)
    for i in range(max(0, count - 5), count):
        again = store(one.log, idempotent(2 * i, 2))
        assert (again.base_offset, again.size) == (2 * i, 0)
    if count > 5:
        with pytest.raises(OutOfOrderSequenceNumber):
            one.append(idempotent(2 * (count - 6), 2))
    one.append(idempotent(2 * count, 2))
    assert one.log.end_offset == 2 * count + 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_that_wrote_long_ago_is_known_from_the_snapshot(
    one: OnePartition, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.brokerlite.storage.recovery.TAIL_BYTES", 100)
    one.append(idempotent(0, 3, producer_id=1, epoch=2))
    one.append(*(a_batch(bytes(500)) for _ in range(30)))
    if clean:
        one.close()
    one.reopen(clean=clean)
    assert store(one.log, idempotent(0, 3, producer_id=1, epoch=2)).base_offset == 0
    with pytest.raises(OutOfOrderSequenceNumber):
        one.append(idempotent(4, producer_id=1, epoch=2))
    one.append(idempotent(3, producer_id=1, epoch=2))


@pytest.mark.parametrize("clean", [True, False])
def test_what_producers_may_send_again_is_known_without_reading_the_log(clean: bool) -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk, settings=LogSettings(segment_bytes=2**20))
    one.append(*(idempotent(2 * i, 2, producer_id=producer_id) for i in range(100) for producer_id in range(9)))
    one.segments.roll(one.log.producers)
    size = sum(map(len, one.files(".log").values()))
    if clean:
        one.close()
    disk.read_bytes = 0
    one.reopen(clean=clean, recovery_point=one.log.end_offset)
    assert disk.read_bytes < size / 4
    for i in range(95, 100):
        for producer_id in range(9):
            assert store(one.log, idempotent(2 * i, 2, producer_id=producer_id)).size == 0
    with pytest.raises(OutOfOrderSequenceNumber):
        one.append(idempotent(2 * 94, 2, producer_id=3))


@pytest.mark.parametrize("damage", [None, b"", b"\0" * 50])
def test_where_the_window_is_gone_or_damaged_the_log_is_read(damage: bytes | None) -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk)
    one.append(*(idempotent(2 * i, 2) for i in range(20)))
    one.close()
    for name in one.files(".window"):
        disk.unlink(Path("/t-0") / name)
        if damage is not None:
            disk.write_file(Path("/t-0") / name, damage)
    one.reopen(clean=True)
    for i in range(15, 20):
        assert store(one.log, idempotent(2 * i, 2)).size == 0


def checkpointed(disk: ModelDisk) -> OnePartition:
    """A segment whose first half lies before the recovery point."""
    one = OnePartition(Path("/t-0"), disk=disk, interval=500, settings=LogSettings(segment_bytes=2**20))
    one.append(*(a_batch(bytes(100), timestamp=TODAY + i * 7919 % 1000) for i in range(400)))
    one.segments._since_checkpoint = 2**20
    work = one.segments.begin_checkpoint(one.log.producers)
    assert work is not None
    work()
    assert one.segments.recovery_point == 400
    one.append(*(a_batch(bytes(100), timestamp=TODAY + i * 7919 % 1000) for i in range(400, 800)))
    return one


def test_after_a_kill_the_active_segment_is_read_from_the_recovery_point_on() -> None:
    disk = ModelDisk()
    one = checkpointed(disk)
    size = sum(map(len, one.files(".log").values()))
    newest = work_off(one.log.of_max_timestamp())
    disk.read_bytes = 0
    one.reopen(recovery_point=400)
    assert disk.read_bytes < size * 1.1, "half of it, once for the checks and once for the producers"
    assert one.log.end_offset == 800 and work_off(one.log.of_max_timestamp()) == newest
    assert [batch.base_offset for batch in one.log.batches()] == list(range(800))
    indexes = one.files("index")
    one.reopen()
    assert one.files("index") == indexes, "rebuilt from the whole log, they have the same bytes"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "odd", "hole", "other batch"])
def test_indexes_that_are_damaged_before_the_recovery_point_are_made_again_from_the_whole_log(
    suffix: str, damage: str
) -> None:
    disk = ModelDisk()
    one = checkpointed(disk)
    one.reopen()
    written = one.files("index")
    path, entry = Path("/t-0") / f"{0:020}{suffix}", 8 if suffix == ".index" else 12
    match damage:
        case "gone":
            disk.unlink(path)
        case "odd":
            disk.truncate(path, disk.size(path) - 1)
        case "hole":
            disk.write(path, 3 * entry, bytes(5 * entry))
        case "other batch":
            disk.write(path, disk.size(path) // 2 // entry * entry, bytes(entry - 1) + b"\5")
    one.reopen(recovery_point=400)
    assert one.files("index") == written and one.log.end_offset == 800


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_batch_that_is_refused_because_an_index_cannot_be_read_is_not_stored(suffix: str) -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk, settings=LogSettings(segment_bytes=2**20))
    batches = [a_batch(bytes(80), timestamp=TODAY + i) for i in range(24)]
    one.append(*batches[:20])
    one.close()
    one.reopen(clean=True)
    stored = 20
    disk.fails = lambda operation, path: operation == "read" and path.suffix == suffix
    for each in batches[20:]:
        try:
            store(one.log, each)
        except KafkaStorageError:
            assert one.log.end_offset == stored
        else:
            stored += 1
    disk.fails = lambda operation, path: False
    assert store(one.log, a_batch()).base_offset == stored
    assert [batch.base_offset for batch in one.log.batches()] == list(range(stored + 1))
    one.reopen()
    assert one.log.end_offset == stored + 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("before", range(1, 10))
def test_the_window_of_five_spans_segments_after_a_restart(tmp_path: Path, clean: bool, before: int) -> None:
    """Segments of ``before`` batches: the rolls lie anywhere among the last five batches."""
    one = OnePartition(tmp_path / "t-0", settings=LogSettings(segment_bytes=before * len(idempotent(10)) + 1))
    one.append(*(idempotent(10 + i) for i in range(10)))
    assert len(one.files(".log")) == -(-10 // before)
    if clean:
        one.close()
    one.reopen(clean=clean)
    for i in range(5, 10):
        again = store(one.log, idempotent(10 + i))
        assert (again.base_offset, again.size) == (i, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        one.append(idempotent(14))
    one.append(idempotent(20))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints come with every few batches."""
    monkeypatch.setattr("ottla.brokerlite.storage.folder_flushes.CHECKPOINT_BYTES", 1000)
    monkeypatch.setattr("ottla.brokerlite.storage.partition_segments._LEAST_CHECKPOINT", 100)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("count", range(1, 25))
def test_a_checkpoint_knows_the_last_batch_of_every_producer(count: int) -> None:
    machine = Machine(Path("/data"), disk=ModelDisk(), folder_sync=True)
    machine.core.create_topic("t", 1, {})
    for i in range(count):
        store(machine.log(), idempotent(i))
    machine = machine.restart(clean=False)
    again = store(machine.log(), idempotent(count - 1))
    assert (again.base_offset, again.size) == (count - 1, 0)
    assert store(machine.log(), idempotent(count)).base_offset == count


def test_a_marker_after_the_snapshot_leaves_what_the_snapshot_knows(
    one: OnePartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.brokerlite.storage.recovery.TAIL_BYTES", 100)
    one.append(idempotent(0, 3), *(a_batch(bytes(500)) for _ in range(30)))
    marker = a_batch(producer_id=7, producer_epoch=0, base_offset=33, control=True, transactional=True)
    one.segments.append(parse_batch(marker))
    one.reopen()
    assert store(one.log, idempotent(0, 3)).size == 0
    one.append(idempotent(3))


def test_a_damaged_snapshot_is_as_good_as_none(one: OnePartition) -> None:
    one.append(idempotent(0, 3), *(a_batch(bytes(500)) for _ in range(30)))
    one.close()
    for i, path in enumerate(sorted(one.folder.glob("*.snapshot"))):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data if i else data[:7])
    one.reopen(clean=True)
    assert store(one.log, idempotent(0, 3)).base_offset == 0
    assert not one.files(".snapshot")


def test_a_snapshot_of_a_later_end_is_dropped(one: OnePartition) -> None:
    one.append(idempotent(0))
    snapshot_path(one.folder, 99).write_bytes(b"anything")
    one.reopen()
    one.append(idempotent(1))
    assert not snapshot_path(one.folder, 99).exists()


def test_a_full_disk_stores_nothing_and_says_so() -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk)
    one.append(*(idempotent(i) for i in range(4)))
    before = one.files("")
    size = len(idempotent(4))
    for room in (0, 1, size - 1):
        disk.room = room
        with pytest.raises(KafkaStorageError, match="No space left"):
            one.append(idempotent(4))
        assert one.files("") == before and one.log.end_offset == 4 and disk.room == room
    disk.room = None
    one.append(idempotent(4))
    one.reopen()
    assert one.log.end_offset == 5


def test_what_a_failed_write_left_is_removed_before_the_next_one_though_the_disk_refused_that_too() -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk)
    one.append(*(idempotent(i) for i in range(4)))
    disk.room = len(idempotent(4)) - 5
    disk.fails = lambda operation, path: operation == "truncate"
    with pytest.raises(KafkaStorageError):
        one.append(idempotent(4))
    disk.room = None
    with pytest.raises(KafkaStorageError):
        one.append(a_batch())
    disk.fails = lambda operation, path: False
    one.append(idempotent(4))
    one.close()
    one.reopen(clean=True)
    assert one.log.end_offset == 5 and one.segments.truncated == 0
    assert one.values() == [b"%d" % i for i in range(5)]


def test_a_segment_whose_indexes_the_disk_has_no_room_for_is_sealed_later() -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk)
    while one.segments.active.size < 3800:
        one.append(a_batch())
    end = one.log.end_offset
    disk.fails = lambda operation, path: operation == "write" and path.suffix == ".timeindex"
    with pytest.raises(KafkaStorageError, match="begin a segment"):
        one.append(a_batch(bytes(500)))
    disk.fails = lambda operation, path: False
    one.append(a_batch(bytes(500)))
    assert [segment.base_offset for segment in one.segments.states()] == [0, end]
    one.close()
    one.reopen(clean=True)
    assert one.log.end_offset == end + 1 and not one.segments.truncated


def test_a_segment_that_the_disk_has_no_room_for_leaves_no_trace() -> None:
    disk = ModelDisk()
    one = OnePartition(Path("/t-0"), disk=disk)
    while one.segments.active.size < 3800:
        one.append(a_batch())
    end = one.log.end_offset
    disk.fails = lambda operation, path: operation == "create" and path.suffix == ".log"
    with pytest.raises(KafkaStorageError, match="begin a segment"):
        one.append(a_batch(bytes(400)))
    one.append(a_batch())  # this one still fits
    assert list(one.files(".log")) == [f"{0:020}.log"]
    disk.fails = lambda operation, path: False
    one.append(a_batch(bytes(400)))
    assert len(one.files(".log")) == 2
    one.reopen()
    assert one.log.end_offset == end + 2 and one.segments.truncated == 0


# -- the folder


def test_topics_records_ids_and_configurations_persist(machine: Machine) -> None:
    machine.produce(a_batch(b"a"), partition=1)
    machine.core.create_topic("other", 1, {"retention.ms": "5"})
    topic_id = machine.core.topics.by_name["t"].topic_id
    for clean in (True, False):
        machine = machine.restart(clean=clean)
        assert set(machine.core.topics.by_name) == {"t", "other"}
        assert machine.core.topics.by_name["t"].topic_id == topic_id
        assert machine.core.topics.by_name["other"].configs == {"retention.ms": "5"}
        assert values_of(machine.log("t", 1).read(0, 1000)) == [b"a"]
        assert len(machine.core.topics.by_name["t"].partitions) == 3
    machine.folder.abandon()


def test_the_small_files_are_kafkas(machine: Machine) -> None:
    machine.produce(a_batch(b"a"))
    data = machine.folder.path
    machine.folder.close()
    assert (data / "t-0" / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    assert (data / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    meta = parse_properties((data / "meta.properties").read_bytes()).entries
    assert (meta["version"], meta["node.id"]) == ("1", "1") and len(meta["cluster.id"]) == 22
    assert (data / RECOVERY_POINTS).read_text().splitlines()[:2] == ["0", "4"], "and the checksum"
    assert (data / CLEAN_SHUTDOWN).exists()
    text = (data / "t-0" / "partition.metadata").read_text().split()[-1]
    assert parse_short_id(text) == machine.core.topics.by_name["t"].topic_id


def test_a_deleted_topic_is_gone_for_good_and_its_name_is_free(machine: Machine) -> None:
    machine.produce(a_batch(b"a"))
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    assert not [path for path in machine.folder.path.iterdir() if path.is_dir()]
    machine.core.create_topic("t", 1, {})
    assert machine.log().end_offset == 0
    again = machine.restart(clean=False)
    assert again.log().end_offset == 0
    again.folder.abandon()


def test_a_kill_while_a_topic_is_made_leaves_it_whole_and_empty(machine: Machine) -> None:
    machine.folder.abandon()
    (machine.folder.path / "t-1").rename(machine.folder.path.parent / "elsewhere")
    again = Machine(machine.folder.path)
    assert [log.end_offset for log in again.core.topics.by_name["t"].partitions] == [0, 0, 0]
    again.folder.abandon()


@pytest.mark.parametrize("renamed", [(0,), (0, 1), (0, 1, 2)])
def test_a_kill_while_a_topic_is_deleted_leaves_nothing_of_it(machine: Machine, renamed: tuple[int, ...]) -> None:
    for partition in range(3):
        machine.produce(a_batch(b"a"), partition=partition)
    machine.core.create_topic("other", 1, {})
    data, topic_id = machine.folder.path, machine.core.topics.by_name["t"].topic_id
    machine.folder.abandon()
    for partition in renamed:
        (data / f"t-{partition}").rename(data / deleted_name("t", partition, topic_id))
    again = Machine(data)
    assert list(again.core.topics.by_name) == ["other"]
    assert [path.name for path in data.iterdir() if path.is_dir()] == ["other-0"]
    again.folder.abandon()


def test_a_folder_with_records_of_no_topic_is_set_aside_and_others_are_left_alone(machine: Machine) -> None:
    data = machine.folder.path
    machine.folder.abandon()
    (data / "stranger-0").mkdir()
    (data / "stranger-0" / "partition.metadata").write_text("version: 0\n")
    (data / "stranger-0" / f"{0:020}.log").write_bytes(a_batch())
    (data / "not-kafka's").mkdir()
    again = Machine(data)
    assert list(again.core.topics.by_name) == ["t"]
    names = sorted(path.name for path in data.iterdir() if path.is_dir())
    assert names[0] == "not-kafka's" and names[1].startswith("stranger-0.") and names[1].endswith("-stray")
    assert names[2:] == ["t-0", "t-1", "t-2"]
    again.folder.abandon()


def test_a_partition_of_another_topic_of_the_name_is_not_taken_for_the_topics(machine: Machine) -> None:
    machine.produce(a_batch(b"a"), partition=1)
    data = machine.folder.path
    machine.folder.abandon()
    (data / "t-1" / "partition.metadata").write_bytes(build_partition_metadata(uuid.uuid4()))
    again = Machine(data)
    assert again.log("t", 1).end_offset == 0
    assert [path.name[-6:] for path in data.iterdir() if path.name.startswith("t-1.")] == ["-stray"]
    again.folder.abandon()


def test_a_damaged_change_to_a_topic_leaves_what_it_was_before(machine: Machine) -> None:
    machine.core.create_topic("kept", 2, {"retention.ms": "5"})
    file = machine.folder.path / "kept-0" / "topic-1.json"
    machine.folder.abandon()
    file.write_bytes(b'{"version": 1, "id": "')
    machine = machine.restart()
    kept = machine.core.topics.by_name["kept"]
    assert (kept.configs, len(kept.partitions)) == ({"retention.ms": "5"}, 2)
    machine.folder.abandon()


def test_a_folder_that_lists_its_topics_in_one_file_still_opens(tmp_path: Path) -> None:
    """As in version 1 of `broker.json`."""
    ids = {name: uuid.uuid4() for name in ("made", "unmade")}
    state = {
        "version": 1,
        "next_producer_id": 3000,
        "leader_epoch": 4,
        "topics": {
            name: {"id": str(topic_id), "partitions": 2, "configs": {"retention.ms": "5"}}
            for name, topic_id in ids.items()
        },
    }
    (tmp_path / "broker.json").write_text(json.dumps(state))
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=theirs\nnode.id=1\ndirectory.id=x\n")
    for partition in range(2):
        folder = tmp_path / f"made-{partition}"
        folder.mkdir()
        (folder / "partition.metadata").write_bytes(build_partition_metadata(ids["made"]))
        (folder / f"{0:020}.log").write_bytes(a_batch(b"a"))
    for clean in (True, False, True):
        machine = Machine(tmp_path)
        assert machine.folder.cluster_id == "theirs"
        assert {topic.name: topic.topic_id for topic in machine.core.topics.by_name.values()} == ids
        assert {len(topic.partitions) for topic in machine.core.topics.by_name.values()} == {2}
        assert machine.core.topics.by_name["unmade"].configs == {"retention.ms": "5"}
        assert values_of(machine.log("made", 1).read(0, 1000)) == [b"a"]
        assert machine.folder.assign_producer_ids() >= 3000
        assert machine.log("made").epochs.current >= 4
        (machine.folder.close if clean else machine.folder.abandon)()


def test_a_topic_that_the_disk_has_no_room_for_is_not_there() -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    machine.core.create_topic("t", 1, {})
    disk.fails = lambda operation, path: operation == "create" and "new-1" in str(path)
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        machine.core.create_topic("new", 2, {})
    disk.fails = lambda operation, path: False
    assert list(machine.core.topics.by_name) == ["t"]
    again = machine.restart()
    assert list(again.core.topics.by_name) == ["t"]
    assert not [name for name in disk.names(Path("/data")) if name.startswith("new")]


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_starts_and_stops_on_a_full_disk_again_and_again(clean: bool) -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk, folder_sync=True)
    machine.core.create_topic("t", 1, {"segment.bytes": "4000"})
    stored = [b"%d" % each for each in range(5)]
    for value in stored:
        machine.produce(a_batch(value))
    for each in range(5):
        disk.room = 100  # the previous writes have used up the space
        while (
            machine.ask(producing(a_batch(value := b"%d more" % each))).responses[0].partition_responses[0].error_code
            == 0
        ):
            stored.append(value)
        machine = machine.restart(clean=clean)
        assert values_of(machine.log().read(0, 10**6)) == stored
    disk.room = None
    machine.produce(a_batch(b"last"))
    assert machine.log().end_offset == len(stored) + 1


def test_a_producer_id_that_cannot_be_kept_is_not_given() -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    disk.room = 0
    with pytest.raises(KafkaStorageError, match="No space left"):
        machine.folder.assign_producer_ids(PRODUCER_IDS + 1)
    disk.room = None
    assert machine.folder.assign_producer_ids(PRODUCER_IDS + 1) == 0


def test_a_late_reservation_of_producer_ids_does_not_give_back_those_that_were_assigned_meanwhile() -> None:
    disk, chores = ModelDisk(), list[Work]()

    def start() -> DataFolder:
        folder = DataFolder(Path("/data"), index_interval_bytes=4096, chore=chores.append, disk=disk)
        folder.open(1, "cluster")
        return folder

    folder = start()
    chores.clear()
    folder.assign_producer_ids(PRODUCER_IDS // 2 + 1)
    assert len(chores) == 1
    folder.assign_producer_ids()
    assert len(chores) == 1, "one id after the other does not queue one write after the other"
    folder.assign_producer_ids(PRODUCER_IDS)  # more than is left: reserved at once
    last = folder.assign_producer_ids(PRODUCER_IDS // 2)
    chores[0]()
    folder.abandon()
    assert start().assign_producer_ids() >= last + PRODUCER_IDS // 2


def test_a_refusing_disk_is_a_storage_error_to_the_client() -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    machine.core.create_topic("t", 1, {})
    disk.fails = lambda operation, path: operation == "write"
    answer = machine.ask(producing(a_batch()))
    assert answer.responses[0].partition_responses[0].error_code == KafkaStorageError.code
    disk.fails = lambda operation, path: False
    machine.produce(a_batch())


def opened(path: Path, node_id: int = 1, cluster_id: str | None = None) -> DataFolder:
    folder = DataFolder(path, index_interval_bytes=4096, chore=lambda chore: chore())
    folder.open(node_id, cluster_id)
    return folder


def test_a_second_broker_on_the_same_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    first = opened(tmp_path / "data")
    with pytest.raises(ConfigurationError, match=f"in use by another broker \\(process {os.getpid()}\\)"):
        opened(tmp_path / "data")
    first.close()
    opened(tmp_path / "data").abandon()


def test_a_folder_of_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(ConfigurationError, match=r"contains other files \(thesis.tex\)"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_of_apache_kafka_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    with pytest.raises(ConfigurationError, match="written by Apache Kafka"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_a_folder_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "data", 1, "mine").close()
    with pytest.raises(ConfigurationError, match="belongs to node 1, and this is node 2"):
        opened(tmp_path / "data", 2)
    with pytest.raises(ConfigurationError, match="belongs to cluster mine, not yours"):
        opened(tmp_path / "data", 1, "yours")
    folder = opened(tmp_path / "data", 1)
    assert folder.cluster_id == "mine"
    folder.abandon()


DAMAGED = ["", "{", "[]", '{"version": 1}', '{"version": 2, "next_producer_id": 0}', "\0" * 200]


@pytest.mark.parametrize("text", DAMAGED)
@pytest.mark.parametrize("which", ["broker.json", "meta.properties", "both", "all three"])
def test_an_empty_or_damaged_state_file_keeps_nobody_from_starting(
    tmp_path: Path, which: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 2, {"retention.ms": "5"})
    topic_id, cluster_id = machine.core.topics.by_name["t"].topic_id, machine.folder.cluster_id
    machine.produce(idempotent(0, producer_id=7_000_000))
    given = {machine.folder.assign_producer_ids(1000) for _ in range(3)}
    machine.folder.abandon()
    for name in ("broker.json", "meta.properties", "broker.json.old"):
        if which in (name, "all three") or (which == "both" and name != "broker.json.old"):
            (tmp_path / "data" / name).write_text(text)
    machine = machine.restart(clean=False)
    topic = machine.core.topics.by_name["t"]
    assert (topic.topic_id, topic.configs, len(topic.partitions)) == (topic_id, {"retention.ms": "5"}, 2)
    assert machine.log().end_offset == 1 and machine.log().epochs.current > 0
    assert machine.folder.cluster_id == cluster_id or which == "all three"
    next_id = machine.folder.assign_producer_ids()
    assert next_id not in given and next_id >= PRODUCER_IDS
    assert which != "all three" or next_id > 7_000_000
    damaged = {"broker.json", "meta.properties"} if which in ("both", "all three") else {which}
    assert all(any(f"{name} is damaged" in record.getMessage() for record in caplog.records) for name in damaged)
    machine.restart().folder.abandon()


def test_a_file_of_a_later_program_is_refused_rather_than_forgotten(machine: Machine) -> None:
    machine.folder.abandon()
    (machine.folder.path / "broker.json").write_text('{"version": 3}')
    with pytest.raises(ConfigurationError, match=r"has version 3; this program supports"):
        Machine(machine.folder.path)


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    for path in (tmp_path / "data", tmp_path / "data" / "below"):
        with pytest.raises(ConfigurationError, match="a file has that name; give a folder"):
            opened(path)


@pytest.mark.skipif(not Path("/proc/sys/kernel").is_dir(), reason="needs a folder that not even root may write to")
def test_a_folder_that_is_not_writable_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be used.*may write to"):
        opened(Path("/proc/sys/kernel/ottla"))


def test_a_start_that_was_cut_off_before_the_folder_was_ready_can_be_repeated(tmp_path: Path) -> None:
    opened(tmp_path / "data").abandon()
    (tmp_path / "data" / "meta.properties").unlink()
    opened(tmp_path / "data").abandon()


def points_of(data: Path) -> dict[tuple[str, int], int]:
    return OffsetCheckpoint(FileSystem(), data / RECOVERY_POINTS, sync=False).read() or {}


def test_a_synced_folder_notes_how_far_the_disk_has_it(tmp_path: Path) -> None:
    folder = opened(tmp_path / "data")
    stored = folder.create_topic("t", NO_UUID, 1, {})
    log = PartitionLog("t-0", stored.partitions[0].segments, stored.partitions[0].producers, SMALL)
    for i in range(100):
        store(log, idempotent(i))
    points = points_of(tmp_path / "data")
    assert 0 < points["t", 0] < 100, "up to the last full segment"
    folder.close()
    points = points_of(tmp_path / "data")
    assert points["t", 0] == 100
