"""A client keeps nothing of closed objects: each kind is opened and closed many times, with a new name each time."""

import gc
import types
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import pytest

import ottla
from ottla.errors import TransactionalIdNotFound
from ottla.sdk.core import ClientCore
from ottla.sdk.timers import Timers
from ottla.testing import Broker
from tests.sdk.loops import Loop
from tests.sdk.test_cancellations import VirtualRun
from tests.sdk.virtual import Virtual

BEFORE, ROUNDS = 20, 1000
"""Rounds before the first count, and between the two."""
LONG = 700.0
"""Seconds after which a client has dropped its caches."""

Opens = Callable[[ottla.Client, int], Coroutine[Any, Any, None]]


async def producer(client: ottla.Client, number: int) -> None:
    async with client.producer(compression={"t": "gzip"}) as opened:
        await opened.send("t", b"%d" % number)


async def producer_without_acks(client: ottla.Client, number: int) -> None:
    async with client.producer(acks=0) as opened:
        await opened.send("t", b"%d" % number)


async def transactional_producer(client: ottla.Client, number: int) -> None:
    async with client.producer(transactional_id=f"x-{number}") as opened, opened.transaction() as txn:
        await txn.send("t", b"%d" % number)


async def consumer(client: ottla.Client, number: int) -> None:
    async with client.consumer("t") as opened:
        assert len(await anext(opened))


async def assigned_consumer(client: ottla.Client, number: int) -> None:
    async with client.consumer(assign={("t", 0): "committed"}, group=f"g-{number}") as opened:
        await (await anext(opened)).commit()


async def group_consumer(client: ottla.Client, number: int) -> None:
    async with client.consumer("t", group=f"g-{number}", auto_commit=1.0) as opened:
        await (await anext(opened)).commit()


async def pattern_consumer(client: ottla.Client, number: int) -> None:
    async with client.consumer(pattern="t.*") as opened:
        assert len(await anext(opened))


async def transform(client: ottla.Client, number: int) -> None:
    async with client.transform("t", group=f"g-{number}", transactional_id=f"x-{number}") as opened:
        batches = await anext(opened)
        async with opened.transaction(batches) as txn:
            await txn.send_soon("out", b"made")


async def topic(client: ottla.Client, number: int) -> None:
    name = f"new-{number}"
    await client.create_topic(name)
    async with client.producer() as opened:
        await opened.send(name, b"v")
    async with client.consumer(name) as reader:
        assert len(await anext(reader))
    await client.delete_topic(name)


async def administration(client: ottla.Client, number: int) -> None:
    await client.list_topics()
    await client.describe_topic("t")
    await client.offsets({("t", 0): "end"})
    assert (await client.committed(f"a-{number}")) == {}
    await client.fetch("t", 0, 0)
    with pytest.raises(TransactionalIdNotFound):
        await client.describe_transactions(f"y-{number}")


KINDS: list[Opens] = [
    producer,
    producer_without_acks,
    transactional_producer,
    consumer,
    assigned_consumer,
    group_consumer,
    pattern_consumer,
    transform,
    topic,
    administration,
]


@pytest.mark.slow
@pytest.mark.parametrize("opens", KINDS, ids=lambda opens: opens.__name__)
def test_nothing_is_left_of_what_was_closed(opens: Opens) -> None:
    scene = VirtualRun(Virtual())
    with scene.virtual as virtual:
        virtual.run(scene.topic("t", [b"1", b"2"]))
        virtual.run(scene.topic("out"))
        client = virtual.run(scene.connect().__aenter__())

        def counted(numbers: Iterable[int]) -> tuple[Counter[str], Counter[str]]:
            for number in numbers:
                virtual.run(opens(client, number))
                virtual.sent.clear()
            virtual.run(scene.sleep(LONG))
            virtual.run(administration(client, 0))
            return held(client._driver.core), Counter(each.name for each in client.metrics())

        before, shown = counted(range(BEFORE))
        after, shown_after = counted(range(BEFORE, BEFORE + ROUNDS))
        virtual.run(client.__aexit__(None, None, None))
    assert not shown_after - shown, "metrics"
    assert not {kind: (before[kind], count) for kind, count in after.items() if count > before[kind] + ROUNDS // 2}


_THROUGH = (dict, list, tuple, set, frozenset, deque, partial, types.MethodType, types.CellType, types.GeneratorType)


def held(core: ClientCore) -> Counter[str]:
    """How many objects of each type the client's core holds, and how many entries its containers have."""
    found: Counter[str] = Counter()
    seen: dict[int, Any] = {}
    left: list[Any] = [core]
    while left:
        each = left.pop()
        kind = type(each)
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, Timers):  # the heap drops cancelled timers many at a time
            found["timers"] = sum(timer.call is not None for _, _, timer in each._heap)
            left += (timer.call for _, _, timer in each._heap if timer.call is not None)
            continue
        if isinstance(each, types.FunctionType):
            left += each.__closure__ or ()
            continue
        ours = str(kind.__module__).startswith("ottla")
        if not ours and not issubclass(kind, _THROUGH):
            continue
        found[f"{kind.__module__}.{kind.__qualname__}"] += 1
        if isinstance(each, dict | set | list | deque):
            found["entries"] += len(each)
        left += gc.get_referents(each)
    return found


@pytest.mark.slow
async def test_nothing_is_left_of_clients_that_were_closed(loop: Loop, ottla_broker: Broker) -> None:
    async def open_and_close(times: int) -> Counter[str]:
        for number in range(times):
            async with loop.connect(ottla_broker.bootstrap) as client:
                await producer(client, number)
                await transactional_producer(client, number)
                await group_consumer(client, number)
        await loop.sleep(0.05)  # threads and tasks end asynchronously
        gc.collect()
        kinds = (type(each) for each in gc.get_objects())
        return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("ottla.sdk"))

    before, after = await open_and_close(3), await open_and_close(12)
    assert not {kind: (before[kind], count) for kind, count in after.items() if count > before[kind] + 6}
