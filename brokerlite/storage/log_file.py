"""Reads and writes a log file: its batches, and the damage between them.

Rules:
- Batches follow each other without a gap between their bytes; between their offsets compaction may leave gaps. Offsets
  never go back.
- A batch's magic, length and CRC reveal damage. The CRC does not cover the base offset. A base offset that is too small
  goes back; one that is too large makes the next batch seem to go back, and the two batches after it show which one is
  wrong. A base offset that is too large in the last batch counts as a gap, unless the end offset of the file is known.
- A failed write leaves no trace: its bytes are removed at once or, if that fails, before the next write.
- Bytes that are not an intact batch are `Damage`. It ends at the next intact batch: its CRC matches, and its offset may
  follow.

Source: FileRecords.java, LogSegment.java (recover).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.records import HEADER_SIZE, LENGTH_END, MAGIC, RecordBatch, parse_batch

_CHUNK = 2**20
_HEAD = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta at the start of a batch."""
_MAGIC_AT = 16
_LEAST_LENGTH = HEADER_SIZE - LENGTH_END
_MOST_OFFSETS = 2**31
"""The most offsets in one file: indexes store relative offsets in 32 bits."""


class Damage(NamedTuple):
    """Describes bytes that are not an intact batch."""

    position: int
    size: int
    offset: int
    """The first lost offset, as far as the intact batches before it show."""
    next_offset: int | None
    """The base offset of the intact batch after it, if there is one."""
    torn: bool
    """The file ends in an incomplete batch, or in zeros that were never written to; no intact batch follows."""


class Damaged(Exception):
    """There is no intact batch where one should be.

    Attributes:
        position: the place in the log file.
    """

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Head(NamedTuple):
    """Holds the fields of a batch's header, which are not checked against the CRC."""

    position: int
    size: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.size


class LogFile:
    """Reads and writes the log file of one segment.

    Args:
        limit: all offsets in it are smaller.

    Attributes:
        base_offset: the smallest offset that may be in it.
        size: in bytes; the rest of the file is ignored.
    """

    def __init__(self, disk: Disk, path: Path, base_offset: int, *, size: int = 0, limit: int | None = None) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self._limit = base_offset + _MOST_OFFSETS if limit is None else limit
        self._gap_limit: int | None = None
        """A batch that reaches this offset must follow the one before it without a gap; ``None``: not known."""
        self._torn = False
        """The bytes of a failed write could not be removed yet."""
        self._disk = disk
        self._found: dict[int, tuple[int, Damage]] = {}
        """Position -> the file's size at that time, and the damage there: searching for its end may take long."""

    def create(self) -> None:
        """Create the empty file."""
        self._disk.write_file(self.path, b"")

    def open(self) -> None:
        """Read the whole file from now on, whatever its size is."""
        self.size = self._disk.size(self.path)

    def rename(self, path: Path) -> None:
        self._disk.rename(self.path, path)
        self.path = path

    def ends_before(self, offset: int) -> None:
        """Treat batches that claim ``offset`` or a later one as damaged."""
        self._limit = min(self._limit, offset)

    def has_no_gap_behind(self, offset: int) -> None:
        """Treat batches that claim ``offset`` or a later one, and come after a gap, as damaged."""
        self._gap_limit = offset

    # -- writing

    def append(self, batch: RecordBatch) -> int:
        """Write the `parts` of a batch at the end, and return its position; an `OSError` leaves no trace."""
        if self._torn:
            self._mend()
        position = self.size
        try:
            self._disk.write(self.path, position, *batch.parts)
        except OSError:
            self._torn = True
            self._mend()
            raise
        self.size = position + len(batch.data)
        return position

    def _mend(self) -> None:
        """Remove the bytes of a failed write."""
        if self._disk.exists(self.path):
            self._disk.truncate(self.path, self.size)
        self._torn = False

    def cut(self, position: int) -> None:
        """Truncate the file at ``position``."""
        self._disk.truncate(self.path, position)
        self.size = position

    # -- by batch headers alone

    def heads(self, position: int, last: int | None = None) -> Iterator[Head]:
        """Iterate over the batches from ``position`` on, reading each header only when it is needed.

        Args:
            last: the last offset of the first batch, if known.

        Raises:
            Damaged: (while iterating) the next bytes are not a batch, or its offset goes back.
        """
        if position < self.size:
            head = self.head(position)
            if head is None or last not in (None, head.last_offset):
                raise Damaged(position)
            yield head
            yield from self.behind(head)

    def behind(self, head: Head) -> Iterator[Head]:
        """Iterate as `heads`, over the batches after ``head``."""
        while (position := head.end) < self.size:
            follower = self.head(position)
            if follower is None or follower.base_offset <= head.last_offset:
                raise Damaged(position)
            yield (head := follower)

    def head(self, position: int) -> Head | None:
        """Parse the batch header at ``position``; ``None`` if it cannot be one of this file."""
        data = self._disk.read(self.path, _HEAD.size, position)
        if len(data) < _HEAD.size:
            return None
        base_offset, length, magic, last_offset_delta = _HEAD.unpack(data)
        last_offset = base_offset + last_offset_delta
        if (
            magic != MAGIC
            or not _LEAST_LENGTH <= length <= self.size - position - LENGTH_END
            or not self.base_offset <= base_offset <= last_offset < self._limit
        ):
            return None
        return Head(position, LENGTH_END + length, base_offset, last_offset)

    # -- by whole batches

    def around(self, start: int = 0, last: int | None = None) -> Iterator[tuple[int, RecordBatch | Damage]]:
        """Iterate over (position, intact batch) from ``start`` on, and (position, damage) between them.

        Args:
            start: 0, or the position of an index entry.
            last: the last offset in that entry.
        """
        position, least = start, self._least(start, last)
        while position < self.size:
            held: tuple[int, int, RecordBatch] | None = (
                None  # until the next batch shows that its base offset is not too large
            )
            for at, batch in self.batches(position, least, last):
                if held is not None:
                    yield held[0], held[2]
                held = at, least, batch
                position, least, last = at + len(batch.data), batch.next_offset, None
            if held is not None and (behind := self._too_far(held[2], position, held[1])) is not None:
                yield held[0], Damage(held[0], len(held[2].data), held[1], behind, False)
                least = behind
                continue
            if held is not None:
                yield held[0], held[2]
            if position < self.size:
                damage = self._damage(position, least)
                yield position, damage
                position, least, last = position + damage.size, damage.next_offset or least, None

    def batches(self, start: int, least: int, last: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """Iterate over (position, batch) from ``start`` on, up to the first that is not intact.

        Args:
            least: the smallest offset that the first batch may have.
            last: the last offset of the first batch, if known.
        """
        position, need = start, HEADER_SIZE
        while position + need <= self.size:
            data = memoryview(self._disk.read(self.path, min(max(_CHUNK, need), self.size - position), position))
            if len(data) < need:
                return
            at, need = 0, HEADER_SIZE
            while at + need <= len(data):
                length = int.from_bytes(data[at + 8 : at + LENGTH_END], "big", signed=True)
                if data[at + _MAGIC_AT] != MAGIC or length < _LEAST_LENGTH:
                    return
                need = LENGTH_END + length
                if at + need > len(data):
                    break
                batch = parse_batch(data, at)
                if last not in (None, batch.last_offset) or not self._may_follow(batch, least):
                    return
                yield position + at, batch
                least, last = batch.next_offset, None
                at, need = at + need, HEADER_SIZE
            position += at

    def _may_follow(self, batch: RecordBatch, least: int) -> bool:
        if self._gap_limit is not None and least != batch.base_offset and batch.last_offset >= self._gap_limit:
            return False
        return least <= batch.base_offset <= batch.last_offset < self._limit and batch.crc_matches

    def _least(self, start: int, last: int | None) -> int:
        """Return the smallest offset that the batch at ``start`` may have."""
        if last is None:
            return self.base_offset
        data = self._disk.read(self.path, _HEAD.size, start)
        last_offset_delta = _HEAD.unpack(data)[3] if len(data) == _HEAD.size else 0
        return max(self.base_offset, min(last, last - last_offset_delta))

    def _too_far(self, batch: RecordBatch, end: int, least: int) -> int | None:
        """Return the offset at which the log continues after ``batch``, if its base offset is damaged and too large.

        Args:
            end: the position after the batch.
            least: the smallest offset that the batch may have.
        """
        follower = next(self.batches(end, least), None)
        if follower is None or follower[1].base_offset >= batch.next_offset:
            return None
        at, second = follower
        if second.base_offset == least + batch.last_offset_delta + 1:
            return second.base_offset  # with ``least`` as the base offset there is no gap
        third = next(self.batches(at + len(second.data), least), None)
        goes_on = third is not None and second.next_offset <= third[1].base_offset < batch.next_offset
        return second.base_offset if goes_on else None

    # -- damage

    def _damage(self, position: int, offset: int) -> Damage:
        """Describe the damage at ``position``, where a batch with ``offset`` or a later one should be."""
        if (known := self._found.get(position)) is not None and known[0] == self.size:
            return known[1]
        head = self._disk.read(self.path, min(HEADER_SIZE, self.size - position), position)
        length = int.from_bytes(head[8:LENGTH_END], "big", signed=True)
        framed = len(head) == HEADER_SIZE and head[_MAGIC_AT] == MAGIC and length >= _LEAST_LENGTH
        behind = position + LENGTH_END + length
        if framed and behind < self.size and (next_offset := self._whole_at(behind, offset)) is not None:
            end = behind  # the damage is within the batch; bytes in it that look like a batch belong to a value
        else:
            end, next_offset = self._look_behind(position, offset)
        cut_short = len(head) < HEADER_SIZE or (framed and behind > self.size)
        torn = next_offset is None and (cut_short or self._is_blank(position))
        damage = Damage(position, end - position, offset, next_offset, torn)
        self._found[position] = self.size, damage
        return damage

    def _look_behind(self, position: int, offset: int) -> tuple[int, int | None]:
        """Find the next intact batch after ``position``: its position and offset, else the file's end and ``None``."""
        at = position + 1
        while at + HEADER_SIZE <= self.size:
            data = self._disk.read(self.path, min(_CHUNK, self.size - at), at)
            magic = data.find(MAGIC, _MAGIC_AT)
            while magic >= 0:
                start = magic - _MAGIC_AT
                claimed = int.from_bytes(data[start : start + 8], "big", signed=True)
                if offset <= claimed < self._limit and self._whole_at(at + start, offset) is not None:
                    return at + start, claimed
                magic = data.find(MAGIC, magic + 1)
            at += max(1, len(data) - _MAGIC_AT)
        return self.size, None

    def _whole_at(self, position: int, least: int) -> int | None:
        """Return the base offset of the batch at ``position`` if it is intact and not before ``least``."""
        _, batch = next(self.batches(position, least), (0, None))
        return batch.base_offset if batch else None

    def _is_blank(self, position: int) -> bool:
        while position < self.size:
            data = self._disk.read(self.path, min(_CHUNK, self.size - position), position)
            if data.strip(b"\0"):
                return False
            position += len(data)
        return True
