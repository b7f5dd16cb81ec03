"""Calls of users, and the loop that they are made in, played by a test."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import CHECK, TURN, Await, Shielded, Steps, Wait

T = TypeVar("T")


class Cancelled(BaseException):
    """A loop's."""


class Tasks:
    """A loop whose tasks are strings."""

    def name_of(self, task: Any) -> str:
        return str(task)

    def where(self, task: Any) -> str:
        return f"in {task}"

    def has_ended(self, task: Any) -> bool:
        return False


class Call(Generic[T]):
    """A user's call: it goes on by itself as far as it can, and a test answers what it awaits of the user's.

    Args:
        now: the time; ``run`` does what is due then.

    Attributes:
        error: what it ended with, if that was an error; else there is the ``result``.
    """

    def __init__(self, core: ClientCore, steps: Steps[T], now: Callable[[], float], run: Callable[[], object]) -> None:
        self._core, self._steps, self._now, self._run = core, steps, now, run
        self._wait: Wait | None = None
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._resume(None, None)
        self.go_on()

    @property
    def awaits(self) -> Await | None:
        """The user's function that it awaits."""
        self.go_on()
        return self._wait if isinstance(self._wait, Await) else None

    def go_on(self) -> "Call[T]":
        """Go on, if what it waits for has come."""
        while not self.over:
            outcome = self._wait.outcome if isinstance(self._wait, Shielded) else self._wait
            if not (outcome in (TURN, CHECK) or (isinstance(outcome, Outcome) and outcome.done)):
                break
            self._resume(None, None)
        return self

    def answer(self, *, returned: bool = True) -> None:
        """What it awaits has come to its end, or to that of its time."""
        assert self.awaits is not None
        self._resume(returned, None)
        self.go_on()

    def throw(self, error: BaseException) -> None:
        """What it waits for raises, or it is cancelled there."""
        self.go_on()
        assert not self.over
        self._resume(None, error)
        self.go_on()

    def _resume(self, sent: object, raised: BaseException | None) -> None:
        try:
            self._wait = self._core.resume(self._steps, self._now(), sent=sent, raised=raised)
        except StopIteration as end:
            self.over, self.result = True, end.value
        except BaseException as error:
            self.over, self.error = True, error
        self._run()
