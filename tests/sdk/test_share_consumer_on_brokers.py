"""The share consumer against Apache Kafka and brokerlite, under trio, on asyncio, and in blocking code."""

import asyncio
from collections import Counter
from threading import Thread

import pytest
import trio

import ottla
import ottla.aio
import ottla.sync
from ottla.errors import AcknowledgementFailed, UnknownTopicOrPartition
from tests.patience import HUNG
from tests.sdk.shared_topics import filled, share_from_the_beginning


async def test_every_record_is_accepted_once_by_a_pool_of_tasks(sharing: str) -> None:
    seen: Counter[bytes | None] = Counter()
    async with ottla.connect(sharing) as client:
        values = await filled(client, "pool", 500)
        await share_from_the_beginning(client, "pool-workers")

        async def work(jobs: ottla.ShareConsumer, done: trio.CancelScope) -> None:
            async for record in jobs:
                async with record:
                    seen[record.value] += 1
                if len(seen) == len(values):
                    done.cancel()

        with trio.fail_after(HUNG):
            async with (
                client.share_consumer("pool", group="pool-workers", max_records=20) as jobs,
                trio.open_nursery() as nursery,
            ):
                for _ in range(8):
                    nursery.start_soon(work, jobs, nursery.cancel_scope)
    assert seen == Counter(values)


async def test_released_records_come_again_and_rejected_ones_do_not(sharing: str) -> None:
    counts: dict[bytes | None, list[int]] = {}
    async with ottla.connect(sharing) as client:
        values = await filled(client, "verdicts", 30, partitions=1)
        await share_from_the_beginning(client, "judges")
        with trio.fail_after(HUNG):
            async with client.share_consumer("verdicts", group="judges") as jobs:
                while (record := await jobs.poll(5.0)) is not None:
                    seen = counts.setdefault(record.value, [])
                    seen.append(record.delivery_count)
                    if record.offset % 3 == 0:
                        await record.reject()
                    elif record.delivery_count == 1:
                        record.release_soon()
                    else:
                        await record.accept()
    assert set(counts) == values
    by_offset = {int((value or b"").split()[1]): seen for value, seen in counts.items()}
    assert {offset: seen for offset, seen in by_offset.items() if offset % 3 == 0} == {n: [1] for n in range(0, 30, 3)}
    assert {tuple(seen) for offset, seen in by_offset.items() if offset % 3} == {(1, 2)}


async def test_a_record_whose_block_raises_is_released(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "raising", 1)
        await share_from_the_beginning(client, "raisers")
        counts = []
        with trio.fail_after(HUNG):
            async with client.share_consumer("raising", group="raisers") as jobs:
                async for record in jobs:
                    counts.append(record.delivery_count)
                    try:
                        async with record:
                            if record.delivery_count < 3:
                                raise ValueError("not yet")
                    except ValueError:
                        continue
                    break
    assert counts == [1, 2, 3]


async def test_a_record_whose_block_is_cancelled_at_its_end_is_released(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "cancelled", 1)
        await share_from_the_beginning(client, "cancellers")
        with trio.fail_after(HUNG):
            async with client.share_consumer("cancelled", group="cancellers") as jobs:
                record = await anext(jobs)
                with trio.CancelScope() as scope:
                    async with record:
                        scope.cancel()
                again = await jobs.poll(10.0)
                assert again is not None and again.delivery_count == 2
                await again.accept()


async def test_locks_expire_and_are_renewed(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "locked", 2, partitions=1)
        await share_from_the_beginning(client, "lockers", share_record_lock_duration_ms="15000")
        with trio.fail_after(HUNG):
            async with (
                client.share_consumer("locked", group="lockers", max_records=2) as slow,
                client.share_consumer("locked", group="lockers", max_records=2) as quick,
            ):
                kept, late = await slow.__anext__(), await slow.__anext__()
                assert 10 < kept.lock_left <= 15
                await trio.sleep(8)
                await kept.renew()
                again = await quick.__anext__()
                assert (again.offset, again.delivery_count) == (late.offset, 2)
                # Until the client is sure, it leaves the decision to the leader, whose clock has started sooner.
                with pytest.raises(
                    AcknowledgementFailed, match=r"its lock has expired after 15 s|INVALID_RECORD_STATE"
                ):
                    await late.accept()
                await kept.accept()
                await again.accept()


async def test_renewals_and_acknowledgements_go_together(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "together", 6, partitions=1)
        await share_from_the_beginning(client, "togetherness")
        with trio.fail_after(HUNG):
            async with client.share_consumer("together", group="togetherness") as jobs:
                records = [await jobs.__anext__() for _ in range(6)]
                async with trio.open_nursery() as nursery:
                    for renewed in (records[1], records[4]):
                        nursery.start_soon(renewed.renew)
                    for accepted in (records[0], records[2]):
                        nursery.start_soon(accepted.accept)
                    nursery.start_soon(records[3].reject)
                    nursery.start_soon(records[5].release)
                for each in (records[1], records[4]):
                    await each.accept()
                again = await jobs.__anext__()
                await again.accept()
        assert (again.offset, again.delivery_count) == (5, 2)
        assert sum(each.lag or 0 for each in (await client.share_offsets("togetherness")).values()) == 0


async def test_leaving_the_block_sends_what_waits_and_releases_the_rest(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "leaving", 10, partitions=1)
        await share_from_the_beginning(client, "leavers")
        with trio.fail_after(HUNG):
            async with client.share_consumer("leaving", group="leavers") as jobs:
                for _ in range(5):
                    record = await jobs.__anext__()
                    if record.offset < 3:
                        record.accept_soon()
            async with client.share_consumer("leaving", group="leavers") as jobs:
                left = {(record.offset, record.delivery_count) async for record in first(jobs, 7)}
    assert {offset for offset, _ in left} == {3, 4, 5, 6, 7, 8, 9}
    assert {(3, 2), (4, 2)} <= left


async def first(jobs: ottla.ShareConsumer, count: int):  # type: ignore[no-untyped-def] # of the test
    for _ in range(count):
        record = await jobs.__anext__()
        await record.accept()
        yield record


async def test_with_implicit_acknowledgement_the_last_record_comes_again(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "implicit", 5, partitions=1)
        await share_from_the_beginning(client, "implied")
        with trio.fail_after(HUNG):
            async with client.share_consumer("implicit", group="implied", acknowledge="implicit") as jobs:
                for _ in range(5):
                    await jobs.__anext__()
            async with client.share_consumer("implicit", group="implied") as jobs:
                last = await jobs.__anext__()
                await last.accept()
                assert (last.offset, last.delivery_count) == (4, 2)
                assert await jobs.poll(0.5) is None


async def test_a_topic_that_does_not_exist_is_named(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        with pytest.raises(UnknownTopicOrPartition):
            async with client.share_consumer("nowhere-to-be-found", group="lost"):
                pass


def test_a_share_consumer_on_asyncio(sharing: str) -> None:
    async def main() -> None:
        async with ottla.aio.connect(sharing) as client:
            values = await filled(client, "on-asyncio", 50)
            await share_from_the_beginning(client, "asyncio-workers")
            seen: Counter[bytes | None] = Counter()
            async with asyncio.timeout(HUNG), client.share_consumer("on-asyncio", group="asyncio-workers") as jobs:
                async for record in jobs:
                    async with record:
                        seen[record.value] += 1
                    if len(seen) == len(values):
                        break
            assert seen == Counter(values)

    asyncio.run(main())


def test_threads_share_a_consumer(sharing: str) -> None:
    async def prepare() -> set[bytes]:
        async with ottla.connect(sharing) as client:
            await share_from_the_beginning(client, "threads")
            return await filled(client, "in-threads", 100)

    values = trio.run(prepare)
    seen: Counter[bytes | None] = Counter()
    with (
        ottla.sync.connect(sharing) as client,
        client.share_consumer("in-threads", group="threads", max_records=10) as jobs,
    ):

        def work() -> None:
            while (record := jobs.poll(5.0)) is not None and len(seen) < len(values):
                with record:
                    seen[record.value] += 1

        threads = [Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(HUNG)
    assert seen == Counter(values)


async def test_what_a_lost_connection_held_is_delivered_again(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "cut", 4, partitions=1)
        await share_from_the_beginning(client, "cutters")
        core = client._driver.core
        with trio.fail_after(HUNG):
            async with client.share_consumer("cut", group="cutters") as jobs:
                before = [await jobs.__anext__() for _ in range(4)]
                reader = jobs._core._reader
                [node] = [each.node for each in reader._readers.values()]
                client._driver.do(lambda: core.give_up(node, "the test", core.now, reader._channel))
                with pytest.raises(AcknowledgementFailed, match="share session"):
                    await before[0].accept()
                after = [await jobs.__anext__() for _ in range(4)]
                for each in after:
                    await each.accept()
    assert [(each.offset, each.delivery_count) for each in after] == [(0, 2), (1, 2), (2, 2), (3, 2)]
