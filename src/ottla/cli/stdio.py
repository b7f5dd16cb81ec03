"""stdin, stdout and stderr for commands under trio: nothing here blocks the loop, so that a signal ends the command.

Rules (tests/architecture/test_output.py):
- A command under trio prints through this module only. `typer.echo`, `print` and rich block the whole loop while their
  pipe is full: the producer sends nothing, and no signal is handled.
- `say` escapes the lines that it prints (`escapes.py`); only records, tables and CSV are written as they are.
"""

import os
import select
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from io import UnsupportedOperation
from typing import TextIO

from ottla.cli.escapes import escaped, writing
from ottla.cli.exits import BadInput, ungrouped

_CHUNK = 64 * 2**10
"""Bytes of one read: few enough that a command stopped by a signal can still send their lines."""
_PIPE_BUF = 4096
"""Bytes that a writable pipe always accepts."""
_LONGEST_LINE = 16 * 2**20
_RECHECK = 1.0
"""Seconds until stdout is checked again after it became readable without having lost its reader."""


async def lines(source: int, name: str) -> AsyncGenerator[list[bytes], None]:
    """The lines of a file descriptor, without their ends, grouped by the read that completed them.

    The last one may lack its end. If a caller is cancelled while it waits for more, it has received every complete line
    that was read.

    Args:
        name: of the file, for errors.

    Raises:
        BadInput: a line is too long, or the file cannot be read.
    """
    import trio

    rest = bytearray()
    while True:
        try:
            await trio.lowlevel.wait_readable(source)
        except PermissionError:  # a file on disk: epoll refuses it, because it can always be read
            await trio.lowlevel.checkpoint()
        try:
            chunk = os.read(source, _CHUNK)
        except OSError as error:
            raise BadInput(f"cannot read {name}: {(error.strerror or str(error)).lower()}") from None
        if not chunk:
            break
        *complete, last = chunk.split(b"\n")
        if complete:
            complete[0] = bytes(rest) + complete[0]
            rest.clear()
            yield complete
        rest += last
        if len(rest) > _LONGEST_LINE:
            raise BadInput(f"a line is longer than {_LONGEST_LINE} bytes")
    if rest:
        yield [bytes(rest)]


async def write(data: bytes) -> None:
    """Write to stdout.

    Raises:
        BrokenPipeError: the reader of stdout has gone.
        CannotWrite: it takes no more.
    """
    if sys.stdout is None:
        raise BadInput("stdout is closed")
    await _write(sys.stdout, data)


@asynccontextmanager
async def while_read() -> AsyncIterator[None]:
    """End the block once the reader of stdout has gone, also while the block waits and writes nothing (as `tail -f`).

    Raises:
        BrokenPipeError: the reader has gone.
    """
    import trio

    gone = False

    async def watch(target: int) -> None:
        nonlocal gone
        await _left(target)
        gone = True
        nursery.cancel_scope.cancel()

    with ungrouped():
        async with trio.open_nursery() as nursery:
            if (target := _pipe()) is not None:
                nursery.start_soon(watch, target)
            yield
            nursery.cancel_scope.cancel()
    if gone:
        raise BrokenPipeError


def _pipe() -> int | None:
    """The descriptor of stdout, if it is a pipe: files and terminals lose no reader."""
    try:
        target = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(target).st_mode)
    except (AttributeError, OSError, UnsupportedOperation):  # closed, or in memory
        return None
    return target if is_pipe and hasattr(select, "poll") else None  # not on Windows


async def _left(target: int) -> None:
    """Wait until the reader of a pipe has gone, given the end for writing.

    That end is never readable while there is a reader. Then epoll (Linux) reports an error, and kqueue (macOS) an end
    of file, and both wake who waits until it is readable.
    """
    import trio

    poll = select.poll()
    poll.register(target, 0)  # errors and hang-ups are always reported
    while True:
        await trio.lowlevel.wait_readable(target)
        if poll.poll(0):
            return
        await trio.sleep(_RECHECK)  # a named pipe that is open for both directions has data


async def say(*lines: str, err: bool = False) -> None:
    """Print lines to stdout, or to stderr if ``err`` is set; to nothing if that is closed.

    Raises:
        BrokenPipeError: its reader has gone.
    """
    await _print("".join(f"{escaped(line)}\n" for line in lines), sys.stderr if err else sys.stdout)


async def draw(table: str) -> None:
    """Print a table to stdout, as it is: whoever draws it escapes its cells.

    Raises:
        BrokenPipeError: the reader of stdout has gone.
    """
    await _print(table, sys.stdout)


async def _print(text: str, stream: TextIO | None) -> None:
    if stream is not None and text:
        await _write(stream, text.encode(stream.encoding, stream.errors or "strict"))


async def _write(stream: TextIO, data: bytes) -> None:
    import trio

    name = "stderr" if stream is sys.stderr else "stdout"
    try:
        target, left = stream.fileno(), memoryview(data)
    except UnsupportedOperation:  # in memory, which does not block
        stream.write(data.decode(stream.encoding, stream.errors or "strict"))
        return
    while left:
        size = _PIPE_BUF
        try:
            await trio.lowlevel.wait_writable(target)
        except PermissionError:  # a file on disk
            await trio.lowlevel.checkpoint()
            size = len(left)
        with writing(name):
            left = left[os.write(target, left[:size]) :]
