"""The blocking driver: the same core without trio, as Spark's workers use it."""

import selectors
import socket
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import trio

import ottla
from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import BrokerUnreachable, OffsetOutOfRange, TimeoutExpired, UnknownTopicOrPartition
from ottla.sdk import mdns
from ottla.sdk.drivers.blocking import BlockingClient
from ottla.sdk.drivers.selecting import SelectorLink
from ottla.sdk.events import Event, Send, Written
from ottla.testing import Broker


def fill(broker: Broker, count: int) -> None:
    async def main() -> None:
        async with ottla.connect(broker.bootstrap) as client, client.producer(batch_size=500) as producer:
            for i in range(count):
                await producer.send_soon("t", b"%d" % i, partition=0, timestamp=1000 + i)

    trio.run(main)


def test_it_reads_a_range_of_offsets(ottla_broker: Broker) -> None:
    fill(ottla_broker, 1000)
    with BlockingClient(ottla_broker.bootstrap) as client:
        assert client.partitions(["t"]) == {"t": 1}
        assert client.offsets({("t", 0): EARLIEST}) == {("t", 0): 0}
        assert client.offsets({("t", 0): LATEST}) == {("t", 0): 1000}
        assert client.offsets({("t", 0): 1500}) == {("t", 0): 500}
        records = [r for batch in client.fetch("t", 0, 333, 777) for r in batch.records() if 333 <= r.offset < 777]
        assert [int(r.value or b"") for r in records] == list(range(333, 777))
        assert list(client.fetch("t", 0, 5, 5)) == []


def test_errors_name_what_is_wrong(ottla_broker: Broker) -> None:
    fill(ottla_broker, 10)
    with BlockingClient(ottla_broker.bootstrap, api_timeout=1.0) as client:
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            client.partitions(["nope"])
        with pytest.raises(OffsetOutOfRange, match="t-0 at 50"):
            list(client.fetch("t", 0, 50, 60))
        with pytest.raises(TimeoutExpired, match="t-0 at offset 10, wanted up to 20: nothing came for 1 s"):
            list(client.fetch("t", 0, 0, 20))


def test_a_topic_that_is_deleted_meanwhile_is_named(ottla_broker: Broker) -> None:
    fill(ottla_broker, 10)

    async def delete() -> None:
        async with ottla.connect(ottla_broker.bootstrap) as client:
            await client.delete_topic("t")

    with BlockingClient(ottla_broker.bootstrap, api_timeout=2.0) as client:
        client.partitions(["t"])
        trio.run(delete)
        began = time.monotonic()
        with pytest.raises(UnknownTopicOrPartition, match="t-0"):
            list(client.fetch("t", 0, 0, 10))
        assert time.monotonic() - began < 5


def test_nobody_there_is_an_error_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1: connection refused"):
        BlockingClient("127.0.0.1:1", connect_timeout=0.3)
    assert time.monotonic() - began < 5


def test_every_address_of_a_name_has_its_turn_whatever_other_names_there_are(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {"one.example": ["127.0.0.2", "127.0.0.1"], "two.example": ["127.0.0.3", "127.0.0.4"]}

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        found = addresses.get(host, [host])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    bootstrap = f"one.example:{ottla_broker.port},two.example:{ottla_broker.port}"
    for _ in range(4):  # which of the names is tried first is a matter of chance
        with BlockingClient(bootstrap, connect_timeout=5.0) as client:
            assert client.topics() == []


def test_brokers_found_by_zeroconf_are_looked_for_again(ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    announced = [ottla_broker.bootstrap]
    monkeypatch.setattr(mdns, "find", lambda name, timeout: list(announced))
    with BlockingClient("zeroconf://here") as client:
        ottla_broker.stop()
        elsewhere = Broker(replace(ottla_broker.config, port=0))
        try:
            elsewhere.create_topic("u")
            announced[:] = [elsewhere.bootstrap]
            assert client.topics() == ["u"]
        finally:
            elsewhere.stop()


def test_it_goes_on_after_the_broker_was_killed(ottla_broker: Broker) -> None:
    fill(ottla_broker, 100)
    with BlockingClient(ottla_broker.bootstrap) as client:
        assert client.offsets({("t", 0): LATEST}) == {("t", 0): 100}
        ottla_broker.kill()
        ottla_broker.start()
        assert sum(len(batch.records()) for batch in client.fetch("t", 0, 0, 100)) == 100


def test_what_goes_wrong_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.sdk")
    with pytest.raises(BrokerUnreachable):
        BlockingClient("127.0.0.1:1", connect_timeout=0.1)
    assert any(each.message.startswith("connection failed") for each in caplog.records)


def test_it_brings_no_trio_along() -> None:
    code = "import sys, ottla.sdk.drivers.blocking; print('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30).stdout == "False\n"


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
        assert link.outbox and not told, "more than a socket takes"
        got = bytearray()
        while len(got) < sum(map(len, parts)):
            got += theirs.recv(100_000)
            client._writable(link)
        assert got == b"".join(parts) and told == [Written((7, "data"))]
