"""Service B of the demo: even flights, written by confluent-kafka, which places keys as librdkafka does (CRC-32)."""

import sys
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.cli.demo.children import read_settings, report
from ottla.cli.demo.flights import read, records
from ottla.errors import OttlaError

_STRIDE = 1000
"""Records between two reports."""
_FLUSH = 120.0
"""Seconds for the last records."""


def write(settings: str, topic: str, lines: list[str]) -> None:
    """Send the even rows, and report how many are stored.

    Raises:
        KafkaException: a record was refused.
    """
    stored = 0
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal stored
        if error is not None:
            refused.append(error)
            return
        stored += 1
        if stored % _STRIDE == 0:
            report(sent=stored)

    producer = Producer(
        read_settings(settings) | {"compression.type": "zstd", "linger.ms": 20, "enable.idempotence": True}
    )
    sent = 0
    for key, value in records(lines, odd=False):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:  # the queue is full: handle responses, and try again
                producer.poll(0.1)
        sent += 1
        producer.poll(0)
        if refused:
            raise KafkaException(refused[0])
    left = producer.flush(_FLUSH)
    if refused:
        raise KafkaException(refused[0])
    if left or stored != sent:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{sent - stored} of {sent} records are not stored"))
    report(sent=stored)


def main(settings: str, topic: str, file: str, rows: str) -> None:
    try:
        write(settings, topic, read(Path(file), int(rows)))
    except (OttlaError, KafkaException) as error:
        report(error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
