"""kafka-python, with batches of a size that suits it."""

import time
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


def _consumer(task: Task) -> Any:
    consumer = KafkaConsumer(group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **_broker(task))
    consumer.assign([TopicPartition(*place) for place in task.places])
    return consumer


def _producer(task: Task, **settings: Any) -> Any:
    tuned = {"linger_ms": 5, "batch_size": BATCH_BYTES, "acks": "all", "enable_idempotence": False} | settings
    compression = None if task.compression == "none" else task.compression
    producer = KafkaProducer(compression_type=compression, **_broker(task), **tuned)
    producer.send(task.names[0], task.value).get(FLUSH_SECONDS)
    return producer


def consume(task: Task) -> Figures:
    consumer, meter = _consumer(task), Meter(task, warm_up=task.warm_up)
    while not meter.over:
        for records in consumer.poll(timeout_ms=100, max_records=TAKEN_AT_ONCE).values():
            for record in records:
                _value = record.value
            meter.count(len(records))
    figures = meter.figures()
    consumer.close()
    return figures


def produce(task: Task) -> Figures:
    records = task.records
    [topic], producer = task.names, _producer(task)
    for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
        meter.start()
        while not meter.over:
            for key, value in next(records):
                producer.send(topic, value, key)
            meter.count(len(KEYS))
        producer.flush(FLUSH_SECONDS)
        figures = meter.figures()
    producer.close()
    return figures


def receipts(task: Task) -> Figures:
    records = task.records
    [topic], producer = task.names, _producer(task)
    stored = 0

    def told(metadata: Any) -> None:
        nonlocal stored
        stored += 1

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
    producer.close()
    return figures


def paced(task: Task) -> Figures:
    value = task.value
    [topic], producer = task.names, _producer(task, linger_ms=0)
    receipts = Acknowledgements(task)

    def stored(sent: float, metadata: Any) -> None:
        receipts.of(sent)

    def failed(sent: float, error: BaseException) -> None:
        receipts.of(sent, failed=True)

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
    figures = receipts.figures()
    producer.close()
    return figures


def lone(task: Task) -> Figures:
    value = task.value
    [topic], producer = task.names, _producer(task, linger_ms=0)
    receipts = Acknowledgements(task)
    for sent in receipts.one_by_one():
        producer.send(topic, value).get()
        receipts.of(sent)
    figures = receipts.figures()
    producer.close()
    return figures


def write_each(task: Task) -> Figures:
    watch = Stopwatch()
    producer = _producer(task)
    for topic, partition in task.places:
        producer.send(topic, task.value, partition=partition)
    producer.flush(FLUSH_SECONDS)
    figures = watch.ready()
    watch = Stopwatch()
    time.sleep(task.seconds)
    figures |= watch.idle()
    producer.close()
    return figures


def read_each(task: Task) -> Figures:
    watch, left = Stopwatch(), {TopicPartition(*place) for place in task.places}
    consumer = _consumer(task)
    while left:
        left -= consumer.poll(timeout_ms=100, max_records=TAKEN_AT_ONCE).keys()
    figures = watch.ready()
    consumer.poll(timeout_ms=task.seconds * 250)
    watch = Stopwatch()
    consumer.poll(timeout_ms=task.seconds * 1000)
    figures |= watch.idle()
    consumer.close()
    return figures
