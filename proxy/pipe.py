"""Pumps bytes between the core and one upstream connection.

Rules:
- A pipe reads as much as its client takes: responses that the client has not read fill its window of the budget, and
  then TCP pushes back to upstream. Large responses that are collected wait for memory.
- A client is not read while more than its window waits for upstream. Upstream must accept some bytes in 30 seconds.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Container, Hashable
from typing import Protocol

import trio

from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError, reason
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import Address, Event, UpstreamConnected, UpstreamLost, UpstreamPaused, UpstreamReceived
from ottla.proxy.upstream.link import UpstreamLink
from ottla.serve import AcceptedConnection, Memory, Outbox, bare, write_on

log = logging.getLogger("ottla.proxy")

_CHUNK = 64 * 2**10
"""The most bytes of responses that are read at once; larger ones begin in one read, and continue in others."""
_PIECE = 256 * 2**10
"""The most bytes of a passage that are read at once."""
_TURN = 2**20
"""Bytes that a connection reads before others get their turn."""
WRITE_TIMEOUT = 30.0
"""Seconds in which an upstream connection must accept some bytes."""


class PipeDriver(Protocol):
    """The parts of the driver that pipes use."""

    core: ProxyCore

    @property
    def clients(self) -> Container[int]:
        """The numbers of the connected clients."""

    @property
    def frames(self) -> Memory:
        """The memory of large frames that are collected."""

    def happened(self, event: Event) -> None:
        """Pass an event to the core and do its actions."""

    def count(self, holder: Hashable, change: int) -> None:
        """Count memory of a pipe."""

    def pause(self, client: int, paused: bool) -> None:
        """Read nothing more from a client, because its upstream connection is slower."""


class Pipe:
    """One upstream connection, of a client or (``None``) of the proxy itself."""

    def __init__(self, driver: PipeDriver, link: int, address: Address, client: AcceptedConnection | None) -> None:
        self._driver, self._link, self._address = driver, link, address
        self.client = client
        self._scope = trio.CancelScope()
        self._outbox = Outbox()
        self.queued = 0
        """Bytes that are not written yet."""
        self._small = 0
        """Bytes of an incomplete small response."""
        self._finishes = False
        self._holds = False
        """Reading from the client is paused."""
        self._more = trio.Event()
        self._room = trio.Event()
        """Set when a response that is being collected gets more memory."""
        self._why = "the proxy ends"

    def send(self, *parts: Buffer) -> None:
        self._outbox.append(*parts)
        self._count(sum(map(len, parts)))
        if self.client is not None and not self._holds and self.queued > self._window(self.client):
            self._holds = True
            self._driver.pause(self.client.id, True)
        self._more.set()

    def _count(self, change: int) -> None:
        self.queued += change
        self._driver.count(self, change)

    def _window(self, client: AcceptedConnection) -> int:
        return self._driver.core.buffered.window(client.id)

    def finish(self) -> None:
        """Shut down the writing half once everything is written; upstream then closes the connection."""
        self._finishes = True
        self._more.set()

    def close(self, why: str = "closed by the proxy") -> None:
        self._why = why
        self._scope.cancel()

    async def run(self) -> None:
        """Connect, pump until either side ends the connection, and report the end to the core."""
        with self._scope:
            try:
                await self._pump(bare((await trio.open_tcp_stream(*self._address)).socket))
            except RemoteProtocolError as error:
                self._why = str(error)
            except OSError as error:
                self._why = f"cannot connect: {reason(error)}"
            except UnicodeError:
                self._why = f"cannot connect: {self._address[0]!r} is no host name"
            except Exception as bug:  # for example an invalid address from upstream
                log.exception("an upstream connection failed")
                self._why = f"internal error: {bug}"
        self._driver.frames.give(self)
        unsent = self.queued
        self._count(-unsent)
        self._driver.count(self, -self._small)
        if self.client is not None and self.client.id not in self._driver.clients and unsent:
            self._driver.core.dropped(self._why, unsent, trio.current_time())
        if self.client is not None and self._holds:
            self._driver.pause(self.client.id, False)
        self._driver.happened(UpstreamLost(self._link, self._why))

    async def _pump(self, sock: socket.socket) -> None:
        """Read and write until one of them ends; an exception is a bug or upstream's violation of the protocol."""
        failed: Exception | None = None

        async def half(work: Callable[[socket.socket], Awaitable[str]]) -> None:
            nonlocal failed
            try:
                self._why = await work(sock)
            except OSError as error:
                self._why = f"connection lost: {reason(error)}"
            except trio.TooSlowError:
                self._why = f"connection lost: upstream has taken nothing for {WRITE_TIMEOUT:g} s"
            except Exception as error:
                failed = failed or error
            nursery.cancel_scope.cancel()

        try:
            self._driver.happened(UpstreamConnected(self._link))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(half, self._read)
                nursery.start_soon(half, self._write)
        finally:
            trio.lowlevel.notify_closing(sock)
            sock.close()
        if failed is not None:
            raise failed

    async def _read(self, sock: socket.socket) -> str:
        turn, link = 0, self._driver.core.links.find(self._link)
        while True:
            passing = link.passing if link is not None else 0
            size = min(await self._may_read(), min(_PIECE, passing) if passing else _CHUNK)
            if turn <= 0:
                await trio.lowlevel.wait_readable(sock)
                turn = _TURN
            try:
                data = sock.recv(size)
            except BlockingIOError:
                turn = 0
                continue
            if not data:
                return "closed by upstream"
            turn = turn - size if len(data) == size else 0
            self._driver.happened(UpstreamReceived(self._link, data))
            if link is not None:
                await self._reserve(link)

    async def _may_read(self) -> int:
        """Wait until the client has read enough of its responses; return how many more bytes may wait for it."""
        if self.client is None:
            return _PIECE
        if self.client.unsent >= (window := self._window(self.client)):
            self._driver.happened(UpstreamPaused(self._link, True))
            await self.client.room(window // 2)
            self._driver.happened(UpstreamPaused(self._link, False))
        return max(window - self.client.unsent, 1)

    async def _reserve(self, link: UpstreamLink) -> None:
        """Count an incomplete response, and wait for the memory that a large one needs to continue."""
        frames, small, size = self._driver.frames, link.pending, link.needs
        if small != self._small:
            self._driver.count(self, small - self._small)
            self._small = small
        if not size:
            frames.give(self)
        elif size > frames.has(self):
            frames.take(self, size, self._came)
            while frames.has(self) < size:
                self._room = trio.Event()
                await self._room.wait()

    def _came(self) -> None:
        self._room.set()

    async def _write(self, sock: socket.socket) -> str:
        def write() -> None:
            self._count(-self._outbox.write(sock))
            if self._holds and self.client is not None and self.queued <= self._window(self.client) // 2:
                self._holds = False
                self._driver.pause(self.client.id, False)

        while True:
            await self._more.wait()
            self._more = trio.Event()
            write()
            await write_on(self._outbox, sock, WRITE_TIMEOUT, write)
            if self._finishes:
                sock.shutdown(socket.SHUT_WR)
                await trio.sleep_forever()  # the reader sees the end
