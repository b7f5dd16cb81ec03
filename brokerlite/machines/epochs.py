"""The leader epochs of a partition: which of them wrote from which offset on.

Theory of operation: one broker leads for ever, so its epoch is that of the whole folder, and is raised at each start
after which a log may be shorter than what was acknowledged. What is written then may get offsets that were given
before; the epoch tells the two apart, to readers who had come as far (KIP-320).

Rules:
- An epoch begins where the log ends at that moment. Those that begin there or behind it have nothing left of them, and
  are forgotten.
- An epoch ends where the next one begins, the last one where the log does.

Source: LeaderEpochFileCache.java, Partition.scala (checkCurrentLeaderEpoch).
"""

from bisect import bisect_right
from collections.abc import Iterable

from ottla.codec.stored.checkpoints import LeaderEpoch
from ottla.errors import FencedLeaderEpoch, UnknownLeaderEpoch

NONE = -1
"""No epoch, or no offset."""


class LeaderEpochs:
    """The epochs of one partition.

    Attributes:
        entries: where each began, in order; the last is the one that leads now.
        current: which that is; -1 for none.
    """

    def __init__(self, entries: Iterable[LeaderEpoch] = ()) -> None:
        self.entries: list[LeaderEpoch] = []
        self.current = NONE
        for entry in entries:
            self.begin(*entry)

    def begin(self, epoch: int, start_offset: int) -> None:
        """``epoch`` writes from here on."""
        while self.entries and (self.entries[-1].start_offset >= start_offset or self.entries[-1].epoch >= epoch):
            del self.entries[-1]
        self.entries.append(LeaderEpoch(epoch, start_offset))
        self.current = epoch

    def check(self, epoch: int) -> None:
        """Whether a client that knows this leader epoch (-1: none) may be answered.

        Raises:
            UnknownLeaderEpoch, FencedLeaderEpoch.
        """
        if epoch > self.current:
            raise UnknownLeaderEpoch(f"leader epoch {epoch}; this broker's is {self.current}")
        if NONE < epoch < self.current:
            raise FencedLeaderEpoch(f"leader epoch {epoch}; this broker's is {self.current}")

    def at(self, offset: int) -> int:
        """The epoch that wrote, or will write, the record with ``offset``."""
        later = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[max(0, later - 1)].epoch

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The newest epoch that is not behind ``epoch``, and the offset at which it ended, in a log up to
        ``end_offset``; -1 and -1 if there is no telling."""
        if epoch == self.current:
            return epoch, end_offset
        later = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if epoch == NONE or later == len(self.entries):
            return NONE, NONE
        return (self.entries[later - 1].epoch if later else epoch), self.entries[later].start_offset
