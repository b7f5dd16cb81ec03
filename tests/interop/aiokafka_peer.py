"""aiokafka as a peer program: ``produce key=value…``, ``consume TOPIC key=value…`` or ``join TOPIC key=value…``.

Standard input has the messages, and standard output gets outcomes or records, as in `tests.interop.lines`. The output
of ``join`` is as in `tests.interop.members`. Settings have aiokafka's names (``enable_idempotence=true``) or the same
with dots; JSON values keep their type.
"""

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import CommitFailedError, IllegalStateError
from aiokafka.helpers import create_ssl_context

from tests.interop.lines import Message, Outcome, Received, settings
from tests.interop.members import input_ends, tell_assigned, tell_record

_END = None


async def produce(config: dict[str, Any]) -> None:
    sent: asyncio.Queue[asyncio.Future[Any] | Exception | None] = asyncio.Queue()
    async with AIOKafkaProducer(**config) as producer:
        printing = asyncio.create_task(_print(sent))
        while line := await asyncio.to_thread(sys.stdin.readline):
            message = Message.parse(line)
            try:
                future = await producer.send(
                    message.topic,
                    message.value,
                    message.key,
                    partition=message.partition,
                    timestamp_ms=message.timestamp,
                    headers=list(message.headers),
                )
            except Exception as error:  # any error of the client is the message's outcome
                await sent.put(error)
            else:
                await sent.put(future)
        await sent.put(_END)
        await printing


async def _print(sent: asyncio.Queue[asyncio.Future[Any] | Exception | None]) -> None:
    while (item := await sent.get()) is not _END:
        try:
            if isinstance(item, Exception):
                raise item
            place = await item
        except Exception as error:  # any error of the client is the message's outcome
            outcome = Outcome(error=type(error).__name__, message=str(error) or repr(error))
        else:
            outcome = Outcome(place.partition, place.offset)
        print(outcome.line(), flush=sent.empty())


async def consume(topic: str, config: dict[str, Any]) -> None:
    config = {"auto_offset_reset": "earliest"} | config
    async with AIOKafkaConsumer(topic, **config) as consumer:  # without a group it gets every partition
        partitions = consumer.assignment()
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(p) < end for p, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for r in records:
                    print(Received(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)).line())


async def join(topic: str, config: dict[str, Any]) -> None:
    over = input_ends()
    async with AIOKafkaConsumer(topic, **config) as consumer:
        while not over.is_set():
            batches = await consumer.getmany(timeout_ms=100)
            tell_assigned(place.partition for place in consumer.assignment())
            for records in batches.values():
                for r in records:
                    tell_record(Received(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)))
            if batches:
                try:
                    await consumer.commit()
                except (CommitFailedError, IllegalStateError) as error:
                    print(error, file=sys.stderr)  # another member reads them again


class _Token(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    """Provides the same token each time."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def typed(config: dict[str, str]) -> dict[str, Any]:
    """Settings with the names and types that aiokafka's constructors take."""
    names = {"cafile": "ssl.ca.location", "certfile": "ssl.certificate.location", "keyfile": "ssl.key.location"}
    files = {name: config.pop(setting, None) for name, setting in names.items()}
    token = config.pop("sasl.oauthbearer.token", None)
    found = {name.replace(".", "_"): _value(text) for name, text in config.items()}
    if files["cafile"] is not None:
        found["ssl_context"] = create_ssl_context(**files)
    if token is not None:
        found["sasl_oauth_token_provider"] = _Token(token)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "produce":
        asyncio.run(produce(typed(settings(arguments))))
    else:
        asyncio.run({"consume": consume, "join": join}[role](arguments[0], typed(settings(arguments[1:]))))
