"""Compaction on disk: what is left of a few segments is written beside them, and takes their place as one.

Theory of operation: the log is read and written by a thread, segment by segment, and goes on being read and written by
the loop, which alone changes what the partition's segments are. Each replacement is prepared such that the next start
can either finish it or forget it:

    00.log 50.log  00.log.cleaned    the thread writes it, and has the disk hold it       a kill: .cleaned is removed
    00.log 50.log  00.log.swap       then it is renamed, and the disk holds the name      a kill: the next start goes on
                                     the loop reads the new segment from now on
                   00.log.swap       the thread removes what was replaced; the disk knows
    00.log                           the loop gives it its name

Source: Cleaner.java (cleanSegments), LocalLog.java (replaceSegments), LogLoader.java
(removeTempFilesAndCollectSwapFiles).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.log_file import LogFile

from ottla.brokerlite.machines.compaction import Cleaner, LastBatch, OffsetMap, Round, grouped
from ottla.brokerlite.machines.configs import LogSettings
from ottla.brokerlite.machines.jobs import Job
from ottla.brokerlite.storage.segment import LOG, Segment
from ottla.codec.records import RecordBatch, parse_batch

if TYPE_CHECKING:
    from ottla.brokerlite.storage.partition import PartitionSegments

log = logging.getLogger("ottla.brokerlite")

CLEANED, SWAP = ".cleaned", ".swap"
_DELETED = ".deleted"
"""Kafka's own brokers leave such files."""


@dataclass(slots=True)
class _Made:
    """What became of a group of segments."""

    changed: bool = False
    damaged: bool = False
    before: int = 0
    """Bytes."""


class Compaction:
    """A round on one partition.

    Args:
        due: what is to be cleaned.
        producers: the active ones.
        now: milliseconds since 1970.

    Attributes:
        stopped: may be set at any time; the round then ends soon, and leaves the segments as they are.
    """

    def __init__(
        self,
        host: "PartitionSegments",
        disk: Disk,
        due: Round,
        settings: LogSettings,
        producers: Mapping[int, LastBatch],
        now: int,
    ) -> None:
        self.stopped = False
        self._host = host
        self._disk = disk
        self._due = due
        self._settings = settings
        self._producers = producers
        self._now = now

    def job(self) -> Job:
        """The round. An `OSError` ends it; what was replaced until then stays so."""
        due, settings = self._due, self._settings
        segments = [each for each in self._host.sealed if each.base_offset < due.end_offset]
        aborted = self._host.aborted(segments[0].base_offset, due.end_offset)
        offsets = OffsetMap(due.first_dirty_offset, aborted)
        yield partial(self._read, segments, offsets)
        states = {each.base_offset: each for each in segments if each.base_offset < offsets.end_offset}
        groups = grouped(
            (each.state() for each in states.values()), settings.segment_bytes, settings.segment_index_bytes
        )
        cleaner = Cleaner(
            offsets,
            aborted=aborted,
            producers=self._producers,
            ends=[group[-1].end_offset for group in groups],
            now=self._now,
            delete_retention_ms=settings.delete_retention_ms,
        )
        for group in groups:
            yield from self._replace([states[each.base_offset] for each in group], cleaner)
            if self.stopped:
                return
        self._host.cleaned_up_to = offsets.end_offset
        for offset, what in cleaner.unreadable.items():
            log.error("%s: the batch at offset %d is not compacted: %s", self._host.folder.name, offset, what)

    def _read(self, segments: Sequence[Segment], offsets: OffsetMap) -> None:
        """Fill the map (in a thread)."""
        for segment in segments:
            if segment.end_offset <= offsets.start_offset:
                continue
            for batch in segment.whole(segment.tail(offsets.start_offset, 0)):
                if self.stopped or (batch.last_offset >= offsets.start_offset and not offsets.add(batch)):
                    return

    def _replace(self, old: list[Segment], cleaner: Cleaner) -> Job:
        """Have one segment in place of ``old``."""
        new, made = self._host.begin(old[0].base_offset, CLEANED), _Made()
        try:
            yield partial(self._write, old, new, cleaner, made)
            if self.stopped or made.damaged or not made.changed or not self._host.replace(old, new):
                yield partial(self._discard, new)
                return
        except BaseException:  # the disk's, or the broker's end: the next start removes what is left
            self._host.forget_unused(new)
            raise
        yield partial(self._remove, old)
        if self._host.holds(new):
            new.rename("")
            self._host.note_names()

    def _write(self, old: list[Segment], new: Segment, cleaner: Cleaner, made: _Made) -> None:
        """Write what is left (in a thread)."""
        new.create()
        made.changed = len(old) > 1
        kept = len(cleaner.transactions.kept)
        for segment in old:
            made.before += segment.size
            for _, found in segment.around():
                if self.stopped:
                    return
                if isinstance(found, RecordBatch):
                    self._clean(found, new, cleaner, made)
                else:  # it is told when it is read; what is missing could be anything
                    made.damaged = True
        if made.damaged or not made.changed:
            return
        for entry in cleaner.transactions.kept[kept:]:
            new.add_aborted(entry)
        new.seal()
        for path in new.files:
            self._disk.sync(path)
        new.rename(SWAP)
        new.synced = new.size
        self._disk.sync_folder(self._host.folder)

    def _clean(self, batch: RecordBatch, new: Segment, cleaner: Cleaner, made: _Made) -> None:
        data = cleaner.clean(batch)
        made.changed |= data is not batch.data
        if data and not made.damaged:
            left = parse_batch(data)
            new.append(bytes(data), left.last_offset, left.max_timestamp)

    def _discard(self, new: Segment) -> None:
        for path in new.files:
            self._disk.unlink(path)

    def _remove(self, old: list[Segment]) -> None:
        for segment in old:
            for path in segment.files:
                self._disk.unlink(path)
        self._disk.sync_folder(self._host.folder)


def finish_swaps(disk: Disk, folder: Path) -> bool:
    """At a start: remove what was not finished, and finish what was; whether there was anything."""
    names = disk.names(folder)
    for name in names:
        if name.endswith((CLEANED, _DELETED)):
            disk.unlink(folder / name)
    swaps = [name for name in names if name.endswith(SWAP)]
    for name in sorted(swaps):
        if not name.endswith(LOG + SWAP):
            continue
        log.warning("a compaction is finished", extra={"file": str(folder / name)})
        base, end = int(name.partition(".")[0]), _end_of(disk, folder / name)
        for other in names:
            stem, _, suffix = other.partition(".")
            if suffix in _SEGMENT_FILES and base <= int(stem) < end:
                disk.unlink(folder / other)
        disk.sync_folder(folder)
        disk.rename(folder / name, folder / name.removesuffix(SWAP))
    for name in swaps:  # indexes are made anew
        disk.unlink(folder / name)
    return bool(swaps)


_SEGMENT_FILES = frozenset(("log", "index", "timeindex", "txnindex"))


def _end_of(disk: Disk, path: Path) -> int:
    """The offset behind the last batch of a log file."""
    file = LogFile(disk, path, int(path.name.partition(".")[0]))
    file.size = disk.size(path)
    end = file.base_offset
    for head in file.heads(0):
        end = head.last_offset + 1
    return end
