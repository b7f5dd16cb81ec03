"""Flushes one partition to disk, and knows how far it is flushed.

After a failed flush the partition accepts no writes until a restart: the page cache may have dropped the data that it
could not write, so the success of a later flush would prove nothing.
"""

import logging
from copy import copy
from pathlib import Path

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.log_segments import LogSegments
from ottla.brokerlite.storage.unsynced import Unsynced

log = logging.getLogger("ottla.brokerlite")


class PartitionSync:
    """Flushes the segments and the small files of one partition.

    Attributes:
        recovery_point: the records before it are on disk with their indexes; a start need not read them.
        synced_offset: the records before it are on disk, not only in the page cache.
        failed: the error of a failed flush.
    """

    def __init__(self, disk: Disk) -> None:
        self.recovery_point = self.synced_offset = 0
        self.failed: OSError | None = None
        self._disk = disk
        self._unsynced = Unsynced(disk)

    def begin_at(self, recovery_point: int) -> None:
        """Take over the recovery point that a start has found."""
        self.recovery_point = self.synced_offset = recovery_point

    def closed(self, end_offset: int) -> None:
        """Notice that the log was completed: a clean start need not read it."""
        self.recovery_point = end_offset

    def file(self, path: Path) -> None:
        """Note that a small file was written, and perhaps created."""
        self._unsynced.file(path)

    def folder(self, path: Path) -> None:
        """Note that a name in a folder was created, changed or removed."""
        self._unsynced.folder(path)

    def is_complete(self, segments: LogSegments) -> bool:
        """Whether everything is on disk."""
        return not self._unsynced and all(segment.synced >= segment.size for segment in segments)

    def begin(self, segments: LogSegments, folder: Path, *, indexes: bool = False) -> Work:
        """See `PartitionSegments.begin_flush`."""
        offset, active = segments.active.end_offset, segments.active
        unsynced = [segment for segment in segments if segment.synced < segment.size]
        sizes = [(segment, segment.size) for segment in unsynced]
        if any(segment.synced < 0 for segment in unsynced):
            self._unsynced.folder(folder)
        small = self._unsynced.begin_sync()
        files = [
            path for each in unsynced for path in (each.files if indexes or each is not active else [each.log_path])
        ]
        if indexes and active not in unsynced:
            files += active.files

        def flush() -> None:
            try:
                for path in files:
                    self._disk.sync(path)
                small()
            except OSError as error:
                self.failed = copy(error)  # without the traceback, whose frames would keep the file open
                log.error(
                    "flush to disk failed, partition accepts no more writes: %s", error, extra={"folder": str(folder)}
                )
                raise
            for segment, size in sizes:
                segment.note_synced(size)
            self.synced_offset = max(self.synced_offset, offset)
            if indexes:
                self.recovery_point = max(self.recovery_point, offset)

        return flush
