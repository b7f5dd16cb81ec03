"""The broker's clock: what expires, expires by it.

Readings are handed in by the driver: seconds that never go back, how long the machine has slept while these stood
still, and milliseconds since 1970, read once at the start and counted on from there. Steps of the system's clock,
forward or back, so neither expire anything early nor keep it for ever. When the system's clock is slewed, its other
clocks are, too.

Records carry the timestamps of clients, so their age is another matter: it is taken by this clock and by the system's
clock as it is now, and the smaller one counts. So nothing goes early that a clock calls old which is ahead only at the
start, or only now.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """The time.

    Attributes:
        now: seconds since some moment; never goes back, and may stand still while the machine sleeps.
        epoch: milliseconds since 1970 when `now` and `asleep` were 0.
        asleep: seconds that the machine has slept since some moment, as far as `now` stood still.
        behind: milliseconds that the system's clock was behind this one when it was compared last; 0 if it was ahead.
    """

    now: float
    epoch: int
    asleep: float = 0.0
    behind: int = 0

    @classmethod
    def at(cls, now: float, timestamp: int, asleep: float = 0.0) -> "Clock":
        """A clock that shows ``timestamp`` (milliseconds since 1970) at ``now``."""
        return cls(now, timestamp - round((now + asleep) * 1000), asleep)

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self.epoch + round((self.now + self.asleep) * 1000)

    @property
    def record_timestamp(self) -> int:
        """Milliseconds since 1970 by this clock or the system's, whichever makes records younger."""
        return self.timestamp - self.behind

    def compare(self, now: float, timestamp: int) -> None:
        """The system's clock shows ``timestamp`` (milliseconds since 1970) at ``now``."""
        behind = self.epoch + round((now + self.asleep) * 1000) - timestamp
        self.behind = behind if behind > 0 else 0
