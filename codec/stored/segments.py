"""``.log`` files: record batches one after the other, nothing between them and nothing around them.

The file's name is the offset that it begins with. A broker appends what producers send, with the offsets filled in,
so a batch on disk has the very bytes that consumers get. Before Kafka 0.11 there were messages in place of batches; a
file that outlived upgrades may begin with them.

How a file may end:
- Torn, within a batch: the broker was killed while it wrote. It cuts that off when it starts again.
- In zeros: the file system had made room before (`log.preallocate`), or did not get to write before a power failure.

Snapshots of KRaft (``.checkpoint`` files) look the same.

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
"""What a segment is made of, by its age."""

LENGTH_AT, LENGTH_END, MAGIC_AT = 8, 12, 16
LEAST = {**message_sets.LEAST, MAGIC: HEADER_SIZE}
"""Bytes of the shortest batch, or message, of each format (magic)."""
LARGEST = 100 * 2**20
"""Bytes of a batch that are believed: no request that a broker takes can carry a larger one."""
_STEP = 64 * 2**10


class TornTail(DecodeError):
    """The file ends within a batch."""


class Segment(Iterator[Batch]):
    """Reads a segment that comes in pieces; of its bytes only one batch is held.

    It is an iterator over the batches. After an error the next call goes on with the next batch, unless nothing tells
    where that begins.

    Attributes:
        position: where the batch begins that was read last, or that cannot be read.
        data: its bytes, as many as were looked at.
        lost: nothing tells where the next batch begins; there is no next call.
        unused: zeros at the file's end, once it is reached.
    """

    _HEAD = MAGIC_AT + 1
    """Bytes that tell the size."""
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
        """The next batch; its CRC is not looked at.

        Raises:
            TornTail: the file ends within a batch.
            DecodeError: something else stands where a batch should; the offset counts from the file's beginning.
        """
        if self.lost or not (head := self._pieces.peek(self._HEAD)):
            raise StopIteration
        self.position, self.data, self.lost = self._pieces.position, head, True
        if not any(head):
            self.unused = self._zeros()
            raise StopIteration
        if len(head) < self._HEAD:
            raise TornTail(f"{len(head)} bytes at the end are no batch", "", self.position)
        try:
            size = self._size(head)
            self.data = self._pieces.take(size)
            if (left := len(self.data)) < size:
                raise TornTail(f"a batch of {size} bytes, of which the file has {left}", "length", self._LENGTH_AT)
            self.lost = False
            return self._parse(self.data)
        except DecodeError as error:
            error.offset = self.position + max(error.offset, 0)
            raise

    def _size(self, head: bytes) -> int:
        """Of the batch that begins with ``head``."""
        magic, length = head[MAGIC_AT], int.from_bytes(head[LENGTH_AT:LENGTH_END], "big", signed=True)
        if LEAST.get(magic, self._HEAD) <= LENGTH_END + length <= LARGEST:
            return LENGTH_END + length  # also of a batch whose format is not known
        self._check(magic)
        raise DecodeError(f"{length} is no length of a batch", "length", LENGTH_AT)

    def _check(self, magic: int) -> None:
        if magic not in LEAST:
            raise DecodeError(f"record format (magic) {magic} instead of 0, 1 or {MAGIC}", "magic", MAGIC_AT)

    def _parse(self, data: bytes) -> Batch:
        self._check(data[MAGIC_AT])
        return parse_batch(data) if data[MAGIC_AT] == MAGIC else parse_message(data)

    def _zeros(self) -> int:
        """How many bytes are left, all of them zero."""
        count = 0
        while step := self._pieces.take(_STEP):
            if any(step):
                raise DecodeError("0 is no length of a batch", "length", self.position + self._LENGTH_AT)
            count += len(step)
        return count


class Segment07(Segment):
    """Reads a file of Kafka 0.7 (``.kafka``) or Jafka (``.jafka``).

    Args:
        base_offset: the file's name; an offset is that and the place in the file.
    """

    _HEAD = 5
    _LENGTH_AT = 0

    def __init__(self, pieces: Iterable[Buffer], base_offset: int = 0) -> None:
        super().__init__(pieces)
        self._base_offset = base_offset

    def _size(self, head: bytes) -> int:
        length = int.from_bytes(head[:4], "big", signed=True)
        if not 1 <= length <= LARGEST:
            raise DecodeError(f"{length} is no length of a message", "size", 0)
        return 4 + length

    def _parse(self, data: bytes) -> Batch:
        [message] = kafka07.read_messages(data, verify=False)
        shift = self._base_offset + self.position
        return replace(message, offset=message.offset + shift, next_offset=message.next_offset + shift)
