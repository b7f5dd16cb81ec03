"""Stores recovery points, start offsets and cleaner offsets of all logs, in Kafka's offset checkpoints."""

from collections.abc import Collection, Mapping

from ottla.brokerlite.storage.checkpoints import OffsetCheckpoint
from ottla.brokerlite.storage.start_offsets import StartOffsets
from ottla.brokerlite.storage.topic_folder import LastRun, TopicFolder, partitions_of

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"


class FolderCheckpoints:
    """Reads and writes recovery points, start offsets and cleaner offsets; the loop and threads may use it."""

    def __init__(
        self,
        recovery_points: OffsetCheckpoint,
        cleaner_offsets: OffsetCheckpoint,
        start_offsets: StartOffsets,
        topics: Mapping[str, TopicFolder],
    ) -> None:
        self._recovery_points = recovery_points
        self._cleaner_offsets = cleaner_offsets
        self._start_offsets = start_offsets
        self._topics = topics
        self._deleted: set[str] = set()
        """Deleted topics that the files may still name."""

    def read(self, *, clean: bool, leader_epoch: int | None, expected: bool, keep: Collection[str]) -> LastRun:
        """Read the files of the last broker.

        Args:
            expected: log a warning for each file that is missing.
            keep: topics whose lines are kept, because they are not served.
        """
        points = self._recovery_points.read(expected=expected, keep=keep)
        starts = self._start_offsets.read(expected=expected, keep=keep)
        return LastRun(clean, leader_epoch, points, starts, self._cleaner_offsets.read(expected=expected, keep=keep))

    def write(self) -> None:
        """Write all three files to disk."""
        deleted = tuple(self._deleted)
        self._start_offsets.write()
        self._recovery_points.write(lambda: {place: each.recovery_point for place, each in partitions_of(self._topics)})
        self._cleaner_offsets.write(
            lambda: {
                place: each.cleaned_up_to for place, each in partitions_of(self._topics) if each.cleaned_up_to >= 0
            }
        )
        self._deleted.difference_update(deleted)

    def deleted(self, name: str) -> None:
        """Note that a topic is deleted, which the next `write` stores."""
        self._deleted.add(name)

    def forget_deleted(self, name: str) -> None:
        """Before a topic is created: make sure that the files say nothing about a deleted one of its name."""
        if name in self._deleted:
            self.write()  # else, after a kill, the checkpoints of the deleted topic would apply to it
