"""When the markers of the transaction before are written: nothing joins the next one earlier.

EndTxn is answered before that. How long it takes is for the cluster to say, a millisecond or ten, and each attempt that
comes too early is one more request. So the first attempt waits for half of the time that it took after the
transaction before. Not for all of it: where nothing else goes on, a coordinator notices only with its next request that
its followers have what it wrote, so that some attempt has to come early.
"""

import math

_PART = 0.5
_SHORTEST = 0.001
"""Seconds. Event loops wait for whole milliseconds, and an attempt that comes too early takes less than one."""
_AT_MOST = 0.1
"""Seconds. What is seen later than that says nothing."""


class Markers:
    """Those of the transactions of one producer.

    Attributes:
        end_took: seconds from the last EndTxn to its answer.
    """

    def __init__(self) -> None:
        self.end_took = 0.0
        self._ending_at = self._ended_at = -math.inf
        self._expected = 0.0
        """Seconds from the answer until they are written."""

    def ending(self, now: float) -> None:
        """EndTxn is sent."""
        self._ending_at = now

    def ended(self, now: float) -> None:
        """It is answered, and the markers are being written."""
        self._ended_at, self.end_took = now, now - self._ending_at

    def early(self, now: float) -> float:
        """Seconds until an attempt is worth it; 0 where it is worth it now, or so soon that nothing can wait for it."""
        early = self._ended_at + self._expected * _PART - now
        return early if early >= _SHORTEST else 0.0

    def written(self, now: float, *, refused: bool) -> None:
        """They are, as an attempt has just shown; ``refused``: one before it came too early."""
        took = now - self._ended_at
        if took <= _AT_MOST:
            self._expected = took if refused else min(took, self._expected * _PART)
