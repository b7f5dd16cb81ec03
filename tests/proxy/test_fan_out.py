"""Mode `fan-out`: clients see one partition, its records are spread by key, and clients cannot read it."""

import json
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.codec.apis.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.codec.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.codec.consumer_protocol import ConsumerProtocolSubscription, build_subscription
from ottla.codec.partitioners import murmur2_partition
from ottla.errors import ConfigurationError, NotLeaderOrFollower, TopicAuthorizationFailed
from ottla.proxy.clients import address_handler
from ottla.proxy.clients.access.guard import MOST_NAMED
from ottla.proxy.clients.one_partition import narrowed_description
from ottla.proxy.report_page import report
from ottla.proxy.routing import Routes, TopicRules
from ottla.proxy.serve import RunningProxy
from ottla.proxy.topic_rule import parse_rule
from tests.proxy.simulated import CUT_AFTER, CUT_BEFORE, Pair, Upstream, World, batch

SIX = 6
KEYS = [b"N%d" % n for n in range(40)]
REFUSED = TopicAuthorizationFailed.code


def pairs(count: int = 40, start: int = 0) -> list[Pair]:
    return [(KEYS[n % len(KEYS)], b"%d" % n) for n in range(start, start + count)]


def keyless(*values: bytes) -> list[Pair]:
    return [(None, value) for value in values]


def world_of(nodes: int = 1, rule: str = "flights=fan-out", **options: Any) -> World:
    world = World(Upstream({"flights": SIX, "plain": 2}, nodes), rule, **options)
    described(world)
    world.settle(1)
    return world


def described(world: World, version: int = 9, client: int = 0) -> dict[str, list[tuple[int, int, int]]]:
    """The partitions that Metadata names: topic -> index, leader and leader epoch of each."""
    topics = (MetadataRequestTopic(name="flights"), MetadataRequestTopic(name="plain"))
    answer = world.request(client, MetadataRequest(topics=topics), version).parsed(MetadataResponse)
    return {
        topic.name: [(each.partition_index, each.leader_id, each.leader_epoch) for each in topic.partitions]
        for topic in answer.topics
    }


@pytest.fixture
def world() -> World:
    return world_of()


def places(world: World) -> dict[bytes | None, int]:
    """Value -> its partition of the topic; each is stored once."""
    values = world.upstream.values("flights")
    assert max(Counter(values).values(), default=1) == 1
    return {
        record.value: place[1] for place, log in world.upstream.logs.items() if place[0] == "flights" for record in log
    }


# -- metadata


@pytest.mark.parametrize("version", range(13))
def test_clients_see_one_partition(version: int) -> None:
    seen = described(world_of(nodes=3), version)
    assert [index for index, _, _ in seen["flights"]] == [0]
    assert sorted(index for index, _, _ in seen["plain"]) == [0, 1]


def test_the_partition_has_a_leader_while_any_partition_of_the_topic_has_one() -> None:
    world = world_of(nodes=3)
    own = described(world)["flights"][0][1]
    world.upstream.lead("flights", 0, -1)
    [(index, leader, epoch)] = described(world)["flights"]
    assert index == 0 and leader in {0, 1, 2} and epoch == -1
    assert own in {0, 1, 2}
    for partition in range(SIX):
        world.upstream.lead("flights", partition, -1)
    assert described(world)["flights"] == [(0, -1, -1)]


def test_a_long_response_is_narrowed_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_handler, "LONG_ANSWER", 10)
    world.busy = True
    topics = (MetadataRequestTopic(name="flights"), MetadataRequestTopic(name="plain"))
    reply = world.request(0, MetadataRequest(topics=topics), 12)
    assert reply.frame is None
    [work] = world.work
    world.finish(work)
    answer = reply.parsed(MetadataResponse)
    assert {topic.name: len(topic.partitions) for topic in answer.topics} == {"flights": 1, "plain": 2}
    assert all(broker.host == "proxy" for broker in answer.brokers)


def test_a_description_has_one_partition_on_whatever_page() -> None:
    def described_with(*indexes: int) -> DescribeTopicPartitionsResponse:
        partitions = tuple(
            DescribeTopicPartitionsResponsePartition(
                error_code=0, partition_index=each, leader_id=1, replica_nodes=(), isr_nodes=(), offline_replicas=()
            )
            for each in indexes
        )
        topic = DescribeTopicPartitionsResponseTopic(
            error_code=0, name="flights", topic_id=UUID(int=1), partitions=partitions
        )
        return DescribeTopicPartitionsResponse(topics=(topic,))

    rules = TopicRules([parse_rule("flights=fan-out")])
    for indexes, left in (((0, 1, 2), [0]), ((3, 4), [])):
        [topic] = narrowed_description(described_with(*indexes), rules.fans_out).topics
        assert [each.partition_index for each in topic.partitions] == left


# -- records


def test_records_of_the_one_partition_go_to_the_partition_of_their_key(world: World) -> None:
    answer = world.produce(1, {("flights", 0): batch(pairs())}).produced["flights", 0]
    assert (answer.error_code, answer.base_offset) == (0, -1)
    found = places(world)
    assert found == {value: murmur2_partition(key or b"", SIX) for key, value in pairs()}


def test_no_offset_is_told_also_where_the_records_are_in_partition_0(world: World) -> None:
    key = next(key for key in KEYS if murmur2_partition(key, SIX) == 0)
    answer = world.produce(1, {("flights", 0): batch([(key, b"v")])}).produced["flights", 0]
    assert (answer.error_code, answer.base_offset) == (0, -1)
    assert places(world) == {b"v": 0}


def test_records_without_a_key_are_spread_by_batch(world: World) -> None:
    for number in range(60):
        values = b"%d-0" % number, b"%d-1" % number
        assert world.produce(1, {("flights", 0): batch(keyless(*values))}).code == 0
    found = places(world)
    assert len(found) == 120
    assert all(found[b"%d-0" % number] == found[b"%d-1" % number] for number in range(60))
    assert Counter(found.values()).keys() == {*range(SIX)}


def test_a_pinned_number_of_partitions_bounds_records_without_a_key() -> None:
    world = world_of(rule="flights=fan-out::2")
    for number in range(30):
        assert world.produce(1, {("flights", 0): batch(keyless(b"%d" % number))}).code == 0
    assert {*places(world).values()} == {0, 1}


def test_records_for_the_partitions_that_a_client_knew_before_the_rule_are_spread(world: World) -> None:
    assert world.produce(1, {("flights", 4): batch(pairs())}).code == 0
    assert places(world) == {value: murmur2_partition(key or b"", SIX) for key, value in pairs()}


@pytest.mark.parametrize("fate", [CUT_BEFORE, CUT_AFTER])
def test_an_idempotent_clients_retry_is_stored_once(world: World, fate: str) -> None:
    producer_id, fates = world.producer_id(1), [fate]
    world.upstream.fate = lambda request: fates.pop() if fates else "answered"
    data = batch([*pairs(), *keyless(b"a", b"b")], producer_id, 0, 0)
    first = world.produce(1, {("flights", 0): data})
    world.settle(5)
    assert first.code == 0
    assert world.produce(2, {("flights", 0): data}).code == 0
    assert world.produce(2, {("flights", 0): batch(pairs(10, 40), producer_id, 0, 42)}).code == 0
    assert len(places(world)) == 52


def test_a_restart_sends_records_without_a_key_to_the_same_partition_again() -> None:
    for number in range(12):  # a batch for most partitions
        world = world_of(nodes=1, journal=True)
        producer_id = world.producer_id(1)
        world.produce(1, {("flights", 0): batch(pairs(1), producer_id, 0, 0)})
        world.slow = True
        data = batch(keyless(b"x%d" % number, b"y%d" % number), producer_id, 0, 1)
        assert world.produce(1, {("flights", 0): data}).frame is None
        stored = places(world)
        assert len(stored) == 3
        world.slow = False
        world.restart()
        world.settle(5)
        assert world.produce(2, {("flights", 0): data}).code == 0
        assert places(world) == stored


def test_a_transaction_covers_all_partitions_and_names_one(world: World) -> None:
    begun = world.request(1, InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4)
    producer = begun.parsed(InitProducerIdResponse)
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name="flights", partitions=(0,)),),
    )
    [topic] = world.request(1, added, 3).parsed(AddPartitionsToTxnResponse).results_by_topic_v3_and_below
    assert [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition] == [(0, 0)]
    data = batch([*pairs(), *keyless(b"a")], producer.producer_id, producer.producer_epoch, 0, transactional=True)
    assert world.produce(1, {("flights", 0): data}, transactional_id="t").code == 0
    end = EndTxnRequest(
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert world.request(1, end, 3).parsed(EndTxnResponse).error_code == 0
    assert len(places(world)) == 41


# -- reading


def fetch(*topics: str) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    named = tuple(FetchTopic(topic=topic, partitions=(partition,)) for topic in topics)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=named, session_id=0, session_epoch=0)


@pytest.mark.parametrize("version", [4, 7, 12])
def test_reading_is_refused(world: World, version: int) -> None:
    world.produce(1, {("flights", 0): batch(pairs())})
    answer = world.request(1, fetch("flights"), version).parsed(FetchResponse)
    [(topic, partitions)] = [(each.topic, each.partitions) for each in answer.responses]
    assert topic == "flights" and answer.session_id == 0
    assert [(each.error_code, each.records or b"", each.high_watermark) for each in partitions] == [(REFUSED, b"", -1)]
    assert not world.upstream.asked(FetchRequest)


def test_other_topics_of_such_a_fetch_are_asked_for_again(world: World) -> None:
    answer = world.request(1, fetch("plain", "flights"), 12).parsed(FetchResponse)
    codes = {each.topic: each.partitions[0].error_code for each in answer.responses}
    assert codes == {"plain": NotLeaderOrFollower.code, "flights": REFUSED}
    alone = world.request(1, fetch("plain"), 12).parsed(FetchResponse)
    assert [each.partitions[0].error_code for each in alone.responses] == [0]


def test_offsets_of_the_topic_are_refused_and_those_of_others_pass(world: World) -> None:
    world.produce(1, {("plain", 0): batch(pairs(3))})
    asked = tuple(
        ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),))
        for topic in ("flights", "plain")
    )
    answer = world.request(1, ListOffsetsRequest(replica_id=-1, topics=asked), 5).parsed(ListOffsetsResponse)
    found = {topic.name: (topic.partitions[0].error_code, topic.partitions[0].offset) for topic in answer.topics}
    assert found == {"flights": (REFUSED, -1), "plain": (0, 3)}
    [passed] = world.upstream.asked(ListOffsetsRequest)
    assert [topic.name for topic in passed.topics] == ["plain"]


def test_a_commit_for_the_topic_alone_is_answered_here(world: World) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata=None)
    request = OffsetCommitRequest(
        group_id="g", topics=(OffsetCommitRequestTopic(name="flights", partitions=(partition,)),)
    )
    [topic] = world.request(1, request, 8).parsed(OffsetCommitResponse).topics
    assert (topic.name, [each.error_code for each in topic.partitions]) == ("flights", [REFUSED])
    assert not world.upstream.asked(OffsetCommitRequest)


def test_members_of_groups_are_refused_when_they_join(world: World) -> None:
    subscription = build_subscription(ConsumerProtocolSubscription(topics=("plain", "flights")), 1)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1000,
        member_id="m",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
    )
    answer = world.request(1, request, 5).parsed(JoinGroupResponse)
    assert (answer.error_code, answer.member_id) == (REFUSED, "m")
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("flights",)
    )
    told = world.request(1, heartbeat, 0).parsed(ConsumerGroupHeartbeatResponse)
    assert told.error_code == REFUSED and "mode fan-out" in (told.error_message or "")


def test_versions_with_topic_ids_are_not_offered(world: World) -> None:
    def newest(world: World) -> int:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        answer = world.request(3, request, 3).parsed(ApiVersionsResponse)
        versions: dict[int, int] = {each.api_key: each.max_version for each in answer.api_keys}
        return versions[1]

    assert newest(world) == 12
    assert newest(world_of(rule="flights=rewrite")) == 15
    topic = FetchTopic(topic_id=UUID(int=7), partitions=())
    world.request(3, FetchRequest(max_wait_ms=0, min_bytes=0, topics=(topic,)), 13)
    assert "topic ids instead of names" in world.closed[3]


@pytest.mark.parametrize("rule", ["flights=fan-out", "flights=rewrite"])
def test_a_request_that_is_read_names_a_bounded_number_of_topics(rule: str) -> None:
    world = world_of(rule=rule)
    reply = world.request(1, fetch(*["plain"] * MOST_NAMED), 12)
    if rule == "flights=fan-out":
        assert "names more than 10000" in world.closed[1] and reply.frame is None
    else:
        assert len(reply.parsed(FetchResponse).responses) > 0


def test_a_refusal_is_logged_once_with_the_way_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.request(1, fetch("flights"), 12, client_id="reader")
    world.request(1, fetch("flights"), 12, client_id="reader")
    [line] = [each for each in caplog.records if each.message == "topic in mode fan-out cannot be read here"]
    told = vars(line)
    assert (told["topic"], told["request"], told["client_id"]) == ("flights", "Fetch", "reader")
    assert "from the cluster itself" in told["why"]


# -- rules that change


def test_a_topic_does_not_leave_the_mode_by_a_reload_unless_it_is_rewritten_then() -> None:
    running = RunningProxy("", "", {}, {}, _core=world_of(rule="f*=fan-out").core)
    for rules in ((), ("flights=observe", "f*=fan-out"), ("flights=reject",)):
        with pytest.raises(ConfigurationError, match=r"may only change to rewrite or copy: flights; .* restart"):
            running.change_rules(tuple(map(parse_rule, rules)))
    running.change_rules((parse_rule("flights=rewrite"),))
    running.change_rules((parse_rule("f*=fan-out:crc32"),))


def test_pins_stay_between_rewrite_and_fan_out() -> None:
    world = world_of(rule="flights=rewrite")
    world.produce(1, {("flights", 0): batch(pairs(3))})
    before = world.core.topics.pins["flights"]
    world.core.topics.change_rules((parse_rule("flights=fan-out"),), world.now)
    assert world.core.topics.pins["flights"] == Routes(before.topic_id, SIX, "murmur2", fans_out=True)
    producer_id = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch(pairs(3, 3), producer_id, 0, 0)}).code == 0


def test_a_rule_for_the_brokers_own_topics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the brokers' own"):
        parse_rule("__consumer_offsets=fan-out")


# -- counts


def test_no_key_counts_as_misplaced_because_clients_choose_no_partition() -> None:
    world = world_of(report="127.0.0.1:0")
    for number in range(10):
        assert world.produce(1, {("flights", 0): batch([*pairs(40, 40 * number), *keyless(b"a")])}).code == 0
    tally = world.core.tallies["flights"]
    assert (tally.records, tally.keyless, tally.misplaced) == (410, 10, 0)
    [topic] = json.loads("".join(report(world.core, 1.0)))["topics"]
    [client] = topic["clients"]
    assert (topic["mode"], client["records"], client["misplaced"]) == ("fan-out", 410, 0)
    assert topic["looked_at"], "hot keys matter here, too"
    assert (client["partitioner"], client["keys_in_several_partitions"]["keys"]) == (None, 0)
