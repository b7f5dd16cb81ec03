"""Three times kill -9 of the broker while records flow: no record is lost, doubled or reordered."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokerlite.running import BrokerProcess
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.sdk.loops import LOOPS, Loop

COUNT = 100_000
KEYS = 100


@pytest.fixture
def brokerlite(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    yield broker
    broker.kill()


async def survive(loop: Loop, bootstrap: str, kill: Callable[[], None], revive: Callable[[], None]) -> None:
    topic = "killed"
    async with loop.connect(bootstrap) as client:
        await client.create_topic(topic, partitions=6)
        async with client.producer(compression="lz4", linger=0.01) as producer, loop.open_nursery() as nursery:
            sent = 0

            async def strike() -> None:
                for when in (20_000, 50_000, 80_000):
                    while sent < when:
                        await loop.sleep(0.001)
                    await loop.in_thread(kill)
                    await loop.in_thread(revive)

            nursery.start_soon(strike)
            for i in range(COUNT):
                await producer.send_soon(topic, b"%d" % i, key=b"%d" % (i % KEYS))
                sent = i + 1
                if i % 500 == 0:
                    await loop.sleep(0.002)
        got: dict[bytes | None, list[int]] = {}
        ends = await client.offsets({(topic, partition): "end" for partition in range(6)})
        with loop.fail_after(HUNG):
            async with client.consumer(topic) as consumer:
                while any(consumer.position(*place) < end for place, end in ends.items()):
                    for record in await anext(consumer):
                        got.setdefault(record.key, []).append(int(record.value or b""))
        await client.delete_topic(topic)
    assert sum(ends.values()) == COUNT
    assert got == {b"%d" % key: list(range(key, COUNT, KEYS)) for key in range(KEYS)}


@pytest.mark.slow
async def test_three_kills_of_brokerlite_lose_and_double_nothing(loop: Loop, brokerlite: BrokerProcess) -> None:
    await survive(loop, brokerlite.bootstrap, brokerlite.kill, brokerlite.revive)


@pytest.mark.slow
async def test_three_kills_of_apache_kafka_lose_and_double_nothing(kafka: ApacheKafka) -> None:
    await survive(LOOPS["trio"], kafka.bootstrap, kafka.kill, kafka.revive)
