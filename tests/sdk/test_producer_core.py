"""The producer's calls, resumed by hand: which records it accepts, calls back, keeps and drops, and in which order."""

import gc
import itertools
import random
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import (
    BufferFull,
    ConfigurationError,
    DeliveryFailed,
    LocalProtocolError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OttlaError,
)
from ottla.sdk.events import Run, Written
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import ProducerBatch
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import Choice
from ottla.sdk.produce.producer_identity import TRANSITIONS, ProducerIdentity, ProducerIdInput, ProducerIdState
from ottla.sdk.produce.records import AwaitedReceipt, PendingRecord, Receipt
from ottla.sdk.produce.room import BATCH_OVERHEAD
from ottla.sdk.steps import CHECK, TURN, Shielded, Steps
from tests.sim.log import PartitionLog
from tests.sim.world import ModelBroker, World


class Cancelled(BaseException):
    """The exception that a loop cancels with."""


def producer_in(world: World, **options: Any) -> ProducerCore:
    return ProducerCore(world.core, ProducerOptions(**{"linger": 0.0} | options), random.Random(5))


def a_record(value: bytes = b"v", topic: str = "t", partition: int | None = 0, callback: Any = None) -> PendingRecord:
    return PendingRecord(topic, value, None, partition, (), 1000, callback)


def known(world: World) -> World:
    world.call(lambda now: world.core.metadata.topic("t", now))
    return world


def values(world: World, topic: str = "t") -> list[bytes | None]:
    return world.broker.logs[topic, 0].values


class Call:
    """A user's call, run as a driver would run it."""

    def __init__(self, world: World, steps: Steps[Any]) -> None:
        self._world, self._steps = world, steps
        self.waits_for: object = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.go_on()

    def go_on(self, raised: BaseException | None = None) -> None:
        try:
            self.waits_for = self._world.core.resume(self._steps, self._world.now, raised=raised)
        except StopIteration as end:
            self.done, self.result = True, end.value
        except BaseException as error:
            self.done, self.error = True, error

    def finish(self) -> Any:
        while not self.done:
            wait = self.waits_for
            outcome = wait.outcome if isinstance(wait, Shielded) else wait
            if isinstance(outcome, Outcome):
                self._world.run(outcome)
            self.go_on()
        if self.error is not None:
            raise self.error
        return self.result


# -- user code ---------------------------------------------------------------------------------------------------------


def test_callbacks_run_outside_of_the_core_one_run_for_a_batch_and_may_call_anything() -> None:
    world = known(World(ModelBroker({"t": 1, "u": 1})))
    producer = producer_in(world, linger=0.005)
    seen: list[Any] = []

    def callback(result: Any) -> None:
        assert not world.core.gate.entered[0]
        seen.append(result.offset)
        world.core.poll(world.now)
        producer.append(a_record(topic="u"), world.now)

    runs: list[Run] = []
    poll = world.core.poll

    def counting(now: float) -> Any:
        actions = poll(now)
        runs.extend(each for each in actions if isinstance(each, Run))
        return actions

    world.core.poll = counting  # type: ignore[method-assign] # to count
    for _ in range(100):
        producer.append(a_record(callback=callback), world.now)
    world.run(lambda: len(seen) == 100)
    assert seen == list(range(100)) and len(runs) == 1
    Call(world, producer.flush()).finish()
    assert len(values(world, "u")) == 100 and len(values(world)) == 100


def test_what_is_called_from_within_the_core_is_refused() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=1.0)
    producer.append(a_record(), world.now)
    assert producer.appends.append("t", b"v", b"k", 1000)
    with world.core.gate:
        assert not producer.appends.append("t", b"v", b"k", 1000)
        with pytest.raises(LocalProtocolError, match="the client is busy"):
            world.core.resume(producer.send_soon(a_record()), world.now)


def test_flush_and_the_end_of_the_block_return_after_the_callbacks() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=1.0)
    called: list[Any] = []
    for end in (producer.flush, lambda: producer.leave(None)):
        called.clear()
        producer.append(a_record(callback=called.append), world.now)
        Call(world, end()).finish()
        assert len(called) == 1


@pytest.mark.parametrize("links", [5, 1000])
def test_the_end_of_the_block_waits_for_what_callbacks_send_but_not_for_ever(links: int) -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=1.0)
    refused: list[OttlaError] = []

    def send_next(result: Receipt | OttlaError) -> None:
        number = len(values(world))
        if number < links:
            try:
                producer.send_nowait(a_record(b"%d" % number, callback=send_next))
            except OttlaError as error:
                refused.append(error)

    producer.append(a_record(b"first", callback=send_next), world.now)
    Call(world, producer.leave(None)).finish()
    if links == 5:
        assert values(world) == [b"first", b"1", b"2", b"3", b"4"] and not refused
    else:
        assert len(values(world)) == 101 and "it accepts no more records" in str(refused[0])


def test_a_coroutine_that_a_callback_returns_is_an_error_that_says_what_to_do() -> None:
    world = known(World(ModelBroker({"t": 1})))
    world.broker.refuse = lambda place, batch: MessageTooLarge.code if batch.records()[0].value == b"no" else 0
    producer = producer_in(world, batch_size=1)

    async def asynchronous(result: object) -> None: ...

    for value in (b"yes", b"no"):
        producer.append(a_record(value, callback=lambda result: asynchronous(result)), world.now)
        with pytest.raises(ConfigurationError, match=r"returned a coroutine .*asynchronous.*is never awaited"):
            Call(world, producer.flush()).finish()


@pytest.mark.parametrize("topic_is_known", [True, False])
@pytest.mark.parametrize("sees", ["key", "all"])
def test_a_partitioner_of_the_users_own_runs_outside_of_the_core_and_may_send(topic_is_known: bool, sees: str) -> None:
    world = World(ModelBroker({"t": 3, "u": 1}))
    if topic_is_known:
        known(world)
    asked: list[bytes | None] = []

    def place(key: bytes | None) -> int:
        assert not world.core.gate.entered[0]
        asked.append(key)
        producer.append(a_record(topic="u"), world.now)
        return 2

    class Mine:
        def choose(self, choice: Choice) -> int:
            return place(choice.key)

    producer = producer_in(world, partitioner=Mine() if sees == "all" else lambda key, partitions: place(key))
    receipts: list[Any] = []
    for number in range(5):
        record = PendingRecord("t", b"%d" % number, b"k", None, (), 1000, receipts.append)
        if producer.placing.asks_user(record):
            producer.placing.choose(record)
        Call(world, producer.send_soon(record)).finish()
    Call(world, producer.flush()).finish()
    assert [(each.partition, each.offset) for each in receipts] == [(2, number) for number in range(5)]
    assert asked == [b"k"] * 5 and len(values(world, "u")) == 5


def test_keyless_records_have_one_partition_for_16_kib_and_then_perhaps_another() -> None:
    world = known(World(ModelBroker({"t": 5})))
    producer = producer_in(world)
    topic, placed = world.core.cluster.topics["t"], list[int]()
    for _ in range(40):
        placed.append(producer.keyless_partition(topic))
        Call(world, producer.send_soon(a_record(b"v" * 4096, partition=placed[-1]))).finish()
    assert len(set(placed)) > 1
    assert sum(one == other for one, other in itertools.pairwise(placed)) >= 30, "four records in a row"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_cancelled_before_it_is_accepted_a_record_is_not_sent() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world)
    for start, waits_for in ((producer.send, CHECK), (producer.send_soon, TURN)):
        call = Call(world, start(a_record(b"not")))
        assert call.waits_for is waits_for
        call.go_on(Cancelled())
        assert isinstance(call.error, Cancelled)
    Call(world, producer.leave(None)).finish()
    assert not values(world)


def test_cancelled_after_that_delivery_goes_on_and_a_failure_is_raised_by_the_next_call() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=0.1)
    call = Call(world, producer.send(a_record(b"stored")))
    call.go_on()
    call.go_on(Cancelled())
    Call(world, producer.flush()).finish()
    assert values(world) == [b"stored"]
    world.broker.refuse = lambda place, batch: MessageTooLarge.code
    for cancelled_after in (0.0, 1.0):  # before it fails, and between its failure and the caller's next step
        call = Call(world, producer.send(a_record(b"refused")))
        call.go_on()
        world.run(cancelled_after)
        call.go_on(Cancelled())
        with pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):
            Call(world, producer.flush()).finish()


def test_a_caller_lets_others_run_every_two_milliseconds() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=1.0)
    first, second = (Call(world, producer.send_soon(a_record())) for _ in range(2))
    assert first.waits_for is TURN and isinstance(second.waits_for, Outcome)
    first.go_on()
    assert second.waits_for.done
    second.go_on()
    assert second.done
    third = Call(world, producer.send_soon(a_record()))
    assert first.done and third.waits_for is CHECK
    third.go_on()
    assert third.done
    world.now += 0.003
    assert Call(world, producer.send_soon(a_record())).waits_for is TURN


def test_records_are_accepted_in_the_order_of_the_calls_though_one_lets_others_run_first() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=0.01)
    producer.append(a_record(b"before"), world.now)
    assert producer.appends.append("t", b"fast", b"k", 1000, None)
    first = Call(world, producer.send_soon(a_record(b"first")))
    calls = [Call(world, send(a_record(b"%d" % n))) for n, send in enumerate((producer.send, producer.send_soon))]
    last = Call(world, producer.send_soon(a_record(b"last")))
    assert first.waits_for is TURN and not producer.appends.append("t", b"not yet", b"k", 1000, None)
    calls[1].go_on(Cancelled())
    for call in (first, *calls, last):
        while not call.done and not isinstance(call.waits_for, AwaitedReceipt):
            assert call.waits_for is TURN or cast(Outcome[None], call.waits_for).done
            call.go_on()
    assert producer.appends.append("t", b"fast again", b"k", 1000, None)
    Call(world, producer.flush()).finish()
    assert values(world) == [b"before", b"fast", b"first", b"0", b"last", b"fast again"]


def test_a_call_that_cannot_wait_overtakes_those_that_let_others_run_and_none_that_waits_for_room() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=0.01, buffer_memory=3000)
    calls = [Call(world, producer.send_soon(a_record(value))) for value in (b"first", b"second")]
    assert calls[0].waits_for is TURN
    with world.core.gate:
        producer.send_nowait(a_record(b"at once"))
    for call in calls:
        call.finish()
    world.now += 0.003
    waits = Call(world, producer.send_soon(a_record(bytes(2000))))
    waits.go_on()
    assert not waits.done and producer._room.waiters
    with world.core.gate, pytest.raises(BufferFull, match=r"and 1 record\(s\) wait for space"):
        producer.send_nowait(a_record(b"small"))
    waits.finish()
    Call(world, producer.flush()).finish()
    assert values(world) == [b"at once", b"first", b"second", bytes(2000)]


def test_leaving_by_an_error_is_bounded_by_the_cores_time_and_says_what_was_not_delivered() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world)
    world.broker.handle = lambda node, frame: None  # type: ignore[method-assign] # a broker that hangs
    producer.append(a_record(), world.now)
    error, before = KeyError("the user's"), world.now
    call = Call(world, producer.leave(error))
    assert isinstance(call.waits_for, Shielded)
    call.finish()
    assert world.now - before == pytest.approx(1.5, abs=0.01)
    assert "1 record(s) of the closed producer may not have been stored" in error.__notes__


def pending_records() -> list[PendingRecord]:
    return [each for each in gc.get_objects() if isinstance(each, PendingRecord)]


def test_a_cancelled_wait_for_room_leaves_nothing_behind() -> None:
    world = known(World(ModelBroker({"t": 1}), options=Options(delivery_timeout=5.0)))
    producer = producer_in(world, buffer_memory=3000, linger=0.5)
    producer.append(a_record(bytes(900)), world.now)
    timers = len(world.core.timers)
    call = Call(world, producer.send_soon(a_record(bytes(900))))
    others = pending_records()  # left by earlier tests
    call.go_on()
    call.go_on(Cancelled())
    assert isinstance(call.error, Cancelled) and not producer._room.waiters
    del call  # and its traceback
    gc.collect()
    assert all(any(each is other for other in others) for each in pending_records())
    world.run(10.0)
    Call(world, producer.send(a_record(b"the client goes on"))).finish()
    assert values(world) == [bytes(900), b"the client goes on"] and len(world.core.timers) <= timers


# -- memory ------------------------------------------------------------------------------------------------------------


def test_a_send_that_is_cancelled_as_its_record_is_accepted_leaves_a_failure_to_the_next_call() -> None:
    broker = ModelBroker({"t": 1})
    broker.refuse = lambda place, batch: MessageTooLarge.code if broker.logs[place].end else 0
    world = known(World(broker))
    producer = producer_in(world, linger=1.0, buffer_memory=8192)
    producer.append(a_record(bytes(5000)), world.now)
    call = Call(world, producer.send(a_record(bytes(2500))))
    call.go_on()
    assert isinstance(call.waits_for, Outcome) and producer._room.waiters
    world.run(call.waits_for)  # space is free, but the caller is cancelled before it continues, as asyncio allows
    call.go_on(Cancelled())
    assert isinstance(call.error, Cancelled)
    with pytest.raises(DeliveryFailed, match="1 record"):
        Call(world, producer.flush()).finish()
    Call(world, producer.flush()).finish()


@pytest.mark.parametrize("wait_for", ["topic", "room"])
def test_what_is_kept_is_copied_when_it_is_accepted(wait_for: str) -> None:
    world = World(ModelBroker({"t": 1}))
    if wait_for == "room":
        known(world)
    producer = producer_in(world, buffer_memory=2**20 if wait_for == "topic" else 3000)
    if wait_for == "room":
        producer.append(a_record(bytes(900)), world.now)
    value, headers = bytearray(b"-"), [("number", memoryview(bytearray(b"-")))]
    for number in range(5):
        value[:] = b"%d" % number
        headers[0] = ("number", memoryview(bytearray(b"%d" % number)))
        producer.offer(PendingRecord("t", value, value, 0, headers, 1000), world.now)  # type: ignore[arg-type] # as users may
    headers[0][1][:] = b"x"
    world.run(1.0)
    Call(world, producer.flush()).finish()
    found = [(each.value, each.key, each.headers) for each in world.broker.logs["t", 0].records]
    digits = [b"%d" % number for number in range(5)]
    assert found[wait_for == "room" :][:4] == [(each, each, (("number", each),)) for each in digits[:4]]


def batches_alive() -> int:
    gc.collect()
    return sum(isinstance(each, ProducerBatch) for each in gc.get_objects())


def test_no_timer_keeps_a_batch_that_was_acknowledged() -> None:
    world = known(World(ModelBroker({"t": 4})))
    producer = producer_in(world, linger=30.0, batch_size=100)
    before = batches_alive()
    for number in range(200):
        producer.append(a_record(partition=number % 4), world.now)
    Call(world, producer.flush()).finish()
    assert batches_alive() <= before


def test_a_batch_takes_about_what_it_is_charged() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, batch_size=1)
    world.broker.cluster.lead(("t", 0), -1)
    world.core.metadata.refresh(world.now)
    world.run(0.1)
    tracemalloc.start()
    for _ in range(1000):
        producer.append(a_record(b"-", callback=print), world.now)
    taken = tracemalloc.get_traced_memory()[0] / 1000
    tracemalloc.stop()
    assert 0.5 * BATCH_OVERHEAD < taken < 1.2 * BATCH_OVERHEAD
    assert producer._room.used == 1000 * (BATCH_OVERHEAD + 33)
    assert producer.pending == 1000


def test_a_full_buffer_is_sent_at_once_and_does_not_linger() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=60.0, buffer_memory=50_000)
    before = world.now
    for _ in range(100):
        call = Call(world, producer.send_soon(a_record(bytes(1000))))
        call.finish()
    assert world.now - before < 1.0 and len(values(world)) > 40
    with pytest.raises(BufferFull):
        for _ in range(100):
            producer.append(a_record(bytes(1000)), world.now)
    stored = len(values(world))
    world.run(0.1)
    assert len(values(world)) > stored


class Slow(World):
    """The operating system accepts no bytes while `stuck`; it reports their writes later."""

    stuck = False

    def act(self) -> None:
        handle, late = self.core.handle, self._late

        def held(event: Any, now: float) -> None:
            late.append(event) if self.stuck and isinstance(event, Written) else handle(event, now)

        self.core.handle = held  # type: ignore[method-assign] # to hold events back
        try:
            super().act()
        finally:
            self.core.handle = handle  # type: ignore[method-assign]

    @property
    def _late(self) -> list[Written]:
        return self.__dict__.setdefault("late", [])  # type: ignore[no-any-return]

    def take_all(self) -> None:
        self.stuck = False
        for event in self._late:
            self.core.handle(event, self.now)
        self._late.clear()


def test_with_acks_0_memory_is_bounded_and_flush_waits_until_the_bytes_are_written() -> None:
    world = Slow(ModelBroker({"t": 1}))
    known(world)
    producer = producer_in(world, acks=0, buffer_memory=100_000)
    Call(world, producer.send(a_record())).finish()
    world.stuck = True
    accepted = 0
    with pytest.raises(BufferFull):
        while accepted < 1000:
            producer.append(a_record(bytes(10_000)), world.now)
            world.act()
            accepted += 1
    flush = Call(world, producer.flush())
    world.run(10.0)
    assert accepted < 10 and isinstance(flush.waits_for, Outcome) and not flush.waits_for.done
    world.take_all()
    flush.finish()
    assert producer.appends.free == 100_000 and len(values(world)) >= 1


# -- the cluster changes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_partitions_that_are_refused_together_are_retried_together() -> None:
    world = known(World(broker := ModelBroker({"t": 1000})))
    producer = producer_in(world)
    broker.refuse = lambda place, batch: NotLeaderOrFollower.code
    broker.requests.clear()
    for partition in range(1000):
        producer.append(a_record(partition=partition), world.now)
    world.run(10.0)
    asked = Counter(type(message).__name__ for _, message in broker.requests)
    assert asked["ProduceRequest"] < 10 * 10 + 10 and asked["MetadataRequest"] <= 10 * 10
    last = [message for _, message in broker.requests if isinstance(message, ProduceRequest)][-1]
    assert sum(len(each.partition_data) for each in last.topic_data) == 1000
    broker.refuse = lambda place, batch: 0
    Call(world, producer.flush()).finish()
    assert all(log.end == 1 for log in broker.logs.values())


class Recreating(ModelBroker):
    """A broker that can recreate topics; its metadata has topic ids, or like an old broker's only epochs."""

    topic_id = uuid.UUID(int=0)
    epoch = 5
    gone = False

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.versions[3] = (1, 12)

    def _answer(self, node: int, message: Any) -> Any:
        answer = super()._answer(node, message)
        if isinstance(message, MetadataRequest):
            for topic in answer.topics:
                topic.topic_id = self.topic_id
                for each in topic.partitions:
                    each.leader_epoch = self.epoch
            answer.topics = () if self.gone else answer.topics
        return answer


def by_id(broker: Recreating, refresh: Callable[[], None]) -> None:
    broker.topic_id = uuid.UUID(int=2)
    refresh()


def by_epoch(broker: Recreating, refresh: Callable[[], None]) -> None:
    broker.epoch = 0
    refresh()


def by_absence(broker: Recreating, refresh: Callable[[], None]) -> None:
    broker.gone = True
    refresh()
    broker.gone = False
    refresh()


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("recreated", [by_id, by_epoch, by_absence])
def test_records_to_a_recreated_topic_keep_their_order(
    recreated: Callable[[Recreating, Callable[[], None]], None], in_flight: bool
) -> None:
    world = known(World(broker := Recreating({"t": 1})))
    if recreated is by_id:
        broker.topic_id = uuid.UUID(int=1)
        world.call(lambda now: world.core.metadata.topic("t", now, fresh=True))
    producer = producer_in(world, batch_size=1)
    for number in range(3):
        producer.append(a_record(b"old%d" % number), world.now)
    Call(world, producer.flush()).finish()
    handle = broker.handle
    if in_flight:  # and never answered
        broker.handle = lambda node, frame: None if frame[:2] == b"\0\0" else handle(node, frame)  # type: ignore[method-assign]
        for number in range(2):
            producer.append(a_record(b"unanswered%d" % number), world.now)
        world.run(0.1)

    def refresh() -> None:
        world.core.metadata.refresh(world.now)
        world.run(0.5)

    broker.cluster.logs["t", 0] = PartitionLog()
    recreated(broker, refresh)
    broker.handle = handle  # type: ignore[method-assign]
    codes = iter([NotEnoughReplicas.code])
    broker.refuse = lambda place, batch: next(codes, 0)
    for number in range(3):
        producer.append(a_record(b"new%d" % number), world.now)
    Call(world, producer.flush()).finish()
    expected = [b"unanswered0", b"unanswered1"] * in_flight + [b"new0", b"new1", b"new2"]
    assert values(world) == expected
    last = broker.logs["t", 0].batches[-3:]
    assert [(each.producer[1], each.span[0]) for each in last] == [(1, 0), (1, 1), (1, 2)]


def test_the_same_topic_that_was_not_known_for_a_moment_is_no_other() -> None:
    world = World(broker := Recreating({"t": 1}))
    broker.topic_id = uuid.UUID(int=1)
    known(world)
    before = world.core.cluster.incarnation("t")

    def refresh() -> None:
        world.core.metadata.refresh(world.now)
        world.run(0.5)

    by_absence(broker, refresh)
    known(world)
    assert world.core.cluster.incarnation("t") == before


def test_produce_has_a_connection_of_its_own_which_is_made_before_the_first_batch_is_due() -> None:
    world = known(World(ModelBroker({"t": 1})))
    producer = producer_in(world, linger=5.0)
    producer.append(a_record(), world.now)
    world.run(1.0)
    assert (1, "produce") in world.links
    kinds = {type(message) for key, message in world.broker.requests if key == 1}
    assert ProduceRequest not in kinds
    other = producer_in(world, acks=0)
    assert (other._sender.channel, producer._sender.channel) == ("produce-1", "produce")


# -- the identity ------------------------------------------------------------------------------------------------------

REACHED: dict[ProducerIdState, tuple[ProducerIdInput, ...]] = {
    ProducerIdState.NONE: (),
    ProducerIdState.ASKING: (ProducerIdInput.NEEDED,),
    ProducerIdState.PAUSED: (ProducerIdInput.NEEDED, ProducerIdInput.FAILED),
    ProducerIdState.READY: (ProducerIdInput.NEEDED, ProducerIdInput.GIVEN),
    ProducerIdState.WITHOUT: (ProducerIdInput.NEEDED, ProducerIdInput.UNSUPPORTED),
    ProducerIdState.FAILED: (ProducerIdInput.FATAL,),
}


@pytest.mark.parametrize(("state", "what"), [*itertools.product(ProducerIdState, ProducerIdInput)])
def test_each_state_of_an_identity_takes_what_its_cell_says_and_nothing_else(
    state: ProducerIdState, what: ProducerIdInput
) -> None:
    def nothing(*_: object) -> None: ...

    world = World(ModelBroker({"t": 1}))
    identity = ProducerIdentity(world.core, idempotent=True, required=False, changed=nothing, fail=nothing)
    for each in REACHED[state]:
        identity._change(each)
    assert identity.state is state
    if (state, what) in TRANSITIONS:
        identity._change(what)
        assert identity.state is TRANSITIONS[state, what]
    else:
        with pytest.raises(KeyError):
            identity._change(what)
        assert identity.state is state
    if state is ProducerIdState.FAILED and (state, what) in TRANSITIONS:
        assert identity.state is ProducerIdState.FAILED  # permanently


def test_a_record_whose_caller_awaits_it_is_told_in_a_receipt() -> None:
    world = known(World(ModelBroker({"t": 1})))
    assert Call(world, producer_in(world).send(a_record())).finish() == Receipt("t", 0, 0, 1000)
    with pytest.raises(OttlaError):
        Call(world, producer_in(world).send(a_record(partition=7))).finish()
