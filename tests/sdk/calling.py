"""Calls of users, with the test in the place of the loop that they run in."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import CHECK, TURN, Await, Shielded, Steps, Wait

T = TypeVar("T")


class Cancelled(BaseException):
    """The cancellation of a loop."""


class Tasks:
    """A loop whose tasks are strings."""

    def name_of(self, task: Any) -> str:
        return str(task)

    def where(self, task: Any) -> str:
        return f"in {task}"

    def has_ended(self, task: Any) -> bool:
        return False


class Call(Generic[T]):
    """A user's call: it advances as far as it can by itself; the test answers the user's functions that it awaits.

    Args:
        now: returns the time.
        run: does everything that is due then.

    Attributes:
        error: the exception that ended the call; otherwise see ``result``.
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
        """The user's function that the call awaits."""
        self.go_on()
        return self._wait if isinstance(self._wait, Await) else None

    def go_on(self) -> "Call[T]":
        """Advance the call if its wait has ended."""
        while not self.over:
            outcome = self._wait.outcome if isinstance(self._wait, Shielded) else self._wait
            if not (outcome in (TURN, CHECK) or (isinstance(outcome, Outcome) and outcome.done)):
                break
            self._resume(None, None)
        return self

    def answer(self, *, returned: bool = True) -> None:
        """The awaited function returns, or its time limit passes (``returned=False``)."""
        assert self.awaits is not None
        self._resume(returned, None)
        self.go_on()

    def throw(self, error: BaseException) -> None:
        """The awaited function raises, or the call is cancelled there."""
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
