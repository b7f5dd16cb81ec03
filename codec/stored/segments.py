"""``.log`` files: a plain sequence of record batches.

The file's name is its first offset. A broker appends the batches of producers after filling in the offsets, so
consumers get the very bytes that are on disk. Before Kafka 0.11 messages took the place of batches; a file that lived
through upgrades may begin with messages.

How a file may end:
- Truncated, within a batch: the broker was killed while it wrote. It removes that part when it starts again.
- In zeros: the file was preallocated (`log.preallocate`), or a power failure came before the file system had written.

Snapshots of KRaft (``.checkpoint`` files) have the same format.

Source: FileRecords.java, RecordBatchIterator.java, LogSegment.java (recover).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ottla.codec import kafka07, message_sets
from ottla.codec.message_sets import Message, parse_message
from ottla.codec.pieces import Pieces
from ottla.codec.records import HEADER_SIZE, MAGIC, RecordBatch, parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError

Batch = RecordBatch | Message | kafka07.Message
"""The elements of a segment, depending on its age."""

LENGTH_AT, LENGTH_END, MAGIC_AT = 8, 12, 16
LEAST = {**message_sets.LEAST, MAGIC: HEADER_SIZE}
"""Size in bytes of the shortest batch, or message, of each format (magic)."""
LARGEST = 100 * 2**20
"""The largest batch size, in bytes, that is accepted: a broker takes no request that could carry a larger one."""
_STEP = 64 * 2**10


class TornTail(DecodeError):
    """The file ends within a batch."""


class Segment(Iterator[Batch]):
    """Reads a segment that comes in pieces, and holds only one batch at a time.

    It is an iterator over the batches. After an error the next call continues with the next batch, unless it is unknown
    where that begins.

    Attributes:
        position: where the last batch begins, whether it could be read or not.
        data: its bytes, as far as they were read.
        lost: it is unknown where the next batch begins, so the iterator ends.
        unused: number of zeros at the file's end, once it is reached.
    """

    _HEAD = MAGIC_AT + 1
    """Bytes that are needed to know the size."""
    _LENGTH_AT = LENGTH_AT

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = Pieces(pieces)
        self.position = 0
        self.data = b""
        self.lost = False
        self.unused = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, without checking its CRC.

        Raises:
            TornTail: the file ends within a batch.
            DecodeError: the bytes are not a batch; the error's offset counts from the file's beginning.
        """
        if self.lost or not (head := self._pieces.peek(self._HEAD)):
            raise StopIteration
        self.position, self.data, self.lost = self._pieces.position, head, True
        if not any(head):
            self.unused = self._zeros()
            raise StopIteration
        if len(head) < self._HEAD:
            raise TornTail(f"{len(head)} bytes at the end are too few for a batch", "", self.position)
        try:
            size = self._size(head)
            self.data = self._pieces.take(size)
            if (left := len(self.data)) < size:
                raise TornTail(f"a batch of {size} bytes, but the file ends after {left}", "length", self._LENGTH_AT)
            self.lost = False
            return self._parse(self.data)
        except DecodeError as error:
            error.offset = self.position + max(error.offset, 0)
            raise

    def _size(self, head: bytes) -> int:
        """Return the size of the batch that begins with ``head``."""
        magic, length = head[MAGIC_AT], int.from_bytes(head[LENGTH_AT:LENGTH_END], "big", signed=True)
        if LEAST.get(magic, self._HEAD) <= LENGTH_END + length <= LARGEST:
            return LENGTH_END + length  # even if the format is unknown
        self._check(magic)
        raise DecodeError(f"{length} is not the length of a batch", "length", LENGTH_AT)

    def _check(self, magic: int) -> None:
        if magic not in LEAST:
            raise DecodeError(f"record format (magic) {magic} instead of 0, 1 or {MAGIC}", "magic", MAGIC_AT)

    def _parse(self, data: bytes) -> Batch:
        self._check(data[MAGIC_AT])
        return parse_batch(data) if data[MAGIC_AT] == MAGIC else parse_message(data)

    def _zeros(self) -> int:
        """Return the number of bytes that are left; all must be zero."""
        count = 0
        while step := self._pieces.take(_STEP):
            if any(step):
                raise DecodeError("0 is not the length of a batch", "length", self.position + self._LENGTH_AT)
            count += len(step)
        return count


class Segment07(Segment):
    """Reads a file of Kafka 0.7 (``.kafka``) or Jafka (``.jafka``).

    Args:
        base_offset: the file's name; an offset is the base offset plus the position in the file.
    """

    _HEAD = 5
    _LENGTH_AT = 0

    def __init__(self, pieces: Iterable[Buffer], base_offset: int = 0) -> None:
        super().__init__(pieces)
        self._base_offset = base_offset

    def _size(self, head: bytes) -> int:
        length = int.from_bytes(head[:4], "big", signed=True)
        if not 1 <= length <= LARGEST:
            raise DecodeError(f"{length} is not the length of a message", "size", 0)
        return 4 + length

    def _parse(self, data: bytes) -> Batch:
        [message] = kafka07.read_messages(data, verify=False)
        shift = self._base_offset + self.position
        return replace(message, offset=message.offset + shift, next_offset=message.next_offset + shift)
