"""Reading from near replicas (KIP-392, KIP-881): three nodes of Apache Kafka in three racks."""

import itertools
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

import ottla
from tests.kafka import ApacheKafka
from tests.patience import HUNG

pytestmark = pytest.mark.deep

DEADLINE = HUNG
SIZE = 1000
"""Bytes of each value: large, so that all other bytes that a node sends hardly count."""
NOTICED = 4.0
"""Seconds until the cluster detects a dead node: broker.session.timeout.ms in tests/kafka.py."""
PREFERRED = "preferred-read-replica"
numbers = itertools.count()


class Stream:
    """A producer that sends numbers all the time, and a consumer that reads them all and knows which node sent them."""

    def __init__(self, writer: ottla.Client, reader: ottla.Client, topic: str) -> None:
        self.writer, self.reader, self.topic = writer, reader, topic
        self.written = 0
        self.heard: list[int] = []
        self._done = False

    async def write(self) -> None:
        async with self.writer.producer(linger=0.0) as producer:
            while not self._done:
                await producer.send_soon(self.topic, b"%d" % self.written + bytes(SIZE), partition=0)
                self.written += 1
                await trio.sleep(0.01)

    async def read(self, consumer: ottla.Consumer) -> None:
        async for batch in consumer:
            self.heard += [int((record.value or b"").rstrip(b"\0")) for record in batch]
            if self._done and len(self.heard) >= self.written:
                return

    async def until(self, what: Callable[[], bool]) -> None:
        while not what():
            await trio.sleep(0.02)

    async def served(self, records: int) -> int | None:
        """The node that served at least nine tenths of the next ``records``, if one did."""
        before, heard = self._received(), len(self.heard)
        await self.until(lambda: len(self.heard) >= heard + records)
        sent = {node: size - before[node] for node, size in self._received().items()}
        most = max(sent, key=lambda node: sent[node])
        return most if sent[most] > 0.9 * sum(sent.values()) else None

    async def until_served_by(self, node: int) -> None:
        while await self.served(50) != node:
            pass

    def _received(self) -> dict[int, float]:
        bytes_of = {f"node-{node}": node for node in range(3)}
        return dict.fromkeys(range(3), 0.0) | {
            bytes_of[node]: each.value
            for each in self.reader.metrics()
            if each.name == "incoming-byte-total" and (node := each.tags.get("node-id", "")) in bytes_of
        }

    def end(self) -> None:
        self._done = True


@asynccontextmanager
async def stream(kafka: ApacheKafka) -> AsyncIterator[tuple[Stream, int, int]]:
    """A stream that is read from a follower in the reader's rack; with the ids of the leader and of that follower."""
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap) as writer:
            topic = f"near-{next(numbers)}"
            await writer.create_topic(topic, partitions=1, replication_factor=3)
            leader = (await writer.leader(topic, 0)).id
            near = (leader + 1) % 3
            async with (
                ottla.connect(kafka.bootstrap, rack=f"rack-{near}", metadata_max_age=2.0) as reader,
                reader.consumer(topic) as consumer,
            ):
                flow = Stream(writer, reader, topic)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(flow.write)
                    nursery.start_soon(flow.read, consumer)
                    yield flow, leader, near
                    flow.end()
                assert flow.heard == list(range(flow.written)), "each number once, in order"


async def revive(kafka: ApacheKafka, node: int) -> None:
    """Also after a test that ran out of time: the next tests use the same cluster."""
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(kafka.revive, node)


async def test_who_tells_its_rack_reads_from_the_replica_there(kafka_cluster: ApacheKafka) -> None:
    async with stream(kafka_cluster) as (flow, _, near):
        await flow.until_served_by(near)
        for _ in range(3):  # also after requests to the leader, which gets one every two seconds
            assert await flow.served(100) == near


async def test_when_the_near_replica_dies_the_leader_serves_until_it_is_back(kafka_cluster: ApacheKafka) -> None:
    async with stream(kafka_cluster) as (flow, leader, near):
        await flow.until_served_by(near)
        kafka_cluster.kill(near)
        try:
            await flow.until_served_by(leader)
        finally:
            await revive(kafka_cluster, near)
        await flow.until_served_by(near)


async def test_what_is_there_already_is_read_on_before_the_cluster_notices_that_the_near_replica_died(
    kafka_cluster: ApacheKafka,
) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka_cluster.bootstrap) as writer:
            topic = f"near-{next(numbers)}"
            await writer.create_topic(topic, partitions=1, replication_factor=3)
            leader = (await writer.leader(topic, 0)).id
            near = (leader + 1) % 3
            async with writer.producer() as producer:
                await producer.send_many(topic, [b"%d" % number + bytes(SIZE) for number in range(800)])
            async with ottla.connect(
                kafka_cluster.bootstrap,
                rack=f"rack-{near}",
                partition_max_bytes=10 * SIZE,
                fetch_buffer_bytes=100 * SIZE,
            ) as reader:
                heard: list[int] = []
                died = 0.0
                try:
                    async with reader.consumer(topic) as consumer:
                        async for batch in consumer:
                            heard += [int((record.value or b"").rstrip(b"\0")) for record in batch]
                            if len(heard) >= 500 and not died:
                                assert [each.value for each in reader.metrics() if each.name == PREFERRED] == [near]
                                kafka_cluster.kill(near)
                                died = trio.current_time()
                            if len(heard) == 800:
                                break
                    gone = trio.current_time() - died
                finally:
                    if died:
                        await revive(kafka_cluster, near)
    assert heard == list(range(800))
    assert gone < NOTICED, "before the cluster has detected the dead node"


async def test_when_the_near_replica_stands_still_and_falls_out_of_sync_the_leader_serves(
    kafka_cluster: ApacheKafka,
) -> None:
    async with stream(kafka_cluster) as (flow, leader, near):
        await flow.until_served_by(near)
        kafka_cluster.kill(near, signal.SIGSTOP)
        try:
            await flow.until_served_by(leader)
        finally:
            kafka_cluster.kill(near, signal.SIGCONT)
        await flow.until_served_by(near)


async def test_members_of_a_group_get_what_is_in_their_rack(kafka_cluster: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka_cluster.bootstrap) as client, trio.open_nursery() as nursery:
            topic = f"near-{next(numbers)}"
            await client.create_topic(topic, partitions=6, replication_factor=1)
            leads = [(await client.leader(topic, partition)).id for partition in range(6)]
            read: dict[int, list[int]] = {}

            async def reads(rack: int) -> None:
                places = Places()
                read[rack] = places.mine
                async with (
                    ottla.connect(kafka_cluster.bootstrap, rack=f"rack-{rack}") as member,
                    member.consumer(topic, group=topic, group_protocol="classic", listener=places) as consumer,
                ):
                    await anext(consumer)

            for rack in range(3):
                nursery.start_soon(reads, rack)
            # Kafka may place three leaders in one rack and one in another, and still each member gets two partitions.
            most = {rack: min(2, leads.count(rack)) for rack in range(3)}
            near: dict[int, int] = {}
            while near != most or any(len(mine) != 2 for mine in read.values()):
                await trio.sleep(0.05)
                near = {rack: sum(leads[each] == rack for each in mine) for rack, mine in read.items()}
            nursery.cancel_scope.cancel()


class Places(ottla.RebalanceListener):
    """The partitions that a member owns."""

    def __init__(self) -> None:
        self.mine: list[int] = []

    async def assigned(self, consumer: ottla.Consumer, places: Sequence[tuple[str, int]]) -> None:
        self.mine += [partition for _, partition in places]

    async def revoked(self, consumer: ottla.Consumer, places: Sequence[tuple[str, int]]) -> None:
        self.mine.clear()
