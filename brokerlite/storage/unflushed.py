"""Tracks which partitions of a data folder have to be flushed to disk, and flushes them."""

from collections.abc import Iterable
from pathlib import Path

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.partition_log import Segments
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.brokerlite.storage.unsynced import Unsynced


class Unflushed:
    """Tracks the partitions of one folder; the loop and threads may use it.

    Attributes:
        new: partitions whose creation is not flushed yet.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.new: dict[PartitionSegments, None] = {}
        self._size = 0
        self._written: dict[PartitionSegments, None] = {}
        self._names = Unsynced(disk)
        self._folder = folder

    def made(self, partitions: Iterable[PartitionSegments]) -> None:
        """Note new folders; partition 0, if among them, comes first."""
        self._names.folder(self._folder)
        self.new.update(dict.fromkeys(partitions))

    def written(self, partition: PartitionSegments, size: int) -> None:
        """Note that a partition was written to."""
        self._written[partition] = None
        self._size += size

    def take(self, size: int) -> bool:
        """Return whether at least ``size`` bytes were stored since this last returned true."""
        if self._size < size:
            return False
        self._size = 0
        return True

    def renamed(self, partitions: Iterable[PartitionSegments]) -> None:
        """Note that folders were renamed for removal."""
        self._names.folder(self._folder)
        for each in partitions:
            self.new.pop(each, None)
            self._written.pop(each, None)

    def begin_flush(self, partitions: Iterable[Segments] | None) -> Work:
        """See `DataFolder.begin_flush`."""
        wanted = None if partitions is None else set(partitions)
        taken = dict.fromkeys(tuple(self.new))
        taken.update(dict.fromkeys(each for each in tuple(self._written) if wanted is None or each in wanted))
        names, work = self._names.begin_sync(), [each.begin_flush() for each in taken]

        def flush() -> None:
            names()  # first: after a power cut, files in a folder without a name would be lost
            errors: list[OSError] = []
            for each in work:
                try:
                    each()
                except OSError as error:
                    errors = errors or [error]
            for partition in taken:
                if not errors:
                    self.new.pop(partition, None)
                self._written.pop(partition, None)
                if not partition.is_synced:  # it was written to during the flush
                    self._written[partition] = None
            if errors:
                raise errors.pop()  # `pop` breaks the cycle through its own traceback, which would keep files open

        return flush
