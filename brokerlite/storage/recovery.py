"""How a partition is found again after a start.

Rules:
- After a clean shutdown the files are taken as they are, and only the end of each segment is read. Otherwise all that
  may not have reached the disk is read, from the recovery point on, each batch checked, and the log cut at the first
  that is not valid. What lay behind it is kept in files beside the segments, `<first offset>.damaged`, which nothing
  reads, unless it is merely a batch that was not written to its end.
- A segment begins where the one before it ends, and the first one where the log starts; compaction keeps the last batch
  of each segment, so it leaves no gap between them (Apache Kafka's does: `contiguous`). A gap is a loss. Behind the
  recovery point a power cut may have caused it, and the log is cut there, too.
- Damage to records that the disk had held is no crash's doing, and is not cut: the intact batches around it are served,
  reads of damaged and missing records are refused, and no offset is given twice.
- An index of aborted transactions counts also where the log file beside it is gone.
- What lies wholly before the start offset is removed unseen: it may be what is left of segments that were deleted, or
  what a round of compaction, which is finished now, has made of them.
- The producers come from the newest snapshot and the batches after it; where transactions are to be found again, from
  the newest before them. Kafka's snapshots know only the last batch of each producer, so with one of them the log's
  last megabytes are read, too, in whatever segments they lie: what a client may send again was in flight, so it is in
  them.

Source: LogLoader.java, ProducerStateManager.java (truncateAndReload).
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.brokerlite.machines.epochs import LeaderEpochs
from ottla.brokerlite.machines.producers import Producers
from ottla.brokerlite.storage.checkpoints import read_checked
from ottla.brokerlite.storage.compaction import finish_swaps
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.log_file import Damage
from ottla.brokerlite.storage.segment import LOG, TXN_INDEX, Segment, index_of
from ottla.brokerlite.storage.snapshot import complete, drop_snapshot, read_snapshot, snapshot_offsets, snapshot_path
from ottla.codec.records import RecordBatch
from ottla.codec.stored.checkpoints import parse_leader_epochs
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

TAIL_BYTES = 8 * 2**20
"""Of the log, read for the producers' windows where no file has them."""
LEADER_EPOCHS = "leader-epoch-checkpoint"
LEADER_EPOCHS_CHECK = "leader-epoch-check"
DAMAGED = ".damaged"
_NEVER = 2**63
_PIECE = 2**20


class Recovery:
    """One partition while it is opened.

    Attributes:
        segments: in order; the last is the active one.
        epochs: as `LEADER_EPOCHS` has them, or the log.
        recovery_point: everything before this offset is on the disk, not merely in the page cache.
        truncated: bytes that were cut off.
        changed: something is not as the last broker left it.
        lost: the end offsets of segments behind which records are missing, up to where the next segment begins.

    Args:
        make: a segment that begins at an offset.
        tell: is called with a segment, the position of damage in it, and the first offset that is lost.
    """

    def __init__(
        self, disk: Disk, folder: Path, make: Callable[[int], Segment], tell: Callable[[Segment, int, int], None]
    ) -> None:
        self.segments: list[Segment] = []
        self.epochs = LeaderEpochs()
        self.recovery_point = 0
        self.truncated = 0
        self.changed = False
        self.lost: set[int] = set()
        self._replay_from = _NEVER
        """The first segment whose transactions are to be found again."""
        self._disk = disk
        self._folder = folder
        self._make = make
        self._tell = tell

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
        """Find everything; the arguments are those of `PartitionSegments.open`."""
        self.recovery_point = recovery_point
        self.changed = finish_swaps(self._disk, self._folder)
        self.epochs = self._read_epochs()
        self._remove_before(start_offset or 0)
        there = self._find_segments(start_offset if contiguous and synced else None)
        self.segments = there.copy() or [self._make(0)]
        for segment, follower in itertools.pairwise(self.segments):
            segment.ends_before(follower.base_offset)
        if clean and recovery_point > self._active.base_offset:  # which is then where it ends
            self._active.has_no_gap_behind(recovery_point)
        for segment, following in itertools.zip_longest(there, self.segments[1:]):
            on_disk = clean or (following is not None and following.base_offset <= recovery_point)
            segment.txn_index.keep(_NEVER if on_disk else recovery_point)
            if not (on_disk and segment.load()) and self._recover(segment, clean, leader_epoch):
                break
            segment.synced = segment.size if on_disk else -1
            if not contiguous or following is None or segment.ends_damaged:
                continue
            if segment.end_offset < following.base_offset:
                if synced and not clean and segment.end_offset >= recovery_point:
                    self._cut_behind(segment)
                    break
                self._lose(segment, following.base_offset)
        self._check_end(tells_all=clean or synced)
        for segment in self.segments[:-1]:
            segment.seal()
        if not self.epochs.entries:
            for segment in self.segments:
                for batch in segment.whole():
                    self._find_epoch(batch, leader_epoch)
        return self._find_producers()

    def _find_segments(self, start_offset: int | None) -> list[Segment]:
        """The segments of the folder, and empty ones in place of missing ones.

        Args:
            start_offset: where the log must begin, if that is known.
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
        """What segments are named after, also where only the index of aborted transactions is left."""
        return sorted({*self._offsets_of(LOG), *self._offsets_of(TXN_INDEX)})

    def _remove_before(self, start_offset: int) -> None:
        """Remove the segments that lie wholly before the start offset, and what belongs to them."""
        segments = [self._make(base) for base in self._bases()]
        for segment in segments[: index_of(segments, start_offset)]:
            for path in segment.files:
                self._disk.unlink(path)
            drop_snapshot(self._disk, self._folder, segment.base_offset)
            self.changed = True

    def _check_end(self, *, tells_all: bool) -> None:
        """See to it that no offset is given twice that the disk had held.

        Args:
            tells_all: everything before the recovery point was on the disk.
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
        """Refuse reads of the records that are missing behind a segment, and log the loss."""
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
        """What the files of a kind are named after, in order."""
        names = (Path(name) for name in self._disk.names(self._folder))
        return sorted(int(name.stem) for name in names if name.suffix == suffix and name.stem.isdigit())

    def _begin_at(self, offset: int) -> Segment:
        segment = self._make(offset)
        segment.create()
        return segment

    # -- damage

    def _recover(self, segment: Segment, clean: bool, leader_epoch: int) -> bool:
        """Check a segment; whether the log was cut in it."""
        self.changed = True
        cut = False
        for found in segment.recover(0 if clean else self.recovery_point):
            if isinstance(found, RecordBatch):
                self._find_epoch(found, leader_epoch)
                if found.transactional or found.control:  # what the index of aborted transactions had is lost
                    self._replay_from = min(self._replay_from, segment.base_offset)
            elif clean or found.offset < self.recovery_point:
                self._tell(segment, found.position, found.offset)
            else:
                self._cut(segment, found)
                cut = True
        return cut

    def _cut(self, segment: Segment, damage: Damage) -> None:
        """Have the log end before ``damage``, and tell so."""
        following = self._following(segment)
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
        self._drop(following)
        self.truncated += lost

    def _cut_behind(self, segment: Segment) -> None:
        """Have the log end with ``segment``, whose end is lost, and tell so."""
        following = self._following(segment)
        lost = sum(self._disk.size(each.log_path) for each in following)
        log.error(
            "%s has lost the records from offset %d on in an unclean shutdown: the %d bytes after them are cut off",
            self._folder.name,
            segment.end_offset,
            lost,
        )
        self._drop(following)
        self.changed = True
        self.truncated += lost

    def _following(self, segment: Segment) -> list[Segment]:
        return self.segments[self.segments.index(segment) + 1 :]

    def _drop(self, segments: list[Segment]) -> None:
        """Remove segments at the end; their logs are kept under names that nothing reads."""
        for each in reversed(segments):  # so that a kill leaves no gap
            log_path, *indexes = each.files
            for path in indexes:  # first: an index without its log would pass for a loss
                self._disk.unlink(path)
            if self._disk.size(log_path):
                self._disk.rename(log_path, self._aside(each.base_offset))
            else:
                self._disk.unlink(log_path)
            self.segments.remove(each)

    def _keep(self, segment: Segment, position: int, aside: Path) -> None:
        """Copy what is to be cut off, and have the disk hold it."""
        for at in range(position, segment.size, _PIECE):
            piece = self._disk.read(segment.log_path, min(_PIECE, segment.size - at), at)
            self._disk.write(aside, at - position, piece)
        self._disk.sync(aside)
        self._disk.sync_folder(self._folder)

    def _aside(self, offset: int) -> Path:
        """A new file for what was cut off from ``offset`` on."""
        names = (f"{offset:020}{f'.{n}' if n else ''}{DAMAGED}" for n in itertools.count())
        return next(path for name in names if not self._disk.exists(path := self._folder / name))

    # -- leader epochs

    def _read_epochs(self) -> LeaderEpochs:
        path = self._folder / LEADER_EPOCHS
        try:
            data = read_checked(self._disk, path, self._folder / LEADER_EPOCHS_CHECK)
            return LeaderEpochs(parse_leader_epochs(data))
        except FileNotFoundError:
            return LeaderEpochs()
        except DecodeError as error:
            log.warning("leader epochs are damaged, rebuilding them from the log: %s", error, extra={"file": str(path)})
            return LeaderEpochs()

    def _find_epoch(self, batch: RecordBatch, newest: int) -> None:
        """Take an epoch that the log knows and the file does not; what is beyond ``newest`` was never given out."""
        if self.epochs.current < batch.partition_leader_epoch <= newest:
            self.epochs.begin(batch.partition_leader_epoch, batch.base_offset)

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
        """The batches from ``offset`` on, and at least those in the last ``size`` bytes."""
        places: list[tuple[Segment, int]] = []
        for segment in reversed(self.segments):
            if segment.end_offset <= offset and size <= 0:
                break
            places.append((segment, segment.tail(offset, size)))
            size -= segment.size
        for segment, position in reversed(places):
            yield from segment.whole(position)
