"""A thread that owns a core: it takes the steps, waits for sockets and deadlines, and does the jobs that others post.

Rules:
- The thread waits only in its selector: other threads resolve names and look for brokers.
- An error in it is a bug: it closes the core, so that no caller waits for ever; it is logged, and raised when the
  client's block ends. The thread goes on, in order to refuse further calls.
"""

import contextlib
import selectors
import socket
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.errors import reason
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.selecting import Addresses, SelectorLink, SelectorPump
from ottla.sdk.events import Connect, RunInThread
from ottla.sdk.logs import logger

log = logger("ottla.sdk")

_FAILURES = 100
"""Consecutive errors after which the thread ends."""


class IoThread(SelectorPump):
    """Drives ``core`` in a thread."""

    def __init__(self, core: ClientCore) -> None:
        super().__init__(core, time.monotonic, "blocking")
        self._inbox: deque[Callable[[], object]] = deque()
        """Jobs that other threads have posted."""
        self._asleep = False
        """Whether the thread waits, or is about to, and has to be woken."""
        self._kicked = self._stopping = self._stopped = False
        self._bug: BaseException | None = None
        self._wakes, self._waker = socket.socketpair()
        self._wakes.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wakes, selectors.EVENT_READ, None)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="ottla", daemon=True)
        self._thread.start()
        self._thread_id = self._thread.ident

    def _stop(self) -> None:
        """Have the thread end; from any thread, even if an exception interrupts the waking."""
        self._stopping = True
        self._post(_nothing)

    def _forget_sockets(self) -> None:
        """In a forked child, which has no such thread: send nothing, and keep no socket open."""
        for link in self._links.values():
            if link.socket is not None:
                link.socket.close()
        for each in (self._wakes, self._waker, self._selector):
            each.close()

    def _post(self, job: Callable[[], object]) -> None:
        """Have the I/O thread run a job; from any thread."""
        self._inbox.append(job)
        if self._asleep:
            with contextlib.suppress(OSError):  # the buffer is full, so the thread wakes anyway; or it is closed
                self._waker.send(b"\0")
        if self._stopped:  # the I/O thread has ended meanwhile, and does not look there any more
            self._empty()

    # -- the I/O thread ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self._thread_id = threading.get_ident()
        failures = 0
        while not self._stopping and failures < _FAILURES:
            try:
                self._round()
                failures = 0
            except BaseException as bug:  # fail everything that may wait for the rest of the failed step
                failures += 1
                self._failed(bug)
        try:
            self._hang_up_all()
        finally:
            self._stopped = True
            self._empty()
            for each in (self._wakes, self._waker):
                each.close()

    def _round(self) -> None:
        self._kicked = False
        while self._inbox:
            self._inbox.popleft()()
        self.catch_up()
        while self._go_on():
            self.catch_up()
        due = self.core.deadline
        timeout = None if due is None else max(0.0, due - self.now())
        self._asleep = True
        if self._inbox or self._kicked or self._stopping:
            timeout = 0.0
        try:
            self._wait(timeout)
        finally:
            self._asleep = False

    def _empty(self) -> None:
        """Run the jobs that came last: the core is closed, and refuses them."""
        with contextlib.suppress(IndexError):
            while True:
                self._inbox.popleft()()
        self._ended()

    @abstractmethod
    def _ended(self) -> None:
        """The thread has ended: release every caller that waits for it."""

    @abstractmethod
    def _go_on(self) -> bool:
        """Handle the consequences of the steps so far; returns whether there may be more."""

    def _woken(self) -> None:
        self._wakes.recv(4096)

    def _failed(self, bug: BaseException) -> None:
        if self._bug is None:
            self._bug = bug
            log.error("the client has stopped because of a bug in ottla, please report it", exc_info=bug)
        if self.core.closed is None:
            self._broken(bug)

    def _set_alarm(self, when: float) -> None:
        """Nothing to do: `_round` checks the deadline itself."""

    def _kick(self) -> None:
        self._kicked = True

    # -- connections and brokers -------------------------------------------------------------------------------------

    def _dial(self, link: SelectorLink, wanted: Connect) -> None:
        where = wanted.host, wanted.port
        try:
            found = socket.getaddrinfo(*where, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except OSError:  # a host name, which the system may have to look up in the network
            if not _start("ottla names", partial(self._resolve, link, where)):
                self._lost(link, "the host name cannot be looked up: the system allows no more threads")
        except UnicodeError:
            self._lost(link, f"{wanted.host!r} is not a host name")
        else:
            self._connect_to(link, where, found)

    def _resolve(self, link: SelectorLink, where: tuple[str, int]) -> None:
        """In a thread of its own."""
        try:
            found: Addresses | str = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
        except OSError as error:
            found = reason(error)
        except UnicodeError:
            found = f"{where[0]!r} is not a host name"
        self._post(partial(self._resolved, link, where, found))

    def _resolved(self, link: SelectorLink, where: tuple[str, int], found: Addresses | str) -> None:
        if isinstance(found, str):
            self._lost(link, found)
        elif self.has(link):
            self._connect_to(link, where, found)

    def _run_in_thread(self, work: RunInThread) -> None:
        if not _start("ottla", lambda: self._post(partial(self.tell, work.call()))):
            self._post(partial(self.tell, work.otherwise))


def _nothing() -> None:
    """A job that only wakes the thread."""


def _start(name: str, work: Callable[[], None]) -> bool:
    """Start a thread; ``False`` if the system allows no more, or the program is ending."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True
