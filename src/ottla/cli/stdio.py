"""stdin and stdout for commands under trio: nothing here blocks the loop, so that a signal always ends the command."""

import os
import sys
from collections.abc import AsyncGenerator

from ottla.cli.exits import BadInput

_CHUNK = 256 * 2**10
_PIPE_BUF = 4096
"""Bytes that a pipe surely takes once it is writable."""
_LONGEST_LINE = 64 * 2**20


async def lines(source: int) -> AsyncGenerator[bytes, None]:
    """The lines of a file descriptor, without their ends; the last one may lack its own.

    Raises:
        BadInput: a line is too long to be meant.
    """
    import trio

    rest = b""
    while True:
        try:
            await trio.lowlevel.wait_readable(source)
        except PermissionError:  # a file on disk: epoll refuses it, because it can always be read
            await trio.lowlevel.checkpoint()
        chunk = os.read(source, _CHUNK)
        if not chunk:
            break
        *complete, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise BadInput(f"a line is longer than {_LONGEST_LINE} bytes")
        for line in complete:
            yield line
    if rest:
        yield rest


async def write(data: bytes) -> None:
    """Write to stdout.

    Raises:
        BrokenPipeError: whoever read it has gone.
    """
    import trio

    target, left = sys.stdout.fileno(), memoryview(data)
    while left:
        size = _PIPE_BUF
        try:
            await trio.lowlevel.wait_writable(target)
        except PermissionError:  # a file on disk
            await trio.lowlevel.checkpoint()
            size = len(left)
        left = left[os.write(target, left[:size]) :]


def leave_broken_pipe() -> None:
    """Say nothing more to a reader that has gone, also not when the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
