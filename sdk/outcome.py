"""The result of something that ends later: settled once, with a value or an error."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ottla.errors import OttlaError

T = TypeVar("T")


class Abandoned(OttlaError):
    """What an outcome fails with that was cancelled; no user ever sees it."""


class Outcome(Generic[T]):
    """Settled exactly once; later attempts are ignored, because a deadline may race with an answer."""

    __slots__ = ("_callbacks", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T | None = None
        self.error: OttlaError | None = None
        self._callbacks: list[Callable[[], object]] = []

    def succeed(self, value: T) -> None:
        if not self.done:
            self.value = value
            self._settle()

    def fail(self, error: OttlaError) -> None:
        if not self.done:
            self.error = error
            self._settle()

    def settle(self, result: T | OttlaError) -> None:
        """Succeed, or fail if that is what ``result`` is."""
        if isinstance(result, OttlaError):
            self.fail(result)
        else:
            self.succeed(result)

    def cancel(self) -> None:
        """Nobody waits for it any more: what is done for it alone is given up."""
        self.fail(Abandoned("nobody waits for it any more"))

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when settled (at once if it is): how drivers wake the tasks that wait."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Nobody waits any more: or who gives up often would leave something behind each time."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def result(self) -> T:
        """The value; raises the error. Only once `done`."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] # None is a T wherever it was set to succeed with None

    def _settle(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class AfterCallbacks(Outcome[T]):
    """Settled once callbacks of the user's have returned, so that none of them can wait for it."""

    __slots__ = ()


def any_of(outcomes: Sequence[Outcome[Any]]) -> Outcome[None]:
    """Settled once one of ``outcomes`` is, in whatever way; leaves nothing behind with the others."""
    first: Outcome[None] = Outcome()

    def settled() -> None:
        for each in outcomes:
            each.forget(settled)
        first.succeed(None)

    for each in outcomes:
        each.when_done(settled)
    return first


def all_of(outcomes: Sequence[Outcome[T]]) -> Outcome[None]:
    """Settled once all of ``outcomes`` are; fails with the first error among them, in their order; cancels all."""
    whole: Outcome[None] = Outcome()
    left = [len(outcomes)]

    def settled() -> None:
        left[0] -= 1
        if left[0] <= 0:
            error = next((each.error for each in outcomes if each.error is not None), None)
            whole.succeed(None) if error is None else whole.fail(error)

    for each in outcomes:
        each.when_done(settled)
    if not outcomes:
        whole.succeed(None)

    def give_up() -> None:
        for each in outcomes:
            each.cancel()

    whole.when_done(give_up)
    return whole


def own(shared: Outcome[T]) -> Outcome[T]:
    """An outcome that follows one which others wait for, too, and can be cancelled by itself."""
    single: Outcome[T] = Outcome()

    def settled() -> None:
        single.settle(shared.error or shared.result())

    shared.when_done(settled)
    single.when_done(lambda: shared.forget(settled))
    return single
