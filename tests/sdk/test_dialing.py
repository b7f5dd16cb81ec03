"""Connecting with asyncio: which address of a name is used, and that every other socket is closed."""

import asyncio
import itertools
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import uvloop

from ottla.sdk.drivers import dialing

HERE, SILENT, REFUSED = "127.0.0.1", "127.0.0.2", "127.0.0.3"
"""Addresses where a server listens, where no packet is answered, and where no server listens."""


class Names:
    """A loop that resolves one name to given addresses, and has an address that never answers."""

    addresses: Sequence[str] = (HERE,)

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        addresses = self.addresses if host == "broker" else [host]  # uvloop resolves addresses, too
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    async def sock_connect(self, connection: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == SILENT:
            await asyncio.sleep(60)
        await super().sock_connect(connection, address)  # type: ignore[misc]


class Asyncio(Names, asyncio.SelectorEventLoop):  # type: ignore[misc]
    pass


class Uvloop(Names, uvloop.Loop):  # type: ignore[misc]
    pass


@pytest.fixture(params=[Asyncio, Uvloop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[Any]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.get_loop()


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server((HERE, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Each socket created to connect."""
    sockets: list[socket.socket] = []

    class Socket(socket.socket):
        def __init__(self, *args: Any, **others: Any) -> None:
            super().__init__(*args, **others)
            sockets.append(self)

    class Sockets:
        socket = Socket

        def __getattr__(self, name: str) -> Any:
            return getattr(socket, name)

    monkeypatch.setattr(dialing, "socket", Sockets())
    return sockets


def dialed(loop: Any, port: int, addresses: Sequence[str], last: str | None = None) -> str:
    """The address that the connection reached."""
    loop.addresses = addresses
    with loop.run_until_complete(dialing.dial(loop, "broker", port, last=last)) as connection:
        address: str = connection.getpeername()[0]
        return address


@pytest.mark.parametrize("addresses", [(HERE, SILENT), (SILENT, HERE), (REFUSED, HERE), (REFUSED, SILENT, HERE)])
def test_the_first_address_that_answers_is_taken_and_the_others_are_given_up(
    loop: Any, port: int, addresses: Sequence[str], made: list[socket.socket]
) -> None:
    assert dialed(loop, port, addresses) == HERE
    loop.run_until_complete(asyncio.sleep(0))
    assert [each.fileno() for each in made] == [-1] * len(made)


def test_the_address_that_broke_the_last_connection_is_tried_after_all_others(loop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        with socket.create_server(("127.0.0.4", port)):
            assert dialed(loop, port, ("127.0.0.1", "127.0.0.4")) == "127.0.0.1"
            assert dialed(loop, port, ("127.0.0.1", "127.0.0.4"), last="127.0.0.1") == "127.0.0.4"


def test_where_no_address_answers_the_first_error_is_raised(loop: Any, port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        dialed(loop, port, (REFUSED, "127.0.0.4"))
    with pytest.raises(OSError, match="broker has no address"):
        dialed(loop, port, ())


@pytest.mark.parametrize("addresses", [(HERE,), (SILENT, HERE)], ids=len)
def test_a_dial_that_is_cancelled_twice_at_any_two_steps_leaves_no_socket(
    loop: Any, port: int, addresses: Sequence[str], made: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialing, "_STAGGER", 0.0)
    loop.addresses = addresses

    async def cancelled_at(steps: tuple[int, int]) -> bool:
        task = asyncio.create_task(dialing.dial(loop, "broker", port, last=None))
        for step in range(max(steps) + 1):
            if step in steps:
                task.cancel()
            await asyncio.sleep(0)
        try:
            (await task).close()
        except asyncio.CancelledError:
            return True
        return False

    outcomes = set()
    for steps in itertools.combinations(range(12), 2):
        outcomes.add(loop.run_until_complete(cancelled_at(steps)))
        loop.run_until_complete(asyncio.sleep(0))
        assert [each.fileno() for each in made] == [-1] * len(made), steps
    assert outcomes == {True, False}
