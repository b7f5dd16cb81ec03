"""Data that a partition keeps beside its batches: start offset, aborted transactions, and how far it is synced."""

import gc
import logging
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog, Segments
from ottla.brokerlite.storage.data_folder import DataFolder
from ottla.codec.stored.indexes import AbortedTxn
from ottla.codec.wire import NO_UUID
from ottla.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from tests.brokerlite.machine import a_batch, idempotent, records_of, store, values_of, work_off
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.test_storage import SMALL, OnePartition

DATA, FOLDER = Path("/data"), Path("/t-0")


class Kept:
    """A data folder on a model of a disk, with a topic of three partitions."""

    def __init__(self, disk: ModelDisk | None = None) -> None:
        self.disk = disk or ModelDisk()
        self.chores: list[Work] = []
        self.folder = DataFolder(DATA, index_interval_bytes=200, chore=self.chores.append, disk=self.disk)
        self.folder.open(1, None)
        if not list(self.folder.topics()):
            self.folder.create_topic("t", NO_UUID, 3, {})
        self.work()
        (stored,) = self.folder.topics()
        self.segments: list[Segments] = [each.segments for each in stored.partitions]
        self.logs = [PartitionLog("t", each.segments, each.producers, SMALL) for each in stored.partitions]

    def work(self) -> None:
        while self.chores:
            self.chores.pop(0)()

    def append(self, partition: int, *values: bytes) -> None:
        for value in values:
            store(self.logs[partition], a_batch(value))

    def delete_before(self, offset: int) -> None:
        """Delete the records of the first partition up to an offset."""
        refused: list[OSError | None] = []
        work_off(self.folder.set_start_offsets({("t", 0): offset}, refused.append))
        assert refused == [None]

    def ends(self) -> list[int]:
        return [log.end_offset for log in self.logs]


# -- start offset


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [0, 1, 5, 7, 29, 30])
def test_records_before_the_start_offset_are_gone_for_good(offset: int, clean: bool) -> None:
    kept = Kept()
    kept.append(0, *(b"%d" % i + bytes(700) for i in range(30)))
    kept.append(1, b"other")
    before = len(kept.disk.files(DATA / "t-0", ".log"))
    assert before > 5
    kept.delete_before(offset)
    kept.work()
    for _ in range(2):
        log = kept.logs[0]
        assert (log.start_offset, log.end_offset) == (offset, 30) and kept.ends()[1] == 1
        for gone in range(offset):
            with pytest.raises(OffsetOutOfRange):
                log.read(gone, 1)
        for there in range(offset, 30):
            assert records_of(log.read(there, 1, at_least_one=True))[0].offset <= there
        first = work_off(log.first_at(0))
        assert (first and first.offset) == (offset if offset < 30 else None)
        names = sorted(kept.disk.files(DATA / "t-0", ".log"))
        assert all(int(name[:20]) > offset for name in names[1:]), "segments wholly before it are removed"
        assert not offset or min(int(name[:20]) for name in names) <= offset
        (kept.folder.close if clean else kept.folder.abandon)()
        kept = Kept(kept.disk)
    if offset:
        assert f"\nt 0 {offset}\n".encode() in kept.disk.read_file(DATA / "log-start-offset-checkpoint")


def test_a_start_offset_never_goes_back_nor_behind_the_end() -> None:
    kept = Kept()
    kept.append(0, *[b"a"] * 5)
    for offset, start in ((3, 3), (2, 3), (-1, 3), (99, 5)):
        kept.delete_before(offset)
        assert kept.logs[0].start_offset == start
    kept.append(0, b"b")
    assert (kept.logs[0].start_offset, kept.logs[0].end_offset) == (5, 6)


def test_the_offsets_of_a_deleted_topic_are_not_taken_for_those_of_another_of_its_name() -> None:
    kept = Kept()
    kept.append(0, *[b"old"] * 5)
    kept.delete_before(3)
    kept.work()
    kept.folder.delete_topic("t")
    kept.folder.create_topic("t", uuid4(), 1, {})
    (stored,) = kept.folder.topics()
    log = PartitionLog("t", stored.partitions[0].segments)
    store(log, a_batch(*[b"new"] * 9))
    kept.folder.abandon()
    kept.disk.crash()
    log = Kept(kept.disk).logs[0]
    assert (log.start_offset, log.end_offset) == (0, 9)


# -- reading


def test_a_reader_that_goes_on_does_not_look_for_its_place_again() -> None:
    disk = ModelDisk()
    one = OnePartition(FOLDER, interval=2**20, settings=LogSettings(), disk=disk)
    for offset in range(100):  # the log has so few bytes that its index is empty
        one.append(a_batch(b"%d" % offset))
        disk.reads = 0
        assert values_of(one.log.read(offset, 2**20)) == [b"%d" % offset]
        assert disk.reads <= 2
    assert values_of(one.log.read(50, 2**20))[0] == b"50"
    disk.reads = 0
    assert values_of(one.log.read(51, 2**20))[0] == b"51" and disk.reads <= 3


def test_a_batch_that_is_damaged_behind_the_last_that_was_read_is_not_given() -> None:
    one = OnePartition(FOLDER, interval=2**20, settings=LogSettings(), disk=ModelDisk())
    one.append(*(a_batch(b"%d" % offset) for offset in range(4)))
    size = len(a_batch(b"0"))
    assert values_of(one.log.read(0, size)) == [b"0"]
    [log] = one.files(".log")
    one.disk.write(FOLDER / log, size, bytes(8))  # a base offset of 0 again, which cannot be right
    with pytest.raises(CorruptMessage):
        one.log.read(1, size)


# -- aborted transactions


def aborted(one: OnePartition, first_offset: int, upper_bound: int) -> list[int]:
    return [entry.producer_id for entry in one.segments.aborted(first_offset, upper_bound)]


def an_abort(producer_id: int, first: int, last: int, stable: int) -> AbortedTxn:
    return AbortedTxn(producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable)


def test_a_reader_is_told_the_aborted_transactions_that_reach_into_what_it_reads() -> None:
    one = OnePartition(FOLDER, disk=ModelDisk())
    entries = [an_abort(1, 0, 10, 5), an_abort(2, 5, 12, 8), an_abort(3, 8, 20, 8), an_abort(4, 25, 30, 31)]
    for entry in entries:
        one.append(*(a_batch(bytes(300)) for _ in range(entry.last_offset + 1 - one.log.end_offset)))
        one.segments.add_aborted(entry)
        one.segments.add_aborted(entry)
    assert len(one.files(".txnindex")) > 2, "each in the segment of its marker"
    for _ in range(2):
        assert aborted(one, 0, 31) == [1, 2, 3, 4]
        assert aborted(one, 11, 31) == [2, 3, 4]
        assert aborted(one, 21, 31) == [4]
        assert aborted(one, 0, 25) == [1, 2, 3]
        assert aborted(one, 0, 5) == [1], "the last stable offset there ends the search"
        assert aborted(one, 31, 40) == []
        one.close()
        one.reopen(clean=True, recovery_point=31)
    written = one.files(".txnindex")
    one.segments.remove(one.segments.set_start_offset(21))
    assert aborted(one, 21, 31) == [4]
    assert len(one.files(".txnindex")) < len(written), "it goes with its segment"


@pytest.mark.parametrize("seed", range(20))
def test_a_bound_lies_behind_whatever_was_read_and_not_far(seed: int) -> None:
    rng = random.Random(seed)
    one = OnePartition(FOLDER, disk=ModelDisk(), interval=rng.choice([1, 100, 500]))
    sizes = [rng.choice([1, 100, 400]) for _ in range(60)]
    one.append(*(a_batch(bytes(size)) for size in sizes))
    far = 0
    for offset in range(60):
        read = one.segments.read(offset, rng.choice([1, 300, 2_000]), True)
        bound, end = one.segments.bound(offset, len(read)), offset + len(values_of(bytes(read)))
        assert end <= bound <= 60
        far = max(far, bound - end)
    assert far < 30, "otherwise all transactions aborted later would be named"
    assert one.segments.bound(60, 100) == 60


@pytest.mark.parametrize("seed", range(20))
def test_aborted_transactions_are_those_that_kafka_would_tell(seed: int) -> None:
    """Compared with a plain form of the rule: all entries in order, up to one with a last stable offset far enough."""
    rng = random.Random(seed)
    one = OnePartition(FOLDER, disk=ModelDisk())
    entries: list[AbortedTxn] = []
    for producer_id in range(30):
        one.append(*(a_batch(bytes(rng.randint(0, 900))) for _ in range(rng.randint(1, 4))))
        last = one.log.end_offset - 1
        first = rng.randint(0, last)
        entries.append(
            an_abort(producer_id, first, last, rng.randint(entries[-1].last_stable_offset, last + 1) if entries else 0)
        )
        one.segments.add_aborted(entries[-1])
    for _ in range(50):
        first_offset = rng.randint(0, one.log.end_offset)
        upper_bound = rng.randint(first_offset + 1, one.log.end_offset + 1)
        expected = []
        for entry in entries:
            if entry.last_offset >= first_offset and entry.first_offset < upper_bound:
                expected.append(entry.producer_id)
            if entry.last_stable_offset >= upper_bound:
                break
        assert aborted(one, first_offset, upper_bound) == expected


INDEX_DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:-1],
    "an entry less": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + bytes(33),
    "of a later version": lambda data: data + b"\0\7" + bytes(32),
    "zeros": lambda data: bytes(len(data)),
    "a bit": lambda data: data[:17] + bytes([data[17] ^ 64]) + data[18:],
    "a bit of the last": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".txnindex", ".aborted"])
@pytest.mark.parametrize("damage", INDEX_DAMAGES)
def test_a_damaged_index_of_aborted_transactions_is_made_again_from_its_copy(
    damage: str, suffix: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = ModelDisk()
    one = OnePartition(FOLDER, disk=disk)
    for last in (2, 5):
        one.append(*(idempotent(last - 2 + i) for i in range(3)))
        one.segments.add_aborted(an_abort(1, last - 2, last, last - 2))
    one.close()
    path = FOLDER / f"{0:020}{suffix}"
    whole = {each: one.files(each) for each in (".txnindex", ".aborted")}
    before = disk.read_file(path)
    damaged = INDEX_DAMAGES[damage](before)
    disk.unlink(path)
    if damaged is not None:
        disk.write_file(path, damaged)
    one.reopen(clean=clean, recovery_point=6)
    assert aborted(one, 0, 6) == [1, 1]
    assert {each: one.files(each) for each in whole} == whole
    told = [vars(record)["file"] for record in caplog.records if "aborted transactions is damaged" in record.message]
    normal = damaged is not None and damaged.startswith(before)  # a kill leaves a part of an entry
    no_copy = suffix == ".aborted" and not damaged  # as an earlier version of the broker leaves it
    assert told == ([] if normal or no_copy else [str(path)])


def test_an_index_of_aborted_transactions_counts_where_the_log_has_lost_their_markers() -> None:
    one = OnePartition(FOLDER, disk=ModelDisk())
    one.append(*(idempotent(i) for i in range(40)))
    entry = an_abort(7, 0, 20, 0)
    one.segments.add_aborted(entry)
    one.close()
    (name,) = one.files(".txnindex")
    one.disk.unlink(FOLDER / name.replace(".txnindex", ".log"))
    for clean in (True, False):
        one.reopen(clean=clean, recovery_point=40)
        assert one.segments.aborted(0, 10) == [entry]


def test_what_a_reader_at_the_end_needs_to_know_costs_the_same_after_many_aborted_transactions() -> None:
    looked_at = []

    class Looked(list[AbortedTxn]):
        def __getitem__(self, at: Any) -> Any:
            looked_at.append(at)
            return super().__getitem__(at)

    one = OnePartition(FOLDER, disk=ModelDisk())
    one.append(*(idempotent(i) for i in range(10)))
    one.segments.active.txn_index._entries = Looked(an_abort(1, i, i, i) for i in range(100_000))
    assert [each.last_offset for each in one.segments.aborted(99_998, 100_001)] == [99_998, 99_999]
    assert len(looked_at) < 50, "a binary search finds it"


# -- flushes


def test_a_flush_has_the_disk_hold_what_was_stored_before_it_began() -> None:
    kept = Kept()
    kept.append(0, b"a", b"b")
    kept.append(1, b"c")
    flush = kept.folder.begin_flush()
    kept.append(0, b"d")
    kept.append(2, b"e")
    flush()
    assert [each.synced_offset for each in kept.segments] == [2, 1, 0]
    kept.folder.begin_flush()()
    assert [each.synced_offset for each in kept.segments] == [3, 1, 1]
    for seed in range(20):
        kept.disk._rng = random.Random(seed)
        kept.disk.power_cut()
        kept = Kept(kept.disk)
        assert kept.ends() == [3, 1, 1]


def test_a_flush_of_some_partitions_does_not_wait_for_the_others() -> None:
    kept = Kept()
    kept.folder.begin_flush()()
    kept.append(0, *[b"a"] * 3)
    kept.append(1, *[b"b"] * 3)
    kept.disk.fails = lambda operation, path: operation == "sync" and path.parent.name != "t-1"
    kept.folder.begin_flush([kept.segments[1]])()
    assert [each.synced_offset for each in kept.segments] == [0, 3, 0]


def test_a_flush_with_nothing_to_do_does_nothing() -> None:
    kept = Kept()
    kept.append(0, b"a")
    kept.folder.begin_flush()()
    before = kept.disk.operations
    kept.folder.begin_flush()()
    assert kept.disk.operations == before


@pytest.mark.parametrize("failing", ["t-1", "data"])
def test_a_flush_that_fails_says_so_and_its_partition_takes_nothing_more(failing: str) -> None:
    kept = Kept()
    for partition in range(3):
        kept.append(partition, b"a")
    kept.disk.fails = lambda operation, path: (
        (operation, path.parent.name) == ("sync", failing) or (operation, path.name) == ("sync_folder", failing)
    )
    if failing == "data":
        kept.folder.create_topic("u", NO_UUID, 1, {})
    flush = kept.folder.begin_flush()
    with pytest.raises(OSError, match="Input/output error"):
        flush()
    kept.disk.fails = lambda operation, path: False
    if failing == "data":
        flush = kept.folder.begin_flush()
        flush()
        assert [each.synced_offset for each in kept.segments] == [1, 1, 1]
        return
    assert [each.synced_offset for each in kept.segments] == [1, 0, 1]
    kept.append(0, b"b")
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            kept.append(1, b"b")
    assert kept.ends() == [2, 1, 1] and records_of(kept.logs[1].read(0, 100))[0].value == b"a"


def test_an_error_that_is_kept_holds_nothing_that_the_flush_had_in_its_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("ottla.brokerlite"), "disabled", True)  # pytest keeps log records
    kept = Kept()
    store(kept.logs[0], a_batch())
    held: list[weakref.ref[Held]] = []

    def fails(operation: str, path: Path) -> bool:
        file = Held()
        held.append(weakref.ref(file))
        if operation == "sync" and path.suffix == ".log":
            raise OSError("the disk failed")
        return False

    kept.disk.fails = fails
    with pytest.raises(OSError):
        kept.folder.begin_flush()()
    kept.disk.fails = lambda operation, path: False
    with pytest.raises(KafkaStorageError, match="the disk failed"):
        store(kept.logs[0], a_batch())
    gc.collect()
    assert [each for each in held if each() is not None] == []


class Held:
    """Stands for an open file."""
