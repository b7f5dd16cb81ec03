"""The producer against brokers that refuse, forget, throttle, are old or are gone: the outcome of each record."""

import itertools
import logging
import math
import random
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.codec.compression import Compression
from ottla.codec.message_sets import Message, read_record_set
from ottla.codec.records import RecordBatch, parse_batch
from ottla.errors import (
    BrokerError,
    BufferFull,
    Closed,
    CoordinatorLoadInProgress,
    CorruptMessage,
    DeliveryFailed,
    DeliveryTimeout,
    DuplicateSequenceNumber,
    EncodeError,
    InvalidProducerEpoch,
    InvalidRecord,
    KafkaStorageError,
    MessageTooLarge,
    Network,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OttlaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.sdk.connection.exchange import Exchange, ignored
from ottla.sdk.events import PRODUCE, Key
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options
from ottla.sdk.outcome import Abandoned, Outcome
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import Choice
from ottla.sdk.produce.producer_identity import ProducerIdentity
from ottla.sdk.produce.records import PendingRecord, Receipt
from ottla.sdk.produce.room import BATCH_OVERHEAD
from tests.sdk.test_producer_core import Recreating
from tests.sim.wire import Link
from tests.sim.world import ModelBroker, World

Place = tuple[str, int]


def producer_in(world: World, **options: Any) -> ProducerCore:
    return ProducerCore(world.core, ProducerOptions(**{"batch_size": 300, **options}), random.Random(5))


def ask(producer: ProducerCore, world: World, value: bytes | None, partition: int | None = 0) -> Outcome[Receipt]:
    outcome: Outcome[Receipt] = Outcome()
    producer.append(PendingRecord("t", value, None, partition, (), 1000, outcome.settle), world.now)
    return outcome


def offer(producer: ProducerCore, world: World, size: int) -> Outcome[None]:
    return producer.offer(PendingRecord("t", bytes(size), None, 0, (), 1000), world.now)


def values(world: World, place: Place = ("t", 0)) -> list[bytes | None]:
    return world.broker.logs[place].values


class Answering(ModelBroker):
    """``alter`` may replace a partition's Produce response, ``around`` the whole response."""

    alter: Callable[[PartitionProduceResponse], PartitionProduceResponse] = staticmethod(lambda result: result)
    around: Callable[[ProduceResponse], ProduceResponse] = staticmethod(lambda answer: answer)

    def _answer(self, node: int, message: Any) -> Any:
        answer = super()._answer(node, message)
        if not isinstance(answer, ProduceResponse):
            return answer
        topics = tuple(
            TopicProduceResponse(name=topic.name, partition_responses=tuple(map(self.alter, topic.partition_responses)))
            for topic in answer.responses
        )
        return self.around(ProduceResponse(responses=topics))


# -- no loss, no duplicate, no reordering, whatever is refused ---------------------------------------------------------

STORED_ALL_THE_SAME = [
    NotLeaderOrFollower,  # the leader appended, and resigned while acks=all waited; the next is similar
    UnknownTopicOrPartition,
    RequestTimedOut,
    NotEnoughReplicasAfterAppend,
    KafkaStorageError,
    Network,
]
RETRIABLE = [*STORED_ALL_THE_SAME, NotEnoughReplicas, CorruptMessage]


def play(seed: int, breaks: float, trouble: float) -> None:
    """Errors before and after the append, batches too large or forbidden, lost producer state, broken connections."""
    world = World(Answering({"t": 2}), seed=seed, breaks=breaks, options=Options(delivery_timeout=1000.0))
    chance = random.Random(seed)
    producer = producer_in(world, linger=chance.choice((0, 0.001)), batch_size=chance.choice((1, 100, 400)))

    def refuse(place: Place, batch: RecordBatch) -> int:
        if any(b"never" in (record.value or b"") for record in batch.records()):
            return TopicAuthorizationFailed.code
        if batch.count > 3 or (batch.count > 1 and (batch.records()[0].value or b"")[-1:] == b"7"):
            return MessageTooLarge.code
        if chance.random() < trouble:
            error = chance.choice(RETRIABLE)
            if error in STORED_ALL_THE_SAME and chance.random() < 0.5:
                return world.broker.logs[place].produce(batch.data) or error.code
            return error.code
        state = world.broker.logs[place].model.producers.get(batch.producer_id)
        stored = state is not None and (batch.base_sequence, batch.last_sequence) in state.recent
        if not stored and chance.random() < trouble / 20:
            return chance.choice((UnknownProducerId, InvalidProducerEpoch)).code
        return 0

    world.broker.refuse = refuse
    asked: dict[bytes, Outcome[Receipt]] = {}
    for i in range(100):
        value = b"%d%s" % (i, b" never" if chance.random() < 0.03 else b"")
        asked[value] = ask(producer, world, value, i % 2)
        if chance.random() < 0.2:
            world.run(chance.choice((0.001, 0.01, 0.3)))
    world.call(producer.start_flush)
    # A batch without an answer that is out of sequence later has an unknown outcome.
    unsure = {
        value for value, each in asked.items() if each.error and "may or may not be in the log" in str(each.error)
    }
    for partition in (0, 1):
        told = [
            value
            for value, outcome in asked.items()
            if outcome.error is None and outcome.result().partition == partition
        ]
        assert [each for each in values(world, ("t", partition)) if each not in unsure] == told
        for value in told:
            at = asked[value].result().offset
            assert at == -1 or world.broker.logs["t", partition].records[at].value == value
    lost = {type(each.error) for value, each in asked.items() if each.error and value not in unsure}
    assert lost <= {TopicAuthorizationFailed}
    assert max(Counter(values(world, ("t", 0)) + values(world, ("t", 1))).values()) == 1
    assert all(asked[value].error for value in asked if b"never" in value)
    assert producer.appends.free == producer._options.buffer_memory and not producer.pending


@pytest.mark.parametrize("trouble", [0.05, 0.3])
@pytest.mark.parametrize("breaks", [0.0, 0.2])
def test_each_record_is_stored_once_in_order_or_told_why_not(breaks: float, trouble: float) -> None:
    play(7, breaks, trouble)


@pytest.mark.deep
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), breaks=st.sampled_from([0.0, 0.1, 0.3]), trouble=st.sampled_from([0.05, 0.3]))
def test_so_it_is_with_every_seed(seed: int, breaks: float, trouble: float) -> None:
    play(seed, breaks, trouble)


def test_a_batch_that_is_too_large_is_split_until_it_fits_and_keeps_its_order_and_receipts() -> None:
    world = World(ModelBroker({"t": 1}))
    counts: list[int] = []

    def refuse(place: Place, batch: RecordBatch) -> int:
        counts.append(batch.count)
        return MessageTooLarge.code if batch.count > 2 else 0

    world.broker.refuse = refuse
    producer = producer_in(world, batch_size=10_000)
    asked = [ask(producer, world, b"%d" % i) for i in range(7)]
    world.call(producer.start_flush)
    assert [each.result().offset for each in asked] == list(range(7))
    assert values(world) == [b"%d" % i for i in range(7)]
    assert counts == [7, 3, 1, 2, 4, 2, 2]
    sequences = [each.span[0] for each in world.broker.logs["t", 0].batches]
    assert sequences == [0, 1, 3, 5]
    assert world.core.metrics.value("batch-split-total", world.now) == 3


def test_a_record_that_is_too_large_by_itself_fails_alone() -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: (
        MessageTooLarge.code if any(r.value == b"bad" for r in batch.records()) else 0
    )
    producer = producer_in(world, batch_size=10_000)
    asked = [ask(producer, world, value) for value in (b"1", b"2", b"bad", b"3", b"4")]
    world.call(producer.start_flush)
    assert [type(each.error) for each in asked] == [type(None), type(None), MessageTooLarge, type(None), type(None)]
    assert values(world) == [b"1", b"2", b"3", b"4"]


def test_the_broker_names_the_guilty_record_and_the_others_hear_whose_fault_it_was() -> None:
    world = World(broker := Answering({"t": 1}))
    world.broker.refuse = lambda place, batch: InvalidRecord.code
    guilty = (BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key in a compacted topic"),)
    broker.alter = lambda result: PartitionProduceResponse(
        index=result.index, error_code=result.error_code, base_offset=-1, record_errors=guilty
    )
    producer = producer_in(world)
    asked = [ask(producer, world, b"%d" % i) for i in range(3)]
    world.call(producer.start_flush)
    assert "no key in a compacted topic" in str(asked[1].error)
    for each in (asked[0], asked[2]):
        assert "another record of its batch is invalid" in str(each.error)
        assert "record 1: no key in a compacted topic" in str(each.error)
    for value in (b"4", b"5"):
        producer.append(PendingRecord("t", value, None, 0, (), 1000), world.now)  # no call waits for these
    world.call(producer.start_flush)
    with pytest.raises(DeliveryFailed) as raised:
        producer.raise_failures()
    assert "no key in a compacted topic" in str(raised.value) and "another record of its batch" not in str(raised.value)


@pytest.mark.parametrize("error", [UnknownProducerId, InvalidProducerEpoch])
def test_a_broker_that_forgot_the_producer_costs_an_epoch_and_nothing_else(error: type[BrokerError]) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    world.broker.refuse = lambda place, batch: error.code if batch.producer_epoch == 0 else 0
    asked = [ask(producer, world, b"%d" % i) for i in range(1, 8)]
    world.call(producer.start_flush)
    assert not any(each.error for each in asked)
    assert values(world) == [b"%d" % i for i in range(8)]
    assert sum(isinstance(message, InitProducerIdRequest) for _, message in world.broker.requests) == 1


def test_numbers_of_a_refused_batch_are_not_used_again_while_something_sent_behind_it_is_on_its_way() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    world.broker.refuse = lambda place, batch: TopicAuthorizationFailed.code if batch.records()[0].value == b"no" else 0
    refused, behind = ask(producer, world, b"no"), ask(producer, world, b"1")
    world.call(producer.start_flush)
    assert isinstance(refused.error, TopicAuthorizationFailed) and behind.error is None
    last = parse_batch(world.broker.logs["t", 0].batches[-1].data)
    assert (last.producer_epoch, last.base_sequence) == (1, 0)
    world.run(refused := ask(producer, world, b"no"))
    world.run(ask(producer, world, b"2"))
    last = parse_batch(world.broker.logs["t", 0].batches[-1].data)
    assert (last.producer_epoch, last.base_sequence) == (1, 1)  # no later batch was in flight, so the epoch stays


# -- answers after which a batch may be stored -------------------------------------------------------------------------

IN_DOUBT = [*STORED_ALL_THE_SAME, UnknownServerError]


def appends_and_says(world: World, error: type[BrokerError], value: bytes, times: float = 1) -> None:
    """Let the leader append the record ``value`` and answer with ``error``, so many times."""
    left = [times]

    def refuse(place: Place, batch: RecordBatch) -> int:
        if batch.records()[0].value != value or left[0] <= 0:
            return 0
        left[0] -= 1
        return world.broker.logs[place].produce(batch.data) or error.code

    world.broker.refuse = refuse


@pytest.mark.parametrize("error", IN_DOUBT)
def test_a_number_that_may_be_in_the_log_is_not_given_to_another_record(error: type[BrokerError]) -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=3.0))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    appends_and_says(world, error, b"A", times=math.inf)
    world.run(lost := ask(producer, world, b"A"))
    assert lost.error is not None
    world.run(other := ask(producer, world, b"B"))
    assert other.error is None and values(world) == [b"0", b"A", b"B"]
    assert other.result().offset == 2


@pytest.mark.parametrize("error", STORED_ALL_THE_SAME)
def test_a_batch_that_may_be_in_the_log_keeps_its_number_when_another_partition_begins_an_epoch(
    error: type[BrokerError],
) -> None:
    world = World(ModelBroker({"t": 2}), options=Options(retry_backoff=1.0, retry_backoff_max=10.0))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0", 0))
    world.run(ask(producer, world, b"1", 1))
    appends_and_says(world, error, b"A", times=3)
    asked = ask(producer, world, b"A", 0)
    world.run(3.7)  # the fourth attempt follows two seconds later, after the other partition's second
    world.broker.refuse = lambda place, batch: UnknownProducerId.code if place[1] and not batch.producer_epoch else 0
    world.run(ask(producer, world, b"X", 1))
    assert parse_batch(world.broker.logs["t", 1].batches[-1].data).producer_epoch == 1 and not asked.done
    world.run(asked)
    assert values(world) == [b"0", b"A"] and asked.result().offset == 1


def test_what_was_in_doubt_once_stays_so_when_a_later_attempt_is_refused() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=20.0))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    for error in (TopicAuthorizationFailed, NotEnoughReplicas):  # the first fails at once, the second at the deadline
        appends_and_says(world, NotLeaderOrFollower, b"A")
        refused = ask(producer, world, b"A")
        world.run(0.05)
        world.broker.refuse = lambda place, batch: error.code  # noqa: B023 # used up before the next iteration
        world.run(refused)
        assert refused.error is not None
        world.broker.refuse = lambda place, batch: 0
        world.run(other := ask(producer, world, b"B"))
        assert other.error is None
    assert "may or may not be stored" in str(refused.error)
    assert values(world) == [b"0", b"A", b"B", b"A", b"B"]


@pytest.mark.parametrize("error", [NotEnoughReplicas, CorruptMessage])
def test_records_that_were_never_appended_cost_no_epoch(error: type[BrokerError]) -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0, request_timeout=1.0))
    producer = producer_in(world, batch_size=1, linger=0)
    world.run(ask(producer, world, b"0"))
    world.broker.refuse = lambda place, batch: error.code
    world.run(refused := ask(producer, world, b"1"))
    assert "and are not stored" in str(refused.error)
    world.broker.refuse = lambda place, batch: 0
    world.run(ask(producer, world, b"2"))
    last = parse_batch(world.broker.logs["t", 0].batches[-1].data)
    assert (last.producer_epoch, last.base_sequence) == (0, 1)


# -- partitions that refuse every batch --------------------------------------------------------------------------------


def takes_nothing(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        each.__dict__ for each in caplog.records if each.message.startswith("partition accepts no records, retrying")
    ]


def recreated(broker: Recreating, partitions: int) -> None:
    broker.cluster.recreate("t", partitions)
    broker.topic_id = uuid.UUID(int=broker.topic_id.int + 1)


def test_records_for_a_partition_that_a_recreated_topic_lacks_are_given_up_by_name() -> None:
    world = World(broker := Recreating({"t": 3}))
    broker.topic_id = uuid.UUID(int=1)
    producer = producer_in(world, linger=0)
    for partition in range(3):
        world.run(ask(producer, world, b"old", partition))
    recreated(broker, 2)
    began = world.now
    kept, lost = (ask(producer, world, b"new", partition) for partition in (1, 2))
    world.run(kept)
    world.run(lost)
    assert kept.error is None and isinstance(lost.error, UnknownTopicOrPartition)
    assert "'t' has partitions 0 to 1, not 2: it was recreated with fewer" in str(lost.error)
    assert 5.0 <= world.now - began < 10.0
    world.run(refused := ask(producer, world, b"later", 2))
    assert isinstance(refused.error, UnknownTopicOrPartition) and "partitions 0 to 1, not 2" in str(refused.error)
    recreated(broker, 3)
    world.core.metadata.refresh(world.now)
    world.run(1.0)
    world.run(back := ask(producer, world, b"back", 2))
    assert back.error is None and values(world, ("t", 2)) == [b"back"]


def test_records_wait_for_a_partition_that_a_broker_does_not_know_yet() -> None:
    world = World(ModelBroker({"t": 3}))
    producer = producer_in(world, linger=0)
    world.run(ask(producer, world, b"0", 2))
    place = ("t", 2)
    leads = world.broker.cluster.nodes[1].leaders.pop(place)
    asked = ask(producer, world, b"1", 2)
    world.run(30.0)
    assert not asked.done
    world.broker.cluster.nodes[1].leaders[place] = leads
    world.run(asked)
    assert values(world, place) == [b"0", b"1"]


def test_a_partition_that_takes_nothing_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ModelBroker({"t": 3}))
    producer = producer_in(world, linger=0)
    world.broker.refuse = lambda place, batch: NotEnoughReplicas.code if place[1] else 0
    for partition in range(3):
        ask(producer, world, b"0", partition)
        ask(producer, world, b"1", partition)
    world.run(29.0)
    assert not takes_nothing(caplog)
    world.run(40.0)
    first, second = takes_nothing(caplog)
    assert (first["topic"], first["partition_count"], first["records"]) == ("t", 2, 4)
    assert first["seconds"] in range(30, 42) and second["seconds"] in range(60, 72)
    assert "NOT_ENOUGH_REPLICAS" in first["why"]


def test_of_records_that_linger_or_come_late_or_have_others_before_them_nothing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(ModelBroker({"t": 2}))
    lingering = producer_in(world, linger=50.0, batch_size=100_000)
    ask(lingering, world, b"0", 1)
    world.run(45.0)
    producer = producer_in(world, linger=0, batch_size=1, idempotent=False)
    codes = itertools.cycle((NotEnoughReplicas.code, NotEnoughReplicas.code, 0))
    world.broker.refuse = lambda place, batch: 0 if place[1] else next(codes)
    for number in range(400):
        ask(producer, world, b"%d" % number)
    world.run(60.0)
    assert len(values(world)) > 100 and any(producer.explain(world.now))
    world.now += 300.0  # as if the machine had slept
    world.run(1.0)
    assert not takes_nothing(caplog)


def test_a_partition_without_a_leader_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ModelBroker({"t": 2}))
    producer = producer_in(world, linger=0)
    world.run(ask(producer, world, b"0", 1))
    world.broker.cluster.lead(("t", 1), -1)
    world.core.metadata.refresh(world.now)
    world.run(1.0)
    ask(producer, world, b"1", 1)
    world.run(45.0)
    [line] = takes_nothing(caplog)
    assert (line["partition"], line["records"]) == (1, 1) and "no leader" in line["why"]


def test_of_a_broker_that_is_away_only_the_client_tells(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, linger=0)
    world.run(ask(producer, world, b"0"))
    gone(world)
    ask(producer, world, b"1")
    world.run(60.0)
    assert not takes_nothing(caplog)


# -- deadlines ---------------------------------------------------------------------------------------------------------


def gone(world: World, *kinds: int) -> None:
    """Let the broker never answer requests of these kinds, or any request if there are none."""
    handle = world.broker.handle
    world.broker.handle = (  # type: ignore[method-assign] # a broker that hangs
        lambda node, frame: None if not kinds or int.from_bytes(frame[:2], "big") in kinds else handle(node, frame)
    )


def test_each_record_of_an_unknown_topic_has_a_deadline_of_its_own() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0))
    gone(world)
    producer = producer_in(world)
    first = ask(producer, world, b"1")
    world.run(2.0)
    second = ask(producer, world, b"2")
    world.run(first)
    assert world.now == pytest.approx(5.0) and not second.done
    world.run(second)
    assert world.now == pytest.approx(7.0)
    assert isinstance(second.error, DeliveryTimeout) and "which is unknown" in str(second.error)
    assert "waited 5 s" in str(second.error) and "no broker answered within 5 s" in str(second.error)


def test_a_topic_that_cannot_be_asked_for_is_asked_for_again_until_the_deadline() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=100.0, api_timeout=5.0, request_timeout=3.0))
    handle = world.broker.handle
    world.broker.handle = (  # type: ignore[method-assign] # a broker that hangs
        lambda node, frame: None if world.now < 20 else handle(node, frame)
    )
    producer = producer_in(world)
    world.run(asked := ask(producer, world, b"1"))
    assert asked.error is None and 20 < world.now < 40


def test_another_broker_is_asked_for_a_producer_id_where_the_first_does_not_answer() -> None:
    world = World(ModelBroker({"t": 1}, nodes=3))
    handle, asked = world.broker.handle, list[int]()

    def hung(node: int, frame: bytes) -> bytes | None:
        if frame[:2] == b"\0\x16":
            asked.append(node)
        return None if asked and node == asked[0] and frame[:2] == b"\0\x16" else handle(node, frame)

    world.broker.handle = hung  # type: ignore[method-assign] # the first node to get the request hangs
    producer = producer_in(world)
    stored = ask(producer, world, b"1")
    world.run(stored)
    assert stored.error is None and len(set(asked)) == 2
    assert isinstance(producer._sender.identity, ProducerIdentity)
    assert 3.0 <= world.now < 3.1 and not producer._sender.identity._asked
    world.run(10.0)
    assert len(asked) == 2, "no other node gets the request"


@pytest.mark.parametrize("hangs", [True, False])
def test_a_producer_id_is_asked_for_again_where_brokers_refuse_it_or_hang(hangs: bool) -> None:
    world = World(ModelBroker({"t": 1}, nodes=2))
    answer, asked = world.broker._answer, list[int]()

    def refusing(node: int, message: Any) -> Any:
        if not isinstance(message, InitProducerIdRequest):
            return answer(node, message)
        asked.append(node)
        if hangs and node == asked[0]:
            return None
        code = CoordinatorLoadInProgress.code if world.now < 20 else 0
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0)

    world.broker._answer = refusing  # type: ignore[method-assign] # a cluster with problems
    producer = producer_in(world)
    stored = ask(producer, world, b"1")
    world.run(10.0)
    assert len(asked) == 4 if hangs else len(asked) > 10
    [line] = producer.explain(world.now)
    assert "no broker has given a producer id" in line and ("no answer yet" in line or "COORDINATOR_LOAD" in line)
    world.run(stored)
    assert stored.error is None and 20 < world.now < 31


def test_nobody_to_give_a_producer_id_is_told_at_the_deadline() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0, request_timeout=2.0))
    gone(world, 22)
    producer = producer_in(world)
    world.run(asked := ask(producer, world, b"1"))
    assert world.now == pytest.approx(5.0, abs=0.1)
    assert "no broker has given a producer id" in str(asked.error) and "and are not stored" in str(asked.error)


def test_a_request_without_an_answer_ends_at_the_delivery_deadline_and_so_does_a_flush() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0, request_timeout=30.0))
    producer = producer_in(world)
    gone(world, 0)
    asked, flush = ask(producer, world, b"1"), producer.start_flush(world.now)
    world.run(flush)
    assert world.now == pytest.approx(5.0, abs=0.1)
    assert asked.done and "t-0" in str(asked.error) and "may or may not be stored" in str(asked.error)
    assert "leader is node 1 at n1:9001, sent, no response yet" in str(asked.error)


def test_only_what_was_given_to_a_connection_is_called_sent() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, linger=0)
    gone(world, 0)
    ask(producer, world, b"1")
    world.run(2.0)
    [line] = producer.explain(world.now)
    assert "1 attempt(s) in 2.0 s" in line and "sent, no response yet" in line
    [batch] = producer._sender.queues.partitions["t", 0].batches
    assert batch.request
    batch.request.exchange = Exchange(ProduceRequest, ignored, 30.0)  # as if the node were not connected
    [line] = producer.explain(world.now)
    assert "not sent yet, the request waits for its connection" in line


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("end", ["the deadline", "the end of the producer"])
def test_what_was_reported_as_failed_is_not_sent_once_the_connection_is_there(end: str, acks: int) -> None:
    world = World(ModelBroker({"t": 2}), options=Options(delivery_timeout=3.0, request_timeout=30.0))
    world.call(lambda now: world.core.metadata.topic("t", now))
    dialing: list[tuple[Key, Link]] = []
    connected = world.connected
    world.connected = lambda key, link: (  # type: ignore[method-assign] # slow to connect
        dialing.append((key, link)) if key[1].startswith(PRODUCE) else connected(key, link)
    )
    producer = producer_in(world, acks=acks, linger=9.0)
    failed = ask(producer, world, b"1", 0)
    world.run(0.4)
    stored = ask(producer, world, b"2", 1)
    producer.start_flush(world.now)
    if end == "the deadline":
        world.run(failed)
        assert "and are not stored: 1 attempt(s) in 3.0 s" in str(failed.error)
        assert "not sent yet, the request waits for its connection" in str(failed.error)
        [left] = producer._sender.queues.partitions["t", 1].batches
        assert producer._room.used == left.charged, "the other batch still waits in the same request"
    else:
        producer.close(Closed("the producer is closed"))
        world.run(failed)
        assert isinstance(failed.error, Closed)
    for key, link in dialing:  # with acks=0 the producer had a connection of its own
        connected(key, link)
    world.run(0.2)
    if end == "the deadline":
        again = ask(producer, world, b"3", 0)
        world.call(producer.start_flush)
        world.run(0.1)  # with acks=0, until the record arrives
        assert stored.error is None and again.error is None
        assert values(world) == [b"3"] and values(world, ("t", 1)) == [b"2"]
    assert b"1" not in values(world) and producer._sender.queues.node(1).in_flight == 0


@pytest.mark.parametrize("linger", [0, 0.005, 3.0])
def test_a_record_that_comes_while_a_batch_cannot_be_sent_has_its_own_time(linger: float) -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=20.0))
    world.call(lambda now: world.core.metadata.topic("t", now))
    producer = producer_in(world, linger=linger, batch_size=10_000)
    world.run(ask(producer, world, b"0"))
    world.broker.cluster.lead(("t", 0), -1)
    world.core.metadata.refresh(world.now)
    world.run(0.1)
    failed: dict[float, float] = {}
    for _ in range(80):
        sent = world.now

        def told(result: Receipt | OttlaError, sent: float = sent) -> None:
            assert isinstance(result, DeliveryTimeout)
            failed[sent] = world.now - sent

        if not producer.appends.append("t", b"1", None, 1000, told):
            producer.append(PendingRecord("t", b"1", None, 0, (), 1000, callback=told), world.now)
        world.run(0.25)
    batches = len(producer._sender.queues.partitions["t", 0].batches)
    world.call(producer.start_flush)
    assert len(failed) == 80 and 20.0 - linger - 1.6 <= min(failed.values()) <= max(failed.values()) <= 20.1
    assert batches < 25  # the records still share batches where possible


def test_records_that_waited_for_their_topic_have_each_their_own_time_for_the_rest() -> None:
    world = World(broker := ModelBroker({"t": 1}), options=Options(delivery_timeout=20.0, connect_timeout=2.0))
    handle = broker.handle
    broker.cluster.lead(("t", 0), -1)
    broker.handle = lambda node, frame: None if world.now < 11 else handle(node, frame)  # type: ignore[method-assign] # starts late
    producer = producer_in(world)
    first = ask(producer, world, b"1")
    world.run(10.0)
    second = ask(producer, world, b"2")
    world.run(first)
    assert world.now == pytest.approx(20.0, abs=0.1) and "no leader" in str(first.error) and not second.done
    world.run(second)
    assert world.now == pytest.approx(30.0, abs=0.1) and "no leader" in str(second.error)


def test_a_producer_may_have_a_delivery_timeout_of_its_own() -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: NotLeaderOrFollower.code
    producer = producer_in(world, delivery_timeout=3.0)
    world.run(asked := ask(producer, world, b"1"))
    assert world.now == pytest.approx(3.0, abs=0.1) and "within 3 s" in str(asked.error)


# -- buffer space ------------------------------------------------------------------------------------------------------


def test_room_is_given_in_the_order_of_asking_and_nobody_overtakes() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, buffer_memory=1000)
    order: list[str] = []
    assert offer(producer, world, 800).done
    waiting = {name: offer(producer, world, size) for name, size in (("large", 900), ("small", 10), ("tiny", 1))}
    for name, each in waiting.items():
        each.when_done(partial(order.append, name))
    with pytest.raises(BufferFull, match=r"and 3 record\(s\) wait for space"):
        producer.append(PendingRecord("t", b"", None, 0, (), 1000), world.now)
    assert not producer.appends.append("t", b"", None, 1000)
    world.run(waiting["tiny"])
    assert order == ["large", "small", "tiny"]
    world.call(producer.start_flush)
    assert producer.appends.free == 1000


def test_who_gives_up_waiting_lets_the_next_one_pass() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, buffer_memory=3100, linger=60.0, batch_size=2000)
    assert offer(producer, world, 600).done
    large, small = offer(producer, world, 900), offer(producer, world, 10)
    world.core.poll(world.now)
    assert not small.done
    large.cancel()
    world.core.poll(world.now)
    assert small.done and not small.error and isinstance(large.error, Abandoned)
    assert producer.pending == 2


def test_waiting_for_room_ends_at_the_delivery_deadline() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0))
    gone(world)
    producer = producer_in(world, buffer_memory=1000)
    offer(producer, world, 800)
    world.run(4.0)
    late = offer(producer, world, 900)
    later = offer(producer, world, 900)
    world.run(late)
    assert late.error is None and world.now == pytest.approx(5.0, abs=0.1)  # the first failed and freed its space
    world.run(later)
    assert world.now == pytest.approx(9.0, abs=0.1)
    assert isinstance(later.error, DeliveryTimeout) and "1252 of 1000 bytes of buffer_memory" in str(later.error)


# -- other contents of responses ---------------------------------------------------------------------------------------


def test_a_new_leader_that_comes_with_the_error_is_used_at_once() -> None:
    world = World(broker := Answering({"t": 1}, 2))
    broker.versions[0] = (3, 12)
    producer = producer_in(world, linger=0)
    world.run(ask(producer, world, b"0"))
    broker.cluster.lead(("t", 0), 2)
    gone(world, 3)  # metadata requests get no more answers
    before = world.now
    world.run(asked := ask(producer, world, b"1"))
    assert asked.error is None and world.now - before < 0.05


def test_a_node_that_throttles_is_left_alone_for_as_long() -> None:
    world = World(broker := Answering({"t": 1}))
    producer = producer_in(world, linger=0, batch_size=1)
    world.run(ask(producer, world, b"0"))
    throttles = iter([2000])
    broker.around = lambda answer: ProduceResponse(responses=answer.responses, throttle_time_ms=next(throttles, 0))
    world.run(ask(producer, world, b"1"))
    before = world.now
    asked = ask(producer, world, b"2")
    assert any("throttles" in line for line in producer.explain(world.now))
    world.run(asked)
    assert world.now - before == pytest.approx(2.0, abs=0.05)


def test_a_node_that_throttles_one_producer_of_a_client_keeps_another_no_longer() -> None:
    world = World(broker := Answering({"t": 1}))
    throttled, other = (producer_in(world, linger=0, batch_size=1) for _ in range(2))
    world.run(ask(throttled, world, b"0"))
    world.run(ask(other, world, b"1"))
    throttles = iter([2000])
    broker.around = lambda answer: ProduceResponse(responses=answer.responses, throttle_time_ms=next(throttles, 0))
    world.run(ask(throttled, world, b"2"))
    before = world.now
    world.run(asked := ask(other, world, b"3"))
    assert asked.error is None and world.now - before == pytest.approx(2.0, abs=0.05)


def test_a_pause_that_another_producer_makes_longer_is_waited_for() -> None:
    world = World(broker := Answering({"t": 2}))
    first, other = (producer_in(world, linger=0, batch_size=1) for _ in range(2))
    for each in (first, other):
        world.run(ask(each, world, b"0"))
    throttles = iter([1000, 3000])
    broker.around = lambda answer: ProduceResponse(responses=answer.responses, throttle_time_ms=next(throttles, 0))
    both = [ask(first, world, b"1"), ask(first, world, b"2")]
    world.run(lambda: any(each.done for each in both))
    before = world.now
    world.run(asked := ask(other, world, b"3"))
    assert asked.error is None and world.now - before == pytest.approx(3.0, abs=0.05)


def test_a_shorter_throttle_does_not_end_a_longer_one() -> None:
    world = World(broker := Answering({"t": 2}))
    producer = producer_in(world, linger=0, batch_size=1)
    world.run(ask(producer, world, b"0"))
    throttles = iter([2000, 100])
    broker.around = lambda answer: ProduceResponse(responses=answer.responses, throttle_time_ms=next(throttles, 0))
    both = [ask(producer, world, b"1"), ask(producer, world, b"2")]
    world.run(lambda: all(each.done for each in both))
    assert any("throttles, for another 2.0 s" in line for line in producer.explain(world.now))
    before = world.now
    world.run(ask(producer, world, b"3"))
    assert world.now - before == pytest.approx(2.0, abs=0.05)


def test_a_broker_that_has_held_its_answer_back_already_is_not_left_alone() -> None:
    world = World(broker := Answering({"t": 1}))
    broker.cluster.release = {0: (3, 5), 3: (1, 5), 18: (0, 1), 22: (0, 0)}  # before Kafka 2.0
    producer = producer_in(world, linger=0, batch_size=1)
    broker.around = lambda answer: ProduceResponse(responses=answer.responses, throttle_time_ms=2000)
    world.run(ask(producer, world, b"1"))
    world.run(ask(producer, world, b"2"))
    assert world.now < 0.1 and world.core.metrics.value("produce-throttle-time-max", world.now) == 2000.0


class Old(ModelBroker):
    """Kafka 0.10: no producer ids, no record batches."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.cluster.release = {0: (0, 2), 3: (0, 1), 18: (0, 0)}
        self.sets: list[Message] = []

    def _answer(self, node: int, message: Any) -> Any:
        if not isinstance(message, ProduceRequest):
            return super()._answer(node, message)
        for topic in message.topic_data:
            for data in topic.partition_data:
                for each in read_record_set(data.records or b""):
                    assert isinstance(each, Message) and each.magic == 1
                    self.sets += each.unwrapped() if each.compression else [each]
        results = (PartitionProduceResponse(index=0, error_code=0, base_offset=0),)
        return ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=results),))


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_an_old_broker_gets_message_sets_and_the_log_says_what_is_lost(
    compression: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(broker := Old({"t": 1}))
    producer = producer_in(world, compression=compression)
    for value in (b"1", b"2", None):
        asked = ask(producer, world, value)
    world.run(asked)
    assert asked.error is None
    assert [each.value for each in broker.sets] == [b"1", b"2", None]
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1 and "no idempotence" in warnings[0].getMessage() and "n1:9001" in warnings[0].getMessage()


def test_an_old_broker_is_refused_by_name_where_idempotence_was_asked_for() -> None:
    world = World(Old({"t": 1}))
    producer = producer_in(world, idempotent=True)
    world.run(asked := ask(producer, world, b"1"))
    assert isinstance(asked.error, UnsupportedVersion)
    assert "idempotence was requested" in str(asked.error) and "n1:9001" in str(asked.error)


def test_what_message_sets_cannot_hold_fails_alone() -> None:
    world = World(broker := Old({"t": 1}))
    producer = producer_in(world, batch_size=1)
    outcome: Outcome[Receipt] = Outcome()
    producer.append(PendingRecord("t", b"", None, 0, (("name", b""),), 1000, outcome.settle), world.now)
    fine = ask(producer, world, b"1")
    world.call(producer.start_flush)
    assert isinstance(outcome.error, EncodeError) and "headers" in str(outcome.error)
    assert fine.error is None and len(broker.sets) == 1


# -- partitions of keyless records -------------------------------------------------------------------------------------


def test_keyless_records_move_away_from_a_partition_that_is_slow() -> None:
    world = World(ModelBroker({"t": 2}))
    world.call(lambda now: world.core.metadata.topic("t", now))
    slow = [0]
    world.broker.refuse = lambda place, batch: NotLeaderOrFollower.code if place[1] in slow else 0
    producer = producer_in(world, batch_size=150)
    for _ in range(200):
        ask(producer, world, bytes(10), None)
        world.run(0.02)
    slow.clear()
    world.call(producer.start_flush)
    counts = [len(values(world, ("t", index))) for index in (0, 1)]
    assert sum(counts) == 200 and counts[1] > 3 * counts[0]


def test_keyless_records_avoid_partitions_without_a_leader() -> None:
    world = World(ModelBroker({"t": 3}))
    world.broker.cluster.lead(("t", 1), -1)
    world.call(lambda now: world.core.metadata.topic("t", now))
    producer = producer_in(world, batch_size=50)
    for _ in range(50):
        ask(producer, world, b"", None)
    world.call(producer.start_flush)
    assert not values(world, ("t", 1)) and values(world, ("t", 0)) and values(world, ("t", 2))


def test_a_partitioner_of_ones_own_sees_the_record_the_partitions_and_what_waits() -> None:
    seen: list[Choice] = []

    class Mine:
        def choose(self, choice: Choice) -> int:
            seen.append(choice)
            return min(choice.partitions, key=choice.queued)

    world = World(ModelBroker({"t": 3}))
    world.call(lambda now: world.core.metadata.topic("t", now))
    producer = producer_in(world, partitioner=Mine(), batch_size=10_000)
    asked: list[Outcome[Receipt]] = []
    for size in (300, 10, 10, 10):
        record = PendingRecord("t", bytes(size), None, None, (), 1000, (outcome := Outcome[Receipt]()).settle)
        producer.placing.choose(record)
        producer.append(record, world.now)
        asked.append(outcome)
    world.call(producer.start_flush)
    assert [each.result().partition for each in asked] == [0, 1, 2, 1]
    assert (seen[0].topic, seen[0].value, list(seen[0].partitions), list(seen[0].led)) == (
        "t",
        bytes(300),
        [0, 1, 2],
        [0, 1, 2],
    )


def test_a_partitioner_that_raises_refuses_the_record_and_harms_nobody() -> None:
    def broken(key: bytes, partitions: int) -> int:
        raise ZeroDivisionError("mine")

    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, partitioner=broken)
    outcome: Outcome[Receipt] = Outcome()
    producer.append(PendingRecord("t", b"", b"k", None, (), 1000, outcome.settle), world.now)
    world.run(outcome)  # the topic was unknown, so the partitioner runs later
    assert isinstance(outcome.error, EncodeError) and "ZeroDivisionError('mine')" in str(outcome.error)
    record = PendingRecord("t", b"", b"k", None, (), 1000)
    producer.placing.choose(record)
    with pytest.raises(EncodeError, match="the partitioner raised"):
        producer.append(record, world.now)
    world.run(ask(producer, world, b"fine"))


def test_keys_are_placed_again_when_the_topic_grows() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, partitioner=lambda key, partitions: partitions - 1)
    world.run(ask(producer, world, b"0"))
    ask(producer, world, b"1")
    assert producer.appends.append("t", b"2", b"k", 1000)
    world.call(producer.start_flush)
    world.broker.cluster.grow("t", 1)
    world.call(lambda now: world.core.metadata.topic("t", now, fresh=True))
    assert not producer.appends.append("t", b"3", b"k", 1000)
    producer.append(PendingRecord("t", b"3", b"k", None, (), 1000), world.now)
    world.call(producer.start_flush)
    assert (values(world), values(world, ("t", 1))) == ([b"0", b"1", b"2"], [b"3"])


def test_metadata_are_asked_for_ever_less_often_while_a_partition_has_no_leader() -> None:
    world = World(broker := ModelBroker({"t": 2}))
    producer = producer_in(world, linger=0)
    world.run(ask(producer, world, b"0"))
    broker.cluster.lead(("t", 0), -1)
    world.core.metadata.refresh(world.now)
    world.run(0.1)
    before, asked = len(broker.requests), ask(producer, world, b"1")
    world.run(30.0)
    for _ in range(20):  # other records cause no more metadata requests
        world.run(ask(producer, world, b"", 1))
    count = sum(isinstance(message, MetadataRequest) for _, message in broker.requests[before:])
    assert 25 <= count <= 45
    broker.cluster.lead(("t", 0), 1)
    found = world.now
    world.run(asked)
    assert asked.error is None and world.now - found < 1.3
    broker.cluster.lead(("t", 0), -1)
    world.core.metadata.refresh(world.now)
    world.run(0.1)
    before, asked = len(broker.requests), ask(producer, world, b"2")
    world.run(0.15)
    broker.cluster.lead(("t", 0), 1)
    found = world.now
    world.run(asked)  # for a new problem, the requests begin at short intervals again
    assert world.now - found < 0.3


def test_a_topic_that_nothing_is_sent_to_is_forgotten_and_may_come_again() -> None:
    world = World(broker := ModelBroker({"t": 2, "u": 1}))
    producer = producer_in(world, linger=0, batch_size=1)
    told: list[Any] = []

    def one_for_u(value: bytes) -> None:
        producer.append(PendingRecord("u", value, None, 0, (), 1000, callback=told.append), world.now)

    one_for_u(b"0")
    one_for_u(b"1")
    world.run(ask(producer, world, b"0"))
    for i in range(1, 80):
        world.run(10.0)
        world.run(ask(producer, world, b"%d" % i))
        world.core.metadata.refresh(world.now)
        if i == 28:
            assert ("u", 0) in producer._sender.queues.partitions
    assert (
        {place[0] for place in producer._sender.queues.partitions}
        == {"t"}
        == {*producer._accumulator.holds}
        == {*producer._accumulator._used}
        == {*producer._sender._metrics._meters}
    )
    assert math.isnan(world.core.metrics.value("record-send-total", world.now, topic="u"))
    told_of = [message.topics for _, message in broker.requests if isinstance(message, MetadataRequest)]
    asked = [{each.name for each in topics or ()} for topics in told_of]
    assert {"t", "u"} in asked and asked[-1] == {"t"}
    one_for_u(b"2")  # the same sequences as of the first batch, which the broker still knows
    one_for_u(b"3")
    world.call(producer.start_flush)
    assert [each.offset for each in told] == [0, 1, 2, 3]
    assert values(world, ("u", 0)) == [b"0", b"1", b"2", b"3"]
    last = parse_batch(broker.logs["u", 0].batches[-1].data)
    assert (last.producer_epoch, last.base_sequence) == (1, 1)
    world.run(ask(producer, world, b"80"))
    assert values(world) == [b"%d" % i for i in range(81)]
    assert sum(isinstance(message, InitProducerIdRequest) for _, message in broker.requests) == 1


def test_a_topic_whose_records_still_wait_is_not_forgotten() -> None:
    world = World(broker := ModelBroker({"t": 1}))
    producer = producer_in(world, linger=0, delivery_timeout=2000.0)
    world.run(ask(producer, world, b"0"))
    broker.cluster.lead(("t", 0), -1)
    world.core.metadata.refresh(world.now)
    world.run(0.1)
    asked = ask(producer, world, b"1")
    for _ in range(4):
        world.run(250.0)
    broker.cluster.lead(("t", 0), 1)
    world.run(asked)
    assert asked.error is None and values(world) == [b"0", b"1"]


# -- callbacks and errors of records -----------------------------------------------------------------------------------


def test_the_short_way_and_the_long_way_store_the_same() -> None:
    world = World(ModelBroker({"t": 3}))
    world.call(lambda now: world.core.metadata.topic("t", now))
    producer = producer_in(world, batch_size=1000)
    told: list[Any] = []
    short = 0
    for i in range(300):
        key = (b"k%d" % (i % 7), None)[i % 3 == 0]
        if producer.appends.append("t", b"%d" % i, key, 1000 + i, told.append):
            short += 1
        else:
            producer.append(PendingRecord("t", b"%d" % i, key, None, (), 1000 + i, callback=told.append), world.now)
    world.call(producer.start_flush)
    assert short > 200
    assert sorted(int(v or b"") for place in world.broker.logs for v in values(world, place)) == list(range(300))
    for receipt in told:
        record = world.broker.logs[receipt.topic, receipt.partition].records[receipt.offset]
        assert int(record.value or b"") == receipt.timestamp - 1000 == record.timestamp - 1000
    assert producer.appends.free == producer._options.buffer_memory


@pytest.mark.parametrize(("value", "key"), [(b"v", b""), ("text", b"k"), (b"v", 5)])
def test_what_is_not_plain_takes_the_long_way(value: Any, key: Any) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world)
    world.run(ask(producer, world, b"0"))
    ask(producer, world, b"1")  # opens a batch
    try:
        assert not producer.appends.append("t", value, key, 1000)
    except EncodeError as error:
        assert "'text'.encode()" in str(error)
    world.call(producer.start_flush)
    assert values(world) == [b"0", b"1"]


def test_a_callback_that_raises_is_logged_raised_by_the_next_call_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world)
    told: list[Any] = []

    def callback(result: Any) -> None:
        told.append(result)
        raise KeyError("mine")

    for _ in range(3):
        producer.append(PendingRecord("t", b"", None, 0, (), 1000, callback=callback), world.now)
    world.call(producer.start_flush)
    assert [each.offset for each in told] == [0, 1, 2]
    with pytest.raises(KeyError, match="mine") as caught:
        producer.raise_failures()
    assert "raised by on_delivery" in caught.value.__notes__[0]
    producer.raise_failures()
    assert sum("on_delivery raised" in each.message for each in caplog.records) == 3
    assert len(values(world)) == 3


def test_receipts_say_what_the_broker_said_and_nothing_more() -> None:
    world = World(broker := Answering({"t": 1}))
    broker.alter = lambda result: PartitionProduceResponse(
        index=0, error_code=DuplicateSequenceNumber.code, base_offset=-1, log_append_time_ms=77
    )
    producer = producer_in(world)
    told: list[Any] = []
    for timestamp in (1000, 1001, 1002):
        asks = None if timestamp == 1000 else told.append
        producer.append(PendingRecord("t", b"", None, 0, (), timestamp, callback=asks), world.now)
    world.call(producer.start_flush)
    assert told == [Receipt("t", 0, -1, 77)] * 2
    broker.alter = lambda result: result
    producer.append(PendingRecord("t", b"", None, 0, (), 1003, callback=told.append), world.now)
    world.call(producer.start_flush)
    assert told[2] == Receipt("t", 0, 3, 1003)


def test_who_is_told_of_a_failure_is_not_told_twice() -> None:
    world = World(ModelBroker({"t": 1}))
    world.broker.refuse = lambda place, batch: TopicAuthorizationFailed.code
    producer = producer_in(world)
    told: list[Any] = []
    producer.append(PendingRecord("t", b"", None, 0, (), 1000, callback=told.append), world.now)
    producer.append(PendingRecord("t", b"", None, 0, (), 1000), world.now)
    world.call(producer.start_flush)
    assert [type(each) for each in told] == [TopicAuthorizationFailed]
    with pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):
        producer.raise_failures()


def test_a_callback_may_send_the_next_record() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world)
    left = [5]

    def again(result: Any) -> None:
        left[0] -= 1
        if left[0]:
            producer.append(PendingRecord("t", b"", None, 0, (), 1000, callback=again), world.now)

    producer.append(PendingRecord("t", b"", None, 0, (), 1000, callback=again), world.now)
    world.run(lambda: left[0] == 0)
    assert len(values(world)) == 5


# -- metrics and log lines ---------------------------------------------------------------------------------------------


def test_topics_are_compressed_each_in_its_own_way() -> None:
    world = World(ModelBroker({"t": 1, "u": 1}))
    producer = producer_in(world, compression={"u": ("gzip", 9), "*": "lz4"})
    for topic in ("t", "u"):
        producer.append(PendingRecord(topic, bytes(200), None, 0, (), 1000), world.now)
    world.call(producer.start_flush)
    kinds = {topic: parse_batch(world.broker.logs[topic, 0].batches[0].data).compression for topic in ("t", "u")}
    assert kinds == {"t": Compression.LZ4, "u": Compression.GZIP}
    assert world.core.metrics.value("compression-rate-avg", world.now) < 0.6


def test_metrics_have_kafkas_names_and_count_what_happened() -> None:
    world = World(ModelBroker({"t": 1}))
    codes = iter([NotLeaderOrFollower.code])
    world.broker.refuse = lambda place, batch: (
        TopicAuthorizationFailed.code if batch.records()[0].value == b"no" else next(codes, 0)
    )
    producer = producer_in(world, batch_size=1, buffer_memory=5000)
    for value in (b"1", b"2", b"no"):
        producer.append(PendingRecord("t", value, None, 0, (), 1000), world.now)
    assert world.core.metrics.value("buffer-available-bytes", world.now) < 5000
    world.call(producer.start_flush)
    got = {
        name: world.core.metrics.value(name, world.now)
        for name in ("record-send-total", "record-error-total", "record-retry-total", "buffer-available-bytes")
    }
    assert got["record-send-total"] == 2 and got["record-error-total"] == 1 and got["buffer-available-bytes"] == 5000
    assert got["record-retry-total"] >= 1
    assert world.core.metrics.value("record-queue-time-avg", world.now) >= 0
    assert world.core.metrics.value("batch-size-avg", world.now) > 60
    kind = "producer-metrics"  # fetchers have a metric with this name, too
    assert world.core.metrics.value("records-per-request-max", world.now, type=kind) == 1


def test_producers_of_one_client_are_told_of_together_until_the_last_is_closed() -> None:
    world = World(ModelBroker({"t": 1}))
    world.call(lambda now: world.core.metadata.topic("t", now))
    first, second = (producer_in(world, buffer_memory=memory) for memory in (5000, 50_000))
    names = ("buffer-total-bytes", "buffer-available-bytes", "waiting-threads")

    def told() -> list[float]:
        return [world.core.metrics.value(name, world.now) for name in names]

    assert told() == [55_000, 55_000, 0]
    assert offer(first, world, 868).done and offer(second, world, 68).done
    offer(first, world, 300)
    assert told() == [55_000, 55_000 - 900 - 100 - 2 * BATCH_OVERHEAD, 1]
    world.call(first.start_flush)
    world.call(second.start_flush)
    first.close(Closed("the producer is closed"))
    assert told() == [50_000, 50_000, 0]
    second.close(Closed("the producer is closed"))
    assert all(math.isnan(each) for each in told())


def test_the_meters_of_a_topic_go_with_the_last_producer_that_sends_there() -> None:
    world = World(ModelBroker({"t": 1}))
    first, second = producer_in(world), producer_in(world)
    for producer in (first, second):
        world.run(ask(producer, world, b"1"))
    for producer, sent in ((first, 2), (second, 2)):
        assert world.core.metrics.value("record-send-total", world.now, topic="t") == sent
        producer.close(Closed("the producer is closed"))
    assert math.isnan(world.core.metrics.value("record-send-total", world.now, topic="t"))


def test_a_meter_is_looked_up_once_and_not_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world, linger=0, batch_size=1)
    world.run(ask(producer, world, b"0"))
    monkeypatch.delattr(Metrics, "meter")
    for _ in range(5):
        world.run(ask(producer, world, b"1"))
    assert world.core.metrics.value("record-send-total", world.now, topic="t") == 6


def test_explain_says_which_partition_waits_for_whom_and_what_was_tried() -> None:
    world = World(ModelBroker({"t": 1}))
    producer = producer_in(world)
    assert not list(producer.explain(world.now))
    world.broker.refuse = lambda place, batch: NotEnoughReplicas.code
    ask(producer, world, b"1")
    world.run(3.0)
    [line] = producer.explain(world.now)
    assert "1 record(s) for t-0 wait" in line and "attempt(s) in 3.0 s" in line
    assert "leader is node 1 at n1:9001" in line and "NOT_ENOUGH_REPLICAS" in line
    assert any("t-0" in each for each in world.core.explain(world.now))
