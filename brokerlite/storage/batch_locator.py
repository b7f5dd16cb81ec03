"""Finds batches of a segment by their offsets.

Rules:
- A search steps from an index entry to its batch by the batch headers alone, whose fields no CRC proves. Where they do
  not fit together, it checks CRCs to find out which batch is damaged.
- Consumers read on, so the batch after the one found last is looked for first, without the index.

Source: LogSegment.java (translateOffset), FileRecords.java (searchForOffsetFromPosition).
"""

from ottla.brokerlite.storage.indexes import Indexes
from ottla.brokerlite.storage.log_file import Damage, Damaged, Head, LogFile

_NO_HEAD = Head(-1, 0, -2, -2)
"""No offset follows it directly."""


class BatchLocator:
    """Finds batches in the log file of one segment."""

    def __init__(self, log: LogFile, indexes: Indexes) -> None:
        self._log = log
        self._indexes = indexes
        self._last = _NO_HEAD
        """The batch that was found last."""

    def forget(self) -> None:
        """Forget the batch that was found last, because the log file was cut."""
        self._last = _NO_HEAD

    def locate(self, offset: int) -> Head | None:
        """Find the first batch whose last offset is ``offset`` or later; ``None`` if there is none.

        Raises:
            Damaged: it is missing or damaged.
        """
        start, last = self._indexes.before(offset)
        reads_on = offset == self._last.last_offset + 1
        try:
            for head in self._log.behind(self._last) if reads_on else self._log.heads(start, last):
                if head.last_offset >= offset:
                    follower = self._log.head(head.end) if head.end < self._log.size else None
                    if head.end < self._log.size and (follower is None or follower.base_offset <= head.last_offset):
                        raise Damaged(head.position)  # one of the two batches is damaged; their CRCs show which
                    self._last = head
                    return head
        except Damaged as damaged:
            return self._locate_past_damage(offset, start, last, damaged)
        return None

    def _locate_past_damage(self, offset: int, start: int, last: int | None, damaged: Damaged) -> Head:
        """Locate as `locate` does, past damage that may be in another batch; slow, because it checks CRCs."""
        lost = False
        for position, found in self._log.around(start, last):
            if isinstance(found, Damage):
                lost = True
            elif found.last_offset < offset:
                lost = False
            elif found.base_offset > offset and lost:
                break
            else:
                return Head(position, len(found.data), found.base_offset, found.last_offset)
        raise damaged

    def where_begins(self, offset: int) -> int:
        """Return the position of the first batch that begins at ``offset`` or later, or of damage before it."""
        start, last = self._indexes.before(offset)
        try:
            return next(
                (head.position for head in self._log.heads(start, last) if head.base_offset >= offset), self._log.size
            )
        except Damaged as damaged:
            return damaged.position
