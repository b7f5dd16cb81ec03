"""Clients of a proxy with ACLs get Kafka's errors, and nothing of theirs reaches upstream that they may not do."""

import re
import uuid
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from ottla.client_info import ClientInfo
from ottla.codec import wire
from ottla.codec.apis import APIS, NAMES
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.codec.apis.describe_configs import TOPIC
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.error_codes import error_codes
from ottla.codec.frames import build_request, parse_request
from ottla.errors import (
    ClusterAuthorizationFailed,
    FetchSessionIdNotFound,
    GroupAuthorizationFailed,
    InvalidRequest,
    OperationNotAttempted,
    RemoteProtocolError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
)
from ottla.proxy.clients.access.guard import MOST_NAMED
from ottla.proxy.clients.access.screens import NOT_SCREENED, is_screened
from ottla.proxy.clients.carried import API_VERSIONS, CARRIED, FETCH, METADATA, PRODUCE
from ottla.proxy.clients.offering import Offering
from ottla.proxy.clients.walks import with_shorter_wait
from ottla.proxy.denied_apis import parse_denied_apis
from ottla.proxy.events import AccessChanged
from tests.brokerlite.sharing import fetch as share_fetch
from tests.codec.strategies import example, tree
from tests.proxy.secured import rules
from tests.proxy.simulated import NEWEST, Reply, Upstream, World, batch

DENIED = {
    each.code
    for each in (
        ClusterAuthorizationFailed,
        GroupAuthorizationFailed,
        TopicAuthorizationFailed,
        TransactionalIdAuthorizationFailed,
    )
}
KNOWN = NEWEST.keys() - {60}
"""The APIs that the model of upstream knows."""
DESCRIBE_LOG_DIRS = 35
"""Without the right the list is empty; newer versions also have an error."""
OPEN = {API_VERSIONS, 71, 72}
"""ApiVersions, GetTelemetrySubscriptions, PushTelemetry: Kafka asks for no right."""
LISTS = {16: "groups", 66: "transaction_states", 60: "cluster_authorized_operations", METADATA: ""}
"""Requests that go to upstream, because their responses are only filtered: the field that has to be empty."""
OFFERING = Offering(screened=True)
ORDERS = uuid.UUID(int=7)
"""The id that the model gives to its first topic."""


def versions_of(key: int) -> list[int]:
    known = wire.api(APIS[key].request).versions
    return [each for each in range(known.low, known.high + 1) if OFFERING.why_not(key, each, with_names=False) is None]


CASES = [
    pytest.param(key, version, id=f"{NAMES[key]}-{version}")
    for key in CARRIED
    if is_screened(key) and key not in OPEN
    for version in versions_of(key)
]


class AnsweringAll(Upstream):
    """Also answers requests that the model does not know, with something in every list."""

    def _answer(self, node: int, version: int, message: Any) -> Any:
        key = wire.api(type(message)).key
        if key in KNOWN:
            return super()._answer(node, version, message)
        answer = example(tree(APIS[key].response, version))
        if hasattr(answer, "error_code"):
            answer.error_code = 0
        return answer


class EveryName(dict[uuid.UUID, str]):
    """The names of topic ids: all belong to one topic."""

    def __contains__(self, key: object) -> bool:
        return True

    def get(self, key: uuid.UUID, default: Any = None) -> Any:
        return "secret"


def client(user: str, number: int) -> ClientInfo:
    host = f"10.0.0.{number}"
    return ClientInfo(local_host="", local_port=0, peer_host=host, peer_port=9, principal=f"User:{user}")


def world_of(*acls: str, topics: tuple[str, ...] = ("orders", "secret"), **options: Any) -> World:
    """Clients 1 and 2 are alice, 3 is the super user."""
    world = World(AnsweringAll(dict.fromkeys(topics, 1)), acls=rules(*acls, **options))
    world.infos |= {1: client("alice", 1), 2: client("alice", 2), 3: client("admin", 3), 4: client("bob", 4)}
    return world


@pytest.fixture(scope="module")
def closed_world() -> World:
    return world_of()


# -- every API


def test_every_carried_api_is_screened_or_has_a_reason() -> None:
    assert {key for key in CARRIED if not is_screened(key)} == NOT_SCREENED.keys()


@pytest.mark.parametrize(("key", "version"), CASES)
def test_a_client_without_rights_hears_so_and_nothing_reaches_upstream(
    closed_world: World, key: int, version: int
) -> None:
    world = closed_world
    world.core.cluster.names = EveryName()
    message = as_asked(example(tree(APIS[key].request, version)))
    before = len(world.upstream.requests)
    reply = world.send(1, build_request(message, version, 1, "client")[4:], version)
    sent = [each for _, _, each in world.upstream.requests[before:] if type(each) is APIS[key].request]
    answer = reply.parsed(APIS[key].response)
    if key == METADATA:
        assert all(not each.topics and not each.include_topic_authorized_operations for each in sent[:-1])
        assert not sent[-1].topics and {each.error_code for each in answer.topics} <= DENIED | {InvalidRequest.code}
        return
    if key in LISTS:
        assert len(sent) == 1 and not getattr(answer, LISTS[key], ()), "nothing that upstream listed"
        return
    assert sent == []
    if key == DESCRIBE_LOG_DIRS:
        assert answer.results == ()
        return
    found = set(error_codes(answer))
    assert found & DENIED and found <= DENIED | {OperationNotAttempted.code, InvalidRequest.code}, answer


WITHOUT_TEXT = {20, 55, 78, 79}
"""In the examples DeleteTopics, ShareFetch and ShareAcknowledge name topics by id, and a text must not tell the name;
the offered versions of DescribeQuorum have no place for a text.
"""


@pytest.mark.parametrize(
    "key", [key for key in CARRIED if is_screened(key) and key not in OPEN | LISTS.keys() | WITHOUT_TEXT], ids=NAMES.get
)
def test_a_client_without_rights_reads_which_one_is_missing(closed_world: World, key: int) -> None:
    world = closed_world
    world.core.cluster.names = EveryName()
    version = versions_of(key)[-1]
    message = as_asked(example(tree(APIS[key].request, version)))
    reply = world.send(1, build_request(message, version, 1, "client")[4:], version)
    texts = [text for code, text in errors_in(reply.parsed(APIS[key].response)) if code in DENIED]
    assert all(re.match("User:alice may not [A-Za-z]+ [A-Za-z]+ ", text or "") for text in texts), texts


def errors_in(answer: Any) -> list[tuple[int, str | None]]:
    """The error codes of a response, in its parts too, that have a text beside them."""
    if isinstance(answer, tuple):
        return [found for each in answer for found in errors_in(each)]
    if not is_dataclass(answer):
        return []
    values = {each.name: getattr(answer, each.name) for each in fields(answer)}
    own = [(values["error_code"], values["error_message"])] if {"error_code", "error_message"} <= values.keys() else []
    return own + [found for each in values.values() for found in errors_in(each)]


def test_the_text_of_a_denial_has_no_name_that_the_client_did_not_give() -> None:
    world = world_of()
    secret = world.upstream.cluster.nodes[0].ids["secret"]
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=secret),), timeout_ms=1)
    [result] = world.request(1, request, 6).parsed(DeleteTopicsResponse).responses
    assert result.error_code == TopicAuthorizationFailed.code and result.name is None
    assert result.error_message is None


def as_asked(message: Any) -> Any:
    """An example that a client could send: the screens would refuse it otherwise for another reason."""
    for name, value in (("session_epoch", 0), ("share_session_epoch", 0), ("acks", 1), ("key_type", 0)):
        if hasattr(message, name):
            setattr(message, name, value)
    for each in getattr(message, "resources", ()):
        each.resource_type = TOPIC
    for each in getattr(message, "topics", None) or ():
        if hasattr(each, "name") and hasattr(each, "topic_id"):
            each.name = None if each.topic_id != wire.NO_UUID else each.name
    return message


@pytest.mark.parametrize("key", CARRIED, ids=NAMES.get)
def test_a_super_user_is_not_asked(key: int) -> None:
    if not is_screened(key) or key == PRODUCE:
        return
    world = world_of()
    world.upstream.cluster.release = dict.fromkeys(NAMES, (0, 99))
    version = versions_of(key)[-1]
    message = example(tree(APIS[key].request, version))
    world.send(3, build_request(message, version, 1, "client")[4:], version)
    assert [each for _, _, each in world.upstream.requests if type(each) is APIS[key].request] or key == API_VERSIONS


def test_an_api_that_cannot_be_checked_is_neither_offered_nor_taken() -> None:
    world = world_of()
    world.upstream.cluster.release = dict.fromkeys(NAMES, (0, 99))
    answer = world.request(1, ApiVersionsRequest(), 3).parsed(ApiVersionsResponse)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert offered.keys() == {key for key in CARRIED if is_screened(key)}
    assert offered[METADATA] == (4, 13) and offered[9] == (0, 9) and offered[FETCH] == (0, 15)
    for key in NOT_SCREENED:
        version = wire.api(APIS[key].request).versions.low
        world.send(1, build_request(example(tree(APIS[key].request, version)), version, 1, "client")[4:], version)
        assert "was not offered" in world.closed.pop(1)


def test_a_denied_api_is_neither_offered_nor_taken_without_acls_either() -> None:
    denied = parse_denied_apis(("AlterConfigs", "Fetch:0-11", "Produce:10-12"))
    world = World(Upstream({"orders": 1}), deny_apis=denied)
    world.upstream.cluster.release |= {33: (0, 2)}
    answer = world.request(1, ApiVersionsRequest(), 3).parsed(ApiVersionsResponse)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert 33 not in offered and offered[FETCH] == (12, 15) and offered[PRODUCE] == (0, 9)
    for key, version in ((33, 1), (FETCH, 11), (PRODUCE, 10)):
        world.send(1, build_request(example(tree(APIS[key].request, version)), version, 1, "client")[4:], version)
        assert "the operator of the proxy denies it" in world.closed.pop(1)


def test_a_request_that_names_too_much_closes_its_connection() -> None:
    world = world_of("allow alice Describe Topic *")
    asked = metadata(*(f"t{number}" for number in range(MOST_NAMED + 1)))
    for number in (1, 4):
        assert world.request(number, asked, 9).frame is None
        assert world.closed[number] == f"Metadata names more than {MOST_NAMED} topics, partitions or groups"
    assert world.request(3, asked, 9).frame is not None, "who has all rights is not checked"


def test_bytes_behind_a_request_close_the_connection() -> None:
    world = world_of("allow alice Describe Topic orders")
    frame = build_request(metadata("orders"), 9, 1, "client")[4:] + b"more"
    world.send(1, frame, 9)
    assert "4 bytes behind its end" in world.closed[1]


# -- parts of a request


def metadata(*names: str, create: bool = False) -> MetadataRequest:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def test_a_request_goes_on_without_what_is_denied() -> None:
    world = world_of("allow alice Write Topic orders")
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=tuple(
            TopicProduceData(name=name, partition_data=(PartitionProduceData(index=0, records=batch([(None, b"v")])),))
            for name in ("orders", "secret")
        ),
    )
    produced = world.request(1, request, 9).produced
    codes = {place: each.error_code for place, each in produced.items()}
    assert codes == {("orders", 0): 0, ("secret", 0): TopicAuthorizationFailed.code}
    assert world.upstream.values("orders") == [b"v"] and world.upstream.values("secret") == []


def test_a_refused_record_set_without_acks_closes_the_connection() -> None:
    world = world_of("allow alice Write Topic orders")
    world.produce(1, {("secret", 0): batch([(None, b"v")])}, acks=0)
    assert "may not write to the topic" in world.closed[1] and world.upstream.values("secret") == []


def test_transactional_records_need_the_right_to_the_id() -> None:
    world = world_of("allow alice Write Topic orders")
    records = bytearray(batch([(None, b"v")]))
    records[22] |= 0x10
    for transactional_id in (None, "tx"):
        reply = world.produce(1, {("orders", 0): bytes(records)}, transactional_id=transactional_id)
        assert reply.code == TransactionalIdAuthorizationFailed.code
    assert world.upstream.produced == []


def test_a_list_has_only_topics_that_the_client_may_describe() -> None:
    world = world_of("allow alice Describe Topic order prefixed")
    answer = world.request(1, MetadataRequest(topics=None), 9).parsed(MetadataResponse)
    assert [each.name for each in answer.topics] == ["orders"] and answer.brokers
    answer = world.request(3, MetadataRequest(topics=None), 9).parsed(MetadataResponse)
    assert [each.name for each in answer.topics] == ["orders", "secret"]


@pytest.mark.parametrize(
    ("acls", "options"),
    [
        (("deny alice Describe Topic secret",), {}),
        (("deny * All Topic sec prefixed",), {}),
        (("allow bob Read Topic secret",), {"allow_if_none": True}),
    ],
    ids=["a topic is denied", "a prefix is denied", "a topic is another user's"],
)
def test_a_pattern_that_upstream_matches_needs_describe_on_each_topic(
    acls: tuple[str, ...], options: dict[str, Any]
) -> None:
    everything = () if options else ("allow alice Describe Topic *",)
    pattern = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_regex=".*", topic_partitions=()
    )
    world = world_of("allow alice Read Group g", *everything, *acls, **options)
    told = world.request(1, pattern, 1).parsed(ConsumerGroupHeartbeatResponse)
    assert told.error_code == TopicAuthorizationFailed.code
    assert world.upstream.asked(ConsumerGroupHeartbeatRequest) == []
    open_world = world_of("allow alice Read Group g", *everything, **options)
    for each, number in ((open_world, 1), (world, 3)):
        assert each.request(number, pattern, 1).parsed(ConsumerGroupHeartbeatResponse).error_code == 0
        assert each.upstream.asked(ConsumerGroupHeartbeatRequest) == [pattern]


def test_without_read_on_its_group_no_heartbeat_of_a_member_reaches_upstream() -> None:
    """So upstream removes a member whose pattern was allowed before a reload."""
    joins = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_regex=".*", topic_partitions=()
    )
    stays = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    world = world_of("allow alice Read Group g", "allow alice Describe Topic *")
    assert world.request(1, joins, 1).parsed(ConsumerGroupHeartbeatResponse).error_code == 0
    world.core.handle(AccessChanged(rules("allow alice Describe Topic *", "deny alice All Topic secret")), world.now)
    world.settle()
    assert 1 in world.closed
    world.infos[5] = client("alice", 5)
    for each in (stays, replace(joins, subscribed_topic_regex=None, subscribed_topic_names=())):
        told = world.request(5, each, 1).parsed(ConsumerGroupHeartbeatResponse)
        assert told.error_code == GroupAuthorizationFailed.code
    assert world.upstream.asked(ConsumerGroupHeartbeatRequest) == [joins]


def test_a_long_list_is_filtered_in_a_thread() -> None:
    names = tuple(f"topic-{n:05}-{'x' * 200}" for n in range(1500))
    world = world_of("allow alice Describe Topic topic-00007 prefixed", topics=names)
    world.busy = True
    reply = world.request(1, MetadataRequest(topics=None), 9)
    assert reply.frame is None
    (work,) = world.work
    world.finish(work)
    assert [each.name for each in reply.parsed(MetadataResponse).topics] == [names[7]]


def test_only_those_who_may_create_a_topic_create_it_by_asking() -> None:
    world = world_of("allow alice Describe Topic new prefixed", "allow alice Create Topic new-1")
    answer = world.request(1, metadata("new-1", "new-2", create=True), 9).parsed(MetadataResponse)
    assert all(not each.allow_auto_topic_creation for each in world.upstream.asked(MetadataRequest) if each.topics)
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes["new-2"] == TopicAuthorizationFailed.code
    world.request(1, metadata("new-1", create=True), 9)
    assert world.upstream.asked(MetadataRequest)[-1].allow_auto_topic_creation


# -- fetch sessions, and topic ids


def fetch(*topics: str, ids: tuple[uuid.UUID, ...] = (), session_id: int = 0, epoch: int = 0) -> FetchRequest:
    named = [{"topic": name} for name in topics] + [{"topic_id": each} for each in ids]
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=tuple(FetchTopic(partitions=(partition,), **each) for each in named),
    )


def giving(session_id: int) -> Any:
    """A `bend` with which a response to Fetch begins a session."""

    def bend(request: Any, answer: Any) -> Any:
        if isinstance(answer, FetchResponse) and request.session_epoch == 0:
            answer.session_id = session_id
        return answer

    return bend


def codes_of(reply: Reply) -> dict[str, int]:
    answer = reply.parsed(FetchResponse)
    return {each.topic: each.partitions[0].error_code for each in answer.responses} | (
        {"": answer.error_code} if answer.error_code else {}
    )


def test_a_fetch_with_a_denied_topic_gets_no_session() -> None:
    world = world_of("allow alice Read Topic orders")
    world.upstream.bend = giving(77)
    reply = world.request(1, fetch("orders", "secret"), 11)
    assert codes_of(reply) == {"orders": 0, "secret": TopicAuthorizationFailed.code}
    (sent,) = world.upstream.asked(FetchRequest)
    assert [each.topic for each in sent.topics] == ["orders"] and sent.session_epoch == -1


def test_a_session_belongs_to_the_connection_on_which_it_began() -> None:
    world = world_of("allow alice Read Topic orders")
    world.upstream.bend = giving(77)
    assert codes_of(world.request(1, fetch("orders"), 11)) == {"orders": 0}
    assert codes_of(world.request(2, fetch(session_id=77, epoch=1), 11)) == {"": FetchSessionIdNotFound.code}
    world.request(2, fetch("orders", session_id=77, epoch=-1), 11)
    *_, ending = world.upstream.asked(FetchRequest)
    assert ending.session_id == 0, "another connection's session must not be ended, either"
    before = len(world.upstream.asked(FetchRequest))
    world.request(1, fetch(session_id=77, epoch=1), 11)
    assert len(world.upstream.asked(FetchRequest)) == before + 1
    assert codes_of(world.request(1, fetch("secret", session_id=77, epoch=2), 11)) == {"": FetchSessionIdNotFound.code}
    assert len(world.upstream.asked(FetchRequest)) == before + 1


def test_a_topic_id_is_decided_by_its_name_which_is_asked_for_once() -> None:
    world = world_of("allow alice Read Topic orders")
    topics = {name: world.upstream.cluster.nodes[0].ids[name] for name in ("orders", "secret")}
    world.core.cluster.names.clear()
    unknown = uuid.UUID(int=5)
    replies = [
        world.request(1, fetch(ids=(topics["orders"], topics["secret"], unknown), epoch=-1), 13) for _ in range(2)
    ]
    for reply in replies:
        found = {each.topic_id: each.partitions[0].error_code for each in reply.parsed(FetchResponse).responses}
        assert found == {
            topics["orders"]: 0,
            topics["secret"]: TopicAuthorizationFailed.code,
            unknown: UnknownTopicId.code,
        }
    by_id = [each for each in world.upstream.asked(MetadataRequest) if each.topics and each.topics[0].name is None]
    assert [len(each.topics) for each in by_id] == [3, 1]
    for sent in world.upstream.asked(FetchRequest):
        assert [each.topic_id for each in sent.topics] == [topics["orders"]]


def test_requests_wait_behind_one_whose_ids_are_asked_for() -> None:
    world = world_of("allow alice Read Topic orders")
    topic_id = world.upstream.cluster.nodes[0].ids["orders"]
    world.core.cluster.names.clear()
    first = world.arrive(1, build_request(fetch(ids=(topic_id,), epoch=-1), 13, 1, "client")[4:], 13)
    second = world.arrive(1, build_request(fetch("orders", epoch=-1), 11, 2, "client")[4:], 11)
    world.settle()
    assert first.frame is not None and second.frame is not None
    sent = world.upstream.asked(FetchRequest)
    assert sent[0].topics[0].topic_id == topic_id


def test_an_upstream_that_breaks_off_while_it_is_asked_for_names_leaves_nothing_waiting() -> None:
    world = world_of("allow alice Read Topic orders")
    world.request(1, metadata("orders"), 9)
    world.core.cluster.names.clear()
    answer = world.upstream.answer

    def cut(node: int, frame: bytes) -> tuple[bytes | None, str]:
        if parse_request(frame).header.client_id == "ottla-proxy" and parse_request(frame).header.api_version == 12:
            return None, "cut before"
        return answer(node, frame)

    world.upstream.answer = cut  # type: ignore[method-assign]
    world.request(1, fetch(ids=(uuid.UUID(int=5),), epoch=-1), 13)
    assert 1 in world.closed
    assert world.core.buffered.of.get(1, 0) == 0


# -- a change of the ACLs


def test_a_change_closes_the_connections_of_those_whom_it_concerns() -> None:
    world = world_of("allow alice Read Topic orders", "allow bob Read Topic orders")
    for number in (1, 2, 3, 4):
        world.request(number, metadata("orders"), 9)
    new = rules("allow alice Read Topic secret", "allow bob Read Topic orders")
    world.core.handle(AccessChanged(new), world.now)
    world.settle()
    assert world.closed.keys() == {1, 2}
    assert all("have changed" in why for why in world.closed.values())
    assert codes_of(world.request(1, fetch("orders", epoch=-1), 11)) == {"orders": TopicAuthorizationFailed.code}
    world.core.handle(AccessChanged(new), world.now)
    world.settle()
    assert world.closed.keys() == {1, 2}, "nothing has changed"


def test_a_rule_for_everyone_concerns_everyone() -> None:
    world = world_of("allow alice Read Topic orders")
    for number in (1, 4):
        world.request(number, metadata("orders"), 9)
    world.core.handle(AccessChanged(rules("allow alice Read Topic orders", "deny * Read Topic orders")), world.now)
    world.settle()
    assert world.closed.keys() == {1, 4}


# -- waiting


def waiting_fetch(version: int = 11, wait_ms: int = 2**31 - 1, denied: int = 0) -> bytes:
    """A Fetch that waits for records, with some denied partitions."""
    places = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1) for each in range(max(denied, 1))]
    topics = [FetchTopic(topic="orders", topic_id=ORDERS, partitions=tuple(places[:1]))]
    if denied:
        topics.append(FetchTopic(topic="secret", partitions=tuple(places)))
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=2**31 - 1, max_bytes=1, session_epoch=-1, topics=tuple(topics)
    )
    return build_request(request, version, 1, "client")[4:]


def silent_for_fetches(request: Any, answer: Any) -> Any:
    return None if isinstance(request, FetchRequest) else answer


def small_world() -> World:
    """Its budget is the smallest, and its brokers answer no Fetch."""
    world = World(AnsweringAll({"orders": 1}), acls=rules("allow alice Read Topic orders"), max_buffered=2**20)
    world.infos |= {1: client("alice", 1), 2: client("alice", 2)}
    world.upstream.bend = silent_for_fetches
    return world


def test_denied_entries_that_wait_for_a_response_count_as_memory_of_their_client() -> None:
    world = small_world()
    world.send(1, waiting_fetch(), 11)
    world.send(2, waiting_fetch(), 11)
    assert world.core.buffered.total == 0 and not world.held
    world.send(1, waiting_fetch(denied=9_900), 11)
    assert world.core.buffered.of[1] > 2**20 and world.held == {1}, "it sends no more"
    assert not world.closed
    world.leave(1)
    assert world.core.buffered.total == 0 and not world.held


def test_the_memory_of_denied_entries_is_free_once_the_response_is_there() -> None:
    world = small_world()
    world.upstream.bend = lambda request, answer: answer
    reply = world.send(1, waiting_fetch(denied=1000), 11)
    assert len(error_codes(reply.parsed(FetchResponse))) == 1000
    assert world.core.buffered.total == 0


def test_a_client_that_leaves_requests_with_denied_entries_holds_nothing() -> None:
    world = small_world()
    frames = [waiting_fetch(denied=1000) for _ in range(3)]
    for each in frames:
        world.arrive(1, each, 11)
    world.leave(1)
    world.upstream.bend = lambda request, answer: answer
    assert world.core.buffered.total == 0


def test_a_client_with_many_denied_entries_is_disconnected_when_there_is_no_memory_left() -> None:
    world = small_world()
    for number in (1, 2):
        world.send(number, waiting_fetch(), 11)
    for _ in range(4):
        world.send(1, waiting_fetch(denied=9_900), 11)
    assert "too many requests of this client wait" in world.closed[1] and 2 not in world.closed


@pytest.mark.parametrize("version", [4, 11, 12, 15])
def test_a_fetch_waits_no_longer_than_the_session_of_its_client_lasts(version: int) -> None:
    for number, wait_ms in ((1, 5000), (2, 450_000), (3, 5000)):
        world = world_of("allow alice Read Topic orders")
        if number != 2:
            world.infos[number].authenticated(world.infos[number].principal, world.now + 5.0)
        for asked in (2**31 - 1, 17):
            world.send(number, waiting_fetch(version, asked), version)
        assert [each.max_wait_ms for each in world.upstream.asked(FetchRequest)] == [wait_ms, 17]


def test_a_fetch_that_is_cut_off_is_left_to_upstream() -> None:
    frame = waiting_fetch()
    wait = frame.index(b"\x7f\xff\xff\xff")
    for size in range(8, wait + 4):
        assert with_shorter_wait(frame[:size], 1) == frame[:size]
    assert with_shorter_wait(frame, 1) == frame[:wait] + b"\0\0\0\1" + frame[wait + 4 :]


def test_the_wait_of_a_share_fetch_is_shortened_too() -> None:
    request = share_fetch(ORDERS, wait=70.0)
    frame = build_request(request, 1, 7, "client")[4:]
    assert parse_request(with_shorter_wait(frame, 5)).message == replace(request, max_wait_ms=5)


def test_tagged_fields_do_not_hide_the_wait_of_a_fetch() -> None:
    frame = waiting_fetch(12)
    behind = 10 + int.from_bytes(frame[8:10], "big")  # the client id
    tags = b"".join(bytes((tag, 0)) for tag in range(101))
    with pytest.raises(RemoteProtocolError, match="more than 100 tagged fields"):
        with_shorter_wait(frame[:behind] + bytes((101,)) + tags + frame[behind + 1 :], 5)


# -- the log


def test_a_denial_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()
    for _ in range(3):
        world.request(1, metadata("secret"), 9)
    lines = [each for each in caplog.records if each.message == "access denied"]
    assert [(each.__dict__["principal"], each.__dict__["resource"]) for each in lines] == [
        ("User:alice", "Topic:secret")
    ]
    assert sum(world.core.audit.denials.values()) == 3
    assert not re.search("password|salt", caplog.text)
