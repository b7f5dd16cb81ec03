"""What a caller waits for, as steps: the language between the machines and the drivers.

    def send(record) -> Steps[Receipt]:            async def send(self, ...):
        yield TURN                                     return await self._driver.run(self._core.send(record))
        receipt = yield from settled(outcome)
        return receipt

A call of a user is a generator. Between two yields it is a machine like the others: it runs in one go, knows no loop
and no clock, and decides everything. What it yields is all that a driver has to be able to do:

    an `Outcome`     wait until it is settled; a cancellation ends the wait and is raised at the ``yield``
    `Shielded`       the same, and no cancellation ends it: the machine sees to it that it is settled in time
    `Await`          await a function of the user's, such as a listener's method, within so many seconds
    `Outside`        call a function of the user's, or what calls some, outside of the core's gate
    `TURN`           let other tasks run; cancelled here, nothing has happened yet
    `CHECK`          the same, but let nobody run: only a cancellation that is there already is raised

Rules:
- What is raised at a ``yield`` is either the user's own error (`Await`, `Outside`) or whatever the loop cancels with. A
  generator may tidy up, with shielded steps too, and then lets it pass.
- A driver resumes the generator inside the core's gate (`ottla.sdk.gate`), and polls the core after each of its steps.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.sdk.outcome import Outcome

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shielded:
    """Wait for ``outcome``, whatever is cancelled meanwhile."""

    outcome: Outcome[Any]


@dataclass(frozen=True, slots=True)
class Await:
    """Await ``function(*args)``, the user's own code, in the caller's task; answered with whether it came to its end.

    Where callers block it is called in their thread, to its end.

    Attributes:
        seconds: after which it is cancelled; ``None``: it may take as long as it likes.
        shield: a cancellation of the caller does not reach it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    seconds: float | None = None
    shield: bool = False


@dataclass(frozen=True, slots=True)
class Outside:
    """Call ``call()`` outside of the gate, at once; answered with what it returns."""

    call: Callable[[], Any]


class Turn:
    """Let other tasks run, or only see whether the caller is cancelled."""


TURN: Final = Turn()
CHECK: Final = Turn()

Wait = Outcome[Any] | Shielded | Await | Outside | Turn
Steps = Generator[Wait, Any, T]
"""Yields what it waits for, and returns its result."""


def settled(outcome: Outcome[T]) -> Steps[T]:
    """Wait for ``outcome``; its value, or its error raised. It is cancelled with its caller."""
    try:
        if not outcome.done:
            yield outcome
    except BaseException:  # a cancellation, whatever the loop's is called
        outcome.cancel()
        raise
    return outcome.result()
