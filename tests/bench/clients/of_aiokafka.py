"""aiokafka with its C extension, tuned: batches and answers of a size that suits it; or with its defaults."""

import asyncio
import contextlib
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.bench.clients.task import (
    KEYS,
    TAKEN_AT_ONCE,
    TRANSACTION,
    TRANSACTION_SECONDS,
    Acknowledgements,
    Figures,
    Meter,
    Stopwatch,
    Task,
    of_transactions,
)

_FETCH = {"max_partition_fetch_bytes": 10 * 2**20}
_BATCH = {"linger_ms": 5, "max_batch_size": 128 * 2**10}


def _broker(task: Task) -> dict[str, Any]:
    secured = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=task.ca)} if task.ca else {}
    return {"bootstrap_servers": task.bootstrap, **secured}


@contextlib.asynccontextmanager
async def _consumer(task: Task) -> AsyncIterator[Any]:
    settings = _broker(task) | (_FETCH if task.tuned else {})
    consumer = AIOKafkaConsumer(group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **settings)
    try:  # `async with consumer` would not stop it after a failed start
        await consumer.start()
        consumer.assign([TopicPartition(*place) for place in task.places])
        yield consumer
    finally:
        await consumer.stop()


@contextlib.asynccontextmanager
async def _producer(task: Task, **settings: Any) -> AsyncIterator[Any]:
    tuned = {"acks": "all"} | (_BATCH if task.tuned else {}) | settings
    compression = None if task.compression == "none" else task.compression
    producer = AIOKafkaProducer(compression_type=compression, **_broker(task), **tuned)
    try:
        await producer.start()
        async with producer.transaction() if "transactional_id" in settings else contextlib.nullcontext():
            await producer.send_and_wait(task.names[0], task.value)
        yield producer
    finally:
        await producer.stop()


def consume(task: Task) -> Figures:
    async def run() -> Figures:
        meter = Meter(task, warm_up=task.warm_up)
        async with _consumer(task) as consumer:
            while not meter.over:
                found = await consumer.getmany(timeout_ms=100, max_records=task.at_once)
                for records in found.values():
                    for record in records:
                        _value = record.value
                    meter.count(len(records))
            return meter.figures()

    return asyncio.run(run())


def _produced(task: Task, send: Callable[[Any, Meter], Awaitable[None]]) -> Figures:
    async def run() -> Figures:
        async with _producer(task) as producer:
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                meter.start()
                await send(producer, meter)
                await producer.flush()
                figures = meter.figures()
            return figures

    return asyncio.run(run())


def produce(task: Task) -> Figures:
    [topic], records = task.names, task.records

    async def send(producer: Any, meter: Meter) -> None:
        while not meter.over:
            for key, value in next(records):
                await producer.send(topic, value, key)
            meter.count(len(KEYS))

    return _produced(task, send)


def receipts(task: Task) -> Figures:
    [topic], records = task.names, task.records
    stored = 0

    def told(future: "asyncio.Future[Any]") -> None:
        nonlocal stored
        stored += future.exception() is None

    async def send(producer: Any, meter: Meter) -> None:
        nonlocal stored
        stored = 0
        while not meter.over:
            for key, value in next(records):
                (await producer.send(topic, value, key)).add_done_callback(told)
            meter.count(len(KEYS))
        await producer.flush()
        while stored < meter.records:
            await asyncio.sleep(0)

    return _produced(task, send)


def transactions(task: Task) -> Figures:
    [topic], portions = task.names, task.portions

    async def run() -> Figures:
        async with _producer(task, transactional_id=task.transactional_id) as producer:
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                sent = _requests(producer)
                meter.start()
                while not meter.over:
                    async with producer.transaction():
                        for key, value in next(portions):
                            await producer.send(topic, value, key)
                    meter.count(TRANSACTION)
                figures = of_transactions(meter.figures(), _requests(producer) - sent)
            return figures

    return asyncio.run(run())


def long_transactions(task: Task) -> Figures:
    [topic], records = task.names, task.records

    async def run() -> Figures:
        async with _producer(task, transactional_id=task.transactional_id) as producer:
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                meter.start()
                while not meter.over:
                    end = time.perf_counter() + TRANSACTION_SECONDS
                    async with producer.transaction():
                        while time.perf_counter() < end:
                            for key, value in next(records):
                                await producer.send(topic, value, key)
                            meter.count(len(KEYS))
                figures = meter.figures()
            return figures

    return asyncio.run(run())


def _requests(producer: Any) -> int:
    """The number of requests it has sent: it has no metrics, but numbers requests on each connection from 0 on."""
    return sum(each._correlation_id for each in producer.client._conns.values())


def paced(task: Task) -> Figures:
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)

    def told(sent: float, future: "asyncio.Future[Any]") -> None:
        receipts.of(sent, failed=future.exception() is not None)

    async def run() -> None:
        async with _producer(task, linger_ms=0) as producer:
            for number, due in enumerate(receipts.pace()):
                if (left := due - time.perf_counter()) > 0:
                    await asyncio.sleep(left)
                sent = time.perf_counter()
                try:
                    future = await producer.send(topic, value, KEYS[number % len(KEYS)])
                except KafkaError:
                    receipts.of(sent, failed=True)
                else:
                    future.add_done_callback(partial(told, sent))
            await producer.flush()

    asyncio.run(run())
    return receipts.figures()


def lone(task: Task) -> Figures:
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)

    async def run() -> None:
        async with _producer(task, linger_ms=0) as producer:
            for sent in receipts.one_by_one():
                await producer.send_and_wait(topic, value)
                receipts.of(sent)

    asyncio.run(run())
    return receipts.figures()


def together(task: Task) -> Figures:
    """So many tasks, each of which awaits the receipt of a record before it sends the next."""
    [topic], value = task.names, task.value

    async def send(producer: Any, meter: Meter) -> None:
        for key in itertools.cycle(KEYS):
            await producer.send_and_wait(topic, value, key)
            meter.count(1)
            if meter.over:
                return

    async def run() -> Figures:
        async with _producer(task, enable_idempotence=task.idempotent) as producer:
            for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
                meter.start()
                async with asyncio.TaskGroup() as group:
                    for _ in range(task.together):
                        group.create_task(send(producer, meter))
                figures = meter.figures()
            return figures

    return uvloop.run(run()) if task.loop == "uvloop" else asyncio.run(run())


def write_each(task: Task) -> Figures:
    async def run() -> Figures:
        watch = Stopwatch()
        async with _producer(task) as producer:
            for topic, partition in task.places:
                await producer.send(topic, task.value, partition=partition)
            await producer.flush()
            figures = watch.ready()
            watch = Stopwatch()
            await asyncio.sleep(task.seconds)
            return figures | watch.idle()

    return asyncio.run(run())


def read_each(task: Task) -> Figures:
    async def run() -> Figures:
        watch, left = Stopwatch(), {TopicPartition(*place) for place in task.places}
        async with _consumer(task) as consumer:
            while left:
                left -= (await consumer.getmany(timeout_ms=100, max_records=TAKEN_AT_ONCE)).keys()
            figures = watch.ready()
            await consumer.getmany(timeout_ms=int(task.seconds * 250))
            watch = Stopwatch()
            await consumer.getmany(timeout_ms=int(task.seconds * 1000))
            return figures | watch.idle()

    return asyncio.run(run())
