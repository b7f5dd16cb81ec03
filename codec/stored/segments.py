"""``.log`` files: record batches one after the other, nothing between them and nothing around them.

The file's name is the offset that it begins with. A broker appends what producers send, with the offsets filled in,
so a batch on disk has the very bytes that consumers get.

How a file may end:
- Torn, within a batch: the broker was killed while it wrote. It cuts that off when it starts again.
- In zeros: the file system had made room before (`log.preallocate`), or did not get to write before a power failure.

Snapshots of KRaft (``.checkpoint`` files) look the same.

Source: FileRecords.java, RecordBatchIterator.java, LogSegment.java (recover).
"""

from collections.abc import Iterable, Iterator

from ottla.codec.pieces import Pieces
from ottla.codec.records import HEADER_SIZE, MAGIC, RecordBatch, parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError

LENGTH_AT, LENGTH_END, MAGIC_AT = 8, 12, 16
LARGEST = 100 * 2**20
"""Bytes of a batch that are believed: no request that a broker takes can carry a larger one."""
_STEP = 64 * 2**10


class TornTail(DecodeError):
    """The file ends within a batch."""


class Segment:
    """Reads a segment that comes in pieces; of its bytes only one batch is held.

    Attributes:
        position: where the batch begins that was read last, in the end where the last one ends.
        unused: zeros at the file's end, once it is reached.
    """

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = Pieces(pieces)
        self.position = 0
        self.unused = 0

    def __iter__(self) -> Iterator[RecordBatch]:
        """The batches; their CRCs are not looked at.

        Raises:
            TornTail: the file ends within a batch.
            DecodeError: something else stands where a batch should; the offset counts from the file's beginning.
        """
        while head := self._pieces.peek(MAGIC_AT + 1):
            if not any(head):
                self.unused = self._zeros()
                return
            data = self._pieces.take(self._size(head))
            yield parse_batch(data)
            self.position = self._pieces.position

    def _size(self, head: bytes) -> int:
        """Of the batch, all of which is there."""
        if len(head) > MAGIC_AT and head[MAGIC_AT] != MAGIC:
            raise DecodeError(
                f"record format (magic) {head[MAGIC_AT]} instead of {MAGIC}", "magic", self.position + MAGIC_AT
            )
        if len(head) <= MAGIC_AT:
            raise TornTail(f"{len(head)} bytes at the end, and a batch takes {HEADER_SIZE} or more", "", self.position)
        size = LENGTH_END + int.from_bytes(head[LENGTH_AT:LENGTH_END], "big", signed=True)
        if not HEADER_SIZE <= size <= LARGEST:
            raise DecodeError(f"{size - LENGTH_END} is no length of a batch", "length", self.position + LENGTH_AT)
        if (left := len(self._pieces.peek(size))) < size:
            raise TornTail(f"batch of {size} bytes, of which the file has {left}", "length", self.position + LENGTH_AT)
        return size

    def _zeros(self) -> int:
        """How many bytes are left, all of them zero."""
        count = 0
        while step := self._pieces.take(_STEP):
            if any(step):
                raise DecodeError("0 is no length of a batch", "length", self.position + LENGTH_AT)
            count += len(step)
        return count
