"""Scenarios of share consumers, as in `tests.sdk.cancelling`: a cancellation loses no record and no acknowledgement.

A record that was acknowledged before the cancellation stays acknowledged. A record that was not handed out yet, or that
its block released, comes again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ottla.codec.apis.share_fetch import ACCEPT
from ottla.sdk.client import Client
from ottla.sdk.share_consumer import ShareConsumer, SharedRecord
from tests.sdk.cancelling import Fate, Run, scenario

VALUES = [b"%d" % number for number in range(4)]
SHARING = ("ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat")
"""Requests that a share consumer sends by itself."""

Work = Callable[[ShareConsumer, list[SharedRecord]], Awaitable[None]]


@asynccontextmanager
async def clients(run: Run) -> AsyncIterator[Client]:
    """A topic, and a share group that begins with its first record; in the end every record has to be accepted."""
    await run.topic("t", VALUES)
    async with run.connect() as client:
        await client.reset_share_offsets("g", "beginning", topics=["t"], execute=True)
        yield client
        assert not (await client.describe_share_group("g")).members, "a member is left"
        progress = (await client.share_offsets("g"))["t", 0]
        assert (progress.start, progress.lag) == (len(VALUES), 0), "an acknowledgement was lost"
        await run.rest(client)


@asynccontextmanager
async def sharing(run: Run, **options: Any) -> AsyncIterator[ShareConsumer]:
    async with clients(run) as client, client.share_consumer("t", group="g", **options) as jobs:
        yield jobs


def accepted(handed: list[SharedRecord]) -> list[bytes]:
    return sorted(each.value or b"" for each in handed if each._locked.kind == ACCEPT)


async def accept_all(jobs: ShareConsumer, handed: list[SharedRecord]) -> None:
    """A user's loop, until each record is accepted."""
    while len(accepted(handed)) < len(VALUES):
        record = await anext(jobs)
        handed.append(record)
        async with record:
            pass


async def accept_rest(jobs: ShareConsumer, handed: list[SharedRecord]) -> None:
    """Accept each record that is left; none of them stays locked, which would take 30 s."""
    while len(accepted(handed)) < len(VALUES):
        record = await jobs.poll(20.0)
        assert record is not None, "a record stays locked"
        handed.append(record)
        await record.accept()


async def accept_by_polling(jobs: ShareConsumer, handed: list[SharedRecord]) -> None:
    """The same with `poll`, whose timeout passes at the start."""
    await jobs.poll(0.0)
    while len(accepted(handed)) < len(VALUES):
        if (record := await jobs.poll(1.0)) is not None:
            handed.append(record)
            record.accept_soon()


async def accept_by_asking(jobs: ShareConsumer, handed: list[SharedRecord]) -> None:
    """The same with `acknowledge="implicit"`."""
    while len(handed) < len(VALUES):
        handed.append(await anext(jobs))
    await jobs.poll(0.0)


def once(handed: list[SharedRecord]) -> None:
    """Each record was accepted once, and each handing out was a delivery of its own."""
    assert accepted(handed) == VALUES
    for value in VALUES:
        counts = [each.delivery_count for each in handed if each.value == value]
        assert counts == list(range(1, len(counts) + 1))


async def _worked(run: Run, work: Work, **options: Any) -> None:
    """Cancel the loop anywhere; another one continues."""
    handed: list[SharedRecord] = []
    async with sharing(run, **options) as jobs:
        await run.cancelling(lambda: work(jobs, handed))
        await accept_rest(jobs, handed)
        once(handed)


@scenario(ShareConsumer, "__anext__", *SHARING)
async def accepting_each_record(run: Run) -> None:
    await _worked(run, accept_all)


@scenario(ShareConsumer, "__anext__", *SHARING)
async def accepting_implicitly(run: Run) -> None:
    await _worked(run, accept_by_asking, acknowledge="implicit")


@scenario(ShareConsumer, "poll", *SHARING)
async def polling_for_records(run: Run) -> None:
    await _worked(run, accept_by_polling)


@scenario(ShareConsumer, "__aenter__", *SHARING)
async def opening_a_share_consumer(run: Run) -> None:
    async with clients(run) as client:
        consumer = client.share_consumer("t", group="g")
        fate = await run.cancelling(lambda: consumer.__aenter__())
        if not fate.cancelled:
            await consumer.__aexit__(None, None, None)
        handed: list[SharedRecord] = []
        async with client.share_consumer("t", group="g") as jobs:
            await accept_rest(jobs, handed)
        once(handed)


async def _left(run: Run, error: BaseException | None) -> None:
    """Cancel the end of a block: two records are accepted, and the others come again."""
    async with clients(run) as client:
        consumer = client.share_consumer("t", group="g")
        await consumer.__aenter__()
        handed = [await anext(consumer) for _ in range(3)]
        for each in handed[:2]:
            each.accept_soon()
        fate = await run.cancelling(lambda: consumer.__aexit__(type(error) if error else None, error, None))
        if _dropped(fate):  # the client could not wait for the result
            handed = handed[: (await client.share_offsets("g"))["t", 0].start]
        async with client.share_consumer("t", group="g") as jobs:
            await accept_rest(jobs, handed)
        assert accepted(handed) == VALUES


def _dropped(fate: Fate) -> bool:
    return type(fate.error).__name__ == "Dropped"


@scenario(ShareConsumer, "__aexit__", *SHARING)
async def leaving_a_share_consumer(run: Run) -> None:
    await _left(run, None)


@scenario(ShareConsumer, "__aexit__", *SHARING)
async def leaving_a_share_consumer_by_an_error(run: Run) -> None:
    await _left(run, ValueError("the user's"))


@scenario(ShareConsumer, "flush", *SHARING)
async def flushing_acknowledgements(run: Run) -> None:
    async with sharing(run) as jobs:
        for _ in VALUES:
            (await anext(jobs)).accept_soon()
        await run.cancelling(jobs.flush)
        await jobs.flush()


@scenario(Client, "__aexit__", *SHARING)
async def leaving_a_client_before_its_share_consumer(run: Run) -> None:
    await run.topic("t", VALUES)
    client = run.connect()
    await client.__aenter__()
    await client.reset_share_offsets("g", "beginning", topics=["t"], execute=True)
    consumer = client.share_consumer("t", group="g")
    await consumer.__aenter__()
    record = await anext(consumer)
    record.accept_soon()
    fate = await run.cancelling(lambda: client.__aexit__(None, None, None))
    async with run.connect() as other:
        assert _dropped(fate) or not (await other.describe_share_group("g")).members, "the member has not left"
        assert _dropped(fate) or (await other.share_offsets("g"))["t", 0].start == 1, "an acknowledgement was lost"
        await run.rest(other)


# -- one record --------------------------------------------------------------------------------------------------------


async def _acknowledged(run: Run, call: Callable[[SharedRecord], Awaitable[None]], deliveries: int = 1) -> None:
    """Cancel an acknowledgement: it has had no effect, and may be repeated, or it counts."""
    handed: list[SharedRecord] = []
    async with sharing(run) as jobs:
        record = await anext(jobs)
        await run.cancelling(lambda: call(record))
        if record._locked.kind is None:
            await call(record)
        await jobs.flush()
        if record._locked.kind is None:  # it was renewed
            await record.accept()
        handed.append(record)
        while len(handed) < len(VALUES) + deliveries - 1:
            handed.append(await anext(jobs))
            await handed[-1].accept()
        counts = [each.delivery_count for each in handed if each.value == record.value]
        assert counts == list(range(1, deliveries + 1))


@scenario(SharedRecord, "accept", *SHARING)
async def accepting(run: Run) -> None:
    await _acknowledged(run, lambda record: record.accept())


@scenario(SharedRecord, "release", *SHARING)
async def releasing(run: Run) -> None:
    await _acknowledged(run, lambda record: record.release(), deliveries=2)


@scenario(SharedRecord, "reject", *SHARING)
async def rejecting(run: Run) -> None:
    await _acknowledged(run, lambda record: record.reject())


@scenario(SharedRecord, "renew", *SHARING)
async def renewing(run: Run) -> None:
    await _acknowledged(run, lambda record: record.renew())


@scenario(SharedRecord, "__aenter__", *SHARING)
async def entering_the_block_of_a_record(run: Run) -> None:
    handed: list[SharedRecord] = []
    async with sharing(run) as jobs:
        handed.append(await anext(jobs))
        await run.cancelling(lambda: handed[0].__aenter__())
        await handed[0].accept()
        await accept_rest(jobs, handed)
        once(handed)


async def _block_left(run: Run, error: BaseException | None) -> None:
    """Cancel the end of a record's block: the record is accepted, or comes again."""
    handed: list[SharedRecord] = []
    async with sharing(run) as jobs:
        handed.append(await anext(jobs))
        await run.cancelling(lambda: handed[0].__aexit__(type(error) if error else None, error, None))
        assert handed[0]._locked.kind is not None
        await accept_rest(jobs, handed)
        once(handed)


@scenario(SharedRecord, "__aexit__", *SHARING)
async def leaving_the_block_of_a_record(run: Run) -> None:
    await _block_left(run, None)


@scenario(SharedRecord, "__aexit__", *SHARING)
async def leaving_the_block_of_a_record_by_an_error(run: Run) -> None:
    await _block_left(run, ValueError("the user's"))
