"""The result of work that ends later: settled once, with a value or an error."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ottla.errors import OttlaError

T = TypeVar("T")


class Abandoned(OttlaError):
    """The error of a cancelled outcome; no user ever sees it."""


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
        """Succeed with ``result``, or fail if it is an error."""
        if isinstance(result, OttlaError):
            self.fail(result)
        else:
            self.succeed(result)

    def cancel(self) -> None:
        """Fail it, because no caller waits any more; work done only for this outcome stops."""
        self.fail(Abandoned("no caller waits for it any more"))

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when settled (at once if it is already); drivers use this to wake waiting tasks."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Remove a callback that is no longer needed; otherwise repeated cancellation would leak callbacks."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def result(self) -> T:
        """The value; raises the error. Only call it once `done`."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] # if it is None, T includes None: succeed(None) was called

    def _settle(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def settled_with(value: T) -> Outcome[T]:
    """An outcome that has succeeded already."""
    outcome: Outcome[T] = Outcome()
    outcome.succeed(value)
    return outcome


class AfterCallbacks(Outcome[T]):
    """An outcome settled only after the user's callbacks have returned, so they cannot wait for it."""

    __slots__ = ()


def any_of(outcomes: Sequence[Outcome[Any]]) -> Outcome[None]:
    """Settled as soon as one of ``outcomes`` is, with or without error; leaves no callback with the others."""
    first: Outcome[None] = Outcome()

    def settled() -> None:
        for each in outcomes:
            each.forget(settled)
        first.succeed(None)

    for each in outcomes:
        each.when_done(settled)
    return first


def all_of(outcomes: Sequence[Outcome[T]]) -> Outcome[None]:
    """Settled once all ``outcomes`` are; fails with the first error, in their order; cancelling it cancels all."""
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
    """An outcome that follows a shared one, and can be cancelled without cancelling that."""
    single: Outcome[T] = Outcome()

    def settled() -> None:
        single.settle(shared.error or shared.result())

    shared.when_done(settled)
    single.when_done(lambda: shared.forget(settled))
    return single
