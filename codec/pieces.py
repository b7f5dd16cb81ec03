"""Reads bytes that arrive in pieces, and holds only those it needs."""

from collections.abc import Iterable

from ottla.codec.wire import Buffer


class Pieces:
    """Reads a file or a stream from beginning to end.

    Attributes:
        position: number of bytes taken so far.
    """

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self._held = b""
        self._at = 0
        self.position = 0

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes without taking them; fewer only at the end."""
        held = len(self._held) - self._at
        if held < size:
            parts = [self._held[self._at :]]  # join once: appending many pieces one by one takes quadratic time
            while held < size and (piece := next(self._pieces, None)) is not None:
                parts.append(bytes(piece))
                held += len(parts[-1])
            self._held, self._at = b"".join(parts), 0
        return self._held[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes and move past them; fewer only at the end."""
        data = self.peek(size)
        self._at += len(data)
        self.position += len(data)
        return data
