"""The search of long requests and responses without parsing them, compared with the codec's results."""

import uuid
from dataclasses import replace

import pytest

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import build_request, build_response, parse_response
from ottla.errors import DecodeError
from ottla.proxy.clients import address_handler
from ottla.proxy.clients.access.guard import MOST_NAMED
from ottla.proxy.clients.walks import LongMetadata
from ottla.proxy.events import Requested
from tests.proxy.simulated import Upstream, batch
from tests.proxy.test_rewriting import world_of


def adding(*topics: AddPartitionsToTxnTopic) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="payments",
        v3_and_below_producer_id=1001,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )


def metadata(topics: int, brokers: int = 3) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=0, replica_nodes=(0, 1), isr_nodes=(0,)
    )
    return MetadataResponse(
        throttle_time_ms=5,
        brokers=tuple(
            MetadataResponseBroker(node_id=each, host=f"kafka-{each}.example", port=9092, rack="r" if each else None)
            for each in range(brokers)
        ),
        cluster_id="a-cluster",
        controller_id=1,
        topics=tuple(
            MetadataResponseTopic(
                error_code=0, name=f"topic-{each}", topic_id=uuid.UUID(int=each + 1), partitions=(partition,)
            )
            for each in range(topics)
        ),
    )


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("topics", [0, 5])
def test_the_brokers_of_an_answer_are_others_and_all_else_stays(version: int, topics: int) -> None:
    def changed(answer: MetadataResponse) -> MetadataResponse:
        brokers = answer.brokers[:2]
        return replace(
            answer, brokers=tuple(replace(each, host="proxy", port=19092 + each.node_id) for each in brokers)
        )

    frame = build_response(metadata(topics), version, 77)[4:]
    long = LongMetadata(frame, version)
    assert not long.answer.topics
    correlation_id, whole = parse_response(MetadataResponse, version, frame)
    assert correlation_id == 77
    assert b"".join(long.parts(changed(long.answer))) == build_response(changed(whole), version, 77)[4:]


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_brokers_that_break_off_are_no_answer(version: int) -> None:
    frame = build_response(metadata(0), version, 77)[4:]
    for size in range(20):
        with pytest.raises(DecodeError):
            LongMetadata(frame[:size], version)


# -- in the proxy


def many(count: int, *, topics: bool) -> bytes:
    """A Produce request with so many record sets, of one topic, or each of its own topic."""
    one = [PartitionProduceData(index=index if not topics else 0, records=b"") for index in range(count)]
    data = [(f"{index:05}", (each,)) for index, each in enumerate(one)] if topics else [("flights", tuple(one))]
    named = tuple(TopicProduceData(name=name, partition_data=each) for name, each in data)
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=named)
    return build_request(request, 9, 1, "client")[4:]


@pytest.mark.parametrize("topics", [False, True])
def test_a_request_of_ever_so_many_parts_is_refused_by_name_before_it_is_parsed(topics: bool) -> None:
    world = world_of()
    world.core.handle(Requested(2, 0, 0, many(30_000, topics=topics)), world.now)
    world.settle()
    assert "Produce names more than 10000 topics, partitions or groups" in world.closed[2]
    assert world.produce(1, {("flights", 0): batch([(None, b"decent")])}).code == 0


def test_a_long_request_that_has_to_be_parsed_is_refused_by_name() -> None:
    world = world_of()
    keys = tuple(f"group-{each:0200}" for each in range(6000))
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    world.core.handle(Requested(2, 0, 0, build_request(request, 4, 1, "client")[4:]), world.now)
    world.settle()
    assert "FindCoordinator of" in world.closed[2] and "the proxy accepts at most 1048576" in world.closed[2]
    topics = tuple(MetadataRequestTopic(name=f"topic-{each:0200}") for each in range(6000))
    assert world.request(3, MetadataRequest(topics=topics), 9).frame is not None, "it is passed on unparsed"


def test_a_long_answer_has_the_proxys_addresses_and_its_topics_are_asked_for_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short, long = world_of(nodes=2), world_of(nodes=2)
    answers = []
    for world in (short, long):
        if world is long:
            monkeypatch.setattr(address_handler, "LONG_ANSWER", 0)
        world.core.cluster.topics.clear()
        reply = world.request(1, MetadataRequest(topics=None), 9)
        assert reply.frame is not None
        answers.append(parse_response(MetadataResponse, 9, reply.frame))
        assert bool(world.core.cluster.topics) is (world is short)
        assert world.produce(1, {("flights", 0): batch([(None, b"x")])}).code == 0
    assert answers[0] == answers[1] and {each.host for each in answers[1][1].brokers} == {"proxy"}


def test_a_node_that_only_a_long_answer_names_gets_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_handler, "LONG_ANSWER", 0)
    world = world_of()
    grown = Upstream({"flights": 6, "plain": 2}, nodes=2)
    world.upstream = grown
    reply = world.request(1, MetadataRequest(topics=None), 9)
    assert reply.frame is not None
    answer = parse_response(MetadataResponse, 9, reply.frame)[1]
    assert [each.node_id for each in answer.brokers] == [0, 1] and world.listens == [0, 1]


def test_requests_that_name_too_much_close_their_connection() -> None:
    world = world_of()
    many_groups = FindCoordinatorRequest(key_type=0, coordinator_keys=("g",) * (MOST_NAMED + 1))
    world.request(1, many_groups, 4)
    world.request(2, adding(AddPartitionsToTxnTopic(name="t", partitions=tuple(range(MOST_NAMED)))), 3)
    assert world.closed == {
        1: "FindCoordinator names more than 10000 topics, partitions or groups",
        2: "AddPartitionsToTxn names more than 10000 topics, partitions or groups",
    }
