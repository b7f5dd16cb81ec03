"""Share sessions where the proxy's ACLs apply: the broker knows a session by its group and member alone."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from ottla.codec.apis import NAMES
from ottla.codec.apis.share_acknowledge import (
    LeaderIdAndEpoch as AcknowledgeLeader,
)
from ottla.codec.apis.share_acknowledge import (
    PartitionData as AcknowledgedPartition,
)
from ottla.codec.apis.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.codec.apis.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from ottla.proxy.clients.access.shares import MOST_SESSIONS
from tests.brokerlite.sharing import Results, acknowledge, fetch
from tests.proxy.secured import rules
from tests.proxy.simulated import Reply, World, batch
from tests.proxy.test_acls import AnsweringAll, client

ALICE, ALICES_OTHER, BOB = 1, 2, 4
RECORDS = batch([(None, b"v")])
ANSWERS: Results = {0: [(0, 0, [1])]}
"""Accepts the first record of partition 0."""


class Sharing(AnsweringAll):
    """Each ShareFetch gets a record of every topic in its session."""

    def __init__(self, topics: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(topics, 1))
        self.cluster.release = dict.fromkeys(NAMES, (0, 99))
        self.sessions: dict[tuple[str | None, str | None], tuple[int, tuple[UUID, ...]]] = {}
        """Group, member -> the next epoch, and the topics."""
        self.refuses = 0
        """The error code of every response; 0: there is none."""

    def _answer(self, node: int, version: int, message: Any) -> Any:
        match message:
            case ShareFetchRequest():
                code, topics = self._turn(message)
                return ShareFetchResponse(
                    error_code=code,
                    acquisition_lock_timeout_ms=30_000,
                    responses=tuple(map(self._fetched, topics)),
                    node_endpoints=(),
                )
            case ShareAcknowledgeRequest():
                code, _ = self._turn(message)
                leader = AcknowledgeLeader(leader_id=0, leader_epoch=0)
                stored = (AcknowledgedPartition(partition_index=0, error_code=0, current_leader=leader),)
                responses = tuple(
                    ShareAcknowledgeTopicResponse(topic_id=each.topic_id, partitions=stored) for each in message.topics
                )
                return ShareAcknowledgeResponse(error_code=code, responses=responses, node_endpoints=())
            case _:
                return super()._answer(node, version, message)

    def _turn(self, message: ShareFetchRequest | ShareAcknowledgeRequest) -> tuple[int, tuple[UUID, ...]]:
        if self.refuses:
            return self.refuses, ()
        name, asked = (message.group_id, message.member_id), message.share_session_epoch
        expected, known = self.sessions.get(name, (1, ())) if asked else (0, ())
        if asked == -1:
            self.sessions.pop(name, None)
        elif asked != expected:
            return InvalidShareSessionEpoch.code, ()
        elif isinstance(message, ShareFetchRequest):
            known = (*known, *(each.topic_id for each in message.topics))
        self.sessions[name] = expected + 1, known
        return 0, known

    def _fetched(self, topic_id: UUID) -> ShareFetchableTopicResponse:
        partition = PartitionData(
            partition_index=0,
            error_code=0,
            acknowledge_error_code=0,
            current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            records=RECORDS,
            acquired_records=(AcquiredRecords(first_offset=0, last_offset=0, delivery_count=1),),
        )
        return ShareFetchableTopicResponse(topic_id=topic_id, partitions=(partition,))


class SharingWorld(World):
    """Alice may read ``orders``, Bob ``secret``; both may read the group ``g``."""

    upstream: Sharing

    def __init__(self) -> None:
        topics = ("orders", "secret")
        acls = (
            *("allow alice Read Group g", "allow bob Read Group g"),
            *("allow alice Read Topic orders", "allow bob Read Topic secret"),
        )
        upstream = Sharing(topics)
        super().__init__(upstream, acls=rules(*acls))
        self.infos |= {ALICE: client("alice", 1), ALICES_OTHER: client("alice", 1), BOB: client("bob", 4)}
        self.orders, self.secret = (upstream.cluster.nodes[0].ids[each] for each in topics)

    def fetch(self, number: int, *topics: UUID, epoch: int = 0, member: str = "m") -> Reply:
        parts = [fetch(each, epoch, member, partitions=(0,)).topics[0] for each in topics]
        request = fetch(self.orders, epoch, member, partitions=())
        request.topics = tuple(parts)
        return self.request(number, request, 2)

    def acknowledge(self, number: int, *topics: UUID, epoch: int) -> Reply:
        request = acknowledge(self.orders, epoch, {})
        request.topics = tuple(acknowledge(each, epoch, ANSWERS).topics[0] for each in topics)
        return self.request(number, request, 2)


def records_of(reply: Reply) -> dict[UUID, bytes | int]:
    """Topic -> its records, or its error."""
    answer = reply.parsed(ShareFetchResponse)
    assert answer.error_code == 0, answer
    found: dict[UUID, bytes | int] = {}
    for topic in answer.responses:
        (each,) = topic.partitions
        assert bool(each.records) == bool(each.acquired_records)
        found[topic.topic_id] = each.error_code or bytes(each.records)
    return found


def code_of(reply: Reply) -> int:
    code: int = reply.parsed(ShareFetchResponse).error_code
    return code


def test_a_share_session_goes_on_where_it_was_opened_and_nowhere_else() -> None:
    world = SharingWorld()
    assert records_of(world.fetch(ALICE, world.orders)) == {world.orders: RECORDS}
    for other in (ALICES_OTHER, BOB):
        for epoch in (1, -1):
            assert code_of(world.fetch(other, epoch=epoch)) == ShareSessionNotFound.code
            answer = world.acknowledge(other, epoch=epoch).parsed(ShareAcknowledgeResponse)
            assert answer.error_code == ShareSessionNotFound.code
    assert len(world.upstream.asked(ShareFetchRequest, ShareAcknowledgeRequest)) == 1
    assert records_of(world.fetch(ALICE, epoch=1)) == {world.orders: RECORDS}
    assert code_of(world.fetch(ALICE, epoch=-1)) == 0
    assert code_of(world.fetch(ALICE, epoch=1)) == ShareSessionNotFound.code


def test_a_share_session_that_another_connection_replaced_does_not_go_on() -> None:
    world = SharingWorld()
    world.fetch(ALICE, world.orders)
    assert records_of(world.fetch(BOB, world.secret)) == {world.secret: RECORDS}
    assert code_of(world.fetch(ALICE, epoch=1)) == ShareSessionNotFound.code
    assert records_of(world.fetch(ALICE, world.orders)) == {world.orders: RECORDS}
    assert code_of(world.fetch(BOB, epoch=1)) == ShareSessionNotFound.code


def test_a_denied_topic_is_left_out_of_the_share_session() -> None:
    world = SharingWorld()
    denied = {world.secret: TopicAuthorizationFailed.code}
    assert records_of(world.fetch(ALICE, world.orders, world.secret)) == {world.orders: RECORDS} | denied
    assert records_of(world.fetch(ALICE, world.secret, epoch=1)) == {world.orders: RECORDS} | denied
    assert records_of(world.fetch(ALICE, epoch=2)) == {world.orders: RECORDS}
    assert records_of(world.fetch(ALICE, world.secret, member="n")) == denied
    assert records_of(world.fetch(ALICE, world.orders, epoch=1, member="n")) == {world.orders: RECORDS}


def test_records_that_a_client_may_not_read_never_reach_it() -> None:
    world = SharingWorld()
    world.fetch(ALICE, world.orders)
    world.upstream.sessions["g", "m"] = (1, (world.orders, world.secret))  # opened through another proxy
    for epoch, code in ((1, UnknownTopicId.code), (2, TopicAuthorizationFailed.code)):
        reply = world.fetch(ALICE, epoch=epoch)
        assert records_of(reply) == {world.orders: RECORDS, world.secret: code}
        assert reply.frame is not None and reply.frame.count(RECORDS) == 1
        world.core.cluster.names[world.secret] = "secret"


def test_acknowledgements_of_a_denied_topic_do_not_reach_upstream() -> None:
    world = SharingWorld()
    world.fetch(ALICE, world.orders)
    answer = world.acknowledge(ALICE, world.orders, world.secret, epoch=1).parsed(ShareAcknowledgeResponse)
    codes = {each.topic_id: each.partitions[0].error_code for each in answer.responses}
    assert codes == {world.orders: 0, world.secret: TopicAuthorizationFailed.code}
    world.acknowledge(ALICE, world.secret, epoch=2)
    sent = world.upstream.asked(ShareAcknowledgeRequest)
    assert [[topic.topic_id for topic in each.topics] for each in sent] == [[world.orders], []]
    assert records_of(world.fetch(ALICE, epoch=3)) == {world.orders: RECORDS}, "the epochs go on"


def test_acknowledgements_of_a_denied_topic_in_a_share_fetch_do_not_reach_upstream() -> None:
    world = SharingWorld()
    world.fetch(ALICE, world.orders)
    (topic,) = (
        world.request(ALICE, fetch(world.secret, 1, results=ANSWERS), 2).parsed(ShareFetchResponse).responses[-1:]
    )
    (partition,) = topic.partitions
    assert topic.topic_id == world.secret
    assert partition.error_code == partition.acknowledge_error_code == TopicAuthorizationFailed.code
    assert [len(each.topics) for each in world.upstream.asked(ShareFetchRequest)] == [1, 0]


def test_a_topic_that_upstream_does_not_know_yet_stays_in_the_share_session() -> None:
    world = SharingWorld()
    unknown = UUID(int=5)
    answer = world.fetch(ALICE, world.orders, unknown)
    assert records_of(answer) == {world.orders: RECORDS, unknown: UnknownTopicId.code}
    assert world.upstream.sessions["g", "m"] == (1, (world.orders, unknown))
    world.core.cluster.names[unknown] = "orders"
    assert records_of(world.fetch(ALICE, epoch=1)) == {world.orders: RECORDS, unknown: RECORDS}
    world.core.cluster.names.pop(unknown)
    world.request(ALICE, fetch(unknown, 2, results=ANSWERS), 2)
    assert not world.upstream.asked(ShareFetchRequest)[-1].topics, "it may not acknowledge records there"


def test_a_client_that_disconnects_leaves_no_share_session_behind() -> None:
    world = SharingWorld()
    world.fetch(ALICE, world.orders)
    world.fetch(ALICE, world.orders, member="n")
    world.fetch(BOB, world.secret, member="n")
    world.leave(ALICE)
    assert world.core.share_session_openers.keys() == {(0, "g", "n")}
    assert records_of(world.fetch(BOB, epoch=1, member="n")) == {world.secret: RECORDS}
    world.leave(BOB)
    assert not world.core.share_session_openers


def open_all(world: SharingWorld) -> None:
    for number in range(MOST_SESSIONS):
        assert records_of(world.fetch(ALICE, world.orders, member=str(number))) == {world.orders: RECORDS}


def test_a_connection_with_all_its_share_sessions_opens_no_further_one_and_keeps_them() -> None:
    world = SharingWorld()
    open_all(world)
    assert code_of(world.fetch(ALICE, world.orders, member="more")) == ShareSessionLimitReached.code
    assert (0, "g", "more") not in world.core.share_session_openers
    for number in range(MOST_SESSIONS):
        assert records_of(world.fetch(ALICE, epoch=1, member=str(number))) == {world.orders: RECORDS}
    assert records_of(world.fetch(ALICE, world.orders, member="0")) == {world.orders: RECORDS}, "opened again"
    assert len(world.core.share_session_openers) == MOST_SESSIONS


@pytest.mark.parametrize("ending", ["closed", "replaced", "lost"])
def test_a_share_session_that_has_ended_makes_room_for_another_one(ending: str) -> None:
    world = SharingWorld()
    open_all(world)
    match ending:
        case "closed":
            world.fetch(ALICE, epoch=-1, member="0")
        case "replaced":
            world.fetch(ALICES_OTHER, world.orders, member="0")
        case "lost":
            world.upstream.refuses = ShareSessionNotFound.code
            assert code_of(world.fetch(ALICE, epoch=1, member="0")) == ShareSessionNotFound.code
            world.upstream.refuses = 0
    assert records_of(world.fetch(ALICE, world.orders, member="more")) == {world.orders: RECORDS}
