"""What is in a topic, read with a client of whatever loop."""

from typing import Literal

import ottla


async def contents(
    client: ottla.Client, topic: str, isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
) -> dict[int, list[bytes]]:
    """The values of each partition up to where it ends for such a reader, however long that takes."""
    places = [(topic, each.partition) for each in (await client.describe_topic(topic)).partitions]
    ends = await client.offsets(dict.fromkeys(places, "end"), isolation=isolation)
    found: dict[int, list[bytes]] = {partition: [] for _, partition in places}
    async with client.consumer(assign=dict.fromkeys(places, 0), isolation=isolation) as consumer:
        while any(consumer.position(*place) < end for place, end in ends.items()):
            if batch := await consumer.poll(0.1):
                found[batch.partition] += [record.value or b"" for record in batch]
    return found
