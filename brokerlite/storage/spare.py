"""Room on the disk that is kept for a start, and for a stop, while the disk is full.

Both have to write small files. A broker that its own logs have filled the disk of could otherwise not be started, so
nobody could have it delete anything.
"""

import os
from contextlib import suppress
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk

SPARE = ".spare"
SIZE = 256 * 2**10


class Spare:
    """A file that only takes up room."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / SPARE

    def take(self) -> None:
        """Let others have the room."""
        self._disk.unlink(self._path)

    def keep(self) -> None:
        """Take up as much of it as there is."""
        with suppress(OSError):  # the disk is full, or fails: the next start has to do without
            self._disk.write(self._path, 0, os.urandom(SIZE))  # which no file system makes smaller
