"""The producer's promises, in a world where connections break: no record is lost, doubled or reordered."""

import contextlib
import logging
import random
import re
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.compression import Compression
from ottla.codec.records import RecordBatch, parse_batch, rebased
from ottla.errors import (
    BufferFull,
    Closed,
    DeliveryFailed,
    DeliveryTimeout,
    EncodeError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OttlaError,
    ProducerFenced,
    RecordTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Lost, Node
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import InFlightBatches, PartitionQueue, ProducerBatch
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.produce.records import AwaitedReceipt, PendingRecord, Receipt
from ottla.sdk.timers import Timers
from tests.sim.world import ModelBroker, World


def producer_in(world: World, **options: Any) -> ProducerCore:
    return ProducerCore(world.core, ProducerOptions(**{"batch_size": 300} | options), random.Random(5))


def send(producer: ProducerCore, world: World, value: bytes, key: bytes | None = None, topic: str = "t") -> None:
    producer.append(PendingRecord(topic, value, key, None, (), 1000), world.now)


def ask(
    producer: ProducerCore, world: World, value: bytes | None, partition: int | None = 0, topic: str = "t"
) -> Outcome[Receipt]:
    outcome: Outcome[Receipt] = Outcome()
    producer.append(PendingRecord(topic, value, None, partition, (), 1000, outcome.settle), world.now)
    return outcome


def awaited(producer: ProducerCore, world: World, value: bytes, partition: int = 0) -> AwaitedReceipt:
    """As `ask`, for a caller that awaits the record."""
    outcome = AwaitedReceipt()
    producer.append(PendingRecord("t", value, None, partition, (), 1000, outcome), world.now)
    return outcome


def values(world: World, place: tuple[str, int] = ("t", 0)) -> list[bytes | None]:
    return world.broker.logs[place].values


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), breaks=st.sampled_from([0.0, 0.05, 0.2, 0.4]), nodes=st.integers(1, 3))
def test_whatever_breaks_each_record_is_stored_once_and_in_order(seed: int, breaks: float, nodes: int) -> None:
    world = World(ModelBroker({"t": 4}, nodes), seed=seed, breaks=breaks)
    producer = producer_in(world)
    sent: dict[bytes, list[bytes]] = defaultdict(list)
    for i in range(300):
        key = b"k%d" % (i % 7)
        sent[key].append(b"%d" % i)
        send(producer, world, b"%d" % i, key)
        if i % 20 == 0:
            world.run(0.01)
    world.call(producer.start_flush)
    producer.raise_failures()
    stored: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for log in world.broker.logs.values():
        for record in log.records:
            stored[record.key].append(record.value)
    assert stored == sent


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_leaders_that_move_cost_nothing_but_time(seed: int) -> None:
    world = World(ModelBroker({"t": 3}, 3), seed=seed)
    producer = producer_in(world)
    for i in range(120):
        send(producer, world, b"%d" % i, b"k%d" % (i % 5))
        if i % 30 == 0:
            for place in world.broker.logs:
                world.broker.cluster.lead(place, world.rng.choice([1, 2, 3]))
            world.core.metadata.refresh(world.now, 1.0)
    world.call(producer.start_flush)
    producer.raise_failures()
    assert sorted(int(v or b"") for place in world.broker.logs for v in values(world, place)) == list(range(120))


def test_the_same_seed_replays_exactly() -> None:
    def story() -> list[str]:
        world = World(ModelBroker({"t": 4}, 2), seed=42, breaks=0.3)
        producer = producer_in(world)
        for i in range(100):
            send(producer, world, b"%d" % i, b"k%d" % i)
        world.call(producer.start_flush)
        return [f"{node} {told(message)}" for node, message in world.broker.requests]

    def told(message: object) -> str:
        """The text of a memoryview has its address, which differs in each run: replace it by the bytes."""
        topics = message.topic_data if isinstance(message, ProduceRequest) else ()
        records = [bytes(data.records or b"") for topic in topics for data in topic.partition_data]
        return re.sub("<memory at [^>]*>", "", str(message)) + str(records)

    assert story() == story()


def test_a_receipt_tells_partition_offset_and_timestamp() -> None:
    world = World(ModelBroker({"t": 2}))
    producer = producer_in(world)
    first, second = ask(producer, world, b"a", 1), ask(producer, world, b"b", 1)
    world.run(second)
    assert first.result() == Receipt("t", 1, 0, 1000)
    assert second.result() == Receipt("t", 1, 1, 1000)


def test_five_batches_are_in_flight_and_no_more() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"first"))
    before = len(world.broker.requests)
    for i in range(20):
        send(producer, world, b"%d" % i)
    world.act()
    in_flight = world.core.connections._connections[1, "produce"].requests.in_flight
    assert len(in_flight) == 5
    world.call(producer.start_flush)
    assert len(world.broker.requests) - before == 20
    assert values(world) == [b"first", *(b"%d" % i for i in range(20))]


def test_a_refused_batch_fails_alone_and_those_behind_it_are_renumbered() -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: (
        MessageTooLarge.code if any(r.value == b"bad" for r in batch.records()) else 0
    )
    producer = producer_in(world, batch_size=1, linger=0)
    outcomes = [ask(producer, world, value) for value in (b"1", b"2", b"bad", b"3", b"4", b"5", b"6")]
    world.call(producer.start_flush)
    errors = [type(each.error) for each in outcomes]
    assert errors == [type(None), type(None), MessageTooLarge, *[type(None)] * 4]
    assert values(world) == [b"1", b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize("size", [1, 10**6], ids=["one record", "split"])
def test_what_is_out_of_sequence_behind_a_batch_that_is_too_large_is_no_loss_of_the_brokers(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: (
        MessageTooLarge.code if any(r.value == b"bad" for r in batch.records()) else 0
    )
    producer = producer_in(world, batch_size=size, linger=0)
    world.run(ask(producer, world, b"0"))
    outcomes = [ask(producer, world, value) for value in (b"1", b"bad", b"2")]
    world.act()  # they are in flight
    outcomes += [ask(producer, world, value) for value in (b"3", b"4")]
    world.call(producer.start_flush)
    assert [type(each.error) for each in outcomes] == [type(None), MessageTooLarge, *[type(None)] * 3]
    assert values(world) == [b"0", b"1", b"2", b"3", b"4"]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_failure_that_nobody_awaits_is_raised_by_the_next_call_and_only_once() -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: MessageTooLarge.code
    producer = producer_in(world)
    for value in (b"1", b"2", b"3"):
        send(producer, world, value)
    world.call(producer.start_flush)
    with pytest.raises(DeliveryFailed, match=r"3 record\(s\).*t-0: 3.*MESSAGE_TOO_LARGE") as caught:
        producer.raise_failures()
    assert isinstance(caught.value.__cause__, MessageTooLarge)
    producer.raise_failures()


def test_delivery_ends_at_its_deadline_and_says_what_was_the_matter() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0))
    world.broker.refuse = lambda place, batch: NotLeaderOrFollower.code
    producer = producer_in(world)
    outcome = ask(producer, world, b"1")
    world.run(outcome)
    assert isinstance(outcome.error, DeliveryTimeout)
    assert "t-0" in str(outcome.error) and "5 s" in str(outcome.error)
    assert 5.0 <= world.now < 6.0


def test_after_a_batch_of_unknown_outcome_is_given_up_the_rest_goes_on_without_a_double() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0, request_timeout=2.0))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    handle, lost = world.broker.handle, [True]

    def swallow(node: int, frame: bytes) -> bytes | None:
        # Produce requests disappear, as if the broker hung.
        return None if lost[0] and frame[:2] == b"\0\0" else handle(node, frame)

    world.broker.handle = swallow  # type: ignore[method-assign] # a broker that hangs
    doomed = ask(producer, world, b"doomed")
    world.run(doomed)
    assert isinstance(doomed.error, DeliveryTimeout)
    lost[0] = False
    later = [ask(producer, world, b"%d" % i) for i in range(1, 9)]
    world.call(producer.start_flush)
    assert [each.error for each in later] == [None] * 8
    assert values(world) == [b"0", *(b"%d" % i for i in range(1, 9))]


def test_a_broker_that_lost_acknowledged_records_is_told_of_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    world.run(ask(producer, world, b"1"))
    world.broker.logs["t", 0].truncate(1)
    second, third = ask(producer, world, b"2"), ask(producer, world, b"3")
    world.call(producer.start_flush)
    assert (second.error, third.error) == (None, None)
    assert values(world) == [b"0", b"2", b"3"]
    assert any("lost records that it had acknowledged" in each.message for each in caplog.records)


def test_the_first_batch_under_a_producer_id_goes_alone() -> None:
    world = World(ModelBroker({"t": 1}))
    refusals = iter([NotLeaderOrFollower.code])
    world.broker.refuse = lambda place, batch: next(refusals, 0)
    producer = producer_in(world, batch_size=1, linger=0)
    for i in range(10):
        send(producer, world, b"%d" % i)
    world.call(producer.start_flush)
    producer.raise_failures()
    assert values(world) == [b"%d" % i for i in range(10)]


def test_a_fenced_producer_fails_everything_and_stays_failed() -> None:
    world = World(ModelBroker({"t": 2}))
    world.broker.refuse = lambda place, batch: ProducerFenced.code
    producer = producer_in(world)
    one, other = ask(producer, world, b"1", 0), ask(producer, world, b"2", 1)
    world.run(lambda: one.done and other.done)
    assert isinstance(one.error, ProducerFenced) and isinstance(other.error, ProducerFenced)
    with pytest.raises(ProducerFenced):
        send(producer, world, b"3")


def test_sequences_wrap_to_zero() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"first"))
    queue, log = producer._sender.queues.partitions["t", 0], world.broker.logs["t", 0]
    queue.next_sequence = 2**31 - 2
    log.model.producers.clear()
    for i in range(5):
        send(producer, world, b"%d" % i)
    world.call(producer.start_flush)
    producer.raise_failures()
    assert queue.next_sequence == 3
    assert values(world) == [b"first", *(b"%d" % i for i in range(5))]


def test_memory_is_bounded_and_given_back() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, buffer_memory=4000)
    for _ in range(5):
        send(producer, world, bytes(100))
    with pytest.raises(BufferFull, match="2260 of 4000 bytes"):
        send(producer, world, bytes(100))
    world.run(producer.offer(PendingRecord("t", bytes(100), None, None, (), 1000), world.now))
    world.call(producer.start_flush)
    assert producer.appends.free == 4000


def test_a_record_that_can_never_be_sent_is_refused_at_once() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(max_request_size=1000))
    producer = producer_in(world)
    with pytest.raises(RecordTooLarge, match="max_request_size is 1000"):
        send(producer, world, bytes(1000))
    with pytest.raises(EncodeError, match=r"'text'\.encode\(\)"):
        send(producer, world, "text")  # type: ignore[arg-type] # on purpose
    for name, fits in (("n" * 800, True), ("n" * 950, False), ("ü" * 450, False)):
        record = PendingRecord("t", b"", None, 0, ((name, b""),), 1000)
        with contextlib.nullcontext() if fits else pytest.raises(RecordTooLarge):
            producer.append(record, world.now)
    world.call(producer.start_flush)
    assert not producer.pending


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("linger", [0.0, 5.0])
@pytest.mark.parametrize("checked", [True, False])
def test_a_record_that_cannot_be_encoded_leaves_no_empty_batch(checked: bool, linger: float, before: int) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, linger=linger, batch_size=1)
    for _ in range(before):
        world.run(ask(producer, world, b"before"))
    free = producer.appends.free
    record = PendingRecord("t", b"v", None, 0, (), 2**63)
    with pytest.raises(EncodeError):
        if checked:
            producer.append(record, world.now)
        else:  # as if the check had overlooked it
            world.run(world.core.metadata.topic("t", world.now))
            producer._accumulator.append(record, world.core.cluster.topics["t"], world.now)
    assert producer.appends.free == free and not any(queue.batches for queue in producer._queues.partitions.values())
    world.call(producer.start_flush)
    world.run(ask(producer, world, b"after"))
    assert values(world) == [b"before"] * before + [b"after"]


@pytest.mark.parametrize(("topic", "partition"), [("nope", None), ("t", 9)])
def test_a_topic_or_partition_that_does_not_exist_is_an_error_that_names_it(topic: str, partition: int | None) -> None:
    world = World(ModelBroker({"t": 2}))
    producer = producer_in(world)
    outcome = ask(producer, world, b"1", partition, topic)
    world.run(outcome)
    assert isinstance(outcome.error, UnknownTopicOrPartition)
    assert topic in str(outcome.error)
    assert world.now < 10


def test_acks_0_ends_when_the_bytes_are_handed_over() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, acks=0, idempotent=False)
    outcome = ask(producer, world, b"1")
    world.run(outcome)
    assert outcome.result().offset == -1
    world.run(lambda: values(world) == [b"1"], limit=1)


def test_without_idempotence_one_batch_is_in_flight_so_that_retries_keep_the_order() -> None:
    world = World(ModelBroker({"t": 1}))
    refusals = iter([NotLeaderOrFollower.code] * 3)
    world.broker.refuse = lambda place, batch: next(refusals, 0)
    producer = producer_in(world, idempotent=False, acks=1, batch_size=1, linger=0)
    for i in range(10):
        send(producer, world, b"%d" % i)
    world.call(producer.start_flush)
    assert values(world) == [b"%d" % i for i in range(10)]


def test_keyless_records_stay_together_for_about_a_batch() -> None:
    world = World(ModelBroker({"t": 4}))
    world.call(lambda now: world.core.metadata.topic("t", now))
    producer = producer_in(world, batch_size=2000)
    for _ in range(400):
        send(producer, world, bytes(18))
    world.call(producer.start_flush)
    counts = [len(values(world, ("t", index))) for index in range(4)]
    assert sum(counts) == 400
    # A record counts 50 bytes, so 40 records in a row go to one partition.
    assert all(count % 40 == 0 for count in counts)
    assert sum(count > 0 for count in counts) >= 2


def test_however_large_a_batch_may_be_keyless_records_move_on_after_16_kib() -> None:
    world = World(ModelBroker({"t": 4}))
    world.call(lambda now: world.core.metadata.topic("t", now))
    producer = producer_in(world, batch_size=10**6, linger=0)
    for _ in range(200):
        world.run(ask(producer, world, bytes(1000), None))  # a batch each
    counts = [len(values(world, ("t", index))) for index in range(4)]
    assert sum(counts) == 200
    # A record counts 1032 bytes: 15 of them fit into 16 KiB.
    assert all(count % 15 in (0, 200 % 15) for count in counts) and sum(count > 0 for count in counts) == 4


def test_closing_fails_what_is_left_and_hangs_nobody() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world)
    outcome, flush = ask(producer, world, b"1"), producer.start_flush(world.now)
    producer.close(OttlaError("closed"))
    world.run(lambda: outcome.done and flush.done, limit=0.0)
    assert str(outcome.error) == "closed"


def test_a_refused_batch_gives_its_numbers_only_to_those_behind_it() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"a"))
    once = iter([NotEnoughReplicas.code])

    def refuse(place: tuple[str, int], batch: RecordBatch) -> int:
        value = batch.records()[0].value
        return next(once, 0) if value == b"b" else MessageTooLarge.code if value == b"c" else 0

    world.broker.refuse = refuse
    older, refused, younger = ask(producer, world, b"b"), ask(producer, world, b"c"), ask(producer, world, b"d")
    world.call(producer.start_flush)
    assert (older.error, type(refused.error), younger.error) == (None, MessageTooLarge, None)
    assert values(world) == [b"a", b"b", b"d"]


def test_a_new_epoch_follows_a_batch_that_was_given_up() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0, request_timeout=2.0))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    handle, hung = world.broker.handle, [True]
    world.broker.handle = (  # type: ignore[method-assign] # a broker that hangs
        lambda node, frame: None if hung[0] and frame[:2] == b"\0\0" else handle(node, frame)
    )
    world.run(ask(producer, world, b"doomed"))
    hung[0] = False
    world.run(ask(producer, world, b"1"))
    last = parse_batch(world.broker.logs["t", 0].batches[-1].data)
    assert (last.producer_id, last.producer_epoch, last.base_sequence) == (1001, 1, 0)


def test_what_may_be_stored_already_is_not_renumbered_but_fails_and_says_so() -> None:
    """The leader refuses ``b``, loses its state, accepts ``c`` despite the gap, and resigns before the answer."""
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"a"))
    log = world.broker.logs["t", 0]

    def refuse(place: tuple[str, int], batch: RecordBatch) -> int:
        value = batch.records()[0].value
        if value == b"b":
            return MessageTooLarge.code
        if value == b"c" and b"c" not in values(world):
            log.append_batch(rebased(batch.data, log.end, 0), 1)
            return NotLeaderOrFollower.code
        return 0

    world.broker.refuse = refuse
    _, unsure, later = ask(producer, world, b"b"), ask(producer, world, b"c"), ask(producer, world, b"d")
    world.call(producer.start_flush)
    assert "the records may or may not be in the log" in str(unsure.error) and later.error is None
    assert values(world) == [b"a", b"c", b"d"]


@pytest.mark.parametrize("behind", [[b"c"], [b"c", b"d"]], ids=len)
def test_what_was_overtaken_in_a_log_without_state_is_not_stored_behind_what_overtook_it(behind: list[bytes]) -> None:
    """The leader refuses ``b`` for lack of replicas, loses its state, and accepts ``c`` despite the gap."""
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"a"))

    sent: list[tuple[bytes | None, int, int]] = []

    def refuse(place: tuple[str, int], batch: RecordBatch) -> int:
        sent.append((batch.records()[0].value, batch.producer_epoch, batch.base_sequence))
        if batch.records()[0].value == b"b" and b"c" not in values(world):
            world.broker.logs[place].model.producers.clear()
            return NotEnoughReplicas.code
        return 0

    world.broker.refuse = refuse
    overtaken, *others = (ask(producer, world, each) for each in (b"b", *behind))
    world.call(producer.start_flush)
    assert "later records are stored already" in str(overtaken.error)
    assert all(each.error is None for each in others)
    assert values(world) == [b"a", *behind]
    sent.clear()
    world.run(ask(producer, world, b"e"))
    assert sent == [(b"e", 1, 0)], "a new epoch, so that no sequence is used twice"


def test_halves_of_a_batch_that_may_be_stored_are_not_renumbered_either() -> None:
    """The leader stores the batch but answers MESSAGE_TOO_LARGE, and the next leader accepts only smaller ones."""
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1000, linger=0.1)
    world.run(ask(producer, world, b"first"))
    log = world.broker.logs["t", 0]

    def refuse(place: tuple[str, int], batch: RecordBatch) -> int:
        if b"b" not in values(world):
            log.produce(batch.data)
            return NotLeaderOrFollower.code
        return MessageTooLarge.code if batch.count > 1 else 0

    world.broker.refuse = refuse
    two = [ask(producer, world, b"a"), ask(producer, world, b"b")]
    world.call(producer.start_flush)
    assert all("the records may or may not be in the log" in str(each.error) for each in two)
    assert values(world) == [b"first", b"a", b"b"]


def test_nothing_is_sent_without_a_producer_id_once_the_last_epoch_is_used_up() -> None:
    world = World(ModelBroker({"t": 2}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"a"))
    sender = producer._sender
    identity = sender.identity
    identity.current = Identity(1000, 32766)
    identity.bump(world.now)
    assert identity.current is None and not sender._adopt(sender.queues.partition(("t", 1)), world.now)
    ask(producer, world, b"b", 1)
    world.call(producer.start_flush)
    assert parse_batch(world.broker.logs["t", 1].batches[-1].data).producer_id == 1002


def test_records_of_a_topic_that_nobody_knows_keep_their_delivery_deadline() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0))
    world.broker.handle = lambda node, frame: None  # type: ignore[method-assign] # a broker that hangs
    producer = producer_in(world)
    outcome = ask(producer, world, b"1")
    world.run(outcome)
    assert isinstance(outcome.error, DeliveryTimeout) and "'t'" in str(outcome.error)
    assert 5.0 <= world.now < 5.5


def test_a_flush_does_not_wait_for_the_linger_of_records_whose_topic_was_unknown() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, linger=60.0)
    send(producer, world, b"1")
    world.call(producer.start_flush, limit=5)
    assert values(world) == [b"1"]


def test_a_flush_does_not_wait_for_topics_that_are_met_meanwhile() -> None:
    topics = [f"t{i}" for i in range(500)]
    world = World(ModelBroker(dict.fromkeys(topics, 1)))
    producer = producer_in(world, linger=60.0)
    met = iter(topics)

    def meet(now: float) -> None:
        send(producer, world, b"1", topic=next(met))
        world.core.later(now + 0.001, meet)

    meet(world.now)
    world.call(producer.start_flush, limit=0.1)
    assert values(world, (topics[0], 0)) == [b"1"] and producer.pending


def test_a_flush_ends_in_time_though_more_comes_to_a_topic_that_is_not_found() -> None:
    broker = ModelBroker({"t": 1})
    world = World(broker, options=Options(delivery_timeout=3.0))
    broker.handle = lambda node, frame: None  # type: ignore[method-assign] # a broker that hangs
    producer = producer_in(world)
    failed = ask(producer, world, b"0")
    flush = producer.start_flush(world.now)
    for i in range(1, 8):
        world.run(0.5)
        send(producer, world, b"%d" % i)
    assert flush.done and isinstance(failed.error, DeliveryTimeout) and producer.pending == 6


@pytest.mark.parametrize("fails", [False, True])
def test_a_flush_waits_for_the_batches_of_what_had_no_topic_when_it_began(fails: bool) -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: (
        MessageTooLarge.code if batch.count > 1 else TopicAuthorizationFailed.code * fails
    )
    producer = producer_in(world, linger=60.0)
    asked = [ask(producer, world, b"%d" % i) for i in range(3)]
    flush = producer.start_flush(world.now)
    world.run(lambda: any(each.done for each in asked))
    assert not flush.done, "the rest of the split batch is still in flight"
    world.run(flush)
    assert all(each.done and bool(each.error) is fails for each in asked) and world.now < 1.0
    assert not producer._deliveries._unsettled and not producer._deliveries._placed


@pytest.mark.parametrize("end", ["the producer is closed", "the record's deadline"])
def test_a_topic_is_not_asked_for_once_no_record_waits_for_it(end: str) -> None:
    world = World(broker := ModelBroker({"t": 1}), options=Options(delivery_timeout=3.0))
    producer = producer_in(world)
    failed = ask(producer, world, b"1", None, "never")
    if end == "the producer is closed":
        world.core.later(2.0, lambda now: producer.close(Closed("closed")))
    world.run(failed)
    before = len(broker.requests)
    world.run(30.0)
    asked = [message.topics for _, message in broker.requests[before:] if isinstance(message, MetadataRequest)]
    assert not any(asked) and not world.core.metadata._questions.waits


def test_a_record_that_gets_the_room_of_one_that_found_no_topic_has_its_own_time() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=2.0))
    producer = producer_in(world, buffer_memory=1000)
    failed = ask(producer, world, bytes(900), None, "never")
    world.run(1.0)
    second: Outcome[Receipt] = Outcome()
    producer.offer(PendingRecord("never", bytes(900), None, None, (), 1000, second.settle), world.now)
    world.run(second)
    assert isinstance(failed.error, DeliveryTimeout) and isinstance(second.error, DeliveryTimeout)
    assert 3.0 <= world.now < 3.1


def test_a_closed_producer_asks_for_its_topics_no_more() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world)
    world.run(ask(producer, world, b"1"))
    producer.close(OttlaError("closed"))
    world.call(lambda now: world.core.metadata.topic("t", now, fresh=True))
    world.call(lambda now: world.core.metadata.topic("t", now, fresh=True))
    last = [message for _, message in world.broker.requests if isinstance(message, MetadataRequest)][-1]
    assert not last.allow_auto_topic_creation
    assert not world.core.metadata._topics.held


def test_a_node_that_comes_back_under_another_address_ends_no_request_unheard() -> None:
    world = World(ModelBroker({"t": 1}, 3))
    world.call(lambda now: world.core.metadata.topic("t", now))
    ends: list[object] = []
    core = world.core
    for port in (9001, 9002, 9003):
        exchange = Exchange(MetadataRequest(topics=()), lambda answer, now: ends.append(answer), world.now + 30)
        core.submit(Node(7, "sim", port), exchange, world.now)
        if port == 9001:
            core.poll(world.now)
            core.handle(Lost((7, "general"), "refused"), world.now)
    world.run(lambda: len(ends) == 3)


def test_many_cancelled_timers_take_no_room() -> None:
    timers = Timers()
    for i in range(10_000):
        timers.add(1000.0 + i, lambda now: None).cancel()
    kept = timers.add(5.0, lambda now: None)
    assert len(timers) < 200
    assert timers.next == 5.0 and timers.due(5.0) is not None and kept.call is None


def in_flight(batch: ProducerBatch, queue: PartitionQueue) -> InFlightBatches:
    return InFlightBatches({batch: queue}, Exchange(ProduceRequest, lambda answer, now: None, 9.0))


def test_what_an_old_log_acknowledged_says_nothing_of_the_log_of_a_recreated_topic() -> None:
    queue = PartitionQueue(("t", 0))
    first, second, third = (ProducerBatch(number, ("t", 0), 0.0, 9.0, 100) for number in (1, 2, 3))
    first.due = second.due = third.due = True
    queue.batches.append(first)
    assert queue.adopt(Identity(7, 0))
    queue.send(first, 1, in_flight(first, queue))
    queue.batches.extend((second, third))
    queue.recreate(2)
    first.answered()
    queue.stored(first, 0.0)  # a late answer
    assert queue.sendable(0.0) is second and not queue.adopt(Identity(7, 0)) and queue.adopt(Identity(7, 1))
    queue.send(second, 1, in_flight(second, queue))
    assert queue.sendable(0.0) is None, "if the second were refused and the third stored, the order would be lost"


def test_a_batch_is_not_copied_for_its_requests_and_what_an_earlier_one_holds_stays_as_it_is() -> None:
    queue = PartitionQueue(("t", 0))
    batch = ProducerBatch(1, ("t", 0), 0.0, 9.0, 10_000)
    batch.add(1040, 1, b"k", b"v" * 1000, (), None)
    batch.due = True
    queue.batches.append(batch)
    assert queue.adopt(Identity(7, 0))
    queue.send(batch, 1, in_flight(batch, queue))
    first = queue.encode(batch, 9, Compression.NONE, None)
    assert isinstance(first, memoryview)
    written = bytes(first)
    batch.answered()
    batch.sequence, queue.identity = 5, Identity(7, 1)
    again = queue.encode(batch, 9, Compression.NONE, None)
    assert bytes(first) == written, "half of it may still wait for the socket"
    found = parse_batch(again)
    assert (found.producer_epoch, found.base_sequence, found.count) == (1, 5, 1)
    assert parse_batch(first).producer_epoch == 0


def batches_of(world: World) -> list[tuple[int, list[bytes | None]]]:
    """The partition and the values of each batch that brokers get from now on."""
    seen: list[tuple[int, list[bytes | None]]] = []

    def see(place: tuple[str, int], batch: RecordBatch) -> int:
        seen.append((place[1], [each.value for each in batch.records()]))
        return 0

    world.broker.refuse = see
    return seen


def test_awaited_records_do_not_linger_but_are_collected_while_a_request_is_in_flight() -> None:
    world = World(ModelBroker({"t": 2}))
    producer = producer_in(world, linger=60.0)
    world.run(awaited(producer, world, b"first"))
    seen = batches_of(world)
    lone = awaited(producer, world, b"lone")
    world.run()
    behind = [awaited(producer, world, b"%d" % number, number % 2) for number in range(4)]
    send(producer, world, b"nobody awaits it", key=b"1")
    world.run(lone)
    assert not any(each.done for each in behind)
    for each in behind:
        world.run(each)
    assert seen[0] == (0, [b"lone"]) and [len(values) for _, values in seen[1:]] == [2, 3]
    assert world.now < 1.0


def test_what_nobody_awaits_lingers() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, linger=5.0)
    world.run(awaited(producer, world, b"first"))
    seen, asked = batches_of(world), ask(producer, world, b"1")
    world.run(4.9)
    assert not asked.done and not seen
    world.run(awaited(producer, world, b"2"))
    assert asked.done and seen == [(0, [b"1", b"2"])]


def test_collected_records_do_not_wait_for_a_response_if_leaders_have_changed() -> None:
    world = World(ModelBroker({"t": 1}, 2))
    producer = producer_in(world, linger=60.0)
    world.run(awaited(producer, world, b"first"))
    [node] = producer._sender.queues._nodes.values()
    awaited(producer, world, b"lone")
    world.run()
    awaited(producer, world, b"collected")
    world.run()
    assert node.in_flight == 1
    [other] = world.core.cluster.nodes.keys() - {node.id}  # never used before
    with world.core.gate:
        world.core.cluster.moved("t", 0, other, 100, [])
        producer._sender.queues.metadata_changed()
    world.run()
    assert producer._sender.queues.node(other).in_flight == 1


def test_batches_that_have_failed_are_not_kept_until_a_response_comes() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=0.1))
    producer = producer_in(world, linger=0.01)
    world.run(awaited(producer, world, b"first"))
    world.broker.handle = lambda node, frame: None  # type: ignore[method-assign] # a broker that hangs
    failed = [awaited(producer, world, b"lone")]
    for number in range(20):
        failed.append(awaited(producer, world, b"%d" % number))
        world.run(0.2)
    assert all(isinstance(each.error, DeliveryTimeout) for each in failed)
    [node] = producer._sender.queues._nodes.values()
    assert len(node._collected) <= 1
