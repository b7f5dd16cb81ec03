"""Stores one topic: the folders of its partitions, and the file that defines it in the first of them.

A kill at any moment leaves a new topic whole (and empty) or gone: see `topic_files.py` and `find_topics.py`.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.machines.topics.topics import StoredPartition, StoredTopic, TopicPartition
from ottla.brokerlite.storage.chores import Chores
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.find_topics import deleted_name, set_aside
from ottla.brokerlite.storage.partition_segments import Flushes, PartitionSegments
from ottla.brokerlite.storage.refusals import Refusals
from ottla.brokerlite.storage.topic_disk import TopicDisk
from ottla.brokerlite.storage.topic_files import (
    METADATA,
    TopicFile,
    drop_older,
    read_topic_id,
    topic_numbers,
    topic_path,
    write_topic,
)

log = logging.getLogger("ottla.brokerlite")

_ANY_EPOCH = 2**31 - 1


class FolderContext(NamedTuple):
    """The parts that all topics of a data folder share."""

    path: Path
    disk: Disk
    sync: bool
    index_interval_bytes: int
    """The default of the topics' configuration."""
    refusals: Refusals
    chores: Chores


class LastRun(NamedTuple):
    """The offsets and the leader epoch of the last broker; ``None`` means unknown."""

    clean: bool
    """It was shut down cleanly."""
    leader_epoch: int | None
    recovery_points: Mapping[TopicPartition, int] | None
    start_offsets: Mapping[TopicPartition, int] | None
    cleaned_up_to: Mapping[TopicPartition, int] | None


class TopicFolder:
    """Creates, opens, grows and deletes the folders of one topic.

    Attributes:
        stored: the topic, as the machines see it.
        partitions: in order.
    """

    def __init__(self, context: FolderContext, name: str, file: TopicFile, flushes: Flushes) -> None:
        self._context = context
        self._name = name
        self._file = file
        self._flushes = flushes
        self._disk = TopicDisk(context.disk)
        self.partitions = self._build(range(file.partitions))
        partitions = [StoredPartition(segments, Producers()) for segments in self.partitions]
        self.stored = StoredTopic(name, file.topic_id, dict(file.configs), partitions)

    @property
    def _folder(self) -> Path:
        """The folder with the topic's file."""
        return self.partitions[0].folder

    @property
    def _index_interval(self) -> int:
        return int(self._file.configs.get("index.interval.bytes", self._context.index_interval_bytes))

    def create(self, leader_epoch: int) -> None:
        """Create the folders; after an `OSError` the caller must call `discard`."""
        for segments in self.partitions:  # the folder of partition 0 comes first, the topic's file in it last
            self._make(segments, leader_epoch)
        self.partitions[0].note(write_topic(self._context.disk, self._folder, self._file))

    def discard(self) -> None:
        """Remove the folders after a failed `create`."""
        _discard(self._context.disk, self.partitions)

    def grow(self, count: int, leader_epoch: int) -> list[PartitionSegments]:
        """Add partitions up to ``count`` in total; return the new ones. An error leaves everything as it was."""
        self.partitions[0].refuse_after_failed_flush()
        file = self._file._replace(number=self._file.number + 1, partitions=count)
        disk, new = self._context.disk, self._build(range(len(self.partitions), count))
        try:
            self.partitions[0].note(write_topic(disk, self._folder, file))
            for segments in new:
                self._make(segments, leader_epoch)
        except OSError:
            disk.unlink(topic_path(self._folder, file.number))
            _discard(disk, new)
            raise
        self.stored.partitions.extend(StoredPartition(segments, Producers()) for segments in new)
        self.partitions = [*self.partitions, *new]  # a thread may iterate over the old list
        self._file = file
        return new

    def configure(self, configs: Mapping[str, str]) -> None:
        """Replace the topic's configurations. An error leaves everything as it was."""
        self.partitions[0].refuse_after_failed_flush()
        file = self._file._replace(number=self._file.number + 1, configs=dict(configs))
        self.partitions[0].note(write_topic(self._context.disk, self._folder, file))
        self._file = file
        for segments in self.partitions:
            segments.index_every(self._index_interval)

    def drop_older_files(self) -> Work:
        """Return work that removes the topic's files that its present one replaces, once that is on disk."""
        first, number = self.partitions[0], self._file.number

        def drop() -> None:
            if first.flush_failed:  # the file may not be on disk: the previous one may be the last that is intact
                return
            if self._context.sync:
                self._disk.sync(topic_path(first.folder, number))
                self._disk.sync_folder(first.folder)
            drop_older(self._disk, first.folder, number)

        return drop

    def delete(self) -> list[Path]:
        """Rename the folders for removal, and return those to remove now.

        They are all or none: a folder that could not be renamed needs the others at the next start. An `OSError` leaves
        the topic as it was.
        """
        topic_id = self.stored.topic_id
        gone = [self._context.path / deleted_name(self._name, i, topic_id) for i in range(len(self.partitions))]
        with self._disk.ending():
            self._context.disk.rename(self._folder, gone[0])
            others = zip(self.partitions[1:], gone[1:], strict=True)
            left = [folder for segments, folder in others if not self._rename_away(segments, folder)]
        self.partitions[0].renamed(gone[0])
        return [] if left else gone

    def _rename_away(self, segments: PartitionSegments, folder: Path) -> bool:
        """Rename a deleted partition's folder for removal; return whether that succeeded."""
        try:
            self._context.disk.rename(segments.folder, folder)
        except OSError as error:  # the next start completes the deletion if partition 0's renamed folder is still there
            log.error("cannot rename the folder of a deleted topic: %s", error, extra={"folder": str(segments.folder)})
            return False
        finally:
            segments.renamed(folder)
        return True

    def open(self, last: LastRun) -> list[PartitionSegments]:
        """Load or recover the partitions; return the partitions without a folder."""
        missing = []
        for index, segments in enumerate(self.partitions):
            if not self._context.disk.is_folder(segments.folder):  # a kill interrupted its creation, or it was lost
                self._context.disk.make_folder(segments.folder, private=segments.is_private)
                missing.append(segments)
            self._open_partition(index, segments, last)
        self._settle_file(clean=last.clean)
        return missing

    def _open_partition(self, index: int, segments: PartitionSegments, last: LastRun) -> None:
        place, starts = (self._name, index), last.start_offsets
        producers = segments.open(
            clean=last.clean,
            recovery_point=(last.recovery_points or {}).get(place, 0),
            start_offset=None if starts is None else starts.get(place, 0),
            leader_epoch=_ANY_EPOCH if last.leader_epoch is None else last.leader_epoch,
            contiguous=not self._file.gaps,
            synced=self._context.sync,
            cleaned_up_to=(last.cleaned_up_to or {}).get(place, -1),
        )
        self.stored.partitions[index] = StoredPartition(segments, producers)
        if read_topic_id(self._context.disk, segments.folder) != self._file.topic_id:
            segments.identify(self._file.topic_id)
        elif not last.clean:  # the killed broker may not have flushed it
            segments.note(segments.folder / METADATA)

    def _settle_file(self, *, clean: bool) -> None:
        """Make sure that the topic has one file, and that it is on disk."""
        disk, first = self._context.disk, self.partitions[0]
        if self._file.number < 0:  # listed in a `broker.json` of version 1, or rebuilt
            self._file = self._file._replace(number=1 + max(topic_numbers(disk, first.folder), default=0))
            first.note(write_topic(disk, first.folder, self._file))
            if self._context.sync:
                first.begin_flush()()
        elif clean or not self._context.sync:
            drop_older(disk, first.folder, self._file.number)
        else:
            first.note(topic_path(first.folder, self._file.number))
            flush, drop = first.begin_flush(), self.drop_older_files()

            def settle() -> None:
                flush()
                drop()

            self._context.chores.later(settle)

    def _build(self, indexes: Iterable[int]) -> list[PartitionSegments]:
        """Build partitions that are not opened yet."""
        interval = self._index_interval
        path, refusals = self._context.path, self._context.refusals
        return [
            PartitionSegments(path / f"{self._name}-{i}", interval, self._flushes, self._disk, refusals)
            for i in indexes
        ]

    def _make(self, segments: PartitionSegments, leader_epoch: int) -> None:
        if self._context.disk.exists(segments.folder):
            set_aside(self._context.disk, segments.folder)
        segments.create(self._file.topic_id, leader_epoch)


def _discard(disk: Disk, partitions: Iterable[PartitionSegments]) -> None:
    for segments in partitions:
        disk.remove_tree(segments.folder)


def partitions_of(topics: Mapping[str, TopicFolder]) -> list[tuple[TopicPartition, PartitionSegments]]:
    """Return all partitions of ``topics``; any thread may call this while the loop adds and removes topics."""
    return [
        ((name, index), segments)
        for name, topic in dict(topics).items()
        for index, segments in enumerate(topic.partitions)
    ]
