"""The driver for trio: one task that keeps time, and a reader for each connection.

Theory of operation: as in `ottla.sdk.drivers.driver`. The timekeeper sleeps in a cancel scope; moving the deadline of
the scope does not wake it. All tasks are protected from Ctrl-C: trio raises it in the main task, at a checkpoint.

No task dies silently: an error that is a bug closes the core, so that no call waits for it, and is raised where the
client was opened.

Connections are bare sockets; trio's streams are only used to dial.
"""

import contextlib
import math
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from ottla.errors import LocalProtocolError, reason
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.driver import Driver, UserResult
from ottla.sdk.drivers.sockets import SocketLink
from ottla.sdk.events import Connect, Connected, Event, Key, RunInThread, Written
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Await

T = TypeVar("T")

_ADDRESS_TIMEOUT = 2.0
"""Seconds to try one address of a name after the one used last has failed."""

protected = trio.lowlevel.enable_ki_protection


class TrioLink(SocketLink):
    """A connection, with the scope that ends its reader."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.scope = trio.CancelScope()


class TrioDriver(Driver[TrioLink]):
    """Drives ``core`` with tasks in a nursery of its own."""

    _from_thread = "trio.from_thread.run(function, trio_token=token), or trio.from_thread.run_sync if it is not async"
    _another_loop = "each trio.run has its own, and pytest-trio one for each test"

    def __init__(self, core: ClientCore) -> None:
        self.require_loop()
        super().__init__(core, trio.lowlevel.current_clock().current_time, "trio", TrioLink)
        self._token = trio.lowlevel.current_trio_token()
        self._opening = trio.open_nursery()
        self._nursery: trio.Nursery
        self._alarm = trio.CancelScope()
        """Its deadline is when the timekeeper wakes on its own."""
        self._kicked = trio.Event()
        """Set, it wakes the timekeeper in the next turn of the loop."""

    @staticmethod
    def require_loop() -> None:
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            raise LocalProtocolError(
                "ottla.connect needs a running trio loop: start the program with trio.run(main); an asyncio program "
                "uses ottla.aio.connect"
            ) from None

    def _runs_here(self) -> bool:
        try:
            return trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:  # no loop runs in this thread
            return False

    # -- beginning and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        around = await self._opening.__aenter__()
        with trio.CancelScope(shield=True):
            self._nursery = await around.start(_until_left)
        self._nursery.start_soon(self._keep_time)

    async def stop(self, error: BaseException | None) -> None:
        self._nursery.cancel_scope.cancel()
        # Only a cancellation may come from the nursery itself; other errors are not passed to it.
        inner = error if isinstance(error, trio.Cancelled) else None
        try:
            await self._opening.__aexit__(type(inner) if inner else None, inner, inner and inner.__traceback__)
        except BaseExceptionGroup as group:
            raise _unwrapped(group) from error

    @protected
    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope() as self._alarm:
                while True:
                    self._kicked = trio.Event()
                    self._ring()
                    await self._kicked.wait()

    def _set_alarm(self, when: float) -> None:
        self._alarm.deadline = when

    def _kick(self) -> None:
        self._kicked.set()

    def _call_soon(self, call: Callable[[], object]) -> object:
        self._token.run_sync_soon(call)
        return None

    # -- tasks -------------------------------------------------------------------------------------------------------

    def current_task(self) -> trio.lowlevel.Task:
        return trio.lowlevel.current_task()

    def name_of(self, task: trio.lowlevel.Task) -> str:
        return task.name

    def coroutine_of(self, task: trio.lowlevel.Task) -> Any:
        return task.coro

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, abandon_on_cancel=True)

    async def settled(self, outcome: Outcome[Any]) -> None:
        if outcome.done:
            await trio.lowlevel.checkpoint()
            return
        settled = trio.Event()
        outcome.when_done(settled.set)
        try:
            await settled.wait()
        finally:
            outcome.forget(settled.set)

    async def _shielded(self, outcome: Outcome[Any]) -> None:
        with trio.CancelScope(shield=True):
            await self.settled(outcome)

    async def _awaited(self, wanted: Await) -> UserResult:
        deadline = math.inf if wanted.seconds is None else trio.current_time() + wanted.seconds
        with trio.CancelScope(deadline=deadline, shield=wanted.shield) as scope:
            await wanted.function(*wanted.args)
        return UserResult(not scope.cancelled_caught)

    async def _turn(self) -> None:
        await trio.lowlevel.checkpoint()

    def _is_cancelled(self) -> bool:
        return trio.current_effective_deadline() == -math.inf

    # Ctrl-C must not interrupt code that touches the core.
    pump = protected(Driver.pump)
    tell = protected(Driver.tell)
    do = protected(Driver.do)
    _resume = protected(Driver._resume)

    # -- connections -------------------------------------------------------------------------------------------------

    def _dial(self, link: TrioLink, wanted: Connect) -> None:
        self._nursery.start_soon(self._connect, link, wanted)

    def _hang_up(self, link: TrioLink) -> None:
        link.scope.cancel()

    def _await_writable(self, link: TrioLink) -> None:
        self._nursery.start_soon(self._write_rest, link)

    @protected
    async def _write_rest(self, link: TrioLink) -> None:
        """Write the rest that the socket did not accept at once."""
        while link.full and link.socket is not None:
            try:
                await trio.lowlevel.wait_writable(link.socket)
            except trio.ClosedResourceError:
                return
            link.write()
        if link.wrote and self.has(link):
            self.tell(Written(link.key))

    @protected
    async def _connect(self, link: TrioLink, wanted: Connect) -> None:
        why = ""
        try:
            with link.scope:
                try:
                    link.open(_taken_from(await self._stream(wanted)))
                    if self.has(link):  # the core may have closed it meanwhile
                        self.tell(Connected(link.key))
                    why = await self._read(link)
                except OSError as error:
                    why = reason(error)
                except UnicodeError:
                    why = f"{wanted.host!r} is not a host name"
        finally:
            if link.socket is not None:
                trio.lowlevel.notify_closing(link.socket)
                link.close()
        self._lost(link, why)

    async def _stream(self, wanted: Connect) -> trio.SocketStream:
        """Connect to one of the addresses of a host name.

        trio tries them all and takes the first that answers, which is the same each time. If the last connection to
        that one broke, the others are tried first.
        """
        where = wanted.host, wanted.port
        broke = self._reached.pop(where, None) if wanted.attempt else None
        stream = await self._other_address(*where, broke) if broke else None
        if stream is None:
            stream = await trio.open_tcp_stream(*where)
        with contextlib.suppress(OSError):  # it may have ended already; the reader will notice
            self._reached[where] = stream.socket.getpeername()[0]
        return stream

    async def _other_address(self, host: str, port: int, broke: str) -> trio.SocketStream | None:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            if address != broke:
                with trio.move_on_after(_ADDRESS_TIMEOUT), contextlib.suppress(OSError):
                    return await trio.open_tcp_stream(address, port)
        return None

    async def _read(self, link: TrioLink) -> str:
        """Pass on what arrives until the connection ends; return the reason for its end."""
        assert link.socket is not None
        while True:
            await trio.lowlevel.wait_readable(link.socket)
            if not self.has(link):
                return "closed here"
            room = self.core.room(link.key)
            try:
                event = link.read(room)
            except OSError as error:
                return reason(error)
            del room  # waiting for the next frame must not keep this one's memory alive
            if event is not None:
                self.tell(event)
                del event

    # -- threads -----------------------------------------------------------------------------------------------------

    def _run_in_thread(self, work: RunInThread) -> None:
        self._nursery.start_soon(self._told_by, work)

    async def _told_by(self, work: RunInThread) -> None:
        event: Event
        try:
            event = await self.in_thread(work.call)
        except RuntimeError:  # no thread can be started
            event = work.otherwise
        self.tell(event)


def _taken_from(stream: trio.SocketStream) -> socket.socket:
    """Take the socket out of a stream, as a plain non-blocking socket; the stream cannot be used any more.

    trio lets the system buffer no more than 16 KB ahead of the network (`TCP_NOTSENT_LOWAT`), for streams that want to
    decide late what to send. With that, our writer would wake for every 16 KB, and be a third slower.
    """
    its = stream.socket
    taken = socket.socket(its.family, its.type, its.proto, fileno=its.detach())
    taken.setblocking(False)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with contextlib.suppress(OSError):  # it has ended already; the reader will notice
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 0)
    return taken


async def _until_left(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """The nursery of the client's own tasks, which a cancellation around the client does not reach.

    A producer or consumer whose block is cancelled needs connections to flush, commit or leave the group, so the tasks
    end only after the client's block.
    """
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()


def _unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The single error in a group, or the group if it has several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
