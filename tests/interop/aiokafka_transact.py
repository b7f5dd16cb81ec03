"""aiokafka's transactional producer as a program: see `tests.interop.transacting`."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)

from tests.interop.aiokafka_peer import typed
from tests.interop.transacting import Kind, Record, serve

T = TypeVar("T")

_SECONDS = 30.0
"""The timeout of a call, in seconds; aiokafka itself would wait for ever."""


class _Assigned(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Notes that partitions were assigned.

    aiokafka commits offsets in a transaction without the member's generation. If the member times out meanwhile and
    joins again, its new positions may be from before the transaction, which commits all the same.
    """

    def __init__(self) -> None:
        self.again = False

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.again = True


class Aiokafka:
    """A producer and a consumer, in an event loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._group = ""
        self._positions: dict[TopicPartition, int] = {}
        self._assigned = _Assigned()

    def _run(self, call: Coroutine[Any, Any, T], seconds: float = _SECONDS) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(call, seconds), self._loop).result()

    @property
    def _open(self) -> AIOKafkaProducer:
        assert self._producer is not None
        return self._producer

    def open(self, config: dict[str, str]) -> None:
        if self._producer is not None:
            with contextlib.suppress(Exception):  # the client has failed already
                self._run(self._producer.stop(), 1)
        self._run(self._make(config))

    async def _make(self, config: dict[str, str]) -> None:
        self._producer = AIOKafkaProducer(**typed(config))

    def init(self) -> None:
        self._run(self._open.start())

    def begin(self) -> None:
        self._run(self._open.begin_transaction())

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        self._run(self._send(topic, partition, key, value))

    async def _send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        future = await self._open.send(topic, value, key, partition=partition)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # the transaction keeps the error

    def flush(self) -> None:
        self._run(self._open.flush())

    def commit(self) -> None:
        self._run(self._open.commit_transaction())

    def abort(self) -> None:
        self._run(self._open.abort_transaction())

    def subscribe(self, topic: str, config: dict[str, str]) -> None:
        if self._consumer is not None:
            self._run(self._consumer.stop())
        self._group = config["group.id"]
        self._run(self._consume(topic, config))

    async def _consume(self, topic: str, config: dict[str, str]) -> None:
        self._consumer = AIOKafkaConsumer(**typed(config))
        self._consumer.subscribe([topic], listener=self._assigned)
        await self._consumer.start()

    def poll(self) -> list[Record]:
        assert self._consumer is not None
        if self._assigned.again:
            self._assigned.again = False
            self.rewind()
        batches = self._run(self._consumer.getmany(timeout_ms=500))
        self._positions = {place: records[-1].offset + 1 for place, records in batches.items()}
        return [Record(r.partition, r.offset, r.key, r.value) for records in batches.values() for r in records]

    def rewind(self) -> None:
        assert self._consumer is not None
        for place in self._consumer.assignment():
            committed = self._run(self._consumer.committed(place))
            if committed is None:
                self._run(self._consumer.seek_to_beginning(place))
            else:
                self._consumer.seek(place, committed)

    def offsets(self) -> None:
        self._run(self._open.send_offsets_to_transaction(self._positions, self._group))

    def kind(self, error: Exception) -> tuple[Kind, str]:
        over = (ProducerFenced, InvalidProducerEpoch, OutOfOrderSequenceNumber, IllegalOperation)
        fatal = isinstance(error, over) or not isinstance(error, KafkaError)
        return ("fatal" if fatal else "abortable"), type(error).__name__


if __name__ == "__main__":
    serve(Aiokafka())
