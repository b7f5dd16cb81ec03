"""The records of refused batches, which the proxy remembers, count in the memory budget, and have a bound there."""

import logging
from collections import Counter
from itertools import count

import pytest

from ottla.codec.compression import Compression
from ottla.errors import NotEnoughReplicasAfterAppend, ProducerFenced
from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.producers import ClientProducers, KnownProducer
from ottla.proxy.clients.refused_memory import FRACTION, HOLDER, RefusedMemory
from ottla.proxy.clients.refused_records import RefusedRecords, RememberedRecords
from ottla.proxy.clients.windows import Window
from ottla.proxy.routing import Destination
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


class Remembering:
    """Producers that remember refused records, and the memory of which these take at most ``bound`` bytes."""

    def __init__(self, bound: int) -> None:
        self.memory, self.producers = RefusedMemory(Buffered(bound * FRACTION)), ClientProducers[ClientBatch]()
        self._records = count()
        self._ids = count()

    def add(self, host: str, size: int) -> KnownProducer[ClientBatch]:
        producer = self.producers.allocated(next(self._ids), 0, host, writes=True)
        records = [next(self._records) for _ in range(size // 100)]
        window = producer.windows[Destination("flights", 0)] = Window(refused=RefusedRecords(unknown=records))
        self.memory.changed(producer, window)
        return producer

    def changed(self, producer: KnownProducer[ClientBatch]) -> None:
        for window in producer.windows.values():
            self.memory.changed(producer, window)

    def forget(self) -> list[KnownProducer[ClientBatch]]:
        """Take a step; returns the forgotten producers."""
        self.memory.measure()
        chosen = self.memory.excess()
        for each in chosen:
            assert each.producer_id is not None
            self.memory.forgotten(self.producers.pop(each.producer_id))
        return chosen


class Busy:
    """Which producers have a batch under way, and how often that was looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.producers: set[KnownProducer[ClientBatch]] = set()
        self.looks = 0
        monkeypatch.setattr(KnownProducer, "may_be_forgotten", property(self._look))

    def _look(self, producer: KnownProducer[ClientBatch]) -> bool:
        self.looks += 1
        return producer not in self.producers


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    return Busy(monkeypatch)


@pytest.mark.parametrize("hosts", [1, 10, 1000])
def test_all_producers_beyond_the_bound_are_found_in_one_look_at_each(busy: Busy, hosts: int) -> None:
    world = Remembering(500_000)
    for number in range(1000):
        world.add(str(number % hosts), 1000)
    assert len(world.forget()) == 500
    assert world.memory.total == 500_000
    assert busy.looks <= 1001


def test_above_the_bound_no_step_searches_in_vain_twice(busy: Busy) -> None:
    world = Remembering(0)
    busy.producers = {world.add("host", 1000) for _ in range(100)}
    assert not world.forget()
    looks = busy.looks
    some = next(iter(busy.producers))
    for _ in range(50):
        world.changed(some)
        assert not world.forget()
    assert busy.looks == looks + 50, "only the changed producer is looked at"
    busy.producers.remove(some)
    world.changed(some)
    assert world.forget() == [some]


def test_a_host_with_many_producers_has_only_its_own_forgotten() -> None:
    world = Remembering(1_000_000)
    for _ in range(5):
        world.add("innocent", 10_000)
    for _ in range(990):
        world.add("greedy", 1000)
    assert Counter(each.host for each in world.forget()) == {"greedy": 40}


def test_of_the_host_with_most_the_producer_with_most_is_forgotten_first() -> None:
    world = Remembering(10_000)
    world.add("other", 4_000)
    producers = [world.add("host", size) for size in (1000, 3000, 2000)]
    assert not world.forget()
    world.add("other", 1_000)
    assert world.forget() == [producers[1]]


def test_a_host_within_its_share_loses_nothing_while_the_others_are_busy(busy: Busy) -> None:
    world = Remembering(10_000)
    innocent = world.add("innocent", 4_000)
    greedy = world.add("greedy", 20_000)
    busy.producers = {greedy}
    assert not world.forget()
    busy.producers = set()
    world.changed(greedy)
    assert world.forget() == [greedy]
    assert innocent.producer_id in world.producers


def test_a_producer_counts_for_the_host_that_has_written_with_it_last() -> None:
    world = Remembering(10_000)
    moved = world.add("first", 3_000)
    world.add("first", 3_000)
    stays = world.add("second", 4_000)
    assert not world.forget()
    world.producers.wrote(moved, "second")
    world.changed(moved)
    assert not world.forget()
    world.add("third", 100)
    assert world.forget() == [stays], "the second host has most now"
    assert world.memory.total == 6_100


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
