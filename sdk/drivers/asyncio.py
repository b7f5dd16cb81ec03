"""The driver for asyncio, with asyncio's own loops and uvloop.

Theory of operation: as in `ottla.sdk.drivers.driver`. Connections are transports, because uvloop does not notify the
reader of a bare socket about a reset; they read large responses directly into their buffer. The loop calls back when
bytes arrive and when the alarm rings, so only dialling and looking for brokers take tasks; they end with the
client.

asyncio delivers a cancellation only once. If it arrives during a shielded wait, the driver keeps it, and raises it at
the next wait that is not shielded, or at the end of the call. A loop that shuts down cancels all tasks, also the
client's: interrupted attempts to connect start again, because producers and consumers need connections to leave.

An error that is a bug closes the core, so that no call waits for it, and cancels the task that opened the client:
leaving its block then raises the error, as a `TaskGroup` does.

Source: the rules about tasks come from `asyncio.timeout` and `asyncio.TaskGroup`.
"""

import asyncio
import contextlib
import math
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, cast

from ottla.errors import LocalProtocolError, reason
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.dialing import dial
from ottla.sdk.drivers.driver import Driver, UserResult
from ottla.sdk.drivers.pump import CHUNK, Link
from ottla.sdk.events import Connect, Connected, Event, Filled, Key, Received, RunInThread, Written
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Await

T = TypeVar("T")

log = logger("ottla.sdk")

_END = 1.0
"""Seconds for a listener's method to end after it was cancelled."""


class AsyncioLink(Link, asyncio.BufferedProtocol):
    """A connection, as the protocol object of a transport."""

    def __init__(self, driver: "AsyncioDriver", key: Key) -> None:
        super().__init__(key)
        self._driver = driver
        self._dialing: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        """``None`` before and after the connection."""
        self._room: memoryview | None = None

    def write(self) -> None:
        while self.outbox and not self.full and self.transport is not None:
            self.transport.write(self.outbox.popleft())
        if self.finishing and not self.outbox and self.transport is not None and self.transport.can_write_eof():
            self.transport.write_eof()  # after its buffered bytes

    def dial(self, attempt: asyncio.Task[None]) -> None:
        """Note which task tries to connect."""
        self._dialing = attempt

    def dialed(self) -> None:
        """Note that the attempt has ended."""
        self._dialing = None

    def hang_up(self) -> None:
        """End the connection, or the attempt to open it."""
        if self._dialing is not None:
            self._dialing.cancel()
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size():  # a peer that reads nothing would keep it open for ever
            self.transport.abort()
        else:
            self.transport.close()

    # -- called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class is not derived from asyncio's
        self.transport.set_write_buffer_limits(high=0)  # so that resume_writing means that all is written

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.write()
        if self.wrote and self._driver.has(self):
            self._driver.tell(Written(self.key))

    def get_buffer(self, sizehint: int) -> memoryview:
        self._room = self._driver.core.room(self.key)
        return self._driver.scratch if self._room is None else self._room

    def buffer_updated(self, nbytes: int) -> None:
        room, self._room = self._room, None
        if self._driver.has(self):
            key = self.key
            event = Received(key, bytes(self._driver.scratch[:nbytes])) if room is None else Filled(key, nbytes)
            del room  # waiting for the next frame must not keep this one's memory alive
            self._driver.tell(event)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._driver.ended(self, reason(error) if error is not None else "closed by the broker")


class AsyncioDriver(Driver[AsyncioLink]):
    """Drives ``core`` on the running loop."""

    _from_thread = (
        "asyncio.run_coroutine_threadsafe(coroutine, loop), or loop.call_soon_threadsafe(function) if it is not async"
    )

    _another_loop = (
        "each asyncio.run has its own, and pytest-asyncio has one for each test, unless fixtures and tests have the "
        "same loop_scope"
    )

    def __init__(self, core: ClientCore) -> None:
        self.require_loop()
        loop = asyncio.get_running_loop()
        super().__init__(core, loop.time, "asyncio", partial(AsyncioLink, self))
        self._on = loop
        self._owner = asyncio.current_task()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._kicked: asyncio.Handle | None = None
        self._bug: Exception | None = None
        self._owner_cancelled = False
        """This driver cancelled it, to end the block of a client that has stopped because of a bug."""
        self._strays: set[asyncio.Task[None]] = set()
        """Functions of the user's that did not end when cancelled."""
        self._closing: set[AsyncioLink] = set()
        """Connections that end once their buffered bytes are written."""
        self.scratch = memoryview(bytearray(CHUNK))
        """The buffer for small responses."""

    @staticmethod
    def require_loop() -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise LocalProtocolError(
                "ottla.aio.connect needs a running asyncio loop: start the program with asyncio.run(main()); a trio "
                "program uses ottla.connect"
            ) from None

    def _runs_here(self) -> bool:
        running = asyncio._get_running_loop()
        if running is None:  # a loop that is stopped but not closed may continue later
            return super()._runs_here() and not self._on.is_closed()
        return running is self._on

    # -- beginning and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._kick()

    async def stop(self, error: BaseException | None) -> None:
        for handle in (self._alarm, self._kicked):
            if handle is not None:
                handle.cancel()
        self._alarm_at = -math.inf  # no alarm is set any more
        for link in list(self._links.values()):
            self._hang_up(link)
        self._links.clear()
        for link in self._closing:
            if link.transport is not None:
                link.transport.abort()
        late: BaseException | None = None
        while self._tasks:  # they are cancelled, and end without waiting
            for task in self._tasks:
                task.cancel()
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError as cancelled:
                late = cancelled
        for task in self._strays:
            task.cancel()  # a second and last time
        if self._bug is not None:
            if self._owner_cancelled and isinstance(error, asyncio.CancelledError) and self._owner is not None:
                self._owner.uncancel()
            if error is not self._bug:
                raise self._bug from error
        if late is not None and not isinstance(error, asyncio.CancelledError):
            raise late

    def _broken(self, bug: BaseException) -> None:
        super()._broken(bug)
        if self._bug is None and isinstance(bug, Exception):  # other exceptions end the loop anyway
            self._bug = bug
            if self._owner is not None and self._owner is not asyncio.current_task() and not self._owner.done():
                self._owner_cancelled = self._owner.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._on.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(bug := task.exception(), Exception):
            self._broken(bug)

    # -- time --------------------------------------------------------------------------------------------------------

    def _set_alarm(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._on.call_at(when, self._wake) if when < math.inf else None

    def _kick(self) -> None:
        if self._kicked is None:
            self._kicked = self._on.call_soon(self._wake)

    def _wake(self) -> None:
        if self._kicked is not None:
            self._kicked.cancel()
            self._kicked = None
        with contextlib.suppress(Exception):  # a bug; _broken has stored it
            self._ring()

    def _call_soon(self, call: Callable[[], object]) -> object:
        return self._on.call_soon_threadsafe(call)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def current_task(self) -> asyncio.Task[Any] | None:
        return asyncio.current_task()

    def name_of(self, task: asyncio.Task[Any]) -> str:
        return task.get_name()

    def coroutine_of(self, task: asyncio.Task[Any]) -> Any:
        return task.get_coro()

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, function)

    async def settled(self, outcome: Outcome[Any]) -> None:
        if outcome.done:
            await asyncio.sleep(0)
            return
        settled, wake = self._future(outcome)
        try:
            await settled
        except BaseException:
            outcome.forget(wake)
            raise

    async def _shielded(self, outcome: Outcome[Any]) -> asyncio.CancelledError | None:
        settled, wake = self._future(outcome)
        late = None
        while not settled.done():
            try:
                await asyncio.wait((settled,))
            except asyncio.CancelledError as cancelled:
                late = cancelled
        outcome.forget(wake)
        return late

    def _future(self, outcome: Outcome[Any]) -> tuple[asyncio.Future[None], Callable[[], None]]:
        settled: asyncio.Future[None] = self._on.create_future()

        def wake() -> None:
            if not settled.done():
                settled.set_result(None)

        outcome.when_done(wake)
        return settled, wake

    async def _awaited(self, wanted: Await) -> UserResult:
        if wanted.seconds is None and not wanted.shield:
            await wanted.function(*wanted.args)
            return UserResult(True)
        return await self._awaited_apart(wanted)

    async def _awaited_apart(self, wanted: Await) -> UserResult:
        """Await it in a task of its own, which is abandoned if it does not end when cancelled."""

        async def work() -> None:
            await wanted.function(*wanted.args)

        task = self._on.create_task(work())
        late: asyncio.CancelledError | None = None
        until = math.inf if wanted.seconds is None else self.now() + wanted.seconds
        over = False
        while not task.done():
            try:
                await asyncio.wait((task,), timeout=None if until == math.inf else max(0.0, until - self.now()))
            except asyncio.CancelledError as cancelled:
                late = cancelled
            if task.done():
                break
            if over and self.now() >= until:
                self._strays.add(task)
                task.add_done_callback(self._stray_ended)
                break
            if not over and (self.now() >= until or (late is not None and not wanted.shield)):
                over, until = True, self.now() + _END
                task.cancel()
        if late is not None and not wanted.shield:
            raise late
        if not task.done() or task.cancelled():
            return UserResult(False, None, late)
        return UserResult(not over, task.exception(), late)

    def _stray_ended(self, task: asyncio.Task[None]) -> None:
        self._strays.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("abandoned callback raised", exc_info=error)

    async def _turn(self) -> None:
        await asyncio.sleep(0)

    def _is_cancelled(self) -> bool:
        # asyncio delivers a cancellation when it resumes the task: none is pending, unless the task cancelled itself.
        return getattr(asyncio.current_task(), "_must_cancel", False)

    # -- connections -------------------------------------------------------------------------------------------------

    def _dial(self, link: AsyncioLink, wanted: Connect) -> None:
        attempt = self._start(self._connect(link, wanted))
        link.dial(attempt)
        attempt.add_done_callback(partial(self._dialed, link))

    def _dialed(self, link: AsyncioLink, task: asyncio.Task[None]) -> None:
        """An attempt has ended; it may have been cancelled before its first line ran."""
        link.dialed()
        if task.cancelled():
            self.ended(link, "cancelled")  # by other code, if the core still knows the link; it then tries again

    def _hang_up(self, link: AsyncioLink) -> None:
        if link.transport is not None:
            self._closing.add(link)
        link.hang_up()

    def ended(self, link: AsyncioLink, why: str) -> None:
        """The transport is closed."""
        self._closing.discard(link)
        with contextlib.suppress(Exception):  # a bug; _broken has stored it
            self._lost(link, why)

    def tell(self, event: Event) -> None:
        with contextlib.suppress(Exception):  # a bug; stored, and raised where the client was opened
            super().tell(event)

    def _await_writable(self, link: AsyncioLink) -> None:
        """Nothing to do: the transport waits by itself."""

    async def _connect(self, link: AsyncioLink, wanted: Connect) -> None:
        why = ""
        try:
            connection = await self._socket(wanted)
            await self._on.create_connection(lambda: link, sock=connection)
        except OSError as error:
            why = reason(error)
        except UnicodeError:
            why = f"{wanted.host!r} is not a host name"
        link.dialed()
        if link.transport is None:
            self.ended(link, why)
        elif self.has(link):  # the core may have closed it meanwhile
            self.tell(Connected(link.key))

    async def _socket(self, wanted: Connect) -> socket.socket:
        """A connection to one of the addresses of a host name; the address that failed last time is tried last."""
        where = wanted.host, wanted.port
        broke = self._reached.pop(where, None) if wanted.attempt else None
        connection = await dial(self._on, *where, last=broke)
        with contextlib.suppress(OSError):  # it may have ended already; the reader will notice
            self._reached[where] = connection.getpeername()[0]
        return connection

    # -- threads -----------------------------------------------------------------------------------------------------

    def _run_in_thread(self, work: RunInThread) -> None:
        """In a daemon thread: the program's end would wait for the loop's own threads, however long they take."""

        def run() -> None:
            event = work.call()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._call_soon(partial(self._told, event))

        try:
            threading.Thread(target=run, name="ottla", daemon=True).start()
        except RuntimeError:
            self._call_soon(partial(self._told, work.otherwise))

    def _told(self, event: Event) -> None:
        if self.core.closed is None:
            self.tell(event)
