"""Adapts the number of records that a share consumer fetches ahead to the pace of the user's loop.

    START ── all taken within a quarter of their lock ──► twice as many, up to `max_records`
          ── one is taken in the second half, or none asks for it in time ──► half as many, down to 1

Rule: a record is locked from the time at which it is fetched, and each delivery counts, also if the loop never sees the
record: after ``group.share.delivery.count.limit`` (5) deliveries the broker archives it. So a consumer must not fetch
more than its loop takes in time.
"""

from ottla.sdk.share.locked_record import Lock

START = 16
_FAST, _SLOW = 0.25, 0.5
"""Parts of a lock's time."""


class Pace:
    """Counts for one consumer.

    Attributes:
        limit: the number of records to hold without a caller that waits for them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(START, most)
        self._judged: Lock | None = None
        """The last lock that has changed the limit: each does so once."""

    def taken(self, lock: Lock, now: float, *, last: bool) -> None:
        """Take note that the user took a record; ``last``: no other is fetched."""
        age = now - (lock.safe_until - lock.seconds)
        if age > _SLOW * lock.seconds:
            self._shrink(lock)
        elif last and age < _FAST * lock.seconds and lock is not self._judged:
            self._judged, self.limit = lock, min(self.limit * 2, self._most)

    def dropped(self, lock: Lock) -> None:
        """Take note that nobody asked for a record in time."""
        self._shrink(lock)

    def _shrink(self, lock: Lock) -> None:
        if lock is not self._judged:
            self._judged, self.limit = lock, max(1, self.limit // 2)
