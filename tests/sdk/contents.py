"""The contents of a topic, read with a client in any loop."""

from typing import Literal

import ottla


async def contents(
    client: ottla.Client, topic: str, isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
) -> dict[int, list[bytes]]:
    """The values of each partition up to the end that such a reader sees, however slow it is."""
    places = [(topic, each.partition) for each in (await client.describe_topic(topic)).partitions]
    ends = await client.offsets(dict.fromkeys(places, "end"), isolation=isolation)
    found: dict[int, list[bytes]] = {partition: [] for _, partition in places}
    async with client.consumer(assign=dict.fromkeys(places, 0), isolation=isolation) as consumer:
        for _ in range(600):
            if all(consumer.position(*place) >= end for place, end in ends.items()):
                return found
            if batch := await consumer.poll(0.1):
                found[batch.partition] += [record.value or b"" for record in batch]
    raise AssertionError(f"expected records up to {ends}, got only {found}")
