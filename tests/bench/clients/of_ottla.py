"""ottla with its defaults: idempotent, acks from all, checksums verified. On trio, or on another loop."""

import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import trio

from ottla import TLS
from ottla.errors import OttlaError
from ottla.sdk.client import Client, connect
from ottla.sdk.consumer import Consumer, RebalanceListener
from ottla.sdk.metrics import Metric
from ottla.sdk.produce.records import DeliveryCallback, Receipt
from ottla.sdk.producer import Producer
from tests.bench.clients.task import (
    KEYS,
    TRANSACTION,
    TRANSACTION_SECONDS,
    Acknowledgements,
    Figures,
    Meter,
    Stopwatch,
    Task,
    of_transactions,
)

T = TypeVar("T")


class Loop(Protocol):
    """The event loop."""

    def connect(self, bootstrap: str, *, tls: TLS | None) -> Client: ...
    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T: ...
    async def sleep(self, seconds: float) -> None: ...
    def open_nursery(self) -> AbstractAsyncContextManager[Any]: ...


class Trio:
    connect = staticmethod(connect)
    run = staticmethod(trio.run)
    sleep = staticmethod(trio.sleep)
    open_nursery = staticmethod(trio.open_nursery)


TRIO = Trio()


def tls(task: Task) -> TLS | None:
    """The TLS options for the broker of a task."""
    return TLS(ca=Path(task.ca)) if task.ca else None


def consume(task: Task, on: Loop = TRIO) -> Figures:
    async def run() -> Figures:
        meter = Meter(task, warm_up=task.warm_up)
        async with on.connect(task.bootstrap, tls=tls(task)) as client, client.consumer(*task.names) as consumer:
            async for batch in consumer:
                count = 0
                for record in batch:
                    _value = record.value
                    count += 1
                meter.count(count)
                if meter.over:
                    break
            return meter.figures()

    return on.run(run)


def consume_columns(task: Task, on: Loop = TRIO) -> Figures:
    async def run() -> Figures:
        meter = Meter(task, warm_up=task.warm_up)
        async with on.connect(task.bootstrap, tls=tls(task)) as client, client.consumer(*task.names) as consumer:
            async for batch in consumer:
                meter.count(len(batch.columns()))
                if meter.over:
                    break
            return meter.figures()

    return on.run(run)


def _produced(task: Task, on: Loop, send: Callable[[Producer, Meter], Awaitable[None]]) -> Figures:
    """The figures of ``send`` at full speed, flushed in the end."""

    async def run() -> Figures:
        async with (
            on.connect(task.bootstrap, tls=tls(task)) as client,
            client.producer(compression=task.compression) as producer,
        ):
            await producer.send(task.names[0], task.value)
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                meter.start()
                await send(producer, meter)
                await producer.flush()
                figures = meter.figures()
            return figures

    return on.run(run)


def produce(task: Task, on: Loop = TRIO) -> Figures:
    [topic], records = task.names, task.records

    async def send(producer: Producer, meter: Meter) -> None:
        while not meter.over:
            for key, value in next(records):
                await producer.send_soon(topic, value, key=key)
            meter.count(len(KEYS))

    return _produced(task, on, send)


def produce_many(task: Task, on: Loop = TRIO) -> Figures:
    [topic], values = task.names, task.values

    async def send(producer: Producer, meter: Meter) -> None:
        while not meter.over:
            await producer.send_many(topic, next(values), keys=KEYS)
            meter.count(len(KEYS))

    return _produced(task, on, send)


def _counted(task: Task, on: Loop, send: Callable[[Producer, DeliveryCallback], Awaitable[None]]) -> Figures:
    """The figures of ``send`` for all keys over and over, with a callback for each record."""
    stored = failed = 0

    def told(result: Receipt | OttlaError) -> None:
        nonlocal stored, failed
        if isinstance(result, OttlaError):
            failed += 1
        else:
            stored += 1

    async def send_all(producer: Producer, meter: Meter) -> None:
        nonlocal stored
        stored = 0
        while not meter.over:
            await send(producer, told)
            meter.count(len(KEYS))
        await producer.flush()
        assert stored == meter.records and not failed, f"{stored} stored, {failed} failed of {meter.records}"

    return _produced(task, on, send_all)


def receipts(task: Task, on: Loop = TRIO) -> Figures:
    [topic], records = task.names, task.records

    async def send(producer: Producer, told: DeliveryCallback) -> None:
        for key, value in next(records):
            await producer.send_soon(topic, value, key=key, on_delivery=told)

    return _counted(task, on, send)


def receipts_many(task: Task, on: Loop = TRIO) -> Figures:
    [topic], values = task.names, task.values

    async def send(producer: Producer, told: DeliveryCallback) -> None:
        await producer.send_many(topic, next(values), keys=KEYS, on_delivery=told)

    return _counted(task, on, send)


def transactions(task: Task, on: Loop = TRIO) -> Figures:
    [topic], portions = task.names, task.portions

    async def run() -> Figures:
        async with _transactional(task, on) as (client, producer):
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                sent = requests(client.metrics())
                meter.start()
                while not meter.over:
                    async with producer.transaction() as txn:
                        for key, value in next(portions):
                            await txn.send_soon(topic, value, key=key)
                    meter.count(TRANSACTION)
                figures = of_transactions(meter.figures(), requests(client.metrics()) - sent)
            return figures

    return on.run(run)


def long_transactions(task: Task, on: Loop = TRIO) -> Figures:
    [topic], records = task.names, task.records

    async def run() -> Figures:
        async with _transactional(task, on) as (_, producer):
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                meter.start()
                while not meter.over:
                    end = time.perf_counter() + TRANSACTION_SECONDS
                    async with producer.transaction() as txn:
                        while time.perf_counter() < end:
                            for key, value in next(records):
                                await txn.send_soon(topic, value, key=key)
                            meter.count(len(KEYS))
                figures = meter.figures()
            return figures

    return on.run(run)


@asynccontextmanager
async def _transactional(task: Task, on: Loop) -> AsyncIterator[tuple[Client, Producer]]:
    async with (
        on.connect(task.bootstrap, tls=tls(task)) as client,
        client.producer(compression=task.compression, transactional_id=task.transactional_id) as producer,
    ):
        async with producer.transaction() as txn:
            await txn.send(task.names[0], task.value)
        yield client, producer


def requests(metrics: list[Metric]) -> float:
    """The number of requests that a client has sent."""
    return sum(each.value for each in metrics if each.name == "request-total")


def paced(task: Task, on: Loop = TRIO) -> Figures:
    """Receipts arrive in a callback, as with the other clients."""
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)

    def told(sent: float, result: Receipt | OttlaError) -> None:
        receipts.of(sent, failed=isinstance(result, OttlaError))

    async def send(producer: Producer) -> None:
        for number, due in enumerate(receipts.pace()):
            if (left := due - time.perf_counter()) > 0:
                await on.sleep(left)
            key = KEYS[number % len(KEYS)]
            await producer.send_soon(topic, value, key=key, on_delivery=partial(told, time.perf_counter()))
        await producer.flush()

    on.run(partial(_paced, task, on, send))
    return receipts.figures()


def awaited(task: Task, on: Loop = TRIO) -> Figures:
    """A task for each record, which awaits its receipt."""
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)

    async def send_one(producer: Producer, number: int) -> None:
        sent = time.perf_counter()
        try:
            await producer.send(topic, value, key=KEYS[number % len(KEYS)])
        except OttlaError:
            receipts.of(sent, failed=True)
        else:
            receipts.of(sent)

    async def send(producer: Producer) -> None:
        async with on.open_nursery() as nursery:
            for number, due in enumerate(receipts.pace()):
                await on.sleep(max(due - time.perf_counter(), 0.0))
                nursery.start_soon(send_one, producer, number)

    on.run(partial(_paced, task, on, send))
    return receipts.figures()


def lone(task: Task, on: Loop = TRIO) -> Figures:
    """One record at a time: the next is sent after the receipt."""
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)

    async def send(producer: Producer) -> None:
        for sent in receipts.one_by_one():
            await producer.send(topic, value)
            receipts.of(sent)

    on.run(partial(_paced, task, on, send))
    return receipts.figures()


def together(task: Task, on: Loop = TRIO) -> Figures:
    """So many tasks, each of which awaits the receipt of a record before it sends the next."""
    [topic], value = task.names, task.value

    async def send_all(producer: Producer, meter: Meter) -> None:
        for key in itertools.cycle(KEYS):
            await producer.send(topic, value, key=key)
            meter.count(1)
            if meter.over:
                return

    async def send(producer: Producer, meter: Meter) -> None:
        async with on.open_nursery() as nursery:
            for _ in range(task.together):
                nursery.start_soon(send_all, producer, meter)

    return _produced(task, on, send)


async def _paced(task: Task, on: Loop, send: Callable[[Producer], Awaitable[None]]) -> None:
    async with on.connect(task.bootstrap, tls=tls(task)) as client, client.producer(linger=0.0) as producer:
        await producer.send(task.names[0], task.value)
        await send(producer)


def write_each(task: Task) -> Figures:
    async def run() -> Figures:
        watch = Stopwatch()
        async with connect(task.bootstrap, tls=tls(task)) as client, client.producer() as producer:
            for topic, partition in task.places:
                await producer.send_soon(topic, task.value, partition=partition)
            await producer.flush()
            figures = watch.ready()
            watch = Stopwatch()
            await trio.sleep(task.seconds)
            return figures | watch.idle()

    return trio.run(run)


def read_each(task: Task) -> Figures:
    async def run() -> Figures:
        watch, left = Stopwatch(), set(task.places)
        async with connect(task.bootstrap, tls=tls(task)) as client, client.consumer(*task.names) as consumer:
            async for batch in consumer:
                if len(batch):
                    left.discard((batch.topic, batch.partition))
                if not left:
                    break
            figures = watch.ready()
            with trio.move_on_after(task.seconds / 4):
                await anext(consumer)
            watch = Stopwatch()
            with trio.move_on_after(task.seconds):
                await anext(consumer)
            return figures | watch.idle()

    return trio.run(run)


class _Members(RebalanceListener):
    """Counts the members that have exactly one partition."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._held = wanted, Counter[int]()
        self.settled = trio.Event()

    async def assigned(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._held[id(consumer)] += len(places)
        if len(self._held) == self._wanted and set(self._held.values()) == {1}:
            self.settled.set()

    async def revoked(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._held[id(consumer)] -= len(places)

    lost = revoked


def join(task: Task) -> Figures:
    """So many consumers join a group with as many partitions, until each has one."""
    members = _Members(task.together)

    async def member(client: Client) -> None:
        async with client.consumer(*task.names, group=task.prefix, listener=members) as consumer:
            await anext(consumer)

    async def run() -> Figures:
        watch = Stopwatch()
        async with connect(task.bootstrap, tls=tls(task)) as client, trio.open_nursery() as nursery:
            for _ in range(task.together):
                nursery.start_soon(member, client)
            await members.settled.wait()
            figures = watch.ready()
            nursery.cancel_scope.cancel()
        return figures

    return trio.run(run)


_ON_A_LOOP = (
    consume,
    consume_columns,
    produce,
    produce_many,
    receipts,
    receipts_many,
    transactions,
    long_transactions,
    paced,
    awaited,
    lone,
    together,
)


def on_loop(loop: Loop) -> Callable[[str], Callable[[Task], Figures]]:
    """The `__getattr__` of a module that measures the same ways on another loop."""
    measurements = {each.__name__: partial(each, on=loop) for each in _ON_A_LOOP}

    def named(name: str) -> Callable[[Task], Figures]:
        if name not in measurements:
            raise AttributeError(name)
        return measurements[name]

    return named
