"""Compacts a log on disk: writes the remaining records of some segments into one new segment, which replaces them.

Theory of operation: a thread reads the log and writes new segments, one after the other, while the loop continues to
read and write the log. Only the loop changes the partition's list of segments. After a kill, the next start can either
finish each replacement or discard it:

    00.log 50.log  00.log.cleaned    the thread writes and flushes it                     a kill: .cleaned is removed
    00.log 50.log  00.log.swap       it is renamed, and the name flushed                  a kill: the next start goes on
                                     the loop reads the new segment from now on
                   00.log.swap       the thread removes the old segments and flushes that
    00.log                           the loop renames it

Source: Cleaner.java (cleanSegments), LocalLog.java (replaceSegments), LogLoader.java
(removeTempFilesAndCollectSwapFiles).
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from ottla.brokerlite.machines.jobs import Job
from ottla.brokerlite.machines.partitions.compaction import Cleaner, LastBatch, OffsetMap, Round, grouped
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.log_file import Damage, LogFile
from ottla.brokerlite.storage.segment import LOG, Segment
from ottla.codec.records import RecordBatch, parse_batch
from ottla.codec.stored.indexes import AbortedTxn

log = logging.getLogger("ottla.brokerlite")

_SEGMENT_FILES = frozenset(("log", "index", "timeindex", "indexcheck", "txnindex", "aborted"))
CLEANED, SWAP = ".cleaned", ".swap"
_PIECE, _PAUSE = 500, 0.0001
"""Records after which the thread sleeps, and for how many seconds. Otherwise Python's threads take turns of 5 ms, and a
request, which needs several turns, took 35 ms while a log was compacted."""
_DELETED = ".deleted"
"""Kafka's own brokers leave such files."""


class Host(Protocol):
    """Gives a compaction access to its partition."""

    folder: Path

    @property
    def sealed(self) -> list[Segment]:
        """All segments but the active one."""

    def aborted(self, offset: int, up_to: int) -> Sequence[AbortedTxn]:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.aborted`."""

    def new_segment(self, base_offset: int, suffix: str) -> Segment:
        """Create a segment outside the partition's list."""

    def replace(self, old: list[Segment], new: Segment) -> bool:
        """Replace ``old`` with ``new``; ``False`` if they are gone, or records after one are lost."""

    def holds(self, segment: Segment) -> bool:
        """Whether the segment is in the partition's list."""

    def note_names(self) -> None:
        """Remember to flush changed names in the folder."""

    def note_cleaned(self, up_to: int) -> None:
        """Remember the offset at which the round ended."""


class Compaction:
    """Runs one round of compaction on a partition.

    See `ottla.brokerlite.machines.partitions.partition_log.CompactionRound`.

    Args:
        due: the offsets to clean.
        producers: the last batch of each active producer.
        now: milliseconds since 1970.
    """

    def __init__(
        self,
        host: Host,
        disk: Disk,
        due: Round,
        settings: LogSettings,
        producers: Mapping[int, LastBatch],
        now: int,
    ) -> None:
        self._stopped = False
        self._host = host
        self._disk = disk
        self._due = due
        self._settings = settings
        self._producers = producers
        self._now = now
        self._records = 0
        """Records since the last pause."""
        self._changed = self._damaged = False
        """Compaction changes the current group of segments, and they are damaged."""
        self._before = self._after = 0
        """Bytes of the replaced segments, and of the new ones."""

    def stop(self) -> None:
        self._stopped = True

    def job(self) -> Job:
        """Run the round. An `OSError` ends it; segments replaced before that stay replaced."""
        due, settings = self._due, self._settings
        segments = [each for each in self._host.sealed if each.base_offset < due.end_offset]
        if not segments:
            return
        if any(each.suffix for each in segments):
            raise OSError("an earlier compaction is unfinished; the next start of the broker finishes it")
        aborted = self._host.aborted(segments[0].base_offset, due.end_offset)
        offsets = OffsetMap(due.first_dirty_offset, aborted)
        yield partial(self._read, segments, offsets)
        if self._stopped:
            return
        part = {each.base_offset: each for each in segments if each.base_offset < offsets.end_offset}
        states = [each.state() for each in part.values()]
        groups = grouped(states, settings.segment_bytes, settings.segment_index_bytes)
        cleaner = Cleaner(
            offsets,
            aborted=aborted,
            producers=self._producers,
            ends=[group[-1].end_offset for group in groups],
            now=self._now,
            delete_retention_ms=settings.delete_retention_ms,
        )
        for group in groups:
            yield from self._replace([part[each.base_offset] for each in group], cleaner)
            if self._stopped:
                return
        self._host.note_cleaned(offsets.end_offset)
        self._tell(cleaner, offsets.end_offset, sum(each.size for each in states))

    def _read(self, segments: Sequence[Segment], offsets: OffsetMap) -> None:
        """Read the keys into the offset map (in a thread)."""
        for segment in segments:
            if segment.end_offset <= offsets.start_offset:
                continue
            for _, found in _content(self._disk, segment):
                if self._stopped:
                    return
                if isinstance(found, Damage) or found.last_offset < offsets.start_offset:
                    continue
                if not offsets.add(found):
                    return
                self._let_others_run(found)
            offsets.skip_to(segment.end_offset)
        offsets.skip_to(self._due.end_offset)  # records may be missing after the last segment

    def _replace(self, old: list[Segment], cleaner: Cleaner) -> Job:
        """Replace ``old`` with one compacted segment."""
        new = self._host.new_segment(old[0].base_offset, CLEANED)
        self._changed, self._damaged = len(old) > 1, False
        try:
            yield partial(self._write, old, new, cleaner)
        except OSError:
            yield partial(self._discard, new)  # a full disk needs the room
            if all(self._host.holds(segment) for segment in old):
                raise
            return
        if self._stopped or self._damaged or not self._changed or not self._host.replace(old, new):
            yield partial(self._discard, new)
            return
        self._before += sum(segment.size for segment in old)
        self._after += new.size
        yield partial(self._remove, old)
        if self._host.holds(new):
            new.rename("")
            self._host.note_names()
        else:  # the segment left the log meanwhile; remove its files under this name
            yield partial(self._discard, new)

    def _write(self, old: list[Segment], new: Segment, cleaner: Cleaner) -> None:
        """Write the remaining records to ``new`` (in a thread)."""
        new.create()
        known = len(cleaner.transactions.kept)
        for segment in old:
            for _, found in _content(self._disk, segment):
                if self._stopped:
                    return
                if isinstance(found, RecordBatch):
                    self._clean(found, new, cleaner)
                    self._let_others_run(found)
                else:  # leave damaged segments alone: the lost records are unknown, and reading them logs the damage
                    self._damaged = True
        if self._damaged or not self._changed:
            return
        for entry in cleaner.transactions.kept[known:]:
            new.txn_index.add(entry)
        new.seal()
        for path in new.files:
            self._disk.sync(path)
        new.note_synced(new.size)
        new.rename(SWAP)
        self._disk.sync_folder(self._host.folder)

    def _let_others_run(self, batch: RecordBatch) -> None:
        self._records += batch.count
        if self._records >= _PIECE:
            self._records = 0
            time.sleep(_PAUSE)

    def _clean(self, batch: RecordBatch, new: Segment, cleaner: Cleaner) -> None:
        data = cleaner.clean(batch)
        self._changed |= data is not batch.data
        if data and not self._damaged:
            new.append(parse_batch(data))

    def _tell(self, cleaner: Cleaner, up_to: int, size: int) -> None:
        name = self._host.folder.name
        for offset, what in cleaner.unreadable.items():
            log.error("%s: batch at offset %d not compacted: %s", name, offset, what)
        said = "%s compacted up to offset %d: %d of its %d bytes became %d"
        log.info(said, name, up_to, self._before, size, self._after)

    def _discard(self, new: Segment) -> None:
        for path in new.files:
            self._disk.unlink(path)

    def _remove(self, old: list[Segment]) -> None:
        for segment in old:
            for path in segment.files:
                self._disk.unlink(path)
        self._disk.sync_folder(self._host.folder)


def finish_swaps(disk: Disk, folder: Path) -> bool:
    """Finish or discard, at a start, interrupted replacements of segments; return whether there were any to finish."""
    names = disk.names(folder)
    for name in names:
        if name.endswith((CLEANED, _DELETED)):
            disk.unlink(folder / name)
    swaps = [name for name in names if name.endswith(SWAP)]
    for name in sorted(swaps):
        if not name.endswith(LOG + SWAP):
            continue
        log.warning("finishing an interrupted compaction", extra={"file": str(folder / name)})
        base, end = int(name.partition(".")[0]), _end_of(disk, folder / name)
        for other in names:
            stem, _, suffix = other.partition(".")
            if suffix in _SEGMENT_FILES and base <= int(stem) < end:
                disk.unlink(folder / other)
        disk.sync_folder(folder)
        disk.rename(folder / name, folder / name.removesuffix(SWAP))
    for name in swaps:  # indexes are rebuilt
        disk.unlink(folder / name)
    return bool(swaps)


def _content(disk: Disk, segment: Segment) -> Iterator[tuple[int, RecordBatch | Damage]]:
    """Iterate over all of a segment without using its indexes, which belong to the loop."""
    return LogFile(disk, segment.log_path, segment.base_offset, size=segment.size, limit=segment.end_offset).around()


def _end_of(disk: Disk, path: Path) -> int:
    """Return the offset after the last batch of a log file."""
    file = LogFile(disk, path, int(path.name.partition(".")[0]), size=disk.size(path))
    end = file.base_offset
    for head in file.heads(0):
        end = head.last_offset + 1
    return end
