"""What a connection receives, cut into frames; large ones are read straight into their place.

Rules:
- Whatever arrives may be fed, in any pieces; it is copied at once, so its memory may be used again.
- Once a frame of 64 kB or more has begun, `room` is where more of it belongs: a driver that can, reads into it and says
  how much it `filled`. Nothing of it is copied then.
- A length is only an announcement: the memory of a frame grows with what has come of it, to about four times that. A
  client takes a block that it has kept as soon as the frame begins.
- The memory of a large frame is used again once there is no view of the frame any more: to touch a page for the first
  time costs as much as to decode what is in it. Blocks of 16 MiB together are kept so, for the next frames come while
  those before them are looked at. The connections of a server share theirs. A client's own are freed by a small frame,
  which says that there is no hurry, and by the end of the connection.
"""

from collections.abc import Iterator

from ottla.codec.frames import MAX_FRAME, FrameReader
from ottla.codec.wire import Buffer

LARGE = 64 * 2**10
"""Bytes of a frame from which on it is large; and of the memory that it begins with, however long it will be."""
_GROWTH = 4
_KEPT = 16 * 2**20


class Blocks:
    """What large frames lay in, or lie in still."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def __iter__(self) -> Iterator[bytearray]:
        return iter(self._kept)

    def take(self, size: int) -> bytearray | None:
        """One that nobody looks at any more, and that is large enough for ``size`` bytes, but not much larger."""
        for at, block in enumerate(self._kept):
            if size <= len(block) <= 2 * size and _is_free(block):
                return self._kept.pop(at)
        return None

    def keep(self, block: bytearray) -> None:
        """Use it again when nobody looks at it; for its sake those are forgotten that are free already."""
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
    """The frames of one connection.

    Args:
        limit: the largest frame in bytes.
        blocks: the memory that it shares with others; by default it has its own.
    """

    def __init__(self, limit: int = MAX_FRAME, blocks: Blocks | None = None) -> None:
        self._reader = FrameReader(limit)
        self._blocks = Blocks() if blocks is None else blocks
        self._shares = blocks is not None
        self._memory: bytearray | None = None
        """What the large frame under way lies in; ``None`` until there is to be `room`."""
        self._start = b""
        """What of it came before that."""
        self._have = 0
        self.under_way = 0
        """Bytes that the large frame under way will have; 0: there is none."""

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Add ``data``; iterate over the frames that are whole now, without their lengths.

        Raises:
            RemoteProtocolError: (while iterating) as `FrameReader.feed`.
        """
        if self._have < self.under_way:
            data = self._put(memoryview(data))
        return self._frames(self._reader.feed(data))

    def _put(self, data: memoryview) -> memoryview:
        """Add ``data`` to the large frame under way; what lies behind that."""
        while data and (room := self.room) is not None:
            count = min(len(room), len(data))
            room[:count] = data[:count]
            del room
            self._have += count
            data = data[count:]
        return data

    @property
    def needs(self) -> int:
        """Bytes of memory for the large frame under way, if it is to have `room`; 0: there is no such frame.

        A block that a client has kept is not counted.
        """
        if self._memory is not None and self._have < len(self._memory):
            return len(self._memory)
        return _fitting(min(max(_GROWTH * self._have, LARGE), self.under_way)) if self.under_way else 0

    @property
    def room(self) -> memoryview | None:
        """Where more of a large frame belongs."""
        if self._have == self.under_way:
            return None
        if self._memory is None:
            self._memory, self._start = self._grown(self._start), b""
        elif self._have == len(self._memory):
            self._memory = self._grown(self._memory)
        return memoryview(self._memory)[self._have : self.under_way]

    def _grown(self, begun: Buffer) -> bytearray:
        # A server is granted what it needs now, and what it keeps is for any of its connections.
        memory = None if self._shares else self._blocks.take(self.under_way)
        if memory is None:
            size = self.needs
            memory = self._blocks.take(size) or bytearray(size)
        memory[: len(begun)] = begun
        return memory

    def filled(self, count: int) -> Iterator[Buffer]:
        """``count`` bytes were put into `room`; the frame, if it is whole now."""
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
    """Bytes of memory for a frame of ``size``: so that it fits those that are a little larger, too."""
    step = 1 << max(size.bit_length() - 4, 0)
    return (size // step + 1) * step


def _is_free(memory: bytearray) -> bool:
    """There is no view of it: only then does Python let its size be changed."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
