"""The trio driver: one task that keeps time, and a reader and a writer for each connection.

Theory of operation: the core is only touched between checkpoints, so it needs no lock. Whoever changed something
calls `step`, which polls the core and carries out its actions; the timekeeper steps when the core's deadline
passes. A task that waits for an `Outcome` waits for a trio event that the outcome sets.

No task dies silently: an error that is a bug ends the core, so that nobody waits for it, and is raised where the client
was opened.
"""

import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from ottla.errors import LocalProtocolError, OttlaError
from ottla.sdk.drivers.watchdog import Watchdog
from ottla.sdk.machines.actions import Close, Connect, Connected, Event, Filled, Find, Found, Key, Lost, Received, Send
from ottla.sdk.machines.core import ClientCore
from ottla.sdk.machines.options import parse_bootstrap
from ottla.sdk.machines.outcome import Outcome

T = TypeVar("T")

_CHUNK = 64 * 2**10
"""Bytes of one read; the rest of what is larger is read into its place."""
_PARTS = 64
"""Buffers of one write; systems take 1024, most have less."""
_PATIENCE = 2.0
"""Seconds for one address of a name when the one that was used last has failed."""


class Link:
    """One connection, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.scope = trio.CancelScope()
        self.outbox: deque[bytes] = deque()
        self.written = trio.Event()


class TrioDriver:
    """Drives ``core`` with tasks in ``nursery``; ``find`` looks for brokers as at the beginning (zeroconf)."""

    def __init__(
        self, core: ClientCore, nursery: trio.Nursery, find: Callable[[], Awaitable[Sequence[str]]] | None = None
    ) -> None:
        self.core = core
        self.now = trio.lowlevel.current_clock().current_time
        """The time of the core; callable from any thread."""
        self._nursery, self._find = nursery, find
        self._token = trio.lowlevel.current_trio_token()
        self._links: dict[Key, Link] = {}
        self._reached: dict[tuple[str, int], str] = {}
        """Per name and port, the address that took the last connection."""
        self._until = -math.inf
        self._kicked = trio.Event()
        self._lag = core.metrics.timing("io-loop-lag")

    async def run(self) -> None:
        """Keep time until cancelled."""
        while True:
            self._kicked = trio.Event()
            self.step()
            deadline = self.core.deadline
            until = self._until = math.inf if deadline is None else deadline
            with trio.move_on_at(until) as scope:
                await self._kicked.wait()
            if scope.cancelled_caught:
                now = trio.current_time()
                self._lag.record(now - until, now)

    def step(self) -> None:
        """Poll the core and carry out what it asks for."""
        try:
            actions = self.core.poll(trio.current_time())
        except Exception as bug:  # whatever it is, nobody may wait for what it left half done
            self._broken(bug)
            raise
        for action in actions:
            match action:
                case Send(key=key, data=data):
                    if link := self._links.get(key):
                        link.outbox.append(data)
                        link.written.set()
                case Connect(key=key):
                    link = self._links[key] = Link(key)
                    self._nursery.start_soon(self._connect, link, action)
                case Close(key=key):
                    if closed := self._links.pop(key, None):
                        closed.scope.cancel()
                case Find():
                    self._nursery.start_soon(self._find_again)
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

    def watch(self, limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
        """Have a thread call ``report(seconds, stack)`` when the loop has not turned for ``limit`` seconds.

        The stack tells where the code stands that keeps the loop from turning. Returns what ends the watch.
        """
        return Watchdog(self._token.run_sync_soon, limit, report).stop

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
            try:
                await settled.wait()
            finally:
                outcome.forget(settled.set)
        return outcome.result()

    def _tell(self, event: Event) -> None:
        """Tell the core what happened, and do what it wants done."""
        try:
            self.core.handle(event, trio.current_time())
        except Exception as bug:  # as in `step`
            self._broken(bug)
            raise
        self.step()

    def _broken(self, bug: Exception) -> None:
        error = OttlaError(f"the client has stopped on a bug in ottla, please report it: {type(bug).__name__}: {bug}")
        error.__cause__ = bug
        with contextlib.suppress(Exception):  # what is broken may be broken here too, and `bug` says more
            self.core.close(trio.current_time(), error)

    async def _connect(self, link: Link, wanted: Connect) -> None:
        why = "closed by the broker"
        with link.scope:
            try:
                stream = await self._dial(wanted.host, wanted.port, wanted.attempt)
            except OSError as error:
                why = reason(error)
            except UnicodeError:
                why = f"{wanted.host!r} is no host name"
            else:
                try:
                    self._tell(Connected(link.key))
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._write, link, stream)
                        why = await self._read(link, stream)
                        nursery.cancel_scope.cancel()
                finally:
                    with trio.move_on_after(0, shield=True):  # or a cancellation would take the place of an error
                        await stream.aclose()
        if self._links.get(link.key) is link:
            del self._links[link.key]
            self._tell(Lost(link.key, why))

    async def _dial(self, host: str, port: int, attempt: int) -> trio.SocketStream:
        """A connection to one of the addresses of a name.

        trio tries them all and takes the first that answers, which is the same each time. If that one took the last
        connection and broke it, the others are tried first.
        """
        broke = self._reached.pop((host, port), None) if attempt else None
        stream = await self._dial_others(host, port, broke) if broke else None
        if stream is None:
            stream = await trio.open_tcp_stream(host, port)
        with contextlib.suppress(OSError):  # it may have ended already, as the reader will find
            self._reached[host, port] = stream.socket.getpeername()[0]
        return stream

    async def _dial_others(self, host: str, port: int, broke: str) -> trio.SocketStream | None:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            if address != broke:
                with trio.move_on_after(_PATIENCE), contextlib.suppress(OSError):
                    return await trio.open_tcp_stream(address, port)
        return None

    async def _find_again(self) -> None:
        addresses: list[tuple[str, int]] = []
        if self._find:
            with contextlib.suppress(OttlaError):  # nobody is announced now: the core asks again
                addresses = parse_bootstrap(list(await self._find()))
        self._tell(Found(tuple(addresses)))

    async def _read(self, link: Link, stream: trio.SocketStream) -> str:
        """Pass on what arrives until the connection ends; return why it did."""
        try:
            while True:
                room = self.core.room(link.key)
                if room is None:
                    data = await stream.socket.recv(_CHUNK)
                    if not data:
                        break
                    self._tell(Received(link.key, data))
                else:
                    count = await stream.socket.recv_into(room)
                    if not count:
                        break
                    self._tell(Filled(link.key, count))
        except OSError as error:
            return reason(error)
        return "closed by the broker"

    async def _write(self, link: Link, stream: trio.SocketStream) -> None:
        with contextlib.suppress(OSError):  # the reader sees it too, and says why
            while True:
                await link.written.wait()
                link.written = trio.Event()
                while link.outbox:
                    parts = list(link.outbox)
                    link.outbox.clear()
                    await _send_all(stream, parts)


async def _send_all(stream: trio.SocketStream, parts: list[bytes]) -> None:
    """Send the parts with as few calls, and as few copies, as the system allows."""
    left: list[bytes | memoryview] = [*parts]
    while left:
        count = await stream.socket.sendmsg(left[:_PARTS])
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = memoryview(left[0])[count:]


def require_trio() -> None:
    """Say what to do where the client is used without trio.

    Raises:
        LocalProtocolError: no trio loop runs here.
    """
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        advice = "start the program with trio.run(main); an asyncio program can run it in a thread of its own"
        raise LocalProtocolError(f"ottla's client runs on trio, which does not run here: {advice}") from None


def reason(error: BaseException) -> str:
    """An operating system's error in a few words; trio wraps those of each address it tried."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    if error.__cause__ is not None:
        return reason(error.__cause__)
    return str(error).lower() or type(error).__name__
