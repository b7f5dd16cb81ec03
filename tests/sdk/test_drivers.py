"""The promises of every driver, over a transport as bad as TCP may be: the same tests for all of them."""

import asyncio
import contextlib
import gc
import random
import socket
import subprocess
import sys
import time
from functools import partial
from typing import Any

import pytest

import ottla.aio
import ottla.sync
from ottla.errors import BrokerUnreachable, Closed, LocalProtocolError, OttlaError
from ottla.sdk.client import Client
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.asyncio import AsyncioDriver, AsyncioLink
from ottla.sdk.drivers.driver import innermost
from ottla.sdk.options import Options
from ottla.sdk.producer import Producer
from tests.patience import HUNG, longer_and_longer
from tests.sdk.loops import ALL, LOOPS, Asyncio, Loop
from tests.sdk.scripted import Manner, Scripted, at_once, byte_by_byte, late, scripted
from tests.sdk.suspensions import cancelled_at


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Loop:
    """Each loop, in the quick tests too: their transports differ."""
    return LOOPS[request.param]


@pytest.mark.parametrize("manner", [at_once, byte_by_byte, late], ids=lambda each: each.__name__)
def test_answers_are_taken_as_they_come(loop: Loop, manner: Manner) -> None:
    topics = {f"topic-{number}": 3 for number in range(40)}
    with scripted(topics, manner=manner) as (address, _):

        async def scenario() -> list[str]:
            async with loop.connect(address) as client:
                return await client.list_topics()

        assert loop.run(scenario) == sorted(topics)


def test_a_connection_that_breaks_in_the_middle_of_an_answer_is_made_again(loop: Loop) -> None:
    with scripted(torn=[10, 60, 100]) as (address, _):

        async def scenario() -> list[str]:
            async with loop.connect(address) as client:
                return await client.list_topics()

        assert loop.run(scenario) == ["t"]


def test_what_a_slow_broker_does_not_take_at_once_is_written_bit_by_bit_and_in_order(loop: Loop) -> None:
    with scripted(reads=0.001) as (address, broker):
        values = [bytes([number]) * 50_000 for number in range(20)]

        async def scenario() -> None:
            async with loop.connect(address) as client, client.producer(linger=0.0) as producer:
                for value in values:
                    await producer.send_soon("t", value)
                await producer.flush()

        loop.run(scenario)
        assert [record.value for record in broker.model.logs["t", 0].records] == values


def test_who_cancels_a_call_that_is_not_answered_goes_on_at_once_and_the_client_is_whole(loop: Loop) -> None:
    with scripted() as (address, broker):
        # The first request gets no answer, so the next call waits on the same connection for `request_timeout`.
        async def bounded() -> list[str]:
            async with loop.connect(address, request_timeout=0.3) as client:
                broker.mute = True
                with loop.move_on_after(0.05) as scope:
                    await client.list_topics()
                assert scope.cancelled_caught
                broker.mute = False
                return await client.list_topics()

        assert loop.run(bounded) == ["t"]


def test_a_client_that_is_left_waits_until_a_slow_broker_has_read_what_it_does_not_answer(loop: Loop) -> None:
    with scripted(reads=0.002) as (address, broker):

        async def scenario() -> int:
            async with loop.connect(address) as client, client.producer(acks=0, batch_size=1000) as producer:
                await producer.send_many("t", [b"%0999d" % number for number in range(300)])
            return len(broker.model.logs["t", 0].records)

        assert loop.run(scenario) == 300


@pytest.mark.parametrize("by", ["an error", "a cancellation"])
@pytest.mark.usefixtures("long_goodbyes")
def test_records_without_acks_arrive_also_if_their_block_is_left_early(loop: Loop, by: str) -> None:
    """The producer writes the records that it has accepted before the connection ends."""
    with scripted(reads=0.002) as (address, broker):
        log = broker.model.logs["t", 0]

        async def scenario() -> None:
            with contextlib.suppress(ZeroDivisionError), loop.cancel_scope() as scope:
                async with loop.connect(address) as client, client.producer(acks=0, batch_size=1000) as producer:
                    await producer.send_many("t", [b"%0999d" % number for number in range(100)])
                    if by == "an error":
                        raise ZeroDivisionError
                    scope.cancel()
                    await loop.checkpoint()

        loop.run(scenario)
        until = time.monotonic() + HUNG
        while len(log.records) < 100 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(log.records) == 100


def test_nobody_listening_is_said_in_time(loop: Loop) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        async def scenario(timeout: float) -> None:
            async with loop.connect(address, connect_timeout=timeout):
                pass

        for timeout in longer_and_longer(0.2):
            with pytest.raises(BrokerUnreachable) as caught:
                loop.run(partial(scenario, timeout))
            if "connection refused" in str(caught.value):
                return
        pytest.fail(str(caught.value))


def test_a_bug_in_the_core_ends_the_users_block_and_is_raised_there(loop: Loop) -> None:
    def broken(now: float) -> None:
        raise ZeroDivisionError("a bug in a machine")

    with scripted() as (address, _):

        async def scenario() -> None:
            async with loop.connect(address) as client:
                client._driver.core.later(client._driver.now() + 0.01, broken)
                client._driver.nudge()
                await loop.sleep(60)

        with pytest.raises(ZeroDivisionError, match="a bug in a machine"):
            loop.run(scenario)


def test_what_is_called_from_within_a_step_is_refused_and_the_client_goes_on(loop: Loop) -> None:
    refused: list[OttlaError] = []

    with scripted() as (address, _):

        async def scenario() -> list[str]:
            async with loop.connect(address) as client:

                def within(now: float) -> None:
                    try:
                        client._driver.core.poll(now)
                    except LocalProtocolError as error:
                        refused.append(error)

                client._driver.core.soon(within)
                return await client.list_topics()

        assert loop.run(scenario) == ["t"]
    [error] = refused
    assert "the client is busy" in str(error)


def test_code_of_the_user_that_calls_for_ever_starves_nobody(loop: Loop) -> None:
    calls = 0

    with scripted() as (address, _):

        async def scenario() -> list[str]:
            async with loop.connect(address) as client:
                core = client._driver.core

                def again() -> None:
                    nonlocal calls
                    calls += 1
                    core.run(again)

                client._driver.do(lambda: core.run(again))
                return await client.list_topics()

        assert loop.run(scenario) == ["t"] and calls > 2


def test_a_client_is_opened_once_and_refuses_what_comes_after_its_end(loop: Loop) -> None:
    with scripted() as (address, _):

        async def scenario() -> Client:
            async with loop.connect(address) as client:
                with pytest.raises(LocalProtocolError, match="opened only once"):
                    await client.__aenter__()
            with pytest.raises(Closed):
                await client.list_topics()
            return client

        loop.run(scenario)


def test_a_producer_and_a_consumer_are_opened_once(loop: Loop) -> None:
    with scripted() as (address, _):

        async def scenario() -> None:
            async with loop.connect(address) as client:
                for each in (client.producer(), client.consumer(assign={("t", 0): 0})):
                    async with each:
                        with pytest.raises(LocalProtocolError, match="opened only once"):
                            await each.__aenter__()

        loop.run(scenario)


def test_on_another_loop_the_client_says_what_to_do(loop: Loop) -> None:
    other = ALL["trio" if isinstance(loop, Asyncio) else "asyncio"]

    async def scenario() -> None:
        async with loop.connect("localhost:1"):
            pass

    advice = "a trio program uses ottla.connect" if isinstance(loop, Asyncio) else "uses ottla.aio.connect"
    with pytest.raises(LocalProtocolError, match=advice):
        other.run(scenario)


def test_a_cancellation_at_any_suspension_of_connect_leaves_nothing_behind(loop: Loop) -> None:
    with scripted() as (address, _):

        async def connect() -> None:
            async with loop.connect(address):
                pass

        async def scenario() -> int:
            _, count = await cancelled_at(loop, None, connect())
            for at in range(1, count + 1):
                await cancelled_at(loop, at, connect())
            return count

        assert loop.run(scenario) >= 1


def test_a_cancellation_at_any_suspension_of_a_call_sends_it_wholly_or_not_at_all(loop: Loop) -> None:
    with scripted() as (address, broker):

        async def scenario() -> None:
            async with loop.connect(address) as client:
                _, count = await cancelled_at(loop, None, client.list_topics())
                for at in range(1, count + 1):
                    cancelled, _ = await cancelled_at(loop, at, client.list_topics())
                    assert cancelled
                    assert await client.list_topics() == ["t"]

        loop.run(scenario)
        assert broker.ended.count("end") == len(broker.ended)


async def elsewhere(client: Client, producer: Producer[Any, Any], broker: Scripted) -> None:
    before = len(broker.seen)
    for call in (
        client.list_topics,
        partial(producer.send, "t", b"x"),
        partial(producer.send_soon, "t", b"x"),
        partial(producer.send_many, "t", [b"x"]),
        producer.flush,
        partial(producer.__aexit__, None, None, None),
        partial(client.__aexit__, None, None, None),
    ):
        with pytest.raises(LocalProtocolError, match=r"another asyncio loop .* separate client in"):
            async with asyncio.timeout(5):
                await call()
    with pytest.raises(LocalProtocolError, match="another asyncio loop"):
        producer.send_nowait("t", b"x")
    await asyncio.sleep(0.02)
    assert len(broker.seen) == before


def test_in_another_loop_of_the_same_thread_every_call_is_refused_and_nothing_is_done() -> None:
    """As with two `asyncio.run`, or with a pytest fixture in another loop than the test."""
    with scripted() as (address, broker), contextlib.closing(asyncio.new_event_loop()) as first:
        client = ottla.aio.connect(address)
        first.run_until_complete(client.__aenter__())
        producer = client.producer(linger=0)
        first.run_until_complete(producer.__aenter__())
        asyncio.run(elsewhere(client, producer, broker))
        first.run_until_complete(producer.__aexit__(None, None, None))
        first.run_until_complete(client.__aexit__(None, None, None))


NEVER_LEFT = """
import asyncio, sys
import ottla.aio, ottla.errors

async def begin():
    client = ottla.aio.connect(sys.argv[1])
    await client.__aenter__()
    producer = client.producer(linger=60)
    await producer.__aenter__()
    await producer.send_soon("t", b"lost")
    return producer

producer = asyncio.run(begin())
for call in (producer.flush, lambda: producer.__aexit__(None, None, None)):
    try:
        asyncio.run(call())
    except ottla.errors.LocalProtocolError as error:
        assert "another asyncio loop" in str(error)
        print("refused")
"""


def test_a_client_that_is_never_left_is_heard_of_and_refuses_what_comes_after_its_loop() -> None:
    with scripted() as (address, _):
        done = subprocess.run([sys.executable, "-c", NEVER_LEFT, address], capture_output=True, text=True, timeout=HUNG)
    assert done.stdout == "refused\nrefused\n" and done.returncode == 0
    assert "a client's block never ended, so records that its producers accepted may be lost" in done.stderr


def test_a_client_that_is_never_left_is_abandoned_without_an_import(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted() as (address, _):
        client = ottla.sync.connect(address)
        client.__enter__()
        thread = client._driver._thread
        monkeypatch.setitem(sys.modules, "ottla.sdk.produce.core", None)  # an import of it fails
        del client
        gc.collect()
    assert not thread.is_alive()
    assert [vars(each)["records"] for each in caplog.records if "block never ended" in each.getMessage()] == [0]


@pytest.mark.parametrize(("unsent", "ended"), [(0, "close"), (1, "abort")])
def test_a_connection_whose_peer_reads_nothing_is_not_kept_for_what_is_unsent(unsent: int, ended: str) -> None:
    calls: list[str] = []

    class Transport:
        def get_write_buffer_size(self) -> int:
            return unsent

        def close(self) -> None:
            calls.append("close")

        def abort(self) -> None:
            calls.append("abort")

    async def scenario() -> None:
        driver = AsyncioDriver(ClientCore([("h", 1)], Options(), random.Random(1)))
        link = AsyncioLink(driver, (1, "general"))
        link.transport = Transport()  # type: ignore[assignment]
        driver._hang_up(link)

    asyncio.run(scenario())
    assert calls == [ended]


def test_the_place_of_a_slow_handler_is_in_its_own_code_even_while_it_calls_ottla() -> None:
    app, inside = ("app.py", 7, "handle"), (ottla.sync.__file__, 9, "do")
    assert innermost([app, inside, inside, inside]) == "app.py:7 in handle"
    assert innermost([inside]) == f"{ottla.sync.__file__}:9 in do"
    assert innermost([]) == "unknown"
