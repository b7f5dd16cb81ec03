"""The steps of a driver: the core is polled, and its actions are carried out on the loop's connections.

Theory of operation: the core is only touched between two switches of tasks, in the thread of the loop, and inside its
gate. Whatever changes something calls `step`, which polls the core and carries out its actions.

A turn of a loop costs a good part of a request. So `step` itself writes to the sockets what they take at once, nearly
always all of it; only for the rest is the loop asked to say when there is room. The alarm is moved earlier as need be,
and nobody is woken for a later one.

User code (`Run`) is called when everything else of the step is done. What it does with the client in turn is seen to in
the next turn of the loop: a callback that sends for ever starves nobody.
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
"""Bytes of one read; the rest of what is larger is read into its place."""

_LAST_STEPS = 100
"""Steps at the end of a client, in which callbacks may still ask for something, and are refused."""


class Link(ABC):
    """One connection, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.outbox: deque[Buffer] = deque()
        """What is still to be written."""
        self.full = False
        """The system takes no more for now."""
        self.finishing = False
        """Once the outbox is empty, the writing half is shut down, so that the other side sees the end."""
        self.broke = ""
        """Why writing failed: the first that touches a broken socket gets the reason, a reader sees a mere end."""

    @property
    def wrote(self) -> bool:
        """The system has taken everything."""
        return not (self.outbox or self.full or self.broke)

    @abstractmethod
    def write(self) -> None:
        """Have the system take of the outbox what it takes now; end the writing where that is all, and it is to end."""


L = TypeVar("L", bound=Link)
T = TypeVar("T")


class Stepper(ABC, Generic[L]):
    """Takes the steps of ``core``; a loop says how it dials, writes and rings.

    Args:
        now: the loop's clock, in seconds, callable from any thread.
        loop: its name, for messages.
        link: makes the loop's own kind of connection.
    """

    def __init__(self, core: ClientCore, now: Callable[[], float], loop: str, link: Callable[[Key], L]) -> None:
        self.core, self.now, self._loop, self._link = core, now, loop, link
        self._thread = threading.current_thread()
        """Where the loop runs; there is one at a time in a thread."""
        self._thread_id = self._thread.ident
        self._links: dict[Key, L] = {}
        self._reached: dict[tuple[str, int], str] = {}
        """Per name and port, the address that took the last connection."""
        self._runs: deque[Callable[[], object]] = deque()
        """Code of the user's that is to be called."""
        self._stepping = False
        self._exit: BaseException | None = None
        """What user code raised to end the program."""
        self._alarm_at = math.inf
        """When the loop wakes the driver by itself."""
        self._lag = core.metrics.timing("io-loop-lag")

    # -- what a loop can do --------------------------------------------------------------------------------------------

    def _runs_here(self) -> bool:
        """Whether the loop of the client is the one that runs in this thread."""
        return threading.get_ident() == self._thread_id

    @abstractmethod
    def _set_alarm(self, when: float) -> None:
        """Call `_ring` at ``when``, and no more at the time that was set before."""

    @abstractmethod
    def _kick(self) -> None:
        """Call `_ring` in the next turn of the loop."""

    @abstractmethod
    def _dial(self, link: L, wanted: Connect) -> None:
        """Begin to connect."""

    @abstractmethod
    def _hang_up(self, link: L) -> None:
        """End a connection, or the attempt to make it; it is no longer among the links."""

    @abstractmethod
    def _await_writable(self, link: L) -> None:
        """Have the link write again whenever the system takes more, and report to the core when all is `Written`."""

    @abstractmethod
    def _run_in_thread(self, work: RunInThread) -> None:
        """Have ``work.call()`` run where it may block, and `tell` what it returns."""

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Poll the core and carry out what it asks for."""
        self.refuse_another_loop()
        if self._stepping:  # by user code that this step runs
            self._kick()
            return
        self._stepping = True
        try:
            now = self.now()
            while actions := self.core.poll(now):
                for link in self._carry_out(actions):
                    if self.has(link):
                        self.core.handle(Written(link.key), now)
                del actions  # before code of the user's runs: they hold what was sent, and batches
                if (due := self.core.deadline) is None or due > now:
                    break
            for _ in range(len(self._runs)):
                self._run_one()
        except (Exception, KeyboardInterrupt) as bug:  # nobody may wait for what it left half done
            self._broken(bug)
            raise
        finally:
            self._stepping = False
            self._look_ahead()
        if (leave := self._exit) is not None:
            self._exit = None
            self._broken(leave)
            raise leave

    def _carry_out(self, actions: Iterable[Action]) -> list[L]:
        """Do what the core asks for; the connections that have written all that they were given."""
        sent: dict[Key, L] = {}
        for action in actions:
            match action:
                case Send(key=key, parts=parts):
                    if link := self._links.get(key):
                        link.outbox += parts
                        sent[key] = link
                case Connect(key=key):
                    link = self._links[key] = self._link(key)
                    self._dial(link, action)
                case Finish(key=key):
                    if finishing := self._links.get(key):
                        finishing.finishing = True
                        if not finishing.full:
                            finishing.write()
                case Close(key=key, last=last):
                    if closed := self._links.pop(key, None):
                        if last and closed.wrote:
                            closed.outbox += last
                            closed.write()
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
        """Code of the user's is to be called."""
        self._runs.append(run.call)

    def _run_one(self) -> None:
        call = self._runs.popleft()
        try:
            call()
        except (KeyboardInterrupt, SystemExit) as leave:  # once the step is over
            self._exit = self._exit or leave
        except BaseException:  # whatever it is: a cancellation of something else may come out of it, too
            log.exception("code that was called by the client raised")

    def _look_ahead(self) -> None:
        """See to it that the next step is taken in time."""
        now, due = self.now(), self.core.deadline
        if self._runs:
            self._kick()
        if self._alarm_at <= now:  # what it was for is done
            self._measure(now)
            self._move_alarm(math.inf if due is None else due)
        elif due is not None and due < self._alarm_at:
            self._move_alarm(due)

    # -- calls that wait for nothing -----------------------------------------------------------------------------------

    def do(self, call: Callable[[], T]) -> T:
        """A call of a user that waits for nothing."""
        self.refuse_another_loop()
        core = self.core
        try:
            with core.gate:
                core.now = self.now()
                return call()
        except KeyboardInterrupt as interrupt:
            self._broken(interrupt)
            raise
        finally:  # what is refused may have something to be done as well
            self.nudge()

    def read(self, call: Callable[[], T]) -> T:
        """Look at what belongs to the core."""
        return call()

    def is_gone(self, error: BaseException | None) -> bool:
        """Whether there is nothing to leave for a block that is left by ``error``."""
        return False

    def abandon(self) -> bool:
        """Nobody will ever leave the client: end what can be ended here; whether the client is this process's."""
        return True

    def close(self) -> None:
        """End the core: whatever waits fails, and what that hands out is run."""
        self.do(lambda: self.core.close(self.core.now))
        for _ in range(_LAST_STEPS):
            self.step()
            if not self._runs and self.core.deadline is None:
                break

    def nudge(self) -> None:
        """Have the loop wake earlier if the core has something to do before it would."""
        due = self.core.deadline
        if due is None or due >= self._alarm_at:
            return
        if due <= self.now():
            self._kick()
        else:
            self._move_alarm(due)

    def catch_up(self) -> None:
        """Step, if there is anything to do now; or have the loop wake in time."""
        due = self.core.deadline
        if due is None:
            return
        if due <= self.now():
            self.step()
        elif due < self._alarm_at:
            self._move_alarm(due)

    def _move_alarm(self, when: float) -> None:
        self._alarm_at = when
        self._set_alarm(when)

    def _ring(self) -> None:
        """The alarm rings, or somebody kicked: take a step."""
        self._measure(self.now())
        self._alarm_at = math.inf
        self.step()

    def _measure(self, now: float) -> None:
        """How late the alarm is seen to."""
        if 0 <= (late := now - self._alarm_at) < math.inf:
            self._lag.record(late, now)

    def refuse_another_loop(self) -> None:
        """Raise `LocalProtocolError` in a thread, or a loop of the same thread, that the client does not belong to."""
        if self._runs_here():
            return
        if threading.get_ident() != self._thread_id:
            raise LocalProtocolError(
                f"this client belongs to the {self._loop} loop in thread {self._thread.name!r}, and is used in "
                f"{threading.current_thread().name!r}: open another client here, or call there by {self._from_thread}"
            )
        raise LocalProtocolError(
            f"this client belongs to another {self._loop} loop than the one that runs here, and works there only: open "
            f"a client of its own in each loop; {self._another_loop}"
        )

    _from_thread = ""
    """How to call into the loop from another thread."""
    _another_loop = ""
    """How loops come to be several in one thread."""

    def has(self, link: L) -> bool:
        """The core still knows the connection."""
        return self._links.get(link.key) is link

    # -- what happens --------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Pass on to the core what happened, and do what it wants done."""
        try:
            self.core.handle(event, self.now())
        except (Exception, KeyboardInterrupt) as bug:  # as in `step`
            self._broken(bug)
            raise
        self.step()

    def _lost(self, link: L, why: str) -> None:
        """The connection, or the attempt to make it, has ended by itself."""
        if self.has(link):
            del self._links[link.key]
            self.tell(Lost(link.key, link.broke or why))

    def _broken(self, bug: BaseException) -> None:
        """The core cannot go on: whatever waits fails."""
        what = f"{type(bug).__name__}: {bug}" if str(bug) else type(bug).__name__
        why = f"the client has stopped on a bug in ottla, please report it: {what}"
        if not isinstance(bug, Exception):
            why = f"the client has stopped in the midst of something, by {what}"
        error = OttlaError(why)
        error.__cause__ = bug
        self.core.gate.release()  # else the lines of this thread's log were held for ever
        with contextlib.suppress(Exception), self.core.gate:  # what is broken may be broken here too: `bug` says more
            self.core.close(self.now(), error)
