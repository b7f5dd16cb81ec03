"""ottla as a peer program: ``produce key=value…``, ``consume TOPIC key=value…``, and as a member of a group
``join TOPIC …``.

Settings have Kafka's names. Input and output are as in `tests.interop.lines` and `tests.interop.members`.
"""

import os
import sys
import threading
from collections.abc import AsyncIterator, Callable

import trio

import ottla
from ottla.codec.records import Record
from ottla.errors import CommitFailed, OttlaError
from tests.interop.lines import InOrder, Message, Outcome, Received, settings
from tests.interop.members import input_ends, tell_assigned, tell_record

CHUNK = 2**16


async def produce(config: dict[str, str]) -> None:
    arguments = ottla.from_kafka_config(config)
    outcomes = InOrder()
    async with ottla.connect(**arguments) as client, client.producer(**arguments.producer) as producer:
        number = 0
        async for lines in _chunks():
            for line in lines:
                message, settled = Message.parse(line.decode()), _settling(outcomes, number)
                number += 1
                await producer.send_soon(
                    message.topic,
                    message.value,
                    key=message.key,
                    partition=message.partition,
                    headers=message.headers,
                    timestamp=message.timestamp,
                    on_delivery=settled,
                )


async def _chunks() -> AsyncIterator[list[bytes]]:
    """The lines of standard input, as many at a time as are available."""
    rest = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
        while data := await stdin.receive_some(CHUNK):
            *lines, rest = (rest + data).split(b"\n")
            yield lines


def _settling(outcomes: InOrder, number: int) -> Callable[[ottla.Receipt | OttlaError], None]:
    def settled(result: ottla.Receipt | OttlaError) -> None:
        if isinstance(result, OttlaError):
            outcomes.settle(number, Outcome(error=type(result).__name__, message=str(result)))
        else:
            outcomes.settle(number, Outcome(result.partition, result.offset))

    return settled


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
                with trio.CancelScope(shield=True):  # a consumer that is closed gives up its commits within a second
                    await batch.commit()
            except CommitFailed as error:
                print(error, file=sys.stderr)  # another member reads them again


def _received(partition: int, r: Record) -> Received:
    return Received(partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "produce":
        trio.run(produce, settings(arguments))
    elif role == "consume":
        trio.run(consume, arguments[0], settings(arguments[1:]))
    else:
        trio.run(join, arguments[0], settings(arguments[1:]), input_ends())
