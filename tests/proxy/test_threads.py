"""Large batches, which threads open and build: some requests wait for the threads, others must not."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from crc32c import crc32c

from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.compression import Compression
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import CRC_AT, HEADER_SIZE, RecordBatch
from ottla.codec.wire import Buffer
from ottla.errors import InvalidRecord, NotEnoughReplicas, NotLeaderOrFollower, OutOfOrderSequenceNumber
from ottla.proxy import threads
from ottla.proxy.clients import acceptance, opening
from ottla.proxy.clients.acceptance import Acceptance
from ottla.proxy.clients.observer import MOST
from ottla.proxy.upstream import stream_sender
from tests.proxy.simulated import Pair, World, batch
from tests.proxy.test_rewriting import KEYS, SIX, key_at, make_known, world_of

STEP = 3000
"""The bytes that a step may open or build here."""
LARGE: list[Pair] = [(key, b"large") for key in KEYS]
SMALL: list[Pair] = [(key_at(3), b"small")]
FLIGHTS = ("flights", 0)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "STEP", STEP)
    monkeypatch.setattr(threads, "PLAIN", 1)
    yield


@pytest.fixture
def world() -> World:
    world = world_of()
    world.busy = True
    return world


def unreadable(data: bytes) -> bytes:
    """A batch whose first record has a wrong length."""
    behind_crc = data[CRC_AT + 4 : HEADER_SIZE] + b"\x02" + data[HEADER_SIZE + 1 :]
    return data[:CRC_AT] + crc32c(behind_crc).to_bytes(4, "big") + behind_crc


def finish_all(world: World) -> None:
    while world.work:
        world.finish(world.work[0])


def at(world: World, key: bytes) -> list[bytes | None]:
    """The values of a key, in upstream's logs."""
    return [record.value for log in world.upstream.logs.values() for record in log if record.key == key]


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_a_client_sends_behind_a_large_batch_waits_for_it(world: World, idempotent: bool) -> None:
    own = world.producer_id(1) if idempotent else -1
    epoch, first, second = (0, 0, len(LARGE)) if idempotent else (-1, -1, -1)
    large = world.produce(1, {FLIGHTS: batch(LARGE, own, epoch, first)})
    small = world.produce(1, {FLIGHTS: batch(SMALL, own, epoch, second)})
    other = world.produce(2, {FLIGHTS: batch([(b"another's", b"v")])})
    assert other.code == 0
    assert (large.frame, small.frame) == (None, None)
    assert not world.core.idle
    assert len(world.work) == 1
    finish_all(world)
    assert (large.code, small.code) == (0, 0)
    assert at(world, key_at(3)) == [b"large", b"small"]
    assert world.core.idle
    assert not world.core.buffered.of


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_what_is_not_compressed_goes_to_a_thread_only_where_it_is_much_larger(
    monkeypatch: pytest.MonkeyPatch, world: World, compression: Compression
) -> None:
    monkeypatch.setattr(threads, "PLAIN", 16)
    for times, threaded in ((1, compression is not Compression.NONE), (40, True)):
        world.work.clear()
        world.produce(1, {FLIGHTS: batch(LARGE * times, compression=compression)})
        assert bool(world.work) is threaded
        finish_all(world)


def test_large_batches_go_in_their_order_whichever_thread_is_done_first(world: World) -> None:
    own = world.producer_id(1)
    first = world.produce(1, {FLIGHTS: batch(LARGE, own, 0, 0)})
    second = world.produce(1, {FLIGHTS: batch([(key, b"second") for key in KEYS], own, 0, len(LARGE))})
    world.finish(world.work[1])
    assert (first.frame, second.frame) == (None, None)
    finish_all(world)
    assert (first.code, second.code) == (0, 0)
    assert at(world, KEYS[0]) == [b"large", b"second"]


def test_a_large_batch_that_comes_again_is_opened_once(world: World) -> None:
    own = world.producer_id(1)
    data = batch(LARGE, own, 0, 0)
    first, again = world.produce(1, {FLIGHTS: data}), world.produce(2, {FLIGHTS: data})
    assert len(world.work) == 1
    finish_all(world)
    assert (first.code, again.code) == (0, 0)
    assert at(world, KEYS[0]) == [b"large"]


def test_a_large_batch_that_cannot_be_read_is_refused_with_what_follows_it(world: World) -> None:
    own = world.producer_id(1)
    damaged = world.produce(1, {FLIGHTS: unreadable(batch(LARGE, own, 0, 0))})
    behind = world.produce(1, {FLIGHTS: batch(SMALL, own, 0, len(LARGE))})
    assert len(world.work) == 1
    finish_all(world)
    assert (damaged.code, behind.code) == (InvalidRecord.code, OutOfOrderSequenceNumber.code)
    assert world.core.tallies["flights"].refused == 1
    assert not world.core.buffered.of
    assert world.produce(1, {FLIGHTS: batch(SMALL, own, 0, 0)}).code == 0


def test_where_a_client_without_a_producer_id_sends_what_cannot_be_read_the_rest_is_stored(world: World) -> None:
    damaged = world.produce(1, {FLIGHTS: unreadable(batch(LARGE))})
    behind = world.produce(1, {FLIGHTS: batch(SMALL)})
    assert len(world.work) == 1
    finish_all(world)
    assert (damaged.code, behind.code) == (InvalidRecord.code, 0)


def test_a_large_batch_of_a_client_that_has_left_is_stored(world: World) -> None:
    world.produce(1, {FLIGHTS: batch(LARGE)}, acks=0)
    world.leave(1)
    assert len(world.work) == 1
    finish_all(world)
    assert at(world, KEYS[0]) == [b"large"]
    assert world.core.idle
    assert not world.core.buffered.of


@pytest.mark.parametrize("readable", [True, False])
def test_a_large_batch_outlives_a_restart_before_it_is_opened(readable: bool) -> None:
    world = world_of(journal=True)
    world.busy = True
    own = world.producer_id(1)
    data = batch(LARGE, own, 0, 0)
    data = data if readable else unreadable(data)
    world.produce(1, {FLIGHTS: data})
    world.restart()
    make_known(world)
    again = world.produce(1, {FLIGHTS: data})
    assert len(world.work) == 1
    finish_all(world)
    assert again.code == (0 if readable else InvalidRecord.code)
    assert at(world, KEYS[0]) == ([b"large"] if readable else [])


def test_many_batches_of_one_request_are_opened_in_threads_where_they_are_too_much_together(world: World) -> None:
    each: list[Pair] = [(key, b"v" * 20) for key in KEYS[:5]]
    reply = world.produce(1, {("flights", place): batch(each) for place in range(SIX)})
    assert 0 < len(world.work) < SIX
    finish_all(world)
    assert {answer.error_code for answer in reply.produced.values()} == {0}
    assert at(world, KEYS[0]) == [b"v" * 20] * SIX


def test_a_batch_that_says_it_is_small_is_not_decompressed_beyond(world: World) -> None:
    data = bytearray(batch([(b"k", bytes(10**6))], compression=Compression.GZIP))
    data[-4:] = (100).to_bytes(4, "little")  # the size in gzip's trailer
    data[CRC_AT : CRC_AT + 4] = crc32c(data[CRC_AT + 4 :]).to_bytes(4, "big")
    assert len(data) < STEP - 200
    reply = world.produce(1, {FLIGHTS: bytes(data)})
    assert not world.work
    [answer] = reply.produced.values()
    assert answer.error_code == InvalidRecord.code
    assert "over the limit of 100 bytes" in (answer.error_message or "")


# -- what goes upstream


def test_a_large_batch_for_upstream_is_built_in_a_thread_and_others_go_on(world: World) -> None:
    own = world.producer_id(1)
    fat = [(key_at(3), b"v" * 2400), *SMALL, (key_at(5), b"")]
    reply = world.produce(1, {FLIGHTS: batch(fat, own, 0, 0)})
    world.finish(world.work[0])
    [building] = world.work
    other = world.produce(1, {("flights", 1): batch([(key_at(4), b"other")], own, 0, 0)})
    assert other.code == 0
    behind = world.produce(1, {("flights", 2): batch([(key_at(3), b"behind")], own, 0, 0)})
    assert (reply.frame, behind.frame) == (None, None)
    world.finish(building)
    assert (reply.code, behind.code) == (0, 0)
    assert at(world, key_at(3)) == [b"v" * 2400, b"small", b"behind"]


def test_a_batch_that_a_thread_cannot_build_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sender, "build_whole", lambda part, *, transactional: None)
    reply = world.produce(1, {FLIGHTS: batch([(key_at(3), b"v" * 3000), (None, b"")])})
    behind = world.produce(1, {FLIGHTS: batch(SMALL)})
    finish_all(world)
    assert reply.code != 0
    assert behind.code == 0
    assert world.core.idle


def test_a_step_builds_so_much_and_leaves_the_rest_to_the_next(world: World) -> None:
    world.busy = False
    world.produce(1, {("flights", place): batch([(key_at((place + 1) % SIX), b"v" * 600)]) for place in range(SIX)})
    assert [len(each.topic_data[0].partition_data) for _, each in world.upstream.produced] == [2, 2, 2]
    assert len(world.upstream.values("flights")) == SIX


def test_a_step_takes_on_so_many_batches_however_small_and_the_rest_in_their_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.busy = False
    assert world.produce(1, {FLIGHTS: batch([(key_at(3), b"first")])}).code == 0
    monkeypatch.setattr(threads, "BATCHES", 2)
    accepted: list[int] = []
    monkeypatch.setattr(Acceptance, "_accept", counted(Acceptance._accept, accepted, world))
    with monkeypatch.context() as patch:
        patch.setattr(world, "settle", lambda: None)
        replies = [
            world.produce(1, {("flights", place): batch([(key_at(3), b"%d" % turn)]) for place in range(SIX)})
            for turn in range(3)
        ]
    assert len(accepted) == 2, "the limit of a step"
    assert world.core.deadline == 0
    assert not world.core.idle
    world.settle(1)
    assert {accepted.count(polls) for polls in accepted} == {2}
    assert {each.error_code for reply in replies for each in reply.produced.values()} == {0}
    assert at(world, key_at(3)) == [b"first", *(b"%d" % turn for turn in range(3) for _ in range(SIX))]
    assert world.core.idle


def counted(accept: Callable[..., None], accepted: list[int], world: World) -> Callable[..., None]:
    """``accept``, which also appends the number of the poll to ``accepted`` at each call."""
    polls = count()
    core: Any = world.core
    poll, now = core.poll, [next(polls)]

    def polled(at: float) -> Any:
        now[0] = next(polls)
        return poll(at)

    core.poll = polled

    def call(*args: Any) -> None:
        accepted.append(now[0])
        accept(*args)

    return call


def test_what_waits_for_its_turn_is_counted_and_refused_where_the_buffer_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.busy = False
    monkeypatch.setattr(threads, "BATCHES", 2)
    monkeypatch.setattr(world.core.buffered, "most", 20_000)
    one_each = {("flights", place): batch([(key_at(3), b"v")]) for place in range(SIX)}
    with monkeypatch.context() as patch:
        patch.setattr(world, "settle", lambda: None)
        replies = [world.produce(1, one_each) for _ in range(20)]
        assert world.core.buffered.total >= 20_000
    world.settle(1)
    codes = [[each.error_code for each in reply.produced.values()] for reply in replies]
    assert codes[-1] == [NotEnoughReplicas.code] * SIX
    assert len(world.upstream.values("flights")) == sum(each.count(0) for each in codes) > 0
    assert world.core.idle
    assert not world.core.buffered.of


def test_what_a_client_without_a_producer_id_has_sent_keeps_its_order_when_it_leaves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.busy = False
    monkeypatch.setattr(threads, "BATCHES", 2)
    with monkeypatch.context() as patch:
        patch.setattr(world, "settle", lambda: None)
        for turn in range(3):
            batches = {("flights", place): batch([(key_at(3), b"%d" % turn)]) for place in range(SIX)}
            world.produce(1, batches, acks=0)
        world.leave(1)
    world.settle(1)
    assert at(world, key_at(3)) == [b"%d" % turn for turn in range(3) for _ in range(SIX)]
    assert len(world.core.delivery.lent.of_the_gone) == 1
    assert world.core.idle
    assert not world.core.buffered.of


def test_a_batch_that_was_opened_for_a_topic_that_was_recreated_meanwhile_is_not_placed_by_it(world: World) -> None:
    own = world.producer_id(1)
    reply = world.produce(1, {FLIGHTS: batch(LARGE, own, 0, 0)})
    assert len(world.work) == 1
    world.upstream.cluster.recreate("flights", 4)
    world.core.control.request_topics("flights")
    world.settle(1)
    finish_all(world)
    assert reply.code == NotLeaderOrFollower.code, "an error that clients retry"
    assert world.core.tallies["flights"].records == 0, "none were sent"
    again = world.produce(1, {FLIGHTS: batch(LARGE, own, 0, 0)})
    finish_all(world)
    assert again.code == 0
    assert world.core.tallies["flights"].records == len(LARGE)
    for (_, partition), log in world.upstream.logs.items():
        assert all(murmur2_partition(each.key or b"", 4) == partition for each in log)


def test_threads_are_left_for_what_is_rewritten(world: World) -> None:
    assert world.produce(1, {("plain", 0): batch(SMALL)}).code == 0
    for _ in range(MOST + 3):
        assert world.produce(1, {("plain", 0): batch(20 * LARGE, compression=Compression.ZSTD)}).code == 0, (
            "it is passed on at once"
        )
    assert len(world.work) == MOST
    tally = world.core.tallies["plain"]
    assert tally.unobserved == 3
    finish_all(world)
    assert tally.records >= 20 * MOST * len(LARGE)
    assert world.core.buffered.total == 0


# -- transactions


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction_waits_until_its_batches_are_opened(world: World, committed: bool) -> None:
    begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    own = world.request(1, begin, 4).parsed(InitProducerIdResponse).producer_id
    data = batch(LARGE, own, 0, 0, transactional=True)
    reply = world.produce(1, {FLIGHTS: data}, transactional_id="t", version=12)  # which adds the partitions
    ending = EndTxnRequest(transactional_id="t", producer_id=own, producer_epoch=0, committed=committed)
    end = world.request(2, ending, 5)
    assert (reply.frame, end.frame) == (None, None)
    assert not world.upstream.asked(EndTxnRequest)
    assert len(world.work) == 1
    finish_all(world)
    assert end.parsed(EndTxnResponse).error_code == 0
    assert (reply.code == 0) == committed
    assert len(world.upstream.values("flights")) == (len(LARGE) if committed else 0)


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction_waits_for_its_turn_behind_records_that_are_not_read_yet(
    world: World, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    world.busy = False
    begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    own = world.request(1, begin, 4).parsed(InitProducerIdResponse).producer_id
    monkeypatch.setattr(threads, "BATCHES", 2)
    read: list[Buffer] = []

    def checked(data: Buffer) -> RecordBatch:
        read.append(data)
        return opening.checked(data)

    monkeypatch.setattr(acceptance, "checked", checked)
    data = batch(SMALL, own, 0, 0, transactional=True)
    ending = EndTxnRequest(transactional_id="t", producer_id=own, producer_epoch=0, committed=committed)
    with monkeypatch.context() as patch:
        patch.setattr(world, "settle", lambda: None)
        reply = world.produce(1, {("flights", place): data for place in range(SIX)}, transactional_id="t", version=12)
        end = world.request(2, ending, 5)
    assert len(read) == 2, "the limit of a step"
    assert (reply.frame, end.frame) == (None, None)
    world.settle(1)
    assert end.parsed(EndTxnResponse).error_code == 0
    if committed:
        assert {each.error_code for each in reply.produced.values()} == {0}
        assert len(world.upstream.values("flights")) == SIX
    assert world.core.idle
    assert not world.core.buffered.of


def test_all_that_comes_before_the_next_poll_shares_a_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    few = batch([(key_at(3), b"v")])
    for client in range(1, 9):
        assert world.produce(client, {FLIGHTS: few}).code == 0
    assert not world.work
    with monkeypatch.context() as patch:
        patch.setattr(world, "settle", lambda: None)
        replies = [world.produce(client, {FLIGHTS: few}) for client in range(1, 61)]
    world.settle(1)
    assert 0 < len(world.work) < len(replies), "some of them fit into the step"
    finish_all(world)
    assert {reply.code for reply in replies} == {0}
