"""Cuts the bytes that a connection receives into frames. Large frames are read straight into their final place.

Rules:
- `feed` accepts bytes in any pieces, and copies them at once, so the caller can reuse its memory.
- Once a frame of 64 kB or more has begun, the rest of it belongs into `room`. A driver that can, reads into that view
  and reports how much it has `filled`; those bytes are not copied.
- A frame's length is only a claim of the peer: the memory of a frame grows with the bytes that have arrived, to about
  four times as many. A client uses a kept block as soon as the frame begins.
- Whoever passes a large frame on in pieces takes it out when it has `begun`, and handles the rest of its bytes without
  the inbox.
- The memory of a large frame is reused once no view of the frame exists any more, because touching a page for the first
  time costs as much as decoding its contents. Up to 16 MiB of blocks are kept, because the next frames arrive while the
  previous ones are still in use. The connections of a server share their blocks. A client's connection frees its blocks
  when a small frame arrives, which means that there is no bulk traffic, and when it ends.
"""

from collections.abc import Iterator

from ottla.codec.frames import MAX_FRAME, FrameReader
from ottla.codec.wire import Buffer

LARGE = 64 * 2**10
"""Bytes from which a frame counts as large; also the size of its first piece of memory, however long it will be."""
_GROWTH = 4
_KEPT = 16 * 2**20


class Blocks:
    """Keeps the memory of large frames for reuse; some of it may still be in use."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def __iter__(self) -> Iterator[bytearray]:
        return iter(self._kept)

    def take(self, size: int) -> bytearray | None:
        """Return a block without views, with room for ``size`` bytes but not for many more; else ``None``."""
        for at, block in enumerate(self._kept):
            if size <= len(block) <= 2 * size and _is_free(block):
                return self._kept.pop(at)
        return None

    def keep(self, block: bytearray) -> None:
        """Keep a block for reuse. If there are too many, drop free ones to make room for it."""
        excess = sum(map(len, self._kept)) + len(block) - _KEPT
        for each in list(self._kept):
            if excess > 0 and _is_free(each):
                self._kept = [other for other in self._kept if other is not each]
                excess -= len(each)
        if excess <= 0:
            self._kept.append(block)

    def clear(self) -> None:
        self._kept.clear()


class Inbox:
    """Collects the frames of one connection.

    Args:
        limit: the largest frame in bytes.
        blocks: memory shared with other connections; by default each has its own.
    """

    def __init__(self, limit: int = MAX_FRAME, blocks: Blocks | None = None) -> None:
        self._reader = FrameReader(limit)
        self._blocks = Blocks() if blocks is None else blocks
        self._shares = blocks is not None
        self._memory: bytearray | None = None
        """The memory of the large frame under way; ``None`` until `room` is asked for."""
        self._start = b""
        """The part of that frame that arrived before then."""
        self._have = 0
        self.under_way = 0
        """Size of the large frame under way; 0 if there is none."""

    def limit_frames(self, limit: int) -> None:
        """Refuse frames above ``limit`` bytes that begin from now on."""
        self._reader.limit_frames(limit)

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Add ``data``; iterate over the frames that are complete now, without their lengths.

        Raises:
            RemoteProtocolError: (while iterating) as `FrameReader.feed`.
        """
        if self._have < self.under_way:
            data = self._put(memoryview(data))
        return self._frames(self._reader.feed(data))

    def _put(self, data: memoryview) -> memoryview:
        """Add ``data`` to the large frame under way; return the bytes after that frame."""
        while data and (room := self.room) is not None:
            count = min(len(room), len(data))
            room[:count] = data[:count]
            del room
            self._have += count
            data = data[count:]
        return data

    @property
    def needs(self) -> int:
        """Bytes of memory that `room` needs for the large frame under way; 0 if there is no such frame.

        A block that a client has kept is not counted.
        """
        if self._memory is not None and self._have < len(self._memory):
            return len(self._memory)
        return _fitting(min(max(_GROWTH * self._have, LARGE), self.under_way)) if self.under_way else 0

    @property
    def room(self) -> memoryview | None:
        """Where the next bytes of the large frame belong; ``None`` if no large frame is under way."""
        if self._have == self.under_way:
            return None
        if self._memory is None:
            self._memory, self._start = self._grown(self._start), b""
        elif self._have == len(self._memory):
            self._memory = self._grown(self._memory)
        return memoryview(self._memory)[self._have : self.under_way]

    def _grown(self, begun: Buffer) -> bytearray:
        # A server's memory is granted in steps as a frame grows, and the blocks that it keeps are for all connections.
        memory = None if self._shares else self._blocks.take(self.under_way)
        if memory is None:
            size = self.needs
            memory = self._blocks.take(size) or bytearray(size)
        memory[: len(begun)] = begun
        return memory

    @property
    def begun(self) -> bytes | None:
        """The bytes so far of a large frame that has just begun; ``None`` once it has memory of its own."""
        return self._start if self.under_way and self._memory is None else None

    def take_begun(self) -> tuple[int, bytes]:
        """Take out a large frame that has `begun`: its size, and its bytes so far."""
        begun, self._start = (self.under_way, self._start), b""
        self.under_way = self._have = 0
        return begun

    @property
    def arrived(self) -> int:
        """Bytes so far of the large frame under way."""
        return self._have

    @property
    def pending(self) -> int:
        """Bytes of an incomplete small frame."""
        return self._reader.pending

    def filled(self, count: int) -> Iterator[Buffer]:
        """Record that ``count`` bytes were put into `room`; iterate over the frame if it is complete now."""
        self._have += count
        return self._frames(iter(()))

    def _frames(self, small: Iterator[bytes]) -> Iterator[Buffer]:
        if self.under_way and self._have == self.under_way:
            yield self._whole()
        for frame in small:
            if not self._shares:
                self._blocks.clear()
            yield frame
        if begun := self._reader.take_begun(LARGE):
            self.under_way, self._start = begun
            self._have = len(self._start)

    def _whole(self) -> memoryview:
        assert self._memory is not None
        whole = memoryview(self._memory).toreadonly()[: self.under_way]
        self._blocks.keep(self._memory)
        self._memory = None
        self.under_way = self._have = 0
        return whole


def _fitting(size: int) -> int:
    """Return the bytes of memory to allocate for ``size``: slightly more, so that the block fits larger frames too."""
    step = 1 << max(size.bit_length() - 4, 0)
    return (size // step + 1) * step


def _is_free(memory: bytearray) -> bool:
    """Whether no view of the memory exists: only then does Python allow its size to change."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
