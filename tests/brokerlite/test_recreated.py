"""A topic is deleted and recreated while work for the old topic is queued or running."""

from contextlib import suppress
from pathlib import Path

import pytest

from ottla.brokerlite.machines.jobs import Work
from ottla.codec.records import parse_batch
from ottla.errors import KafkaStorageError
from tests.brokerlite.machine import Machine, a_batch, fetching, values_of, work_off

SMALL = {"segment.bytes": "1024"}


@pytest.fixture
def queued() -> list[Work]:
    return []


@pytest.fixture
def machine(tmp_path: Path, queued: list[Work]) -> Machine:
    """A machine whose chores wait, as they do for the driver's thread."""
    machine = Machine(tmp_path / "data")
    machine.folder._chores._run = queued.append
    return machine


def recreate(machine: Machine, **configs: str) -> None:
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    machine.core.create_topic("t", 1, {key.replace("_", "."): value for key, value in configs.items()})
    machine.produce(a_batch(b"precious"))


def is_whole(machine: Machine) -> bool:
    machine = machine.restart()
    answer = machine.ask(fetching(wait=0)).responses[0].partitions[0]
    machine.folder.abandon()
    return answer.error_code == 0 and values_of(answer.records) == [b"precious"]


def test_the_removal_of_segments_does_not_meet_the_new_ones(machine: Machine, queued: list[Work]) -> None:
    machine.core.create_topic("t", 1, SMALL)
    machine.produce(*(a_batch(b"x" * 400) for _ in range(8)))
    machine.core.set_start_offsets({("t", 0): 4}, lambda refused: None)
    machine.poll()
    assert machine.log().start_offset == 4
    recreate(machine)
    for chore in queued:
        chore()
    assert is_whole(machine)


def test_a_round_of_compaction_does_not_replace_the_new_log(machine: Machine) -> None:
    machine.core.create_topic("t", 1, SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    for i in range(12):
        machine.produce(a_batch(b"%d" % i + b"x" * 400, key=b"k"))
    machine.now += 16
    machine.core.poll(machine.now)
    (job,) = machine.core.jobs()
    next(job)()  # reads the keys
    next(job)()  # writes the remaining records
    recreate(machine, cleanup_policy="compact")
    with suppress(StopIteration, OSError):
        while True:
            try:
                next(job)()
            except OSError as error:
                job.throw(error)
    assert is_whole(machine)


def test_a_topic_that_had_grown_does_not_take_the_new_ones_file(machine: Machine, queued: list[Work]) -> None:
    machine.core.create_topic("t", 1, {})
    machine.core.add_partitions(machine.core.topics.by_name["t"], 2)
    recreate(machine, cleanup_policy="compact")
    for chore in queued:
        chore()
    machine = machine.restart()
    assert machine.core.topics.by_name["t"].configs == {"cleanup.policy": "compact"}
    machine.folder.abandon()


def test_what_a_deleted_topic_would_write_is_refused(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    machine.produce(a_batch(b"old"))
    old = machine.log().segments
    recreate(machine)
    with pytest.raises(KafkaStorageError, match="its topic was deleted"):
        old.append(parse_batch(a_batch(b"late")))
    assert is_whole(machine)


@pytest.mark.parametrize("steps", range(6))
def test_a_topic_that_is_deleted_while_it_is_compacted_is_no_fault(
    machine: Machine, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine.core.create_topic("t", 1, SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    for i in range(12):
        machine.produce(a_batch(b"%d" % i + b"x" * 400, key=b"k"))
    machine.now += 16
    machine.core.poll(machine.now)
    (job,) = machine.core.jobs()
    raised: Exception | None = None
    with suppress(StopIteration):
        for step in range(100):
            if step == steps:
                machine.core.delete_topic(machine.core.topics.by_name["t"])
            work = machine.core.resume(job, machine.now, raised)
            try:
                work()
                raised = None
            except OSError as error:
                raised = error
    assert not caplog.records


def test_what_is_queued_and_under_way_for_a_topic_that_is_deleted_is_no_fault(
    machine: Machine, queued: list[Work], caplog: pytest.LogCaptureFixture
) -> None:
    machine.core.create_topic("t", 1, SMALL)
    machine.produce(*(a_batch(b"x" * 400) for _ in range(8)))
    machine.core.add_partitions(machine.core.topics.by_name["t"], 2)
    machine.core.set_start_offsets({("t", 0): 4}, lambda refused: None)
    machine.poll()
    old = machine.log()
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    for chore in queued:
        chore()
    with pytest.raises(KafkaStorageError, match="its topic was deleted"):
        work_off(old.first_at(0))
    assert not caplog.records
