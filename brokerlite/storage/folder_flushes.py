"""Decides when the data of a data folder are flushed to disk beside the flushes that the driver asks for."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.storage.chores import Chores
from ottla.brokerlite.storage.folder_checkpoints import FolderCheckpoints
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.brokerlite.storage.topic_folder import TopicFolder
from ottla.brokerlite.storage.unflushed import Unflushed
from ottla.server_metrics import Histogram

CHECKPOINT_BYTES = 256 * 2**20
"""Bytes written to all partitions after which the recovery points are raised."""


class FolderFlushes:
    """Flushes full segments, new folders and, now and then, everything (implements `partition_segments.Flushes`).

    Attributes:
        durations: of these flushes. Only chores write to it, and only one runs at a time.
    """

    def __init__(
        self,
        unflushed: Unflushed,
        checkpoints: FolderCheckpoints,
        topics: Mapping[str, TopicFolder],
        chores: Chores,
        *,
        sync: bool,
    ) -> None:
        self._unflushed = unflushed
        self._checkpoints = checkpoints
        self._topics = topics
        self._chores = chores
        self._sync = sync
        self.durations = Histogram()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.durations.observe(time.perf_counter() - began)

    def written(self, partition: PartitionSegments, size: int) -> None:
        self._unflushed.written(partition, size)

    def appending(self) -> None:
        """Raise the recovery points if it is time: a start after a kill need not read the log before them."""
        if not self._sync or not self._unflushed.take(CHECKPOINT_BYTES):
            return
        work = [
            each
            for topic in self._topics.values()
            for segments, partition in zip(topic.partitions, topic.stored.partitions, strict=True)
            if (each := segments.begin_checkpoint(partition.producers)) is not None
        ]

        def chore() -> None:
            try:
                for each in work:
                    with self._timed():
                        each()
            finally:
                self._checkpoints.write()

        self._chores.later(chore)

    def full(self, flush: Work) -> None:
        """Flush a full segment to disk and write the checkpoints."""

        def chore() -> None:
            if self._sync:
                with self._timed():
                    flush()
            self._checkpoints.write()

        self._chores.later(chore)

    def made(self, partitions: Iterable[PartitionSegments]) -> None:
        """Schedule a flush of new folders, which are not on disk yet."""
        self._unflushed.made(partitions)
        if self._sync:
            self._chores.later(self._flush_new)

    def _flush_new(self) -> None:
        if self._unflushed.new:
            with self._timed():
                self._unflushed.begin_flush(())()
