"""A teller of a chaos run: it makes transfers, each in a transaction, and polls the committed records of all tellers.

Sends and polls alternate within a transaction, as in Jepsen's workload for Kafka. A transfer takes an amount from the
topic `Setup.topic`, and puts it in parts into `Setup.output`. Some transfers are abandoned by an error, others by a
cancellation, which may come at any point of the block and of its end.

Rules:
- An error within the block ends the transaction. If the producer cannot recover from it, the next transaction raises.
- A fencing ends the program in good order. The judge decides whether a newer program or the transaction's age explains
  it.
- A transaction that never began to commit is recorded as aborted, and its records must not be visible. If its commit
  began before a cancellation or a fencing, its outcome is recorded as unknown.
"""

import math
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import trio

from ottla.errors import (
    OttlaError,
    ProducerFenced,
    TimeoutExpired,
    TransactionAborted,
)
from ottla.sdk.client import Client
from ottla.sdk.consumer import Consumer
from ottla.sdk.producer import Producer, Transaction
from tests.chaos.journal import Journal
from tests.chaos.setup import Setup
from tests.chaos.signals import terminated

Leg = tuple[str, bytes, int]
"""Topic, key and amount."""

SEEN_BEFORE = timedelta(seconds=15)
"""A new teller reads the records of this period again."""
PARTS = (1, 1, 2, 2, 3, 20)
"""Numbers of records that the credit may have."""
ENDS = {"commit": 80, "error": 10, "cancellation": 10}
IMPATIENCE = 0.15
"""Seconds within which a cancellation comes."""
POLL = 0.03
REWIND = 0.02
"""The share of polls before which the reader seeks backwards."""


class ChangedMind(Exception):
    """An error of the user's code, in the midst of a transaction."""


async def tell(setup: Setup, journal: Journal, client: Client) -> None:
    places = [(topic, number) for topic in (setup.topic, setup.output) for number in range(setup.partitions)]
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await terminated()
            stopping.set()

        nursery.start_soon(stop)
        try:
            async with (
                client.consumer(assign=dict.fromkeys(places, SEEN_BEFORE), isolation="read_committed") as reader,
                client.producer(
                    transactional_id=setup.transactional_id,
                    transaction_timeout=setup.transaction_timeout,
                    delivery_timeout=setup.delivery_timeout,
                ) as producer,
            ):
                teller = Teller(setup, journal, producer, reader, places)
                while not stopping.is_set():
                    due = trio.current_time() + 1 / setup.rate
                    await teller.transfer()
                    with trio.move_on_at(due):
                        await stopping.wait()
        except ProducerFenced as error:
            journal.write("fenced", str(error))
        nursery.cancel_scope.cancel()


class Teller:
    """Makes one transfer after the other."""

    def __init__(
        self,
        setup: Setup,
        journal: Journal,
        producer: Producer,
        reader: Consumer,
        places: Sequence[tuple[str, int]],
    ) -> None:
        self._setup, self._journal, self._producer, self._reader = setup, journal, producer, reader
        self._rng = random.Random(setup.seed)
        self._number = 0
        for place in places:
            journal.write("reads", *place, reader.position(*place))

    async def transfer(self) -> None:
        """Make one transaction, whatever its outcome.

        Raises:
            OttlaError: no transaction can follow: `ProducerFenced`, or an error that the client need not survive.
        """
        name, journal = f"{self._setup.name}-{self._number}", self._journal
        self._number += 1
        legs = self._legs(name)
        end = self._rng.choices(list(ENDS), list(ENDS.values()))[0]
        journal.write("begins", name, [(topic, key.decode(), amount) for topic, key, amount in legs])
        begun = asked = False
        outcome: Literal["committed", "aborted", "unknown"] = "aborted"
        why = ""
        try:
            with trio.move_on_after(self._rng.uniform(0, IMPATIENCE) if end == "cancellation" else math.inf) as scope:
                async with self._producer.transaction() as txn:
                    begun = True
                    journal.write("open", name)
                    await self._carry_out(txn, legs)
                    if end == "error":
                        raise ChangedMind
                    asked = True
                    journal.write("commits", name)
                outcome = "committed"
            if scope.cancelled_caught and asked:
                outcome = "unknown"
        except ChangedMind:
            pass
        except OttlaError as error:
            why = f"{type(error).__name__}: {error}"
            if asked and not isinstance(error, TransactionAborted):
                outcome = "unknown"
            of_a_send = begun and not asked
            if not (of_a_send or isinstance(error, (TransactionAborted, TimeoutExpired))):
                raise
        finally:
            journal.write("over", name, outcome, why)

    def _legs(self, name: str) -> list[Leg]:
        parts = [self._rng.randrange(1, 1000) for _ in range(self._rng.choice(PARTS))]
        debit, credit = self._setup.topic, self._setup.output
        legs = [
            (debit, name.encode(), -sum(parts)),
            *((credit, b"%b/%d" % (name.encode(), i), part) for i, part in enumerate(parts)),
        ]
        self._rng.shuffle(legs)
        return legs

    async def _carry_out(self, txn: Transaction, legs: Sequence[Leg]) -> None:
        """Send the legs, and poll in between."""
        for leg in legs:
            if self._rng.random() < 1.5 / len(legs):
                await self._poll()
            await self._send(txn, *leg)
        await self._poll()

    async def _send(self, txn: Transaction, topic: str, key: bytes, amount: int) -> None:
        partition = self._rng.choice((None, self._rng.randrange(self._setup.partitions)))
        match self._rng.choice(("send", "send_soon", "send_nowait", "send_many")):
            case "send":
                await txn.send(topic, b"%d" % amount, key=key, partition=partition)
            case "send_soon":
                await txn.send_soon(topic, b"%d" % amount, key=key, partition=partition)
            case "send_nowait":
                txn.send_nowait(topic, b"%d" % amount, key=key, partition=partition)
            case "send_many":
                await txn.send_many(topic, [b"%d" % amount], keys=[key])

    async def _poll(self) -> None:
        """Poll for available records or briefly wait for some; now and then seek backwards first."""
        if self._rng.random() < REWIND:
            place = self._rng.choice(self._reader.assignment)
            back = max(self._reader.position(*place) - self._rng.randrange(200), 0)
            try:
                await self._reader.seek({place: back})
            finally:  # a cancellation may have come before the seek
                self._journal.write("reads", *place, self._reader.position(*place))
        batch = await self._reader.poll(self._rng.choice((0.0, POLL)))
        if batch is not None:
            read = [(each.offset, (each.key or b"").decode(), int(each.value or b"")) for each in batch]
            self._journal.write("poll", batch.topic, batch.partition, batch.next_offset, read)
