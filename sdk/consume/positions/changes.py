"""Collects changed partitions until the next `poll`, so that its cost depends on the number of changes only.

Rules:
- A changed partition is reviewed once, within the next `poll`, however often it changed.
- All waiters share one `Outcome`, which is settled by any news.
"""

from collections.abc import Callable

from ottla.sdk.consume.partitions.position import Position
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer


class Changes:
    """Collects the changes of one fetcher.

    Args:
        review: called within the next `poll` with the changed partitions (there may be none) and the time.
    """

    def __init__(self, core: ClientCore, review: Callable[[list[Position], float], None]) -> None:
        self._core, self._review = core, review
        self._changed: dict[Position, None] = {}
        self._timer: Timer | None = None
        self.news: Outcome[None] = Outcome()
        """Settled by the next news, and then replaced."""
        self._closed = False

    def review(self, position: Position) -> None:
        """Have the partition reviewed, because it has changed."""
        self._changed[position] = None
        self.wake()

    def forget(self, position: Position) -> None:
        self._changed.pop(position, None)

    def wake(self) -> None:
        """Have the fetcher look for possible Fetch requests."""
        if not self._closed and (self._timer is None or self._timer.call is None):
            self._timer = self._core.soon(self._run)

    def notify(self) -> None:
        """Wake the waiters: there are records to take, an error to raise, or a position is known."""
        news, self.news = self.news, Outcome()
        news.succeed(None)

    def close(self) -> None:
        """Review nothing any more; waiters may still be woken."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, now: float) -> None:
        self._timer = None
        changed, self._changed = list(self._changed), {}
        self._review(changed, now)
