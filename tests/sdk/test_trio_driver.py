"""The trio driver: no silent failures, no hangs, and a report if the loop is blocked."""

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

import ottla
from ottla.errors import LocalProtocolError, OttlaError
from ottla.sdk import mdns
from ottla.sdk.drivers.trio import TrioDriver, TrioLink
from ottla.sdk.events import Close, Connect, Event, Filled, Lost, Send
from ottla.sdk.metrics import Metrics
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import settled
from ottla.testing import Broker
from tests.patience import HUNG


def broken(now: float) -> None:
    raise ZeroDivisionError("a bug in a machine")


async def test_a_bug_in_the_core_ends_the_users_block_and_is_raised_there(ottla_broker: Broker) -> None:
    with trio.fail_after(HUNG), pytest.raises(ZeroDivisionError, match="a bug in a machine"):
        async with ottla.connect(ottla_broker.bootstrap) as client:
            client._driver.core.later(trio.current_time() + 0.01, broken)
            client._driver.nudge()
            await trio.sleep_forever()


async def test_after_a_bug_that_a_user_caught_every_call_says_so(ottla_broker: Broker) -> None:
    with trio.fail_after(HUNG):
        async with ottla.connect(ottla_broker.bootstrap) as client:
            client._driver.core.soon(broken)
            with pytest.raises(ZeroDivisionError):
                await client.list_topics()
            with pytest.raises(OttlaError, match="stopped because of a bug in ottla") as caught:
                await client.list_topics()
            assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_a_connection_that_is_reset_before_its_options_are_set_is_like_any_other_that_broke(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "what some systems say of a socket that the other side has closed")

    monkeypatch.setattr(trio.SocketStream, "setsockopt", refused)
    with trio.fail_after(HUNG):
        async with ottla.connect(ottla_broker.bootstrap) as client:
            assert await client.list_topics() == []


async def test_a_bug_in_what_is_done_with_an_answer_is_raised_in_the_users_block(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(HUNG), pytest.raises(ZeroDivisionError):
        async with ottla.connect(ottla_broker.bootstrap) as client:
            core = client._driver.core
            monkeypatch.setattr(core, "handle", lambda event, now: broken(now))
            await client.list_topics()


def test_under_asyncio_the_client_says_what_to_do() -> None:
    async def main() -> None:
        async with ottla.connect("localhost:1"):
            pass

    with pytest.raises(
        LocalProtocolError, match=r"ottla\.connect needs a running trio loop.*trio\.run\(main\).*ottla\.aio\.connect"
    ):
        asyncio.run(main())


@asynccontextmanager
async def listener(host: str, port: int, answer: Any) -> AsyncIterator[int]:
    with socket.create_server((host, port)) as server:
        server.setblocking(False)
        async with trio.open_nursery() as nursery:
            wrapped = trio.SocketListener(trio.socket.from_stdlib_socket(server))
            nursery.start_soon(trio.serve_listeners, answer, [wrapped])
            yield server.getsockname()[1]
            nursery.cancel_scope.cancel()


class Resolver(trio.abc.HostnameResolver):
    """Resolves every name to these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.addresses]

    async def getnameinfo(self, *_: Any) -> Any:
        raise NotImplementedError


async def test_an_address_of_a_name_that_takes_connections_and_breaks_them_is_not_the_only_one_tried(
    ottla_broker: Broker,
) -> None:
    port = int(ottla_broker.bootstrap.rpartition(":")[2])
    broke = []

    async def breaks(stream: trio.SocketStream) -> None:
        broke.append(stream)
        await stream.aclose()

    trio.socket.set_custom_hostname_resolver(Resolver("127.0.0.2", "127.0.0.1"))
    with trio.fail_after(HUNG):
        async with listener("127.0.0.2", port, breaks), ottla.connect(f"broker.example:{port}") as client:
            assert await client.list_topics() == []
    assert len(broke) == 1


async def test_a_connection_that_was_hung_up_as_it_was_made_says_nothing_of_the_next_one(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial, made = TrioDriver._stream, trio.Event()
    attempts = 0

    async def in_the_last_moment(driver: TrioDriver, wanted: Connect) -> trio.SocketStream:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            await trio.sleep_forever()
        with trio.CancelScope(shield=True):  # trio, too, returns a finished result despite a later cancellation
            await made.wait()
            stream = await dial(driver, wanted)
        return stream

    with trio.fail_after(HUNG):
        async with ottla.connect(ottla_broker.bootstrap) as client:
            monkeypatch.setattr(TrioDriver, "_stream", in_the_last_moment)
            key, told, driver = (7, "data"), list[Event](), client._driver
            monkeypatch.setattr(driver.core, "handle", lambda event, now: told.append(event))
            connect = Connect(key, "127.0.0.1", ottla_broker.port)
            driver._carry_out([connect])
            await trio.testing.wait_all_tasks_blocked()
            driver._carry_out([Close(key), connect])
            made.set()
            await trio.testing.wait_all_tasks_blocked()
            assert attempts == 2 and told == []


async def test_leaving_is_bounded_though_nobody_answers() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(0.05) as scope:
        async with listener("127.0.0.1", 0, silent) as port, ottla.connect(f"127.0.0.1:{port}"):
            pass
    assert scope.cancelled_caught


async def test_a_client_finds_a_cluster_that_came_back_elsewhere(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = [ottla_broker.bootstrap]

    monkeypatch.setattr(mdns, "find", lambda name, timeout: list(announced))
    with trio.fail_after(HUNG):
        async with ottla.connect("zeroconf://here") as client:
            await client.create_topic("t")
            ottla_broker.stop()
            with Broker(replace(ottla_broker.config, port=0)) as elsewhere:
                elsewhere.create_topic("u")
                announced[:] = [elsewhere.bootstrap]
                assert await client.list_topics() == ["t", "u"]


async def test_a_loop_that_does_not_turn_is_reported_with_the_line_that_holds_it_up(ottla_broker: Broker) -> None:
    reports: list[tuple[float, str]] = []
    told = threading.Event()

    def report(seconds: float, stack: str) -> None:
        reports.append((seconds, stack))
        told.set()

    async with ottla.connect(ottla_broker.bootstrap) as client:
        stop = client._driver.watch(0.02, report)
        assert told.wait(HUNG)  # this very line blocks the loop
        stop()
    [(seconds, stack)] = reports
    assert seconds == 0.02 and "assert told.wait(HUNG)  # this very line" in stack


@pytest.mark.parametrize("who", ["the timekeeper", "who blocked"])
async def test_how_late_the_timekeeper_wakes_is_measured_though_another_was_there_first(
    ottla_broker: Broker, mock_clock: trio.testing.MockClock, who: str
) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        driver, woken = client._driver, trio.Event()
        driver.core.later(trio.current_time() + 0.25, lambda now: woken.set())
        driver.nudge()
        mock_clock.jump(1.0)  # as if this task blocked the loop
        if who == "who blocked":
            driver.pump()
        await woken.wait()
        await trio.testing.wait_all_tasks_blocked()
        lag = {each.name: each.value for each in client.metrics() if each.name.startswith("io-loop-lag")}
    assert lag["io-loop-lag-max"] == lag["io-loop-lag-avg"] == pytest.approx(750)  # ms


class NoMemory(socket.socket):
    __slots__ = ()

    def sendmsg(self, *_: Any) -> int:
        raise OSError(errno.ENOBUFS, "what a system says that has no memory for this now")


async def test_a_connection_to_which_a_write_failed_ends_with_the_reason_and_is_made_again(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(HUNG):
        async with ottla.connect(ottla_broker.bootstrap) as client:
            driver, told = client._driver, []
            handle = driver.core.handle

            def hear(event: Event, now: float) -> None:
                told.append(event)
                handle(event, now)

            monkeypatch.setattr(driver.core, "handle", hear)
            for link in driver._links.values():
                if link.socket is not None:
                    link.socket.__class__ = NoMemory
            assert await client.list_topics() == []
    assert [each.why for each in told if isinstance(each, Lost)] == [os.strerror(errno.ENOBUFS).lower()]


async def test_who_writes_to_a_connection_that_was_reset_remembers_that_it_was() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        ours.setblocking(False)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        link = TrioLink((1, "data"))
        link.socket = ours
        with trio.fail_after(HUNG):
            await trio.lowlevel.wait_readable(ours)
        for _ in range(2):
            link.outbox.append(b"lost")
            link.write()
        assert link.broke == os.strerror(errno.ECONNRESET).lower() and not link.outbox
        assert ours.recv(1) == b"", "the reading end is still open"


async def test_a_client_that_is_used_outside_its_loop_says_so_and_goes_on(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        await producer.send("t", b"a")

        def elsewhere() -> None:
            for call in (client.list_topics, partial(producer.send, "t", b"x", partition=0), producer.flush):
                with pytest.raises(LocalProtocolError, match=r"trio loop in thread 'Main.*trio\.from_thread\.run\("):
                    trio.run(call)

        def with_no_loop() -> None:
            with pytest.raises(LocalProtocolError, match="belongs to the trio loop"):
                client._driver.refuse_another_loop()
            with pytest.raises(LocalProtocolError, match="belongs to the trio loop"):
                client._driver.pump()
            assert trio.from_thread.run(client.list_topics) == ["t"]

        with trio.fail_after(HUNG):
            await trio.to_thread.run_sync(elsewhere)
            await trio.to_thread.run_sync(with_no_loop)
            assert (await producer.send("t", b"b")).topic == "t"


async def test_the_memory_of_a_large_answer_is_free_while_the_next_is_waited_for() -> None:
    whole, told = bytearray(4 * 2**16), []
    views: list[memoryview | None] = [memoryview(whole)]

    class Core:
        deadline = None
        metrics = Metrics()

        def room(self, key: Any) -> memoryview | None:
            return views.pop() if views else None

        def handle(self, event: Event, now: float) -> None:
            told.append(event)

        def poll(self, now: float) -> list[Any]:
            return []

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        async with trio.open_nursery() as nursery:
            core: Any = Core()
            driver, link = TrioDriver(core), TrioLink((1, "data"))
            driver._links[link.key] = link
            link.socket = ours
            nursery.start_soon(driver._read, link)
            theirs.sendall(b"a large answer")
            await trio.testing.wait_all_tasks_blocked()
            whole.append(0)  # raises while a view of it exists
            nursery.cancel_scope.cancel()
    assert told == [Filled((1, "data"), 14)]


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="this system has no such option")
async def test_a_socket_takes_as_much_as_the_system_lets_it(ottla_broker: Broker) -> None:
    lowat = socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT
    async with ottla.connect(ottla_broker.bootstrap) as client:
        links = list(client._driver._links.values())
        assert links
        for link in links:
            with socket.socket() as plain:
                assert link.socket.getsockopt(*lowat) == plain.getsockopt(*lowat)
            assert link.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection; the client's is non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as ours:
        ours.connect(server.getsockname())
        ours.setblocking(False)
        theirs, _ = server.accept()
        with theirs:
            yield ours, theirs


async def test_what_arrives_in_the_turn_in_which_a_connection_is_closed_is_told_to_nobody(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, trio.open_nursery() as nursery:
        driver, link, told = client._driver, TrioLink((7, "data")), []
        monkeypatch.setattr(driver.core, "handle", lambda event, now: told.append(event))
        with connected() as (ours, theirs):
            driver._links[link.key] = link
            link.socket = ours
            assert isinstance(driver, TrioDriver)
            nursery.start_soon(driver._read, link)
            await trio.testing.wait_all_tasks_blocked()
            theirs.sendall(b"late")
            del driver._links[link.key]  # as for `Close`, whose cancellation is too late for a task that woke already
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert told == []


async def test_metrics_and_explanations_are_told_from_any_thread_and_by_node(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap, client_id="me") as client:
        await client.list_topics()
        metrics = await trio.to_thread.run_sync(client.metrics)
        assert client.explain() == ""
    requests = {each.tags["node-id"]: each for each in metrics if each.name == "request-total"}
    assert requests["node--1"].value >= 2 and requests["node--1"].tags["client-id"] == "me"


async def test_what_the_socket_does_not_take_at_once_follows_in_order(ottla_broker: Broker) -> None:
    parts = [bytes([number]) * 300_000 for number in range(10)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        link = TrioLink((1, "data"))
        link.socket = ours
        link.outbox += parts[:5]
        link.write()
        assert link.outbox and link.full, "more than fits into the socket's buffer"
        link.outbox += parts[5:]
        got = bytearray()
        with trio.fail_after(HUNG):
            async with ottla.connect(ottla_broker.bootstrap) as client, trio.open_nursery() as nursery:
                client._driver._await_writable(link)
                while len(got) < 3_000_000:
                    await trio.lowlevel.wait_readable(theirs)
                    got += theirs.recv(100_000)
                nursery.cancel_scope.cancel()
        assert got == b"".join(parts) and not link.outbox and not link.full
        theirs.close()
        link.outbox += [b"nobody", b"reads"]
        link.write()
        link.write()
        assert not link.outbox and not link.wrote and link.broke == os.strerror(errno.EPIPE).lower()


async def test_a_step_writes_by_itself_and_who_waits_needs_nobody_for_what_is_due(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        driver = client._driver
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.settimeout(HUNG)
            link = driver._links[7, "data"] = TrioLink((7, "data"))
            link.socket = ours
            driver.core._actions += [Send((7, "data"), (b"one", b"two")), Close((7, "data"))]
            driver.pump()
            assert theirs.recv(10) == b"onetwo", "bytes written just before the close arrive, too"
        done = Outcome[None]()
        driver.core.soon(lambda now: done.succeed(None))  # without waking the timekeeper
        with trio.fail_after(HUNG):
            await driver.run(settled(done))
