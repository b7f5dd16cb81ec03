"""The steps of a call, each a wait: the language between the machines and the drivers.

    def send(record) -> Steps[Receipt]:            async def send(self, ...):
        yield CHECK                                    return await self._driver.run(self._core.send(record))
        yield from settled(self.offer(record))
        yield receipt
        return receipt.result()

A user's call is a generator. Between two yields it is a machine like the others: it runs without interruption, knows no
loop and no clock, and makes all decisions. A driver only has to support the following yields:

    an `Outcome`     wait until it is settled; a cancellation ends the wait and is raised at the ``yield``
    `Shielded`       the same, but no cancellation ends it: the machine makes sure that it is settled in time
    `Await`          await a function of the user's, such as a listener's method, within so many seconds
    `Outside`        call a function of the user's, or a function that calls the user's code, outside of the core's gate
    `TURN`           let other tasks run; if cancelled here, the call has had no effect yet
    `CHECK`          the same, without letting other tasks run: only raises a cancellation that is already pending

Rules:
- The exception raised at a ``yield`` is either the user's own error (`Await`, `Outside`) or the loop's cancellation. A
  generator may clean up, also with shielded waits, and then lets it pass.
- A driver resumes the generator inside the core's gate (`ottla.sdk.gate`), and polls the core after each of its steps.
"""

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from ottla.late_dataclass import dataclass
from ottla.sdk.outcome import Outcome

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shielded:
    """Wait for ``outcome``, even if the caller is cancelled meanwhile."""

    outcome: Outcome[Any]


@dataclass(frozen=True, slots=True)
class Await:
    """Await ``function(*args)``, the user's own code, in the caller's task; answered with whether it finished.

    In the blocking client it is called in the caller's thread, and always finishes.

    Attributes:
        seconds: after which it is cancelled; ``None``: there is no limit.
        shield: a cancellation of the caller does not reach it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    seconds: float | None = None
    shield: bool = False


@dataclass(frozen=True, slots=True)
class Outside:
    """Call ``call()`` outside of the gate, at once; answered with its return value."""

    call: Callable[[], Any]


class Turn:
    """Let other tasks run, or only check whether the caller is cancelled."""


TURN: Final = Turn()
CHECK: Final = Turn()

Wait = Outcome[Any] | Shielded | Await | Outside | Turn
Steps = Generator[Wait, Any, T]
"""Yields what to wait for, and returns its result."""


def settled(outcome: Outcome[T]) -> Steps[T]:
    """Wait for ``outcome``; return its value, or raise its error. Cancels it if the caller is cancelled."""
    try:
        if not outcome.done:
            yield outcome
    except BaseException:  # a cancellation; each loop has its own exception for it
        outcome.cancel()
        raise
    return outcome.result()
