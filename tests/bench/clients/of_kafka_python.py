"""kafka-python, with batches of a size that suits it."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.bench.clients.task import (
    FLUSH_SECONDS,
    KEYS,
    TAKEN_AT_ONCE,
    Acknowledgements,
    Figures,
    Meter,
    Stopwatch,
    Task,
)

BATCH_BYTES = 128 * 2**10


def _broker(task: Task) -> dict[str, Any]:
    secured = {"security_protocol": "SSL", "ssl_cafile": task.ca} if task.ca else {}
    return {"bootstrap_servers": task.bootstrap, **secured}


@contextlib.contextmanager
def _consumer(task: Task) -> Iterator[Any]:
    consumer = KafkaConsumer(group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **_broker(task))
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(*place) for place in task.places])
        yield consumer


@contextlib.contextmanager
def _producer(task: Task, **settings: Any) -> Iterator[Any]:
    tuned = {"linger_ms": 5, "batch_size": BATCH_BYTES, "acks": "all", "enable_idempotence": False} | settings
    compression = None if task.compression == "none" else task.compression
    producer = KafkaProducer(compression_type=compression, **_broker(task), **tuned)
    with contextlib.closing(producer):
        producer.send(task.names[0], task.value).get(FLUSH_SECONDS)
        yield producer


def consume(task: Task) -> Figures:
    meter = Meter(task, warm_up=task.warm_up)
    with _consumer(task) as consumer:
        while not meter.over:
            for records in consumer.poll(timeout_ms=100, max_records=TAKEN_AT_ONCE).values():
                for record in records:
                    _value = record.value
                meter.count(len(records))
        return meter.figures()


def produce(task: Task) -> Figures:
    [topic], records = task.names, task.records
    with _producer(task) as producer:
        for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
            meter.start()
            while not meter.over:
                for key, value in next(records):
                    producer.send(topic, value, key)
                meter.count(len(KEYS))
            producer.flush(FLUSH_SECONDS)
            figures = meter.figures()
        return figures


def receipts(task: Task) -> Figures:
    [topic], records = task.names, task.records
    stored = 0

    def told(metadata: Any) -> None:
        nonlocal stored
        stored += 1

    with _producer(task) as producer:
        for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
            stored = 0
            meter.start()
            while not meter.over:
                for key, value in next(records):
                    producer.send(topic, value, key).add_callback(told)
                meter.count(len(KEYS))
            producer.flush(FLUSH_SECONDS)
            figures = meter.figures()
            assert stored == meter.records, f"{stored} stored of {meter.records}"
        return figures


def paced(task: Task) -> Figures:
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)

    def stored(sent: float, metadata: Any) -> None:
        receipts.of(sent)

    def failed(sent: float, error: BaseException) -> None:
        receipts.of(sent, failed=True)

    with _producer(task, linger_ms=0) as producer:
        for number, due in enumerate(receipts.pace()):
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            sent = time.perf_counter()
            try:
                future = producer.send(topic, value, KEYS[number % len(KEYS)])
            except KafkaError:
                receipts.of(sent, failed=True)
            else:
                future.add_callback(partial(stored, sent)).add_errback(partial(failed, sent))
        producer.flush(FLUSH_SECONDS)
        return receipts.figures()


def lone(task: Task) -> Figures:
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)
    with _producer(task, linger_ms=0) as producer:
        for sent in receipts.one_by_one():
            producer.send(topic, value).get()
            receipts.of(sent)
        return receipts.figures()


def write_each(task: Task) -> Figures:
    watch = Stopwatch()
    with _producer(task) as producer:
        for topic, partition in task.places:
            producer.send(topic, task.value, partition=partition)
        producer.flush(FLUSH_SECONDS)
        figures = watch.ready()
        watch = Stopwatch()
        time.sleep(task.seconds)
        return figures | watch.idle()


def read_each(task: Task) -> Figures:
    watch, left = Stopwatch(), {TopicPartition(*place) for place in task.places}
    with _consumer(task) as consumer:
        while left:
            left -= consumer.poll(timeout_ms=100, max_records=TAKEN_AT_ONCE).keys()
        figures = watch.ready()
        consumer.poll(timeout_ms=task.seconds * 250)
        watch = Stopwatch()
        consumer.poll(timeout_ms=task.seconds * 1000)
        return figures | watch.idle()
