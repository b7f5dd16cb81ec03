"""Manages the data folder: its topics, its flushes to disk, and the lock that one broker holds.

Rules:
- One broker at a time uses the folder: it holds `.lock` while it runs. A folder with other files, or of another node,
  is refused before the broker changes anything in it.
- A kill at any moment leaves a new topic whole (and empty) or gone: see `topic_files.py` and `find_topics.py`.
- An empty or damaged small file never prevents a start: `broker.json` has a predecessor, a topic whose file is damaged
  is not served, and recovery finds the rest in the logs. A log line names each damaged file.
- An unclean start raises the leader epoch (`LeaderEpochs`); the new epoch is on disk before any partition is led.

Source: LogManager.java (lock, clean shutdown file).
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.partitions.partition_log import Segments
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.machines.topics.topics import StoredPartition, StoredTopic, TopicPartition, UnservedTopic
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.checkpoints import OffsetCheckpoint
from ottla.brokerlite.storage.disk import FULL, Disk, FileSystem
from ottla.brokerlite.storage.find_topics import deleted_name, find_topics, set_aside
from ottla.brokerlite.storage.meta_properties import identify, take_lock, write_identity
from ottla.brokerlite.storage.partition_segments import PartitionSegments, nothing
from ottla.brokerlite.storage.refusals import Refusals
from ottla.brokerlite.storage.spare import Spare
from ottla.brokerlite.storage.state_file import PRODUCER_IDS, BrokerState, FoundState, StateFile
from ottla.brokerlite.storage.topic_disk import TopicDeleted, TopicDisk
from ottla.brokerlite.storage.topic_files import (
    METADATA,
    TopicFile,
    drop_older,
    read_topic_id,
    topic_numbers,
    topic_path,
    write_topic,
)
from ottla.brokerlite.storage.unflushed import Unflushed
from ottla.errors import ConfigurationError, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINT_BYTES = 256 * 2**20
"""Bytes written to all partitions after which the recovery points are raised."""
_ANY_EPOCH = 2**31 - 1


class Recovered(NamedTuple):
    """Summarizes the folder's content after a start, for the log."""

    what: str
    topics: int
    partitions: int
    truncated_bytes: int


class _TopicFolders(NamedTuple):
    stored: StoredTopic
    partitions: list[PartitionSegments]
    number: int
    """The number of its topic file."""
    disk: TopicDisk


def _settle_topic(disk: Disk, flush: Work, folder: Path, number: int) -> None:
    """Flush a topic's file to disk, then remove the older files that it replaces."""
    flush()
    drop_older(disk, folder, number)


class DataFolder:
    """Stores topics in a folder (implements `ottla.brokerlite.machines.topics.topics.Storage`).

    Args:
        sync: flush to disk (a temporary folder does not need it).
        chore: takes work that waits for the disk, to run it in a thread.

    Attributes:
        cluster_id: the cluster id in `meta.properties`.
        recovered: what `open` found.
        unserved: topics that exist but cannot be served. Their folders are left untouched.
    """

    def __init__(
        self,
        path: Path,
        *,
        index_interval_bytes: int,
        sync: bool = True,
        chore: Callable[[Work], None],
        disk: Disk | None = None,
    ) -> None:
        self.path = path
        self.cluster_id = ""
        self.recovered = Recovered("", 0, 0, 0)
        self.unserved: Mapping[str, UnservedTopic] = {}
        self._disk = disk or FileSystem()
        self._refusals = Refusals(path)
        self._interval = index_interval_bytes
        self._sync = sync
        self._chore = chore
        self._topics: dict[str, _TopicFolders] = {}
        self._unflushed = Unflushed(self._disk, path)
        self._spare = Spare(self._disk, path)
        self._deleted: set[str] = set()
        """Deleted topics that the checkpoint files may still name."""
        self._recovery_points = OffsetCheckpoint(self._disk, path / RECOVERY_POINTS, sync=sync)
        self._start_offsets = OffsetCheckpoint(self._disk, path / START_OFFSETS, sync=sync)
        self._cleaner_offsets = OffsetCheckpoint(self._disk, path / CLEANER_OFFSETS, sync=sync)
        self._state = BrokerState(0, "", 0, 0)
        """The content of `broker.json`."""
        self._state_file = StateFile(self._disk, path, sync=sync)
        self._wanted_starts: list[Mapping[PartitionSegments, int]] = []
        """The start offsets that running jobs are writing to disk, before the logs adopt them."""
        self._kept: dict[OffsetCheckpoint, dict[TopicPartition, int]] = {}
        """The checkpoint lines of topics that are not served."""
        self._stays_unclean = False
        """Some log was not recovered, so the next start must not count as clean."""
        self._next_producer_id = 0
        self._leader_epoch = 0
        self._release: Callable[[], None] = nothing

    # -- life

    def open(self, node_id: int, cluster_id: str | None) -> None:
        """Lock the folder, create it if it is missing, and load or recover everything in it.

        Raises:
            ConfigurationError: the folder cannot be used; the message says why, and what to do.
        """
        try:
            self._release = take_lock(self._disk, self.path, sync=self._sync)
            self._spare.take()
            self._open(node_id, cluster_id)
            self._spare.keep()
        except OSError as error:
            self.abandon()
            why = error.strerror or str(error)
            match error:
                case FileExistsError() | NotADirectoryError():
                    why, what = "a file has that name", "give a folder"
                case OSError(errno=number) if number in FULL:
                    what = "free space on its disk"
                case _:
                    what = "give a folder that this user may write to"
            raise ConfigurationError(f"the data folder {self.path} cannot be used: {why}; {what}") from error
        except ConfigurationError:
            self.abandon()
            raise

    def close(self) -> None:
        """Shut down cleanly; this waits for the disk."""
        self._spare.take()
        for topic in self._topics.values():
            for segments, partition in zip(topic.partitions, topic.stored.partitions, strict=True):
                segments.close(partition.producers, sync=self._sync)
        if self._sync:
            self.begin_flush()()
        self._write_checkpoints()
        self._write_state(self._state._replace(next_producer_id=self._next_producer_id))
        marker = b'{"version":0,"brokerEpoch":-1}'
        if not self._stays_unclean:
            checkpoints.replace(self._disk, self.path / CLEAN_SHUTDOWN, marker, sync=self._sync)
        self._spare.keep()
        self.abandon()

    def abandon(self) -> None:
        """Release the folder without writing anything, as a kill would leave it."""
        self._refusals.tell_counted()
        self._disk.close()
        self._release()
        self._release = nothing

    # -- called by the machines

    def topics(self) -> Iterable[StoredTopic]:
        return [topic.stored for topic in self._topics.values()]

    def create_topic(self, name: str, topic_id: uuid.UUID, partitions: int, configs: Mapping[str, str]) -> StoredTopic:
        file = TopicFile(0, topic_id, partitions, configs)
        topic = self._topic(name, file)
        try:
            if name in self._deleted:
                self._write_checkpoints()  # else, after a kill, the checkpoints of the deleted topic would apply to it
            for segments in topic.partitions:  # the folder of partition 0 comes first, the topic's file in it last
                self._make(segments, topic_id)
            topic.partitions[0].note(write_topic(self._disk, topic.partitions[0].folder, file))
        except OSError as error:
            for segments in topic.partitions:
                self._disk.remove_tree(segments.folder)
            raise self._refused(f"create topic {name}", error) from error
        self._topics[name] = topic
        self._made(topic.partitions)
        return topic.stored

    def delete_topic(self, name: str) -> None:
        topic = self._topics[name]
        gone = [self.path / deleted_name(name, i, topic.stored.topic_id) for i in range(len(topic.partitions))]
        try:
            with topic.disk.ending():
                self._disk.rename(topic.partitions[0].folder, gone[0])
                others = zip(topic.partitions[1:], gone[1:], strict=True)
                left = [folder for segments, folder in others if not self._rename_away(segments, folder)]
        except OSError as error:
            raise self._refused(f"delete topic {name}", error) from error
        topic.partitions[0].folder = gone[0]
        del self._topics[name]
        self._deleted.add(name)
        self._unflushed.renamed(topic.partitions)
        if not left:
            self._later(partial(self._remove, gone))

    def _rename_away(self, segments: PartitionSegments, folder: Path) -> bool:
        """Rename a deleted partition's folder for removal; return whether that succeeded."""
        try:
            self._disk.rename(segments.folder, folder)
        except OSError as error:  # the next start completes the deletion if partition 0's renamed folder is still there
            log.error("cannot rename the folder of a deleted topic: %s", error, extra={"folder": str(segments.folder)})
            return False
        finally:
            segments.folder = folder
        return True

    def add_partitions(self, name: str, count: int) -> list[StoredPartition]:
        known = self._topics[name]
        file = TopicFile(known.number + 1, known.stored.topic_id, count, known.stored.configs)
        grown = self._topic(name, file, known.disk)
        first = len(known.partitions)
        new = grown.partitions[first:]
        folder = known.partitions[0].folder
        try:
            known.partitions[0].note(write_topic(self._disk, folder, file))
            for segments in new:
                self._make(segments, file.topic_id)
        except OSError as error:
            self._disk.unlink(topic_path(folder, file.number))
            for segments in new:
                self._disk.remove_tree(segments.folder)
            raise self._refused(f"add partitions to {name}", error) from error
        known.stored.partitions.extend(grown.stored.partitions[first:])
        self._topics[name] = _TopicFolders(known.stored, [*known.partitions, *new], file.number, known.disk)
        self._made([known.partitions[0], *new])
        self._later(lambda: drop_older(known.disk, folder, file.number))
        return known.stored.partitions[first:]

    def reserve_producer_ids(self, count: int) -> int:
        first = self._next_producer_id
        behind = first + count
        if behind > self._state.next_producer_id:  # rare: the next block is reserved early, below
            try:
                self._reserve(behind)
            except OSError as error:
                raise self._refused("reserve producer ids", error) from error
        elif behind + PRODUCER_IDS // 2 > self._state.next_producer_id:
            self._later(lambda: self._reserve(behind))
        self._next_producer_id = behind
        return first

    # -- where logs begin

    def set_start_offsets(self, starts: Mapping[TopicPartition, int], done: Callable[[OSError | None], None]) -> Job:
        # Look the topics up now: when the job begins, a name may belong to a recreated topic.
        wanted = {self._topics[name].partitions[index]: offset for (name, index), offset in starts.items()}
        return self._set_start_offsets(wanted, done)

    def _set_start_offsets(
        self, wanted: Mapping[PartitionSegments, int], done: Callable[[OSError | None], None]
    ) -> Job:
        self._wanted_starts.append(wanted)
        try:
            try:
                yield from self._note_starts(wanted)
                remove = self._begin_at(wanted)
            finally:
                self._wanted_starts.remove(wanted)
        except OSError as error:
            done(error)
            self._later(self._write_starts)  # the file may already contain the offsets that failed
            return
        done(None)
        self._later(remove)

    def _note_starts(self, wanted: Mapping[PartitionSegments, int]) -> Job:
        """Write the wanted start offsets to disk; on a full disk, remove whole segments first, to free space."""
        try:
            yield self._write_starts
        except OSError as error:
            if error.errno not in FULL:
                raise
            whole = {segments: segments.base_before(offset) for segments, offset in wanted.items()}
            yield self._begin_at(whole, ordered=self._sync)  # the missing segments imply the new start offset, too
            yield self._write_starts

    def _begin_at(self, starts: Mapping[PartitionSegments, int], *, ordered: bool = False) -> Work:
        """Move the start of logs; return work that flushes the remaining records and then removes the old segments.

        Args:
            ordered: see `PartitionSegments.remove`.
        """
        moved = ((segments, segments.set_start_offset(offset)) for segments, offset in starts.items())
        gone = {segments: each for segments, each in moved if each}
        flush = self.begin_flush(gone) if self._sync and gone else nothing

        def remove() -> None:
            flush()
            for segments, each in gone.items():
                segments.remove(each, ordered=ordered)

        return remove

    # -- flushing

    def begin_flush(self, partitions: Iterable[Segments] | None = None) -> Work:
        """Return work that flushes all data stored before this call to disk; it may run while more is stored.

        Args:
            partitions: flush only these; by default all. Newly created topics are always flushed, too.

        The work is for a thread. It tries every partition, and then raises the first `OSError`. Afterwards the records
        of each partition before its `synced_offset` are on disk.
        """
        return self._unflushed.begin_flush(partitions)

    def note_cleaned(self) -> Work:
        return self._write_checkpoints

    def _checkpoint(self) -> None:
        """Raise the recovery points if it is time: a start after a kill need not read the log before them.

        Call this only when the producer state of every partition includes all stored batches, because a snapshot of it
        claims so; that is, not while a batch is being stored.
        """
        if not self._sync or self._unflushed.size < CHECKPOINT_BYTES:
            return
        self._unflushed.size = 0
        work = [
            each
            for topic in self._topics.values()
            for segments, partition in zip(topic.partitions, topic.stored.partitions, strict=True)
            if (each := segments.begin_checkpoint(partition.producers)) is not None
        ]

        def chore() -> None:
            try:
                for each in work:
                    each()
            finally:
                self._write_checkpoints()

        self._later(chore)

    def _made(self, partitions: Iterable[PartitionSegments]) -> None:
        """Schedule a flush of new folders, which are not on disk yet."""
        self._unflushed.made(partitions)
        if self._sync:
            self._later(self._flush_new)

    def _flush_new(self) -> None:
        if self._unflushed.new:
            self.begin_flush(())()

    def _full(self, flush: Work) -> None:
        """Flush a full segment to disk and write the checkpoints."""

        def chore() -> None:
            if self._sync:
                flush()
            self._write_checkpoints()

        self._later(chore)

    def _remove(self, folders: list[Path]) -> None:
        """Remove renamed folders.

        The renames are flushed first: a folder whose old name came back after a power cut would be a topic again.
        """
        if self._sync:
            self._disk.sync_folder(self.path)
        self._write_checkpoints()
        for folder in reversed(folders):
            self._disk.remove_tree(folder)

    # -- starting

    def _open(self, node_id: int, cluster_id: str | None) -> None:
        found = self._state_file.read()
        identity = identify(self._disk, self.path, node_id, cluster_id, found)
        self.cluster_id = identity.cluster_id
        clean = self._disk.exists(self.path / CLEAN_SHUTDOWN)
        topics, self.unserved = find_topics(self._disk, self.path, found.topics, clean=clean)
        self._stays_unclean = bool(self.unserved) and not clean
        new = found.next_producer_id is None and not topics
        points, starts, cleaned = (
            self._read_checkpoint(each, found.checked)
            for each in (self._recovery_points, self._start_offsets, self._cleaner_offsets)
        )
        if clean:
            self._disk.unlink(self.path / CLEAN_SHUTDOWN)
            if self._sync:
                self._disk.sync_folder(self.path)  # else the marker could be back after a power cut
        else:
            self._unflushed.made(())  # the names of the killed broker may only be in the page cache
        whole = True
        for name, file in topics.items():
            whole &= self._open_topic(name, file, points or {}, starts, clean, found.leader_epoch)
            for index, segments in enumerate(self._topics[name].partitions):
                segments.cleaned_up_to = (cleaned or {}).get((name, index), -1)
        partitions = [segments for topic in self._topics.values() for segments in topic.partitions]
        self._write_checkpoints()  # with the values found: lost or deleted records are no longer on disk
        self._lead(node_id, found, partitions, raised=not (new or (clean and whole and found.leader_epoch is not None)))
        write_identity(self._disk, self.path, identity, sync=self._sync)
        self.recovered = Recovered(
            "folder made" if new else "folder opened" if clean else "folder recovered after an unclean shutdown",
            len(self._topics),
            len(partitions),
            sum(segments.truncated for segments in partitions),
        )
        if self._sync:
            self._later(self.begin_flush())

    def _open_topic(
        self,
        name: str,
        file: TopicFile,
        points: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int] | None,
        clean: bool,
        leader_epoch: int | None,
    ) -> bool:
        """Open a topic's partitions; return whether the folders of all were there."""
        topic, whole = self._topic(name, file), True
        epoch = _ANY_EPOCH if leader_epoch is None else leader_epoch
        for index, segments in enumerate(topic.partitions):
            if not self._disk.is_folder(segments.folder):  # a kill interrupted its creation, or it was lost
                self._disk.make_folder(segments.folder)
                self._unflushed.made([topic.partitions[0], segments])
                whole = False
            producers = segments.open(
                clean=clean,
                recovery_point=points.get((name, index), 0),
                start_offset=None if starts is None else starts.get((name, index), 0),
                leader_epoch=epoch,
                contiguous=not file.gaps,
                synced=self._sync,
            )
            topic.stored.partitions[index] = StoredPartition(segments, producers)
            if read_topic_id(self._disk, segments.folder) != file.topic_id:
                segments.identify(file.topic_id)
            elif not clean:  # the killed broker may not have flushed it
                segments.note(segments.folder / METADATA)
        first = topic.partitions[0]
        if file.number < 0:  # listed in a `broker.json` of version 1, or rebuilt
            file = file._replace(number=1 + max(topic_numbers(self._disk, first.folder), default=0))
            first.note(write_topic(self._disk, first.folder, file))
            if self._sync:
                first.begin_flush()()
        elif clean or not self._sync:
            drop_older(self._disk, first.folder, file.number)
        else:
            first.note(topic_path(first.folder, file.number))
            self._later(partial(_settle_topic, topic.disk, first.begin_flush(), first.folder, file.number))
        self._topics[name] = topic._replace(number=file.number)
        return whole

    def _lead(self, node_id: int, found: FoundState, partitions: list[PartitionSegments], raised: bool) -> None:
        """Become leader of all partitions, in a new epoch if a log may have lost acknowledged records.

        The epoch must be on disk before any record is written in it: a later start must not use the same epoch.
        """
        self._leader_epoch = max([found.leader_epoch or 0, *(each.epochs.current for each in partitions)]) + raised
        if found.next_producer_id is None:
            known = (max(each.producers.entries, default=-1) for topic in self.topics() for each in topic.partitions)
            self._next_producer_id = max(known, default=-1) + 1 + (PRODUCER_IDS if partitions else 0)
        else:
            self._next_producer_id = found.next_producer_id
        reserved = self._next_producer_id + PRODUCER_IDS
        self._write_state(BrokerState(node_id, self.cluster_id, reserved, self._leader_epoch))
        for segments in partitions:
            segments.lead(self._leader_epoch)

    def _topic(self, name: str, file: TopicFile, disk: TopicDisk | None = None) -> _TopicFolders:
        """Build a topic whose partitions are not opened yet."""
        disk = disk or TopicDisk(self._disk)
        interval = int(file.configs.get("index.interval.bytes", self._interval))
        parts = [
            PartitionSegments(
                self.path / f"{name}-{i}",
                interval,
                self._full,
                disk,
                self._unflushed.written,
                self._checkpoint,
                self._refusals,
            )
            for i in range(file.partitions)
        ]
        partitions = [StoredPartition(segments, Producers()) for segments in parts]
        return _TopicFolders(StoredTopic(name, file.topic_id, dict(file.configs), partitions), parts, file.number, disk)

    def _make(self, segments: PartitionSegments, topic_id: uuid.UUID) -> None:
        if self._disk.exists(segments.folder):
            set_aside(self._disk, segments.folder)
        segments.create(topic_id, self._leader_epoch)

    # -- the small files

    def _reserve(self, behind: int) -> None:
        """Reserve the producer ids before ``behind``, and one more block."""
        self._write_state(self._state._replace(next_producer_id=behind + PRODUCER_IDS))

    def _write_state(self, state: BrokerState) -> None:
        self._state_file.write(state)
        self._state = state

    def _read_checkpoint(self, checkpoint: OffsetCheckpoint, expected: bool) -> dict[TopicPartition, int] | None:
        offsets = checkpoint.read(expected=expected)
        self._kept[checkpoint] = {place: each for place, each in (offsets or {}).items() if place[0] in self.unserved}
        return offsets

    def _write_checkpoints(self) -> None:
        deleted = tuple(self._deleted)
        self._write_starts()
        points = self._recovery_points
        points.write(lambda: self._kept[points] | {place: each.recovery_point for place, each in self._partitions()})
        cleaned = self._cleaner_offsets
        cleaned.write(
            lambda: (
                self._kept[cleaned]
                | {place: each.cleaned_up_to for place, each in self._partitions() if each.cleaned_up_to >= 0}
            )
        )
        self._deleted.difference_update(deleted)

    def _write_starts(self) -> None:
        """Write the start offsets of all logs to disk.

        This includes logs that start at a segment's base offset: removed segments could come back after a power cut.
        """
        self._start_offsets.write(self._starts)

    def _starts(self) -> dict[TopicPartition, int]:
        wanted = list(self._wanted_starts)  # read this first: a job that is gone by then has moved its log's start
        starts = {
            place: max([segments.start_offset, *(each.get(segments, 0) for each in wanted)])
            for place, segments in self._partitions()
        }
        return self._kept[self._start_offsets] | {place: start for place, start in starts.items() if start}

    def _partitions(self) -> list[tuple[TopicPartition, PartitionSegments]]:
        return [
            ((name, index), segments)
            for name, topic in list(self._topics.items())
            for index, segments in enumerate(topic.partitions)
        ]

    def _later(self, chore: Work) -> None:
        """Run ``chore`` in a thread. A disk error in it does not stop the broker: recovery checks what was missed."""

        def work() -> None:
            try:
                chore()
            except TopicDeleted:
                pass
            except OSError as error:
                self._refusals.tell("write", self.path, error)

        self._chore(work)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        return self._refusals.error(what, self.path, error)
