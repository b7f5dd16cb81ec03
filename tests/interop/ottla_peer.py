"""ottla as a member of a group, in a process of its own like the others: ``join TOPIC key=value…``.

Settings have Kafka's names; what it prints `tests.interop.members` describes.
"""

import sys
import threading

import trio

import ottla
from ottla.errors import CommitFailed
from tests.interop.lines import Received, settings
from tests.interop.members import input_ends, tell_assigned, tell_record


async def join(topic: str, config: dict[str, str], over: threading.Event) -> None:
    arguments = ottla.from_kafka_config(config)
    async with (
        ottla.connect(**arguments) as client,
        client.consumer(topic, **arguments.consumer) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def watch() -> None:
            while not over.is_set():
                tell_assigned(partition for _, partition in consumer.assignment)
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        async for batch in consumer:
            tell_assigned(partition for _, partition in consumer.assignment)
            for r in batch:
                tell_record(Received(batch.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)))
            try:
                await batch.commit()
            except CommitFailed as error:
                print(error, file=sys.stderr)  # somebody else reads them again


if __name__ == "__main__":
    _, topic, *arguments = sys.argv[1:]
    trio.run(join, topic, settings(arguments), input_ends())
