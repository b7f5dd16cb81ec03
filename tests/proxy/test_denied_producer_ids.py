"""Upstream denies the proxy producer ids, so records without one cannot be rewritten."""

import logging
from math import inf

import pytest

from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.errors import ClusterAuthorizationFailed
from tests.proxy.simulated import batch
from tests.proxy.test_rewriting import key_at, world_of


def test_clients_hear_that_upstream_denies_the_proxy_producer_ids(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    with caplog.at_level(logging.WARNING, "ottla.proxy"):
        for client in range(1, 4):
            reply = world.produce(client, {("flights", each): batch([(key_at(each), b"v")]) for each in (0, 1)})
            world.settle(3)
            for told in reply.produced.values():
                assert told.error_code == ClusterAuthorizationFailed.code
                assert "IdempotentWrite" in str(told.error_message)
    assert [each.levelname for each in caplog.records if "producer ids" in each.getMessage()] == ["ERROR"]
    world.upstream.cluster.ids_denied_until = 0.0
    reply = world.produce(1, {("flights", 0): batch([(key_at(0), b"later")])})
    world.settle(3)
    assert reply.code == 0
    assert "upstream allocates producer ids again" in caplog.text


def test_records_with_acks_0_keep_no_others_waiting() -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    world.produce(1, {("flights", 0): batch([(key_at(0), b"v")])}, acks=0)
    reply = world.produce(1, {("flights", 0): batch([(key_at(0), b"w")])})
    world.settle(3)
    assert 1 in world.closed or reply.code == ClusterAuthorizationFailed.code
    assert world.core.delivery.idle


def test_a_short_denial_is_waited_out() -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    reply = world.produce(1, {("flights", 0): batch([(key_at(0), b"v")])})
    world.settle(0.5)
    world.upstream.cluster.ids_denied_until = 0.0
    world.settle(3)
    assert reply.code == 0


def test_a_denial_long_after_another_is_waited_out_too() -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    world.produce(1, {("flights", 0): batch([(key_at(0), b"v")])})
    world.settle(0.5)
    world.leave(1)
    world.settle(60)
    reply = world.produce(2, {("flights", 0): batch([(key_at(0), b"w")])})
    world.settle(0.5)
    assert reply.frame is None
    world.upstream.cluster.ids_denied_until = 0.0
    world.settle(3)
    assert reply.code == 0


def test_many_waiting_clients_cost_one_request_a_second() -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    for _ in range(5):
        for client in range(1, 50):
            world.produce(client, {("flights", 0): batch([(key_at(0), b"v")])})
        world.settle(1)
    assert len(world.upstream.asked(InitProducerIdRequest)) < 60
