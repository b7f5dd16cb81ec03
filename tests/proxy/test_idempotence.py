"""Idempotent clients of rewritten topics: retries, gaps, epochs, and restarts of the proxy."""

import re
from typing import Any

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.records import parse_batch
from ottla.codec.rewrite import numbered as renumbered
from ottla.errors import BrokerError, OutOfOrderSequenceNumber, ProducerFenced, RequestTimedOut, UnknownProducerId
from tests.proxy.simulated import ANSWERED, CUT_AFTER, Upstream, World, batch
from tests.proxy.test_rewriting import key_at, make_known, pairs, world_of


@pytest.fixture
def world() -> World:
    return world_of()


def numbered(world: World, client: int, producer_id: int, sequence: int, count: int = 2, epoch: int = 0) -> int:
    """Send records of a producer from ``sequence`` on; the error code."""
    data = batch(pairs(count, sequence), producer_id, epoch, sequence)
    return world.produce(client, {("flights", 0): data}).code


def stored(world: World) -> list[int]:
    return sorted(int(value or b"") for value in world.upstream.values("flights"))


def test_a_retry_is_answered_from_memory(world: World) -> None:
    producer = world.producer_id(1)
    data = batch([(key_at(0), b"1"), (key_at(0), b"2")], producer, 0, 0)
    first = world.produce(1, {("flights", 0): data}).produced
    again = world.produce(2, {("flights", 0): data}).produced
    assert first == again
    assert world.upstream.values("flights") == [b"1", b"2"]


def test_a_retry_over_another_connection_joins_the_work_of_the_first(world: World) -> None:
    producer = world.producer_id(1)
    data = batch(pairs(10), producer, 0, 0)
    world.slow = True
    first = world.produce(1, {("flights", 0): data})
    world.leave(1)
    second = world.produce(2, {("flights", 0): data})
    world.release()
    assert first.frame is None
    assert second.code == 0
    assert stored(world) == list(range(10))


def test_a_retry_over_another_nodes_port_is_known_too() -> None:
    world = world_of(nodes=3)
    producer = world.producer_id(1)
    data = batch(pairs(10), producer, 0, 0)
    assert world.produce(1, {("flights", 0): data}, node=0).code == 0
    assert world.produce(2, {("flights", 0): data}, node=2).code == 0
    assert stored(world) == list(range(10))


def test_five_batches_in_flight_are_stored_in_their_order(world: World) -> None:
    producer = world.producer_id(1)
    world.slow = True
    replies = [world.produce(1, {("flights", 0): batch([(key_at(1), b"%d" % n)], producer, 0, n)}) for n in range(5)]
    for _ in range(5):
        world.release()
    assert [reply.code for reply in replies] == [0] * 5
    assert world.upstream.values("flights") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_gap_is_refused(world: World) -> None:
    producer = world.producer_id(1)
    assert numbered(world, 1, producer, 0) == 0
    assert numbered(world, 1, producer, 4) == 45
    assert numbered(world, 1, producer, 2) == 0
    assert numbered(world, 1, producer, 4) == 0
    assert stored(world) == list(range(6))


def test_epochs(world: World) -> None:
    producer = world.producer_id(1)
    assert numbered(world, 1, producer, 0, epoch=1) == 0
    assert numbered(world, 1, producer, 2, epoch=0) == 47
    assert numbered(world, 1, producer, 2, epoch=2) == 45
    assert numbered(world, 1, producer, 0, epoch=2) == 0


def test_a_producer_that_the_proxy_does_not_know_is_fenced(world: World) -> None:
    reply = world.produce(1, {("flights", 0): batch(pairs(2), 4711, 0, 0)})
    assert reply.code == 90
    assert "open a new producer" in (reply.produced["flights", 0].error_message or "")
    assert stored(world) == []


@pytest.mark.parametrize(
    ("name", "version", "codes"),
    [
        ("apache-kafka-java", "4.3.1", (ProducerFenced, OutOfOrderSequenceNumber)),
        ("kgo", "v1.20.7", (ProducerFenced, UnknownProducerId)),
        (None, "", (ProducerFenced, UnknownProducerId)),  # franz-go sends its name on its first connection only
        ("librdkafka", "2.16.0", (OutOfOrderSequenceNumber, UnknownProducerId)),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", (OutOfOrderSequenceNumber, UnknownProducerId)),
    ],
)
def test_each_client_is_told_what_has_it_open_another_producer_or_abort(
    world: World, caplog: pytest.LogCaptureFixture, name: str | None, version: str, codes: tuple[type[BrokerError], ...]
) -> None:
    if name is not None:
        software = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert world.request(1, software, 3).frame
    plain = world.produce(1, {("flights", 0): batch(pairs(2), 4711, 0, 0)})
    data = batch(pairs(2), 4712, 0, 0, transactional=True)
    transactional = world.produce(1, {("flights", 0): data}, transactional_id="t")
    assert (plain.code, transactional.code) == tuple(each.code for each in codes)
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert [each.getMessage() for each in warnings] == [
        "producer fenced, its application must open a new one",
        "transaction must be aborted, its producer needs a new epoch",
    ]
    assert [(each.__dict__["client_id"], each.__dict__["peer"]) for each in warnings] == [("client", "10.0.0.1:9")] * 2


def test_the_log_tells_once_of_each_producer_that_is_fenced(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for sequence in range(3):
        world.produce(1, {("flights", 1): batch(pairs(2), 77, 0, sequence)})
    assert [record.getMessage() for record in caplog.records if "fenced" in record.getMessage()] == [
        "producer fenced, its application must open a new one"
    ]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_client_that_invents_producers_does_not_fill_the_log(
    world: World, caplog: pytest.LogCaptureFixture, transactional: bool
) -> None:
    identity: dict[str, Any] = {"transactional_id": "t"} if transactional else {}
    for number in range(100):
        data = batch(pairs(1), 10_000 + number, 0, 0, transactional=transactional)
        world.produce(1, {("flights", 1): data}, **identity)
    assert len(caplog.records) < 25
    world.settle(61)
    counted = sum(int(found[1]) for each in caplog.records if (found := re.search(r": (\d+) more", each.getMessage())))
    assert len(caplog.records) + counted - 1 == 100, [each.getMessage() for each in caplog.records]


def test_a_restart_of_the_proxy_fences_and_never_doubles(world: World) -> None:
    producer = world.producer_id(1)
    data = batch(pairs(10), producer, 0, 0)
    assert world.produce(1, {("flights", 0): data}).code == 0
    world.restart()
    world.core.control.request_topics("flights")
    world.settle(1)
    assert world.produce(2, {("flights", 0): data}).code == 90
    assert numbered(world, 2, producer, 10) == 90
    assert stored(world) == list(range(10))
    assert world.producer_id(2) != producer


def test_a_batch_refused_in_part_is_retried_in_part(world: World) -> None:
    producer = world.producer_id(1)
    world.upstream.errors["flights", 2] += [29]
    data = batch(pairs(20), producer, 0, 0)
    assert world.produce(1, {("flights", 0): data}).code == 29
    assert 0 < (first := len(stored(world))) < 20
    again = world.produce(1, {("flights", 0): data})
    assert again.code == 0
    assert again.produced["flights", 0].base_offset == -1
    assert stored(world) == list(range(20))
    tally = world.core.tallies["flights"]
    assert (tally.records, tally.refused) == (20 + 20 - first, 1), "the retry counts the records that are sent again"


def test_a_batch_refused_in_part_may_be_retried_in_smaller_batches(world: World) -> None:
    producer = world.producer_id(1)
    world.upstream.errors["flights", 2] += [29]
    assert numbered(world, 1, producer, 0, count=20) == 29
    assert [numbered(world, 1, producer, sequence, count=5) for sequence in (0, 5, 10, 15)] == [0] * 4
    assert stored(world) == list(range(20))


@pytest.mark.parametrize("epoch", [0, 1])
def test_other_records_under_the_numbers_of_a_batch_refused_in_part_are_all_stored(world: World, epoch: int) -> None:
    producer = world.producer_id(1)
    world.upstream.errors["flights", 1] += [32]
    given_up = batch([(key_at(0), b"a0"), (key_at(1), b"a1")], producer, 0, 0)
    assert world.produce(1, {("flights", 0): given_up}).code == 32
    others = batch([(key_at(0), b"b0"), (key_at(1), b"b1")], producer, epoch, 0)
    assert world.produce(1, {("flights", 0): others}).code == 0
    assert world.upstream.values("flights") == [b"a0", b"b0", b"b1"]


def test_what_follows_a_refused_batch_is_refused_like_a_gap(world: World) -> None:
    producer = world.producer_id(1)
    world.upstream.errors["flights", 1] += [10]
    world.slow = True
    data = [batch([(key_at(1), b"%d" % n)], producer, 0, n) for n in range(3)]
    replies = [world.produce(1, {("flights", 0): each}) for each in data]
    world.release()
    assert [reply.code for reply in replies] == [10, 45, 45]
    world.slow = False
    assert [world.produce(1, {("flights", 0): each}).code for each in data] == [0, 0, 0]
    assert world.upstream.values("flights") == [b"0", b"1", b"2"]


def test_an_unknown_outcome_fences_the_producer_and_in_its_next_epoch_the_same_records(world: World) -> None:
    producer = world.producer_id(1)
    world.upstream.errors["flights", 1] += [7, 45]
    data = batch([(key_at(1), b"1")], producer, 0, 0)
    reply = world.produce(1, {("flights", 0): data})
    world.settle(5)
    assert reply.code == 90
    tally = world.core.tallies["flights"]
    assert (tally.refused, tally.outcome_unknown) == (0, 1)
    assert world.produce(1, {("flights", 0): data}).code == 90
    assert world.produce(1, {("flights", 0): batch([(key_at(1), b"1")], producer, 1, 0)}).code == 90
    assert world.produce(1, {("flights", 0): batch([(key_at(1), b"2")], producer, 2, 0)}).code == 0


def test_a_client_that_gives_up_and_retries_finds_its_batch_still_under_way() -> None:
    world = world_of()
    producer = world.producer_id(1)
    world.kill(0)
    data = batch(pairs(10), producer, 0, 0)
    world.settle(60)
    world.upstream.down.clear()
    cuts = [CUT_AFTER, CUT_AFTER]
    world.upstream.fate = lambda request: cuts.pop() if cuts else ANSWERED
    replies = [world.produce(client, {("flights", 0): data}) for client in (2, 3, 4)]
    world.settle(10)
    assert [reply.code for reply in replies] == [0, 0, 0]
    assert stored(world) == list(range(10))


def test_producers_of_other_topics_are_upstreams_own_affair() -> None:
    world = World(Upstream({"plain": 1}))
    assert world.produce(1, {("plain", 0): batch(pairs(1), 5, 0, 0)}).code == 0
    assert world.produce(1, {("plain", 0): batch(pairs(1, 7), 5, 0, 7)}).code == 45


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("rule", ["flights=rewrite", "flights=fan-out"])
def test_a_stored_batch_that_its_client_took_for_late_is_not_stored_again_in_the_next_epoch(
    rule: str, told: bool
) -> None:
    world = world_of(rule=rule)
    producer_id = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch(pairs(5), producer_id, 0, 0)}).code == 0
    world.slow = True
    data = batch(pairs(5, 5), producer_id, 0, 5)
    late = world.produce(1, {("flights", 0): data}, timeout_ms=5000)
    world.settle(10)
    assert late.code == RequestTimedOut.code
    world.slow = False
    world.release()
    equal = bytes(renumbered(parse_batch(data), producer_id, 0, 10))
    if told:
        assert world.produce(2, {("flights", 0): data}).code == 0
        assert world.produce(2, {("flights", 0): equal}).code == 0
        assert stored(world) == sorted([*range(10), *range(5, 10)]), "in the same epoch these are new records"
        return
    again = bytes(renumbered(parse_batch(data), producer_id, 1, 0))
    assert world.produce(1, {("flights", 0): again}).code == 0
    assert world.produce(1, {("flights", 0): batch(pairs(3, 10), producer_id, 1, 5)}).code == 0
    assert stored(world) == [*range(13)]


@pytest.mark.parametrize("told", [False, True])
def test_a_restart_remembers_whether_a_client_knows_that_its_late_batch_is_stored(told: bool) -> None:
    """Equal records of a client that knows are new ones; left out, they would be lost."""
    world = world_of(journal=True)
    producer_id = world.producer_id(1)
    world.slow = True
    data = batch(pairs(5), producer_id, 0, 0)
    assert world.produce(1, {("flights", 0): data}, timeout_ms=5000).frame is None
    world.settle(10)
    world.slow = False
    world.release()
    if told:
        assert world.produce(2, {("flights", 0): data}).code == 0
    world.restart()
    make_known(world)
    equal = bytes(renumbered(parse_batch(data), producer_id, 1, 0))
    assert world.produce(1, {("flights", 0): equal}).code == 0
    assert stored(world) == sorted([*range(5)] * (2 if told else 1))
