"""Cuts the damaged end off a log after a crash, and keeps the bytes in `.damaged` files."""

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.log_file import Damage
from ottla.brokerlite.storage.segment import Segment

log = logging.getLogger("ottla.brokerlite")

DAMAGED = ".damaged"
_PIECE = 2**20


class LogCuts:
    """Cuts the log of one partition. The caller drops the segments after the cut, whose files are gone then.

    Attributes:
        size: bytes that were cut off.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.size = 0
        self._disk = disk
        self._folder = folder

    def cut(self, segment: Segment, damage: Damage, following: Sequence[Segment]) -> None:
        """Cut the log before ``damage``, and log that."""
        lost = segment.size - damage.position + sum(self._disk.size(each.log_path) for each in following)
        what = (self._folder.name, damage.offset, lost)
        if damage.torn and not following:
            log.warning("%s ends in an incomplete batch: from offset %d on, %d bytes are cut off", *what)
        else:
            aside = self._aside(damage.offset)
            self._keep(segment, damage.position, aside)
            said = "%s is damaged: from offset %d on, %d bytes are cut off, kept in %s and .damaged files after it"
            log.error(said, *what, aside)
        segment.cut(damage.position)
        self._remove(following)
        self.size += lost

    def cut_behind(self, segment: Segment, following: Sequence[Segment]) -> None:
        """Cut the log after ``segment``, whose last records are lost, and log that."""
        lost = sum(self._disk.size(each.log_path) for each in following)
        log.error(
            "%s has lost the records from offset %d on in an unclean shutdown: the %d bytes after them are cut off",
            self._folder.name,
            segment.end_offset,
            lost,
        )
        self._remove(following)
        self.size += lost

    def _remove(self, segments: Sequence[Segment]) -> None:
        """Remove segments at the end; their log files are kept as `.damaged` files, which the broker never reads."""
        for each in reversed(segments):  # so that a kill leaves no gap
            log_path, *indexes = each.files
            for path in indexes:  # before the log file: a transaction index without one would count as lost records
                self._disk.unlink(path)
            if self._disk.size(log_path):
                self._disk.rename(log_path, self._aside(each.base_offset))
            else:
                self._disk.unlink(log_path)

    def _keep(self, segment: Segment, position: int, aside: Path) -> None:
        """Copy the bytes that will be cut off, and flush the copy to disk."""
        for at in range(position, segment.size, _PIECE):
            piece = self._disk.read(segment.log_path, min(_PIECE, segment.size - at), at)
            self._disk.write(aside, at - position, piece)
        self._disk.sync(aside)
        self._disk.sync_folder(self._folder)

    def _aside(self, offset: int) -> Path:
        """Return the path of a new file for the bytes cut off from ``offset`` on."""
        names = (f"{offset:020}{f'.{n}' if n else ''}{DAMAGED}" for n in itertools.count())
        return next(path for name in names if not self._disk.exists(path := self._folder / name))
