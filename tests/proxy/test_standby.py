"""A second proxy with the same state directory waits until the first has ended, and continues its producers."""

import os
import select
import signal
import time
import urllib.error
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest
import trio

from ottla.codec.partitioners import murmur2_partition
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.proxy.journal.state_directory import StateDirectory
from ottla.proxy.serve import RunningProxy, run_proxy
from ottla.proxy.standby import Probes, own_state, released
from ottla.testing import Broker
from tests.cli.program import Program, running
from tests.kafka import free_ports
from tests.patience import HUNG

PARTITIONS = 6
WAITS = "another proxy uses the state directory, and this one takes over when it ends"


def asked(health: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{health}{path}", timeout=HUNG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until_ready(health: str) -> None:
    deadline = time.monotonic() + HUNG
    while True:
        try:
            if asked(health, "/ready")[0] == 200:
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, "the proxy does not become ready"


def logged(program: Program, text: str) -> str:
    """Wait until a program has logged ``text``; return what it has logged so far."""
    assert program.process.stderr is not None
    log, deadline = b"", time.monotonic() + HUNG
    while text.encode() not in log:
        readable, _, _ = select.select([program.process.stderr], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(program.process.stderr.fileno(), 65536) if readable else b""
        assert chunk, f"{text!r} is not in {log!r}"
        log += chunk
    return log.decode()


async def answer(health: str, path: str) -> tuple[int, str]:
    return await trio.to_thread.run_sync(asked, health, path)


async def test_a_standby_waits_says_so_and_takes_over(
    ottla_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    [port] = free_ports(1)
    health = f"127.0.0.1:{port}"
    first = StateDirectory(tmp_path)
    config = ProxyConfig(upstream=ottla_broker.bootstrap, listen="127.0.0.1:0", state=str(tmp_path), health=health)
    started: list[RunningProxy] = []

    async def serve(done: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            started.append(await nursery.start(lambda *, task_status: run_proxy(config, task_status=task_status)))
            done.set()

    with trio.fail_after(HUNG):
        async with trio.open_nursery() as nursery:
            done = trio.Event()
            nursery.start_soon(serve, done)
            while not caplog.records:
                await trio.sleep(0.01)
            assert await answer(health, "/health") == (200, f"ok\n{WAITS}: {tmp_path}\n")
            assert await answer(health, "/ready") == (503, f"not ready\n{WAITS}: {tmp_path}\n")
            assert (await answer(health, "/metrics"))[0] in (200, 501)
            assert not started
            [line] = caplog.records
            assert line.message == "state directory in use by another proxy, waiting"
            assert (line.__dict__["state"], line.__dict__["health"]) == (str(tmp_path), health)
            first.close()
            await done.wait()
            assert await answer(health, "/health") == (200, "ok\n")
            assert await answer(health, "/ready") == (200, "ok\n")
            assert started[0].health == health
            started[0].drain()


async def test_a_health_address_that_the_first_proxy_has_is_opened_later(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path)
    async with trio.open_nursery() as nursery:
        owner, standby = (Probes("127.0.0.1:0", reloads=False) for _ in range(2))
        await owner.open(nursery)
        assert owner.address is not None
        standby = Probes(owner.address, reloads=False)
        with trio.move_on_after(0.0):
            await own_state(tmp_path, standby, nursery)
        assert standby.address is None
        first.close()
        state, in_use_until = await own_state(tmp_path, standby, nursery)
        state.close()
        assert in_use_until < trio.current_time(), "it has not waited, so a port in use is an error at once"
        with pytest.raises(ConfigurationError, match="the port is in use"):
            await released(lambda: standby.open(nursery), in_use_until)
        nursery.cancel_scope.cancel()


async def test_a_port_that_the_system_has_not_released_yet_is_tried_again() -> None:
    attempts: list[None] = []

    async def listen() -> int:
        attempts.append(None)
        if len(attempts) < 3:
            raise ConfigurationError("the port is in use")
        return 7

    assert await released(listen, trio.current_time() + HUNG) == 7
    attempts.clear()
    with pytest.raises(ConfigurationError):
        await released(listen, trio.current_time() - 1)
    assert len(attempts) == 1


@pytest.mark.slow
def test_a_producer_continues_when_a_standby_replaces_a_killed_proxy(ottla_broker: Broker, tmp_path: Path) -> None:
    ottla_broker.create_topic("flights", PARTITIONS)
    [port, *healths] = free_ports(3)
    one, two = (f"127.0.0.1:{each}" for each in healths)
    addresses = ("--upstream", ottla_broker.bootstrap, "--listen", f"127.0.0.1:{port}", "--json")
    command = ("proxy", *addresses, "--topic", "flights=rewrite", "--state", str(tmp_path / "state"))
    failed: list[object] = []
    acknowledged = 0

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if error is not None:
            failed.append(error)

    with running(*command, "--health", one) as first, ExitStack() as stack:
        first.facts()
        second = stack.enter_context(running(*command, "--health", two))
        logged(second, "waiting")
        config = {"enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 100}
        producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{port}", **config})
        for n in range(10_000):
            producer.produce("flights", key=b"N%d" % (n % 7), value=b"%d" % n, on_delivery=delivered)
            producer.poll(0)
            if n == 3_000:
                while not acknowledged:
                    producer.poll(0.1)
                assert WAITS in asked(two, "/ready")[1]
            elif n == 5_000:  # the last ones are in flight
                first.end(signal.SIGKILL)
        assert producer.flush(HUNG) == 0
        assert second.facts()["bootstrap"] == f"127.0.0.1:{port}"
        assert asked(two, "/ready") == (200, "ok\n")
        assert second.end(signal.SIGTERM)[0] == 0
    assert not failed
    consumer = confluent_kafka.Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": "check"})
    consumer.assign([confluent_kafka.TopicPartition("flights", p, 0) for p in range(PARTITIONS)])
    values: list[int] = []
    order: dict[bytes, list[int]] = defaultdict(list)
    while len(values) < 10_000 and (batch := consumer.consume(1000, timeout=HUNG)):
        for message in batch:
            values.append(int(message.value() or b""))
            order[message.key() or b""].append(values[-1])
            assert message.partition() == murmur2_partition(message.key() or b"", PARTITIONS)
    assert not consumer.consume(1, timeout=0.5), "no record is stored twice"
    consumer.close()
    assert sorted(values) == list(range(10_000))
    assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.slow
def test_a_standby_with_the_same_options_ends_in_order_or_takes_over_in_order(
    ottla_broker: Broker, tmp_path: Path
) -> None:
    [port, health_port] = free_ports(2)
    health = f"127.0.0.1:{health_port}"
    addresses = ("--upstream", ottla_broker.bootstrap, "--listen", f"127.0.0.1:{port}", "--health", health)
    command = ("proxy", *addresses, "--state", str(tmp_path / "state"))
    with running(*command) as first:
        first.line()
        with running(*command) as unneeded, running(*command) as second:
            for each in (unneeded, second):
                assert f'health="{health}, after takeover"' in logged(each, "waiting")
            assert unneeded.end(signal.SIGTERM)[0] == 0
            assert asked(health, "/ready") == (200, "ok\n"), "the first one answers there"
            first.end(signal.SIGTERM)
            second.line()
            until_ready(health)
            code, log, _ = second.end(signal.SIGTERM)
            assert code == 0
            assert b"waiting" not in log, "it has said so once"
