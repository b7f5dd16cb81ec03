"""Gaps between batches, as compaction leaves them, and how much of the disk a read reads."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.codec.records import read_batches, rebased
from ottla.errors import CorruptMessage, OffsetOutOfRange
from tests.brokerlite.machine import Machine, a_batch, fetching
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.test_storage import OnePartition

FOLDER = Path("/t-0")
BASES = (3, 4, 10, 17, 30, 31, 32, 1000, 5000, 5003)
"""Base offsets of batches that had three records before compaction; each ends before the next begins."""


def gapped(disk: ModelDisk, bases: tuple[int, ...] = BASES, interval: int = 0) -> OnePartition:
    """A segment of single-record batches with these offsets, as another program left it."""
    one = OnePartition(FOLDER, interval=interval, disk=disk)
    disk.write_file(FOLDER / f"{0:020}.log", b"".join(rebased(a_batch(b"%d" % base), base, 0) for base in bases))
    return one


def first_offset(one: OnePartition, offset: int) -> int:
    return next(read_batches(bytes(one.log.read(offset, 1, at_least_one=True)))).base_offset


@pytest.mark.parametrize("interval", [0, 100, 4096])
def test_an_offset_in_a_gap_is_answered_with_the_next_batch(interval: int) -> None:
    one = gapped(ModelDisk(), interval=interval)
    for clean in (False, True):
        one.reopen(clean=clean)
        assert (one.log.start_offset, one.log.end_offset, one.segments.truncated) == (0, 5004, 0)
        assert [batch.base_offset for batch in one.log.batches()] == list(BASES)
        for offset in range(5004):
            assert first_offset(one, offset) == next(base for base in BASES if base >= offset)
        one.close()
    one.append(a_batch(b"next"))
    assert one.log.end_offset == 5005 and first_offset(one, 5004) == 5004


def test_a_gap_between_two_segments_that_kafka_has_compacted_leads_into_the_second() -> None:
    disk = ModelDisk()
    one = gapped(disk, (3, 4))
    disk.write_file(FOLDER / f"{20:020}.log", rebased(a_batch(b"25"), 25, 0))
    for clean in (False, True):
        one.reopen(clean=clean, contiguous=False)
        assert [first_offset(one, offset) for offset in (0, 3, 4, 5, 19, 20, 25)] == [3, 3, 4, 25, 25, 25, 25]
        one.close()


@pytest.mark.parametrize("interval", [0, 100, 4096])
@pytest.mark.parametrize("claimed", [0, 3, 4, 9, 11, 16, 18, 29, 30, 40, 2000, 6000, 2**40, -1, -(2**63)])
def test_a_base_offset_that_goes_back_or_too_far_is_damage_also_among_gaps(interval: int, claimed: int) -> None:
    """A wrong offset within the same gap goes unnoticed; if the next batch contradicts it, that one counts as wrong."""
    disk = ModelDisk()
    one = gapped(disk, interval=interval)
    one.reopen()
    one.close()
    path = FOLDER / f"{0:020}.log"
    size = len(a_batch(b"3")) + len(a_batch(b"4"))
    disk.write(path, size, claimed.to_bytes(8, "big", signed=True))  # of the batch with offset 10
    for name in disk.names(FOLDER):
        if name.endswith("index"):
            disk.unlink(FOLDER / name)
    one.reopen(clean=True, recovery_point=5004)
    if 4 < claimed < 17:
        assert [batch.base_offset for batch in one.log.batches()] == [3, 4, claimed, *BASES[3:]]
    elif 17 < claimed < 30:
        assert [batch.base_offset for batch in one.log.batches()] == [3, 4, claimed, *BASES[4:]]
    else:
        assert [batch.base_offset for batch in one.log.batches()] == [base for base in BASES if base != 10]
        assert [first_offset(one, offset) for offset in (0, 3, 4, 17, 30, 5003)] == [3, 3, 4, 17, 30, 5003]
        with pytest.raises(CorruptMessage):
            first_offset(one, 10)


def test_batches_before_an_offset_are_given_and_those_from_it_on_are_not() -> None:
    disk = ModelDisk()
    one = OnePartition(FOLDER, interval=200, settings=LogSettings(segment_bytes=2000), disk=disk)
    one.append(*(a_batch(*[b"%d" % i] * (1 + i % 3)) for i in range(60)))
    bases = [batch.base_offset for batch in one.log.batches()]
    for up_to in (*bases, one.log.end_offset):
        offset, found = 0, []
        while data := one.log.read(offset, 2**20, at_least_one=True, up_to=up_to):
            batches = list(read_batches(bytes(data)))
            assert sum(len(batch.data) for batch in batches) == len(data), "no batch is cut"
            found += [batch.base_offset for batch in batches]
            offset = batches[-1].next_offset
            if offset >= up_to:
                break
        assert found == [base for base in bases if base < up_to]
    assert not one.log.read(bases[30], 2**20, at_least_one=True, up_to=bases[30])
    assert not one.log.read(bases[30], 2**20, at_least_one=True, up_to=bases[20])
    with pytest.raises(OffsetOutOfRange):
        one.log.read(one.log.end_offset + 1, 1, up_to=5)


# -- reads from the disk


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(Path("/data"), disk=ModelDisk())
    machine.core.create_topic("t", 50, {})
    yield machine


def test_a_fetch_reads_what_it_answers_and_little_more(machine: Machine) -> None:
    disk = machine.disk
    assert isinstance(disk, ModelDisk)
    for partition in range(50):
        machine.produce(*(a_batch(*[bytes(1000)] * 20) for _ in range(3)), partition=partition)
    disk.read_bytes = disk.reads = 0
    answer = machine.ask(fetching(0, partitions=tuple(range(50)), max_bytes=50_000))
    answered = [len(each.records) for topic in answer.responses for each in topic.partitions]
    assert sum(answered) == 50_000 and answered.count(0) == 49
    assert disk.read_bytes < 50_000 + 100 and disk.reads <= 3


def test_a_read_in_the_middle_reads_heads_on_the_way_and_nothing_twice(machine: Machine) -> None:
    disk = machine.disk
    assert isinstance(disk, ModelDisk)
    machine.produce(*(a_batch(bytes(500)) for _ in range(200)))
    disk.read_bytes = 0
    data = machine.log().read(150, 20_000)
    assert len(data) == 20_000
    assert disk.read_bytes < 20_000 + 12 * 27, "at most the heads of the batches between two index entries"


def test_an_answer_is_not_changed_by_later_ones(machine: Machine) -> None:
    machine.produce(*(a_batch(bytes([i]) * 100_000) for i in range(8)))
    held = [machine.log().read(i, 110_000) for i in range(8)]
    for i, data in enumerate(held):
        assert bytes(data)[200:90_000] == bytes([i]) * (90_000 - 200)


def test_a_topic_file_allows_the_gaps_that_kafkas_compaction_leaves(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 1, {})
    machine.folder.close()
    folder = tmp_path / "data" / "t-0"
    for base in (0, 20):
        (folder / f"{base:020}.log").write_bytes(rebased(a_batch(b"%d" % base), base, 0))
    for gaps, code in ((False, CorruptMessage.code), (True, 0)):
        state = json.loads((folder / "topic-0.json").read_bytes())
        state.pop("crc32c", None)  # as in a file that was edited by hand
        (folder / "topic-0.json").write_text(json.dumps(state | ({"gaps": True} if gaps else {})))
        machine = Machine(tmp_path / "data")
        assert machine.ask(fetching(5, wait=0)).responses[0].partitions[0].error_code == code
        machine.folder.close()
