"""Nine defects of an earlier delivery, which lost, repeated or kept records; each has a test with its name."""

from typing import Any
from uuid import UUID

import pytest

from ottla.codec.compression import Compression
from ottla.codec.records import Record
from ottla.errors import (
    DuplicateSequenceNumber,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.proxy.config import ProxyConfig
from ottla.proxy.routing import Destination, Routes
from ottla.proxy.upstream.batches import Part, PartResult, UpstreamBatch
from ottla.proxy.upstream.streams import Settled, Stream
from tests.proxy.simulated import batch
from tests.proxy.test_rewriting import key_at, world_of

OLD, NEW = UUID(int=1), UUID(int=2)


class Client:
    """A client's batch that ignores its outcome."""

    refused = False

    def parted(self) -> None:
        pass

    def settled(self, part: Part, result: PartResult, now: float) -> None:
        pass

    def put_off(self, code: int, destination: Destination, now: float) -> None:
        pass


def flight(stream: Stream, count: int) -> list[UpstreamBatch]:
    """So many batches of one record each, in flight."""
    for _ in range(count):
        record = Record(offset=0, timestamp=0, key=b"k", value=b"v", headers=())
        stream.waiting.append(Part(Client(), Destination("t", 0), [record], 100, Compression.NONE, 0.0, alone=True))
    return [stream.next(1000, 10**6, 0.0) for _ in range(count)]


def known(topic_id: UUID = OLD) -> Stream:
    """A stream whose records upstream has stored before, so that several batches may be in flight."""
    stream = Stream("t", 0, topic_id=topic_id)
    [first] = flight(stream, 1)
    assert codes(stream.answered(first, 0, 50, None)) == [0]
    return stream


def codes(settled: Settled) -> list[int]:
    return [result.error_code for _, result in settled]


@pytest.mark.parametrize("refusal", [UnknownTopicOrPartition.code, UnknownTopicId.code])
def test_1_a_batch_is_not_stored_because_one_behind_it_went_to_a_topic_that_was_recreated(refusal: int) -> None:
    stream = known()
    one, two = flight(stream, 2)
    settled = stream.answered(one, refusal, -1, None)
    settled += stream.answered(two, 0, 0, None)  # the new log accepts any sequence
    if not stream.in_flight:
        settled += stream.mend()
    while stream.may_send():
        settled += stream.answered(stream.next(1000, 10**6, 0.0), OutOfOrderSequenceNumber.code, -1, None)
    assert 0 not in [result.error_code for part, result in settled if part in one.parts]


def test_2_lower_offsets_of_a_recreated_topic_raise_no_false_alarm() -> None:
    stream = known()
    assert stream.described(NEW) == []
    [batch] = flight(stream, 1)
    assert stream.answered(batch, 0, 0, None)[0][1] == PartResult(0, 0)


def test_3_nobody_knows_of_a_batch_that_was_not_answered_and_is_too_large_when_it_is_sent_again() -> None:
    stream = known()
    [batch] = flight(stream, 1)
    stream.unanswered(batch)
    assert stream.mend() == [] and stream.next(1000, 10**6, 0.0) is batch
    [(_, result)] = stream.answered(batch, MessageTooLarge.code, -1, None)
    assert result.unknown


def test_4_a_duplicate_at_the_first_attempt_is_not_stored() -> None:
    stream = known()
    [batch] = flight(stream, 1)
    [(_, result)] = stream.answered(batch, DuplicateSequenceNumber.code, -1, None)
    assert result.error_code and result.unknown


def test_5_a_client_of_which_nothing_is_buffered_is_not_held() -> None:
    world = world_of(max_buffered=1000)
    for client in (1, 2):
        world.produce(client, {("plain", 0): batch([(b"k", b"v")])})
        world.core.buffered.count(client, 900)
    world.settle()
    assert world.held == {1, 2}
    world.core.buffered.count(1, -900)
    world.settle()
    assert world.core.buffered.total > world.core.config.max_buffered // 2
    assert world.held == {2}


def test_6_short_connections_without_a_producer_id_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    monkeypatch.setattr(world.core.control.producer_ids, "request", lambda asker, then: None)  # no id is ever given
    for client in range(1, 30):
        world.produce(client, {("flights", 0): batch([(key_at(0), b"v")])})
        world.leave(client)
    world.settle(ProxyConfig(upstream="a:1").delivery_timeout + 70)
    delivery = world.core.delivery
    assert delivery.idle and not len(delivery.connections)
    assert not delivery.lent.of_the_gone and not world.core.control.producer_ids._waiting


def test_7_a_topic_that_was_missing_once_is_not_gone_when_it_is_missing_again_long_after() -> None:
    world = world_of()
    for _ in range(2):
        world.upstream.hide("flights")
        world.core.control.request_topics("flights")
        world.settle(1)
        assert not world.core.cluster.is_gone("flights", 0, world.now)
        world.upstream.show()
        world.settle(1000)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"v")])}).code == 0


def test_8_a_node_that_asks_for_patience_costs_no_timer_for_each_batch() -> None:
    world = world_of()
    world.upstream.throttle_ms = 5000
    producer = world.producer_id(1)
    for sequence in range(200):
        world.produce(1, {("flights", 0): batch([(key_at(0), b"v")], producer, 0, sequence)})
    assert len(world.core.delivery._later) < 5


def test_9_after_a_bug_a_retry_is_told_what_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    producer = world.producer_id(1)
    data = {("flights", 0): batch([(key_at(0), b"v")], producer, 0, 0)}

    def broken(self: Routes, *others: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(Routes, "split", broken)
        failed = world.produce(1, data)
        assert failed.frame is None or failed.code
    reply = world.produce(2, data)
    world.settle(1)
    assert reply.frame is not None
    assert (reply.code == 0) == (world.upstream.values("flights") == [b"v"])
    assert world.produce(3, {("flights", 0): batch([(key_at(0), b"of another")])}).code == 0
