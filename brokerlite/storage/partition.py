"""One partition on disk: its segments in order, and how they are found again.

Rules:
- After a clean shutdown the files are taken as they are, and only the end of the last segment is read. Otherwise every
  segment that may not have reached the disk is read, each batch checked, and the log cut at the first that is not
  valid; whatever lay behind it is dropped.
- The producers come from the newest snapshot and the batches after it. A snapshot knows only the last batch of each
  producer, so the log's last megabytes are read too, in whatever segments they lie, if there are producers: what a
  client may send again was in flight, so it is there.

Source: LogLoader.java, ProducerStateManager.java (truncateAndReload).
"""

import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ottla.brokerlite.machines.epochs import LeaderEpochs
from ottla.brokerlite.machines.producers import Producer, Producers
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.segment import Segment
from ottla.brokerlite.storage.snapshot import SUFFIX, read_snapshot, snapshot_path, write_snapshot
from ottla.codec.records import RecordBatch
from ottla.codec.stored.checkpoints import build_leader_epochs, build_partition_metadata, parse_leader_epochs
from ottla.errors import DecodeError, KafkaStorageError

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

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        try:
            return self._segment_of(offset).read(offset, max_bytes, at_least_one)
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
        for at, segment in enumerate(self._segments):
            last = at + 1 == len(self._segments)
            on_disk = clean or (not last and self._segments[at + 1].base_offset <= recovery_point)
            size = segment.log_path.stat().st_size
            if not (on_disk and segment.load()):
                self._find_epochs(segment.recover(), leader_epoch)
                self._changed = True
            if segment.size < size:
                self.truncated += size - segment.size
                self._drop_segments_after(at)
                break
        for segment in self._segments[:-1]:
            segment.seal()
        if not self.epochs.entries:
            for segment in self._segments:
                self._find_epochs((batch for _, batch in segment.batches(verify=False)), leader_epoch)
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
        self._segments = [segment]

    def _drop_segments_after(self, at: int) -> None:
        for segment in self._segments[at + 1 :]:
            self.truncated += segment.log_path.stat().st_size
            for path in segment.files:
                path.unlink(missing_ok=True)
        del self._segments[at + 1 :]

    def _read_epochs(self) -> LeaderEpochs:
        path = self.folder / LEADER_EPOCHS
        try:
            return LeaderEpochs(parse_leader_epochs(path.read_bytes()))
        except FileNotFoundError:
            return LeaderEpochs()
        except DecodeError as error:
            log.warning("the leader epochs are damaged and taken from the log: %s", error, extra={"file": str(path)})
            return LeaderEpochs()

    def _find_epochs(self, batches: Iterable[RecordBatch], newest: int) -> None:
        """Epochs that the log knows and the file does not; what is beyond ``newest`` was never given out."""
        for batch in batches:
            if self.epochs.current < batch.partition_leader_epoch <= newest:
                self.epochs.begin(batch.partition_leader_epoch, batch.base_offset)

    def _find_producers(self) -> Producers:
        known: dict[int, Producer] = {}
        start = self.start_offset
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True):
            snapshot = read_snapshot(path) if int(path.stem) <= self.end_offset else None
            if snapshot is None:
                path.unlink()
            else:
                known, start = snapshot, int(path.stem)
                break
        producers = Producers()
        producers.replay(self._tail(start, TAIL_BYTES if known else 0))
        producers.recall(known)
        return producers

    def _tail(self, offset: int, size: int) -> Iterator[RecordBatch]:
        """The batches from ``offset`` on, and at least those in the last ``size`` bytes."""
        places: list[tuple[Segment, int]] = []
        for segment in reversed(self._segments):
            if segment.end_offset <= offset and size <= 0:
                break
            places.append((segment, segment.tail(offset, size)))
            size -= segment.size
        for segment, position in reversed(places):
            for _, batch in segment.batches(position, verify=False):
                yield batch

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
