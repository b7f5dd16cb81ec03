"""The broker's clock: what expires, expires by it.

Readings are handed in by the driver: seconds that never go back, how long the machine has slept while these stood
still, and milliseconds since 1970, read once at the start and counted on from there. Steps of the system's clock,
forward or back, so neither expire anything early nor keep it for ever. When the system's clock is slewed, its other
clocks are, too.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """The time.

    Attributes:
        now: seconds since some moment; never goes back, and may stand still while the machine sleeps.
        epoch: milliseconds since 1970 when `now` and `asleep` were 0.
        asleep: seconds that the machine has slept since some moment, as far as `now` stood still.
    """

    now: float
    epoch: int
    asleep: float = 0.0

    @classmethod
    def at(cls, now: float, timestamp: int, asleep: float = 0.0) -> "Clock":
        """A clock that shows ``timestamp`` (milliseconds since 1970) at ``now``."""
        return cls(now, timestamp - round((now + asleep) * 1000), asleep)

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self.epoch + round((self.now + self.asleep) * 1000)
