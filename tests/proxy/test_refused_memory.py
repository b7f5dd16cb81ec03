"""The records of refused batches, which the proxy remembers, count in the memory budget, and have a bound there."""

import logging

import pytest

from ottla.codec.compression import Compression
from ottla.errors import NotEnoughReplicasAfterAppend, ProducerFenced
from ottla.proxy.clients.refused_memory import FRACTION, HOLDER
from ottla.proxy.clients.refused_records import RememberedRecords
from tests.codec.test_memory import taken
from tests.proxy.simulated import Pair, World, batch
from tests.proxy.test_isolation import FEW_AFTER, accept, refuse, send, send_again, values
from tests.proxy.test_rewriting import key_at, make_known, world_of

BUDGET = 100_000
MANY = BUDGET // FRACTION // 100
"""Records that take more than their part of the budget."""


def send_many(world: World, client: int, producer: int, count: int) -> int:
    """Send so many records, half of them to a partition that accepts none; returns the error code."""
    pairs: list[Pair] = [(key_at(1 + number % 2), b"%d-%d" % (client, number)) for number in range(count)]
    return world.produce(client, {("flights", 0): batch(pairs, producer, 0, 0)}, timeout_ms=30_000).code


def test_records_of_refused_batches_count_until_their_client_has_sent_them_again() -> None:
    world = world_of()
    producer = world.producer_id(1)
    refuse(world, 2)
    assert send(world, producer, 0, 1, 2, 3).code == FEW_AFTER
    assert world.core.buffered.of == {HOLDER: world.core.refused_memory.total}
    accept(world)
    assert send(world, producer, 0, 1, 2, 3).code == 0
    assert not world.core.buffered.of


def test_they_count_when_their_client_has_left_and_after_a_restart() -> None:
    world = world_of(journal=True)
    producer = world.producer_id(1)
    refuse(world, 2)
    assert send(world, producer, 0, 1, 2, 3).code == FEW_AFTER
    world.leave(1)
    before = world.core.refused_memory.total
    assert before
    world.restart()
    assert world.core.refused_memory.total == before
    make_known(world)
    accept(world)
    assert send_again(world, producer, 0, 1, 2, 3).code == 0
    assert not world.core.refused_memory.total


def test_above_the_bound_the_producer_with_most_of_them_is_fenced_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(max_buffered=BUDGET, journal=True)
    few, many = world.producer_id(1), world.producer_id(2)
    refuse(world, 2)
    assert send_many(world, 1, few, 4) == FEW_AFTER
    with caplog.at_level(logging.WARNING, "ottla.proxy"):
        assert send_many(world, 2, many, MANY) == NotEnoughReplicasAfterAppend.code
    assert "producer forgotten, it is fenced if it sends again" in caplog.messages
    assert 0 < world.core.refused_memory.total <= BUDGET // FRACTION
    accept(world)
    assert send_many(world, 2, many, MANY) == ProducerFenced.code
    assert send_many(world, 1, few, 4) == 0
    assert sorted(value for value in values(world) if value.startswith(b"1-")) == [b"1-%d" % n for n in range(4)]
    world.restart()
    make_known(world)
    assert send_many(world, 2, many, MANY) == ProducerFenced.code, "a restart must not bring the producer back"


def test_a_producer_with_a_batch_under_way_is_forgotten_later() -> None:
    world = world_of(max_buffered=BUDGET)
    producer = world.producer_id(1)
    refuse(world, 2)
    world.busy = True
    large = batch([(key_at(3), bytes(3 * 2**20))], producer, 0, 0, Compression.GZIP)
    other = world.produce(1, {("flights", 3): large}, timeout_ms=30_000)
    [reading] = world.work
    assert send_many(world, 2, producer, MANY) == FEW_AFTER
    assert world.core.refused_memory.total > BUDGET // FRACTION
    world.busy = False
    world.finish(reading)
    world.settle(1)
    assert other.code == 0
    assert not world.core.refused_memory.total


@pytest.mark.parametrize("count", [100, 1000, 1366, 3000, 50_000])
def test_what_is_counted_of_remembered_records_is_what_they_take(count: int) -> None:
    def remembered() -> RememberedRecords:
        records = RememberedRecords()
        for number in range(count):
            timed = hash((number, "timed")) & 2**63 - 1
            records.add(timed, stored=number % 2 == 0)
            records.number(hash((number, "numbered")) & 2**63 - 1, timed)
        return records

    held, _ = taken(remembered)
    assert held < remembered().memory * 1.02 < 1.8 * held
