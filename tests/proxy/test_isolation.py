"""A topic in trouble delays only its own records: the proxy passes upstream's refusals on, as Kafka does."""

import pytest

from ottla.codec.records import BatchBuilder
from ottla.errors import (
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.proxy.upstream.stream_sender import BY_ID, IMPLICIT
from tests.proxy.simulated import ANSWERED, CUT_AFTER, Pair, Reply, Upstream, World, batch
from tests.proxy.test_producers_upstream import numbers
from tests.proxy.test_rewriting import key_at, make_known, world_of
from tests.proxy.test_transactions import code, end, opened, produce

FEW = NotEnoughReplicas.code
FEW_AFTER = NotEnoughReplicasAfterAppend.code
LATE = RequestTimedOut.code


@pytest.fixture
def world() -> World:
    return world_of()


def refuse(world: World, *partitions: int, times: int = 1000) -> None:
    """Let partitions refuse all records: too few replicas."""
    for each in partitions:
        world.upstream.errors["flights", each].extend([FEW] * times)


def accept(world: World) -> None:
    world.upstream.errors.clear()


def send(world: World, producer: int, sequence: int, *partitions: int, client: int = 1, epoch: int = 0) -> Reply:
    """Send a record for each of these partitions, in one batch to partition 0."""
    pairs: list[Pair] = [(key_at(each), b"%d" % (sequence + n)) for n, each in enumerate(partitions)]
    return world.produce(client, {("flights", 0): batch(pairs, producer, epoch, sequence)}, timeout_ms=30_000)


def send_again(world: World, producer: int, sequence: int, *partitions: int, epoch: int = 0) -> Reply:
    """Send the records of `send` with other times."""
    builder = BatchBuilder()
    for number, partition in enumerate(partitions, sequence):
        builder.append(1_234_567 + number, key_at(partition), b"%d" % number, (("h", b"1"),) if number % 2 else ())
    data = builder.build(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return world.produce(1, {("flights", 0): data}, timeout_ms=30_000)


def values(world: World) -> list[bytes]:
    return sorted(filter(None, world.upstream.values("flights")))


# -- nothing is stored


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_topic_that_is_refused_holds_up_no_other_topic(world: World, idempotent: bool) -> None:
    producer = world.producer_id(1) if idempotent else -1
    refuse(world, 1)
    assert send(world, producer, 0, 1).code == FEW
    assert world.produce(1, {("plain", 0): batch([(b"k", b"x")])}).code == 0
    accept(world)
    world.settle(10)
    assert not values(world), "a refused batch is not sent before it comes again"
    assert send(world, producer, 0, 1).code == 0
    assert values(world) == [b"0"]


def test_batches_behind_a_refused_one_get_the_same_error_and_come_again_in_order(world: World) -> None:
    producer = world.producer_id(1)
    assert send(world, producer, 0, 1).code == 0
    refuse(world, 1)
    world.slow = True
    replies = [send(world, producer, 1 + n, 1) for n in range(4)]
    world.slow = False
    world.release()
    assert [each.code for each in replies] == [FEW] * 4
    assert send(world, producer, 5, 1).code == FEW, "sent before its client got the answers"
    assert send(world, producer, 5, 2).code == FEW, "although its partition accepts records"
    accept(world)
    assert send(world, producer, 2, 1).code == FEW, "the first has not come again"
    assert [send(world, producer, 1 + n, 1).code for n in range(5)] == [0] * 5
    assert world.upstream.values("flights") == [b"%d" % n for n in range(6)]


def test_the_same_records_keep_their_sequence_upstream_and_others_get_the_next_epoch(world: World) -> None:
    producer = world.producer_id(1)
    assert send(world, producer, 0, 1).code == 0
    refuse(world, 1)
    assert [send(world, producer, 1, 1).code for _ in range(50)] == [FEW] * 50
    first, *refused = [(epoch, sequence) for owner, epoch, sequence in numbers(world) if owner == producer]
    assert set(refused) == {(first[0], 1)}, "or each attempt of a client would use up an epoch"
    accept(world)
    other = batch([(key_at(1), b"other")], producer, 0, 1)
    assert world.produce(1, {("flights", 0): other}).code == 0
    assert numbers(world)[-1] == (producer, first[0] + 1, 0)
    assert world.upstream.values("flights") == [b"0", b"other"]


def test_a_restart_gives_a_refused_sequence_to_no_other_records() -> None:
    world = world_of(journal=True)
    producer = world.producer_id(1)
    assert send(world, producer, 0, 1).code == 0
    refuse(world, 1)
    assert send(world, producer, 1, 1).code == FEW
    epoch = numbers(world)[-1][1]
    accept(world)
    world.restart()
    world.settle(1)
    assert send(world, producer, 1, 1).code == 0
    assert numbers(world)[-1] == (producer, epoch + 1, 0)
    assert values(world) == [b"0", b"1"]


def test_a_partition_without_a_leader_holds_up_no_other_topic(world: World) -> None:
    world.upstream.lead("flights", 1, -1)
    world.core.control.request_topics("flights")
    world.settle(1)
    reply = send(world, -1, 0, 1)
    world.settle(1)
    assert reply.code == LeaderNotAvailable.code
    assert send(world, -1, 0, 1).code == LeaderNotAvailable.code, "at once, because the election takes long"
    assert world.produce(1, {("plain", 0): batch([(b"k", b"x")])}).code == 0


@pytest.mark.parametrize("known_id", [False, True])
def test_a_deleted_topic_is_answered_as_kafka_does(world: World, known_id: bool) -> None:
    if not known_id:
        world.upstream.cluster.release[0] = (0, BY_ID - 1)
    producer = world.producer_id(1)
    assert send(world, producer, 0, 1).code == 0
    world.upstream.hide("flights")
    replies = [send(world, producer, 1 + 2 * n, 1, 2) for n in range(2)]
    world.settle(1)
    assert [each.code for each in replies] == [UnknownTopicOrPartition.code] * 2
    assert world.produce(1, {("plain", 0): batch([(b"k", b"x")])}).code == 0
    world.upstream.show()
    world.core.control.request_topics("flights")
    world.settle(1)
    assert send(world, producer, 1, 1, 2).code == 0


def test_a_topic_that_never_was_delays_others_for_a_second() -> None:
    world = World(Upstream({"plain": 2}), "*=rewrite")
    reply = world.produce(1, {("nowhere", 0): batch([(b"k", b"x")])})
    world.settle(1.5)
    assert reply.code == UnknownTopicOrPartition.code


def test_an_unknown_topic_id_is_passed_on_as_an_unknown_topic(world: World) -> None:
    world.upstream.errors["flights", 1] += [UnknownTopicId.code]
    assert send(world, -1, 0, 1).code == UnknownTopicOrPartition.code, "clients that send names know no ids"


# -- some records are stored, or may be


def test_a_batch_that_is_stored_in_part_is_answered_at_once_and_its_rest_stored_once(world: World) -> None:
    producer = world.producer_id(1)
    refuse(world, 2)
    assert send(world, producer, 0, 1, 2, 3).code == FEW_AFTER
    assert send(world, producer, 0, 1, 2, 3).code == FEW_AFTER
    accept(world)
    assert send(world, producer, 0, 1, 2, 3).code == 0
    assert values(world) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_retry_with_new_timestamps_of_a_batch_that_is_stored_in_part_is_stored_once(restarts: bool) -> None:
    """sarama and kafkajs send such a batch again with new times, under its own sequences."""
    world = world_of(journal=True)
    producer = world.producer_id(1)
    refuse(world, 2)
    assert send(world, producer, 0, 1, 2, 3).code == FEW_AFTER
    accept(world)
    if restarts:
        world.restart()
        make_known(world)
    assert send_again(world, producer, 0, 1, 2, 3).code == 0
    assert values(world) == [b"0", b"1", b"2"]


def test_new_records_that_say_the_same_as_refused_ones_are_stored(world: World) -> None:
    producer = world.producer_id(1)
    refuse(world, 2)
    assert send(world, producer, 0, 1, 2, 3).code == FEW_AFTER
    accept(world)
    assert send_again(world, producer, 0, 1, 2, 3, epoch=1).code == 0
    assert values(world) == [b"0", b"0", b"1", b"2", b"2"], "in another epoch, equal records with other times are new"


def test_a_part_without_enough_replicas_after_the_append_counts_as_stored(world: World) -> None:
    producer = world.producer_id(1)
    world.upstream.fate = lambda request: CUT_AFTER
    world.upstream.errors["flights", 1].extend([FEW_AFTER] * 1000)
    first = send(world, producer, 0, 1)
    world.settle(20)
    assert first.frame is None
    world.settle(10)
    assert first.code == LATE
    world.upstream.fate = lambda request: ANSWERED
    again = send(world, producer, 0, 1)
    accept(world)
    world.settle(2)
    assert again.code == 0
    assert values(world) == [b"0"]


def test_no_request_waits_longer_than_its_client_and_a_retry_joins_its_batch(world: World) -> None:
    producer = world.producer_id(1)
    world.slow = True
    first, second = send(world, producer, 0, 1), send(world, producer, 1, 1)
    world.settle(28)
    assert [first.code, second.code] == [LATE, LATE]
    again = [send(world, producer, n, 1, client=2) for n in range(2)]
    world.slow = False
    world.release()
    world.settle(40)
    assert [each.code for each in again] == [0, 0]
    assert values(world) == [b"0", b"1"]


def test_a_retry_with_new_timestamps_waits_for_its_batch_under_way(world: World) -> None:
    """sarama and kafkajs give the records of a retry new timestamps; a broker compares only sequences, too."""
    producer = world.producer_id(1)
    world.slow = True
    first = world.produce(1, {("flights", 0): batch([(key_at(1), b"0")], producer, 0, 0)})
    builder = BatchBuilder()
    builder.append(1_234_567, key_at(1), b"0", ())
    again = builder.build(producer_id=producer, producer_epoch=0, base_sequence=0)
    retry = world.produce(2, {("flights", 0): again})
    world.slow = False
    world.release()
    assert (first.code, retry.code) == (0, 0) and values(world) == [b"0"]


def test_a_client_without_idempotence_waits_with_a_batch_that_is_stored_in_part(world: World) -> None:
    refuse(world, 2)
    reply = send(world, -1, 0, 1, 2)
    world.settle(20)
    assert reply.frame is None, "or it would send the stored records again"
    world.settle(10)
    assert reply.code == LATE
    accept(world)
    world.settle(10)
    assert values(world) == [b"0"], "its client sends the rest again, and the proxy could not recognise it"


def test_records_with_acks_0_wait_for_the_end_of_the_trouble(world: World) -> None:
    refuse(world, 1)
    world.produce(1, {("flights", 0): batch([(key_at(1), b"0")])}, acks=0, timeout_ms=0)
    world.settle(30)
    accept(world)
    world.settle(2)
    assert values(world) == [b"0"]


# -- transactions


def test_a_transaction_survives_a_batch_that_is_refused_for_now(world: World) -> None:
    producer = opened(world)
    assert produce(world, producer, 0, 1).code == 0
    refuse(world, 1)
    assert produce(world, producer, 1, 1).code == FEW
    accept(world)
    assert produce(world, producer, 1, 1).code == 0
    assert produce(world, producer, 2, 1).code == 0
    assert code(end(world, producer, commit=True)) == 0
    assert values(world) == [b"0", b"1", b"2"]


def test_a_batch_of_a_transaction_that_is_stored_in_part_waits(world: World) -> None:
    producer = opened(world)
    refuse(world, 2)
    reply = produce(world, producer, 0, 1, 2)
    world.settle(20)
    assert reply.frame is None
    accept(world)
    world.settle(2)
    assert reply.code == 0
    assert code(end(world, producer, commit=True)) == 0


@pytest.mark.parametrize("version", [9, IMPLICIT])
def test_a_batch_of_a_transaction_is_not_refused_for_now_if_one_behind_it_is_stored(world: World, version: int) -> None:
    producer = opened(world)
    world.upstream.cluster.transaction_version = 2 if version >= IMPLICIT else 0
    refuse(world, 1)
    world.slow = True
    replies = [produce(world, producer, n, 1 + n, version=version) for n in range(2)]
    world.slow = False
    world.release()
    assert TransactionAbortable.code not in [each.frame and each.code for each in replies]
    accept(world)
    world.settle(2)
    assert [each.code for each in replies] == [0, 0]


def test_who_uses_up_the_epochs_of_a_producer_in_one_topic_does_not_stop_it_in_another() -> None:
    world = World(Upstream({"flights": 6, "others": 6}), "*=rewrite")
    victim = world.producer_id(1)
    last = 2**15 - 1
    hostile = world.produce(9, {("others", 0): batch([(key_at(1), b"x")], victim, last, 0)})
    mine = send(world, victim, 0, 1, 2)
    world.settle(5)
    assert (hostile.code, mine.code) == (ProducerFenced.code, 0)
