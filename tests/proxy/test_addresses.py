"""Clients learn no address but the proxy's: the decision about every API, and what each response looks like to them."""

import itertools
from dataclasses import fields, is_dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from ottla.codec import wire
from ottla.codec.apis import APIS, NAMES
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ottla.codec.apis.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.codec.frames import build_response, parse_request, parse_response
from ottla.errors import NotLeaderOrFollower
from ottla.proxy.clients.carried import API_VERSIONS, CARRIED, DESCRIBE_CLUSTER, NOT_CARRIED, PRODUCE, SHARE_FETCH, Way
from ottla.sdk.connection.handshake import OURS
from tests.codec.strategies import example, tree
from tests.proxy.simulated import ANSWERED, PROXY_PORT, Upstream, World, batch

ESCAPED, ESCAPED_PORT = "escaped.example", 1234
APPLICATIONS_OWN = {88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe"}
"""Their responses have addresses that the instances of an application told each other (`application.server`)."""


def versions_of(key: int) -> range:
    """The carried versions; only the newest of an API that passes unread."""
    oldest, newest = wire.api(APIS[key].request).versions.low, CARRIED[key].newest
    return range(newest if CARRIED[key].way is Way.OPAQUE else oldest, newest + 1)


VERSIONS = [
    pytest.param(key, version, id=f"{NAMES[key]}-{version}")
    for key in CARRIED
    if key != API_VERSIONS
    for version in versions_of(key)
]


@pytest.fixture
def world() -> World:
    return World(Upstream({"flights": 6, "plain": 2}, nodes=3), "flights=rewrite")


@pytest.fixture(scope="module")
def shared_world() -> World:
    """One for all responses: each comes to a client of its own."""
    return World(Upstream({"flights": 6, "plain": 2}, nodes=3), "flights=rewrite")


CLIENTS = itertools.count(1)


# -- the decisions


def test_every_api_that_the_codec_knows_is_carried_or_has_a_reason() -> None:
    assert CARRIED.keys() | NOT_CARRIED.keys() == NAMES.keys()
    assert not CARRIED.keys() & NOT_CARRIED.keys()
    assert {key: known.name for key, known in CARRIED.items()} == {key: NAMES[key] for key in CARRIED}
    assert all(NOT_CARRIED.values())


def test_every_version_is_carried_or_has_a_reason() -> None:
    newest = {key: wire.api(APIS[key].request).versions.high for key in CARRIED}
    assert {NAMES[key] for key, known in CARRIED.items() if known.newest < newest[key]} == {
        known.name for known in CARRIED.values() if known.limit
    }
    assert all(known.newest <= newest[key] for key, known in CARRIED.items())


def _has_addresses(key: int) -> bool:
    """Whether a response that the proxy carries has a struct with a host and a port."""
    response = example(tree(APIS[key].response, CARRIED[key].newest))
    return any(_is_address(each) for each in _structs(response))


def _structs(value: Any) -> Any:
    if isinstance(value, tuple | list):
        for each in value:
            yield from _structs(each)
    elif is_dataclass(value):
        yield value
        for field in fields(value):
            yield from _structs(getattr(value, field.name))


def _is_address(struct: Any) -> bool:
    return {"host", "port"} <= {field.name for field in fields(struct)}


def test_every_carried_response_with_addresses_of_brokers_is_read() -> None:
    unread = {key for key in CARRIED if CARRIED[key].way is Way.OPAQUE and _has_addresses(key)}
    assert unread == APPLICATIONS_OWN.keys()
    assert {key for key in CARRIED if CARRIED[key].way is Way.ADDRESSED} <= {
        key for key in CARRIED if _has_addresses(key)
    }


def _escaping(value: Any) -> Any:
    """The same message, with the address of node 1, which leads past the proxy, in each place for one."""
    if isinstance(value, tuple | list):
        return tuple(_escaping(each) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {field.name: _escaping(getattr(value, field.name)) for field in fields(value)}
    if _is_address(value) and changed["host"]:  # otherwise the version lacks the address
        known = {"host": ESCAPED, "port": ESCAPED_PORT, "node_id": 1, "broker_id": 1, "error_code": 0}
        changed |= {name: known[name] for name in known.keys() & changed.keys()}
    return replace(value, **changed)


def upstream_answers(monkeypatch: pytest.MonkeyPatch, world: World, key: int, response: Any) -> list[int]:
    """Let upstream answer clients' requests of an API with ``response``; returns the nodes that get them."""
    asked: list[int] = []

    def answer(node: int, frame: bytes) -> tuple[bytes | None, str]:
        header = parse_request(frame).header
        if header.api_key != key or header.client_id != "client":
            return before(node, frame)
        asked.append(node)
        return build_response(response, header.api_version, header.correlation_id)[4:], ANSWERED

    before = world.upstream.answer
    monkeypatch.setattr(world.upstream, "answer", answer)
    return asked


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_no_response_leads_past_the_proxy(
    shared_world: World, monkeypatch: pytest.MonkeyPatch, key: int, version: int
) -> None:
    world, client = shared_world, next(CLIENTS)
    asked = upstream_answers(monkeypatch, world, key, _escaping(example(tree(APIS[key].response, version))))
    if key == PRODUCE:
        reply = world.produce(client, {("seven", 7): batch([(b"k", b"1")])}, version=version)
    else:
        reply = world.request(client, example(tree(APIS[key].request, version)), version)
    world.settle(6)
    assert asked, "the request has reached upstream"
    assert reply.frame is not None, world.closed
    assert (ESCAPED.encode() in reply.frame) == (key in APPLICATIONS_OWN)
    parse_response(APIS[key].response, version, reply.frame)
    if CARRIED[key].way is Way.ADDRESSED:
        assert b"proxy" in reply.frame


# -- single APIs


def test_describecluster_opens_the_ports_of_fenced_brokers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = tuple(
        DescribeClusterBroker(broker_id=node, host="broker", port=9000 + node, is_fenced=node == 9) for node in (0, 9)
    )
    described = DescribeClusterResponse(error_code=0, cluster_id="cluster", controller_id=1, brokers=brokers)
    upstream_answers(monkeypatch, world, DESCRIBE_CLUSTER, described)
    asked = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    found = world.request(1, asked, 2).parsed(DescribeClusterResponse)
    assert [(each.broker_id, each.host, each.port, each.is_fenced) for each in found.brokers] == [
        (0, "proxy", PROXY_PORT, False),
        (9, "proxy", PROXY_PORT + 9, True),
    ]
    assert found.controller_id == 1
    assert 9 not in world.core.cluster.nodes, "the proxy itself does not go to a fenced broker"


def fetched(*endpoints: NodeEndpoint) -> ShareFetchResponse:
    """A response about a partition whose leader has changed, and one with records."""
    moved = PartitionData(
        partition_index=0,
        error_code=NotLeaderOrFollower.code,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
        records=b"",
        acquired_records=(),
    )
    full = PartitionData(
        partition_index=1,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        records=batch([(b"k", b"1")]),
        acquired_records=(AcquiredRecords(first_offset=0, last_offset=0, delivery_count=1),),
    )
    topic = ShareFetchableTopicResponse(topic_id=UUID(int=7), partitions=(moved, full))
    return ShareFetchResponse(
        error_code=0, acquisition_lock_timeout_ms=30_000, responses=(topic,), node_endpoints=endpoints
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_fetch_goes_to_the_clients_node_and_names_new_leaders_on_the_proxy(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    there = (
        NodeEndpoint(node_id=2, host=ESCAPED, port=ESCAPED_PORT, rack="r"),
        NodeEndpoint(node_id=77, host=ESCAPED, port=ESCAPED_PORT),
    )
    asked = upstream_answers(monkeypatch, world, SHARE_FETCH, fetched(*there))
    request = example(tree(ShareFetchRequest, version))
    found = world.request(1, request, version, node=1).parsed(ShareFetchResponse)
    assert asked == [1]
    assert found == fetched(NodeEndpoint(node_id=2, host="proxy", port=PROXY_PORT + 2, rack="r")), "77 is not known"


def test_a_share_fetch_without_new_leaders_passes_byte_by_byte(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream_answers(monkeypatch, world, SHARE_FETCH, fetched())
    reply = world.request(1, example(tree(ShareFetchRequest, 2)), 2)
    assert reply.frame == build_response(fetched(), 2, 4711)[4:]


def test_an_api_that_is_not_carried_is_refused_with_the_reason(world: World) -> None:
    world.request(1, example(tree(APIS[38].request, 3)), 3)
    assert world.closed[1] == f"CreateDelegationToken version 3 was not offered: {NOT_CARRIED[38]}"


@pytest.mark.parametrize("token", [b"\0A\0correct horse", b"\0\0correct horse", b"\0$\0\xc3\xa9correct horse"])
def test_a_token_without_a_header_is_refused_without_a_number_of_its_bytes(world: World, token: bytes) -> None:
    world.send(1, token, 0)
    assert world.closed[1].partition(" ")[2].startswith("with a version that no API has was not offered: ")


# -- upstream knows the client's software


def software_upstream_knows(world: World, name: str, version: str) -> tuple[str, str]:
    world.request(1, ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
    *_, asked = world.upstream.asked(ApiVersionsRequest)
    return asked.client_software_name, asked.client_software_version


def test_upstream_learns_the_software_of_the_client(world: World) -> None:
    assert software_upstream_knows(world, "apache-kafka-java", "4.3.1") == ("apache-kafka-java", "4.3.1")


@pytest.mark.parametrize("name", ["", "no name", "-x", "x" * 99 + "!"])
def test_upstream_does_not_learn_a_name_that_it_would_refuse(world: World, name: str) -> None:
    assert software_upstream_knows(world, name, "1") == tuple(OURS)
