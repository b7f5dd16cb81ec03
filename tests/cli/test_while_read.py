"""A block of a command ends when the reader of its stdout has gone."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
import trio
import trio.testing

from ottla.cli import stdio


@contextmanager
def as_stdout(stream: TextIO | None) -> Iterator[None]:
    """Not by a fixture: pytest replaces stdout between the fixtures and the test."""
    before, sys.stdout = sys.stdout, stream
    try:
        yield
    finally:
        sys.stdout = before


@contextmanager
def pipe_as_stdout() -> Iterator[int]:
    """A pipe as stdout, as the descriptor of its reader; the test closes that."""
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream, as_stdout(stream):
        yield reads


async def test_a_block_that_waits_ends_with_the_reader_of_stdout() -> None:
    with pipe_as_stdout() as reader:
        async with trio.open_nursery() as nursery:
            with pytest.raises(BrokenPipeError):
                async with stdio.while_read():
                    nursery.start_soon(trio.to_thread.run_sync, os.close, reader)
                    await trio.sleep_forever()


async def test_a_reader_that_stays_ends_no_block() -> None:
    with pipe_as_stdout() as reader:
        with trio.move_on_after(0.1) as waited:
            async with stdio.while_read():
                await trio.sleep_forever()
        os.close(reader)
    assert waited.cancelled_caught


async def test_an_error_of_a_block_while_stdout_is_read_passes_as_it_is() -> None:
    with pipe_as_stdout() as reader:
        with pytest.raises(KeyError, match="own"):
            async with stdio.while_read():
                raise KeyError("own")
        os.close(reader)


async def test_files_and_a_closed_stdout_have_no_reader_that_goes(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file, Path(os.devnull).open("w") as null:
        for stream in (file, null, None):
            with as_stdout(stream):
                async with stdio.while_read():
                    await trio.lowlevel.checkpoint()


async def test_a_pipe_that_is_open_for_both_directions_keeps_its_reader(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    with os.fdopen(os.dup(descriptor), "w") as both, as_stdout(both):
        with trio.move_on_after(10) as waited:
            async with stdio.while_read():
                await stdio.write(b"data")
                await trio.sleep_forever()
    os.close(descriptor)
    assert waited.cancelled_caught
