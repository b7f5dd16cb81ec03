"""What has happened to partitions, and is still to be acted upon: so a `poll` costs what has happened.

Rules:
- A partition that something happened to is reviewed once, within the next `poll`.
- All that wait for news share one `Outcome`, which any news settle.
"""

from collections.abc import Callable

from ottla.sdk.consume.positions import Position
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer


class Changes:
    """Of one fetcher.

    Args:
        review: called within the next `poll` with the partitions to look at, and the time; perhaps with none.
    """

    def __init__(self, core: ClientCore, review: Callable[[list[Position], float], None]) -> None:
        self._core, self._review = core, review
        self._changed: dict[Position, None] = {}
        self._due: Timer | None = None
        self.news: Outcome[None] = Outcome()
        """Settled by the next news, and replaced."""
        self.closed = False

    def review(self, position: Position) -> None:
        """Something happened to the partition: see what it needs now."""
        self._changed[position] = None
        self.wake()

    def forget(self, position: Position) -> None:
        self._changed.pop(position, None)

    def wake(self) -> None:
        """Something may be possible that was not: see what can be fetched."""
        if not self.closed and (self._due is None or self._due.call is None):
            self._due = self._core.soon(self._run)

    def notify(self) -> None:
        """There are records to take, or an error; or a position is known."""
        news, self.news = self.news, Outcome()
        news.succeed(None)

    def _run(self, now: float) -> None:
        self._due = None
        changed, self._changed = list(self._changed), {}
        self._review(changed, now)
