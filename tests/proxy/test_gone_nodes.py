"""Brokers that upstream does not name any more, because they are down or were decommissioned."""

from collections.abc import Callable
from typing import Any

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataResponse
from ottla.errors import LeaderNotAvailable
from tests.proxy.simulated import Upstream, World, batch
from tests.proxy.test_rewriting import key_at, world_of
from tests.sim.network import PORT


def naming(*nodes: int) -> Callable[[Any, Any], Any]:
    """A `bend` with which Metadata names these nodes only."""

    def bend(request: Any, answer: Any) -> Any:
        if isinstance(answer, MetadataResponse):
            answer.brokers = tuple(each for each in answer.brokers if each.node_id in nodes)
        return answer

    return bend


def offered(world: World, client: int, node: int) -> Any:
    request = ApiVersionsRequest(client_software_name="", client_software_version="")
    return world.request(client, request, 3, node=node)


def test_a_broker_that_upstream_names_no_more_is_not_tried_for_metadata() -> None:
    world = world_of(nodes=3)
    world.upstream.bend = naming(0)
    world.settle(12)
    world.tried.clear()
    world.kill(0)
    world.settle(30)
    assert set(world.tried) == {("broker", PORT)}, "only the broker that upstream named last"


def test_bootstrap_addresses_of_brokers_that_are_gone_are_tried_last() -> None:
    gone = [("gone", n) for n in range(3)]
    world = World(Upstream({"flights": 6}), "flights=rewrite", bootstrap=(*gone, ("broker", PORT)))
    world.settle(5)
    assert world.tried == [*gone, ("broker", PORT)] and world.core.ready
    for _ in range(5):
        world.tried.clear()
        world.kill(0)
        world.upstream.down.clear()
        world.settle(5)
        assert world.tried == [("broker", PORT)] and world.core.ready
    world.tried.clear()
    world.kill(0)
    world.settle(5)
    assert set(gone) < set(world.tried)


def test_a_client_of_a_broker_that_is_gone_is_closed_at_once_and_served_when_it_is_back() -> None:
    world = world_of(nodes=2)
    world.upstream.bend = naming(0)
    world.settle(12)
    assert offered(world, 5, node=1).frame is None
    assert world.closed[5] == "upstream does not name node 1 any more"
    assert not world.core.buffered.total
    world.upstream.bend = naming(0, 1)
    world.settle(6)
    assert offered(world, 6, node=1).frame is not None


def test_a_short_absence_from_the_metadata_forgets_no_broker() -> None:
    world = world_of(nodes=2)
    world.upstream.bend = naming(0)
    world.settle(4)
    world.upstream.bend = naming(0, 1)
    world.settle(6)
    assert set(world.core.cluster.nodes) == {0, 1}


def test_records_for_a_leader_that_is_gone_are_sent_again_until_it_is_back() -> None:
    world = world_of(nodes=2)
    own = world.producer_id(1)
    at = next(n for n in range(6) if world.upstream.cluster.leaders["flights", n].node == 1)
    assert world.produce(1, {("flights", at): batch([(key_at(at), b"1")], own, 0, 0)}).code == 0
    world.upstream.bend = naming(0)
    world.kill(1)
    world.settle(12)
    reply = world.produce(1, {("flights", at): batch([(key_at(at), b"2")], own, 0, 1)})
    world.settle(1)
    assert reply.code == LeaderNotAvailable.code
    world.upstream.down.clear()
    world.upstream.bend = naming(0, 1)
    world.settle(10)
    assert world.produce(1, {("flights", at): batch([(key_at(at), b"2")], own, 0, 1)}).code == 0
    assert world.upstream.values("flights") == [b"1", b"2"]
