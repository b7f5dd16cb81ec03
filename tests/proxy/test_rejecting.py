"""Mode `reject`: batches with a misplaced key are refused as a whole, and all others pass unchanged."""

import pytest

from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.compression import Compression
from ottla.codec.partitioners import murmur2_partition
from ottla.errors import (
    CorruptMessage,
    InvalidRecord,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ProducerFenced,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
from ottla.proxy import threads
from ottla.proxy.clients.pending_produce import MOST_NAMED
from ottla.proxy.clients.rejecter import AT_ONCE
from ottla.proxy.clients.routed_topics import METADATA_WAIT
from ottla.proxy.events import RulesChanged
from ottla.proxy.topic_rule import parse_rule
from tests.proxy.simulated import Upstream, World, batch

SIX = 6
STRICT = "strict"
KEYS = [b"k%d" % number for number in range(200)]
AT_3 = [key for key in KEYS if murmur2_partition(key, SIX) == 3]
AT_5 = [key for key in KEYS if murmur2_partition(key, SIX) == 5]


def world_of(*rules: str) -> World:
    world = World(Upstream({STRICT: SIX, "flights": SIX, "plain": SIX}), *(rules or (f"{STRICT}=reject",)))
    world.request(0, MetadataRequest(topics=None), 9)
    world.settle(1)
    return world


@pytest.fixture
def world() -> World:
    return world_of()


def values(world: World, topic: str = STRICT) -> list[bytes | None]:
    return world.upstream.values(topic)


def test_a_batch_without_misplaced_keys_passes_unchanged(world: World) -> None:
    data = batch([(AT_3[0], b"one"), (None, b"two"), (AT_3[1], b"three")], compression=Compression.ZSTD)
    reply = world.produce(1, {(STRICT, 3): data})
    assert (reply.code, reply.produced[STRICT, 3].base_offset) == (0, 0)
    assert world.upstream.produced[0][1].topic_data[0].partition_data[0].records == data


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_batch_with_a_misplaced_key_is_refused_and_its_records_are_named(
    world: World, compression: Compression
) -> None:
    data = batch([(AT_3[0], b"a"), (AT_5[0], b"b"), (None, b"c"), (AT_5[1], b"d")], compression=compression)
    told = world.produce(1, {(STRICT, 3): data}).produced[STRICT, 3]
    assert told.error_code == InvalidRecord.code and told.base_offset == -1
    assert [each.batch_index for each in told.record_errors] == [1, 3]
    assert {each.batch_index_error_message for each in told.record_errors} == {
        "the key belongs to partition 5 by murmur2, not to 3"
    }
    assert told.error_message is not None and "2 of 4 records for strict-3" in told.error_message
    assert not values(world)
    tally = world.core.tallies[STRICT]
    assert (tally.records, tally.misplaced, tally.refused) == (0, 2, 1)


def test_clients_whose_request_has_no_field_for_records_get_the_code(world: World) -> None:
    reply = world.produce(1, {(STRICT, 3): batch([(AT_5[0], b"b")])}, version=7)
    assert reply.code == InvalidRecord.code


def test_a_response_names_a_bounded_number_of_records(world: World) -> None:
    data = batch([(AT_5[0], b"")] * (MOST_NAMED + 1))
    told = world.produce(1, {(STRICT, 3): data}).produced[STRICT, 3]
    assert [each.batch_index for each in told.record_errors] == list(range(MOST_NAMED))
    assert f"the first {MOST_NAMED} are named" in (told.error_message or "")


@pytest.mark.parametrize("rule", [f"{STRICT}=reject", f"{STRICT}=rewrite"])
def test_a_response_names_a_bounded_number_of_records_of_all_batches_together(rule: str) -> None:
    world = world_of(rule)
    world.upstream.cluster.data.configs[STRICT] = {"cleanup.policy": "compact"}
    world.settle(1)
    for of_each in (MOST_NAMED // 4, MOST_NAMED):
        wrong = [(AT_5[0] if "reject" in rule else None, b"")] * of_each
        told = world.produce(1, {(STRICT, partition): batch(wrong) for partition in (0, 1, 2, 3)}).produced
        world.settle(1)
        assert {each.error_code for each in told.values()} == {InvalidRecord.code}
        assert sum(len(each.record_errors) for each in told.values()) == MOST_NAMED


def test_a_request_of_many_large_batches_is_read_in_steps_within_the_budget(world: World) -> None:
    bomb = batch([(AT_3[0], bytes(AT_ONCE // 3))], compression=Compression.ZSTD)
    assert len(bomb) < 10_000
    world.busy = True
    places = [(STRICT, partition) for partition in range(SIX)]
    reply = world.produce(1, dict.fromkeys(places, bomb))
    steps = 0
    while reply.frame is None:
        [work] = world.work
        assert world.core.buffered.total < AT_ONCE // 2, "no more than one of them takes memory at a time"
        world.finish(work)
        steps += 1
    assert steps == SIX // 2
    assert [reply.produced[place].error_code for place in places] == [InvalidRecord.code] * 3 + [0] + [
        InvalidRecord.code
    ] * 2
    assert world.core.buffered.total == 0


def test_the_other_record_sets_of_a_request_are_handled(world: World) -> None:
    world = world_of(f"{STRICT}=reject", "flights=rewrite")
    sets = {
        (STRICT, 3): batch([(AT_5[0], b"refused")]),
        (STRICT, 5): batch([(AT_5[0], b"passed")]),
        ("flights", 0): batch([(AT_3[0], b"moved")]),
        ("plain", 1): batch([(AT_3[0], b"untouched")]),
    }
    reply = world.produce(1, sets)
    world.settle(1)
    assert {place: each.error_code for place, each in reply.produced.items()} == {
        (STRICT, 3): InvalidRecord.code,
        (STRICT, 5): 0,
        ("flights", 0): 0,
        ("plain", 1): 0,
    }
    assert (values(world), values(world, "flights"), values(world, "plain")) == (
        [b"passed"],
        [b"moved"],
        [b"untouched"],
    )


def test_sequences_stand_as_behind_a_broker_that_refused_the_batch(world: World) -> None:
    own = world.producer_id(1)

    def code(key: bytes, sequence: int, epoch: int = 0) -> int:
        return world.produce(1, {(STRICT, 3): batch([(key, b"%d.%d" % (epoch, sequence))], own, epoch, sequence)}).code

    assert code(AT_3[0], 0) == 0
    assert code(AT_5[0], 1) == InvalidRecord.code
    assert code(AT_3[0], 2) == OutOfOrderSequenceNumber.code, "it follows a gap"
    assert code(AT_3[0], 1) == 0, "another batch may have the sequence of the refused one"
    assert code(AT_3[0], 0, epoch=1) == 0
    assert values(world) == [b"0.0", b"0.1", b"1.0"]


def test_records_that_cannot_be_read_are_refused(world: World) -> None:
    whole = batch([(AT_3[0], b"value")])
    assert world.produce(1, {(STRICT, 3): whole[:-1] + b"x"}).code == CorruptMessage.code
    assert world.produce(1, {(STRICT, 3): whole[:-1]}).code == InvalidRecord.code
    assert world.produce(1, {(STRICT, 3): whole + whole}).code == InvalidRecord.code
    assert world.produce(1, {(STRICT, 3): bytes(16) + b"\x01" + bytes(60)}).code == UnsupportedForMessageFormat.code
    assert world.produce(1, {(STRICT, 9): whole}).code == UnknownTopicOrPartition.code
    assert not values(world)


def test_a_topic_with_fewer_partitions_than_its_rule_states_takes_no_records() -> None:
    world = world_of(f"{STRICT}=reject::12")
    assert world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"")])}).code == PolicyViolation.code


def test_records_without_a_response_close_the_connection(world: World) -> None:
    world.produce(1, {(STRICT, 3): batch([(AT_5[0], b"")])}, acks=0)
    assert "acks=0 were refused" in world.closed[1]
    assert not values(world)


def test_later_requests_wait_for_one_that_is_read_in_a_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    world.busy = True
    own = world.producer_id(1)
    large = world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"x" * 5000)], own, 0, 0)})
    small = world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"y")], own, 0, 1)})
    request = EndTxnRequest(transactional_id="t", producer_id=own, producer_epoch=0, committed=True)
    end = world.request(1, request, 3)
    [work] = world.work
    assert not world.upstream.produced and small.frame is None and end.frame is None
    assert world.core.buffered.total > 5000
    assert world.produce(2, {(STRICT, 5): batch([(AT_5[0], b"of another client")])}).code == 0
    world.finish(work)
    assert (large.code, small.code) == (0, 0)
    assert end.frame is not None
    assert [len(value or b"") for value in world.upstream.logs[STRICT, 3] and values(world)][:2] == [5000, 1]
    assert world.core.buffered.total == 0 and world.core.idle


def test_requests_of_a_client_that_left_while_they_waited_are_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    world.busy = True
    world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"x" * 5000)])})
    world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"y")])})
    world.leave(1)
    world.finish(world.work[0])
    assert len(values(world)) == 2
    assert world.core.buffered.total == 0 and not world.core.buffered.of


def test_a_client_that_left_may_have_left_any_number_of_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    world.busy = True
    world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"x" * 5000)])})
    monkeypatch.setattr(threads, "STEP", 10**9)
    for _ in range(500):
        world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"y")])})
    world.leave(1)
    world.busy = False
    world.finish(world.work[0])
    assert len(values(world)) == 501 and not world.core.buffered.of


def test_records_wait_for_the_metadata_of_their_topic(world: World) -> None:
    world = World(Upstream({STRICT: SIX}), f"{STRICT}=reject")
    reply = world.produce(1, {(STRICT, 3): batch([(AT_5[0], b"refused")])})
    again = world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"passed")])})
    world.settle(1)
    assert (reply.code, again.code) == (InvalidRecord.code, 0)


def test_records_of_a_topic_that_does_not_exist_are_refused_in_time() -> None:
    world = world_of("*=reject")
    reply = world.produce(1, {("made-up", 0): batch([(AT_3[0], b"")])})
    later = world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"")])})
    world.settle(METADATA_WAIT + 1)
    assert (reply.code, later.code) == (UnknownTopicOrPartition.code, 0)
    assert "made-up" not in world.core.tallies and world.core.buffered.total == 0


def test_records_are_handled_again_under_rules_that_have_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    world.busy = True
    reply = world.produce(1, {(STRICT, 5): batch([(AT_3[0], b"x" * 5000)])})
    world.core.handle(RulesChanged((parse_rule(f"{STRICT}=rewrite"),)), world.now)
    world.finish(world.work[0])
    assert not world.core.tallies[STRICT].refused, "it was not judged yet"
    while world.work:  # reading, and building
        world.finish(world.work[0])
    world.settle(1)
    assert reply.code == 0 and len(world.upstream.logs[STRICT, 3]) == 1


@pytest.mark.parametrize("topic", ["made-up", STRICT])
def test_a_change_of_another_rule_leaves_a_client_without_responses_alone(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    rules = [f"{STRICT}=reject", "made-*=reject"]
    world = world_of(*rules)
    world.busy = True
    world.produce(1, {(topic, 3): batch([(AT_3[0], b"x" * 5000)])}, acks=0)
    change_rules(world, *rules, "other=observe")
    assert not world.closed
    world.upstream.cluster.create("made-up")
    for partition in range(SIX):
        world.upstream.lead("made-up", partition, 0)
    world.settle(2)
    world.finish(world.work[0])
    assert len(values(world, topic)) == 1 and not world.closed


def change_rules(world: World, *rules: str) -> None:
    world.core.handle(RulesChanged(tuple(map(parse_rule, rules))), world.now)
    world.settle(1)


def test_a_request_that_waits_while_the_rules_change_is_handled_under_the_new_ones() -> None:
    """Upstream would take its sequence for a repeat of the proxy's own."""
    world = world_of("made-*=reject", "flights=rewrite")
    producer = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch([(AT_3[0], b"0")], producer, 0, 0)}).code == 0
    held = world.produce(1, {("made-up", 0): batch([(AT_3[0], b"")])})
    behind = world.produce(1, {("flights", 3): batch([(AT_3[0], b"1")], producer, 0, 0)})
    assert held.frame is None and behind.frame is None
    change_rules(world, "made-*=reject", "flights=observe")
    world.settle(METADATA_WAIT)
    assert behind.code == ProducerFenced.code and values(world, "flights") == [b"0"]


def test_a_pinned_number_of_partitions_stays_though_a_request_waits_while_the_topic_becomes_rewritten_again() -> None:
    world = world_of(f"{STRICT}=rewrite")
    assert world.produce(1, {(STRICT, 3): batch([(AT_3[0], b"a")])}).code == 0
    world.upstream.lead(STRICT, SIX, 0)
    world.request(0, MetadataRequest(topics=None), 9)
    change_rules(world, f"{STRICT}=reject", "made-*=reject")
    world.produce(1, {("made-up", 0): batch([(AT_3[0], b"")]), (STRICT, 3): batch([(AT_3[0], b"x")])})
    change_rules(world, f"{STRICT}=rewrite", "made-*=reject")
    assert {topic: routes.partitions for topic, routes in world.core.topics.pins.items()} == {STRICT: SIX}


def test_a_topic_may_lose_its_rule_while_a_request_waits() -> None:
    world = world_of(f"{STRICT}=reject", "made-*=reject")
    reply = world.produce(1, {("made-up", 0): batch([(AT_3[0], b"")]), (STRICT, 3): batch([(AT_3[0], b"x")])})
    change_rules(world, "made-*=reject")
    world.settle(2 * METADATA_WAIT)
    assert {place: each.error_code for place, each in reply.produced.items()} == {
        ("made-up", 0): UnknownTopicOrPartition.code,
        (STRICT, 3): 0,
    }
    assert values(world) == [b"x"]


def test_a_request_that_waits_counts_in_the_budget() -> None:
    world = world_of("made-*=reject")
    large = batch([(AT_3[0], bytes(1_000_000))])
    held = world.produce(1, {("made-up", 0): batch([(AT_3[0], b"")]), ("plain", 3): large})
    assert held.frame is None and world.core.buffered.total > len(large)
    world.settle(2 * METADATA_WAIT)
    assert held.frame is not None and world.core.buffered.total == 0


def test_a_passage_begins_only_with_a_whole_head(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.request(1, MetadataRequest(topics=None), 9)
    assert not any(world.core.begins_passage(1, 10**6, bytes(size), world.now) for size in range(4, 9))
    assert not caplog.records
