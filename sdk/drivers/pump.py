"""Polls the core, and carries out its actions on the loop's connections.

Theory of operation: the core is only touched without a switch of tasks, in the thread of the loop, and inside its gate.
Every change is followed by `pump`, which polls the core and carries out its actions.

A turn of a loop costs a good part of a request. So `pump` itself writes to the sockets as much as they accept at once,
nearly always everything; it asks the loop to report a writable socket only for the rest. The alarm is moved earlier
when necessary; a later one is not moved, to save a wake-up.

Code that must run outside of the gate (`Run`) is called after all other actions: the user's callbacks, and outcomes
that are settled after them. The actions that it causes in the client are carried out in the
next turn of the loop: a callback that sends endlessly starves no task.
"""

import contextlib
import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ottla.codec.wire import Buffer
from ottla.errors import LocalProtocolError, OttlaError
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Action, Close, Connect, Event, Finish, Key, Lost, Run, RunInThread, Send, Written
from ottla.sdk.logs import logger

log = logger("ottla.sdk")

CHUNK = 64 * 2**10
"""Bytes of one read; the rest of a larger response is read directly into its buffer."""

_LAST_ROUNDS = 100
"""Rounds of callbacks at the end of a client; they may still make calls, which are refused."""


class Link(ABC):
    """One connection, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.outbox: deque[Buffer] = deque()
        """Bytes still to be written."""
        self.full = False
        """The system accepts no more for now."""
        self.finishing = False
        """Once the outbox is empty, the writing half is shut down, so that the other side sees the end."""
        self.broke = ""
        """Why writing failed: the system reports a socket's error only once, and a reader then sees a mere end."""

    @property
    def wrote(self) -> bool:
        """Whether the system has accepted everything."""
        return not (self.outbox or self.full or self.broke)

    def put(self, parts: Iterable[Buffer]) -> None:
        """Add bytes that are written with the next `write`."""
        self.outbox += parts

    def finish(self) -> None:
        """Shut down the writing half once everything is written."""
        self.finishing = True
        if not self.full:
            self.write()

    def put_last(self, last: Iterable[Buffer]) -> None:
        """Write the last bytes before the connection ends here, unless others are still waiting."""
        if self.wrote:
            self.outbox += last
            self.write()

    @abstractmethod
    def write(self) -> None:
        """Write as much of the outbox as the system accepts; when all is written and `finishing`, shut down writing."""


L = TypeVar("L", bound=Link)
T = TypeVar("T")


class Pump(ABC, Generic[L]):
    """Polls ``core`` and carries out its actions; subclasses define how a loop dials, writes and wakes up.

    Args:
        now: the loop's clock, in seconds; may be called from any thread.
        loop: its name, for messages.
        link: creates a connection of the loop's own kind.
    """

    def __init__(self, core: ClientCore, now: Callable[[], float], loop: str, link: Callable[[Key], L]) -> None:
        self.core, self.now, self._loop, self._link = core, now, loop, link
        self._thread = threading.current_thread()
        """The thread of the loop; a thread runs one loop at a time."""
        self._thread_id = self._thread.ident
        self._links: dict[Key, L] = {}
        self._reached: dict[tuple[str, int], str] = {}
        """Per name and port, the address of the last connection."""
        self._runs: deque[Callable[[], object]] = deque()
        """Calls that must run outside of the gate: the user's callbacks, and outcomes that are settled after them."""
        self._pumping = False
        self._exit: BaseException | None = None
        """The exception by which user code wants to end the program."""
        self._alarm_at = math.inf
        """When the loop wakes the driver on its own."""
        self._lag = core.metrics.timing("io-loop-lag")

    # -- calls of a loop -----------------------------------------------------------------------------------------------

    def _runs_here(self) -> bool:
        """Whether the client's loop runs in this thread."""
        return threading.get_ident() == self._thread_id

    @abstractmethod
    def _set_alarm(self, when: float) -> None:
        """Call `_ring` at ``when`` instead of the time that was set before."""

    @abstractmethod
    def _kick(self) -> None:
        """Call `_ring` in the next turn of the loop."""

    @abstractmethod
    def _dial(self, link: L, wanted: Connect) -> None:
        """Begin to connect."""

    @abstractmethod
    def _hang_up(self, link: L) -> None:
        """End a connection, or the attempt to open it; it is no longer among the links."""

    @abstractmethod
    def _await_writable(self, link: L) -> None:
        """Let the link write whenever the system accepts more, and report `Written` to the core when all is written."""

    @abstractmethod
    def _run_in_thread(self, work: RunInThread) -> None:
        """Have ``work.call()`` run where it may block, and `tell` its result."""

    # -- to pump -------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Poll the core and carry out its actions."""
        self.refuse_another_loop()
        if self._pumping:  # called by user code that `_run_one` calls
            self._kick()
            return
        self._pumping = True
        try:
            now = self.now()
            while actions := self.core.poll(now):
                for link in self._carry_out(actions):
                    if self.has(link):
                        self.core.handle(Written(link.key), now)
                del actions  # before user code runs: they keep sent parts and batches alive
                if (due := self.core.deadline) is None or due > now:
                    break
            for _ in range(len(self._runs)):
                self._run_one()
        except BaseException as bug:  # fail everything that may wait for the rest
            self._broken(bug)
            raise
        finally:
            self._pumping = False
            self._look_ahead()
        if (leave := self._exit) is not None:
            self._exit = None
            self._broken(leave)
            raise leave

    def _carry_out(self, actions: Iterable[Action]) -> list[L]:
        """Carry out the core's actions; returns the connections that have written everything."""
        sent: dict[Key, L] = {}
        for action in actions:
            match action:
                case Send(key=key, parts=parts):
                    if link := self._links.get(key):
                        link.put(parts)
                        sent[key] = link
                case Connect(key=key):
                    link = self._links[key] = self._link(key)
                    self._dial(link, action)
                case Finish(key=key):
                    if finishing := self._links.get(key):
                        finishing.finish()
                case Close(key=key, last=last):
                    if closed := self._links.pop(key, None):
                        if last:
                            closed.put_last(last)
                        self._hang_up(closed)
                case RunInThread():
                    self._run_in_thread(action)
                case Run():
                    self._take(action)
        for link in sent.values():
            if not link.full:
                link.write()
                if link.full:
                    self._await_writable(link)
        return [link for link in sent.values() if link.wrote]

    def _take(self, run: Run) -> None:
        """Queue a call outside of the gate."""
        self._runs.append(run.call)

    def _run_one(self) -> None:
        call = self._runs.popleft()
        try:
            call()
        except (KeyboardInterrupt, SystemExit) as leave:  # raised at the end of `pump`
            self._exit = self._exit or leave
        except BaseException:  # of any kind: user code may even let a cancellation of something else escape
            log.exception("user callback raised")

    def _look_ahead(self) -> None:
        """Make sure that the next poll comes in time."""
        now, due = self.now(), self.core.deadline
        if self._runs:
            self._kick()
        if self._alarm_at <= now:  # the work that it was set for is done
            self._measure(now)
            self._move_alarm(math.inf if due is None else due)
        elif due is not None and due < self._alarm_at:
            self._move_alarm(due)

    # -- calls that wait for nothing -----------------------------------------------------------------------------------

    def do(self, call: Callable[[], T]) -> T:
        """Make a user's call that does not wait."""
        self.refuse_another_loop()
        try:
            return self.core.call(call, self.now())
        except KeyboardInterrupt as interrupt:
            self._broken(interrupt)
            raise
        finally:  # a refused call may leave actions as well
            self.nudge()

    def read(self, call: Callable[[], T]) -> T:
        """Read data that belong to the core."""
        return call()

    def is_gone(self, error: BaseException | None) -> bool:
        """Whether the end of a block by ``error`` has nothing to leave."""
        return False

    def abandon(self) -> bool:
        """Close a client that will never be left; returns whether it belongs to this process."""
        return True

    def close(self) -> None:
        """Close the core: fails everything that waits, and runs the callbacks of that."""
        self.do(lambda: self.core.close(self.core.now))
        for _ in range(_LAST_ROUNDS):
            self.pump()
            if not self._runs and self.core.deadline is None:
                break

    def nudge(self) -> None:
        """Have the loop wake earlier if the core has work before the alarm."""
        due = self.core.deadline
        if due is None or due >= self._alarm_at:
            return
        if due <= self.now():
            self._kick()
        else:
            self._move_alarm(due)

    def catch_up(self) -> None:
        """Pump if there is work now; otherwise have the loop wake in time."""
        due = self.core.deadline
        if due is None:
            return
        if due <= self.now():
            self.pump()
        elif due < self._alarm_at:
            self._move_alarm(due)

    def _move_alarm(self, when: float) -> None:
        self._alarm_at = when
        self._set_alarm(when)

    def _ring(self) -> None:
        """The alarm or a kick woke the driver: pump."""
        self._measure(self.now())
        self._alarm_at = math.inf
        self.pump()

    def _measure(self, now: float) -> None:
        """Record how late the alarm was handled."""
        if 0 <= (late := now - self._alarm_at) < math.inf:
            self._lag.record(late, now)

    def refuse_another_loop(self) -> None:
        """Raise `LocalProtocolError` in a thread or loop that the client does not belong to."""
        if self._runs_here():
            return
        if threading.get_ident() != self._thread_id:
            raise LocalProtocolError(
                f"this client belongs to the {self._loop} loop in thread {self._thread.name!r}, but was used in "
                f"{threading.current_thread().name!r}: open another client here, or call it by {self._from_thread}"
            )
        raise LocalProtocolError(
            f"this client belongs to another {self._loop} loop than the running one, and works only there: open a "
            f"separate client in each loop; {self._another_loop}"
        )

    _from_thread = ""
    """How to call into the loop from another thread."""
    _another_loop = ""
    """How one thread may come to have several loops."""

    def has(self, link: L) -> bool:
        """Whether the core still knows the connection."""
        return self._links.get(link.key) is link

    # -- what happens --------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Pass an event to the core, and carry out its actions."""
        try:
            self.core.handle(event, self.now())
        except BaseException as bug:  # as in `pump`
            self._broken(bug)
            raise
        self.pump()

    def _lost(self, link: L, why: str) -> None:
        """The connection, or the attempt to open it, has ended on its own."""
        if self.has(link):
            del self._links[link.key]
            self.tell(Lost(link.key, link.broke or why))

    def _broken(self, bug: BaseException) -> None:
        """Close the core, which cannot go on: everything that waits fails."""
        what = f"{type(bug).__name__}: {bug}" if str(bug) else type(bug).__name__
        why = f"the client has stopped because of a bug in ottla, please report it: {what}"
        if not isinstance(bug, Exception):
            why = f"the client was interrupted in the middle of a step, by {what}"
        error = OttlaError(why)
        error.__cause__ = bug
        self.core.gate.release()  # otherwise this thread's log lines would be held back for ever
        with contextlib.suppress(Exception), self.core.gate:  # closing may hit the same bug: `bug` says more
            self.core.close(self.now(), error)
