"""Producers towards upstream: each has a connection and sequences of its own, and clients without an id get one."""

from collections import Counter
from typing import Any

import pytest
from crc32c import crc32c

from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.compression import Compression
from ottla.codec.frames import build_request
from ottla.codec.records import Record, parse_batch
from ottla.errors import (
    CoordinatorLoadInProgress,
    MessageTooLarge,
    NotEnoughReplicas,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.proxy.clients.opening import checked, max_memory_of
from ottla.proxy.routing import Destination
from ottla.proxy.upstream import connections, delivery, steering
from ottla.proxy.upstream.batches import Part
from ottla.proxy.upstream.connections import IDLE_CONNECTION
from ottla.proxy.upstream.delivery import LIMIT_LASTS, Delivery
from ottla.proxy.upstream.link import CLIENT_ID
from ottla.proxy.upstream.producer_id_requests import AT_ONCE as IDS_AT_ONCE
from ottla.proxy.upstream.steering import Steering
from ottla.proxy.upstream.streams import LAST_EPOCH, Stream
from tests.proxy.simulated import Pair, World, batch
from tests.proxy.test_delivery_defects import Client
from tests.proxy.test_rewriting import key_at, pairs, world_of


def framed_produce(n: int) -> bytes:
    """The frame of a Produce request of a client without a producer id."""
    data = PartitionProduceData(index=0, records=batch([(key_at(0), b"%d" % n)]))
    topics = (TopicProduceData(name="flights", partition_data=(data,)),)
    return build_request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9, 1, "client")[4:]


def numbers(world: World) -> list[tuple[int, int, int]]:
    """Producer id, epoch and first sequence of every batch to a rewritten topic that upstream got."""
    return [
        (found.producer_id, found.producer_epoch, found.base_sequence)
        for _, request in world.upstream.produced
        for topic in request.topic_data
        for each in topic.partition_data
        for found in [parse_batch(each.records or b"")]
    ]


def test_a_clients_own_producer_id_goes_upstream_with_numbers_for_each_destination() -> None:
    world = world_of()
    producer = world.producer_id(1)
    for sequence in range(3):
        data = batch([(key_at(sequence % 2), b"x")], producer, 0, sequence)
        assert world.produce(1, {("flights", 5): data}).code == 0
    assert numbers(world) == [(producer, 1, 0), (producer, 1, 0), (producer, 1, 1)]


def test_a_partition_that_is_slow_delays_only_those_who_send_to_it() -> None:
    world = world_of()
    world.slow = True
    first = world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])})
    world.slow = False
    second = world.produce(2, {("flights", 1): batch([(key_at(1), b"x")])})
    world.settle(1)
    assert first.frame is None
    assert second.code == 0


@pytest.mark.parametrize("idempotent", [False, True])
def test_upstream_gets_records_under_the_client_id_of_their_client(idempotent: bool) -> None:
    world = world_of()
    ids = {1: "shop", 2: "billing", 3: None, 4: "x" * 2000}
    for n, client_id in ids.items():
        own = (world.producer_id(n), 0, 0) if idempotent else (-1, -1, -1)
        data = batch([(key_at(0), b"x")], *own)
        assert world.produce(n, {("flights", 0): data}, client_id=client_id).code == 0
    assert world.upstream.client_ids == ["shop", "billing", None, CLIENT_ID]


def test_a_lent_producer_has_the_client_id_of_its_current_client() -> None:
    world = world_of()
    for n, client_id in enumerate(("shop", "billing")):
        world.produce(n, {("flights", 0): batch([(key_at(0), b"x")])}, client_id=client_id)
        world.leave(n)
    assert world.upstream.client_ids == ["shop", "billing"]
    assert len({producer_id for producer_id, _, _ in numbers(world)}) == 1


def test_clients_that_begin_together_get_their_producer_ids_together() -> None:
    world = world_of()
    world.upstream.bend = lambda request, answer: None if isinstance(request, InitProducerIdRequest) else answer
    replies = [world.produce(n, {("flights", 0): batch([(key_at(0), b"%d" % n)])}) for n in range(IDS_AT_ONCE + 20)]
    assert len(world.upstream.asked(InitProducerIdRequest)) == IDS_AT_ONCE, "before the first answer"
    world.upstream.bend = lambda request, answer: answer
    world.settle(20)
    assert [reply.code for reply in replies] == [0] * (IDS_AT_ONCE + 20)
    assert len({producer_id for producer_id, _, _ in numbers(world)}) == IDS_AT_ONCE + 20


def test_ids_that_upstream_refuses_are_asked_for_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()

    def bend(request: Any, answer: Any) -> Any:
        if isinstance(request, InitProducerIdRequest):
            answer.error_code = CoordinatorLoadInProgress.code
        return answer

    world.upstream.bend = bend
    for n in range(10):
        world.arrive(n, framed_produce(n), 9)
    world.settle()
    assert len(world.upstream.asked(InitProducerIdRequest)) == 10
    assert caplog.text.count("producer id not allocated yet") == 1
    world.settle(1)
    assert 50 < len(world.upstream.asked(InitProducerIdRequest)) <= 110
    world.upstream.bend = lambda request, answer: answer
    world.settle(1)
    assert len(world.upstream.values("flights")) == 10


def test_five_batches_of_an_idempotent_producer_do_not_wait_for_each_other() -> None:
    world = world_of()
    producer = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)}).code == 0
    world.slow = True
    replies = [world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 1 + n)}) for n in range(5)]
    assert len(numbers(world)) == 6
    world.release()
    assert [reply.code for reply in replies] == [0] * 5


def test_a_sixth_batch_for_a_partition_waits() -> None:
    world = world_of()
    producer = world.producer_id(1)
    world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)})
    world.slow = True
    for n in range(6):  # from two partitions, because a client may have only five in flight for one
        place, sequence = divmod(n, 3)
        data = batch([(key_at(0), b"x")], producer, 0, sequence + (1 if place == 0 else 0))
        world.produce(1, {("flights", place): data})
    assert len(numbers(world)) == 6
    world.release()
    assert len(numbers(world)) == 7


def test_behind_a_refused_batch_the_numbers_begin_again_in_another_epoch() -> None:
    world = world_of()
    producer = world.producer_id(1)
    world.upstream.errors["flights", 0] += [TopicAuthorizationFailed.code]
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)}).code == 29
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)}).code == 0
    assert numbers(world) == [(producer, 1, 0), (producer, 2, 0)]


def test_what_is_too_large_for_upstream_goes_in_parts() -> None:
    world = world_of()
    world.upstream.cluster.data.max_message_bytes = 300
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"%d" % n + bytes(50)) for n in range(16)])}).code == 0
    assert [int((value or b"").rstrip(b"\0")) for value in world.upstream.values("flights")] == list(range(16))


def test_what_was_too_large_once_is_not_tried_again() -> None:
    world = world_of()
    world.upstream.cluster.data.max_message_bytes = 300
    sizes = []
    for round_ in range(5):
        tried, before = len(world.upstream.produced), world.now
        reply = world.produce(1, {("flights", 0): batch([(key_at(0), b"%d" % n + bytes(50)) for n in range(16)])})
        assert reply.code == 0, round_
        sizes.append((len(world.upstream.produced) - tried, world.now - before))
    assert sizes[0][0] > sizes[1][0] == sizes[4][0], "from the second batch on, the proxy splits each at once"
    world.settle(LIMIT_LASTS)
    world.upstream.cluster.data.max_message_bytes = 2**20
    tried = len(world.upstream.produced)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), bytes(50)) for _ in range(16)])}).code == 0
    assert len(world.upstream.produced) == tried + 1, "after a rest, the proxy tries whole batches again"


def some_records(stream: Stream, count: int) -> Part:
    """A waiting part of so many records, each of 100 bytes."""
    records = [Record(offset=row, timestamp=0, key=b"k", value=b"v", headers=()) for row in range(count)]
    part = Part(Client(), Destination("flights", 0), records, 100 * count, Compression.NONE, 0.0)
    stream.waiting.append(part)
    return part


def test_a_batch_that_is_too_large_after_a_lost_answer_makes_later_ones_smaller() -> None:
    stream = Stream("flights", 0)
    part = some_records(stream, 5)
    first = stream.next(1000, 10**6, 0.0)
    stream.unanswered(first)
    assert stream.mend() == [] and stream.next(1000, 10**6, 0.0) is first
    assert stream.answered(first, MessageTooLarge.code, -1, None)[0][0] is part, "its outcome is unknown"
    some_records(stream, 4)
    assert stream.next(1000, 10**6, 0.0).count == 2


def test_a_record_that_is_too_large_makes_later_batches_smaller() -> None:
    stream = Stream("flights", 0)
    part = some_records(stream, 1)
    assert stream.answered(stream.next(1000, 10**6, 0.0), MessageTooLarge.code, -1, None)[0][0] is part
    stream.mend()
    some_records(stream, 2)
    assert stream.next(1000, 10**6, 0.0).count == 1


def test_a_batch_of_many_clients_that_is_too_large_does_not_part_those_that_fit() -> None:
    world = world_of()
    world.upstream.cluster.data.max_message_bytes = 700
    producer = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)}).code == 0
    world.slow = True
    for place in range(2):
        records: list[Pair] = [(key_at(0), bytes(100)) for _ in range(4)]
        world.produce(1, {("flights", place): batch(records, producer, 0, 1 - place)})
    world.release()
    world.slow = False
    world.settle(5)
    sent = len(world.upstream.produced)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), bytes(100))] * 4, producer, 0, 5)}).code == 0
    assert len(world.upstream.produced) == sent + 1


def test_one_record_that_is_too_large_is_refused() -> None:
    world = world_of()
    world.upstream.cluster.data.max_message_bytes = 300
    data = batch([(key_at(0), b"a"), (key_at(0), bytes(400)), (key_at(0), b"b")])
    assert world.produce(1, {("flights", 0): data}).code == MessageTooLarge.code


def test_a_topic_that_is_deleted_fences_nobody() -> None:
    world = world_of()
    producer = world.producer_id(1)
    world.upstream.hide("flights")
    reply = world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)})
    world.settle(30)
    assert reply.code == UnknownTopicOrPartition.code
    world.upstream.show()
    world.core.control.request_topics("flights")
    world.settle(1)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)}).code == 0


# -- clients without a producer id


def test_each_client_without_a_producer_id_is_lent_one_for_itself() -> None:
    world = world_of()
    for client in (1, 2, 1, 2):
        assert world.produce(client, {("flights", 0): batch([(key_at(0), b"x")])}).code == 0
    assert len(Counter(producer_id for producer_id, _, _ in numbers(world))) == 2


def test_a_lent_producer_id_is_lent_again_when_its_client_has_left() -> None:
    world = world_of()
    before = len(world.upstream.asked(InitProducerIdRequest))
    for client in range(1, 6):
        assert world.produce(client, {("flights", 0): batch([(key_at(0), b"x")])}).code == 0
        world.leave(client)
    assert len(world.upstream.asked(InitProducerIdRequest)) == before + 1
    assert [sequence for _, _, sequence in numbers(world)] == [0, 1, 2, 3, 4]


def test_a_lent_producer_id_is_not_lent_again_before_its_records_are_settled() -> None:
    world = world_of()
    before = len(world.upstream.asked(InitProducerIdRequest))
    world.slow = True
    world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])})
    world.leave(1)
    world.produce(2, {("flights", 0): batch([(key_at(0), b"y")])})
    world.slow = False
    world.release()
    world.settle(1)
    assert len(world.upstream.asked(InitProducerIdRequest)) == before + 2
    assert sorted(world.upstream.values("flights"), key=repr) == [b"x", b"y"]


# -- bounds


@pytest.mark.parametrize("lent_first", [False, True])
def test_a_producer_id_that_upstream_gives_again_is_not_used_by_two(lent_first: bool) -> None:
    world = world_of()
    if lent_first:
        assert world.produce(1, {("flights", 0): batch([(key_at(0), b"old")])}).code == 0
        world.upstream.lose_everything()
        own = world.producer_id(2)
    else:
        own = world.producer_id(2)
        world.upstream.lose_everything()
    replies = [
        world.produce(2, {("flights", 3): batch([(key_at(3), b"idempotent")], own, 0, 0)}),
        world.produce(1, {("flights", 3): batch([(key_at(3), b"plain")])}),
    ]
    world.settle(5)
    assert [reply.code for reply in replies] == [0, 0]
    assert world.upstream.values("flights") == [b"idempotent", b"plain"]


def test_what_waits_under_a_lent_id_that_is_a_clients_now_is_given_back() -> None:
    world = world_of()
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"old")])}).code == 0
    world.upstream.lead("flights", 3, -1)
    world.core.control.request_topics("flights")
    world.settle(1)
    waiting = world.produce(1, {("flights", 3): batch([(key_at(3), b"waits")])})
    world.upstream.lose_everything()
    world.producer_id(2)
    assert waiting.code == NotEnoughReplicas.code
    assert world.core.idle


def test_streams_are_led_to_new_leaders_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(nodes=2)
    world.kill(1)
    places = {("flights", place): batch([(key_at(place), b"v")]) for place in (1, 3, 5)}
    waiting = [world.produce(client, places) for client in range(1, 11)]
    monkeypatch.setattr(delivery, "_TIMERS", 4)
    monkeypatch.setattr(steering, "MOST_STEERED", 4)
    steered = [0]
    """The count for each step."""
    pump, steer = Delivery.pump, Steering._steer

    def pumped(*args: Any) -> None:
        steered.append(0)
        pump(*args)

    def counted(*args: Any) -> None:
        steered[-1] += 1
        steer(*args)

    monkeypatch.setattr(Delivery, "pump", pumped)
    monkeypatch.setattr(Steering, "_steer", counted)
    for place in (1, 3, 5):
        world.upstream.lead("flights", place, 0)
    world.core.control.request_topics("flights")
    world.settle(5)
    assert {each.error_code for reply in waiting for each in reply.produced.values()} == {0}
    assert 4 <= max(steered) <= 8, "calls that become due count, too"


def test_clients_within_their_share_do_not_pay_for_what_others_hold() -> None:
    world = world_of(max_buffered=60_000)
    world.upstream.lead("flights", 3, -1)
    world.core.control.request_topics("flights")
    world.settle(1)
    for client in range(2, 20):
        world.produce(client, {("flights", 3): batch([(key_at(3), bytes(6000))])})
    assert world.core.buffered.total > 2 * 60_000
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])}).code == 0


def test_a_batch_that_says_it_has_more_than_it_can_have_counts_for_what_it_can() -> None:
    data = bytearray(batch([(key_at(0), b"x")]))
    most = 2**31 - 1
    data[57:61], data[23:27] = most.to_bytes(4, "big"), (most - 1).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    assert max_memory_of(checked(bytes(data))) < 2000


def test_only_those_are_held_for_whom_more_than_their_share_is_buffered() -> None:
    world = world_of(max_buffered=60_000)
    world.slow = True
    world.produce(2, {("flights", 0): batch([(key_at(0), bytes(100))])})
    while not world.held:
        world.produce(1, {("flights", 0): batch([(key_at(0), bytes(6000))])})
    assert world.held == {1}


def test_a_connection_that_carries_nothing_for_a_minute_is_closed() -> None:
    world = world_of()
    before = len(world._links)
    assert world.produce(1, {("flights", 0): batch(pairs())}).code == 0
    assert len(world._links) == before + 1
    world.settle(IDLE_CONNECTION + 5)
    assert len(world._links) == before
    assert world.produce(1, {("flights", 0): batch(pairs())}).code == 0


@pytest.mark.parametrize("own", [False, True])
def test_after_the_last_epoch_a_producer_id_is_of_no_more_use(own: bool) -> None:
    world = world_of()
    identity = (-1, -1) if own else (world.producer_id(1), 0)

    def produce(sequence: int) -> int:
        data = batch([(key_at(0), b"x")], *identity, -1 if own else sequence)
        return world.produce(1, {("flights", 0): data}).code

    assert produce(0) == 0
    (stream,) = (
        world.core.delivery.lent.to(1) if own else world.core.admission.producers.known(identity[0])
    ).streams.values()
    stream.epoch = LAST_EPOCH
    world.upstream.errors["flights", 0] += [TopicAuthorizationFailed.code]
    assert produce(1) == TopicAuthorizationFailed.code
    assert produce(1) == (NotEnoughReplicas.code if own else ProducerFenced.code)
    if own:
        assert produce(1) == 0


def test_a_client_with_many_producers_has_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    world = world_of()
    producers = [world.producer_id(1) for _ in range(20)]
    for turn in range(2):
        for producer in producers:
            assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, turn)}).code == 0
            assert len(world.core.delivery.connections) <= 4
    assert len(world.upstream.values("flights")) == 40


def test_connections_that_carry_something_are_not_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    world = world_of()
    producers = [world.producer_id(1) for _ in range(5)]
    world.slow = True
    replies = [world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], each, 0, 0)}) for each in producers]
    world.slow = False
    world.release()
    world.settle(1)
    assert [reply.code for reply in replies] == [0] * 5
