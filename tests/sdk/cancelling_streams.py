"""Scenarios of producers and consumers, as in `tests.sdk.cancelling`: a cancellation loses and repeats no record."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ottla.errors import BufferFull, DeliveryFailed, OttlaError
from ottla.sdk.client import Client
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consumer import Batch, Consumer, RebalanceListener
from ottla.sdk.producer import Producer
from tests.sdk.cancelling import GOODBYES, Fate, Run, committed, scenario

VALUES = [b"%02d" % number for number in range(12)]
BATCHES = [VALUES[start : start + 2] for start in range(0, 12, 2)]
ONE_BATCH = {"partition_max_bytes": 100}
"""Options that limit a Fetch to one batch."""


# -- producers ---------------------------------------------------------------------------------------------------------


def accepted(producer: Producer, results: Sequence[object] = ()) -> int:
    """The number of records that the producer has accepted, including those with a callback in ``results``."""
    return producer._core.pending + len(results)


def whole(producer: Producer) -> None:
    """All buffer memory is free, and no call waits for it."""
    core = producer._core
    assert core.appends.free == core._options.buffer_memory and not core.pending and not core._turns


@asynccontextmanager
async def producing(run: Run, **options: Any) -> AsyncIterator[tuple[Client, Producer]]:
    await run.topic("t")
    async with run.connect() as client, client.producer(**options) as producer:
        yield client, producer
        await producer.flush()
        whole(producer)
        await run.rest(client)


async def once(run: Run, *values: bytes) -> None:
    assert await run.stored("t") == list(values)


@scenario(Producer, "__aenter__")
async def opening_a_producer(run: Run) -> None:
    await run.topic("t")
    async with run.connect() as client:
        producer = client.producer()
        fate = await run.cancelling(lambda: producer.__aenter__())
        assert not fate.cancelled
        await producer.send("t", b"0")
        await producer.__aexit__(None, None, None)
        await run.rest(client)
    await once(run, b"0")


async def _sent(run: Run, send: Callable[[Producer], Awaitable[Any]], **options: Any) -> None:
    """Cancel a send: its record is stored if the producer had accepted it when the call ended."""
    async with producing(run, **options) as (client, producer):
        fate = await run.cancelling(lambda: send(producer))
        was = accepted(producer) or len(await run.stored("t"))
        await run.rest(client)
        await producer.send("t", b"again")
        await run.rest(client)
        assert fate.cancelled or was
    await once(run, *[b"0"] * bool(was), b"again")


@scenario(Producer, "send", "Produce")
async def sending(run: Run) -> None:
    await _sent(run, lambda producer: producer.send("t", b"0"))


@scenario(Producer, "send_soon", "Produce")
async def sending_soon(run: Run) -> None:
    await _sent(run, lambda producer: producer.send_soon("t", b"0"))


@scenario(Producer, "send_soon", "Produce")
async def sending_soon_what_is_out_of_the_ordinary(run: Run) -> None:
    await _sent(run, lambda producer: producer.send_soon("t", b"0", headers=[("h", b"")]))


@scenario(Producer, "send_soon", "Produce")
async def sending_to_one_replica(run: Run) -> None:
    await _sent(run, lambda producer: producer.send_soon("t", b"0"), acks=1)


async def _sent_into_a_full_buffer(run: Run, send: Callable[[Producer, Any], Awaitable[Any]]) -> None:
    """Cancel a send that waits for buffer space: its record is sent and called back if the producer accepted it."""
    results: list[object] = []
    async with producing(run, buffer_memory=8192, linger=0.5) as (client, producer):
        await producer.send("t", b"first")
        run.hold()
        filled = 0
        while True:
            try:
                producer.send_nowait("t", bytes(1000), on_delivery=results.append)
            except BufferFull:
                break
            filled += 1
        run.answer_in(0.01)
        fate = await run.cancelling(lambda: send(producer, results.append))
        run.answer_in(0.01)
        was = accepted(producer, results) > filled or b"late" in await run.stored("t")
        await run.rest(client)
        whole(producer)
        await producer.send("t", b"again")
        await run.rest(client)
    values = await run.stored("t")
    assert values[0] == b"first" and values[-1] == b"again"
    assert values[1:-1] == [bytes(1000)] * filled + [b"late"] * was and (fate.cancelled or was)


@scenario(Producer, "send", "Produce")
async def sending_into_a_full_buffer(run: Run) -> None:
    await _sent_into_a_full_buffer(run, lambda producer, _: producer.send("t", b"late"))


@scenario(Producer, "send_soon", "Produce")
async def sending_soon_into_a_full_buffer(run: Run) -> None:
    await _sent_into_a_full_buffer(run, lambda producer, result: producer.send_soon("t", b"late", on_delivery=result))


@scenario(Producer, "send_many", "Produce")
async def sending_many_into_a_full_buffer(run: Run) -> None:
    await _sent_into_a_full_buffer(run, lambda producer, result: producer.send_many("t", [b"late"], on_delivery=result))


async def _refused(run: Run, send: Callable[[Producer], Awaitable[Any]], **options: Any) -> None:
    """Cancel a send of a record that is too large for its topic: this call or the next one reports the error."""
    await run.topic("t", max_message_bytes="200")
    told: list[OttlaError] = []
    async with run.connect() as client, client.producer(**options) as producer:
        await producer.send("t", b"0")
        fate = await run.cancelling(lambda: send(producer))
        told += [fate.error] if isinstance(fate.error, OttlaError) else []
        was = bool(accepted(producer) or producer._core._deliveries.to_raise)
        await run.rest(client)
        try:
            await producer.flush()
        except DeliveryFailed as failed:
            told.append(failed)
        assert len(told) == (not fate.cancelled or was), f"accepted: {was}, told: {told}"
        whole(producer)
        await producer.send("t", b"again")
        await run.rest(client)
    await once(run, b"0", b"again")


@scenario(Producer, "send", "Produce")
async def sending_what_is_refused(run: Run) -> None:
    await _refused(run, lambda producer: producer.send("t", bytes(500)))


@scenario(Producer, "send_soon", "Produce")
async def sending_soon_what_is_refused(run: Run) -> None:
    await _refused(run, lambda producer: producer.send_soon("t", bytes(500)))


@scenario(Producer, "send", "Produce")
async def sending_what_waits_for_room_and_is_refused(run: Run) -> None:
    await run.topic("t", max_message_bytes="3000")
    told: list[object] = []
    results: list[object] = []
    async with run.connect() as client, client.producer(buffer_memory=8192, linger=0.5) as producer:
        await producer.send("t", b"first")
        run.hold()
        producer.send_nowait("t", bytes(2500), on_delivery=results.append)
        run.answer_in(0.01)
        fate = await run.cancelling(lambda: producer.send("t", bytes(5000)))
        told += [fate.error] if isinstance(fate.error, OttlaError) else []
        run.answer_in(0.01)
        was = accepted(producer, results) > 1 or producer._core._deliveries.to_raise
        await run.rest(client)
        try:
            await producer.flush()
        except DeliveryFailed as failed:
            told.append(failed)
        assert len(told) == bool(was or not fate.cancelled), f"accepted: {was}, told: {told}"
        whole(producer)
        await run.rest(client)
    await once(run, b"first", bytes(2500))


@scenario(Producer, "send_many", "Produce")
async def sending_many(run: Run) -> None:
    results: list[object] = []
    async with producing(run) as (client, producer):
        fate = await run.cancelling(lambda: producer.send_many("t", VALUES, on_delivery=results.append))
        was = accepted(producer, results)
        await run.rest(client)
        await producer.send_many("t", VALUES[was:], on_delivery=results.append)
        await producer.flush()
        await run.rest(client)
        assert fate.cancelled or was == len(VALUES)
    assert len(results) == len(VALUES)
    await once(run, *VALUES)


@scenario(Producer, "send_many", "Produce")
async def sending_more_than_fits_the_buffer(run: Run) -> None:
    values = [b"%03d" % number * 200 for number in range(40)]
    results: list[object] = []
    async with producing(run, buffer_memory=8192) as (client, producer):
        await run.cancelling(lambda: producer.send_many("t", values, on_delivery=results.append))
        was = accepted(producer, results)
        await run.rest(client)
        await producer.send_many("t", values[was:], on_delivery=results.append)
        await producer.flush()
        await run.rest(client)
    assert len(results) == len(values)
    await once(run, *values)


@scenario(Producer, "flush", "Produce")
async def flushing(run: Run) -> None:
    results: list[object] = []
    async with producing(run, linger=0.5) as (client, producer):
        for value in VALUES:
            producer.send_nowait("t", value, on_delivery=results.append)
        await run.cancelling(producer.flush)
        await producer.flush()
        assert len(results) == len(VALUES)
        await run.rest(client)
    await once(run, *VALUES)


async def _left(run: Run, leave: Callable[[Producer], Awaitable[Any]], **options: Any) -> None:
    await run.topic("t")
    results: list[object] = []
    async with run.connect() as client:
        producer: Producer = client.producer(linger=0.5, **options)
        await producer.__aenter__()
        for value in VALUES:
            producer.send_nowait("t", value, on_delivery=results.append)
        fate = await run.cancelling(lambda: leave(producer))
        await run.sleep(0.0)  # after a dropped call, the callbacks run in the loop's next turn
        assert len(results) == len(VALUES), "each record is called back"
        stored = [each for each in results if not isinstance(each, OttlaError)]
        whole(producer)
        await run.rest(client)
        assert (
            not fate.cancelled or _dropped(fate) or len(stored) == len(VALUES) or "not have been stored" in fate.notes
        )
        async with client.producer() as other:
            await other.send("t", b"again")
        await run.rest(client)
    # A producer that was dropped instead of awaited may have sent its records, though their callbacks got an error.
    values = await run.stored("t")
    assert values in ([*VALUES, b"again"], *([[b"again"]] if _dropped(fate) else []))


def _dropped(fate: Fate) -> bool:
    return type(fate.error).__name__ == "Dropped"


@scenario(Producer, "__aexit__", "Produce")
async def leaving_a_producer(run: Run) -> None:
    await _left(run, lambda producer: producer.__aexit__(None, None, None))


@scenario(Producer, "__aexit__", "Produce")
async def leaving_a_producer_by_an_error(run: Run) -> None:
    await _left(run, lambda producer: producer.__aexit__(ValueError, ValueError(), None))


@scenario(Producer, "__aexit__", "Produce")
async def leaving_a_producer_that_is_not_answered(run: Run) -> None:
    await _left(run, lambda producer: producer.__aexit__(None, None, None), acks=0)


@scenario(Producer, "aclose", "Produce")
async def closing_a_producer(run: Run) -> None:
    await _left(run, lambda producer: producer.aclose())


# -- consumers ---------------------------------------------------------------------------------------------------------


class Told(RebalanceListener):
    """Records its notifications, and takes its time over them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.has: set[TopicPartition] = set()
        self.gone: list[TopicPartition] = []

    async def assigned(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        await self._run.sleep(0.002)
        self.has |= set(places)

    async def revoked(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        self.gone += places
        await self._run.sleep(0.002)
        self.has -= set(places)

    async def lost(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        self.gone += places
        await self._run.sleep(0.002)
        self.has -= set(places)


def group(run: Run) -> dict[str, Any]:
    return {"group": "g", "listener": Told(run), "heartbeat_interval": 0.5}


READING = ("Fetch", "ListOffsets", "OffsetForLeaderEpoch", "OffsetFetch")
MEMBER = ("JoinGroup", "SyncGroup", "Heartbeat", *GOODBYES, "OffsetCommit")


@asynccontextmanager
async def reading(run: Run, **options: Any) -> AsyncIterator[tuple[Client, Consumer]]:
    await run.topic("t", *BATCHES)
    async with run.connect(**ONE_BATCH) as client:
        async with client.consumer("t", **options) as consumer:
            yield client, consumer
        await run.rest(client)


async def _read(consumer: Consumer, seen: list[bytes | None], *, until: int = len(VALUES)) -> None:
    """A user's read loop."""
    async for batch in consumer:
        seen += [each.value for each in batch]
        if consumer._plan.options.group is not None:
            batch.commit_soon()
        if len(seen) >= until:
            break


async def _poll(consumer: Consumer, seen: list[bytes | None], *, until: int = len(VALUES)) -> None:
    """The same with `poll`, whose timeout passes at the start and at the end."""
    assert await consumer.poll(0.0) is None or seen
    while len(seen) < until:
        if (batch := await consumer.poll(1.0)) is not None:
            seen += [each.value for each in batch]
            if consumer._plan.options.group is not None:
                batch.commit_soon()
    assert len(seen) < len(VALUES) or await consumer.poll(0.1) is None


async def _iterated(run: Run, already: int, read: Any = _read, **options: Any) -> None:
    """Cancel the loop anywhere; another loop continues."""
    seen: list[bytes | None] = []
    async with reading(run, **options) as (client, consumer):
        if already:
            await read(consumer, seen, until=already)
        await run.cancelling(lambda: read(consumer, seen))
        await run.rest(client)
        if len(seen) < len(VALUES):
            await _read(consumer, seen)
        assert seen == VALUES
        await run.rest(client)
    if options:
        async with run.connect() as other:
            assert await committed(other) == {("t", 0): len(VALUES)}


@scenario(Consumer, "__anext__", *READING)
async def iterating(run: Run) -> None:
    await _iterated(run, 0)


@scenario(Consumer, "__anext__", *READING, *MEMBER)
async def iterating_in_a_group(run: Run) -> None:
    await _iterated(run, 0, **group(run))


@scenario(Consumer, "poll", *READING)
async def polling(run: Run) -> None:
    await _iterated(run, 0, _poll)


@scenario(Consumer, "poll", *READING, *MEMBER)
async def polling_in_a_group(run: Run) -> None:
    await _iterated(run, 0, _poll, **group(run))


@scenario(Consumer, "__anext__", *READING, *MEMBER)
async def going_on_in_a_group(run: Run) -> None:
    await _iterated(run, 4, **group(run))


@scenario(Consumer, "__anext__", *READING, *MEMBER)
async def iterating_while_the_group_rebalances(run: Run) -> None:
    """Another member joins, reads a batch and leaves: between them they read each record once."""
    await run.topic("t", *BATCHES, partitions=2)
    seen: list[tuple[int, bytes | None]] = []
    async with run.connect(**ONE_BATCH) as client:
        async with client.consumer("t", **group(run)) as consumer:
            await _read_slowly(run, consumer, seen, until=2)
            other = run.beside(_another_member(run, seen))
            await run.cancelling(lambda: _read_slowly(run, consumer, seen, until=2 * len(VALUES)))
            if len(seen) < 2 * len(VALUES):
                await _read_slowly(run, consumer, seen, until=2 * len(VALUES))
            while not other.done:
                await run.sleep(0.1)
        for partition in (0, 1):
            assert [value for of, value in seen if of == partition] == VALUES
        assert await committed(client) == {("t", 0): len(VALUES), ("t", 1): len(VALUES)}
        await run.rest(client)


async def _read_slowly(run: Run, consumer: Consumer, seen: list[tuple[int, bytes | None]], *, until: int) -> None:
    async for batch in consumer:
        seen += [(batch.partition, each.value) for each in batch]
        batch.commit_soon()
        await run.sleep(0.2)
        if len(seen) >= until:
            break


async def _another_member(run: Run, seen: list[tuple[int, bytes | None]]) -> None:
    async with run.connect(**ONE_BATCH) as client, client.consumer("t", **group(run)) as consumer:
        await _read_slowly(run, consumer, seen, until=0)


@scenario(Consumer, "__anext__", *READING, "Produce")
async def waiting_for_a_record_to_come(run: Run) -> None:
    seen: list[bytes | None] = []
    async with reading(run) as (client, consumer), client.producer(linger=0.01) as producer:
        await _read(consumer, seen)
        await run.rest(client)
        producer.send_nowait("t", b"new")
        fate = await run.cancelling(lambda: consumer.__anext__())
        batch = await consumer.__anext__() if fate.cancelled else fate.value
        assert [each.value for each in batch] == [b"new"]
        await run.rest(client)


@scenario(Consumer, "__aenter__", *READING, *MEMBER)
async def opening_a_consumer(run: Run) -> None:
    await _opened(run)


@scenario(Consumer, "__aenter__", *READING, *MEMBER)
async def opening_a_consumer_of_a_group(run: Run) -> None:
    await _opened(run, **group(run))


@scenario(Consumer, "__aenter__", *READING, "OffsetFetch")
async def opening_a_consumer_with_an_assignment(run: Run) -> None:
    await _opened(run, assign={("t", 0): "committed"}, group="g")


async def _opened(run: Run, **options: Any) -> None:
    await run.topic("t", *BATCHES)
    topics = () if "assign" in options else ("t",)
    async with run.connect(**ONE_BATCH) as client:
        consumer = client.consumer(*topics, **options)
        fate = await run.cancelling(lambda: consumer.__aenter__())
        if not fate.cancelled:
            await consumer.__aexit__(None, None, None)
        await run.rest(client)
        if "listener" in options:
            assert not [each for each in await client.list_groups() if each.state != "Empty"], "a member is left"
            assert not options["listener"].has
        seen: list[bytes | None] = []
        async with client.consumer(*topics, **options) as other:
            await _read(other, seen)
        assert seen == VALUES
        await run.rest(client)


async def _consumer_left(run: Run, error: BaseException | None, **options: Any) -> None:
    await run.topic("t", *BATCHES)
    seen: list[bytes | None] = []
    async with run.connect(**ONE_BATCH) as client:
        consumer = client.consumer("t", **options)
        await consumer.__aenter__()
        await _read(consumer, seen, until=4)
        fate = await run.cancelling(lambda: consumer.__aexit__(type(error) if error else None, error, None))
        left = [each for each in await client.list_groups() if each.state != "Empty"]
        assert _dropped(fate) or not left, "the member has not left its group"
        await run.rest(client)
        if "group" in options:
            assert _dropped(fate) or await committed(client) == {("t", 0): 4}, f"a commit was lost; {fate.notes}"
            listener = options["listener"]
            assert listener.gone == [("t", 0)] or (_dropped(fate) and not listener.gone), "it is called once"
        async with client.consumer("t", **(group(run) if options else {})) as other:
            began = 4 if options else 0
            began = (await committed(client)).get(("t", 0), 0) if _dropped(fate) and options else began
            seen = [*VALUES[:began]]
            await _read(other, seen)
        assert seen == VALUES
        await run.rest(client)


@scenario(Consumer, "__aexit__", "OffsetCommit", *GOODBYES, "Fetch")
async def leaving_a_consumer(run: Run) -> None:
    await _consumer_left(run, None)


@scenario(Consumer, "__aexit__", "OffsetCommit", *GOODBYES, "Fetch")
async def leaving_a_consumer_of_a_group(run: Run) -> None:
    await _consumer_left(run, None, **group(run))


@scenario(Consumer, "__aexit__", "OffsetCommit", *GOODBYES, "Fetch")
async def leaving_a_consumer_of_a_group_by_an_error(run: Run) -> None:
    await _consumer_left(run, ValueError("the user's"), **group(run))


@scenario(Consumer, "__aexit__", "OffsetCommit", *GOODBYES, "Fetch")
async def leaving_a_consumer_while_a_commit_waits_behind_another(run: Run) -> None:
    await run.topic("t", *BATCHES)
    async with run.connect(**ONE_BATCH) as client:
        consumer = client.consumer("t", group="g")
        await consumer.__aenter__()
        batch = await consumer.__anext__()
        run.hold()
        consumer.commit_soon({("t", 0): 1})
        await run.sleep(0.1)
        batch.commit_soon()
        run.answer_in(0.05)
        fate = await run.cancelling(lambda: consumer.__aexit__(None, None, None))
        await run.rest(client)
        assert _dropped(fate) or await committed(client) == {("t", 0): 2}, "the commit was lost"
        await run.rest(client)


async def _committed(run: Run, commit: Callable[[Consumer, Batch], Awaitable[Any]]) -> None:
    """A requested commit happens, whether the call waits for it or not."""
    async with reading(run, **group(run)) as (client, consumer):
        batch = await consumer.__anext__()
        await run.cancelling(lambda: commit(consumer, batch))
        await run.rest(client)
        assert await committed(client) == {("t", 0): 2}
        await commit(consumer, batch)
        seen: list[bytes | None] = [*VALUES[:2]]
        await _read(consumer, seen)
        assert seen == VALUES
        await run.rest(client)
    async with run.connect() as other:
        assert await committed(other) == {("t", 0): len(VALUES)}


@scenario(Consumer, "commit", *READING, *MEMBER)
async def committing_all(run: Run) -> None:
    await _committed(run, lambda consumer, batch: consumer.commit())


@scenario(Consumer, "commit", *READING, *MEMBER)
async def committing_an_offset(run: Run) -> None:
    await _committed(run, lambda consumer, batch: consumer.commit({("t", 0): 2}))


@scenario(Batch, "commit", *READING, *MEMBER)
async def committing_a_batch(run: Run) -> None:
    await _committed(run, lambda consumer, batch: batch.commit())


@scenario(Consumer, "committed", "Fetch", "Heartbeat")
async def asking_what_is_committed(run: Run) -> None:
    async with reading(run, **group(run)) as (client, consumer):
        await (await consumer.__anext__()).commit()
        await run.cancelling(lambda: consumer.committed())
        await run.rest(client)
        found = await consumer.committed()
        assert {place: each and each.offset for place, each in found.items()} == {("t", 0): 2}
        await run.rest(client)


@scenario(Consumer, "seek", *READING)
async def seeking_the_beginning(run: Run) -> None:
    await _sought(run, "beginning", 0)


@scenario(Consumer, "seek", *READING, *MEMBER)
async def seeking_in_a_group(run: Run) -> None:
    await _sought(run, 6, 6, **group(run))


async def _sought(run: Run, where: Any, offset: int, **options: Any) -> None:
    async with reading(run, **options) as (client, consumer):
        seen: list[bytes | None] = []
        await _read(consumer, seen, until=4)
        await run.cancelling(lambda: consumer.seek({("t", 0): where}))
        await run.rest(client)
        began = consumer.position("t", 0)
        assert began in (4, offset)
        seen = [*VALUES[:began]]
        await _read(consumer, seen)
        assert seen == VALUES
        await consumer.seek({("t", 0): where})
        assert consumer.position("t", 0) == offset
        await run.rest(client)
