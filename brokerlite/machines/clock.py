"""The broker's clock, which all expirations use.

The driver hands in the readings: monotonic seconds, how long the machine has slept while these stood still, and
milliseconds since 1970, which are read once at the start and extrapolated from there. So a step of the system's clock,
forward or back, does not change when things expire. When the system's clock is slewed, its monotonic clock is slewed,
too.

Records carry the timestamps of clients, so the age of a record is computed both by this clock and by the system's clock
as it is now, and the smaller age counts. So no record expires early if the system's clock is ahead only at the start,
or only now.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """Computes the broker's time from the driver's readings.

    Attributes:
        now: monotonic seconds, which may stand still while the machine sleeps.
        epoch: milliseconds since 1970 when `now` and `asleep` were 0.
        asleep: seconds that the machine has slept while `now` stood still.
        behind: milliseconds that the system's clock was behind this one at the last comparison; 0 if it was ahead.
    """

    now: float
    epoch: int
    asleep: float = 0.0
    behind: int = 0

    @classmethod
    def at(cls, now: float, timestamp: int, asleep: float = 0.0) -> "Clock":
        """Return a clock that shows ``timestamp`` (milliseconds since 1970) at ``now``."""
        return cls(now, timestamp - round((now + asleep) * 1000), asleep)

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self.epoch + round((self.now + self.asleep) * 1000)

    @property
    def record_timestamp(self) -> int:
        """Milliseconds since 1970 by this clock or the system's, whichever is earlier and so makes records younger."""
        return self.timestamp - self.behind

    def advance(self, now: float) -> None:
        """Move to ``now``, in monotonic seconds."""
        self.now = now

    def compare(self, now: float, timestamp: int, asleep: float = 0.0) -> None:
        """Compare with the system's clock, which shows ``timestamp`` (milliseconds since 1970) at ``now``.

        Args:
            asleep: seconds that the machine has slept until ``now``.
        """
        self.asleep = asleep
        behind = self.epoch + round((now + self.asleep) * 1000) - timestamp
        self.behind = behind if behind > 0 else 0
