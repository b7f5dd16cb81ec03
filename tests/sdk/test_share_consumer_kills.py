"""Workers while the leaders of their partitions are killed: every record is accepted, and failures are reported."""

from collections import Counter

import pytest
import trio

import ottla
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.sdk.shared_topics import share_from_the_beginning

RECORDS = 3000
WORKERS = 10


@pytest.mark.deep
async def test_every_record_is_accepted_although_two_leaders_are_killed(kafka_cluster: ApacheKafka) -> None:
    accepted: Counter[bytes | None] = Counter()
    failed: Counter[bytes | None] = Counter()
    unknown: set[bytes | None] = set()
    async with ottla.connect(kafka_cluster.bootstrap) as client:
        await client.create_topic("led", partitions=6, replication_factor=3)
        await share_from_the_beginning(client, "followers", share_record_lock_duration_ms="15000")

        async def produce() -> None:
            async with client.producer() as producer:
                for index in range(RECORDS):
                    await producer.send_soon("led", b"%d" % index)
                    if index % 100 == 0:
                        await trio.sleep(0.02)

        async def work(jobs: ottla.ShareConsumer) -> None:
            async for record in jobs:
                try:
                    await record.accept()
                except ottla.AcknowledgementFailed as error:
                    failed[record.value] += 1
                    if error.outcome_unknown:
                        unknown.add(record.value)
                else:
                    accepted[record.value] += 1

        async def strike() -> None:
            for count in (RECORDS // 5, RECORDS // 2):
                while len(accepted) < count:
                    await trio.sleep(0.01)
                node = (await client.leader("led", 0)).id
                await trio.to_thread.run_sync(kafka_cluster.kill, node)
                await trio.to_thread.run_sync(kafka_cluster.revive, node)

        with trio.fail_after(2 * HUNG):
            async with client.share_consumer("led", group="followers") as jobs, trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                for _ in range(WORKERS):
                    nursery.start_soon(work, jobs)
                await strike()
                while len(accepted.keys() | unknown) < RECORDS:
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
        left = sum(each.lag or 0 for each in (await client.share_offsets("followers")).values())
    assert left == 0, "records whose outcome was unknown are accepted, too, or come again"
    twice = {value for value, times in accepted.items() if times > 1}
    assert twice <= unknown, "an acknowledgement that succeeded counts"
