"""Start offsets: deleted records never come back, whatever happens afterwards."""

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ottla.brokerlite.machines.jobs import Work
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.errors import KafkaStorageError
from tests.brokerlite.machine import TODAY, Machine, a_batch, work_off
from tests.brokerlite.model_disk import ModelDisk

DATA = Path("/data")
SMALL = {"segment.bytes": "1024", "retention.ms": "-1"}


@pytest.fixture
def disk() -> ModelDisk:
    return ModelDisk()


@pytest.fixture
def machine(disk: ModelDisk) -> Machine:
    """A machine with a topic of ten batches in five segments; chores wait, as they do for the driver's thread."""
    machine = Machine(DATA, disk=disk)
    machine.folder._chores._run = list[Work]().append
    machine.core.create_topic("t", 1, SMALL)
    machine.produce(*(a_batch(b"x" * 400) for _ in range(10)))
    return machine


def delete(machine: Machine, offset: int) -> tuple[int, int]:
    """Error and low watermark."""
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(asked,)),), timeout_ms=1000)
    ((answer,),) = (each.partitions for each in machine.ask(request).topics)
    return answer.error_code, answer.low_watermark


def offsets(machine: Machine) -> list[int]:
    return [batch.base_offset for batch in machine.log().batches()]


@pytest.mark.parametrize("offset", [1, 4, 5, 10])
def test_what_was_deleted_does_not_come_back_after_a_kill(machine: Machine, offset: int) -> None:
    assert delete(machine, offset) == (0, offset)
    machine = machine.restart(clean=False)
    assert (machine.log().start_offset, machine.log().end_offset) == (offset, 10)
    machine = machine.restart()
    assert (machine.log().start_offset, machine.log().end_offset) == (offset, 10)


def test_nor_does_what_expired(machine: Machine) -> None:
    machine.core.create_topic("u", 1, SMALL | {"retention.ms": "1000"})
    machine.produce(*(a_batch(b"x" * 400, timestamp=TODAY - 5000) for _ in range(10)), topic="u")
    machine.pass_time(301)
    assert machine.log("u").start_offset == 10
    assert machine.restart(clean=False).log("u").start_offset == 10


def test_nor_what_a_round_of_compaction_has_made_of_it(disk: ModelDisk) -> None:
    machine = Machine(DATA, disk=disk)
    machine.folder._chores._run = list[Work]().append
    compacted = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}
    machine.core.create_topic("t", 1, SMALL | compacted)
    for i in range(12):
        machine.produce(a_batch(b"%d" % i + b"x" * 400, key=b"k"))
    machine.now += 16
    machine.core.poll(machine.now)
    (job,) = machine.core.jobs()
    next(job)()  # reads the keys
    next(job)()  # writes the remaining records, and renames the file
    assert any(name.endswith(".swap") for name in disk.names(DATA / "t-0"))
    assert delete(machine, -1) == (0, 12)
    machine = machine.restart(clean=False)
    assert (machine.log().start_offset, machine.log().end_offset) == (12, 12)
    assert [name for name in disk.names(DATA / "t-0") if ".log" in name] == [f"{10:020}.log"]


def test_segments_of_which_only_the_first_is_left_leave_the_rest_of_the_log_whole(
    machine: Machine, disk: ModelDisk
) -> None:
    first = disk.read_file(DATA / "t-0" / f"{0:020}.log")
    assert delete(machine, 6) == (0, 6)
    machine.folder.close()
    for base in (0, 2, 4):
        disk.unlink(DATA / "t-0" / f"{base:020}.log")
    disk.write_file(DATA / "t-0" / f"{0:020}.log", first)
    disk.unlink(DATA / ".kafka_cleanshutdown")
    disk.unlink(DATA / "recovery-point-offset-checkpoint")
    machine = Machine(DATA, disk=disk, folder_sync=True)
    assert offsets(machine) == [6, 7, 8, 9] and machine.log().start_offset == 6


def test_a_topic_does_not_begin_where_another_of_its_name_did_that_was_deleted_just_before_a_kill(
    machine: Machine,
) -> None:
    assert delete(machine, 6) == (0, 6)
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    machine = machine.restart(clean=False)
    machine.core.create_topic("t", 1, SMALL)
    machine.produce(a_batch(b"a"), a_batch(b"b"))
    machine = machine.restart(clean=False)
    assert machine.log().start_offset == 0 and offsets(machine) == [0, 1]


def test_on_a_full_disk_whole_segments_go_and_make_room_for_the_note_that_records_do(
    machine: Machine, disk: ModelDisk
) -> None:
    disk.room = 0
    assert delete(machine, 1) == (KafkaStorageError.code, 0), "no segment could make room"
    assert machine.log().start_offset == 0
    assert delete(machine, 5) == (0, 5)
    machine = machine.restart(clean=False)
    assert (machine.log().start_offset, machine.log().end_offset) == (5, 10)


@pytest.mark.parametrize("seed", range(20))
def test_what_makes_room_on_a_full_disk_leaves_no_hole_when_the_power_goes(seed: int) -> None:
    disk = ModelDisk(Random(seed))
    machine = Machine(DATA, disk=disk, folder_sync=True)
    machine.core.create_topic("t", 1, SMALL)
    machine.produce(*(a_batch(b"x" * 400) for _ in range(10)))
    machine.folder.begin_flush()()
    disk.sync_folder(DATA.parent)
    disk.room = 0
    machine.core.set_start_offsets({("t", 0): 9}, lambda refused: None)
    (deletion,) = machine.core.jobs()
    with pytest.raises(OSError) as refused:
        next(deletion)()
    deletion.throw(refused.value)()  # deletes whole segments
    disk.room = None
    disk.power_cut()
    machine = machine.restart(clean=False)
    assert machine.log().end_offset == 10
    assert offsets(machine) == list(range(machine.log().start_offset, 10))


def test_nobody_sees_where_a_log_begins_before_the_disk_does(machine: Machine, disk: ModelDisk) -> None:
    disk.fails = lambda operation, path: path.name.startswith("log-start-offset-checkpoint")
    assert delete(machine, 1) == (KafkaStorageError.code, 0)
    assert machine.log().start_offset == 0 and offsets(machine)[0] == 0
    disk.fails = lambda operation, path: False
    assert delete(machine, 3) == (0, 3)


@pytest.mark.parametrize("offset", [1, 5])
def test_what_the_disk_refused_to_delete_stays_there(machine: Machine, disk: ModelDisk, offset: int) -> None:
    disk.fails = lambda operation, path: path.name.startswith("log-start-offset-checkpoint")
    assert delete(machine, offset) == (KafkaStorageError.code, 0)
    disk.fails = lambda operation, path: False
    machine.folder.note_cleaned()()  # as the next roll does
    machine = machine.restart(clean=False)
    assert machine.log().start_offset == 0 and offsets(machine) == list(range(10))


def test_a_refusal_on_a_full_disk_tells_which_segments_are_gone_even_so(machine: Machine, disk: ModelDisk) -> None:
    def full(operation: str, path: Path) -> bool:
        if path.name.startswith("log-start-offset-checkpoint"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return False

    disk.fails = full
    assert delete(machine, 5) == (KafkaStorageError.code, 4)
    assert machine.log().start_offset == 4 and offsets(machine)[0] == 4


def test_one_that_the_disk_refuses_takes_nothing_back_from_another(machine: Machine, disk: ModelDisk) -> None:
    refused: list[OSError | None] = []
    machine.core.set_start_offsets({("t", 0): 3}, refused.append)
    machine.core.set_start_offsets({("t", 0): 3}, refused.append)
    first, second = machine.core.jobs()
    next(first)
    work = next(second)
    with suppress(StopIteration):
        first.throw(OSError(errno.EIO, "Input/output error"))
    work()
    work_off(second)
    assert [each is None for each in refused] == [False, True]
    assert machine.restart(clean=False).log().start_offset == 3


def test_two_that_delete_at_once_forget_nothing_of_each_other(machine: Machine) -> None:
    machine.core.create_topic("u", 1, SMALL)
    machine.produce(a_batch(b"a"), a_batch(b"b"), topic="u")
    machine.core.set_start_offsets({("t", 0): 3}, lambda refused: None)
    machine.core.set_start_offsets({("u", 0): 1}, lambda refused: None)
    jobs = list(machine.core.jobs())
    works = [next(job) for job in jobs]
    assert (machine.log().start_offset, machine.log("u").start_offset) == (0, 0)
    for work in reversed(works):
        work()
    machine = machine.restart(clean=False)
    assert (machine.log().start_offset, machine.log("u").start_offset) == (3, 1)


def test_segments_that_go_at_once_take_none_with_them_that_compaction_has_made_of_them_and_others(
    machine: Machine, disk: ModelDisk
) -> None:
    compacted = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}
    machine.core.create_topic("u", 1, SMALL | compacted)
    for i in range(12):
        machine.produce(a_batch(b"x" * 400, key=b"%d" % max(5, i)), topic="u")
    machine.pass_time(16)  # from now on, the remaining records of the first segments fit into one
    for i in range(12, 20):
        machine.produce(a_batch(b"x" * 400, key=b"%d" % i), topic="u")
    machine.now += 16
    machine.core.poll(machine.now)
    (compaction,) = machine.core.jobs()
    next(compaction)()  # reads the keys
    next(compaction)()  # writes the remaining records
    disk.room = 0
    machine.core.set_start_offsets({("u", 0): 4}, lambda refused: None)
    (deletion,) = machine.core.jobs()
    with pytest.raises(OSError) as refused:
        next(deletion)()
    disk.room = None
    remove = deletion.throw(refused.value)
    work_off(compaction)
    remove()
    work_off(deletion)
    kept = [record.offset for batch in machine.log("u").batches() for record in batch.records()]
    assert kept == list(range(5, 20))


def test_a_topic_that_is_deleted_while_retention_is_looked_at_keeps_nothing_else_from_going(machine: Machine) -> None:
    expires = SMALL | {"retention.ms": "1000"}
    machine.core.create_topic("many", 600, expires)
    machine.core.create_topic("last", 1, expires)
    for topic, partition in (("many", 0), ("many", 599), ("last", 0)):
        old = a_batch(b"x" * 800, timestamp=TODAY - 5000)
        machine.produce(old, old, topic=topic, partition=partition)
    machine.now += 300
    machine.core.poll(machine.now)
    machine.core.delete_topic(machine.core.topics.by_name["many"])
    machine.pass_time(1)
    assert machine.log("last").start_offset == 2
