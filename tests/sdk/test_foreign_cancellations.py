"""User code that leaks the cancellation of another operation, as `Future.result` does: no call hangs."""

import asyncio
from typing import Any

import pytest

import ottla
from ottla.errors import EncodeError, OttlaError
from ottla.sdk.group.assignors import RangeAssignor
from ottla.testing import Broker
from tests.patience import HUNG
from tests.sdk.loops import Loop


def cancelled(*_: Any) -> Any:
    raise asyncio.CancelledError("of some future of the user's")


class Careless(ottla.ProducerInterceptor):
    def on_acknowledgement(self, record: Any, result: Any) -> None:
        cancelled()


async def test_from_an_interceptor_it_keeps_no_receipt(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(interceptors=[Careless()]) as producer:
        with loop.fail_after(HUNG):
            assert (await producer.send("t", b"x")).offset == 0


async def test_from_a_partitioner_it_fails_its_record_alone(loop: Loop, ottla_broker: Broker) -> None:
    calls = 0

    def choose(key: bytes, count: int) -> int:
        nonlocal calls
        calls += 1
        return 0 if calls > 1 else int(cancelled())

    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(partitioner=choose) as producer:
        with loop.fail_after(HUNG):
            with pytest.raises(EncodeError, match="the partitioner raised CancelledError"):
                await producer.send("t", b"1", key=b"k")  # while the topic's metadata is unknown
            assert (await producer.send("t", b"2", key=b"k")).offset == 0


class Confused(RangeAssignor):
    name = "confused"

    def assign(self, *given: Any, **named: Any) -> Any:
        cancelled()


async def test_from_an_assignor_it_ends_the_consumer_with_its_name(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client:
        with loop.fail_after(HUNG), pytest.raises(OttlaError, match="assignor 'confused' failed: CancelledError"):
            async with client.consumer("t", group="g", assignors=[Confused()]) as consumer:
                await anext(consumer)
