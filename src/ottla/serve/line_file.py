"""The file, pipe or stderr to which the access log writes its lines.

Rules:
- To open it never blocks: the loop opens it. A pipe without a reader is refused.
- To write blocks only for as long as the caller likes, also if the reader of a pipe has stopped: before each write the
  system says whether it takes `PIPE_BUF` bytes. It writes so many in one piece, so lines of two programs do not mix.
- A file that was renamed or removed (by logrotate) is opened again.
"""

import errno
import os
import select
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.errors import ConfigurationError, reason

STDERR = "true"
"""The setting that has the lines written to stderr."""
_AT_ONCE = getattr(select, "PIPE_BUF", 512)
"""The most bytes of a write."""
_LOOK = 100
"""Milliseconds between two checks whether the caller still wants to wait."""
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class LineFile:
    """Appends lines.

    Args:
        to: the file's path, or `STDERR`.

    Raises:
        ConfigurationError: the file cannot be opened.
    """

    def __init__(self, to: str) -> None:
        self._to = to
        self._fd: int | None = self._opened()

    def _opened(self) -> int:
        try:
            if self._to == STDERR:
                return sys.stderr.fileno()
            found = os.open(self._to, _FLAGS, 0o666)
        except (OSError, AttributeError, ValueError) as error:  # stderr may be closed, or no file
            no_reader = isinstance(error, OSError) and error.errno == errno.ENXIO
            why = "the pipe has no reader: start it first" if no_reader else _reason(error)
            raise ConfigurationError(f"access-log: cannot write to {self._to}: {why}") from None
        if hasattr(os, "set_blocking"):
            os.set_blocking(found, True)
        return found

    def write(self, lines: Iterable[str], gives_up: Callable[[], bool]) -> None:
        """Append lines.

        Args:
            gives_up: whether to wait no longer for the reader of a pipe.

        Raises:
            OSError, ConfigurationError: some of them are not written.
        """
        fd = self._open_now()
        piece = b""
        for line in lines:
            data = f"{line}\n".encode(errors="backslashreplace")
            if piece and len(piece) + len(data) > _AT_ONCE:
                _write(fd, piece, gives_up)
                piece = b""
            piece += data
        _write(fd, piece, gives_up)

    def _open_now(self) -> int:
        """The open file; opens it again if it was moved."""
        if self._fd is not None and self._to == STDERR:
            return self._fd
        if self._fd is None or self._moved(self._fd):
            opened = self._opened()
            self.close()
            self._fd = opened
        return self._fd

    def _moved(self, fd: int) -> bool:
        try:
            there, ours = os.stat(self._to), os.fstat(fd)
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None and self._to != STDERR:
            with suppress(OSError):
                os.close(fd)


def _reason(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else "it is closed"


def _write(fd: int, data: bytes, gives_up: Callable[[], bool]) -> None:
    for at in range(0, len(data), _AT_ONCE):
        rest = data[at : at + _AT_ONCE]
        while rest:
            while not _takes_more(fd):
                if gives_up():
                    raise TimeoutError("the reader of the pipe does not read")
            rest = rest[os.write(fd, rest) :]


def _takes_more(fd: int) -> bool:
    """Whether a write does not block; waits for that a little."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(_LOOK))
