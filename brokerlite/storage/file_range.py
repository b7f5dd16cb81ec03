"""Sends bytes from a file to a socket without reading them into memory."""

import errno
import os
from typing import Protocol

from ottla.codec.wire import Unread, Unreadable

_AT_ONCE = 2**20
"""The most bytes sent in one call, because a slow disk blocks it."""
_NOT_SENT = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers of systems and file systems without sendfile."""


class OpenFile(Protocol):
    """An open file, closed when the last reference to it is gone."""

    descriptor: int


class FileRange(Unread):
    """Represents bytes of a file, which must not change."""

    __slots__ = ("__weakref__", "_file", "_position", "_size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self._file, self._position, self._size = file, position, size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self._read(self._size)

    def take(self, size: int) -> bytes:
        data = self._read(min(size, self._size))
        self._take_off(len(data))
        return data

    def send(self, descriptor: int) -> int:
        size = min(self._size, _AT_ONCE)
        try:
            count = os.sendfile(descriptor, self._file.descriptor, self._position, size)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Unreadable(error.strerror) from error
            if error.errno not in _NOT_SENT:
                raise
            count = os.write(descriptor, self._read(size))
        if size and not count:
            raise Unreadable("the file is shorter than it was")
        self._take_off(count)
        return count

    def _read(self, size: int) -> bytes:
        try:
            data = os.pread(self._file.descriptor, size, self._position)
        except OSError as error:
            raise Unreadable(error.strerror) from error
        if len(data) < size:
            raise Unreadable("the file is shorter than it was")
        return data

    def _take_off(self, count: int) -> None:
        self._position += count
        self._size -= count
