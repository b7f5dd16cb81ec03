"""Exit codes, and how a command ends: by itself, by an error, by a signal.

Rules:
- 0 done; 1 the broker or the data said no; 2 an option, address or file cannot be used; 3 nobody there, or too slow.
- Ctrl-C is 130, SIGTERM 143 and SIGHUP (the terminal was closed) 129. The command first finishes its work or gives it
  up, within two seconds. Only servers end with 0 on SIGTERM and SIGHUP: they are meant to be ended so. A server may
  take five seconds, if records with `acks=0` are still on their way.
- A process that ignores SIGHUP from its start (nohup) goes on ignoring it.
- A second signal ends the process at once.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ottla.cli.command_config import in_kafkas_terms
from ottla.errors import (
    ConfigurationError,
    ConnectionLost,
    OttlaError,
    PartialFailure,
    RequestTimedOut,
    TimeoutExpired,
)

if TYPE_CHECKING:
    import trio

FAILED = 1
WRONG_USE = 2
UNREACHABLE = 3
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

DRAIN = 4.8
"""Seconds from the first signal until what a server still has open is cut."""


_stop: "ContextVar[_Stop]" = ContextVar("stop")
"""Of the command that runs."""


class BadInput(OttlaError):
    """What a command was given to read is not what it understands; says where."""


def code_of(error: OttlaError) -> int:
    """The exit code for an error."""
    match error:
        case ConfigurationError():
            return WRONG_USE
        case ConnectionLost() | TimeoutExpired() | RequestTimedOut():
            return UNREACHABLE
        case PartialFailure(failures=failures) if len(codes := {code_of(each) for each in failures.values()}) == 1:
            return codes.pop()
    return FAILED


def fail(error: OttlaError) -> NoReturn:
    """Say what went wrong, in one line, and end."""
    line = in_kafkas_terms(" ".join(str(error).split())) or type(error).__name__
    typer.echo(f"ottla: {line}", err=True)
    raise typer.Exit(code_of(error))


@contextmanager
def reported() -> Iterator[None]:
    """Errors that the block is not to blame for end the command with one line; others are bugs, and pass."""
    try:
        with _ungrouped():
            yield
    except OttlaError as error:
        fail(error)
    except BrokenPipeError:
        leave_broken_pipe()
        raise typer.Exit(FAILED) from None
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        fail(BadInput(f"{what}{(error.strerror or str(error)).lower()}"))


@contextmanager
def _ungrouped() -> Iterator[None]:
    """An error that comes out of a nursery alone, or with others of ottla's only, comes out as itself."""
    try:
        yield
    except BaseExceptionGroup as group:  # all that a nursery raises comes as one
        leaves = _leaves(group)
        if len(leaves) > 1 and not all(isinstance(leaf, OttlaError) for leaf in leaves):
            raise
        raise leaves[0] from None


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for each in group.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]


def leave_broken_pipe() -> None:
    """Say nothing more to a reader that has gone, also not when the interpreter flushes at its end."""
    with suppress(AttributeError, OSError):  # no stdout at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(command: Callable[[], Awaitable[None]]) -> None:
    """Run a command under trio until it ends, fails or is told to stop.

    Args:
        command: is cancelled by the first SIGINT, SIGTERM or SIGHUP, and then has 1.5 seconds to clean up.

    Raises:
        typer.Exit: with the exit code, unless that is 0.
    """
    import trio

    told: list[int] = []

    async def work() -> None:
        stop = _Stop()
        _stop.set(stop)
        async with trio.open_nursery() as nursery:
            await nursery.start(_heed, stop, told)
            with stop.scope:
                await command()
            nursery.cancel_scope.cancel()

    with reported():
        trio.run(work)
    if told:
        raise typer.Exit(128 + told[0])


def run_server(
    server: "Callable[[trio.TaskStatus[Any]], Awaitable[None]]",
    beside: "Callable[[Any, trio.Nursery], Awaitable[None]]",
) -> None:
    """Run a server under trio until it is told to stop, then drain it.

    Args:
        server: tells, once it listens, what has a method ``drain``; ends soon after that was called.
        beside: called with it; the nursery is for what shall run until the server is told to stop.

    Raises:
        typer.Exit: with the exit code, unless that is 0.
    """
    import trio

    told: list[int] = []

    async def work() -> None:
        running: Any = None
        whole, companions = trio.CancelScope(), trio.CancelScope()

        def stop() -> None:
            if running is None:
                whole.cancel()
            else:
                running.drain()
                companions.cancel()
                whole.deadline = trio.current_time() + DRAIN

        async def serve(task_status: "trio.TaskStatus[Any]") -> None:
            await server(task_status)
            companions.cancel()

        async with trio.open_nursery() as outer:
            await outer.start(_heed, stop, told)
            with whole:
                async with trio.open_nursery() as inner:
                    running = await inner.start(serve)
                    with companions:
                        async with trio.open_nursery() as nursery:
                            await beside(running, nursery)
            outer.cancel_scope.cancel()

    with reported():
        trio.run(work)
    if told and told[0] == signal.SIGINT:
        raise typer.Exit(128 + told[0])


class _Stop:
    """The first signal: cancels a command, but for what shall be finished."""

    def __init__(self) -> None:
        import trio

        self.scope = trio.CancelScope()
        self._finishing: tuple[trio.CancelScope, float] | None = None

    def __call__(self) -> None:
        self.scope.cancel()
        self._limit()

    @contextmanager
    def finish(self, seconds: float, given_up: Callable[[], None]) -> Iterator[None]:
        import trio

        with trio.CancelScope(shield=True) as finishing:
            self._finishing = finishing, seconds
            try:
                if self.scope.cancel_called:
                    self._limit()
                yield
            finally:
                self._finishing = None
        if finishing.cancelled_caught:
            given_up()

    def _limit(self) -> None:
        import trio

        if self._finishing is not None:
            finishing, seconds = self._finishing
            finishing.deadline = trio.current_time() + seconds


@contextmanager
def finished_within(seconds: float, given_up: Callable[[], None]) -> Iterator[None]:
    """Let the block of a command finish where the command is told to stop meanwhile.

    Args:
        seconds: how long that may take from the signal, at most.
        given_up: called if it took longer, and the block was cancelled.
    """
    with _stop.get().finish(seconds, given_up):
        yield


async def _heed(stop: Callable[[], None], told: list[int], *, task_status: "trio.TaskStatus[None]") -> None:
    """Note the first signal and call ``stop``."""
    import trio

    heeded = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        heeded.append(signal.SIGHUP)
    with trio.open_signal_receiver(*heeded) as signals:
        task_status.started()
        async for number in signals:
            if told:
                os._exit(128 + number)
            told.append(number)
            stop()
