"""Records so large that a Fetch response is full in the middle of a batch, which the embedded broker then truncates."""

from typing import Any

import pytest

from ottla.testing import Broker
from tests.patience import HUNG
from tests.sdk.loops import Loop

LARGEST = 12 * 2**20
"""The maximum size of a request of the producer, and of a batch of the topic."""
EACH = 2
"""Records per partition."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "size", "options"),
    [
        (6, 60_000, {"partition_max_bytes": 10_000}),
        (30, 50_000, {"partition_max_bytes": 100_000, "fetch_buffer_bytes": 800_000}),
        (6, 60_000, {"partition_max_bytes": 10_000, "fetch_buffer_bytes": 20_000}),
        (6, 6_000_000, {}),
        (50, 500_000, {"fetch_buffer_bytes": 4 * 2**20}),
    ],
)
async def test_all_records_are_read_though_answers_are_full(
    loop: Loop, ottla_broker: Broker, partitions: int, size: int, options: dict[str, Any]
) -> None:
    ottla_broker.create_topic("large", partitions, {"max.message.bytes": str(LARGEST)})
    async with loop.connect(ottla_broker.bootstrap, max_request_size=LARGEST) as client, client.producer() as producer:
        for number in range(partitions * EACH):
            await producer.send_soon("large", bytes(size), partition=number // EACH)
    async with loop.connect(ottla_broker.bootstrap, **options) as client, client.consumer("large") as consumer:
        read: dict[int, list[int]] = {}
        with loop.fail_after(HUNG):
            async for batch in consumer:
                read.setdefault(batch.partition, []).extend(each.offset for each in batch)
                if sum(map(len, read.values())) == partitions * EACH:
                    break
    assert read == {partition: list(range(EACH)) for partition in range(partitions)}
