"""What the disk refuses, in the log: a full one refuses thousands of batches a second.

Of refusals that are alike the first is written, and then a line a minute with their number (`ottla.complaints`); the
last of these when there is another, or at the end.
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


class Refusals:
    """Of one data folder; from any thread.

    Args:
        clock: seconds, which never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._complaints = Complaints()
        self._guard = threading.Lock()

    def error(self, what: str, folder: Path, error: OSError) -> KafkaStorageError:
        """What a client is told; the log is told, too."""
        self.tell(what, folder, error)
        return KafkaStorageError(f"cannot {what} in {folder}: {error.strerror or error}")

    def tell(self, what: str, folder: Path, error: OSError) -> None:
        self.tell_counted(INTERVAL)
        text = f"the disk refused to {what}: {error.strerror or error}"
        whose = "" if error.errno in FULL else folder.name  # a full disk is full for all
        with self._guard:
            is_new = self._complaints.is_new(self._clock(), whose, text)
        if is_new:
            log.error("%s", text, extra={"folder": str(folder)})

    def tell_counted(self, after: float = 0.0) -> None:
        """Write how many there were of those whose last line is ``after`` seconds old, or older."""
        with self._guard:
            lines = self._complaints.counted(self._clock(), after)
        for line in lines:
            log.error("%s", line)
