"""Requests that pass through the proxy, and requests that it answers."""

import struct

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.proxy.events import Requested
from tests.proxy.simulated import CUT_AFTER, CUT_BEFORE, PROXY_PORT, Upstream, World, batch


@pytest.fixture
def world() -> World:
    return World(Upstream({"flights": 6, "plain": 2}, nodes=3), "flights=rewrite")


def addresses(metadata: MetadataResponse) -> dict[int, tuple[str, int]]:
    return {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}


def test_a_port_is_opened_for_each_node_in_the_order_of_their_ids(world: World) -> None:
    assert world.listens == [0, 1, 2]
    assert world.core.ready


def test_metadata_names_the_proxys_addresses_and_keeps_node_ids(world: World) -> None:
    for version in range(14):
        answer = world.request(1, MetadataRequest(topics=()), version).parsed(MetadataResponse)
        assert addresses(answer) == {node: ("proxy", PROXY_PORT + node) for node in range(3)}


def test_a_new_node_gets_its_port_before_a_client_hears_of_it(world: World) -> None:
    world.upstream.cluster.add_node(7)
    reply = world.request(1, MetadataRequest(topics=()), 9)
    assert world.listens == [0, 1, 2, 7]
    assert addresses(reply.parsed(MetadataResponse))[7] == ("proxy", PROXY_PORT + 7)


def test_coordinators_are_at_the_proxys_addresses(world: World) -> None:
    world.upstream.cluster.lead(world.upstream.cluster.groups.place("g"), 2)
    reply = world.request(1, FindCoordinatorRequest(coordinator_keys=("g",)), 4, node=2)
    (found,) = reply.parsed(FindCoordinatorResponse).coordinators
    assert (found.node_id, found.host, found.port) == (2, "proxy", PROXY_PORT + 2)


def test_a_coordinator_that_is_not_known_yet_is_asked_for_again(world: World) -> None:
    world.upstream.cluster.add_node(5)
    world.upstream.cluster.lead(world.upstream.cluster.groups.place("g"), 5)
    world.core.cluster.nodes[5] = ("broker", 9005)
    reply = world.request(1, FindCoordinatorRequest(coordinator_keys=("g",)), 4, node=5)
    (found,) = reply.parsed(FindCoordinatorResponse).coordinators
    assert found.error_code == 15
    world.settle(1)
    reply = world.request(1, FindCoordinatorRequest(coordinator_keys=("g",)), 4, node=5)
    assert reply.parsed(FindCoordinatorResponse).coordinators[0].port == PROXY_PORT + 5


def test_clients_are_offered_what_the_proxy_can_carry(world: World) -> None:
    answer = world.request(1, ApiVersionsRequest(), 3).parsed(ApiVersionsResponse)
    offered = {each.api_key: each.max_version for each in answer.api_keys}
    assert offered == {0: 12, 1: 15, 3: 13, 10: 6, 18: 4, 22: 5, 24: 3, 26: 5, 28: 5, 32: 4, 60: 2}


def test_apiversions_of_a_version_to_come_is_answered_in_version_0(world: World) -> None:
    reply = world.send(1, struct.pack(">hhih", 18, 99, 5, -1) + b"unknown", version=0)
    world.settle()
    answer = reply.parsed(ApiVersionsResponse)
    assert answer.error_code == 35
    assert [each.api_key for each in answer.api_keys] == [18]


@pytest.mark.parametrize(("key", "version"), [(17, 1), (60, 3), (0, 13), (1, 16), (12345, 0), (3, -1)])
def test_what_is_not_offered_closes_the_connection(world: World, key: int, version: int) -> None:
    world.core.handle(Requested(1, 0, 0, struct.pack(">hhih", key, version, 5, -1)), world.now)
    world.settle()
    assert "was not offered" in world.closed[1]


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", struct.pack(">hhih", 0, 9, 5, -1)])
def test_a_frame_that_is_no_request_closes_its_connection_only(world: World, frame: bytes) -> None:
    world.core.handle(Requested(1, 0, 0, frame), world.now)
    world.settle()
    assert list(world.closed) == [1]
    assert world.request(2, MetadataRequest(topics=()), 9).frame


def test_correlation_ids_are_the_clients_own(world: World) -> None:
    first = world.request(1, MetadataRequest(topics=()), 9)
    second = world.request(2, MetadataRequest(topics=()), 9)
    assert first.frame and second.frame
    assert [int.from_bytes(reply.frame[:4], "big") for reply in (first, second) if reply.frame] == [4711, 4712]


def test_topics_without_a_rule_pass_as_they_are(world: World) -> None:
    data = batch([(b"k", b"1"), (None, b"2")])
    reply = world.produce(1, {("plain", 1): data}, node=1)
    assert reply.code == 0
    assert world.upstream.produced[0][1].topic_data[0].partition_data[0].records == data
    assert world.upstream.values("plain") == [b"1", b"2"]


def test_a_client_loses_its_connection_when_its_answer_is_lost(world: World) -> None:
    world.upstream.fate = lambda request: CUT_AFTER
    reply = world.produce(1, {("plain", 0): batch([(b"k", b"1")])})
    assert reply.frame is None
    assert "cut" in world.closed[1]


@pytest.mark.parametrize("fate", [CUT_BEFORE, CUT_AFTER])
def test_a_client_loses_its_connection_when_upstream_hangs_up_on_records_without_answers(
    world: World, fate: str
) -> None:
    world.request(1, ApiVersionsRequest(), 3)
    world.upstream.fate = lambda request: fate
    world.produce(1, {("plain", 0): batch([(b"k", b"1")])}, acks=0)
    assert "cut" in world.closed[1]


def test_a_client_without_open_requests_outlives_its_upstream_connection(world: World) -> None:
    world.request(1, MetadataRequest(topics=()), 9)
    world.kill(0)
    world.upstream.down.clear()
    assert world.request(1, MetadataRequest(topics=()), 9).frame
    assert not world.closed


def test_a_client_of_a_node_that_is_down_is_turned_away(world: World) -> None:
    world.kill(1)
    world.request(1, MetadataRequest(topics=()), 9, node=1)
    assert "upstream broker:9001" in world.closed[1]


def test_an_answer_for_a_client_that_left_is_dropped(world: World) -> None:
    world.slow = True
    reply = world.produce(1, {("plain", 0): batch([(b"k", b"1")])})
    world.leave(1)
    world.release()
    assert reply.frame is None


def test_a_fetch_is_not_read_on_its_way(world: World) -> None:
    sent: list[bytes] = []

    def answer(node: int, frame: bytes) -> tuple[bytes | None, str]:
        sent.append(frame)
        return frame[4:8] + b"whatever", "answered"

    world.request(1, ApiVersionsRequest(), 3)
    world.upstream.answer = answer  # type: ignore[method-assign]  # upstream that answers in bytes of its own
    reply = world.request(1, FetchRequest(max_wait_ms=1, min_bytes=1, topics=()), 12)
    assert reply.frame == (4712).to_bytes(4, "big") + b"whatever"
    assert len(sent) == 1
