"""Bytes that come in pieces, of which only what is being looked at is held."""

from collections.abc import Iterable

from ottla.codec.wire import Buffer


class Pieces:
    """A file or a stream, read from its beginning to its end.

    Attributes:
        position: bytes that have been taken.
    """

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self._held = b""
        self._at = 0
        self.position = 0

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes; fewer only where the end is nearer."""
        held = len(self._held) - self._at
        if held < size:
            parts = [self._held[self._at :]]  # put together once: one by one, many pieces would take quadratic time
            while held < size and (piece := next(self._pieces, None)) is not None:
                parts.append(bytes(piece))
                held += len(parts[-1])
            self._held, self._at = b"".join(parts), 0
        return self._held[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """The same, and go on behind them."""
        data = self.peek(size)
        self._at += len(data)
        self.position += len(data)
        return data
