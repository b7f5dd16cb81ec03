"""Upstream is unavailable: clients that are connected wait, and so do clients that connect meanwhile."""

from typing import Any

from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.frames import parse_request
from tests.proxy.simulated import CUT_BEFORE, Reply, Upstream, World, batch

VERSIONS, METADATA = 3, 9


def an_outage(nodes: int = 1, **options: Any) -> World:
    """A proxy that was connected to upstream before that became unavailable."""
    world = World(Upstream({"flights": 6, "plain": 2}, nodes=nodes), "flights=rewrite", **options)
    for node in world.upstream.cluster.nodes:
        world.kill(node)
    world.settle(1)
    return world


def comes_back(world: World) -> None:
    world.upstream.down.clear()
    world.settle(2)


def ask_versions(world: World, client: int, node: int = 0) -> Reply:
    return world.request(client, ApiVersionsRequest(), VERSIONS, node=node)


def newest_of(reply: Reply) -> dict[int, int]:
    return {each.api_key: each.max_version for each in reply.parsed(ApiVersionsResponse).api_keys}


def test_a_client_that_connects_during_an_outage_waits_for_metadata() -> None:
    world = an_outage()
    assert newest_of(ask_versions(world, 1))[3] == 13
    metadata = world.request(1, MetadataRequest(topics=()), METADATA)
    world.settle(60)
    assert metadata.frame is None and not world.closed
    comes_back(world)
    assert len(metadata.parsed(MetadataResponse).brokers) == 1
    assert not world.closed and not world.core.buffered.total


def test_a_client_that_was_connected_before_waits_in_the_same_way() -> None:
    world = World(Upstream({"flights": 6}), "flights=rewrite")
    assert world.request(1, MetadataRequest(topics=()), METADATA).frame
    world.kill(0)
    metadata = world.request(1, MetadataRequest(topics=()), METADATA)
    world.settle(60)
    assert metadata.frame is None and not world.closed
    comes_back(world)
    assert metadata.frame is not None and not world.closed


def test_versions_that_a_client_asked_for_before_the_outage_was_noticed_are_answered() -> None:
    world = World(Upstream({"flights": 6}))
    world.upstream.down.add(0)  # the proxy's own connection does not know yet
    asked = world.arrive(1, b"\0\x12\0\0\0\0\0\7\xff\xff", 0)
    world.kill(0)
    world.settle()
    assert asked.frame is not None and not world.closed


def test_waiting_requests_are_given_up_after_the_delivery_timeout() -> None:
    world = an_outage(delivery_timeout=40.0)
    ask_versions(world, 1)
    world.request(1, MetadataRequest(topics=()), METADATA)
    world.settle(39)
    assert not world.closed
    world.settle(2)
    assert "refused" in world.closed[1] and not world.core.buffered.total
    comes_back(world)
    assert ask_versions(world, 2).frame is not None


def test_records_without_answers_wait_too_and_are_stored_once() -> None:
    world = an_outage()
    ask_versions(world, 1)
    world.produce(1, {("plain", 0): batch([(b"k", b"1")])}, acks=0)
    world.settle(10)
    assert not world.closed
    comes_back(world)
    assert world.upstream.values("plain") == [b"1"] and not world.closed


def test_requests_of_a_client_that_leaves_during_the_outage_are_dropped() -> None:
    world = an_outage()
    ask_versions(world, 1)
    world.produce(1, {("plain", 0): batch([(b"k", b"1")])})
    assert world.core.buffered.total
    world.leave(1)
    assert not world.core.buffered.total
    comes_back(world)
    assert not world.upstream.values("plain"), "the client sends them again over its next connection"


def test_a_client_of_a_broker_that_stays_away_goes_to_another_one() -> None:
    world = an_outage(nodes=2)
    waiting = [world.request(node, MetadataRequest(topics=()), METADATA, node=node) for node in (0, 1)]
    assert not world.closed
    world.upstream.down.remove(0)
    world.settle(5)
    assert waiting[0].frame is not None
    assert list(world.closed) == [1] and "upstream broker:9001" in world.closed[1]


def test_waiting_requests_have_no_more_memory_than_records() -> None:
    world = an_outage(max_buffered=100_000)
    for client in range(1, 30):
        world.produce(client, {("plain", 0): batch([(b"k", b"x" * 20_000)])})
    assert world.held and world.core.buffered.total < 250_000
    assert "buffer is full" in world.closed[29]
    assert ask_versions(world, 30).frame is not None, "a client within its share does not suffer"
    assert 30 not in world.closed


def test_upstream_judges_the_versions_of_clients_that_waited_while_it_was_replaced() -> None:
    world = an_outage()
    upstream, answer = world.upstream, world.upstream.answer

    def strict(node: int, frame: bytes) -> tuple[bytes | None, str]:
        header = parse_request(frame).header
        newest = upstream.cluster.release[header.api_key][1]
        return answer(node, frame) if header.api_version <= newest else (None, CUT_BEFORE)

    upstream.answer = strict  # type: ignore[method-assign]  # like Kafka's broker, it closes the connection
    ask_versions(world, 1)
    ask_versions(world, 2)
    new = world.request(1, MetadataRequest(topics=()), 13)
    old = world.request(2, MetadataRequest(topics=()), 8)
    upstream.cluster.release[3] = (0, 8)
    comes_back(world)
    assert list(world.closed) == [1] and new.frame is None
    assert old.frame is not None
    assert newest_of(ask_versions(world, 3))[3] == 8


def test_each_broker_is_remembered_by_itself() -> None:
    world = World(Upstream({"plain": 2}, nodes=2))
    ask_versions(world, 1, node=0)
    world.upstream.cluster.release[3] = (0, 8)
    ask_versions(world, 2, node=1)
    for node in (0, 1):
        world.kill(node)
    world.settle(1)
    assert [newest_of(ask_versions(world, 3 + node, node))[3] for node in (0, 1)] == [13, 8]
