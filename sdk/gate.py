"""The one rule of re-entry: a client does one thing at a time, and a user's code runs outside of it.

`ClientCore.handle` and `poll`, and every call of a user for as long as it does not wait, pass the gate. Code of the
user's (delivery callbacks, listeners, acknowledgements of interceptors, assignors, log handlers) is handed out as
`Run` and `Await`, which the drivers carry out outside of the gate, so it may call anything.

What comes in all the same while somebody is inside (a signal handler, a finalizer, a method of an object that was given
as data) is refused before it touches anything. Lines of the log that are written inside are held, and handed out like
any other code of the user's, since a log handler may produce.

While nobody is inside, other threads may be offered something (`Offers`), which is settled when somebody enters.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.errors import LocalProtocolError
from ottla.sdk.logs import HELD, emit


class Offers(Protocol):
    """Has something that threads may take without entering."""

    def offer(self) -> None:
        """The client rests."""
        ...

    def settle(self) -> None:
        """Take back what was not taken; what was counts from now on."""
        ...


class Gate:
    """A context manager for one step; ``emit`` is given a function that writes the log lines of that step.

    Attributes:
        entered: two bytes, the first 1 while somebody is inside, the second a driver's own, to have the next call come
            to it: a fast path in C passes neither.
        offering: the parts that offer something while nobody is inside; only a driver with a thread has them do so.
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
                "the client is in the midst of something, and is called from within: by a signal handler, a finalizer "
                "(__del__), or a method of an object that it was given; do what is to be done from a task"
            )
        self.entered[0] = 1
        self._before, HELD.lines = HELD.lines, self._lines
        if self._resting:
            self._resting = False
            try:
                for each in self.offering:
                    each.settle()
            except BaseException:  # a bug, which must not keep everybody else out
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        HELD.lines, self._before = self._before, None
        self.entered[0] = 0
        if self._lines:
            lines, self._lines = self._lines, []
            self._emit(lambda: _write(lines))

    def rest(self) -> None:
        """Nobody will enter for a while."""
        if self.offering and not self._resting:
            with self:  # a finalizer that comes in meanwhile is refused
                for each in self.offering:
                    each.offer()
                self._resting = True

    def release(self) -> None:
        """Nobody is inside any more, though Ctrl-C came while somebody entered or left, and cut that short."""
        if self.entered[0]:
            self.__exit__()


def _write(lines: list[logging.LogRecord]) -> None:
    for each in lines:
        emit(partial(logging.getLogger(each.name).handle, each))
