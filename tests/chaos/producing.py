"""A producer of a chaos run: it uses `send` and `send_soon` at the same time, for the same keys.

The value of a record begins with its number among the records of its key.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import trio

from ottla.errors import OttlaError
from ottla.sdk.client import Client
from ottla.sdk.produce.records import Receipt
from ottla.sdk.producer import Producer
from tests.chaos.journal import Journal
from tests.chaos.setup import Setup
from tests.chaos.signals import terminated

KEYS = 40
"""The number of a producer's keys."""
LANES = 3
"""The number of a producer's tasks that wait for each receipt."""
PADDING = b" " + b"." * 200
TICK = 0.02


class Sending:
    """The state that the tasks of a producer share."""

    def __init__(self, setup: Setup, journal: Journal, producer: Producer) -> None:
        self._setup, self._journal, self._producer = setup, journal, producer
        self._rng = random.Random(setup.seed)
        self._numbers = [0] * KEYS
        self.stopping = trio.Event()

    def _next(self, how: str) -> tuple[bytes, bytes, Callable[[Receipt | OttlaError], None]]:
        """The key and value of a new record, and the callback for its receipt or error.

        No checkpoint may be between this and the call that accepts the record: numbers must follow the order of calls.
        """
        key = self._rng.randrange(KEYS)
        number = self._numbers[key]
        self._numbers[key] += 1
        name, start, journal = f"{self._setup.name}-{key}", time.monotonic(), self._journal
        journal.write("sent", name, number, how)

        def told(result: Receipt | OttlaError) -> None:
            taken = round(time.monotonic() - start, 4)
            if isinstance(result, OttlaError):
                journal.write("failed", name, number, f"{type(result).__name__}: {result}", taken)
            else:
                journal.write("acked", name, number, result.partition, result.offset, taken)

        return name.encode(), b"%d" % number + PADDING, told

    async def many(self) -> None:
        """Send at half of the rate, without waiting for receipts."""
        owed, before = 0.0, trio.current_time()
        while not self.stopping.is_set():
            with trio.move_on_after(TICK):
                await self.stopping.wait()
            now = trio.current_time()
            owed, before = min(owed + (now - before) * self._setup.rate / 2, 100.0), now
            while owed >= 1.0:
                owed -= 1.0
                key, value, told = self._next("send_soon")
                try:
                    await self._producer.send_soon(self._setup.topic, value, key=key, on_delivery=told)
                except OttlaError as error:
                    told(error)

    async def one_by_one(self) -> None:
        """Send and wait for each receipt; all these tasks together have at most half of the rate."""
        pause = 2 * LANES / self._setup.rate
        while not self.stopping.is_set():
            due = trio.current_time() + pause
            key, value, told = self._next("send")
            try:
                told(await self._producer.send(self._setup.topic, value, key=key))
            except OttlaError as error:
                told(error)
            with trio.move_on_at(due):
                await self.stopping.wait()


async def produce(setup: Setup, journal: Journal, client: Client) -> None:
    compression = random.Random(setup.seed).choice(["none", "lz4", "zstd", "snappy", "gzip"])
    options: dict[str, Any] = {"linger": 0.01, "compression": compression, "delivery_timeout": setup.delivery_timeout}
    async with client.producer(**options) as producer, trio.open_nursery() as nursery:
        sending = Sending(setup, journal, producer)
        nursery.start_soon(sending.many)
        for _ in range(LANES):
            nursery.start_soon(sending.one_by_one)
        await terminated()
        sending.stopping.set()
