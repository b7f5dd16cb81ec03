"""The trio driver: one task that keeps time, and a reader and a writer for each connection.

Theory of operation: the core is only touched between checkpoints, so it needs no lock. Whoever changed something
calls `step`, which polls the core and carries out its actions; the timekeeper steps when the core's deadline
passes. A task that waits for an `Outcome` waits for a trio event that the outcome sets.

A turn of the loop costs a good part of a request. So `step` itself writes to the sockets what they take at once, nearly
always all of it, tells the core that it is written, and polls again; the writer has the rest, and tells it later. A
task that begins to wait sees to what is due; the timekeeper sleeps in a scope whose deadline is moved, and is not woken
to learn of another; and of a large answer the reader takes what is there as soon as it begins, and is woken when there
is much more.

No task dies silently: an error that is a bug ends the core, so that nobody waits for it, and is raised where the client
was opened.

A client belongs to the loop that it was opened in. Calls from elsewhere are refused before they touch anything.

Connections are bare sockets, and trio's streams do no more than dial. TLS needs nothing else of them: it comes as one
more machine, an `ssl.MemoryBIO` at either end of it, between what is read and the core, and between the core and the
outbox. There is no `room` then, for what is read is not yet the answer.
"""

import contextlib
import itertools
import math
import os
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from ottla.codec.wire import Buffer
from ottla.errors import LocalProtocolError, OttlaError
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.watchdog import Watchdog
from ottla.sdk.events import (
    Action,
    Close,
    Connect,
    Connected,
    Event,
    Filled,
    Find,
    Found,
    Key,
    Lost,
    Received,
    Send,
    Written,
)
from ottla.sdk.options import parse_bootstrap
from ottla.sdk.outcome import Outcome

T = TypeVar("T")

_CHUNK = 64 * 2**10
"""Bytes of one read; the rest of what is larger is read into its place."""
_MUCH = 2**20
"""Bytes of a large answer for which its reader is woken, where so many are still to come."""
_PAUSE = 0.05
"""Seconds after which it looks for fewer."""
_PARTS = 64
"""Buffers of one write; systems take 1024, most have less."""
_PATIENCE = 2.0
"""Seconds for one address of a name when the one that was used last has failed."""


class Link:
    """One connection, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.scope = trio.CancelScope()
        self.socket: socket.socket | None = None
        """Non-blocking; ``None`` before there is a connection."""
        self.outbox: deque[Buffer] = deque()
        """What the socket has not taken yet."""
        self.full = trio.Event()
        """The socket did not take everything: the writer is to go on when it does."""
        self.broke = ""
        """Why writing failed: only the first who touches a broken socket is told, the reader sees a mere end."""
        self._least = 1
        """Bytes for which the system wakes the reader."""

    def write(self) -> None:
        """Give the socket what it takes now, with as few calls, and as few copies, as the system allows."""
        outbox = self.outbox
        while outbox and self.socket is not None:
            try:
                count = self.socket.sendmsg(itertools.islice(outbox, _PARTS))
            except BlockingIOError:
                self.full.set()
                return
            except OSError as error:  # a frame may be half sent, so that nothing may follow; the reader ends the rest
                self.broke = self.broke or reason(error)
                outbox.clear()
                with contextlib.suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                return
            while outbox and count >= len(outbox[0]):
                count -= len(outbox.popleft())
            if count:
                outbox[0] = memoryview(outbox[0])[count:]

    async def wait_readable(self, connection: socket.socket, left: int) -> None:
        """Wait until it can be read, or has ended; for much of the ``left`` bytes of an answer, or for a moment.

        A moment, because Linux has had bugs by which nobody was woken who waits for more than its memory holds.
        """
        least = min(left, _MUCH)
        if least != self._least:
            with contextlib.suppress(OSError):  # a system that cannot wakes the reader more often
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least
        if least == 1:
            await trio.lowlevel.wait_readable(connection)
            return
        with trio.move_on_after(_PAUSE):
            await trio.lowlevel.wait_readable(connection)

    @property
    def wrote(self) -> bool:
        """The socket has taken everything."""
        return not self.outbox and not self.broke

    async def keep_writing(self, tell: Callable[[Written], object]) -> None:
        """Go on with what the socket did not take at once, and tell when it has, until cancelled."""
        while self.socket is not None:
            await self.full.wait()
            await trio.lowlevel.wait_writable(self.socket)
            self.full = trio.Event()
            self.write()
            if self.wrote:
                tell(Written(self.key))


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
        self._thread = threading.current_thread()
        """Where the loop runs; there is one at a time in a thread."""
        self._links: dict[Key, Link] = {}
        self._reached: dict[tuple[str, int], str] = {}
        """Per name and port, the address that took the last connection."""
        self._alarm = trio.CancelScope()
        """Its deadline is when the timekeeper wakes by itself."""
        self._kicked = trio.Event()
        """The timekeeper wakes in the next turn of the loop."""
        self._lag = core.metrics.timing("io-loop-lag")

    async def run(self) -> None:
        """Keep time until cancelled."""
        while True:
            with trio.CancelScope() as self._alarm:
                while True:
                    self._kicked = trio.Event()
                    self.step()
                    await self._kicked.wait()
            self._measure(self.now())

    def step(self) -> None:
        """Poll the core and carry out what it asks for."""
        self.refuse_another_loop()
        now = self.now()
        try:
            while actions := self.core.poll(now):
                for link in self._carry_out(actions):
                    if self._links.get(link.key) is link:
                        self.core.handle(Written(link.key), now)
        except Exception as bug:  # whatever it is, nobody may wait for what it left half done
            self._broken(bug)
            raise
        due = self.core.deadline
        if self._alarm.deadline <= now:  # what it was for is done
            self._measure(now)
            self._alarm.deadline = math.inf if due is None else due
        elif due is not None and due < self._alarm.deadline:
            self._alarm.deadline = due

    def _carry_out(self, actions: Sequence[Action]) -> list[Link]:
        """Do what the core asks for; returns the connections whose sockets took all that they were given."""
        sent: dict[Key, Link] = {}
        for action in actions:
            match action:
                case Send(key=key, parts=parts):
                    if link := self._links.get(key):
                        link.outbox += parts
                        sent[key] = link
                case Connect(key=key):
                    link = self._links[key] = Link(key)
                    self._nursery.start_soon(self._connect, link, action)
                case Close(key=key):
                    if closed := self._links.pop(key, None):
                        closed.scope.cancel()
                case Find():
                    self._nursery.start_soon(self._find_again)
        for link in sent.values():
            if not link.full.is_set():
                link.write()
        return [link for link in sent.values() if link.wrote]

    def nudge(self) -> bool:
        """Wake the timekeeper earlier if the core has something to do before it would; whether that was so."""
        self.refuse_another_loop()
        due = self.core.deadline
        if due is None or due >= self._alarm.deadline or self._kicked.is_set():
            return False
        if due <= self.now():
            self._kicked.set()
        else:
            self._alarm.deadline = due
        return True

    def catch_up(self) -> None:
        """Step, if there is anything to do now; or have the timekeeper wake in time."""
        due = self.core.deadline
        if due is not None and due <= self.now():
            self.step()
        else:
            self.nudge()

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
        self.refuse_another_loop()
        outcome = start(self.now())
        self.step()
        return await self.wait(outcome)

    async def wait(self, outcome: Outcome[T]) -> T:
        """The value of ``outcome``; raises its error. Bounded by the core, which settles every outcome in time."""
        if outcome.done:
            await trio.lowlevel.checkpoint()
        else:
            self.catch_up()
            settled = trio.Event()
            outcome.when_done(settled.set)
            try:
                await settled.wait()
            finally:
                outcome.forget(settled.set)
        return outcome.result()

    def _measure(self, now: float) -> None:
        """How late the alarm is seen to: by the timekeeper, or by whoever kept the loop from turning."""
        if 0 <= (late := now - self._alarm.deadline) < math.inf:
            self._lag.record(late, now)

    def refuse_another_loop(self) -> None:
        """Raise `LocalProtocolError` in a thread that the client does not belong to."""
        if threading.get_ident() != self._thread.ident:
            raise LocalProtocolError(
                f"this client belongs to the trio loop in thread {self._thread.name!r}, and is used in "
                f"{threading.current_thread().name!r}: open another client here, or call there by "
                "trio.from_thread.run(function, trio_token=token), what is not async by trio.from_thread.run_sync"
            )

    def _tell(self, event: Event) -> None:
        """Tell the core what happened, and do what it wants done."""
        try:
            self.core.handle(event, self.now())
        except Exception as bug:  # as in `step`
            self._broken(bug)
            raise
        self.step()

    def _broken(self, bug: Exception) -> None:
        error = OttlaError(f"the client has stopped on a bug in ottla, please report it: {type(bug).__name__}: {bug}")
        error.__cause__ = bug
        with contextlib.suppress(Exception):  # what is broken may be broken here too, and `bug` says more
            self.core.close(self.now(), error)

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
                link.socket = _taken_from(stream)
                try:
                    self._tell(Connected(link.key))
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(link.keep_writing, self._tell)
                        why = await self._read(link, link.socket)
                        nursery.cancel_scope.cancel()
                finally:
                    trio.lowlevel.notify_closing(link.socket)
                    link.socket.close()
                    link.socket = None
        if self._links.get(link.key) is link:
            del self._links[link.key]
            self._tell(Lost(link.key, link.broke or why))

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

    async def _read(self, link: Link, connection: socket.socket) -> str:
        """Pass on what arrives until the connection ends; return why it did."""
        under_way = False
        while True:
            room = self.core.room(link.key)
            if room is None or under_way:
                await link.wait_readable(connection, 1 if room is None else len(room))
                if self._links.get(link.key) is not link:
                    return "closed here"
            under_way = room is not None
            try:
                if room is None:
                    data = connection.recv(_CHUNK)
                    count = len(data)
                else:
                    count = connection.recv_into(room)
            except BlockingIOError:
                continue
            except OSError as error:
                return reason(error)
            if not count:
                return "closed by the broker"
            event = Received(link.key, data) if room is None else Filled(link.key, count)
            del room  # who waits for the next frame is not to keep the memory of this one
            self._tell(event)


def _taken_from(stream: trio.SocketStream) -> socket.socket:
    """Its socket as the system has it, non-blocking; the stream is of no use any more."""
    its = stream.socket
    taken = socket.socket(its.family, its.type, its.proto, fileno=its.detach())
    taken.setblocking(False)
    return taken


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
