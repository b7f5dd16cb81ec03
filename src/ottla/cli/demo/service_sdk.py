"""Service A of the demo: odd flights, written by `ottla.sdk`, which places keys as Java clients do (murmur2)."""

import sys
from pathlib import Path

import trio

import ottla
from ottla.cli.demo.children import read_settings, report
from ottla.cli.demo.flights import read, records
from ottla.errors import OttlaError
from ottla.sdk.kafka_config import from_kafka_config

_STRIDE = 1000
"""Records between two reports."""


async def write(settings: str, topic: str, lines: list[str]) -> None:
    """Send the odd rows, and report how many were sent."""
    sent = 0
    options = from_kafka_config(read_settings(settings))
    async with ottla.connect(**options) as client, client.producer(compression="zstd", linger=0.02) as producer:
        for key, value in records(lines, odd=True):
            await producer.send_soon(topic, value, key=key)
            sent += 1
            if sent % _STRIDE == 0:
                report(sent=sent)
    report(sent=sent)  # leaving the block has waited until all of them are stored


def main(settings: str, topic: str, file: str, rows: str) -> None:
    try:
        trio.run(write, settings, topic, read(Path(file), int(rows)))
    except OttlaError as error:
        report(error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
