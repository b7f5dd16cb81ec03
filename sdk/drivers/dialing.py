"""Connects with asyncio to the first address of a host name that answers, as in RFC 8305.

If an address is slow, the next one is tried at the same time. trio's `open_tcp_stream` does the same.
"""

import asyncio
import socket
from typing import Any

_STAGGER = 0.25
"""Seconds after which the next address of a name is tried in parallel."""


async def dial(loop: asyncio.AbstractEventLoop, host: str, port: int, *, last: str | None) -> socket.socket:
    """Return a connected socket.

    Args:
        last: an address to try after all others.

    Raises:
        OSError: all addresses failed; the error of the first one.
        UnicodeError: the host is not a valid name.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: each[4][0] == last)
    attempts: list[asyncio.Task[socket.socket]] = []
    pending: set[asyncio.Task[socket.socket]] = set()
    errors: list[BaseException] = []
    won: asyncio.Task[socket.socket] | None = None
    try:
        for family, _, protocol, _, address in found:
            attempts.append(loop.create_task(_socket_to(loop, family, protocol, address)))
            pending.add(attempts[-1])
            more = address != found[-1][4]
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=_STAGGER if more else None, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    if (error := each.exception()) is not None:
                        errors.append(error)
                    else:
                        won = each
                if won is not None:
                    return won.result()
                if more:
                    break
    finally:  # without waiting: a second cancellation would otherwise leak a socket
        for each in attempts:
            if each is not won:
                each.cancel()
                each.add_done_callback(_close)
    raise errors[0] if errors else OSError(f"{host} has no address")


def _close(attempt: "asyncio.Task[socket.socket]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


async def _socket_to(loop: asyncio.AbstractEventLoop, family: int, protocol: int, address: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(connection, address)
    except BaseException:  # a cancellation included
        connection.close()
        raise
    return connection
