"""ottla, Kafka's little sister: everything a Python team needs around Kafka's wire protocol.

    import ottla

    async with ottla.connect("localhost:9092") as client, client.producer() as producer:
        receipt = await producer.send("greetings", b"hello", key=b"world")

The names below are loaded when they are first used, so that importing ottla costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.codec.records import Record
    from ottla.errors import BrokerError, OttlaError
    from ottla.sdk.admin import TopicDescription
    from ottla.sdk.client import Client, connect
    from ottla.sdk.consumer import Batch, Consumer
    from ottla.sdk.machines.accumulator import Receipt
    from ottla.sdk.producer import Producer

__version__ = "0.1.0"

_HOMES = {
    "Batch": "ottla.sdk.consumer",
    "BrokerError": "ottla.errors",
    "Client": "ottla.sdk.client",
    "Consumer": "ottla.sdk.consumer",
    "OttlaError": "ottla.errors",
    "Producer": "ottla.sdk.producer",
    "Receipt": "ottla.sdk.machines.accumulator",
    "Record": "ottla.codec.records",
    "TopicDescription": "ottla.sdk.admin",
    "connect": "ottla.sdk.client",
}

__all__ = [
    "Batch",
    "BrokerError",
    "Client",
    "Consumer",
    "OttlaError",
    "Producer",
    "Receipt",
    "Record",
    "TopicDescription",
    "connect",
]


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
