"""The leader epochs of a partition, each with the offset at which it begins.

Theory of operation: the only broker always leads, so all partitions of a data folder share one epoch. It is raised at
each start after which a log may lack acknowledged records. New records may then get offsets that were used before; the
epoch tells the two apart for readers that had read the old records (KIP-320).

Rules:
- An epoch begins at the end of the log. Epochs that begin at that offset or after it have no records left, and are
  removed.
- An epoch ends where the next one begins; the last one ends at the end of the log.

Source: LeaderEpochFileCache.java, Partition.scala (checkCurrentLeaderEpoch).
"""

from bisect import bisect_right
from collections.abc import Iterable

from ottla.codec.stored.checkpoints import LeaderEpoch
from ottla.errors import FencedLeaderEpoch, UnknownLeaderEpoch

NONE = -1
"""No epoch, or no offset."""


class LeaderEpochs:
    """Keeps the leader epochs of one partition.

    Attributes:
        entries: the epochs and their start offsets, in order; the last is the current one.
        current: the current epoch; -1 for none.
    """

    def __init__(self, entries: Iterable[LeaderEpoch] = ()) -> None:
        self.entries: list[LeaderEpoch] = []
        self.current = NONE
        for entry in entries:
            self.begin(*entry)

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin ``epoch`` at ``start_offset``."""
        while self.entries and (self.entries[-1].start_offset >= start_offset or self.entries[-1].epoch >= epoch):
            del self.entries[-1]
        self.entries.append(LeaderEpoch(epoch, start_offset))
        self.current = epoch

    def check(self, epoch: int) -> None:
        """Check the leader epoch that a client knows (-1: none).

        Raises:
            UnknownLeaderEpoch, FencedLeaderEpoch.
        """
        if epoch > self.current:
            raise UnknownLeaderEpoch(f"leader epoch {epoch}; this broker's is {self.current}")
        if NONE < epoch < self.current:
            raise FencedLeaderEpoch(f"leader epoch {epoch}; this broker's is {self.current}")

    def at(self, offset: int) -> int:
        """Return the epoch that wrote, or will write, the record at ``offset``."""
        later = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[max(0, later - 1)].epoch

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the newest epoch up to ``epoch``, and the offset at which it ended; -1 and -1 if unknown.

        Args:
            end_offset: where the log ends.
        """
        if epoch == self.current:
            return epoch, end_offset
        later = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if epoch == NONE or later == len(self.entries):
            return NONE, NONE
        return (self.entries[later - 1].epoch if later else epoch), self.entries[later].start_offset
