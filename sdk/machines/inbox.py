"""What a connection receives, cut into frames; large ones are read straight into their place.

Rules:
- Whatever arrives may be fed, in any pieces.
- Once a frame of 64 kB or more has begun, `room` is where the rest of it belongs: a driver that can, reads into it and
  says how much it `filled`. Nothing of it is copied then.
"""

from collections.abc import Iterator

from ottla.codec.frames import FrameReader
from ottla.codec.wire import Buffer

LARGE = 64 * 2**10


class Inbox:
    def __init__(self) -> None:
        self._reader = FrameReader()
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
        yield from self._reader.feed(data)
        if begun := self._reader.take_begun(LARGE):
            size, start = begun
            self._frame, self._have = memoryview(bytearray(size)), len(start)
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
