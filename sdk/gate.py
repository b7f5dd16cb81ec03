"""The one rule of re-entry: a client does one thing at a time, and the user's code runs outside of it.

`ClientCore.handle` and `poll` pass the gate, and so does every call of a user between two waits. The user's code
(delivery callbacks, listeners, interceptors, assignors, log handlers) is handed out as `Run`, `Await` and `Outside`,
which the drivers carry out outside of the gate, so it may call anything.

Code that enters nevertheless while the gate is held (a signal handler, a finalizer, a method of an object that was
passed as data) is refused before it changes anything. Log lines written inside are held back, and handed out like the
user's code, because a log handler may produce.

While the gate is free, other threads may be offered something (`Offers`); the next entry settles it.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.errors import LocalProtocolError
from ottla.sdk.logs import HELD, emit


class Offers(Protocol):
    """A part with something that threads may take without entering the gate."""

    def offer(self) -> None:
        """Make the offer: the client is idle."""
        ...

    def settle(self) -> None:
        """Withdraw the offer; from now on, account for all that was taken."""
        ...


class Gate:
    """A context manager for one step; ``emit`` is given a function that writes the log lines of that step.

    Attributes:
        entered: two bytes. The first is 1 while the gate is held. The second belongs to a driver, which sets it to have
            the next call come to it. The fast path in C needs both to be 0.
        offering: the parts that offer something while the gate is free; only a driver with a thread uses it.
    """

    __slots__ = ("_before", "_emit", "_lines", "_resting", "entered", "offering")

    def __init__(self, emit: Callable[[Callable[[], None]], object]) -> None:
        self.entered = bytearray(2)
        self.offering: dict[Offers, None] = {}
        self._resting = False
        self._emit = emit
        self._lines: list[logging.LogRecord] = []
        self._before: list[logging.LogRecord] | None = None

    def __enter__(self) -> None:
        if self.entered[0]:
            raise LocalProtocolError(
                "the client is busy, and was called from within: by a signal handler, a finalizer (__del__), or a "
                "method of an object that it was given; make this call from a task instead"
            )
        self.entered[0] = 1
        self._before, HELD.lines = HELD.lines, self._lines
        if self._resting:
            self._resting = False
            try:
                for each in self.offering:
                    each.settle()
            except BaseException:  # a bug, which must not lock everyone else out
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        HELD.lines, self._before = self._before, None
        self.entered[0] = 0
        if self._lines:
            lines, self._lines = self._lines, []
            self._emit(lambda: _write(lines))

    def rest(self) -> None:
        """Make the offers: no step is due for a while."""
        if self.offering and not self._resting:
            with self:  # a finalizer that calls the client meanwhile is refused
                for each in self.offering:
                    each.offer()
                self._resting = True

    def release(self) -> None:
        """Free a gate that is still held because Ctrl-C interrupted an entry or exit."""
        if self.entered[0]:
            self.__exit__()


def _write(lines: list[logging.LogRecord]) -> None:
    for each in lines:
        emit(partial(logging.getLogger(each.name).handle, each))
