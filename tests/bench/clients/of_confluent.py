"""confluent-kafka, tuned for throughput as librdkafka's documentation advises, or with its defaults.

With its defaults, its consumer stops for a second whenever its queue is full, and its producer is not idempotent.
Tuned, it is idempotent, as ottla is by default. It verifies no checksums in either case. A thread that only polls, as
in programs, delivers the receipts for its latencies.
"""

import itertools
import json
import queue
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.clients.task import (
    FLUSH_SECONDS,
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

_FETCH = {
    "fetch.max.bytes": 50 * 2**20,
    "max.partition.fetch.bytes": 10 * 2**20,
    "queued.min.messages": 10_000_000,
    "fetch.queue.backoff.ms": 5,
}
_BATCH = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
}
"""The first three are librdkafka's defaults. 50 ms, and also 100,000 messages, did not save processor time."""


def _broker(task: Task) -> dict[str, Any]:
    secured = {"security.protocol": "ssl", "ssl.ca.location": task.ca} if task.ca else {}
    return {"bootstrap.servers": task.bootstrap, **secured}


def _consumer(task: Task) -> Any:
    tuned = _FETCH if task.tuned else {}
    consumer = Consumer(_broker(task) | {"group.id": "bench", "enable.auto.commit": False} | tuned)
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in task.places])
    return consumer


def _producer(task: Task, **settings: Any) -> Any:
    tuned = _BATCH | {"enable.idempotence": True} if task.tuned else {}
    what = {"acks": "all", "compression.type": task.compression}
    producer = Producer(_broker(task) | what | tuned | settings)
    producer.produce(task.names[0], task.value)
    _flush(producer)
    return producer


def _flush(producer: Any) -> None:
    if left := producer.flush(FLUSH_SECONDS):
        raise TimeoutError(f"{left} records were not stored")


def consume(task: Task) -> Figures:
    consumer, meter = _consumer(task), Meter(task, warm_up=task.warm_up)
    while not meter.over:
        messages = consumer.consume(task.at_once, timeout=0.1)
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
            _value = message.value()
        if messages:
            meter.count(len(messages))
    figures = meter.figures()
    consumer.close()
    return figures


def _send(producer: Any, task: Task, meter: Meter, **told: Callable[[Any, Any], None]) -> None:
    [topic], records = task.names, task.records
    while not meter.over:
        _send_all(producer, topic, next(records), **told)
        meter.count(len(KEYS))
    _flush(producer)


def _send_all(
    producer: Any, topic: str, records: list[tuple[bytes, bytes]], **told: Callable[[Any, Any], None]
) -> None:
    produce = producer.produce
    for key, value in records:
        while True:
            try:
                produce(topic, value, key, **told)
                break
            except BufferError:
                producer.poll(0.01)
    producer.poll(0)


def produce(task: Task) -> Figures:
    producer = _producer(task)
    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        meter.start()
        _send(producer, task, meter)
        figures = meter.figures()
    return figures


def produce_many(task: Task) -> Figures:
    [topic], producer = task.names, _producer(task)
    records = task.records
    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        meter.start()
        while not meter.over:
            left = [{"key": key, "value": value} for key, value in next(records)]
            while producer.produce_batch(topic, left) < len(left):
                producer.poll(0.01)
                left = [each for each in left if each.pop("_error", None) is not None]
            producer.poll(0)
            meter.count(len(KEYS))
        _flush(producer)
        figures = meter.figures()
    return figures


def receipts(task: Task) -> Figures:
    producer, stored = _producer(task), 0

    def told(error: Any, message: Any) -> None:
        nonlocal stored
        stored += error is None

    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        stored = 0
        meter.start()
        _send(producer, task, meter, on_delivery=told)
        figures = meter.figures()
        assert stored == meter.records, f"{stored} stored of {meter.records}"
    return figures


def transactions(task: Task) -> Figures:
    [topic], portions, sent = task.names, task.portions, Requests()
    producer = _transactional(task, sent)
    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        before = sent.until_now(producer)
        meter.start()
        while not meter.over:
            producer.begin_transaction()
            for key, value in next(portions):
                producer.produce(topic, value, key)
            producer.commit_transaction()
            meter.count(TRANSACTION)
        figures = of_transactions(meter.figures(), sent.until_now(producer) - before)
    return figures


def long_transactions(task: Task) -> Figures:
    [topic], records = task.names, task.records
    producer = _transactional(task, Requests())
    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        meter.start()
        while not meter.over:
            end = time.perf_counter() + TRANSACTION_SECONDS
            producer.begin_transaction()
            while time.perf_counter() < end:
                _send_all(producer, topic, next(records))
                meter.count(len(KEYS))
            producer.commit_transaction()
        figures = meter.figures()
    return figures


class Requests:
    """The number of requests that a client has sent, from its periodic statistics."""

    def __init__(self) -> None:
        self._said: str | None = None
        self.settings = {"statistics.interval.ms": 200, "stats_cb": self._take}

    def _take(self, said: str) -> None:
        self._said = said

    def until_now(self, producer: Any) -> int:
        self._said, end = None, time.perf_counter() + FLUSH_SECONDS
        while self._said is None:
            if time.perf_counter() > end:
                raise TimeoutError("there are no statistics")
            producer.poll(0.1)
        return sum(sum(each["req"].values()) for each in json.loads(self._said)["brokers"].values())


def _transactional(task: Task, sent: Requests) -> Any:
    """Transactions that commit as soon as the last record is stored, whatever the linger time."""
    what = {"transactional.id": task.transactional_id, "compression.type": task.compression}
    producer = Producer(_broker(task) | what | _BATCH | {"socket.nagle.disable": True} | sent.settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(task.names[0], task.value)
    producer.commit_transaction()
    return producer


def paced(task: Task) -> Figures:
    [topic], value = task.names, task.value
    producer = _producer(task, **{"linger.ms": 0, "socket.nagle.disable": True})
    receipts, over = Acknowledgements(task), threading.Event()

    def told(sent: float, error: Any, message: Any) -> None:
        receipts.of(sent, failed=error is not None)

    def poll() -> None:
        while not over.is_set():
            producer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    for number, due in enumerate(receipts.pace()):
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        producer.produce(topic, value, KEYS[number % len(KEYS)], on_delivery=partial(told, time.perf_counter()))
    _flush(producer)
    over.set()
    polling.join()
    return receipts.figures()


def lone(task: Task) -> Figures:
    [topic], value = task.names, task.value
    producer = _producer(task, **{"linger.ms": 0, "socket.nagle.disable": True})
    receipts, told = Acknowledgements(task), [0]

    def stored(error: Any, message: Any) -> None:
        told[0] += error is None

    for number, sent in enumerate(receipts.one_by_one(), 1):
        producer.produce(topic, value, on_delivery=stored)
        while told[0] < number:
            producer.poll(1.0)
        receipts.of(sent)
    return receipts.figures()


def relayed(task: Task) -> Figures:
    """As `lone`, while a consumer waits at the end of the topic; its latency is measured, too."""
    [topic], value = task.names, task.value
    producer = _producer(task, **{"linger.ms": 0, "socket.nagle.disable": True})
    consumer, place = Consumer(_broker(task) | {"group.id": "bench", "enable.auto.commit": False}), (topic, 0)
    _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=FLUSH_SECONDS)
    consumer.assign([TopicPartition(*place, end)])
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                arrived.put(time.perf_counter())

    reader = threading.Thread(target=read)
    reader.start()
    receipts, told, latencies = Acknowledgements(task), [0], []

    def stored(error: Any, message: Any) -> None:
        told[0] += error is None

    for number, sent in enumerate(receipts.one_by_one(), 1):
        producer.produce(topic, value, partition=0, on_delivery=stored)
        while told[0] < number:
            producer.poll(1.0)
        receipts.of(sent)
        latencies.append(arrived.get(timeout=FLUSH_SECONDS) - sent)
    over.set()
    reader.join()
    consumer.close()
    parts = statistics.quantiles(latencies, n=100, method="inclusive")
    return receipts.figures() | {"read_p50_ms": parts[49] * 1e3, "read_p99_ms": parts[98] * 1e3}


def together(task: Task) -> Figures:
    """So many threads, each of which sends a record once the previous one is stored."""
    [topic], value = task.names, task.value
    producer, over, lock = _producer(task), threading.Event(), threading.Lock()

    def poll() -> None:
        while not over.is_set():
            producer.poll(0.1)

    def send(meter: Meter) -> None:
        stored = threading.Semaphore(0)
        for key in itertools.cycle(KEYS):
            producer.produce(topic, value, key, on_delivery=lambda error, message: stored.release())
            stored.acquire()
            with lock:
                meter.count(1)
            if meter.over:
                return

    polling = threading.Thread(target=poll)
    polling.start()
    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        meter.start()
        threads = [threading.Thread(target=send, args=(meter,)) for _ in range(task.together)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        figures = meter.figures()
    over.set()
    polling.join()
    return figures


def write_each(task: Task) -> Figures:
    watch = Stopwatch()
    producer = _producer(task)
    for topic, partition in task.places:
        producer.produce(topic, task.value, partition=partition)
    _flush(producer)
    figures = watch.ready()
    watch = Stopwatch()
    producer.poll(task.seconds)
    return figures | watch.idle()


def read_each(task: Task) -> Figures:
    watch, left = Stopwatch(), set(task.places)
    consumer = _consumer(task)
    while left:
        for message in consumer.consume(TAKEN_AT_ONCE, timeout=0.1):
            if not message.error():
                left.discard((message.topic(), message.partition()))
    figures = watch.ready()
    consumer.consume(1, timeout=task.seconds / 4)
    watch = Stopwatch()
    consumer.consume(1, timeout=task.seconds)
    figures |= watch.idle()
    consumer.close()
    return figures
