"""The model cluster keeps the rules of Kafka that the worlds depend on, for logs and for the group coordinator."""

from random import Random
from typing import Any

import pytest

from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.frames import build_request
from ottla.codec.records import BatchBuilder, parse_batch, read_batches
from ottla.sdk.events import Close, Connect, Event, Send
from tests.sim.clock import Clock
from tests.sim.cluster import ModelCluster
from tests.sim.history import History, code
from tests.sim.log import PartitionLog
from tests.sim.network import PORT, Network, Reply

NEWS = 2.0
"""Seconds within which all nodes learn of a new leader."""


def batch(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 7) -> bytes:
    builder = BatchBuilder()
    for i in range(count):
        builder.append(1000, None, b"%d" % (sequence + i), ())
    return builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Model:
    """A cluster of two nodes, with methods that send requests and let time pass."""

    def __init__(self) -> None:
        self.clock = Clock()
        history = History(self.clock, False)
        network = Network(self.clock, Random(1), history)
        self.cluster = ModelCluster(self.clock, Random(2), network, history, {"t": 1}, 2, "4.3")
        network.cluster = self.cluster
        self.coordinator = self.cluster.leaders[self.cluster.groups.place("g")].node

    def ask(self, message: Any, version: int, node: int | None = None) -> list[Any]:
        """Send a request; return a list to which the answer will be added."""
        answers: list[Any] = []
        self.cluster.handle(node or self.coordinator, "m", version, message, answers.append)
        return answers

    def wait(self, seconds: float) -> None:
        end = self.clock.now + seconds
        self.clock.at(end, lambda: None)
        while self.clock.now < end:
            assert self.clock.step()

    def join(self, member: str = "", instance: str | None = None, metadata: bytes = b"x") -> list[Any]:
        return self.ask(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=6000,
                rebalance_timeout_ms=10_000,
                member_id=member,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
            ),
            7,
        )

    def enter(self) -> str:
        """Send a new member's first JoinGroup, and return the member id for the second one."""
        [answer] = self.join()
        assert code(answer.error_code) == "MEMBER_ID_REQUIRED"
        return str(answer.member_id)

    def sync(self, member: str, generation: int, given: dict[str, bytes] | None = None) -> list[Any]:
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=part) for each, part in (given or {}).items()
        )
        return self.ask(
            SyncGroupRequest(group_id="g", generation_id=generation, member_id=member, assignments=assignments), 3
        )

    def beat(self, member: str, generation: int) -> str:
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
        [answer] = self.ask(request, 3)
        return code(answer.error_code)

    def commit(self, member: str, generation: int, offset: int) -> str:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=(OffsetCommitRequestTopic(name="t", partitions=(part,)),),
        )
        [answer] = self.ask(request, 7)
        return code(answer.topics[0].partitions[0].error_code)

    def committed(self) -> int:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
        [answer] = self.ask(OffsetFetchRequest(group_id="g", topics=(topic,)), 7)
        return int(answer.topics[0].partitions[0].committed_offset)

    def two(self) -> tuple[str, str]:
        """Make a stable group of two; return the leader and the follower."""
        first, second = self.enter(), self.enter()
        joined = [self.join(first), self.join(second)]
        self.wait(NEWS)
        assert [each[0].generation_id for each in joined] == [1, 1]
        assert joined[0][0].leader == first and len(joined[0][0].members) == 2 and not joined[1][0].members
        waiting = self.sync(second, 1)
        assert not waiting
        assert self.sync(first, 1, {first: b"1", second: b"2"})[0].assignment == b"1"
        assert waiting[0].assignment == b"2"
        return first, second


def test_a_log_accepts_sequences_in_order_remembers_five_batches_and_starts_at_0_in_an_epoch() -> None:
    log = PartitionLog()
    assert log.append(batch(100), 0) == (0, 0, 1)  # an id without state may begin at any sequence
    for i in range(1, 6):
        assert log.append(batch(100 + i), 0) == (0, i, i + 1)
    assert log.append(batch(101), 0) == (0, 1, 2)
    assert code(log.append(batch(100), 0)[0]) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert code(log.append(batch(107), 0)[0]) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert code(log.append(batch(1, epoch=1), 0)[0]) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.append(batch(0, epoch=1), 0) == (0, 6, 7)
    assert code(log.append(batch(106), 0)[0]) == "INVALID_PRODUCER_EPOCH"


def test_truncation_removes_the_producer_state_of_truncated_batches() -> None:
    log = PartitionLog()
    for i in range(3):
        log.append(batch(i), 0)
    log.truncate(1)
    assert log.end == 1
    assert log.append(batch(1), 1) == (0, 1, 2)
    assert (log.end_of_epoch(0), log.end_of_epoch(5)) == ((0, 1), (1, 2))


def test_a_read_begins_with_the_batch_of_the_offset_and_returns_that_one_whole() -> None:
    log = PartitionLog()
    for i in range(0, 12, 3):
        log.append(batch(i, 3), 0)
    data, _ = log.read(4, 12, 10, first=True)
    assert [each.base_offset for each in read_batches(data)] == [3]
    assert log.read(4, 12, 10, first=False)[0] == b""
    assert log.read(4, 12, len(data) + 10, first=False)[0][: len(data)] == data
    assert len(log.read(4, 12, len(data) + 10, first=False)[0]) == len(data) + 10
    assert [each.base_offset for each in read_batches(log.read(4, 9, 10**6, first=True)[0])] == [3, 6]
    assert parse_batch(data).next_offset == 6


def test_acknowledged_records_survive_a_new_leader_and_others_may_be_lost() -> None:
    model = Model()
    place = ("t", 0)
    leader = model.cluster.leaders[place].node

    def produce(sequence: int) -> list[Any]:
        data = PartitionProduceData(index=0, records=batch(sequence))
        topic = TopicProduceData(name="t", partition_data=(data,))
        return model.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,)), 9, leader)

    stored = produce(0)
    assert not stored
    model.wait(0.1)
    assert stored[0].responses[0].partition_responses[0].base_offset == 0
    late = produce(1)
    model.cluster.move_some([place])
    model.wait(NEWS)
    assert code(late[0].responses[0].partition_responses[0].error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert model.cluster.logs[place].end >= 1
    assert model.cluster.logs[place].high_watermark == model.cluster.logs[place].end


@pytest.mark.parametrize(
    ("epoch", "told"), [(0, "FENCED_LEADER_EPOCH"), (2, "UNKNOWN_LEADER_EPOCH"), (1, ""), (-1, "")]
)
def test_leaders_check_the_leader_epoch_of_a_fetch(epoch: int, told: str) -> None:
    model = Model()
    model.cluster.move_some([("t", 0)])
    model.wait(NEWS)
    part = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=(part,)),))
    [answer] = model.ask(request, 12, model.cluster.leaders["t", 0].node)
    assert code(answer.responses[0].partitions[0].error_code) == told


def test_only_members_of_the_generation_may_commit() -> None:
    model = Model()
    first, second = model.two()
    assert model.commit(first, 1, 5) == ""
    assert model.commit(second, 0, 9) == "ILLEGAL_GENERATION"
    assert model.commit("stranger", 1, 9) == "UNKNOWN_MEMBER_ID"
    assert model.commit("", -1, 9) == "UNKNOWN_MEMBER_ID"
    assert model.committed() == 5


def test_a_member_whose_session_expired_is_removed_and_its_commits_are_refused() -> None:
    model = Model()
    first, second = model.two()
    for _ in range(4):
        model.wait(2.0)
        model.beat(first, 1)
    assert model.beat(first, 1) == "REBALANCE_IN_PROGRESS"
    assert model.beat(second, 1) == model.commit(second, 1, 9) == "UNKNOWN_MEMBER_ID"
    again = model.join(first)
    assert again[0].generation_id == 2 and [each.member_id for each in again[0].members] == [first]
    assert model.commit(first, 2, 7) == "REBALANCE_IN_PROGRESS"  # until the leader has sent its SyncGroup
    model.sync(first, 2)
    assert model.commit(first, 2, 7) == "" and model.commit(first, 1, 3) == "ILLEGAL_GENERATION"
    assert model.committed() == 7


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    model = Model()
    first, second = model.two()
    joined = model.join(first, metadata=b"changed")
    for _ in range(4):
        model.wait(3.0)
        model.beat(second, 1)  # it sends heartbeats, but does not rejoin
    assert joined[0].generation_id == 2 and len(joined[0].members) == 1
    assert model.beat(second, 1) == "UNKNOWN_MEMBER_ID"


def test_a_follower_that_rejoins_changes_nothing_and_a_follower_that_leaves_starts_a_rebalance() -> None:
    model = Model()
    first, second = model.two()
    assert model.join(second)[0].generation_id == 1
    leaving = (MemberIdentity(member_id=second),)
    [answer] = model.ask(LeaveGroupRequest(group_id="g", members=leaving), 4)
    assert answer.members[0].error_code == 0
    assert model.beat(first, 1) == "REBALANCE_IN_PROGRESS"


def test_a_returning_static_member_is_accepted_and_its_old_member_id_is_fenced() -> None:
    model = Model()
    first = model.join(instance="s")
    model.wait(NEWS)
    old = first[0].member_id
    assert model.sync(old, 1, {old: b"1"})[0].assignment == b"1"
    second = model.enter()
    joined = [model.join(second), model.join(old, instance="s")]
    assert [each[0].generation_id for each in joined] == [2, 2]
    model.sync(old, 2, {old: b"1", second: b"2"})
    [back] = model.ask(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6000,
            rebalance_timeout_ms=10_000,
            member_id="",
            group_instance_id="s",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"x"),),
        ),
        9,
    )
    assert (back.generation_id, back.skip_assignment) == (2, True) and back.member_id != old
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id=old, group_instance_id="s")
    assert code(model.ask(request, 3)[0].error_code) == "FENCED_INSTANCE_ID"
    assert model.beat(second, 2) == ""


def test_a_moved_coordinator_has_the_group_as_of_its_last_sync() -> None:
    model = Model()
    first, second = model.two()
    model.commit(first, 1, 5)
    place = model.cluster.groups.place("g")
    old = model.coordinator
    waiting = model.join(first, metadata=b"changed")
    model.cluster.move_some([place])
    assert code(waiting[0].error_code) == "NOT_COORDINATOR"
    model.wait(NEWS)
    assert model.beat(first, 1) == "NOT_COORDINATOR"
    model.coordinator = model.cluster.leaders[place].node
    assert model.coordinator != old
    assert model.beat(first, 1) == model.beat(second, 1) == ""
    assert model.committed() == 5


def test_an_empty_group_accepts_commits_of_clients_that_are_no_members() -> None:
    model = Model()
    assert model.commit("", -1, 9) == ""
    assert model.committed() == 9
    assert model.commit("m", 3, 10) == "ILLEGAL_GENERATION"  # a group that never had members


class Peer:
    """A client that sends each JoinGroup on a connection and closes it, and the node that gets the requests."""

    name, alive = "c", True

    def __init__(self, instance: str | None) -> None:
        self.clock = Clock()
        self.network = Network(self.clock, Random(1), History(self.clock, False))
        self.network.cluster = self
        self.instance = instance
        self.heard: list[int] = []
        """Session timeouts, which distinguish the requests."""

    def hear(self, event: Event) -> None: ...

    def up(self, node: int) -> bool:
        return True

    def awake(self, node: int) -> bool:
        return True

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None:
        self.heard.append(message.session_timeout_ms)

    def join(self, number: int) -> None:
        """Connect, send, and close."""
        key = (1, f"group-{number}")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=number,
            rebalance_timeout_ms=0,
            member_id="",
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=(),
        )
        self.network.connect(self, Connect(key, "node", PORT + 1))
        self.network.send(self, Send(key, (build_request(request, 7, number, None),)))
        self.network.close(self, Close(key))


@pytest.mark.parametrize(("instance", "heard"), [("s", [2, 3]), (None, [2, 1, 3])])
def test_a_static_members_join_that_a_later_join_has_overtaken_is_dropped(
    instance: str | None, heard: list[int]
) -> None:
    peer = Peer(instance)
    peer.network.slow[1] = (1000.0, 1.0)
    peer.join(1)
    peer.network.slow.clear()
    peer.join(2)
    while peer.clock.step():
        pass
    peer.join(3)
    while peer.clock.step():
        pass
    assert peer.heard == heard
