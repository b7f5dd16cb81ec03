"""The trio driver: one task that keeps time, and a reader and a writer for each connection.

Theory of operation: the core is only touched between checkpoints, so it needs no lock. Whoever changed something
calls `step`, which polls the core and carries out its actions; the timekeeper steps when the core's deadline
passes. A task that waits for an `Outcome` waits for a trio event that the outcome sets.
"""

import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import trio

from ottla.sdk.machines.actions import Close, Connect, Connected, Key, Lost, Received, Send
from ottla.sdk.machines.core import ClientCore
from ottla.sdk.machines.outcome import Outcome

T = TypeVar("T")

_CHUNK = 256 * 2**10


class Link:
    """One connection, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.scope = trio.CancelScope()
        self.outbox: deque[bytes] = deque()
        self.written = trio.Event()


class TrioDriver:
    """Drives ``core`` with tasks in ``nursery``."""

    def __init__(self, core: ClientCore, nursery: trio.Nursery) -> None:
        self.core = core
        self._nursery = nursery
        self._links: dict[Key, Link] = {}
        self._until = -math.inf
        self._kicked = trio.Event()

    async def run(self) -> None:
        """Keep time until cancelled."""
        while True:
            self._kicked = trio.Event()
            self.step()
            deadline = self.core.deadline
            self._until = math.inf if deadline is None else deadline
            with trio.move_on_at(self._until):
                await self._kicked.wait()

    def step(self) -> None:
        """Poll the core and carry out what it asks for."""
        for action in self.core.poll(trio.current_time()):
            match action:
                case Send(key=key, data=data):
                    if link := self._links.get(key):
                        link.outbox.append(data)
                        link.written.set()
                case Connect(key=key, host=host, port=port):
                    link = self._links[key] = Link(key)
                    self._nursery.start_soon(self._connect, link, host, port)
                case Close(key=key):
                    if closed := self._links.pop(key, None):
                        closed.scope.cancel()
        self.nudge()

    def nudge(self) -> bool:
        """Wake the timekeeper if the core has something to do earlier than it knows; whether that was so."""
        deadline = self.core.deadline
        if deadline is None or deadline >= self._until:
            return False
        self._until = -math.inf
        self._kicked.set()
        return True

    def cancel(self) -> None:
        """End all tasks."""
        self._nursery.cancel_scope.cancel()

    async def call(self, start: Callable[[float], Outcome[T]]) -> T:
        """Start something on the core and wait for its outcome."""
        outcome = start(trio.current_time())
        self.step()
        return await self.wait(outcome)

    async def wait(self, outcome: Outcome[T]) -> T:
        """The value of ``outcome``; raises its error. Bounded by the core, which settles every outcome in time."""
        if outcome.done:
            await trio.lowlevel.checkpoint()
        else:
            settled = trio.Event()
            outcome.when_done(settled.set)
            await settled.wait()
        return outcome.result()

    async def _connect(self, link: Link, host: str, port: int) -> None:
        why = "closed by the broker"
        with link.scope:
            try:
                stream = await trio.open_tcp_stream(host, port)
            except OSError as error:
                why = reason(error)
            except UnicodeError:
                why = f"{host!r} is no host name"
            else:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    self.core.handle(Connected(link.key), trio.current_time())
                    self.step()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._write, link, stream)
                        why = await self._read(link, stream)
                        nursery.cancel_scope.cancel()
                finally:
                    with trio.move_on_after(0):
                        await stream.aclose()
        if self._links.get(link.key) is link:
            del self._links[link.key]
            self.core.handle(Lost(link.key, why), trio.current_time())
            self.step()

    async def _read(self, link: Link, stream: trio.SocketStream) -> str:
        """Pass on what arrives until the connection ends; return why it did."""
        try:
            while data := await stream.receive_some(_CHUNK):
                self.core.handle(Received(link.key, data), trio.current_time())
                self.step()
        except trio.BrokenResourceError as error:
            return reason(error.__cause__ or error)
        return "closed by the broker"

    async def _write(self, link: Link, stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # the reader sees it too, and says why
            while True:
                await link.written.wait()
                link.written = trio.Event()
                data = b"".join(link.outbox)
                link.outbox.clear()
                await stream.send_all(data)


def reason(error: BaseException) -> str:
    """An operating system's error in a few words; trio wraps those of each address it tried."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    if error.__cause__ is not None:
        return reason(error.__cause__)
    return str(error).lower() or type(error).__name__
