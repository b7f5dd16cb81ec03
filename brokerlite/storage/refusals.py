"""What the disk refuses, in the log: a full one refuses thousands of batches a second.

Of refusals that are alike the first is written, and then a line a minute with their number (`ottla.complaints`); the
last of these when there is another, or at the end. That the disk is full, and that it has room again, are written
whenever they change.
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
"""Seconds from a refusal until a write that succeeds means that there is room: small ones may find some in between."""


class Refusals:
    """Of one data folder; from any thread.

    Args:
        folder: for the log.
        clock: seconds, which never go back.

    Attributes:
        is_full: the disk has refused something for want of room, and nothing was written since.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._complaints = Complaints()
        self._full: Complaints | None = None
        """What a full disk has refused since it was full."""
        self._first = self._last = 0.0
        """When it did."""
        self._guard = threading.Lock()

    @property
    def is_full(self) -> bool:
        return self._full is not None

    def error(self, what: str, folder: Path, error: OSError) -> KafkaStorageError:
        """What a client is told; the log is told, too."""
        self.tell(what, folder, error)
        return KafkaStorageError(f"cannot {what} in {folder}: {error.strerror or error}")

    def tell(self, what: str, folder: Path, error: OSError) -> None:
        self.tell_counted(INTERVAL)
        now = self._clock()
        with self._guard:
            if error.errno in FULL:  # for all partitions, whatever is written
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
        """Something could be written while the disk was full."""
        now = self._clock()
        if not self.is_full or now - self._last < _STILL_FULL:
            return
        self.tell_counted()
        with self._guard:
            self._full = None
        extra = {"folder": str(self._folder), "seconds": round(now - self._first)}
        log.warning("disk has free space again, accepting writes", extra=extra)

    def tell_counted(self, after: float = 0.0) -> None:
        """Write how many there were of those whose last line is ``after`` seconds old, or older."""
        with self._guard:
            kinds = [self._complaints] if self._full is None else [self._complaints, self._full]
            lines = [line for each in kinds for line in each.counted(self._clock(), after)]
        for line in lines:
            log.error("%s", line)
