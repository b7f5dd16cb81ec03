"""Raises the start offsets of logs, and stores them in `log-start-offset-checkpoint`.

Rules:
- A start offset is on disk before clients can see it, and before the segments in front of it are removed: removed
  segments could come back after a power cut.
- If the disk is too full for the file, whole segments are removed first.
"""

from collections.abc import Callable, Collection, Mapping

from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.storage.checkpoints import OffsetCheckpoint
from ottla.brokerlite.storage.chores import Chores
from ottla.brokerlite.storage.disk import FULL
from ottla.brokerlite.storage.partition_segments import PartitionSegments, nothing
from ottla.brokerlite.storage.topic_folder import TopicFolder, partitions_of
from ottla.brokerlite.storage.unflushed import Unflushed


class StartOffsets:
    """Keeps the start offsets of all logs; the loop and threads may use it."""

    def __init__(
        self,
        checkpoint: OffsetCheckpoint,
        topics: Mapping[str, TopicFolder],
        unflushed: Unflushed,
        chores: Chores,
        *,
        sync: bool,
    ) -> None:
        self._checkpoint = checkpoint
        self._topics = topics
        self._unflushed = unflushed
        self._chores = chores
        self._sync = sync
        self._wanted: list[Mapping[PartitionSegments, int]] = []
        """The start offsets that running jobs are writing to disk, before the logs adopt them."""

    def read(self, *, expected: bool, keep: Collection[str]) -> dict[TopicPartition, int] | None:
        """See `OffsetCheckpoint.read`."""
        return self._checkpoint.read(expected=expected, keep=keep)

    def write(self) -> None:
        """Write the start offsets of all logs to disk.

        This includes logs that start at a segment's base offset: removed segments could come back after a power cut.
        """
        self._checkpoint.write(self._current)

    def _current(self) -> dict[TopicPartition, int]:
        wanted = list(self._wanted)  # read this first: a job that is gone by then has moved its log's start
        starts = {
            place: max([segments.start_offset, *(each.get(segments, 0) for each in wanted)])
            for place, segments in partitions_of(self._topics)
        }
        return {place: start for place, start in starts.items() if start}

    def set(self, starts: Mapping[TopicPartition, int], done: Callable[[OSError | None], None]) -> Job:
        """Return the job of `Storage.set_start_offsets`."""
        # Look the topics up now: when the job begins, a name may belong to a recreated topic.
        return self._set({self._topics[name].partitions[i]: offset for (name, i), offset in starts.items()}, done)

    def _set(self, wanted: Mapping[PartitionSegments, int], done: Callable[[OSError | None], None]) -> Job:
        self._wanted.append(wanted)
        try:
            try:
                yield from self._note(wanted)
                remove = self._begin_at(wanted)
            finally:
                self._wanted.remove(wanted)
        except OSError as error:
            done(error)
            self._chores.later(self.write)  # the file may already contain the offsets that failed
            return
        done(None)
        self._chores.later(remove)

    def _note(self, wanted: Mapping[PartitionSegments, int]) -> Job:
        """Write the wanted start offsets to disk; on a full disk, remove whole segments first, to free space."""
        try:
            yield self.write
        except OSError as error:
            if error.errno not in FULL:
                raise
            whole = {segments: segments.base_before(offset) for segments, offset in wanted.items()}
            yield self._begin_at(whole, ordered=self._sync)  # the missing segments imply the new start offset, too
            yield self.write

    def _begin_at(self, starts: Mapping[PartitionSegments, int], *, ordered: bool = False) -> Work:
        """Move the start of logs; return work that flushes the remaining records and then removes the old segments.

        Args:
            ordered: see `PartitionSegments.remove`.
        """
        moved = ((segments, segments.set_start_offset(offset)) for segments, offset in starts.items())
        gone = {segments: each for segments, each in moved if each}
        flush = self._unflushed.begin_flush(gone) if self._sync and gone else nothing

        def remove() -> None:
            flush()
            for segments, each in gone.items():
                segments.remove(each, ordered=ordered)

        return remove
