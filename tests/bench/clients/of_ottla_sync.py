"""ottla for blocking code: like `of_ottla`, without await."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ottla.errors import OttlaError
from ottla.sdk.produce.records import DeliveryCallback, Receipt
from ottla.sync import Client, Producer, connect
from tests.bench.clients.of_ottla import requests, tls
from tests.bench.clients.task import (
    KEYS,
    TRANSACTION,
    TRANSACTION_SECONDS,
    Acknowledgements,
    Figures,
    Meter,
    Task,
    of_transactions,
)


def consume(task: Task) -> Figures:
    meter = Meter(task, warm_up=task.warm_up)
    with connect(task.bootstrap, tls=tls(task)) as client, client.consumer(*task.names) as consumer:
        for batch in consumer:
            count = 0
            for record in batch:
                _value = record.value
                count += 1
            meter.count(count)
            if meter.over:
                break
        return meter.figures()


def consume_columns(task: Task) -> Figures:
    meter = Meter(task, warm_up=task.warm_up)
    with connect(task.bootstrap, tls=tls(task)) as client, client.consumer(*task.names) as consumer:
        for batch in consumer:
            meter.count(len(batch.columns()))
            if meter.over:
                break
        return meter.figures()


def _produced(task: Task, send: Callable[[Producer, Meter], None]) -> Figures:
    """The figures of ``send`` at full speed, flushed in the end."""
    with connect(task.bootstrap, tls=tls(task)) as client, client.producer(compression=task.compression) as producer:
        producer.send(task.names[0], task.value)
        for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
            meter.start()
            send(producer, meter)
            producer.flush()
            figures = meter.figures()
        return figures


def produce(task: Task) -> Figures:
    [topic], records = task.names, task.records

    def send(producer: Producer, meter: Meter) -> None:
        while not meter.over:
            for key, value in next(records):
                producer.send_soon(topic, value, key=key)
            meter.count(len(KEYS))

    return _produced(task, send)


def produce_many(task: Task) -> Figures:
    [topic], values = task.names, task.values

    def send(producer: Producer, meter: Meter) -> None:
        while not meter.over:
            producer.send_many(topic, next(values), keys=KEYS)
            meter.count(len(KEYS))

    return _produced(task, send)


def _counted(task: Task, send: Callable[[Producer, DeliveryCallback], None]) -> Figures:
    """The figures of ``send`` for all keys over and over, with a callback for each record."""
    stored = failed = 0

    def told(result: Receipt | OttlaError) -> None:
        nonlocal stored, failed
        if isinstance(result, OttlaError):
            failed += 1
        else:
            stored += 1

    def send_all(producer: Producer, meter: Meter) -> None:
        nonlocal stored
        stored = 0
        while not meter.over:
            send(producer, told)
            meter.count(len(KEYS))
        producer.flush()
        assert stored == meter.records and not failed, f"{stored} stored, {failed} failed of {meter.records}"

    return _produced(task, send_all)


def receipts(task: Task) -> Figures:
    [topic], records = task.names, task.records

    def send(producer: Producer, told: DeliveryCallback) -> None:
        for key, value in next(records):
            producer.send_soon(topic, value, key=key, on_delivery=told)

    return _counted(task, send)


def receipts_many(task: Task) -> Figures:
    [topic], values = task.names, task.values
    return _counted(task, lambda producer, told: producer.send_many(topic, next(values), keys=KEYS, on_delivery=told))


def transactions(task: Task) -> Figures:
    [topic], portions = task.names, task.portions
    with _transactional(task) as (client, producer):
        for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
            sent = requests(client.metrics())
            meter.start()
            while not meter.over:
                with producer.transaction() as txn:
                    for key, value in next(portions):
                        txn.send_soon(topic, value, key=key)
                meter.count(TRANSACTION)
            figures = of_transactions(meter.figures(), requests(client.metrics()) - sent)
        return figures


def long_transactions(task: Task) -> Figures:
    [topic], records = task.names, task.records
    with _transactional(task) as (_, producer):
        for meter in (Meter(task, seconds=task.warm_up), Meter(task)):
            meter.start()
            while not meter.over:
                end = time.perf_counter() + TRANSACTION_SECONDS
                with producer.transaction() as txn:
                    while time.perf_counter() < end:
                        for key, value in next(records):
                            txn.send_soon(topic, value, key=key)
                        meter.count(len(KEYS))
            figures = meter.figures()
        return figures


@contextmanager
def _transactional(task: Task) -> Iterator[tuple[Client, Producer]]:
    with (
        connect(task.bootstrap, tls=tls(task)) as client,
        client.producer(compression=task.compression, transactional_id=task.transactional_id) as producer,
    ):
        with producer.transaction() as txn:
            txn.send(task.names[0], task.value)
        yield client, producer


def paced(task: Task) -> Figures:
    """A blocking call for each receipt: callbacks would only run within the next call."""
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)
    with connect(task.bootstrap, tls=tls(task)) as client, client.producer(linger=0.0) as producer:
        producer.send(topic, value)
        for number, due in enumerate(receipts.pace()):
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            sent = time.perf_counter()
            try:
                producer.send(topic, value, key=KEYS[number % len(KEYS)])
            except OttlaError:
                receipts.of(sent, failed=True)
            else:
                receipts.of(sent)
    return receipts.figures()


def lone(task: Task) -> Figures:
    [topic], value = task.names, task.value
    receipts = Acknowledgements(task)
    with connect(task.bootstrap, tls=tls(task)) as client, client.producer(linger=0.0) as producer:
        producer.send(topic, value)
        for sent in receipts.one_by_one():
            producer.send(topic, value)
            receipts.of(sent)
    return receipts.figures()


def together(task: Task) -> Figures:
    """So many threads, each of which sends a record once the previous one is stored."""
    [topic], value, lock = task.names, task.value, threading.Lock()

    def send_all(producer: Producer, meter: Meter) -> None:
        for key in itertools.cycle(KEYS):
            producer.send(topic, value, key=key)
            with lock:
                meter.count(1)
            if meter.over:
                return

    def send(producer: Producer, meter: Meter) -> None:
        with ThreadPoolExecutor(task.together) as pool:
            for sent in [pool.submit(send_all, producer, meter) for _ in range(task.together)]:
                sent.result()

    return _produced(task, send)
