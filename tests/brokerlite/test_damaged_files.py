"""Damage to any one file of a data folder: the broker starts, names the damage in its log, and serves the rest.

Readers get no wrong record, and an error in place of each missing record.
"""

import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.codec.records import read_batches
from ottla.errors import CorruptMessage, DecodeError
from tests.brokerlite.machine import TODAY, Machine, a_batch, idempotent, work_off
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.test_group_log import commit, offsets
from tests.brokerlite.test_transactions import Producing

DATA = Path("/data")

SMALL = {"segment.bytes": "1024", "index.interval.bytes": "100"}
HOUR = 3_600_000


class Disk(ModelDisk):
    """A disk whose files were all written today."""

    def modified(self, path: Path) -> int:
        return TODAY


@dataclass
class View:
    """The content of a broker, as clients read it.

    Attributes:
        records: topic, partition and offset -> value, and whether a reader of committed records gets it.
        keys: topic, partition and key -> offset of the last record.
        refused: offsets that cannot be read.
        starts: where each partition begins.
        ends: where each partition ends.
        commits: partition -> committed offset.
        times: topic, partition and time -> the first offset of that time.
    """

    records: dict[tuple[str, int, int], tuple[bytes | None, bool]] = field(default_factory=dict)
    keys: dict[tuple[str, int, bytes | None], int] = field(default_factory=dict)
    refused: set[tuple[str, int, int]] = field(default_factory=set)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)
    times: dict[tuple[str, int, int], int | None] = field(default_factory=dict)


def view(machine: Machine) -> View:
    found = View(commits=offsets(machine))
    for name, topic in machine.core.topics.by_name.items():
        for index, log in enumerate(topic.partitions):
            found.starts[name, index], found.ends[name, index] = log.start_offset, log.end_offset
            if not name.startswith("__"):
                read(found, name, index, log)
    return found


def read(found: View, name: str, index: int, log: PartitionLog) -> None:
    aborted = log.segments.aborted(log.start_offset, log.end_offset)
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            batch = next(read_batches(bytes(log.read(offset, 1, at_least_one=True))))
            records = [each for each in batch.records() if each.offset >= offset]
        except (CorruptMessage, DecodeError):
            found.refused.add((name, index, offset))
            offset += 1
            continue
        for record in records if not batch.control else ():
            hidden = any(
                each.producer_id == batch.producer_id and each.first_offset <= record.offset < each.last_offset
                for each in aborted
            )
            found.records[name, index, record.offset] = record.value, not hidden
            found.keys[name, index, record.key] = record.offset
        offset = batch.next_offset
    for time in range(TODAY - HOUR, TODAY + HOUR, HOUR // 4):
        try:
            first = work_off(log.first_at(time))
        except (CorruptMessage, DecodeError):
            continue
        found.times[name, index, time] = None if first is None else first.offset


def populated() -> ModelDisk:
    """A folder with every kind of file, as a broker left it that has ended in good order."""
    disk = Disk()
    machine = Machine(DATA, disk=disk, folder_sync=True)
    machine.core.create_topic("t", 2, SMALL | {"retention.ms": str(48 * HOUR)})
    machine.core.create_topic("keys", 1, SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    machine.core.create_topic("empty", 1, {})
    machine.produce(*(idempotent(i) for i in range(20)), partition=1)
    for i in range(8):
        producer = Producing(machine)
        assert producer.write(b"in transaction %d" % i, b"x" * 100, partition=0) == 0
        assert producer.end(commit=i % 2 == 0) == 0
        machine.produce(a_batch(b"between %d" % i, b"y" * 150, timestamp=TODAY - HOUR + i * HOUR // 4))
    for i in range(20):
        machine.produce(a_batch(b"%d" % i + b"z" * 100, key=b"%d" % (i % 4)), topic="keys")
    for offset in (3, 5, 8):
        commit(machine, offset)
    machine.pass_time(60)
    assert machine.log("keys").segments.states()[0].size, "some of it is compacted"
    machine.core.set_start_offsets({("t", 1): 12}, lambda refused: None)
    machine.poll()
    assert machine.log("t", 1).start_offset == 12
    machine.folder.close()
    return disk


def files(disk: ModelDisk) -> list[Path]:
    folders = [DATA, *(path for name in disk.names(DATA) if disk.is_folder(path := DATA / name))]
    return sorted(
        folder / name for folder in folders for name in disk.names(folder) if not disk.is_folder(folder / name)
    )


Damage = Callable[[bytes], bytes | None]
WHOLE: dict[str, Damage] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut by a byte": lambda data: data[:-1],
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
}


def flipped(bit: int) -> Damage:
    def flip(data: bytes) -> bytes:
        at = bit // 8
        return data[:at] + bytes([data[at] ^ (1 << bit % 8)]) + data[at + 1 :]

    return flip


class Damaged:
    """Starts brokers on damaged copies of one folder."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *, clean: bool) -> None:
        self.caplog = caplog
        self.disk = populated()
        if not clean:
            self.disk.unlink(DATA / ".kafka_cleanshutdown")
        machine = Machine(DATA, disk=copy.deepcopy(self.disk), folder_sync=True)
        self.truth = view(machine)
        assert not self.truth.refused and len(self.truth.records) > 40

    def check(self, path: Path, damage: Damage) -> None:
        disk = copy.deepcopy(self.disk)
        data = damage(disk.read_file(path))
        disk.unlink(path)
        if data is not None:
            disk.write_file(path, data)
        self.caplog.clear()
        machine = Machine(DATA, disk=disk, folder_sync=True)
        self.compare(path, machine)
        machine.pass_time(700)  # retention, compaction and timeouts do no harm either
        self.compare(path, machine)
        machine = machine.restart()
        self.compare(path, machine)
        machine.folder.abandon()

    def compare(self, path: Path, machine: Machine) -> None:
        found, truth, unserved = view(machine), self.truth, machine.core.topics.unserved
        told = self.told(path)
        for place, record in found.records.items():
            assert record == truth.records.get(place, record), (place, told)
        last = {(*key[:2], offset) for key, offset in truth.keys.items()}
        for place in truth.records.keys() - found.records.keys():
            if place[0] == "keys" and place not in last:  # more may be compacted where a new segment was begun
                continue
            before = (*place[:2], place[2] - 1)  # a damaged head may say that its batch ends there
            refused = place in found.refused or before in found.refused
            assert refused or place[0] in unserved, (place, told)
            assert told or refused, place
        for kind in ("starts", "ends", "times"):
            ours, theirs = getattr(found, kind), getattr(truth, kind)
            for key in theirs.keys() - ours.keys():
                assert key[0] in unserved or told, (kind, key)
            for key in theirs.keys() & ours.keys():
                assert ours[key] == theirs[key] or told, (kind, key, ours[key], theirs[key])
                assert kind != "ends" or ours[key] >= theirs[key], "no offset is given twice"
        assert found.commits == truth.commits or told

    def told(self, path: Path) -> list[str]:
        """The lines about the file, its folder or its topic."""
        names = {path.name, path.parent.name, path.parent.name.rpartition("-")[0]} - {""}
        lines = [
            f"{record.getMessage()} {vars(record).get('file', '')} {vars(record).get('folder', '')}"
            for record in self.caplog.records
            if record.levelno >= logging.WARNING
        ]
        return [line for line in lines if any(name in line for name in names)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "clean"), [("gone", True), ("gone", False), ("cut", True)])
def test_a_damaged_file_harms_nothing_but_itself_and_is_told(
    kind: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = Damaged(caplog, clean=clean)
    for path in {(path.parent, path.suffix or path.name): path for path in reversed(files(damaged.disk))}.values():
        damaged.check(path, WHOLE[kind])


@pytest.mark.deep
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", WHOLE)
def test_every_damaged_file_harms_nothing_but_itself_and_is_told(
    kind: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = Damaged(caplog, clean=clean)
    for path in files(damaged.disk):
        damaged.check(path, WHOLE[kind])


def bits(disk: ModelDisk, each: int, rng: Random) -> Iterable[tuple[Path, int]]:
    for path in files(disk):
        data = disk.read_file(path)
        # No CRC covers a base offset: one that is too large may pass for a gap (LIMITS.md).
        unchecked = (
            {bit for start in starts(data) for bit in range(8 * start, 8 * start + 64)}
            if path.suffix == ".log"
            else set()
        )
        size = len(data) * 8
        yield from ((path, bit) for bit in rng.sample(range(size), min(each, size)) if bit not in unchecked)


def starts(data: bytes) -> Iterable[int]:
    """The positions of batches in a log file."""
    at = 0
    for batch in read_batches(data):
        yield at
        at += len(batch.data)


@pytest.mark.slow
def test_a_flipped_bit_harms_nothing_but_its_batch_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    damaged = Damaged(caplog, clean=True)
    for path, bit in bits(damaged.disk, 1, Random(33)):
        damaged.check(path, flipped(bit))


def test_no_flipped_bit_in_the_start_offsets_deletes_records(caplog: pytest.LogCaptureFixture) -> None:
    damaged = Damaged(caplog, clean=True)
    path = DATA / "log-start-offset-checkpoint"
    for at in range(damaged.disk.size(path)):
        disk = copy.deepcopy(damaged.disk)
        disk.write_file(path, flipped(8 * at + at % 7)(disk.read_file(path)) or b"")
        found = view(Machine(DATA, disk=disk, folder_sync=True))
        assert found.records.items() >= damaged.truth.records.items() and not found.refused


@pytest.mark.deep
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_many_flipped_bits_harm_nothing_but_their_batches_and_are_told(
    seed: int, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = Damaged(caplog, clean=clean)
    for path, bit in bits(damaged.disk, 3, Random(seed)):
        damaged.check(path, flipped(bit))
