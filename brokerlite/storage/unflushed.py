"""Which partitions of a data folder the disk need not hold yet, and the work that has it hold them."""

from collections.abc import Iterable
from pathlib import Path

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.log import Segments
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.partition import PartitionSegments
from ottla.brokerlite.storage.unsynced import Unsynced


class Unflushed:
    """The partitions of one folder; for the loop and threads.

    Attributes:
        new: those of which the disk need not hold even that they are there.
        size: bytes that were stored, since somebody set it back to 0.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.new: dict[PartitionSegments, None] = {}
        self.size = 0
        self._written: dict[PartitionSegments, None] = {}
        self._names = Unsynced(disk)
        self._folder = folder

    def made(self, partitions: Iterable[PartitionSegments]) -> None:
        """Folders were made; if that of partition 0 is among them, it comes first."""
        self._names.folder(self._folder)
        self.new.update(dict.fromkeys(partitions))

    def written(self, partition: PartitionSegments, size: int) -> None:
        """Something was stored."""
        self._written[partition] = None
        self.size += size

    def renamed(self, partitions: Iterable[PartitionSegments]) -> None:
        """Folders have another name, to be removed."""
        self._names.folder(self._folder)
        for each in partitions:
            self.new.pop(each, None)
            self._written.pop(each, None)

    def begin_flush(self, partitions: Iterable[Segments] | None) -> Work:
        """As `DataFolder.begin_flush`."""
        wanted = None if partitions is None else set(partitions)
        taken = dict.fromkeys(tuple(self.new))
        taken.update(dict.fromkeys(each for each in tuple(self._written) if wanted is None or each in wanted))
        names, work = self._names.begin_sync(), [each.begin_flush() for each in taken]

        def flush() -> None:
            names()  # without them nothing else would be found
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
                if not partition.is_synced:  # it was written to meanwhile
                    self._written[partition] = None
            if errors:
                raise errors.pop()  # which must not live on in its own traceback, and open files with it

        return flush
