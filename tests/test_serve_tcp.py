"""The listener of both servers on the network: addresses, socket options, accepting, resets.

The clock is the real one, so no test here measures time.
"""

import logging
import os
import socket
import struct
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
import trio

from ottla.codec.frames import framed
from ottla.errors import ConfigurationError
from ottla.serve import Listener, bare, serve_health
from tests.patience import HUNG
from tests.serving import LIMITS, LOCAL, Desk, closed, echo, received, until
from tests.steps import no_step_holds_the_loop  # noqa: F401 # applies to each test here
from tests.tcp import listening, peer, reset


@pytest.mark.skipif(sys.platform != "linux", reason="the names of its options")
async def test_the_system_looks_whether_a_silent_peer_is_there() -> None:
    desk = Desk()
    async with listening(desk) as (_, port), peer(port):
        await until(lambda: desk.connections)
        its = desk.connections[0]._socket
        assert its.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert its.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


async def test_a_peer_that_is_gone_before_it_is_accepted_is_served_and_nobodys_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(echo)
    listener = Listener(LIMITS)
    port = await listener.open(LOCAL, 0, desk)
    with socket.create_connection((LOCAL, port)) as gone:
        gone.sendall(framed(b"first"))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))
    async with peer(port) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        await stream.send_all(framed(b"a"))
        assert await received(stream, 5) == framed(b"a")
        nursery.cancel_scope.cancel()
    assert desk.asked == [b"first", b"a"]
    assert caplog.records == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of open files")
async def test_a_process_without_free_descriptors_accepts_when_it_has_some_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import resource

    desk = Desk(echo)
    async with listening(desk) as (_, port):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as taken, trio.socket.socket() as sock:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
            try:
                with suppress(OSError):
                    while True:
                        taken.callback(os.close, os.open(os.devnull, os.O_RDONLY))
                await sock.connect((LOCAL, port))
                await sock.send(framed(b"a"))
                await until(lambda: caplog.records)
                assert "cannot accept" in caplog.text and desk.connections == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await until(lambda: desk.asked)
            assert await sock.recv(100) == framed(b"a")
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_a_probe_that_connects_and_goes_leaves_no_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    async with listening(desk) as (_, port):
        async with peer(port):
            pass
        await until(lambda: desk.left)
        async with peer(port) as stream:  # and one that resets the connection
            reset(stream)
        await until(lambda: len(desk.left) == len(desk.connections))
    assert caplog.records == []


async def test_a_peer_that_resets_is_noticed_while_its_requests_wait() -> None:
    desk = Desk()
    async with listening(desk) as (_, port):
        async with peer(port) as stream:
            await stream.send_all(framed(b"long poll") * 2 * LIMITS.pipeline)
            await until(lambda: len(desk.asked) == LIMITS.pipeline)
            assert not desk.left
            reset(stream)
        await until(lambda: desk.left)


async def test_a_peer_that_stops_reading_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla.serve")
    much = bytes(50_000_000)
    desk = Desk(lambda frame, answer: answer.send(much))
    async with listening(desk, replace(LIMITS, write=0.3)) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"much"))
        await received(stream, 5_000_000)
        await until(lambda: desk.left)
    assert [record.__dict__["why"] for record in caplog.records[-1:]] == ["the peer read no response for 0.3 s"]


async def test_a_drain_includes_who_has_only_just_been_accepted() -> None:
    listener = Listener(LIMITS)
    port = await listener.open(LOCAL, 0, Desk())
    with trio.fail_after(HUNG):
        async with peer(port) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(listener.run)
            for _ in range(4):  # a drain at any step of the acceptance must close the connection
                await trio.lowlevel.checkpoint()
                nursery.start_soon(listener.drain)
            await closed(stream)


async def test_cancellation_closes_everything() -> None:
    desk = Desk()
    async with listening(desk) as (_, port):
        stream = await trio.open_tcp_stream(LOCAL, port)
        await stream.send_all(framed(b"asked"))
        await until(lambda: desk.asked)
    assert desk.left == desk.connections
    async with stream:
        await closed(stream)
    with pytest.raises(OSError):
        await trio.open_tcp_stream(LOCAL, port)


async def test_a_port_may_be_opened_while_others_are_served() -> None:
    first, second = Desk(echo), Desk(echo)
    async with listening(first) as (listener, _):
        port = await listener.open(LOCAL, 0, second)
        async with peer(port) as stream:
            await stream.send_all(framed(b"a"))
            assert await received(stream, 5) == framed(b"a")
        await listener.drain()
        late = await listener.open(LOCAL, 0, second)
        with pytest.raises(OSError):
            await trio.open_tcp_stream(LOCAL, late)
    assert (first.asked, second.asked) == ([], [b"a"])


async def test_health_is_asked_at_a_port_of_its_own() -> None:
    ports: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_health(LOCAL, 0, lambda: True, lambda: iter(()), opened=ports.append))
        await until(lambda: ports)
        async with peer(ports[0]) as stream:
            await stream.send_all(b"GET /ready HTTP/1.1\r\n\r\n")
            assert (await received(stream, 15)) == b"HTTP/1.1 200 OK"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("header", [b"", b"Cookie: " + b"x" * 100_000 + b"\r\n"], ids=["body", "headers"])
async def test_a_response_is_complete_although_the_server_has_not_read_the_whole_request(header: bytes) -> None:
    ports: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_health(LOCAL, 0, lambda: True, lambda: iter(()), opened=ports.append))
        await until(lambda: ports)
        for _ in range(10):
            async with peer(ports[0]) as stream:
                await stream.send_all(b"POST /ready HTTP/1.1\r\n" + header + b"\r\n" + b"x" * 100_000)
                answer = b"".join([data async for data in stream])  # a reset would raise an error
                assert answer.endswith(b"\r\n\r\nok\n")
        nursery.cancel_scope.cancel()


async def test_connections_know_their_ends() -> None:
    desk = Desk()
    async with listening(desk) as (_, port), peer(port) as stream:
        await until(lambda: desk.connections)
        assert desk.connections[0].peer == f"127.0.0.1:{stream.socket.getsockname()[1]}"
        assert desk.connections[0].session.local_host == LOCAL
        assert desk.connections[0].id == 1


async def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with socket.socket() as holder:
        holder.bind((LOCAL, 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=rf"cannot listen on 127\.0\.0\.1:{port}: the port is in use; stop"
        ):
            await Listener().open(LOCAL, port, Desk())
        with pytest.raises(ConfigurationError, match=f"{port} for health checks: the port is in use"):
            await serve_health(LOCAL, port, lambda: True, lambda: iter(()), opened=print)


@pytest.mark.parametrize(
    ("host", "port", "complaint"),
    [
        ("192.0.2.1", 0, "the address is not one of this machine"),
        (LOCAL, -1, "ports are 0 to 65535"),
        (LOCAL, 65536, "ports are 0 to 65535"),
        ("no..host", 9092, r"cannot listen on no\.\.host:9092: that is not a host name"),
    ],
)
async def test_an_address_that_cannot_be_used_is_named(host: str, port: int, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        await Listener().open(host, port, Desk())


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
async def test_two_colons_are_every_address_of_both_families() -> None:
    desk = Desk(echo)
    listener = Listener(LIMITS)
    port = await listener.open("::", 0, desk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        for host in ("127.0.0.1", "::1"):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(framed(b"a"))
                assert await received(stream, 5) == framed(b"a")
        nursery.cancel_scope.cancel()
    assert [each.session.local_host for each in desk.connections] == ["127.0.0.1", "::1"]
    assert [each.peer.rpartition(":")[0] for each in desk.connections] == ["127.0.0.1", "[::1]"]


async def test_a_name_with_several_addresses_gets_one_free_port() -> None:
    listener = Listener(LIMITS)
    port = await listener.open("localhost", 0, Desk(echo))
    assert port
    await listener.drain()
    await listener.run()


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such option")
async def test_the_system_takes_of_answers_as_much_as_it_sees_fit() -> None:
    desk = Desk(echo)
    async with listening(desk) as (_, port), peer(port):
        await until(lambda: desk.connections)
        its = desk.connections[0]._socket
        assert its.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 0
        assert its.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such option")
async def test_a_stream_of_trios_is_taken_over_without_its_bound() -> None:
    async with listening(Desk(echo)) as (_, port):
        stream = await trio.open_tcp_stream(LOCAL, port)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 16384
        with bare(stream.socket) as ours:
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 0
            assert not ours.getblocking()


async def test_a_client_that_resets_its_connection_ends_no_server() -> None:
    ports: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_health(LOCAL, 0, lambda: True, lambda: iter(()), opened=ports.append))
        await until(lambda: ports)
        for path in (b"/reload", b"/ready", b"/metrics") * 5:
            with socket.create_connection((LOCAL, ports[0])) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(b"POST " + path + b" HTTP/1.1\r\n\r\n")
            async with peer(ports[0]) as stream:
                await stream.send_all(b"GET /ready HTTP/1.1\r\n\r\n")
                assert (await received(stream, 15)) == b"HTTP/1.1 200 OK"
        nursery.cancel_scope.cancel()
