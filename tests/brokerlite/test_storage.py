"""The data folder: recovery from whatever a kill may leave, and folders that are not ours."""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.brokerlite.machines.configs import LogSettings
from ottla.brokerlite.machines.log import PartitionLog
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.folder import CLEAN_SHUTDOWN, RECOVERY_POINTS, DataFolder
from ottla.brokerlite.storage.partition import Chore, PartitionSegments
from ottla.brokerlite.storage.snapshot import snapshot_path
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.stored.checkpoints import parse_properties, parse_short_id
from ottla.codec.wire import NO_UUID
from ottla.errors import ConfigurationError, KafkaStorageError, OutOfOrderSequenceNumber
from tests.brokerlite.machine import TODAY, Machine, a_batch, idempotent, producing, values_of

NEWEST = 13
SMALL = LogSettings(segment_bytes=4096)


def do_both(settle: Chore, then: Chore) -> None:
    settle()
    then()


class Disk:
    """One partition's folder, opened again and again."""

    def __init__(self, folder: Path, interval: int = 100, settings: LogSettings = SMALL) -> None:
        self.folder = folder
        self.settings = settings
        self.interval = interval
        segments = self._segments()
        segments.create(NO_UUID)
        self.log = PartitionLog("t-0", segments, settings=settings)
        self.segments = segments

    def _segments(self) -> PartitionSegments:
        return PartitionSegments(self.folder, self.interval, do_both)

    def append(self, *batches: bytes) -> None:
        for batch in batches:
            self.log.append(batch, version=NEWEST, timestamp=TODAY)

    def reopen(self, *, clean: bool = False, recovery_point: int = 0) -> None:
        self.segments.abandon()
        self.segments = self._segments()
        producers = self.segments.open(clean=clean, recovery_point=recovery_point)
        self.log = PartitionLog("t-0", self.segments, producers, self.settings)

    def close(self) -> None:
        self.segments.close(self.log.producers, sync=False)

    def values(self) -> list[bytes | None]:
        values: list[bytes | None] = []
        while (offset := self.log.start_offset + len(values)) < self.log.end_offset:
            values += values_of(self.log.read(offset, 2**20, at_least_one=True))
        return values

    def files(self, suffix: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob(f"*{suffix}"))}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "t-0")
    yield disk
    disk.segments.abandon()


# -- one partition


def test_the_log_is_cut_at_the_first_batch_that_is_not_whole_wherever_it_was_torn(disk: Disk) -> None:
    batches = [idempotent(0, 2), idempotent(2, 3), idempotent(5)]
    disk.append(*batches)
    disk.segments.abandon()
    path = disk.folder / f"{0:020}.log"
    whole = path.read_bytes()
    ends = [len(batches[0]), len(batches[0]) + len(batches[1]), len(whole)]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        disk.reopen()
        left = sum(end <= cut for end in ends)
        assert disk.log.end_offset == [0, 2, 5, 6][left]
        assert disk.segments.truncated == cut - [0, *ends][left]
        assert path.stat().st_size == [0, *ends][left]
        assert disk.values() == [b"%d" % i for i in range(disk.log.end_offset)]
        sequence = disk.log.end_offset
        disk.append(idempotent(sequence, 2))
        assert disk.log.end_offset == sequence + 2, "the next batch follows the last whole one"


def test_a_batch_with_garbage_behind_it_is_the_last(disk: Disk) -> None:
    disk.append(a_batch(b"a"))
    disk.segments.abandon()
    path = disk.folder / f"{0:020}.log"
    whole = path.read_bytes()
    for garbage in (b"\0" * 5000, b"\xff" * 100, whole, os.urandom(3000), struct.pack(">qi", 1, 2**30) + bytes(80)):
        path.write_bytes(whole + garbage)
        disk.reopen()
        assert disk.values() == [b"a"] and path.stat().st_size == len(whole)


def test_a_flipped_bit_cuts_the_log_there_even_in_an_older_segment(disk: Disk) -> None:
    disk.append(*(idempotent(i) for i in range(100)))
    assert len(disk.files(".log")) > 1
    disk.segments.abandon()
    path = disk.folder / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(idempotent(0)) * 3 + 65] ^= 1
    path.write_bytes(data)
    disk.reopen()
    assert disk.values() == [b"0", b"1", b"2"]
    assert list(disk.files(".log")) == [path.name], "what lay behind it is gone"
    assert not [name for name in disk.files(".snapshot") if int(name[:20]) > 3]
    disk.append(idempotent(3))


def test_damage_to_a_base_offset_is_seen_though_no_crc_covers_it(disk: Disk) -> None:
    disk.append(*(idempotent(i) for i in range(5)))
    disk.segments.abandon()
    path = disk.folder / f"{0:020}.log"
    whole = path.read_bytes()
    for position in range(8):
        data = bytearray(whole)
        data[3 * len(idempotent(0)) + position] ^= 1
        path.write_bytes(data)
        disk.reopen()
        assert disk.log.end_offset == 3


def test_indexes_made_anew_are_those_that_were_written_on_the_way(disk: Disk) -> None:
    disk.append(*(a_batch(bytes(i * 7 % 300), timestamp=TODAY + i * 7919 % 1000) for i in range(200)))
    disk.close()
    written = disk.files(".index"), disk.files(".timeindex")
    assert len(written[0]) > 5 and sum(map(len, written[0].values())) > 500
    disk.reopen()
    disk.segments.abandon()
    assert (disk.files(".index"), disk.files(".timeindex")) == written


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "odd", "empty", "beyond"])
def test_damaged_indexes_are_made_anew_after_a_clean_shutdown_too(disk: Disk, suffix: str, damage: str) -> None:
    disk.append(*(a_batch(b"%d" % i) for i in range(200)))
    values = disk.values()
    disk.close()
    written = disk.files(suffix)
    for path in disk.folder.glob(f"*{suffix}"):
        if damage == "gone":
            path.unlink()
        elif damage == "odd":
            path.write_bytes(path.read_bytes() + b"\0")
        elif damage == "empty":
            path.write_bytes(b"")
        elif suffix == ".index":
            path.write_bytes(path.read_bytes() + struct.pack(">ii", 2**30, 2**30))
    disk.reopen(clean=True)
    assert disk.values() == values
    assert [disk.log.first_at(TODAY)] == [disk.log.first_at(0)]
    if damage != "beyond" or suffix == ".index":
        disk.segments.abandon()
        assert disk.files(suffix) == written


def test_a_clean_start_reads_the_end_of_the_log_only(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.append(*(idempotent(i) for i in range(300)))
    disk.close()
    read = 0
    pread = os.pread

    def counting(descriptor: int, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(descriptor, size, position)
        read += len(data)
        return data

    monkeypatch.setattr("ottla.brokerlite.storage.partition.TAIL_BYTES", 200)
    monkeypatch.setattr(os, "pread", counting)
    disk.reopen(clean=True)
    size = sum(len(data) for data in disk.files(".log").values())
    assert size > 20_000 > 4 * read
    assert disk.log.end_offset == 300


def test_segments_before_the_recovery_point_are_not_read_again(disk: Disk) -> None:
    disk.append(*(idempotent(i) for i in range(100)))
    disk.segments.abandon()
    first = disk.folder / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    disk.reopen(recovery_point=disk.log.end_offset - 1)
    assert disk.log.end_offset == 100
    disk.reopen(recovery_point=0)
    assert 0 < disk.log.end_offset < 100


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, 5, 7, 60, 300])
def test_the_window_of_five_is_the_same_after_a_restart(disk: Disk, clean: bool, count: int) -> None:
    disk.append(*(idempotent(2 * i, 2) for i in range(count)))
    if clean:
        disk.close()
    disk.reopen(clean=clean)
    for i in range(max(0, count - 5), count):
        again = disk.log.append(idempotent(2 * i, 2), version=NEWEST, timestamp=TODAY)
        assert (again.base_offset, again.size) == (2 * i, 0)
    if count > 5:
        with pytest.raises(OutOfOrderSequenceNumber):
            disk.append(idempotent(2 * (count - 6), 2))
    disk.append(idempotent(2 * count, 2))
    assert disk.log.end_offset == 2 * count + 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_that_wrote_long_ago_is_known_from_the_snapshot(
    disk: Disk, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.brokerlite.storage.partition.TAIL_BYTES", 100)
    disk.append(idempotent(0, 3, producer_id=1, epoch=2))
    disk.append(*(a_batch(bytes(500)) for _ in range(30)))
    if clean:
        disk.close()
    disk.reopen(clean=clean)
    assert disk.log.append(idempotent(0, 3, producer_id=1, epoch=2), version=NEWEST, timestamp=TODAY).base_offset == 0
    with pytest.raises(OutOfOrderSequenceNumber):
        disk.append(idempotent(4, producer_id=1, epoch=2))
    disk.append(idempotent(3, producer_id=1, epoch=2))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("before", range(1, 10))
def test_the_window_of_five_spans_segments_after_a_restart(tmp_path: Path, clean: bool, before: int) -> None:
    """Segments of ``before`` batches: the roll lies anywhere in the window, or several times."""
    disk = Disk(tmp_path / "t-0", settings=LogSettings(segment_bytes=before * len(idempotent(10)) + 1))
    disk.append(*(idempotent(10 + i) for i in range(10)))
    assert len(disk.files(".log")) == -(-10 // before)
    if clean:
        disk.close()
    disk.reopen(clean=clean)
    for i in range(5, 10):
        again = disk.log.append(idempotent(10 + i), version=NEWEST, timestamp=TODAY)
        assert (again.base_offset, again.size) == (i, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        disk.append(idempotent(14))
    disk.append(idempotent(20))
    disk.segments.abandon()


def test_a_marker_after_the_snapshot_leaves_what_the_snapshot_knows(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.brokerlite.storage.partition.TAIL_BYTES", 100)
    disk.append(idempotent(0, 3), *(a_batch(bytes(500)) for _ in range(30)))
    marker = a_batch(producer_id=7, producer_epoch=0, base_offset=33, control=True, transactional=True)
    disk.segments.append(marker, 33, TODAY)
    disk.reopen()
    assert disk.log.append(idempotent(0, 3), version=NEWEST, timestamp=TODAY).size == 0
    disk.append(idempotent(3))


def test_a_damaged_snapshot_is_as_good_as_none(disk: Disk) -> None:
    disk.append(idempotent(0, 3), *(a_batch(bytes(500)) for _ in range(30)))
    disk.close()
    for i, path in enumerate(sorted(disk.folder.glob("*.snapshot"))):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data if i else data[:7])
    disk.reopen(clean=True)
    assert disk.log.append(idempotent(0, 3), version=NEWEST, timestamp=TODAY).base_offset == 0
    assert not disk.files(".snapshot")


def test_a_snapshot_of_a_later_end_is_dropped(disk: Disk) -> None:
    disk.append(idempotent(0))
    disk.segments.abandon()
    snapshot_path(disk.folder, 99).write_bytes(b"anything")
    disk.reopen()
    disk.append(idempotent(1))
    assert not snapshot_path(disk.folder, 99).exists()


def test_a_full_disk_stores_nothing_and_says_so(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.append(*(idempotent(i) for i in range(4)))
    size = len(idempotent(4))
    before = disk.files("")
    pwrite = os.pwrite
    room = 70

    def full(descriptor: int, data: bytes, position: int) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = pwrite(descriptor, data[:room], position)
        room -= written
        return written

    monkeypatch.setattr(os, "pwrite", full)
    for room in (0, 1, size - 1, size, size + 5):  # noqa: B007 # read by `full`; the batch, then its index entry
        with pytest.raises(KafkaStorageError, match="No space left"):
            disk.append(idempotent(4))
        assert disk.files("") == before and disk.log.end_offset == 4
    monkeypatch.undo()
    disk.append(idempotent(4))
    disk.reopen()
    assert disk.log.end_offset == 5


def test_a_segment_that_the_disk_has_no_room_for_leaves_no_trace(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    while disk.segments.active_size < 3800:
        disk.append(a_batch())
    end = disk.log.end_offset
    touch = Path.touch

    def full(path: Path) -> None:
        if path.suffix == ".timeindex":
            raise OSError(errno.ENOSPC, "No space left on device")
        touch(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        with pytest.raises(KafkaStorageError, match="begin a segment"):
            disk.append(a_batch(bytes(400)))
        disk.append(a_batch())  # this one still fits
    assert list(disk.files(".log")) == [f"{0:020}.log"]
    disk.append(a_batch(bytes(400)))
    assert len(disk.files(".log")) == 2
    disk.reopen()
    assert disk.log.end_offset == end + 2 and disk.segments.truncated == 0


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
    assert (data / RECOVERY_POINTS).read_text().splitlines()[:2] == ["0", "3"]
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


def test_a_kill_while_a_topic_is_deleted_leaves_nothing_of_it(machine: Machine) -> None:
    machine.produce(a_batch(b"a"))
    data = machine.folder.path
    machine.folder.abandon()
    (data / "t-0").rename(data / "gone-0.0123-delete")
    (data / "stranger-0").mkdir()
    (data / "stranger-0" / "partition.metadata").write_text("version: 0\n")
    (data / "not-kafka's").mkdir()
    again = Machine(data)
    assert list(again.core.topics.by_name) == ["t"]
    names = sorted(path.name for path in data.iterdir() if path.is_dir())
    assert names[0] == "not-kafka's" and names[1].startswith("stranger-0.") and names[1].endswith("-stray")
    assert names[2:] == ["t-0", "t-1", "t-2"]
    again.folder.abandon()


def test_a_topic_that_the_disk_has_no_room_for_is_not_there(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **others: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        with pytest.raises(KafkaStorageError, match="No space left"):
            machine.core.create_topic("new", 2, {})
    assert "new" not in machine.core.topics.by_name
    again = machine.restart()
    assert list(again.core.topics.by_name) == ["t"]
    assert not (again.folder.path / "new-0").exists()
    again.folder.abandon()


def test_a_producer_id_that_cannot_be_kept_is_not_given(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert machine.ask(request).error_code == KafkaStorageError.code
    assert machine.ask(request).producer_id == 0


def test_a_refusing_disk_is_a_storage_error_to_the_client(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", broken)
        answer = machine.ask(producing(a_batch()))
    assert answer.responses[0].partition_responses[0].error_code == KafkaStorageError.code
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
    with pytest.raises(ConfigurationError, match=r"holds something else \(thesis.tex\)"):
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


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', '{"version": 2, "topics": {}, "next_producer_id": 0}']
)
def test_a_damaged_or_newer_list_of_topics_is_refused_rather_than_forgotten(tmp_path: Path, text: str) -> None:
    opened(tmp_path / "data").close()
    (tmp_path / "data" / "broker.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"broker\.json"):
        opened(tmp_path / "data")


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    for path in (tmp_path / "data", tmp_path / "data" / "below"):
        with pytest.raises(ConfigurationError, match="cannot be used"):
            opened(path)


@pytest.mark.skipif(not Path("/proc/sys/kernel").is_dir(), reason="needs a folder that not even root may write to")
def test_a_folder_that_is_not_writable_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be used.*may write to"):
        opened(Path("/proc/sys/kernel/ottla"))


def test_a_start_that_was_cut_off_before_the_folder_was_ready_can_be_repeated(tmp_path: Path) -> None:
    opened(tmp_path / "data").abandon()
    (tmp_path / "data" / "meta.properties").unlink()
    opened(tmp_path / "data").abandon()


def test_a_synced_folder_notes_how_far_the_disk_has_it(tmp_path: Path) -> None:
    folder = opened(tmp_path / "data")
    stored = folder.create_topic("t", NO_UUID, 1, {})
    log = PartitionLog("t-0", stored.partitions[0].segments, stored.partitions[0].producers, SMALL)
    for i in range(100):
        log.append(idempotent(i), version=NEWEST, timestamp=TODAY)
    points = checkpoints.read_offsets(tmp_path / "data" / RECOVERY_POINTS)
    assert 0 < points["t", 0] < 100, "up to the last full segment"
    folder.close()
    points = checkpoints.read_offsets(tmp_path / "data" / RECOVERY_POINTS)
    assert points["t", 0] == 100
