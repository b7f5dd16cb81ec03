"""Loads a partition at a start, and recovers it after an unclean shutdown.

Rules:
- After a clean shutdown the files are trusted as they are, and only the end of each segment is read. Otherwise
  recovery reads everything that may not have reached the disk, from the recovery point on, checks each batch, and cuts
  the log at the first invalid one. The bytes that it cuts off are kept beside the segments, in `<first offset>.damaged`
  files, which the broker never reads; only an incomplete last batch is not kept.
- A segment begins where the one before it ends, and the first one at the log's start offset. Compaction keeps the last
  batch of each segment, so it leaves no gap between segments (Apache Kafka's does: `contiguous`). A gap means lost
  records. A power cut may have caused a gap after the recovery point, and the log is cut there, too.
- A crash does not damage records that were flushed, so the log is not cut at such damage: the intact batches around it
  are served, reads of damaged and missing records are refused, and no offset is assigned twice.
- An index of aborted transactions counts even if the log file beside it is missing.
- Segments wholly before the start offset are removed without being read: they may be left over from a deletion, or from
  a round of compaction that is finished now.
- The producers come from the newest snapshot and the batches after it; to rebuild the index of aborted transactions,
  from the newest snapshot before those transactions. Kafka's snapshots have only the last batch of each producer. With
  one of these, recovery also reads the last megabytes of the log, across segments: they contain every batch that a
  client may still retry, because those were in flight.

Source: LogLoader.java, ProducerStateManager.java (truncateAndReload).
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.storage.compaction import finish_swaps
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.leader_epoch_file import LeaderEpochFile
from ottla.brokerlite.storage.log_cuts import LogCuts
from ottla.brokerlite.storage.segment import LOG, TXN_INDEX, Segment, index_of
from ottla.brokerlite.storage.snapshot import complete, drop_snapshot, read_snapshot, snapshot_offsets, snapshot_path
from ottla.codec.records import RecordBatch

log = logging.getLogger("ottla.brokerlite")

TAIL_BYTES = 8 * 2**20
"""Bytes at the end of the log that are read to rebuild the producers' batches, if no window file has them."""
_NEVER = 2**63


class Recovery:
    """Opens one partition.

    Attributes:
        segments: in order; the last is the active one.
        recovery_point: everything before this offset is on disk, not only in the page cache.
        changed: whether recovery changed something that the last broker left.
        lost: the end offsets of segments after which records are missing, up to the next segment.

    Args:
        epoch_file: gets the leader epochs, from the file or from the log.
        make: returns a segment with a given base offset.
        tell: called with a segment, the position of damage in it, and the first offset lost.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        epoch_file: LeaderEpochFile,
        make: Callable[[int], Segment],
        tell: Callable[[Segment, int, int], None],
    ) -> None:
        self.segments: list[Segment] = []
        self.recovery_point = 0
        self.changed = False
        self.lost: set[int] = set()
        self._replay_from = _NEVER
        """The base offset of the first segment whose aborted transactions have to be found again."""
        self._cuts = LogCuts(disk, folder)
        self._disk = disk
        self._folder = folder
        self._epoch_file = epoch_file
        self._make = make
        self._tell = tell

    @property
    def truncated(self) -> int:
        """Bytes that were cut off."""
        return self._cuts.size

    def open(
        self,
        *,
        clean: bool,
        recovery_point: int,
        start_offset: int | None,
        leader_epoch: int,
        contiguous: bool,
        synced: bool,
    ) -> Producers:
        """Load or recover everything; the arguments are those of `PartitionSegments.open`."""
        self.recovery_point = recovery_point
        self.changed = finish_swaps(self._disk, self._folder)
        self._epoch_file.read(self._folder)
        self._remove_before(start_offset or 0)
        there = self._find_segments(start_offset if contiguous and synced else None)
        self.segments = there.copy() or [self._make(0)]
        for segment, follower in itertools.pairwise(self.segments):
            segment.ends_before(follower.base_offset)
        if clean and recovery_point > self._active.base_offset:  # after a clean shutdown it is the end offset
            self._active.has_no_gap_behind(recovery_point)
        for segment, following in itertools.zip_longest(there, self.segments[1:]):
            on_disk = clean or (following is not None and following.base_offset <= recovery_point)
            segment.txn_index.keep(_NEVER if on_disk else recovery_point)
            if not (on_disk and segment.load()) and self._recover(segment, clean, leader_epoch):
                break
            if on_disk:
                segment.note_synced(segment.size)
            if not contiguous or following is None or segment.ends_damaged:
                continue
            if segment.end_offset < following.base_offset:
                if synced and not clean and segment.end_offset >= recovery_point:
                    self._cuts.cut_behind(segment, self._drop_behind(segment))
                    self.changed = True
                    break
                self._lose(segment, following.base_offset)
        self._check_end(tells_all=clean or synced)
        for segment in self.segments[:-1]:
            segment.seal()
        if not self._epoch_file.epochs.entries:
            for segment in self.segments:
                for batch in segment.whole():
                    self._find_epoch(batch, leader_epoch)
        return self._find_producers()

    def _find_segments(self, start_offset: int | None) -> list[Segment]:
        """Return the segments of the folder, with empty ones in place of missing ones.

        Args:
            start_offset: the offset at which the log must begin, if known.
        """
        known = self._offsets_of(LOG)
        bases = self._bases()
        if not bases and self.recovery_point:
            bases = [start_offset or 0]
        if bases and start_offset is not None and start_offset < bases[0]:
            bases.insert(0, start_offset)
        segments = [self._make(base) for base in bases]
        for segment in segments:
            if segment.base_offset not in known:
                segment.create()
                self.changed = True
        return segments

    def _bases(self) -> list[int]:
        """Return the base offsets of all segments, including those of which only the transaction index is left."""
        return sorted({*self._offsets_of(LOG), *self._offsets_of(TXN_INDEX)})

    def _remove_before(self, start_offset: int) -> None:
        """Remove segments that lie wholly before the start offset, and their snapshots."""
        segments = [self._make(base) for base in self._bases()]
        for segment in segments[: index_of(segments, start_offset)]:
            for path in segment.files:
                self._disk.unlink(path)
            drop_snapshot(self._disk, self._folder, segment.base_offset)
            self.changed = True

    def _check_end(self, *, tells_all: bool) -> None:
        """Make sure that no offset that was on disk is assigned twice.

        Args:
            tells_all: everything before the recovery point was on disk.
        """
        active, point = self._active, self.recovery_point
        missing = active.end_offset < point and not active.ends_damaged
        if missing and not tells_all:
            log.error(
                "%s ends at offset %d, but the disk had it up to %d: the records between are lost",
                self._folder.name,
                active.end_offset,
                point,
            )
        elif active.ends_damaged or missing:
            if missing:
                self._lose(active, point)
            self.segments.append(self._begin_at(max(active.end_offset + 1, point)))
            active.ends_before(self._active.base_offset)
            point = self._active.end_offset
            self.changed = True
        self.recovery_point = min(point, self._active.end_offset)

    def _lose(self, segment: Segment, up_to: int) -> None:
        """Refuse reads of the records missing after a segment, and log the loss."""
        self.lost.add(segment.end_offset)
        log.error(
            "%s has lost the records from offset %d to %d: %s, or the next file, is missing, empty or truncated; "
            "reads of them are refused",
            self._folder.name,
            segment.end_offset,
            up_to - 1,
            segment.log_path,
        )

    @property
    def _active(self) -> Segment:
        return self.segments[-1]

    def _offsets_of(self, suffix: str) -> list[int]:
        """Return the offsets in the names of files with ``suffix``, in order."""
        names = (Path(name) for name in self._disk.names(self._folder))
        return sorted(int(name.stem) for name in names if name.suffix == suffix and name.stem.isdigit())

    def _begin_at(self, offset: int) -> Segment:
        segment = self._make(offset)
        segment.create()
        return segment

    # -- damage

    def _recover(self, segment: Segment, clean: bool, leader_epoch: int) -> bool:
        """Check a segment; return whether the log was cut in it."""
        self.changed = True
        cut = False
        for found in segment.recover(0 if clean else self.recovery_point):
            if isinstance(found, RecordBatch):
                self._find_epoch(found, leader_epoch)
                if found.transactional or found.control:  # their entries in the transaction index were dropped
                    self._replay_from = min(self._replay_from, segment.base_offset)
            elif clean or found.offset < self.recovery_point:
                self._tell(segment, found.position, found.offset)
            else:
                self._cuts.cut(segment, found, self._drop_behind(segment))
                cut = True
        return cut

    def _drop_behind(self, segment: Segment) -> list[Segment]:
        """Drop the segments after ``segment`` from the log, and return them."""
        behind = self.segments.index(segment) + 1
        dropped = self.segments[behind:]
        del self.segments[behind:]
        return dropped

    # -- leader epochs

    def _find_epoch(self, batch: RecordBatch, newest: int) -> None:
        """Adopt an epoch that is in the log but not in the file; epochs after ``newest`` were never assigned."""
        if self._epoch_file.epochs.current < batch.partition_leader_epoch <= newest:
            self._epoch_file.epochs.begin(batch.partition_leader_epoch, batch.base_offset)

    # -- producers

    def _find_producers(self) -> Producers:
        producers = Producers()
        tail = 0
        start = self.segments[0].base_offset
        for offset in reversed(snapshot_offsets(self._disk, self._folder)):
            path = snapshot_path(self._folder, offset)
            snapshot = read_snapshot(self._disk, path) if offset <= self._active.end_offset else None
            if snapshot is None:
                drop_snapshot(self._disk, self._folder, offset)
            elif offset <= self._replay_from:
                producers, start = snapshot, offset
                tail = 0 if complete(self._disk, path, producers.entries) else TAIL_BYTES
                break
        for transaction in producers.replay(self._tail(start, tail), start):
            if transaction.aborted:
                at = index_of(self.segments, transaction.last_offset)
                self.segments[at].txn_index.add(transaction.index_entry())
        return producers

    def _tail(self, offset: int, size: int) -> Iterator[RecordBatch]:
        """Iterate over the batches from ``offset`` on, but at least over the last ``size`` bytes."""
        places: list[tuple[Segment, int]] = []
        for segment in reversed(self.segments):
            if segment.end_offset <= offset and size <= 0:
                break
            places.append((segment, segment.tail(offset, size)))
            size -= segment.size
        for segment, position in reversed(places):
            yield from segment.whole(position)
