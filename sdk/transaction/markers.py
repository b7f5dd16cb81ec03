"""Estimates when the previous transaction's markers are written; the next transaction cannot be joined before that.

The coordinator answers EndTxn before the markers are written. That takes one to ten milliseconds, depending on the
cluster, and each attempt to join that is too early costs a request. So the first attempt waits half of the time that
the markers took after the previous transaction. It does not wait the full time: in an idle cluster, the coordinator
notices only at its next request that its followers have replicated the markers, so one attempt has to be early.
"""

import math

_PART = 0.5
_SHORTEST = 0.001
"""In seconds. Event loops wait for whole milliseconds, and an attempt that is too early takes less than one."""
_AT_MOST = 0.1
"""In seconds. A longer measurement says nothing about the markers, because the next transaction began later."""


class Markers:
    """Measures and estimates the time until the markers of one producer's transactions are written.

    Attributes:
        end_took: seconds from the last EndTxn request to its response.
    """

    def __init__(self) -> None:
        self.end_took = 0.0
        self._ending_at = self._ended_at = -math.inf
        self._expected = 0.0
        """Seconds from the response until the markers are written."""

    def ending(self, now: float) -> None:
        """Take note that EndTxn is sent."""
        self._ending_at = now

    def ended(self, now: float) -> None:
        """Take note that EndTxn is answered; the coordinator now writes the markers."""
        self._ended_at, self.end_took = now, now - self._ending_at

    def early(self, now: float) -> float:
        """Seconds to wait before the first attempt to join; 0: now, or sooner than a loop can wait."""
        early = self._ended_at + self._expected * _PART - now
        return early if early >= _SHORTEST else 0.0

    def written(self, now: float, *, refused: bool) -> None:
        """Take note that an attempt has succeeded: the markers are written. ``refused``: one before was too early."""
        took = now - self._ended_at
        if took <= _AT_MOST:
            self._expected = took if refused else min(took, self._expected * _PART)
