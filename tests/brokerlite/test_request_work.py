"""Validation in a thread: in order, bounded, and with the settings that the topic has when the batch is appended."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.handlers import produce
from ottla.brokerlite.machines.core import Action, Answer, CloseConnection, HoldConnection
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.requests import request_work
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.compression import Compression
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

INVALID_RECORD, UNKNOWN_TOPIC, TIMED_OUT = 87, 3, 7


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    """A broker's machine that gives even small requests to a thread."""
    machine = Machine(tmp_path / "data", work_at_once=0)
    machine.core.create_topic("t", 3, {})
    yield machine
    machine.folder.abandon()


def acted(machine: Machine) -> list[Action]:
    return machine.core.poll(machine.now)


def codes(action: Action) -> list[int]:
    assert isinstance(action, Answer)
    return [each.error_code for topic in action.message.responses for each in topic.partition_responses]


def begun(job: Job) -> Any:
    """The work of a job, which a thread would now run."""
    return next(job)


def test_a_request_is_held_until_its_work_is_done(machine: Machine) -> None:
    ticket = machine.send(producing(a_batch(b"v")))
    assert acted(machine) == [HoldConnection(ticket, True)]
    [job] = machine.core.jobs()
    work = begun(job)
    assert acted(machine) == [] and machine.log().end_offset == 0
    assert machine.ask(fetching(wait=0)).responses[0].partitions[0].error_code == 0, "others are served"
    work()
    assert machine.log().end_offset == 0, "the thread itself appends no batch"
    with pytest.raises(StopIteration):
        next(job)
    answer, goes_on = acted(machine)
    assert codes(answer) == [0] and goes_on == HoldConnection(ticket, False)
    assert values_of(machine.log().read(0, 2**20)) == [b"v"]


def test_offsets_by_time_are_looked_for_while_others_are_served(machine: Machine) -> None:
    store(machine.log(), a_batch(b"v", b"w"))
    each = ListOffsetsPartition(partition_index=0, timestamp=TODAY + 1)
    ticket = machine.send(
        ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(each,)),)), 9
    )
    assert acted(machine) == [HoldConnection(ticket, True)]
    [job] = machine.core.jobs()
    work = begun(job)
    assert machine.ask(fetching(wait=0)).responses[0].partitions[0].error_code == 0
    work()
    with pytest.raises(StopIteration):
        next(job)
    answer, goes_on = acted(machine)
    assert isinstance(answer, Answer) and goes_on == HoldConnection(ticket, False)
    [found] = answer.message.topics[0].partitions
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, TODAY + 1)


def test_every_record_set_of_a_request_has_its_own_outcome(machine: Machine) -> None:
    ticket = machine.send(producing(a_batch(b"v"), a_batch()[:-1], a_batch(b"w"), b"", partition=0))
    [answer] = machine.poll()
    assert answer.ticket == ticket and codes(answer) == [0, INVALID_RECORD, 0, UNKNOWN_TOPIC]


def test_only_a_few_are_under_way_and_the_others_wait_for_their_turn(machine: Machine) -> None:
    tickets = [machine.send(producing(a_batch(b"%d" % i)), connection=i) for i in range(5)]
    jobs = machine.core.jobs()
    assert len(jobs) == request_work.AT_ONCE
    while jobs:
        work_off(jobs.pop(0))
        jobs += machine.core.jobs()
        assert len(jobs) <= request_work.AT_ONCE
    assert [each.ticket for each in acted(machine) if isinstance(each, Answer)] == tickets
    assert values_of(machine.log().read(0, 2**20)) == [b"%d" % i for i in range(5)]


def test_a_topic_that_is_deleted_meanwhile_takes_nothing(machine: Machine) -> None:
    machine.send(producing(a_batch(b"v")))
    [job] = machine.core.jobs()
    begun(job)()
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    with pytest.raises(StopIteration):
        next(job)
    assert [codes(each) for each in acted(machine) if not isinstance(each, HoldConnection)] == [[UNKNOWN_TOPIC]]


def test_a_topic_that_is_recreated_meanwhile_validates_by_its_own_settings(machine: Machine) -> None:
    ticket = machine.send(producing(a_batch(b"v", key=None)))
    [job] = machine.core.jobs()
    begun(job)()
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    machine.core.create_topic("t", 1, {"cleanup.policy": "compact"})
    with pytest.raises(StopIteration):
        next(job)
    assert HoldConnection(ticket, False) not in acted(machine), "it is validated again"
    [again] = machine.core.jobs()
    work_off(again)
    answer, goes_on = acted(machine)
    assert codes(answer) == [INVALID_RECORD] and goes_on == HoldConnection(ticket, False)
    assert machine.log().end_offset == 0


def test_the_sequences_are_checked_when_the_batch_is_stored(machine: Machine) -> None:
    machine.send(producing(idempotent(0)), connection=1)
    [job] = machine.core.jobs()
    work = begun(job)
    machine.send(producing(idempotent(0)), connection=2)
    [again] = machine.core.jobs()
    work_off(again)
    work()
    with pytest.raises(StopIteration):
        next(job)
    answers = [each for each in acted(machine) if isinstance(each, Answer)]
    assert [codes(each) for each in answers] == [[0], [0]] and machine.log().end_offset == 1, "a retry is stored once"


def test_what_was_received_whole_is_stored_also_if_its_connection_is_gone(machine: Machine) -> None:
    for connection in range(4):
        machine.send(producing(a_batch(b"%d" % connection), acks=0), connection=connection)
        machine.core.disconnected(connection, machine.now)
    machine.poll()
    assert values_of(machine.log().read(0, 2**20)) == [b"0", b"1", b"2", b"3"]


def finish(machine: Machine, job: Job, work: Work) -> list[Job]:
    """Run a piece of work, and its continuation on the loop; the jobs that follow from it."""
    work()
    with pytest.raises(StopIteration):
        machine.core.resume(job, machine.now)
    return machine.core.jobs()


def test_requests_take_turns_and_what_a_piece_has_validated_is_stored_before_the_next(machine: Machine) -> None:
    many = machine.send(producing(a_batch(b"a"), a_batch(b"b"), a_batch(b"c")), connection=1)
    few = [machine.send(producing(a_batch(b"v")), connection=connection) for connection in (2, 3)]
    jobs = machine.core.jobs()
    answered, ends = [], []
    while jobs:
        job = jobs.pop(0)
        jobs += finish(machine, job, begun(job))
        answered += [each.ticket for each in acted(machine) if isinstance(each, Answer)]
        ends.append([machine.log(partition=i).end_offset for i in range(3)])
    assert answered == [*few, many]
    assert ends[0] == [1, 0, 0] and ends[-1] == [3, 1, 1]


def test_no_request_keeps_more_than_one_of_its_record_sets_decompressed(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 20, {"compression.type": "uncompressed"})
    small = a_batch(bytes(1_000_000), compression=Compression.ZSTD)
    tracemalloc.start()
    try:
        machine.send(producing(*[small] * 20))
        [answer] = machine.poll()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        machine.folder.abandon()
    assert codes(answer) == [0] * 20
    assert peak < 6_000_000


@pytest.mark.parametrize("stepped", [0, 3_600_000])
def test_log_append_time_is_when_the_batch_is_appended(machine: Machine, stepped: int) -> None:
    machine.core.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    today = TODAY + stepped
    first = machine.send(producing(a_batch(b"late"), topic="stamped"), connection=1, timestamp=today)
    [job] = machine.core.jobs()
    work = begun(job)
    machine.now += 30
    machine.send(producing(a_batch(b"v"), topic="stamped"), connection=2, timestamp=today + 30_000)
    [other] = machine.core.jobs()
    work_off(other)
    machine.now += 5
    finish(machine, job, work)
    stamps = [batch.max_timestamp for batch in machine.log("stamped").batches()]
    assert stamps == [today + 30_000, today + 35_000]
    assert all(batch.crc_matches and batch.log_append_time for batch in machine.log("stamped").batches())
    [answer] = [each for each in acted(machine) if isinstance(each, Answer) and each.ticket == first]
    assert answer.message.responses[0].partition_responses[0].log_append_time_ms == stamps[1]


def test_more_than_may_wait_is_refused_and_may_be_tried_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = a_batch(b"v")
    monkeypatch.setattr(request_work, "MOST_BYTES", 2 * (len(batch) + produce._RECORD_SET))
    for connection in range(3):
        machine.send(producing(batch), connection=connection)
    *_, answer, goes_on = acted(machine)
    assert codes(answer) == [TIMED_OUT] and goes_on == HoldConnection(3, False)
    assert [codes(each) for each in machine.poll()] == [[0], [0]]
    machine.produce(batch)


def test_record_sets_of_a_waiting_request_count_even_if_they_are_empty(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_work, "MOST_BYTES", 100 * produce._RECORD_SET)
    machine.send(producing(a_batch(b"v"), *[b""] * 200))
    *_, answer, _ = acted(machine)
    assert codes(answer)[0] == TIMED_OUT


def test_a_request_without_an_answer_is_stored_or_costs_its_connection(machine: Machine) -> None:
    machine.send(producing(a_batch(b"v"), acks=0))
    [answer] = machine.poll()
    assert isinstance(answer, Answer) and answer.message is None and machine.log().end_offset == 1
    machine.send(producing(a_batch()[:-1], acks=0))
    [closed] = machine.poll()
    assert isinstance(closed, CloseConnection) and "acks=0" in closed.why


def test_work_that_fails_costs_its_connection_and_nothing_else(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ottla.brokerlite.handlers.produce.validated", lambda *given, **named: 1 // 0)
        ticket = machine.send(producing(a_batch(b"v")))
        assert machine.poll() == [CloseConnection(ticket, "internal error")]
    assert [record.exc_info is not None for record in caplog.records] == [True]
    machine.produce(a_batch(b"w"))


def test_a_job_that_is_given_up_keeps_nothing(machine: Machine) -> None:
    machine.send(producing(a_batch(b"v")))
    [job] = machine.core.jobs()
    begun(job)
    job.close()
    assert machine.log().end_offset == 0
    machine.produce(a_batch(b"w", timestamp=TODAY))
