"""Fetch sessions: which partitions requests and responses name, and the errors when both sides disagree."""

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.requests import fetch_sessions
from ottla.brokerlite.machines.requests.fetch_sessions import MAX_EPOCH, PATIENCE
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.codec.wire import NO_UUID, UNKNOWN_TAGS, unknown_tags
from ottla.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    UnknownTopicOrPartition,
)
from tests.brokerlite.machine import Machine, a_batch, producing, values_of


class Reader:
    """A client with a fetch session.

    Attributes:
        told: (partition, error, values) from the last response, in its order.
    """

    def __init__(self, machine: Machine, version: int = 12) -> None:
        self.machine = machine
        self.version = version
        self.id = 0
        self.epoch = 0
        self.told: list[tuple[int, int, list[bytes | None]]] = []

    def request(self, wanted: dict[int, int], forgotten: tuple[int, ...] = (), **others: Any) -> FetchRequest:
        topic_id = self.machine.core.topics.by_name["t"].topic_id if self.version >= 13 else NO_UUID
        partitions = tuple(
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**20)
            for index, offset in wanted.items()
        )
        topics = (FetchTopic(topic="t", topic_id=topic_id, partitions=partitions),) if wanted else ()
        gone = (ForgottenTopic(topic="t", topic_id=topic_id, partitions=forgotten),) if forgotten else ()
        known: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "session_id": self.id,
            "session_epoch": self.epoch,
            "topics": topics,
            "forgotten_topics_data": gone,
        }
        return FetchRequest(**known | others)

    def take(self, answer: Any) -> int:
        """Process a response, and return its error."""
        if answer.error_code == 0:
            self.id = answer.session_id
            self.epoch = self.epoch + 1 if self.id else 0
        self.told = [
            (each.partition_index, each.error_code, values_of(each.records))
            for topic in answer.responses
            for each in topic.partitions
        ]
        return int(answer.error_code)

    def fetch(self, wanted: dict[int, int] | None = None, forgotten: tuple[int, ...] = (), **others: Any) -> int:
        """Send a Fetch request; the error of the response."""
        return self.take(self.machine.ask(self.request(wanted or {}, forgotten, **others), self.version))


@pytest.fixture(params=[7, 12, 13, 18])
def reader(machine: Machine, request: pytest.FixtureRequest) -> Reader:
    """A reader of ``t``, with a session of its three partitions."""
    reader = Reader(machine, request.param)
    machine.produce(a_batch(b"a"))
    assert reader.fetch({0: 0, 1: 0, 2: 0}) == 0 and reader.id > 0
    assert reader.told == [(0, 0, [b"a"]), (1, 0, []), (2, 0, [])], "the first response has every partition"
    return reader


def test_within_a_session_requests_and_responses_name_only_changes(reader: Reader) -> None:
    assert reader.fetch({0: 1}) == 0 and reader.told == []
    reader.machine.produce(a_batch(b"b"), partition=2)
    assert reader.fetch() == 0 and reader.told == [(2, 0, [b"b"])]
    assert reader.fetch({2: 1}) == 0 and reader.told == []
    assert reader.fetch() == 0 and reader.told == []


def test_a_partition_that_is_not_named_again_is_read_at_its_old_offset(reader: Reader) -> None:
    assert reader.fetch() == 0 and reader.told == [(0, 0, [b"a"])]


def test_a_partition_is_forgotten_and_another_added(reader: Reader) -> None:
    assert reader.fetch({0: 1}, forgotten=(2,)) == 0
    reader.machine.produce(a_batch(b"b"), partition=2)
    assert reader.fetch() == 0 and reader.told == []
    assert reader.fetch({2: 0}) == 0 and reader.told == [(2, 0, [b"b"])]


def test_a_response_names_a_new_partition_even_if_it_is_empty(reader: Reader) -> None:
    assert reader.fetch({0: 1}, forgotten=(1,)) == 0
    assert reader.fetch({1: 0}) == 0 and reader.told == [(1, 0, [])], "its high watermark is new to the client"


def test_each_response_has_the_error_and_one_has_its_end(reader: Reader) -> None:
    assert reader.fetch({0: 99}) == 0 and reader.told == [(0, 1, [])]
    assert reader.fetch() == 0 and reader.told == [(0, 1, [])]
    assert reader.fetch({0: 1}) == 0 and reader.told == [(0, 0, [])]
    assert reader.fetch() == 0 and reader.told == []


def test_a_partition_with_records_moves_behind_the_others(reader: Reader) -> None:
    """Otherwise the first partition could fill every response."""
    for partition in range(3):
        reader.machine.produce(a_batch(bytes(1000)), a_batch(bytes(1000)), partition=partition)
    assert reader.fetch({0: 1}) == 0
    served = []
    for _ in range(6):
        assert reader.fetch(max_bytes=1) == 0
        served.append(next(index for index, _, values in reader.told if values))
    assert sorted(served[:3]) == sorted(served[3:]) == [0, 1, 2]


def test_a_waiting_fetch_returns_records_that_arrive_meanwhile(reader: Reader) -> None:
    ticket = reader.machine.send(reader.request({0: 1}, max_wait_ms=500), reader.version)
    assert reader.machine.poll() == []
    reader.machine.send(producing(a_batch(b"b"), partition=1))
    answers = {action.ticket: action for action in reader.machine.poll()}
    waited = answers[ticket]
    assert isinstance(waited, Answer) and reader.take(waited.message) == 0
    assert reader.told == [(1, 0, [b"b"])]
    assert reader.fetch({1: 1}) == 0 and reader.told == []


def test_a_fetch_without_new_records_gets_an_empty_response(reader: Reader) -> None:
    ticket = reader.machine.send(reader.request({0: 1}, max_wait_ms=500), reader.version)
    reader.machine.now += 0.5
    (action,) = reader.machine.poll()
    assert isinstance(action, Answer) and action.ticket == ticket
    assert reader.take(action.message) == 0 and reader.told == [] and action.message.session_id == reader.id


def test_a_fetch_that_waits_while_its_session_continues_gets_the_error_of_a_lost_session(reader: Reader) -> None:
    waits = reader.machine.send(reader.request({0: 1}, max_wait_ms=500), reader.version)
    reader.epoch += 1
    other = reader.machine.send(reader.request({}), reader.version)
    reader.machine.now += 0.5
    answers = {action.ticket: action for action in reader.machine.poll()}
    first, second = answers[waits], answers[other]
    assert isinstance(first, Answer) and isinstance(second, Answer)
    assert second.message.error_code == 0 and first.message.error_code == InvalidFetchSessionEpoch.code


def test_an_epoch_that_is_not_the_next_is_refused_and_the_session_stays(reader: Reader) -> None:
    epoch = reader.epoch
    for wrong in (epoch + 1, epoch - 1 or MAX_EPOCH, MAX_EPOCH):
        reader.epoch = wrong
        assert reader.fetch() == InvalidFetchSessionEpoch.code
    reader.epoch = epoch
    assert reader.fetch() == 0


def test_epochs_begin_again_at_one(reader: Reader) -> None:
    session = reader.machine.core.fetch_sessions._sessions[reader.id]
    session.epoch = reader.epoch = MAX_EPOCH
    assert reader.fetch() == 0
    reader.epoch = 1
    assert reader.fetch() == 0 and session.epoch == 2


def test_a_session_that_is_not_there_is_not_found(reader: Reader) -> None:
    known, reader.id = reader.id, reader.id ^ 1
    assert reader.fetch() == FetchSessionIdNotFound.code
    reader.id = 0
    assert reader.fetch() == FetchSessionIdNotFound.code
    reader.id = known
    assert reader.fetch() == 0


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_session_ends_when_its_client_begins_again_or_does_without(reader: Reader, epoch: int) -> None:
    old, sessions = reader.id, reader.machine.core.fetch_sessions
    reader.epoch = epoch
    assert reader.fetch({0: 0}) == 0 and reader.told == [(0, 0, [b"a"])]
    assert (reader.id == 0) is (epoch == -1) and reader.id != old
    assert len(sessions) == (1 if epoch == 0 else 0) == sessions._partitions


def test_a_session_without_partitions_ends(reader: Reader) -> None:
    assert reader.fetch(forgotten=(0, 1, 2)) == 0 and reader.id == 0
    assert len(reader.machine.core.fetch_sessions) == 0


def test_a_session_names_its_topics_always_in_one_way(machine: Machine) -> None:
    for first, then in ((12, 13), (13, 12)):
        reader = Reader(machine, first)
        assert reader.fetch({0: 0}) == 0
        reader.version = then
        assert reader.fetch() == FetchSessionTopicIdError.code


def test_old_versions_have_no_sessions(machine: Machine) -> None:
    reader = Reader(machine, 6)
    request = reader.request({0: 0})
    request.session_epoch = -1
    assert machine.ask(request, 6).session_id == 0 and len(machine.core.fetch_sessions) == 0


def test_a_deleted_topic_gets_an_error(machine: Machine) -> None:
    reader = Reader(machine)
    assert reader.fetch({0: 0}) == 0
    machine.ask(DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000), 5)
    assert reader.fetch() == 0 and reader.told == [(0, UnknownTopicOrPartition.code, [])]


def test_sessions_are_bounded_and_idle_ones_make_room(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_SESSIONS", 3)
    readers = [Reader(machine) for _ in range(4)]
    assert [reader.fetch({0: 0}) for reader in readers] == [0] * 4
    assert [reader.id > 0 for reader in readers] == [True, True, True, False], "it gets no session"
    machine.now += PATIENCE
    assert readers[0].fetch() == 0
    machine.now += 1
    assert readers[3].fetch({0: 0}) == 0 and readers[3].id > 0
    assert [reader.fetch() for reader in readers] == [0, FetchSessionIdNotFound.code, 0, 0]


def test_partitions_of_sessions_are_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 3)
    a, b, c = Reader(machine), Reader(machine), Reader(machine)
    assert a.fetch({0: 0, 1: 0}) == 0 and a.id > 0
    assert b.fetch({0: 0, 1: 0}) == 0 and b.id == 0
    assert c.fetch({0: 0}) == 0 and c.id > 0
    assert a.fetch({2: 0}) == FetchSessionIdNotFound.code, "it sends a full fetch, and gets no session"
    assert len(machine.core.fetch_sessions) == 1 == machine.core.fetch_sessions._partitions


def test_a_name_that_no_topic_can_have_is_kept_in_no_session(machine: Machine) -> None:
    """Otherwise a session of few partitions could keep megabytes of names."""
    reader, longest = Reader(machine), fetch_sessions.LONGEST_NAME
    partitions = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1),)

    def fetch(length: int) -> int:
        return reader.fetch(topics=(FetchTopic(topic="x" * length, partitions=partitions),))

    assert fetch(longest + 1) == 0 and reader.told == [(0, UnknownTopicOrPartition.code, [])] and reader.id == 0
    assert fetch(longest) == 0 and reader.id > 0
    assert fetch(longest + 1) == FetchSessionIdNotFound.code
    assert len(machine.core.fetch_sessions) == 0 == machine.core.fetch_sessions._partitions


def test_a_session_keeps_no_tagged_fields_that_the_broker_does_not_know(machine: Machine) -> None:
    reader = Reader(machine)
    request = reader.request({0: 0})
    setattr(request.topics[0].partitions[0], UNKNOWN_TAGS, {77: bytes(10_000)})
    assert reader.take(machine.ask(request, reader.version)) == 0 and reader.id > 0
    [kept] = machine.core.fetch_sessions._sessions[reader.id].partitions.values()
    assert not unknown_tags(kept.asked.partition)


def test_an_id_is_not_given_twice(machine: Machine) -> None:
    numbers = iter([5, 5, 6])
    machine.core.fetch_sessions._new_id = lambda: next(numbers)
    a, b = Reader(machine), Reader(machine)
    assert a.fetch({0: 0}) == b.fetch({0: 0}) == 0 and (a.id, b.id) == (5, 6)


@pytest.mark.parametrize("drawn", [0, 2**128 - 1, MAX_EPOCH - 1, MAX_EPOCH])
def test_ids_fit_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: int) -> None:
    ids = [uuid.uuid4()]  # the topic's id
    monkeypatch.setattr(uuid, "uuid4", lambda: ids.pop() if ids else uuid.UUID(int=drawn))
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 1, {})
    reader = Reader(machine)
    assert reader.fetch({0: 0}) == 0 and not ids
    assert 0 < reader.id <= MAX_EPOCH
    machine.folder.abandon()


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_with_a_session_reads_the_same_as_one_without(machine: Machine, seed: int) -> None:
    rng = random.Random(seed)
    reader = Reader(machine, rng.choice((12, 18)))
    positions = dict.fromkeys(range(3), 0)
    read: dict[int, list[bytes | None]] = {index: [] for index in range(3)}
    written: dict[int, list[bytes | None]] = {index: [] for index in range(3)}
    unnamed = dict(positions)
    for i in range(200):
        if rng.random() < 0.5:
            partition = rng.randrange(3)
            machine.produce(a_batch(b"%d" % i), partition=partition)
            written[partition].append(b"%d" % i)
        if rng.random() < 0.05:
            reader.id = reader.epoch = 0
        error = reader.fetch(unnamed if reader.id else positions, max_bytes=rng.choice((1, 100, 10_000)))
        assert error == 0
        unnamed = {}
        for partition, code, values in reader.told:
            assert code == 0
            if values:
                read[partition] += values
                positions[partition] += len(values)
                unnamed[partition] = positions[partition]
    while positions != {index: len(values) for index, values in written.items()}:
        assert reader.fetch(unnamed) == 0 and reader.told
        unnamed = {}
        for partition, _, values in reader.told:
            read[partition] += values
            positions[partition] += len(values)
            if values:
                unnamed[partition] = positions[partition]
    assert read == written
