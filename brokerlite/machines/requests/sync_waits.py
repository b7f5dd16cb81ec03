"""Delays answers and other actions until all earlier writes are on disk.

Rules:
- Actions that wait for the disk run in order.
- After a failed sync the state of the disk is unknown until another start has read it. Until then no action runs, not
  even one that need not wait: its request is refused.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple


class _Held(NamedTuple):
    """An action that waits for the disk.

    Attributes:
        writes: the number of writes that must be on disk first.
    """

    writes: int
    then: Callable[[], None]
    ticket: Any


class SyncWaits:
    """Counts the writes of the broker, and runs actions once the writes before them are on disk.

    Args:
        enabled: if false, every action runs at once.
        refuse: called with the ticket of a request that waited when the disk failed.
    """

    def __init__(self, enabled: bool, refuse: Callable[[Any], None]) -> None:
        self._enabled = enabled
        self._refuse = refuse
        # One write is pending from the start: the logs may be in the page cache only, if the last broker was killed.
        self._writes, self._synced = 1, 0
        self._failed = False
        """A sync failed, so the state of the disk is unknown."""
        self._held: deque[_Held] = deque()

    def wrote(self) -> None:
        """Count a write."""
        self._writes += 1

    def when_written(self, then: Callable[[], None], ticket: Any = None) -> None:
        """Call ``then`` once everything written so far is on disk; at once if waiting is not enabled.

        Args:
            ticket: the ticket of the request that waits, if any.
        """
        if self._enabled and self._synced < self._writes and not self._failed:
            self._held.append(_Held(self._writes, then, ticket))
        else:
            self._go_on(then, ticket)

    @property
    def unsynced(self) -> int | None:
        """The number of writes so far if an action waits for the disk, else ``None``; pass it to `synced`."""
        return self._held[-1].writes if self._held else None

    def synced(self, writes: int, *, failed: bool = False) -> None:
        """Notice that so many writes are on disk, or (``failed``) that their sync failed."""
        self._failed |= failed
        self._synced = max(self._synced, writes)
        while self._held and (self._held[0].writes <= self._synced or self._failed):
            held = self._held.popleft()
            self._go_on(held.then, held.ticket)

    def _go_on(self, then: Callable[[], None], ticket: Any) -> None:
        if not self._failed:
            then()
        elif ticket is not None:
            self._refuse(ticket)
