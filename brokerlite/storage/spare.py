"""Reserves disk space for a start and a shutdown on a full disk.

Both write small files. Otherwise a broker whose own logs have filled the disk could not start, and clients could not
delete records to free space.
"""

import os
from contextlib import suppress
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk

SPARE = ".spare"
SIZE = 256 * 2**10


class Spare:
    """Manages a file that only takes up space."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / SPARE

    def take(self) -> None:
        """Free the reserved space."""
        self._disk.unlink(self._path)

    def keep(self) -> None:
        """Reserve the space again, as much as there is."""
        with suppress(OSError):  # the disk is full or fails; the next start has to do without
            self._disk.write(self._path, 0, os.urandom(SIZE))  # random, so that no file system compresses it
