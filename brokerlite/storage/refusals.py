"""Logs disk errors, but not each one: a full disk refuses thousands of batches a second.

The log gets the first of similar errors, and then one line a minute with their number (`ottla.complaints`); the last
such line comes with the next error, or at shutdown. Lines about a full disk, and one with free space again, are logged
whenever that changes.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ottla.brokerlite.storage.disk import FULL
from ottla.complaints import INTERVAL, Complaints
from ottla.errors import KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

_STILL_FULL = 5.0
"""Seconds since the last refusal until a successful write counts as free space: small writes may fit in between."""


class Refusals:
    """Logs the disk errors of one data folder; any thread may call it.

    Args:
        folder: for the log.
        clock: returns seconds, which never go back.

    Attributes:
        is_full: the disk was full at the last refusal, and no later write has shown free space.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._complaints = Complaints()
        self._full: Complaints | None = None
        """The refusals since the disk became full; ``None`` while it is not full."""
        self._first = self._last = 0.0
        """When the full disk first and last refused something."""
        self._guard = threading.Lock()

    @property
    def is_full(self) -> bool:
        return self._full is not None

    def error(self, what: str, folder: Path, error: OSError) -> KafkaStorageError:
        """Log a disk error and return the error for the client."""
        self.tell(what, folder, error)
        return KafkaStorageError(f"cannot {what} in {folder}: {error.strerror or error}")

    def tell(self, what: str, folder: Path, error: OSError) -> None:
        self.tell_counted(INTERVAL)
        now = self._clock()
        with self._guard:
            if error.errno in FULL:  # one line for all partitions and operations
                text = f"disk full, writes are refused: free space or delete records ({self._folder})"
                if self._full is None:
                    self._full, self._first = Complaints(), now
                self._last = now
                is_new = self._full.is_new(now, "", text)
            else:
                text = f"the disk refused to {what}: {error.strerror or error}"
                is_new = self._complaints.is_new(now, folder.name, text)
        if is_new:
            log.error("%s", text, extra={"folder": str(folder)})

    def written(self) -> None:
        """Note a successful write while the disk counts as full."""
        now = self._clock()
        if not self.is_full or now - self._last < _STILL_FULL:
            return
        self.tell_counted()
        with self._guard:
            self._full = None
        extra = {"folder": str(self._folder), "seconds": round(now - self._first)}
        log.warning("disk has free space again, accepting writes", extra=extra)

    def tell_counted(self, after: float = 0.0) -> None:
        """Log the numbers of similar errors whose last line is at least ``after`` seconds old."""
        with self._guard:
            kinds = [self._complaints] if self._full is None else [self._complaints, self._full]
            lines = [line for each in kinds for line in each.counted(self._clock(), after)]
        for line in lines:
            log.error("%s", line)
