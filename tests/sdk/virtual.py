"""A scripted loop, clock and network: the whole client, faces included, runs in virtual time and always alike.

    with Virtual() as virtual:                             # brokerlite's machine answers
        virtual.run(scenario())                            # client = virtual.connect()

Theory of operation: a heap of events in virtual time. Between two events that happen while the watched task waits lies
a *point*, at which `Plan` may have it cancelled. The first points of all waits are the suspensions that a loop counts;
the others cover every order with other events. At the last point of a wait its outcome is settled and the task would
continue, but a cancellation can come first, as in asyncio.

Both ways to cancel are available: asyncio raises a cancellation once, in the current wait of the task; trio raises it
at every wait that is not shielded, until the task leaves the scope.
"""

import itertools
import math
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.core import Answer, Call
from ottla.client_info import ANONYMOUS
from ottla.codec import frames
from ottla.sdk.client import Client
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.driver import Driver, UserResult
from ottla.sdk.drivers.pump import Link
from ottla.sdk.events import Connect, Connected, Key, Received, RunInThread, Written
from ottla.sdk.options import ClientOptions
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Await
from tests.brokerlite.machine import Machine, a_session
from tests.brokerlite.model_disk import ModelDisk
from tests.sim.clock import Clock

T = TypeVar("T")

LATENCY = 0.001
"""Seconds that bytes are on their way."""
LIMIT = 900.0
"""Seconds of virtual time after which a scenario counts as hanging."""


class Cancelled(BaseException):
    """The cancellation of a loop."""


class Dropped(BaseException):
    """Stands for an error that makes the caller drop a coroutine: the coroutine is closed and never awaited again."""


# -- the loop ----------------------------------------------------------------------------------------------------------


class Wait:
    """The value that a task yields: the task continues when ``outcome`` is settled, or without one in the next turn."""

    def __init__(self, outcome: Outcome[Any] | None, shielded: bool = False) -> None:
        self.outcome, self.shielded = outcome, shielded

    def __await__(self) -> Generator["Wait", None, None]:
        yield self


@dataclass(slots=True)
class Plan:
    """When to cancel the watched task.

    Attributes:
        at: numbers of points.
        sticky: cancel as trio does, otherwise as asyncio does.
        drop: drop the coroutine instead of cancelling it.
    """

    at: Sequence[int] = ()
    sticky: bool = False
    drop: bool = False


class Task:
    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self.coroutine, self.name = coroutine, name
        self.wait: Wait | None = None
        self.called = False
        """Whether an event that continues the task is scheduled."""
        self.error: BaseException | None = None
        """The error to raise in the task when it continues."""
        self.sticky: BaseException | None = None
        """The cancellation of a scope around the task."""
        self.ended: Outcome[None] = Outcome()
        self.result: Any = None
        self.raised: BaseException | None = None


class Loop(Clock):
    """Time and tasks.

    Attributes:
        points: how many points of `watched` have passed.
        suspensions: the points at which a wait began.
        delivered: how many cancellations have been raised.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.now, self.plan = 100.0, plan
        self.watched: Task | None = None
        self.current: Task | None = None
        self.points, self.delivered = 0, 0
        self.suspensions: list[int] = []
        self._fresh = False

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str = "main") -> Task:
        task = Task(coroutine, name)
        self._call(task, None)
        return task

    def run(self, task: Task) -> Any:
        """Run until a task has ended; return its result or raise its error."""
        end = self.now + LIMIT
        while not task.ended.done:
            self._pass_point()
            assert self.step(), f"{task.name} hangs: no event is left"
            assert self.now <= end, f"{task.name} hangs"
        if task.raised is not None:
            raise task.raised
        return task.result

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _call(self, task: Task, error: BaseException | None) -> None:
        task.error = error or task.error
        if not task.called:
            task.called = True
            self.at(self.now, lambda: self._go_on(task))

    def _go_on(self, task: Task) -> None:
        error, task.error, task.called, task.wait = task.error, None, False, None
        self.current = task
        if isinstance(error, Cancelled):
            self.delivered += 1
        try:
            wait = task.coroutine.send(None) if error is None else task.coroutine.throw(error)
        except StopIteration as end:
            task.result = end.value
        except BaseException as raised:
            task.raised = raised
        else:
            self._suspend(task, wait)
            return
        finally:
            self.current = None
        task.ended.succeed(None)

    def _suspend(self, task: Task, wait: Wait) -> None:
        task.wait = wait
        self._fresh |= task is self.watched
        if task.sticky is not None and not wait.shielded:
            self._call(task, task.sticky)
        elif wait.outcome is None:
            self._call(task, None)
        else:
            wait.outcome.when_done(lambda: self._call(task, None) if task.wait is wait else None)

    def _pass_point(self) -> None:
        task = self.watched
        if task is None or task.wait is None:
            return
        self.points += 1
        if self._fresh:
            self.suspensions.append(self.points)
            self._fresh = False
        if self.points in self.plan.at:
            self._cancel(task)

    def _cancel(self, task: Task) -> None:
        if self.plan.drop:
            self._call(task, Dropped())
        elif not self.plan.sticky:
            self._call(task, Cancelled())
        else:
            task.sticky = Cancelled()
            if task.wait is not None and not task.wait.shielded and not task.called:
                self._call(task, task.sticky)

    # -- awaitables of tasks -----------------------------------------------------------------------------------------

    async def wait(self, outcome: Outcome[Any] | None, *, shielded: bool = False) -> None:
        await Wait(outcome, shielded)

    async def sleep(self, seconds: float) -> None:
        over: Outcome[None] = Outcome()
        self.later(seconds, lambda: over.succeed(None))
        await Wait(over)


class Watched:
    """Awaits a call whose points count; if dropped, the call is closed, and `Dropped` is raised."""

    def __init__(self, loop: Loop, call: Any) -> None:
        self._loop, self._call = loop, call

    def __await__(self) -> Generator[Wait, None, Any]:
        loop = self._loop
        task = loop.watched = loop.current
        assert task is not None
        steps = self._call.__await__()
        error: BaseException | None = None
        try:
            while True:
                try:
                    wait = steps.send(None) if error is None else steps.throw(error)
                except StopIteration as end:
                    return end.value
                try:
                    error = None
                    yield wait
                except Dropped:
                    steps.close()
                    raise
                except BaseException as raised:
                    error = raised
        finally:
            loop.watched = None
            task.sticky = None


# -- the network -------------------------------------------------------------------------------------------------------


class VirtualLink(Link):
    """One connection, seen from the client; it takes ``piece`` bytes at a time, if given."""

    def __init__(self, virtual: "Virtual", key: Key) -> None:
        super().__init__(key)
        self._virtual = virtual
        self.number = next(virtual.numbers)
        self.open = False
        self.finished = False
        self._given, self._left = frames.FrameReader(), 0
        """The requests given to the outbox, and how many of their bytes are still in it."""
        self.arrived = frames.FrameReader()
        self.places: deque[list[Any]] = deque()
        """Due answers, in the order of the requests: each a list, empty until the answer is there."""

    def write(self) -> None:
        if not self.open:
            return
        data = b"".join(self.outbox)
        self._virtual.begun(self._given.feed(data[self._left :]))
        while self.outbox and not self.full:
            data = bytes(self.outbox.popleft())
            piece = self._virtual.piece
            if piece is not None and len(data) > piece:
                self.outbox.appendleft(memoryview(data)[piece:])
                data, self.full = data[:piece], True
            self._virtual.written(self, data)
        self._left = sum(map(len, self.outbox))
        if self.finishing and not self.outbox and not self.full and not self.finished:
            self.finished = True
            self._virtual.loop.later(LATENCY, lambda: self._virtual.finished(self))


@dataclass
class Virtual:
    """The loop, the network and the broker.

    Attributes:
        piece: how many bytes a socket takes at once; ``None``: all.
        held: requests that arrived while answers are held back; ``None`` while the broker answers.
        sent: every request of which at least a byte was written.
    """

    plan: Plan = field(default_factory=Plan)
    piece: int | None = None
    held: list[tuple[VirtualLink, bytes]] | None = None
    sent: list[Any] = field(default_factory=list)
    watching: int = 0
    """Watchdogs that are still running."""

    def __post_init__(self) -> None:
        self.loop = Loop(self.plan)
        self.numbers = itertools.count(1)
        ids = itertools.count(1)
        self.machine = Machine(
            Path("/data"),
            disk=ModelDisk(),
            new_id=lambda: uuid.UUID(int=next(ids) << 64),
            acls=AclSettings(super_users=frozenset({ANONYMOUS})),
        )
        self.links: set[VirtualLink] = set()
        self.drivers: list[VirtualDriver] = []
        self._wakes_at = math.inf
        self._today = time.time_ns() // 1_000_000  # the same time of day as the producers' clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.machine.folder.abandon()

    def connect(self, **options: Any) -> Client:
        client = Client(ClientOptions(bootstrap="broker:9092", **options), self)
        client._rng = random.Random(1)
        return client

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        result: T = self.loop.run(self.loop.spawn(scenario))
        return result

    # -- the interface of a type of drivers --------------------------------------------------------------------------

    def __call__(self, core: ClientCore) -> "VirtualDriver":
        driver = VirtualDriver(self, core)
        self.drivers.append(driver)
        return driver

    def require_loop(self) -> None: ...

    async def in_thread(self, function: Callable[[], T]) -> T:
        return function()

    # -- bytes -------------------------------------------------------------------------------------------------------

    def begun(self, requests: Iterable[bytes]) -> None:
        """The socket has taken the first byte of these requests, so it will take all of them."""
        self.sent += [frames.parse_request(each).message for each in requests]

    def written(self, link: VirtualLink, data: bytes) -> None:
        self.loop.later(LATENCY, lambda: self._arrive(link, data))

    def _arrive(self, link: VirtualLink, data: bytes) -> None:
        for frame in link.arrived.feed(data):
            if self.held is not None:
                self.held.append((link, frame))
            else:
                self._serve(link, frame)

    def answer_all(self) -> None:
        """Answer the held requests, and all later ones."""
        held, self.held = self.held or [], None
        for link, frame in held:
            self._serve(link, frame)

    def _serve(self, link: VirtualLink, frame: bytes) -> None:
        request = frames.parse_request(frame, lambda key, version: key in SERVED)
        place: list[Any] = []
        link.places.append(place)
        now = self.loop.now
        timestamp = self._today + round(now * 1000)
        call = Call(link.number, a_session(), request.header, request.message, now, timestamp)
        self.machine.core.handle((link, place, request.header.correlation_id), call)
        self._answers()

    def _answers(self) -> None:
        self.machine.now = self.loop.now
        for action in self.machine.poll():
            assert isinstance(action, Answer), action
            link, place, correlation_id = action.ticket
            message = action.message
            place.append(b"" if message is None else frames.build_response(message, action.version, correlation_id))
            while link.places and link.places[0]:
                [data] = link.places.popleft()
                if data:
                    self.loop.later(LATENCY, lambda link=link, data=data: self._answered(link, data))  # type: ignore[misc]
        due = self.machine.core.deadline
        if due is not None and due < self._wakes_at:
            self._wakes_at = due
            self.loop.at(due, lambda: self._wake(due))

    def _wake(self, due: float) -> None:
        if due == self._wakes_at:
            self._wakes_at = math.inf
        self._answers()

    def _answered(self, link: VirtualLink, data: bytes) -> None:
        if link.open and (driver := self._driver_of(link)) is not None:
            driver.tell(Received(link.key, data))

    def finished(self, link: VirtualLink) -> None:
        """The client writes no more: the connection ends after all answers."""
        if link.open and (driver := self._driver_of(link)) is not None:
            link.open = False
            self.links.discard(link)
            driver.lose(link)

    def _driver_of(self, link: VirtualLink) -> "VirtualDriver | None":
        return next((each for each in self.drivers if each.has(link)), None)


class VirtualDriver(Driver[VirtualLink]):
    """The client's driver: the same use of a loop as other drivers, without sockets."""

    def __init__(self, virtual: Virtual, core: ClientCore) -> None:
        super().__init__(core, lambda: virtual.loop.now, "virtual", lambda key: VirtualLink(virtual, key))
        self._virtual, self._on = virtual, virtual.loop
        self._rings: object = None
        self.stopped = False

    @staticmethod
    def require_loop() -> None: ...

    async def start(self) -> None:
        self._kick()

    async def stop(self, error: BaseException | None) -> None:
        self.stopped = True
        for link in list(self._links.values()):
            self._hang_up(link)
        self._links.clear()

    def has(self, link: VirtualLink) -> bool:
        return self._links.get(link.key) is link

    def lose(self, link: VirtualLink) -> None:
        self._lost(link, "closed by the broker")

    # -- tasks -------------------------------------------------------------------------------------------------------

    def current_task(self) -> Task | None:
        return self._on.current

    def name_of(self, task: Task) -> str:
        return task.name

    def coroutine_of(self, task: Task) -> Any:
        return task.coroutine

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        return function()

    def _call_soon(self, call: Callable[[], object]) -> object:
        raise NotImplementedError

    def watch(self, limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
        """Start no thread: no code here can block the loop."""
        self._virtual.watching += 1

        def stop() -> None:
            self._virtual.watching -= 1

        return stop

    # -- time --------------------------------------------------------------------------------------------------------

    def _set_alarm(self, when: float) -> None:
        rings = self._rings = object()
        if when < math.inf:
            self._on.at(when, lambda: self._ring() if self._rings is rings and not self.stopped else None)

    def _kick(self) -> None:
        self._on.later(0.0, lambda: None if self.stopped else self._ring())

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def settled(self, outcome: Outcome[Any]) -> None:
        await self._on.wait(None if outcome.done else outcome)

    async def _shielded(self, outcome: Outcome[Any]) -> BaseException | None:
        late: BaseException | None = None
        while not outcome.done:
            try:
                await self._on.wait(outcome, shielded=True)
            except Cancelled as cancelled:  # as asyncio raises it
                late = cancelled
        return late

    async def _awaited(self, wanted: Await) -> UserResult:
        late: BaseException | None = None
        if not wanted.shield:
            await wanted.function(*wanted.args)
            return UserResult(True)
        work = self._on.spawn(_called(wanted), "listener")
        while not work.ended.done:
            try:
                await self._on.wait(work.ended, shielded=True)
            except Cancelled as cancelled:
                late = cancelled
        return UserResult(True, work.raised, late)

    async def _turn(self) -> None:
        await self._on.wait(None)

    def _is_cancelled(self) -> bool:
        task = self._on.current
        return task is not None and task.sticky is not None

    # -- connections -------------------------------------------------------------------------------------------------

    def _dial(self, link: VirtualLink, wanted: Connect) -> None:
        def connected() -> None:
            if self.has(link):
                link.open = True
                self._virtual.links.add(link)
                self.tell(Connected(link.key))

        self._on.later(LATENCY, connected)

    def _hang_up(self, link: VirtualLink) -> None:
        link.open = False
        self._virtual.links.discard(link)
        core, loop = self._virtual.machine.core, self._virtual.loop
        self._on.later(2 * LATENCY, lambda: core.disconnected(link.number, loop.now))

    def _await_writable(self, link: VirtualLink) -> None:
        def more() -> None:
            link.full = False
            link.write()
            if link.full:
                self._await_writable(link)
            elif self.has(link):
                self.tell(Written(link.key))

        self._on.later(LATENCY, more)

    def _run_in_thread(self, work: RunInThread) -> None:
        self.tell(work.call())


async def _called(wanted: Await) -> None:
    await wanted.function(*wanted.args)


__all__ = ["Cancelled", "Dropped", "Plan", "Virtual", "VirtualLink", "Watched"]
