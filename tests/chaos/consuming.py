"""A consumer of a chaos run: a member of the group, which commits after each batch.

SIGUSR1 makes its next batch take longer than `max_poll_interval`.
"""

from collections.abc import Sequence

import trio

from ottla.errors import CommitFailed, LocalProtocolError
from ottla.sdk.client import Client
from ottla.sdk.consumer import Consumer, RebalanceListener
from tests.chaos.journal import Journal, checksum
from tests.chaos.setup import Setup
from tests.chaos.signals import Slowness, terminated

HANDLING = 0.002
"""Seconds that a consumer spends on a batch, at least."""


class JournalListener(RebalanceListener):
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def assigned(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._journal.write("assigned", {place[1]: _position(consumer, place) for place in places})

    async def revoked(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._journal.write("revoked", [partition for _, partition in places])

    async def lost(self, consumer: Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._journal.write("lost", [partition for _, partition in places])


async def consume(setup: Setup, journal: Journal, client: Client) -> None:
    listener, slowness = JournalListener(journal), Slowness()
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
    if slowness.take():
        seconds = setup.slowness
        journal.write("slow", seconds)
    await trio.sleep(seconds)
    batch.commit_soon()


def _position(consumer: Consumer, place: tuple[str, int]) -> int | None:
    """The position, or None if the client could not look it up within a second."""
    try:
        return consumer.position(*place)
    except LocalProtocolError:
        return None
