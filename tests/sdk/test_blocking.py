"""The blocking driver: the same core without trio, for Spark's workers."""

import selectors
import socket
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
from confluent_kafka import Producer

import ottla
from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import (
    BrokerUnreachable,
    DataLoss,
    LocalProtocolError,
    OffsetOutOfRange,
    TimeoutExpired,
    UnknownTopicOrPartition,
)
from ottla.sdk import mdns
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED
from ottla.sdk.consume.reading.range_reader import LostRange, OffsetRange
from ottla.sdk.drivers.blocking import BlockingClient
from ottla.sdk.drivers.selecting import SelectorLink
from ottla.sdk.events import Event, Send, Written
from ottla.testing import Broker
from tests.patience import FAR, HUNG, longer_and_longer


def fill(broker: Broker, count: int, partitions: int = 1) -> None:
    if partitions > 1:
        broker.create_topic("t", partitions=partitions)

    async def main() -> None:
        async with ottla.connect(broker.bootstrap) as client, client.producer(batch_size=500) as producer:
            for i in range(count * partitions):
                await producer.send_soon("t", b"%d" % (i // partitions), partition=i % partitions, timestamp=1000 + i)

    trio.run(main)


def values(client: BlockingClient, *ranges: OffsetRange, **more: Any) -> dict[tuple[str, int], list[int]]:
    """The records of the ranges as numbers, by partition."""
    found: dict[tuple[str, int], list[int]] = {}
    for wanted, batch in client.fetch(ranges, **more):
        records = batch.records().between(wanted.start, wanted.end)
        found.setdefault(wanted.place, []).extend(int(record.value or b"") for record in records)
    return found


def test_it_reads_a_range_of_offsets(ottla_broker: Broker) -> None:
    fill(ottla_broker, 1000)
    with BlockingClient(ottla_broker.bootstrap) as client:
        assert client.topic_ids(["t", "nope"])["t"][1] == 1
        assert client.offsets({("t", 0): EARLIEST}) == {("t", 0): 0}
        assert client.offsets({("t", 0): LATEST}) == {("t", 0): 1000}
        assert client.offsets({("t", 0): 1500}) == {("t", 0): 500}
        assert values(client, OffsetRange("t", 0, 333, 777)) == {("t", 0): list(range(333, 777))}
        assert list(client.fetch([OffsetRange("t", 0, 5, 5)])) == []


def test_errors_name_what_is_wrong(ottla_broker: Broker) -> None:
    fill(ottla_broker, 10)
    with BlockingClient(ottla_broker.bootstrap, api_timeout=FAR) as client:
        assert client.topic_ids(["nope"]) == {}
        with pytest.raises(OffsetOutOfRange, match="t-0 at 50"):
            list(client.fetch([OffsetRange("t", 0, 50, 60)]))
        with pytest.raises(DataLoss, match="the log of t-0 ends at offset 10"):
            list(client.fetch([OffsetRange("t", 0, 0, 20)]))
        with pytest.raises(DataLoss, match="topic t was deleted and recreated"):
            list(client.fetch([OffsetRange("t", 0, 0, 10, UUID(int=7))]))
        with pytest.raises(UnknownTopicOrPartition, match="t has 1 partitions"):
            list(client.fetch([OffsetRange("t", 1, 0, 10)]))


def test_nothing_that_comes_for_the_api_timeout_is_an_error(ottla_broker: Broker) -> None:
    fill(ottla_broker, 10)
    with BlockingClient(ottla_broker.bootstrap, api_timeout=1.0) as client:
        ottla_broker.stop()
        with pytest.raises(TimeoutExpired, match=r"^t-0 at offset 0, wanted up to 10: no records for 1 s"):
            list(client.fetch([OffsetRange("t", 0, 0, 10)]))


def test_many_partitions_are_read_together_each_range_in_order_and_nothing_behind_it(ottla_broker: Broker) -> None:
    fill(ottla_broker, 100, partitions=20)
    with BlockingClient(ottla_broker.bootstrap) as client:
        client.topic_ids(["t"])
        ranges = [OffsetRange("t", index, 10, 60) for index in range(20)]
        again = [OffsetRange("t", 3, 0, 5), OffsetRange("t", 3, 95, 100)]
        found = values(client, *ranges, *again)
        assert found.pop(("t", 3)) == [*range(10, 60), *range(5), *range(95, 100)]
        assert found == {("t", index): list(range(10, 60)) for index in range(20) if index != 3}


def test_what_is_lost_of_one_range_stops_no_other(ottla_broker: Broker) -> None:
    fill(ottla_broker, 100, partitions=3)
    lost: list[LostRange] = []

    def pass_over(each: LostRange) -> int:
        lost.append(each)
        assert client.offsets({each.range.place: EARLIEST}) == {each.range.place: 0}, "the client still works"
        return each.range.end

    with BlockingClient(ottla_broker.bootstrap) as client:
        ranges = [OffsetRange("t", 0, 0, 200), OffsetRange("t", 1, 0, 100), OffsetRange("t", 2, 150, 160)]
        found = values(client, *ranges, on_lost=pass_over)
        assert found == {("t", 0): list(range(100)), ("t", 1): list(range(100))}
        assert {(each.range.partition, each.offset) for each in lost} == {(0, 100), (2, 150)}
        with pytest.raises(LocalProtocolError, match="is not after"):
            values(client, *ranges, on_lost=lambda each: each.offset)


def test_a_reader_that_is_left_early_leaves_no_socket(ottla_broker: Broker) -> None:
    fill(ottla_broker, 1000, partitions=3)
    with BlockingClient(ottla_broker.bootstrap) as client:
        for _ in range(3):
            batches = client.fetch([OffsetRange("t", index, 0, 1000) for index in range(3)])
            next(batches)
            batches.close()
            assert {channel for _, channel in client._links} <= {"data", "metadata"}


def test_a_topic_that_is_deleted_meanwhile_is_named(ottla_broker: Broker) -> None:
    fill(ottla_broker, 10)

    async def delete() -> None:
        async with ottla.connect(ottla_broker.bootstrap) as client:
            await client.delete_topic("t")

    with BlockingClient(ottla_broker.bootstrap, api_timeout=2.0) as client:
        client.topic_ids(["t"])
        trio.run(delete)
        with pytest.raises(UnknownTopicOrPartition, match="'t'"):
            list(client.fetch([OffsetRange("t", 0, 0, 10)]))


def test_no_deadline_passes_while_the_caller_is_busy_with_what_was_read(ottla_broker: Broker) -> None:
    fill(ottla_broker, 1000)
    with BlockingClient(ottla_broker.bootstrap) as client:
        fetched = client.fetch([OffsetRange("t", 0, 0, 1000)])
        next(fetched)
        before, began = client.now(), time.monotonic()
        time.sleep(0.5)
        next(fetched)
        assert client.now() - before <= time.monotonic() - began - 0.5
        fetched.close()


class LongWaits(BlockingClient):
    """A client for which every wait takes a second more than it does."""

    def _wait(self, timeout: float | None) -> None:
        super()._wait(timeout)
        self._away -= 1.0


@pytest.mark.slow
def test_going_on_over_aborted_records_is_no_standstill(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=1)
    producer = Producer(
        {"bootstrap.servers": ottla_broker.bootstrap, "transactional.id": "t", "batch.num.messages": 1, "linger.ms": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(200):
        producer.produce("t", b"aborted")
    producer.flush(HUNG)
    producer.abort_transaction()
    timeout = 30.0
    with LongWaits(ottla_broker.bootstrap, api_timeout=timeout, partition_max_bytes=200, fetch_max_bytes=200) as it:
        end = it.offsets({("t", 0): LATEST})["t", 0]
        began = it.now()
        assert list(it.fetch([OffsetRange("t", 0, 0, end)], isolation=READ_COMMITTED)) == []
        assert it.now() > began + timeout, "too few records: the read has to outlast api_timeout"


def test_nobody_there_is_an_error_in_time() -> None:
    for timeout in longer_and_longer(0.2):
        with pytest.raises(BrokerUnreachable) as caught:
            BlockingClient("127.0.0.1:1", connect_timeout=timeout)
        if "127.0.0.1:1: connection refused" in str(caught.value):
            return
    pytest.fail(str(caught.value))


def test_every_address_of_a_name_has_its_turn_whatever_other_names_there_are(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {"one.example": ["127.0.0.2", "127.0.0.1"], "two.example": ["127.0.0.3", "127.0.0.4"]}

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        found = addresses.get(host, [host])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    bootstrap = f"one.example:{ottla_broker.port},two.example:{ottla_broker.port}"
    for _ in range(4):  # the client chooses the first name at random
        with BlockingClient(bootstrap, connect_timeout=HUNG) as client:
            assert client.topic_ids(None) == {}


def test_brokers_found_by_zeroconf_are_looked_for_again(ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    announced = [ottla_broker.bootstrap]
    monkeypatch.setattr(mdns, "find", lambda name, timeout: list(announced))
    with BlockingClient("zeroconf://here") as client:
        ottla_broker.stop()
        with Broker(replace(ottla_broker.config, port=0)) as elsewhere:
            elsewhere.create_topic("u")
            announced[:] = [elsewhere.bootstrap]
            assert list(client.topic_ids(None)) == ["u"]


def test_it_goes_on_after_the_broker_was_killed(ottla_broker: Broker) -> None:
    fill(ottla_broker, 100)
    with BlockingClient(ottla_broker.bootstrap) as client:
        assert client.offsets({("t", 0): LATEST}) == {("t", 0): 100}
        ottla_broker.kill()
        ottla_broker.start()
        assert values(client, OffsetRange("t", 0, 0, 100)) == {("t", 0): list(range(100))}


def test_what_goes_wrong_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.sdk")
    for timeout in longer_and_longer(0.2):
        with pytest.raises(BrokerUnreachable):
            BlockingClient("127.0.0.1:1", connect_timeout=timeout)
        if any(each.message.startswith("connection failed") for each in caplog.records):
            return
    pytest.fail(caplog.text)


def test_it_brings_no_trio_along() -> None:
    code = "import sys, ottla.sdk.drivers.blocking; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HUNG)
    assert done.stdout == "False\n"


def test_what_the_socket_does_not_take_at_once_follows_in_order_and_is_reported_when_written(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    with BlockingClient(ottla_broker.bootstrap) as client, ours, theirs:
        ours.setblocking(False)
        link = client._links[7, "data"] = SelectorLink((7, "data"))
        link.socket, link.connecting = ours, False
        client._selector.register(ours, selectors.EVENT_READ, link)
        told: list[Event] = []
        monkeypatch.setattr(client.core, "handle", lambda event, now: told.append(event))
        parts = (b"a", bytes(range(256)) * 10_000, b"b")
        client._carry_out([Send((7, "data"), parts)])
        assert link.outbox and not told, "more than fits into the socket's buffer"
        got = bytearray()
        while len(got) < sum(map(len, parts)):
            got += theirs.recv(100_000)
            client._writable(link)
        assert got == b"".join(parts) and told == [Written((7, "data"))]
