"""The programs that a chaos run looks at, each a process with a client of its own; what to do is told as JSON.

A producer sends with `send` and with `send_soon` at once, to the same keys; each record's value begins with the number
it has among those of its key. A consumer is a member of the group and commits after each batch. Both write everything
into their journal, end by themselves at SIGTERM, and let errors that the client does not promise to survive end them.
SIGUSR1 makes a consumer's next batch take longer than `max_poll_interval`.
"""

import dataclasses
import json
import logging
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import trio

import ottla
from ottla.errors import CommitFailed, OttlaError
from ottla.sdk.client import Client
from ottla.sdk.consumer import Consumer, RebalanceListener
from ottla.sdk.produce.records import Receipt
from ottla.sdk.producer import Producer
from tests.chaos.journal import Journal, checksum

Role = Literal["producer", "consumer"]

KEYS = 40
"""Of each producer."""
LANES = 3
"""Tasks of a producer that wait for each receipt."""
PADDING = b" " + b"." * 200
TICK = 0.02
_MOMENTARY = re.compile(r"for 0\.\d s")
HANDLING = 0.002
"""Seconds that a consumer takes for a batch, at least."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a worker is told, as JSON. Durations in seconds."""

    role: Role
    name: str
    bootstrap: str
    topic: str
    journal: str
    seed: int
    rate: float = 100.0
    """Records a second, of a producer."""
    delivery_timeout: float = 90.0
    group: str = ""
    assignors: Sequence[str] = ()
    session_timeout: float = 10.0
    heartbeat_interval: float = 1.0
    max_poll_interval: float = 15.0

    @property
    def slowness(self) -> float:
        """How long the handler takes that SIGUSR1 asks for."""
        return self.max_poll_interval + 5.0


class DeliveryCallback(logging.Handler):
    """Writes what the client logs into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal
        self._plain = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def emit(self, record: logging.LogRecord) -> None:
        more = {key: str(value) for key, value in vars(record).items() if key not in self._plain}
        self._journal.write("log", record.levelname, record.getMessage(), more)


# -- a producer ------------------------------------------------------------------------------------------------------


class Sending:
    """What the tasks of a producer share."""

    def __init__(self, setup: Setup, journal: Journal, producer: Producer) -> None:
        self._setup, self._journal, self._producer = setup, journal, producer
        self._rng = random.Random(setup.seed)
        self._numbers = [0] * KEYS
        self.stopping = trio.Event()

    def _next(self, how: str) -> tuple[bytes, bytes, Callable[[Receipt | OttlaError], None]]:
        """The key and value of a new record, and whom to tell what became of it.

        No checkpoint may be between this and the call that accepts the record, or the numbers would not tell the order.
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
        """Send without waiting for receipts, half of the rate."""
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
        """Send and wait for each receipt; all these tasks together at most half of the rate."""
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


# -- a consumer ------------------------------------------------------------------------------------------------------


class Listener(RebalanceListener):
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.consumer: Consumer | None = None

    async def assigned(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        assert self.consumer is not None
        self._journal.write("assigned", {place[1]: self.consumer.position(*place) for place in places})

    async def revoked(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._journal.write("revoked", [partition for _, partition in places])

    async def lost(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._journal.write("lost", [partition for _, partition in places])


class Slowness:
    """Whether the next batch is to take long."""

    def __init__(self) -> None:
        self.asked = False

    async def listen(self) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            async for _ in signals:
                self.asked = True


async def consume(setup: Setup, journal: Journal, client: Client) -> None:
    listener, slowness = Listener(journal), Slowness()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slowness.listen)
        async with client.consumer(
            setup.topic,
            group=setup.group,
            assignors=setup.assignors,
            session_timeout=setup.session_timeout,
            heartbeat_interval=setup.heartbeat_interval,
            max_poll_interval=setup.max_poll_interval,
            listener=listener,
        ) as consumer:
            listener.consumer = consumer
            loop = trio.CancelScope()

            async def end() -> None:
                await terminated()
                loop.cancel()

            nursery.start_soon(end)
            with loop:
                while True:
                    await handle_next(setup, journal, consumer, slowness)
        nursery.cancel_scope.cancel()


async def handle_next(setup: Setup, journal: Journal, consumer: Consumer, slowness: Slowness) -> None:
    try:
        batch = await anext(consumer)
    except CommitFailed as error:
        journal.write("refused", str(error))
        return
    if records := batch.records:
        read = checksum((each.offset, each.key, each.value) for each in records)
        journal.write("batch", batch.partition, records[0].offset, records[-1].offset + 1, len(records), read)
    seconds = HANDLING
    if slowness.asked:
        slowness.asked, seconds = False, setup.slowness
        journal.write("slow", seconds)
    await trio.sleep(seconds)
    batch.commit_soon()


# -- both ------------------------------------------------------------------------------------------------------------


async def terminated() -> None:
    """Wait until somebody sends SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            return


async def explain(journal: Journal, client: Client) -> None:
    """Write down each second what the client waits for, unless it has just begun to."""
    while True:
        await trio.sleep(1)
        if told := [line for line in client.explain().splitlines() if not _MOMENTARY.search(line)]:
            journal.write("waiting", "\n".join(told))


async def main(setup: Setup, journal: Journal) -> None:
    async with ottla.connect(setup.bootstrap, client_id=setup.name) as client, trio.open_nursery() as nursery:
        nursery.start_soon(explain, journal, client)
        await (produce if setup.role == "producer" else consume)(setup, journal, client)
        nursery.cancel_scope.cancel()
    journal.write("ended")


if __name__ == "__main__":
    given = Setup(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is somebody to listen
    written = Journal(Path(given.journal))
    logging.getLogger("ottla").addHandler(DeliveryCallback(written))
    trio.run(main, given, written)
