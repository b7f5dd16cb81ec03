"""One partition on disk: its segments in order, and how they are found again.

Rules:
- After a clean shutdown the files are taken as they are, and only the end of the last segment is read. Otherwise every
  segment that may not have reached the disk is read, each batch checked, and the log cut at the first that is not
  valid. What lay behind it is kept in files beside the segments, `<first offset>.damaged`, which nothing reads, unless
  it is merely a batch that was not written to its end.
- Damage to what the disk had held is no crash's doing, and is not cut: what is whole around it is served, whoever asks
  for what it holds is told, and the offsets are not given again.
- The producers come from the newest snapshot and the batches after it. A snapshot knows only the last batch of each
  producer, so the log's last megabytes are read too, in whatever segments they lie, if there are producers: what a
  client may send again was in flight, so it is there.

Source: LogLoader.java, ProducerStateManager.java (truncateAndReload).
"""

import itertools
import logging
import shutil
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.brokerlite.machines.epochs import LeaderEpochs
from ottla.brokerlite.machines.producers import Producers
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.segment import Damage, Damaged, Segment
from ottla.brokerlite.storage.snapshot import SUFFIX, read_snapshot, snapshot_path, write_snapshot
from ottla.codec.records import RecordBatch
from ottla.codec.stored.checkpoints import build_leader_epochs, build_partition_metadata, parse_leader_epochs
from ottla.codec.stored.indexes import AbortedTxn
from ottla.errors import CorruptMessage, DecodeError, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

TAIL_BYTES = 8 * 2**20
"""Of the log, read at every start for the producers' windows."""

LEADER_EPOCHS = "leader-epoch-checkpoint"

Chore = Callable[[], None]
"""Work that waits for the disk; it is run in a thread."""


def _nothing() -> None:
    pass


class PartitionSegments:
    """The segments of one partition (`ottla.brokerlite.machines.log.Segments`).

    Attributes:
        folder: changes when the topic is deleted.
        epochs: as `LEADER_EPOCHS` has them.
        recovery_point: everything before this offset is on the disk, not merely in the page cache.
        truncated: bytes that recovery cut off.

    Args:
        chore: is given what has the disk hold something, which may be left out, and what is to be done then.
    """

    def __init__(self, folder: Path, index_interval_bytes: int, chore: Callable[[Chore, Chore], None]) -> None:
        self.folder = folder
        self.epochs = LeaderEpochs()
        self.recovery_point = 0
        self.truncated = 0
        self._interval = index_interval_bytes
        self._chore = chore
        self._segments: list[Segment] = []
        self._changed = False
        self._aborted: list[AbortedTxn] = []
        self._told: set[tuple[int, int]] = set()
        """Damage that was told in the log: segment and position."""

    # -- what the machine asks for

    @property
    def start_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> int:
        return self._active.end_offset

    @property
    def active_base_offset(self) -> int:
        return self._active.base_offset

    @property
    def active_size(self) -> int:
        return self._active.size

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        try:
            self._active.append(batch, last_offset, max_timestamp)
        except OSError as error:
            raise self._refused("write", error) from error
        self._changed = True

    def roll(self, producers: Producers) -> None:
        base_offset = self.end_offset
        segment = Segment(self.folder, base_offset, self._interval)
        try:
            self._active.seal()
            write_snapshot(self.folder, base_offset, producers)
            segment.create()
        except OSError as error:
            for path in segment.files:  # the old segment may yet grow beyond this one's base offset
                path.unlink(missing_ok=True)
            raise self._refused("begin a segment", error) from error
        files = [*self._active.files, snapshot_path(self.folder, base_offset), self.folder / LEADER_EPOCHS, self.folder]
        self._segments.append(segment)
        self._chore(lambda: self._settle(files, base_offset), _nothing)

    def forget(self, offset: int) -> None:
        gone = [segment for segment in self._segments[:-1] if segment.end_offset <= offset]
        if not gone:
            return
        del self._segments[: len(gone)]
        kept = [path for segment in self._segments for path in segment.files]
        folder = self.folder

        def remove() -> None:
            for segment in gone:  # the oldest first: what is left is always the end of the log
                for path in segment.files:
                    path.unlink(missing_ok=True)
            checkpoints.sync(folder)

        self._chore(lambda: self._settle([*kept, folder], offset), remove)

    def add_aborted(self, transaction: AbortedTxn) -> None:
        self._aborted.append(transaction)

    def aborted(self, offset: int, up_to: int) -> list[AbortedTxn]:
        return [each for each in self._aborted if each.last_offset >= offset and each.first_offset < up_to]

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        segment = self._segment_of(offset)
        try:
            return segment.read(offset, max_bytes, at_least_one)
        except OSError as error:
            raise self._refused("read", error) from error
        except Damaged as damaged:
            self._tell(segment, damaged.position, offset)
            if damaged.data:
                return damaged.data
            raise CorruptMessage(
                f"what {self.folder.name} has at offset {offset} is damaged on the broker's disk; read on behind it"
            ) from None

    def batches(self) -> Iterator[RecordBatch]:
        try:
            for segment in self._segments:
                for position, found in segment.around():
                    if isinstance(found, RecordBatch):
                        yield found
                    else:
                        self._tell(segment, position, found.offset)
        except OSError as error:
            raise self._refused("read", error) from error

    def batch_at_time(self, timestamp: int) -> RecordBatch | None:
        try:
            for segment in self._segments:
                if segment.max_timestamp >= timestamp and (batch := segment.batch_at_time(timestamp)):
                    return batch
        except OSError as error:
            raise self._refused("read", error) from error
        return None

    def batch_of_max_timestamp(self) -> RecordBatch | None:
        largest = max(segment.max_timestamp for segment in self._segments)
        return self.batch_at_time(largest) if largest >= 0 else None

    # -- life

    def create(self, topic_id: uuid.UUID, leader_epoch: int = 0) -> None:
        """Make the folder, the small files in it, and an empty segment."""
        self.folder.mkdir()
        (self.folder / "partition.metadata").write_bytes(build_partition_metadata(topic_id))
        self._begin_at(0)
        self.lead(leader_epoch)

    def lead(self, epoch: int) -> None:
        """What is written from now on is of ``epoch``."""
        if epoch != self.epochs.current:
            self.epochs.begin(epoch, self.end_offset)
            checkpoints.replace(self.folder / LEADER_EPOCHS, build_leader_epochs(self.epochs.entries))

    def open(self, *, clean: bool, recovery_point: int, leader_epoch: int = 0) -> Producers:
        """Find everything again after a start.

        Args:
            clean: the broker was shut down in good order.
            recovery_point, leader_epoch: as the last broker left them.
        """
        self.recovery_point = recovery_point
        self.epochs = self._read_epochs()
        bases = sorted(int(path.stem) for path in self.folder.glob("*.log") if path.stem.isdigit())
        self._segments = [Segment(self.folder, base, self._interval) for base in bases]
        if not self._segments:
            self._begin_at(0)
        for segment, follower in itertools.zip_longest(self._segments[:], self._segments[1:]):
            on_disk = clean or (follower is not None and follower.base_offset <= recovery_point)
            if not (on_disk and segment.load()) and self._recover(segment, clean, leader_epoch):
                break
        if self.end_offset < recovery_point and not self._active.ends_damaged:
            said = "%s ends at offset %d, and the disk had held it up to %d: what lay between is lost"
            log.error(said, self.folder.name, self.end_offset, recovery_point)
        if self._active.ends_damaged or (clean and self.end_offset < recovery_point):
            self._begin_at(max(self.end_offset + 1, recovery_point))
            recovery_point = self.end_offset
        self.recovery_point = min(recovery_point, self.end_offset)
        for segment in self._segments[:-1]:
            segment.seal()
        if not self.epochs.entries:
            for segment in self._segments:
                for batch in segment.whole():
                    self._find_epoch(batch, leader_epoch)
        return self._find_producers()

    def close(self, producers: Producers, *, sync: bool) -> None:
        """Leave everything such that the next `open` may be a clean one."""
        if self._changed:
            self._active.seal()
            write_snapshot(self.folder, self.end_offset, producers)
            if sync:
                snapshot = snapshot_path(self.folder, self.end_offset)
                for path in (*self._active.files, snapshot, self.folder / LEADER_EPOCHS, self.folder):
                    checkpoints.sync(path)
            self.recovery_point = self.end_offset
        self.abandon()

    def abandon(self) -> None:
        """Close the files and nothing else, as a kill would."""
        for segment in self._segments:
            segment.close()

    def _begin_at(self, offset: int) -> None:
        segment = Segment(self.folder, offset, self._interval)
        segment.create()
        self._segments.append(segment)

    def _recover(self, segment: Segment, clean: bool, leader_epoch: int) -> bool:
        """Check a segment; whether the log was cut in it."""
        self._changed = True
        cut = False
        for found in segment.recover():
            if isinstance(found, RecordBatch):
                self._find_epoch(found, leader_epoch)
            elif clean or found.offset < self.recovery_point:
                self._tell(segment, found.position, found.offset)
            else:
                self._cut(segment, found)
                cut = True
        return cut

    def _cut(self, segment: Segment, damage: Damage) -> None:
        """Have the log end before ``damage``, and tell so."""
        at = self._segments.index(segment)
        dropped = self._segments[at + 1 :]
        lost = segment.size - damage.position + sum(each.log_path.stat().st_size for each in dropped)
        what = (self.folder.name, damage.offset, lost)
        if damage.torn and not dropped:
            log.warning("%s ends in a batch that was not written: from offset %d on, %d bytes are cut off", *what)
        else:
            aside = self._aside(damage.offset)
            with segment.log_path.open("rb") as source, aside.open("wb") as target:
                source.seek(damage.position)
                shutil.copyfileobj(source, target)
            checkpoints.sync(aside)
            for each in dropped:
                each.log_path.rename(self._aside(each.base_offset))
                for path in each.files:
                    path.unlink(missing_ok=True)
            said = "%s is damaged: from offset %d on, %d bytes are cut off, and kept in %s and the likes behind it"
            log.error(said, *what, aside)
        segment.cut(damage.position)
        del self._segments[at + 1 :]
        self.truncated += lost

    def _aside(self, offset: int) -> Path:
        """A new file for what was cut off from ``offset`` on."""
        names = (f"{offset:020}{f'.{n}' if n else ''}.damaged" for n in itertools.count())
        return next(path for name in names if not (path := self.folder / name).exists())

    def _tell(self, segment: Segment, position: int, offset: int) -> None:
        """Say once that what has ``offset`` is damaged."""
        if (segment.base_offset, position) not in self._told:
            self._told.add((segment.base_offset, position))
            said = "%s is damaged: offset %d cannot be read, because of what stands at byte %d of %s"
            log.error(said, self.folder.name, offset, position, segment.log_path)

    def _read_epochs(self) -> LeaderEpochs:
        path = self.folder / LEADER_EPOCHS
        try:
            return LeaderEpochs(parse_leader_epochs(path.read_bytes()))
        except FileNotFoundError:
            return LeaderEpochs()
        except DecodeError as error:
            log.warning("the leader epochs are damaged and taken from the log: %s", error, extra={"file": str(path)})
            return LeaderEpochs()

    def _find_epoch(self, batch: RecordBatch, newest: int) -> None:
        """Take an epoch that the log knows and the file does not; what is beyond ``newest`` was never given out."""
        if self.epochs.current < batch.partition_leader_epoch <= newest:
            self.epochs.begin(batch.partition_leader_epoch, batch.base_offset)

    def _find_producers(self) -> Producers:
        known = Producers()
        start = self.start_offset
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True):
            snapshot = read_snapshot(path) if int(path.stem) <= self.end_offset else None
            if snapshot is None:
                path.unlink()
            else:
                known, start = snapshot, int(path.stem)
                break
        for each in known.replay(self._tail(start, TAIL_BYTES if known.entries else 0), start):
            if each.aborted:
                self._aborted.append(
                    AbortedTxn(
                        producer_id=each.producer_id,
                        first_offset=each.first_offset,
                        last_offset=each.last_offset,
                        last_stable_offset=each.last_offset + 1,
                    )
                )
        return known

    def _tail(self, offset: int, size: int) -> Iterator[RecordBatch]:
        """The batches from ``offset`` on, and at least those in the last ``size`` bytes."""
        places: list[tuple[Segment, int]] = []
        for segment in reversed(self._segments):
            if segment.end_offset <= offset and size <= 0:
                break
            places.append((segment, segment.tail(offset, size)))
            size -= segment.size
        for segment, position in reversed(places):
            yield from segment.whole(position)

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1]

    def _settle(self, files: list[Path], offset: int) -> None:
        """Have the disk hold a sealed segment (in a thread)."""
        for path in files:
            checkpoints.sync(path)
        self.recovery_point = max(self.recovery_point, offset)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        log.error("the disk refused to %s: %s", what, error, extra={"folder": str(self.folder)})
        return KafkaStorageError(f"cannot {what} in {self.folder}: {error.strerror or error}")
