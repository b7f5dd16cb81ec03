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
from ottla.brokerlite.machines.topics.topics import StoredPartition, StoredTopic, TopicPartition, UnservedTopic
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.assigned_numbers import AssignedNumbers
from ottla.brokerlite.storage.checkpoints import OffsetCheckpoint
from ottla.brokerlite.storage.chores import Chores
from ottla.brokerlite.storage.disk import FULL, Disk, FileSystem
from ottla.brokerlite.storage.find_topics import find_topics
from ottla.brokerlite.storage.folder_checkpoints import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    START_OFFSETS,
    FolderCheckpoints,
)
from ottla.brokerlite.storage.folder_flushes import FolderFlushes
from ottla.brokerlite.storage.meta_properties import identify, take_lock, write_identity
from ottla.brokerlite.storage.partition_segments import PartitionSegments, nothing
from ottla.brokerlite.storage.refusals import Refusals
from ottla.brokerlite.storage.spare import Spare
from ottla.brokerlite.storage.start_offsets import StartOffsets
from ottla.brokerlite.storage.state_file import PRODUCER_IDS, FoundState, StateFile
from ottla.brokerlite.storage.topic_files import TopicFile
from ottla.brokerlite.storage.topic_folder import FolderContext, TopicFolder
from ottla.brokerlite.storage.unflushed import Unflushed
from ottla.errors import ConfigurationError, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class Recovered(NamedTuple):
    """Summarizes the folder's content after a start, for the log."""

    what: str
    topics: int
    partitions: int
    truncated_bytes: int


class DataFolder:
    """Stores topics in a folder (implements `ottla.brokerlite.machines.topics.topics.Storage`).

    Args:
        sync: flush to disk (a temporary folder does not need it).
        chore: takes work that waits for the disk, to run it in a thread.

    Attributes:
        cluster_id: the cluster id in `meta.properties`.
        recovered: what `open` found.
        unserved: topics that exist but cannot be served. Their folders are left untouched.
        flush_durations: of the flushes that no response waits for.
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
        self._disk = disk = disk or FileSystem()
        self._refusals = Refusals(path)
        self._sync = sync
        self._chores = Chores(path, self._refusals, chore)
        self._topics: dict[str, TopicFolder] = {}
        self._unflushed = Unflushed(disk, path)
        self._spare = Spare(disk, path)
        self._state_file = StateFile(disk, path, sync=sync)
        self._numbers = AssignedNumbers(self._state_file, self._chores)
        points, starts, cleaned = (
            OffsetCheckpoint(disk, path / name, sync=sync) for name in (RECOVERY_POINTS, START_OFFSETS, CLEANER_OFFSETS)
        )
        self._start_offsets = StartOffsets(starts, self._topics, self._unflushed, self._chores, sync=sync)
        self._checkpoints = FolderCheckpoints(points, cleaned, self._start_offsets, self._topics)
        self._flushes = FolderFlushes(self._unflushed, self._checkpoints, self._topics, self._chores, sync=sync)
        self.flush_durations = self._flushes.durations
        self._context = FolderContext(path, disk, sync, index_interval_bytes, self._refusals, self._chores)
        self._stays_unclean = False
        """Some log was not recovered, so the next start must not count as clean."""
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
        self._checkpoints.write()
        self._numbers.close()
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
        topic = TopicFolder(self._context, name, TopicFile(0, topic_id, partitions, configs), self._flushes)
        try:
            self._checkpoints.forget_deleted(name)
            topic.create(self._numbers.leader_epoch)
        except OSError as error:
            topic.discard()
            raise self._refused(f"create topic {name}", error) from error
        self._topics[name] = topic
        self._flushes.made(topic.partitions)
        return topic.stored

    def delete_topic(self, name: str) -> None:
        topic = self._topics[name]
        try:
            gone = topic.delete()
        except OSError as error:
            raise self._refused(f"delete topic {name}", error) from error
        del self._topics[name]
        self._checkpoints.deleted(name)
        self._unflushed.renamed(topic.partitions)
        if gone:
            self._chores.later(partial(self._remove, gone))

    def add_partitions(self, name: str, count: int) -> list[StoredPartition]:
        topic = self._topics[name]
        first = len(topic.partitions)
        try:
            new = topic.grow(count, self._numbers.leader_epoch)
        except OSError as error:
            raise self._refused(f"add partitions to {name}", error) from error
        self._flushes.made([topic.partitions[0], *new])
        self._chores.later(topic.drop_older_files())
        return topic.stored.partitions[first:]

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        topic = self._topics[name]
        try:
            topic.configure(configs)
        except OSError as error:
            raise self._refused(f"change the configuration of {name}", error) from error
        self._flushes.made([topic.partitions[0]])
        self._chores.later(topic.drop_older_files())

    def assign_producer_ids(self, count: int = 1) -> int:
        try:
            return self._numbers.assign_producer_ids(count)
        except OSError as error:
            raise self._refused("reserve producer ids", error) from error

    def set_start_offsets(self, starts: Mapping[TopicPartition, int], done: Callable[[OSError | None], None]) -> Job:
        return self._start_offsets.set(starts, done)

    def begin_flush(self, partitions: Iterable[Segments] | None = None) -> Work:
        """Return work that flushes all data stored before this call to disk; it may run while more is stored.

        Args:
            partitions: flush only these; by default all. Newly created topics are always flushed, too.

        The work is for a thread. It tries every partition, and then raises the first `OSError`. Afterwards the records
        of each partition before its `synced_offset` are on disk.
        """
        return self._unflushed.begin_flush(partitions)

    def note_cleaned(self) -> Work:
        return self._checkpoints.write

    def _remove(self, folders: list[Path]) -> None:
        """Remove renamed folders.

        The renames are flushed first: a folder whose old name came back after a power cut would be a topic again.
        """
        if self._sync:
            self._disk.sync_folder(self.path)
        self._checkpoints.write()
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
        last = self._checkpoints.read(
            clean=clean, leader_epoch=found.leader_epoch, expected=found.checked, keep=self.unserved
        )
        if clean:
            self._disk.unlink(self.path / CLEAN_SHUTDOWN)
            if self._sync:
                self._disk.sync_folder(self.path)  # else the marker could be back after a power cut
        else:
            self._unflushed.made(())  # the names of the killed broker may only be in the page cache
        whole = True
        for name, file in topics.items():
            topic = TopicFolder(self._context, name, file, self._flushes)
            for segments in topic.open(last):
                self._unflushed.made([topic.partitions[0], segments])
                whole = False
            self._topics[name] = topic
        partitions = [segments for topic in self._topics.values() for segments in topic.partitions]
        self._checkpoints.write()  # with the values found: lost or deleted records are no longer on disk
        self._lead(node_id, found, partitions, raised=not (new or (clean and whole and found.leader_epoch is not None)))
        write_identity(self._disk, self.path, identity, sync=self._sync)
        self.recovered = Recovered(
            "data folder created"
            if new
            else "data folder opened"
            if clean
            else "data folder recovered after an unclean shutdown",
            len(self._topics),
            len(partitions),
            sum(segments.truncated for segments in partitions),
        )
        if self._sync:
            self._chores.later(self.begin_flush())

    def _lead(self, node_id: int, found: FoundState, partitions: list[PartitionSegments], raised: bool) -> None:
        """Become leader of all partitions, in a new epoch if a log may have lost acknowledged records.

        The epoch must be on disk before any record is written in it: a later start must not use the same epoch.
        """
        epoch = max([found.leader_epoch or 0, *(each.epochs.current for each in partitions)]) + raised
        if found.next_producer_id is None:
            known = (max(each.producers.entries, default=-1) for topic in self.topics() for each in topic.partitions)
            next_producer_id = max(known, default=-1) + 1 + (PRODUCER_IDS if partitions else 0)
        else:
            next_producer_id = found.next_producer_id
        self._numbers.begin(node_id, self.cluster_id, next_producer_id, epoch)
        for segments in partitions:
            segments.lead(epoch)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        return self._refusals.error(what, self.path, error)
