"""The broker's clock: what expires, expires by it.

Two readings, both handed in by the driver: seconds that never go back, and milliseconds since 1970, read once at the
start and counted on from there. Steps of the system's clock, forward or back, so neither expire anything early nor
keep it for ever.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """The time.

    Attributes:
        now: seconds since some moment; never goes back.
        epoch: milliseconds since 1970 when `now` was 0.
    """

    now: float
    epoch: int

    @classmethod
    def at(cls, now: float, timestamp: int) -> "Clock":
        """A clock that shows ``timestamp`` (milliseconds since 1970) at ``now``."""
        return cls(now, timestamp - round(now * 1000))

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self.epoch + round(self.now * 1000)
