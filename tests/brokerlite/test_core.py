"""The whole broker's machine: which requests wait for what, and until when."""

from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.core import Answer, Call, CloseConnection, HoldConnection
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.frames import RequestHeader
from ottla.errors import OffsetOutOfRange, RemoteProtocolError, UnknownTopicOrPartition
from tests.brokerlite.machine import Machine, a_batch, a_session, fetching, producing, values_of, work_off


def test_a_fetch_with_something_to_read_is_answered_at_once(machine: Machine) -> None:
    machine.produce(a_batch(b"a"))
    assert values_of(machine.ask(fetching()).responses[0].partitions[0].records) == [b"a"]
    assert machine.is_idle


def test_a_fetch_at_the_end_waits_and_is_answered_by_the_next_record(machine: Machine) -> None:
    fetch = machine.send(fetching())
    assert machine.poll() == [] and machine.core.deadline == machine.now + 0.5
    produce = machine.send(producing(a_batch(b"a")))
    answers = {action.ticket: action for action in machine.poll()}
    assert set(answers) == {fetch, produce}
    waited = answers[fetch]
    assert isinstance(waited, Answer)
    assert values_of(waited.message.responses[0].partitions[0].records) == [b"a"]
    assert machine.is_idle


def test_a_fetch_without_new_records_gets_an_empty_response_at_its_deadline(machine: Machine) -> None:
    fetch = machine.send(fetching(wait=0.5))
    machine.now += 0.499
    assert machine.poll() == []
    machine.now += 0.001
    (action,) = machine.poll()
    assert isinstance(action, Answer) and action.ticket == fetch
    assert action.message.responses[0].partitions[0].records == b""


def test_a_fetch_waits_no_longer_than_the_session_of_its_client(machine: Machine) -> None:
    """Otherwise it would get records that are written after the end of the session, up to 24 days later."""
    ticket = machine.send(fetching(wait=2**31 / 1000), session_ends_at=machine.now + 2.0)
    machine.pass_time(1.9)
    assert not machine.poll()
    machine.now += 0.1
    (answer,) = machine.poll()
    assert isinstance(answer, Answer) and answer.ticket == ticket
    assert machine.is_idle


def test_a_fetch_waits_until_as_many_bytes_are_there_as_it_wants(machine: Machine) -> None:
    size = len(a_batch(b"a"))
    machine.produce(a_batch(b"a"))
    fetch = machine.send(fetching(min_bytes=3 * size))
    machine.send(producing(a_batch(b"b"), partition=1))
    assert [action.ticket for action in machine.poll()] == [fetch + 1], "another partition does not count"
    machine.send(producing(a_batch(b"b")))
    assert [action.ticket for action in machine.poll()] == [fetch + 2]
    machine.send(producing(a_batch(b"c")))
    answers = {action.ticket: action for action in machine.poll()}
    waited = answers[fetch]
    assert isinstance(waited, Answer)
    assert values_of(waited.message.responses[0].partitions[0].records) == [b"a", b"b", b"c"]


def test_a_fetch_of_several_partitions_is_woken_by_any(machine: Machine) -> None:
    fetch = machine.send(fetching(partitions=(0, 1, 2)))
    machine.send(producing(a_batch(b"a"), partition=2))
    answers = {action.ticket: action for action in machine.poll()}
    waited = answers[fetch]
    assert isinstance(waited, Answer)
    assert [values_of(p.records) for p in waited.message.responses[0].partitions] == [[], [], [b"a"]]


def test_a_repeated_batch_wakes_no_fetch(machine: Machine) -> None:
    batch = a_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    machine.produce(batch)
    machine.send(fetching(1))
    produce = machine.send(producing(batch))
    assert [action.ticket for action in machine.poll()] == [produce]


def test_a_fetch_with_an_error_does_not_wait(machine: Machine) -> None:
    machine.produce(a_batch(b"a"))
    for request, code in (
        (fetching(topic="no-such"), UnknownTopicOrPartition.code),
        (fetching(partitions=(0, 9)), UnknownTopicOrPartition.code),
        (fetching(7), OffsetOutOfRange.code),
    ):
        assert machine.ask(request).responses[0].partitions[-1].error_code == code


def test_a_fetch_with_a_max_wait_of_0_or_without_partitions_does_not_wait(machine: Machine) -> None:
    machine.ask(fetching(wait=0))
    machine.ask(fetching(min_bytes=0))
    machine.ask(fetching(partitions=()))
    request = fetching()
    request.topics = ()
    assert machine.ask(request).responses == ()


def joining(group_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )


def deleting_records(offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=1000)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(fetching(1), 12), (joining("g"), 3), (deleting_records(1), 2)],
    ids=["Fetch", "JoinGroup", "DeleteRecords"],
)
def test_a_request_whose_answer_comes_later_holds_its_connection_until_then(
    tmp_path: Path, request_: Any, version: int
) -> None:
    machine = Machine(tmp_path / "data", groups=GroupSettings(initial_rebalance_delay=1))
    machine.core.create_topic("t", 1, {})
    machine.produce(a_batch(b"a"))
    ticket = machine.send(request_, version)
    held, *early = machine.core.poll(machine.now)
    assert (held, early) == (HoldConnection(ticket, True), [])
    for job in machine.core.jobs():
        work_off(job)
    machine.now += 10
    answer, goes_on = machine.core.poll(machine.now)
    assert isinstance(answer, Answer) and answer.ticket == ticket and goes_on == HoldConnection(ticket, False)
    machine.folder.abandon()


def test_an_answer_that_waits_for_the_disk_holds_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", sync=True)
    machine.core.create_topic("t", 1, {})
    for _ in range(2):
        machine.send(producing(a_batch(b"a")))
    assert machine.core.poll(machine.now) == [] and machine.log().end_offset == 2
    machine.folder.abandon()


def test_the_oldest_deadline_comes_first(machine: Machine) -> None:
    late = machine.send(fetching(wait=2))
    early = machine.send(fetching(wait=1), connection=2)
    assert machine.core.deadline == machine.now + 1
    machine.now += 1
    assert [action.ticket for action in machine.poll()] == [early]
    assert machine.core.deadline == machine.now + 1
    machine.now += 1
    assert [action.ticket for action in machine.poll()] == [late]


def test_requests_of_a_closed_connection_stop_waiting(machine: Machine) -> None:
    machine.send(fetching(), connection=1)
    other = machine.send(fetching(), connection=2)
    machine.core.disconnected(1, machine.now)
    machine.core.disconnected(1, machine.now)
    machine.now += 1
    assert [action.ticket for action in machine.poll()] == [other]
    machine.produce(a_batch(b"a"))


def test_requests_that_wait_for_a_deleted_topic_get_its_error(machine: Machine) -> None:
    fetch = machine.send(fetching())
    machine.send(DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000), 5)
    answers = {action.ticket: action for action in machine.poll()}
    waited = answers[fetch]
    assert isinstance(waited, Answer)
    assert waited.message.responses[0].partitions[0].error_code == UnknownTopicOrPartition.code


def test_a_drain_answers_all_waiting_requests(machine: Machine) -> None:
    tickets = {machine.send(fetching(wait=60), connection=i) for i in range(3)}
    machine.core.drain(machine.now)
    assert {action.ticket for action in machine.poll()} == tickets
    assert machine.core.deadline is None
    machine.ask(fetching(wait=60))


def test_an_answer_that_fails_closes_its_own_connection_and_no_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = machine.send(fetching())

    def broken(*args: object, **others: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(machine.log(), "read", broken)
    produce = machine.send(producing(a_batch()))
    first, second = machine.poll()
    assert isinstance(first, CloseConnection) and first.ticket == fetch
    assert isinstance(second, Answer) and second.ticket == produce


def test_acks_0_gets_no_answer_and_a_closed_connection_if_it_failed(machine: Machine) -> None:
    machine.send(producing(a_batch(b"a"), acks=0))
    (action,) = machine.poll()
    assert isinstance(action, Answer) and action.message is None
    assert machine.log().end_offset == 1
    machine.send(producing(a_batch(b"a"), acks=0, topic="no-such"))
    (action,) = machine.poll()
    assert isinstance(action, CloseConnection)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (1, 3), (34, 2), (22, 6), (18, 5)])
def test_a_request_that_is_not_served_closes_the_connection(machine: Machine, key: int, version: int) -> None:
    header = RequestHeader(api_key=key, api_version=version, correlation_id=1)
    with pytest.raises(RemoteProtocolError):
        machine.core.handle(1, Call(1, a_session(), header, ApiVersionsRequest(), 0, 0))


def test_producer_ids_are_given_only_once_even_after_a_kill(machine: Machine) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    seen = [machine.ask(request).producer_id for _ in range(1001)]
    again = machine.restart(clean=False)
    seen += [again.ask(request).producer_id for _ in range(3)]
    assert len(set(seen)) == len(seen) == 1004
    again.folder.abandon()


def test_the_session_learns_the_clients_software_from_api_versions(machine: Machine) -> None:
    session = a_session()
    for name, version in (("ottla", 3), ("a b", 3), ("old", 2)):
        header = RequestHeader(api_key=18, api_version=version, correlation_id=1, client_id=None)
        hello = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        machine.core.handle(1, Call(1, session, header, hello, 0, 0))
        assert (session.client_software_name, session.client_software_version) == ("ottla", "1.0"), name
