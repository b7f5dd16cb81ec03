"""Bytes of a file that go to a socket without being read."""

import errno
import os
from typing import Protocol

from ottla.codec.wire import Unread

_AT_ONCE = 2**20
"""Bytes that are sent in one call, which the disk may hold up."""


class OpenFile(Protocol):
    """An open file; it is closed when nobody holds it any more."""

    descriptor: int


class FileRange(Unread):
    """Bytes of a file, which must not change. An `OSError` also tells that the file is shorter than it was."""

    __slots__ = ("__weakref__", "_file", "_position", "_size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self._file, self._position, self._size = file, position, size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return FileRange(self._file, self._position, self._size).take(self._size)

    def take(self, size: int) -> bytes:
        size = min(size, self._size)
        data = os.pread(self._file.descriptor, size, self._position)
        self._advance(len(data))
        return data if len(data) == size else data + self.take(size - len(data))

    def send(self, descriptor: int) -> int:
        count = os.sendfile(descriptor, self._file.descriptor, self._position, min(self._size, _AT_ONCE))
        self._advance(count)
        return count

    def _advance(self, count: int) -> None:
        if not count and self._size:
            raise OSError(errno.EIO, "a file has become shorter while it was sent")
        self._position += count
        self._size -= count
