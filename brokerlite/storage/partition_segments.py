"""Stores one partition on disk: its segments in order, and how far they are flushed.

Rules:
- Appended batches are in the page cache, where they survive a kill of the broker. `begin_flush` returns the work that
  flushes them to disk; then `recovery_point` is raised.
- A segment, or the whole partition, can be removed while a thread works with it.

`recovery.py` loads a partition at a start.

Source: UnifiedLog.java, LocalLog.java.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.compaction import LastBatch, Round
from ottla.brokerlite.machines.partitions.leader_epochs import LeaderEpochs
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.machines.partitions.retention import SegmentState
from ottla.brokerlite.machines.topics.topics import HIDDEN
from ottla.brokerlite.storage.compaction import Compaction
from ottla.brokerlite.storage.disk import Disk, FileSystem
from ottla.brokerlite.storage.leader_epoch_file import LeaderEpochFile
from ottla.brokerlite.storage.log_segments import DamageReports, LogSegments
from ottla.brokerlite.storage.partition_sync import PartitionSync
from ottla.brokerlite.storage.recovery import Recovery
from ottla.brokerlite.storage.refusals import Refusals
from ottla.brokerlite.storage.segment import Segment
from ottla.brokerlite.storage.snapshot import drop_snapshot, drop_snapshots, write_snapshot
from ottla.brokerlite.storage.topic_disk import TopicDeleted
from ottla.brokerlite.storage.topic_files import METADATA
from ottla.codec.records import RecordBatch
from ottla.codec.stored.checkpoints import build_partition_metadata
from ottla.codec.stored.indexes import AbortedTxn
from ottla.codec.wire import Part
from ottla.errors import KafkaStorageError

log = logging.getLogger("ottla.brokerlite")


_LEAST_CHECKPOINT = 2**20
"""Bytes that must have been stored since the last checkpoint."""


def nothing() -> None:
    """Do nothing, where work is expected."""


class Flushes(Protocol):
    """Learns what the partitions of a folder write, and flushes it."""

    def full(self, flush: Work) -> None:
        """Take a flush to run in a thread, because a segment is full; an unsynced folder may skip it."""

    def written(self, partition: "PartitionSegments", size: int) -> None:
        """Notice that there is something new for `PartitionSegments.begin_flush`: so many bytes of batches."""

    def appending(self) -> None:
        """Notice that a batch will be stored; the producer state of every partition includes all batches before it."""


class _Refusing:
    """Turns an `OSError` of a block into the error for the client; a read passes here, so it is no generator."""

    __slots__ = ("_refused", "_what")

    def __init__(self, refused: Callable[[str, OSError], KafkaStorageError], what: str) -> None:
        self._refused = refused
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise self._refused(self._what, error) from error


class PartitionSegments:
    """Stores the segments of one partition (implements `ottla.brokerlite.machines.partitions.partition_log.Segments`).

    Attributes:
        folder: changes when the topic is deleted.
        start_offset: records before it are not visible to clients; it may lie within a segment.
        cleaned_up_to: the offset up to which the last round of compaction went; -1: there was none.
        truncated: bytes that recovery cut off.
    """

    def __init__(
        self,
        folder: Path,
        index_interval_bytes: int,
        flushes: Flushes,
        disk: Disk | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self.folder = folder
        self.cleaned_up_to = -1
        self.truncated = 0
        self.start_offset = 0
        self._disk = disk or FileSystem()
        self._epoch_file = LeaderEpochFile(self._disk)
        self._interval = index_interval_bytes
        self._flushes = flushes
        self._refusals = refusals or Refusals(folder)
        self._damage = DamageReports(folder.name)
        self._segments: LogSegments
        self._sync = PartitionSync(self._disk)
        self._since_checkpoint = 0
        self._changed = False

    @property
    def is_private(self) -> bool:
        """Whether its records help to guess passwords, so that other users of the machine may not read them."""
        return self.folder.name.rpartition("-")[0] in HIDDEN

    def index_every(self, interval: int) -> None:
        """Give the indexes of new segments an entry for so many bytes of log."""
        self._interval = interval

    # -- called by the machines

    @property
    def active(self) -> Segment:
        """The last segment, to which batches are appended."""
        return self._segments.active

    @property
    def epochs(self) -> LeaderEpochs:
        return self._epoch_file.epochs

    @property
    def end_offset(self) -> int:
        return self._segments.active.end_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def damaged_offset(self) -> int:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.damaged_offset`."""
        return self._segments.damaged_offset

    @property
    def synced_offset(self) -> int:
        """The records before it are on disk, not only in the page cache."""
        return self._sync.synced_offset

    @property
    def recovery_point(self) -> int:
        """The records before it are on disk with their indexes; a start need not read them."""
        return self._sync.recovery_point

    def states(self, *, first_timestamps: bool = False) -> list[SegmentState]:
        with self._refusing("read"):
            return self._segments.states(first_timestamps=first_timestamps)

    @property
    def flush_failed(self) -> bool:
        """A flush has failed: until a restart it is unknown what is on disk."""
        return self._sync.failed is not None

    def refuse_after_failed_flush(self) -> None:
        """Raises `KafkaStorageError` after a failed flush."""
        if self._sync.failed is not None:
            raise self._refused("write", self._sync.failed)

    def append(self, batch: RecordBatch) -> None:
        self.refuse_after_failed_flush()
        self._flushes.appending()
        with self._refusing("write"):
            if not self._epoch_file.is_written:
                self.note(self._epoch_file.write(self.folder))
            self.active.append(batch)
        if self._refusals.is_full:
            self._refusals.written()
        self._changed = True
        size = len(batch.data)
        self._since_checkpoint += size
        self._flushes.written(self, size)

    def roll(self, producers: Producers) -> None:
        base_offset = self.end_offset
        segment = self._segment(base_offset)
        try:
            self.active.seal()
            self._take_snapshot(producers)
            segment.create()
        except OSError as error:
            for path in segment.files:  # the old segment may grow past this base offset
                self._disk.unlink(path)
            raise self._refused("begin a segment", error) from error
        self.active.ends_before(base_offset)
        for path in self.active.files:  # also the indexes, which need not be flushed while the segment is active
            self._sync.file(path)
        self._segments.add(segment)
        self._flushes.full(self.begin_flush(indexes=True))

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> Part:
        with self._refusing("read"):
            return self._segments.read(offset, max_bytes, at_least_one, up_to)

    def batches(self) -> Iterator[RecordBatch]:
        with self._refusing("read"):
            yield from self._segments.batches()

    def batches_since(self, timestamp: int) -> Iterator[RecordBatch]:
        with self._refusing("read"):
            yield from self._segments.batches_since(timestamp)

    @property
    def max_timestamp(self) -> int:
        return self._segments.max_timestamp

    def add_aborted(self, entry: AbortedTxn) -> None:
        with self._refusing("write"):
            self._segments.at(entry.last_offset).txn_index.add(entry)

    def drop_aborted(self, entry: AbortedTxn) -> None:
        try:
            self._segments.at(entry.last_offset).txn_index.keep(entry.last_offset)
        except OSError as error:  # a leftover entry does no harm: its transaction will be aborted anyway
            self._refusals.tell("write", self.folder, error)

    def aborted(self, first_offset: int, upper_bound: int) -> list[AbortedTxn]:
        with self._refusing("read"):
            return self._segments.aborted(first_offset, upper_bound)

    def bound(self, offset: int, size: int) -> int:
        with self._refusing("read"):
            return self._segments.bound(offset, size)

    # -- start offset

    def set_start_offset(self, offset: int) -> list[Segment]:
        """Move the log's start to ``offset``; return the segments that left the log, which the caller must remove.

        An offset before `start_offset` changes nothing; one after the end of the log counts as its end.
        """
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        return self._segments.drop_before(self.start_offset)

    def base_before(self, offset: int) -> int:
        """Return the base offset of the segment that contains ``offset``."""
        return self._segments.at(offset).base_offset

    def remove(self, segments: list[Segment], *, ordered: bool = False) -> None:
        """Remove the files of segments that have left the log (in a thread).

        The oldest go first: after a kill, the remaining segments are still the end of the log.

        Args:
            ordered: also after a power cut. Otherwise any of the segments may come back after one, so the start offset
                must be on disk before this is called.
        """
        for segment in segments:
            for path in segment.files:
                self._disk.unlink(path)
            drop_snapshot(self._disk, self.folder, segment.base_offset)
            if ordered:
                self._disk.sync_folder(self.folder)

    # -- compaction (`ottla.brokerlite.storage.compaction.Host`)

    def compact(self, due: Round, settings: LogSettings, producers: Mapping[int, LastBatch], now: int) -> Compaction:
        return Compaction(self, self._disk, due, settings, producers, now)

    @property
    def sealed(self) -> list[Segment]:
        return self._segments.sealed

    def new_segment(self, base_offset: int, suffix: str) -> Segment:
        return Segment(self._disk, self.folder, base_offset, self._interval, suffix)

    def replace(self, old: list[Segment], new: Segment) -> bool:
        return self._segments.replace(old, new)

    def holds(self, segment: Segment) -> bool:
        return segment in self._segments

    def note_names(self) -> None:
        self._sync.folder(self.folder)
        self._flushes.written(self, 0)

    def note_cleaned(self, up_to: int) -> None:
        self.cleaned_up_to = up_to

    # -- flushing

    def begin_flush(self, *, indexes: bool = False) -> Work:
        """Return work that flushes all data stored before this call to disk; it may run while more is stored.

        The work raises `synced_offset`. If it fails, this partition accepts no more writes.

        Args:
            indexes: also flush the indexes of the active segment, and raise the `recovery_point`.
        """
        return self._sync.begin(self._segments, self.folder, indexes=indexes)

    def begin_checkpoint(self, producers: Producers) -> Work | None:
        """Return work that raises the recovery point to the end of the log.

        Returns ``None`` if too little was stored since the last checkpoint, or the disk refused to write one.
        """
        if self._since_checkpoint < _LEAST_CHECKPOINT:
            return None
        try:
            self.active.write_indexes()
            self._take_snapshot(producers)
        except OSError as error:  # not fatal: a checkpoint only makes the next start faster
            self._refusals.tell("write a checkpoint", self.folder, error)
            return None
        return self.begin_flush(indexes=True)

    @property
    def is_synced(self) -> bool:
        """Whether everything is on disk."""
        return self._sync.is_complete(self._segments)

    # -- life

    def create(self, topic_id: uuid.UUID, leader_epoch: int = 0) -> None:
        """Create the folder. Its log files are created with the first batch, because many partitions never get one."""
        self._disk.make_folder(self.folder, private=self.is_private)
        self.identify(topic_id)
        self._segments = LogSegments(self._damage, [self._segment(0)])
        self.lead(leader_epoch)

    def renamed(self, folder: Path) -> None:
        """Notice that the folder was renamed, because the topic is deleted."""
        self.folder = folder

    def identify(self, topic_id: uuid.UUID) -> None:
        """Write the topic's id into the folder."""
        path = self.folder / METADATA
        self._disk.write_file(path, build_partition_metadata(topic_id))
        self.note(path)

    def lead(self, epoch: int) -> None:
        """Begin leader epoch ``epoch`` at the end of the log."""
        if epoch != self.epochs.current:
            self._epoch_file.begin(epoch, self.end_offset)
            if self.end_offset:
                self.note(self._epoch_file.write(self.folder))

    def open(
        self,
        *,
        clean: bool,
        recovery_point: int = 0,
        start_offset: int | None = None,
        leader_epoch: int = 0,
        contiguous: bool = True,
        synced: bool = False,
        cleaned_up_to: int = -1,
    ) -> Producers:
        """Load the partition at a start, and recover it if need be.

        Args:
            clean: the broker was shut down cleanly.
            recovery_point, start_offset, leader_epoch: as the last broker left them; a start offset of ``None`` means
                unknown.
            contiguous: each segment begins where the one before it ends.
            cleaned_up_to: see the attribute.
            synced: the recovery point and the start offset can be trusted even after a power cut.
        """
        found = Recovery(self._disk, self.folder, self._epoch_file, self._segment, self._damage.tell)
        producers = found.open(
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            leader_epoch=leader_epoch,
            contiguous=contiguous,
            synced=synced,
        )
        self._segments = LogSegments(self._damage, found.segments, found.lost)
        self._sync.begin_at(found.recovery_point)
        self.cleaned_up_to = cleaned_up_to
        self.truncated, self._changed = found.truncated, found.changed
        self.active.find_first_timestamp()
        self.start_offset = max(self._segments.first.base_offset, min(start_offset or 0, self.end_offset))
        if found.changed:
            self._sync.folder(self.folder)
            self._flushes.written(self, 0)
        return producers

    def close(self, producers: Producers, *, sync: bool) -> None:
        """Write everything that a clean `open` needs."""
        if self._changed:
            self.active.seal()
            self._take_snapshot(producers)
            if sync:
                self.begin_flush(indexes=True)()
            self._sync.closed(self.end_offset)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._disk, self.folder, base_offset, self._interval)

    def _take_snapshot(self, producers: Producers) -> None:
        """Write a snapshot of the producers at the end of the log; drop snapshots that no start will need."""
        for path in write_snapshot(self._disk, self.folder, self.end_offset, producers):
            self.note(path)
        drop_snapshots(self._disk, self.folder, min(self.active.base_offset, self.recovery_point))
        self._since_checkpoint = 0

    def note(self, path: Path) -> None:
        """Remember to flush a small file that was replaced, and its name."""
        self._sync.file(path)
        self._flushes.written(self, 0)

    def _refusing(self, what: str) -> "_Refusing":
        return _Refusing(self._refused, what)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        if isinstance(error, TopicDeleted):
            return KafkaStorageError(f"cannot {what} in {self.folder}: its topic was deleted")
        return self._refusals.error(what, self.folder, error)
