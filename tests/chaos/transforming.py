"""A transformer of a chaos run: a member of the group that copies records, exactly once (`client.transform`).

Rules:
- A copy has the key and the value of its record. An error of the user's code ends some transactions.
- SIGUSR1 makes the next transaction take longer than `max_poll_interval`.
- A fencing ends the program in good order.
"""

import random

import trio

from ottla.errors import ProducerFenced, TransactionOutcomeUnknown
from ottla.sdk.client import Client
from ottla.sdk.transform import Batches, Transform
from tests.chaos.consuming import JournalListener
from tests.chaos.journal import Journal
from tests.chaos.setup import Setup
from tests.chaos.signals import Slowness, terminated
from tests.chaos.telling import ChangedMind

REGRET = 0.03
"""The share of transactions that an error ends."""
MOST = 200
"""The maximum number of records in a transaction."""


async def transform(setup: Setup, journal: Journal, client: Client) -> None:
    slowness = Slowness()
    rng = random.Random(setup.seed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slowness.listen)
        loop = trio.CancelScope()

        async def end() -> None:
            await terminated()
            loop.cancel()

        nursery.start_soon(end)
        try:
            async with client.transform(
                setup.topic,
                group=setup.group,
                transactional_id=setup.transactional_id,
                assignors=setup.assignors,
                session_timeout=setup.session_timeout,
                heartbeat_interval=setup.heartbeat_interval,
                max_poll_interval=setup.max_poll_interval,
                transaction_timeout=setup.transaction_timeout,
                delivery_timeout=setup.delivery_timeout,
                max_records=MOST,
                listener=JournalListener(journal),
            ) as transform:
                with loop:
                    number = 0
                    async for batches in transform:
                        name, number = f"{setup.name}-{number}", number + 1
                        slow = setup.slowness if slowness.take() else 0.0
                        await pass_on(setup, journal, transform, batches, name, slow, regret=rng.random() < REGRET)
        except ProducerFenced as error:
            journal.write("fenced", str(error))
        nursery.cancel_scope.cancel()


async def pass_on(
    setup: Setup,
    journal: Journal,
    transform: Transform,
    batches: Batches,
    name: str,
    slow: float,
    *,
    regret: bool,
) -> None:
    """Make one transaction, whatever its outcome."""
    journal.write("begins", name, [(b.partition, b.next_offset, len(b)) for b in batches.batches])
    txn = transform.transaction(batches)
    try:
        async with txn:
            journal.write("open", name)
            for record in batches:
                await txn.send_soon(setup.output, record.value, key=record.key)
            if slow:
                journal.write("slow", slow)
                await trio.sleep(slow)
            if regret:
                raise ChangedMind
            journal.write("commits", name)
    except (ChangedMind, TransactionOutcomeUnknown):
        pass  # the loop continues from the group's committed offsets
    finally:
        journal.write("over", name, {True: "committed", False: "aborted", None: "unknown"}[txn.committed], "")
