"""What a connection receives, cut into frames; large ones are read straight into their place.

Rules:
- Whatever arrives may be fed, in any pieces.
- Once a frame of 64 kB or more has begun, `room` is where the rest of it belongs: a driver that can, reads into it and
  says how much it `filled`. Nothing of it is copied then.
- The memory of a large frame is used again once there is no view of the frame any more: to touch a page for the first
  time costs as much as to decode what is in it. Blocks of 16 MiB together are kept so, for answers are asked for, and
  come, while those before them are looked at; a frame that comes while all are in use has memory of its own. A small
  frame says that there is no hurry, and frees them; so does the end of the connection.
"""

from collections.abc import Iterator

from ottla.codec.frames import FrameReader
from ottla.codec.wire import Buffer

LARGE = 64 * 2**10
_KEPT = 16 * 2**20
"""Bytes of all blocks that are kept."""


class Inbox:
    def __init__(self) -> None:
        self._reader = FrameReader()
        self._kept: list[bytearray] = []
        """What large frames lay in, or lie in still."""
        self._frame: memoryview | None = None
        """The large frame under way."""
        self._have = 0

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Add ``data``; iterate over the frames that are whole now, without their lengths.

        Raises:
            RemoteProtocolError: (while iterating) as `FrameReader.feed`.
        """
        if self._frame is not None:
            first = memoryview(data)[: len(self._frame) - self._have]
            self._frame[self._have : self._have + len(first)] = first
            data = memoryview(data)[len(first) :]
            yield from self.filled(len(first))
        for frame in self._reader.feed(data):
            self._kept = []
            yield frame
        if begun := self._reader.take_begun(LARGE):
            size, start = begun
            self._frame, self._have = self._memory(size), len(start)
            self._frame[: len(start)] = start

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a large frame belongs."""
        return None if self._frame is None else self._frame[self._have :]

    def filled(self, count: int) -> Iterator[Buffer]:
        """``count`` bytes were put into `room`; the frame, if it is whole now."""
        self._have += count
        if self._frame is not None and self._have == len(self._frame):
            whole, self._frame = self._frame, None
            yield whole.toreadonly()

    def _memory(self, size: int) -> memoryview:
        """A place for a frame of this size."""
        in_use: list[bytearray] = []
        for block in self._kept:
            if not _is_free(block):
                in_use.append(block)
            elif size <= len(block) <= 2 * size:
                return memoryview(block)[:size]
        step = 1 << max(size.bit_length() - 4, 0)  # so that it fits those that are a little larger, too
        block = bytearray((size // step + 1) * step)
        self._kept = [*in_use, block] if sum(map(len, in_use)) + len(block) <= _KEPT else in_use
        return memoryview(block)[:size]


def _is_free(memory: bytearray) -> bool:
    """There is no view of it: only then does Python let its size be changed."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
