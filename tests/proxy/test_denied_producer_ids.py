"""Upstream denies the proxy producer ids, so records without one cannot be rewritten."""

import logging
from math import inf

import pytest

from ottla.errors import ClusterAuthorizationFailed
from tests.proxy.simulated import batch
from tests.proxy.test_rewriting import key_at, world_of


def test_clients_hear_that_upstream_denies_the_proxy_producer_ids(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    with caplog.at_level(logging.WARNING, "ottla.proxy"):
        for client in range(1, 4):
            reply = world.produce(client, {("flights", 0): batch([(key_at(0), b"v")])})
            world.settle(1)
            (told,) = reply.produced.values()
            assert told.error_code == ClusterAuthorizationFailed.code
            assert "IdempotentWrite" in str(told.error_message)
    assert [each.levelname for each in caplog.records if "producer id" in each.getMessage()] == ["ERROR"]
    world.upstream.cluster.ids_denied_until = 0.0
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"later")])}).code == 0


def test_records_whose_client_hears_nothing_wait_until_upstream_allocates_ids() -> None:
    world = world_of()
    world.upstream.cluster.ids_denied_until = inf
    world.produce(1, {("flights", 0): batch([(key_at(0), b"v")])}, acks=0)
    world.settle(5)
    assert world.upstream.values("flights") == []
    world.upstream.cluster.ids_denied_until = 0.0
    world.settle(5)
    assert world.upstream.values("flights") == [b"v"]
