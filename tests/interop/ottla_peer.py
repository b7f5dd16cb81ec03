"""ottla as a program like the others: ``consume TOPIC key=value…``, and as a member of a group ``join TOPIC …``.

Settings have Kafka's names; what it prints `tests.interop.lines` and `tests.interop.members` describe.
"""

import sys
import threading

import trio

import ottla
from ottla.codec.records import Record
from ottla.errors import CommitFailed
from tests.interop.lines import Received, settings
from tests.interop.members import input_ends, tell_assigned, tell_record


async def consume(topic: str, config: dict[str, str]) -> None:
    arguments = ottla.from_kafka_config({"auto.offset.reset": "earliest", **config})
    async with ottla.connect(**arguments) as client, client.consumer(topic, **arguments.consumer) as consumer:
        while any(lag != 0 for lag in consumer.lag.values()):
            if batch := await consumer.poll(0.5):
                for r in batch:
                    print(_received(batch.partition, r).line())


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
                tell_record(_received(batch.partition, r))
            try:
                await batch.commit()
            except CommitFailed as error:
                print(error, file=sys.stderr)  # somebody else reads them again


def _received(partition: int, r: Record) -> Received:
    return Received(partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))


if __name__ == "__main__":
    role, topic, *arguments = sys.argv[1:]
    if role == "consume":
        trio.run(consume, topic, settings(arguments))
    else:
        trio.run(join, topic, settings(arguments), input_ends())
