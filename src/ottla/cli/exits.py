"""Exit codes, and how a command ends: on its own, by an error, by a signal.

Rules:
- 0 done; 1 the broker or the data refused; 2 an option, address or file cannot be used; 3 unreachable, or timed out.
- Ctrl-C is 130, SIGTERM 143 and SIGHUP (the terminal was closed) 129. The command first finishes its work or gives it
  up, within two seconds. Only servers end with 0 on SIGTERM and SIGHUP, because that is how they are stopped. A server
  may take five seconds, if records with `acks=0` are still in flight.
- A process that is started with SIGHUP ignored (nohup) keeps ignoring it.
- A server with a configuration file reads the file again at SIGHUP, and continues (`reloading.py`).
- A second signal ends the process at once. Without one, the process ends `_BLOCKED` seconds after the first signal, in
  case something blocks the loop: logs and progress are written at once, and wait while stderr is a full pipe.
- Until a command runs its loop, Ctrl-C ends the process at once (`ottla.cli.main`).
"""

import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ottla.cli.command_config import in_kafkas_terms
from ottla.cli.escapes import CannotWrite, tell
from ottla.errors import (
    ConfigurationError,
    ConnectionLost,
    OttlaError,
    PartialFailure,
    RequestTimedOut,
    TimeoutExpired,
)
from ottla.uncollected import uncollected

if TYPE_CHECKING:
    import trio

FAILED = 1
WRONG_USE = 2
UNREACHABLE = 3
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

DRAIN = 4.8
"""Seconds from the first signal until a server cuts its open connections."""
_BLOCKED = 8.0
"""Seconds from the first signal until a process ends whose loop is blocked."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_stop: "ContextVar[_Stop]" = ContextVar("stop")
"""The `_Stop` of the running command."""


class BadInput(OttlaError):
    """A command cannot understand its input; says where."""


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
    """Print the error in one line, and end."""
    line = in_kafkas_terms(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, CannotWrite):
        drop_output()
    with suppress(CannotWrite, BrokenPipeError):  # the exit code has to suffice
        tell(f"ottla: {line}", err=True)
    raise typer.Exit(code_of(error))


def end_if_full(error: Exception) -> None:
    """End the program with one line if ``error`` says that stdout or stderr takes no more; otherwise return.

    Typer prints help and errors of options itself, outside of `reported`.
    """
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        error = CannotWrite(f"cannot write to stdout: {(error.strerror or str(error)).lower()}")
    if isinstance(error, CannotWrite):
        try:
            fail(error)
        except typer.Exit as end:
            sys.exit(end.exit_code)


@contextmanager
def reported() -> Iterator[None]:
    """End the command with one line for errors that are not bugs; bugs pass."""
    try:
        with ungrouped():
            yield
    except OttlaError as error:
        fail(error)
    except BrokenPipeError:
        drop_output()
        raise typer.Exit(FAILED) from None
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        fail(BadInput(f"{what}{(error.strerror or str(error)).lower()}"))


@contextmanager
def ungrouped() -> Iterator[None]:
    """Unwrap a nursery's exception group that has a single error, or only ottla's errors."""
    try:
        yield
    except BaseExceptionGroup as group:  # nurseries always raise groups
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


def drop_output() -> None:
    """Write nothing more to a stdout whose reader has gone, or that is full, not even when the interpreter ends."""
    with suppress(AttributeError, OSError):  # there is no stdout at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(command: Callable[[], Awaitable[None]]) -> None:
    """Run a command under trio until it ends, fails or is stopped.

    Args:
        command: the first SIGINT, SIGTERM or SIGHUP cancels it; then it has 1.5 seconds to clean up.

    Raises:
        typer.Exit: with the exit code, unless that is 0.
    """
    with uncollected():
        import trio

    told: list[int] = []
    stop = _Stop()

    async def work() -> None:
        _stop.set(stop)
        with _heeded(stop, told), stop.scope:
            await command()

    with _unlimited_after(told), reported():
        try:
            trio.run(work)
        finally:
            for line in stop.last:
                tell(line, err=True)
    if told:
        raise typer.Exit(128 + told[0])


def run_server(
    server: "Callable[[trio.TaskStatus[Any]], Awaitable[None]]",
    beside: "Callable[[Any, trio.Nursery], Awaitable[None]]",
    hang_up: "Callable[[Any], None] | None" = None,
) -> None:
    """Run a server under trio until it is stopped, then drain it.

    Args:
        server: reports, once it listens, an object with a method ``drain``; ends soon after that was called.
        beside: called with that object, and a nursery for tasks that run until the server is stopped.
        hang_up: called with that object at each SIGHUP; ``None``: SIGHUP stops the server, like SIGTERM.

    Raises:
        typer.Exit: with the exit code, unless that is 0.
    """
    import trio

    told: list[int] = []

    async def work() -> None:
        running: Any = None
        again = False
        """A hang-up came while the server was starting, after it had read its file."""
        whole, companions = trio.CancelScope(), trio.CancelScope()

        def stop() -> None:
            _limit_to(0)  # the loop is not blocked, and a data folder may take long to close
            if running is None:
                whole.cancel()
            else:
                running.drain()
                companions.cancel()
                whole.deadline = trio.current_time() + DRAIN

        def hung_up() -> None:
            nonlocal again
            again = running is None
            if running is not None and hang_up is not None:
                hang_up(running)

        async def serve(task_status: "trio.TaskStatus[Any]") -> None:
            await server(task_status)
            companions.cancel()

        with _heeded(stop, told, hung_up if hang_up is not None else None), whole:
            async with trio.open_nursery() as inner:
                running = await inner.start(serve)
                if again:
                    hung_up()
                with companions:
                    async with trio.open_nursery() as nursery:
                        await beside(running, nursery)

    with _unlimited_after(told), reported():
        trio.run(work)
    if told and told[0] == signal.SIGINT:
        raise typer.Exit(128 + told[0])


class _Stop:
    """Handles the first signal: cancels the command, except a block that has to finish.

    Attributes:
        last: lines to print once the loop has ended, for example about blocks that were cancelled.
    """

    def __init__(self) -> None:
        import trio

        self.scope = trio.CancelScope()
        self.last: list[str] = []
        self._finishing: tuple[trio.CancelScope, float] | None = None

    def __call__(self) -> None:
        self.scope.cancel()
        self._limit()

    @contextmanager
    def finish(self, seconds: float, given_up: Callable[[], str]) -> Iterator[None]:
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
            self.last.append(given_up())

    def _limit(self) -> None:
        import trio

        if self._finishing is not None:
            finishing, seconds = self._finishing
            finishing.deadline = trio.current_time() + seconds


@contextmanager
def finished_within(seconds: float, given_up: Callable[[], str]) -> Iterator[None]:
    """Let a block of a command finish even if the command is stopped meanwhile.

    Args:
        seconds: how long that may take from the signal, at most.
        given_up: called if it took longer, and the block was cancelled; returns a line for stderr.
    """
    with _stop.get().finish(seconds, given_up):
        yield


def say_last(line: str) -> None:
    """Print a line to stderr once the loop of the command has ended, also if a signal has stopped it."""
    _stop.get().last.append(line)


@contextmanager
def _heeded(stop: Callable[[], None], told: list[int], hang_up: Callable[[], None] | None = None) -> Iterator[None]:
    """Note the first signal, and call ``stop`` in the loop; the handler itself ends a process whose loop is blocked.

    Args:
        hang_up: called in the loop at each SIGHUP, if that has a meaning of its own.
    """
    import trio

    loop = trio.lowlevel.current_trio_token()

    def heed(number: int, frame: object) -> None:
        if hang_up is not None and number == signal.SIGHUP:
            loop.run_sync_soon(hang_up)
            return
        if told:
            os._exit(128 + number)
        told.append(number)
        _limit_to(_BLOCKED, 128 + number)
        loop.run_sync_soon(stop)

    numbers = [signal.SIGINT, signal.SIGTERM]
    ignored = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup does
    if hasattr(signal, "SIGHUP") and (hang_up is not None or not ignored):
        numbers.append(signal.SIGHUP)
    before = [(number, signal.signal(number, heed)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _limit_to(seconds: float, code: int = 0) -> None:
    """End the process after so many ``seconds``, whatever it does then; 0 takes the limit back."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGALRM, lambda number, frame: os._exit(code))
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def _unlimited_after(told: list[int]) -> Iterator[None]:
    """Take back the limit of the first signal when all is printed: the interpreter ends without its handler."""
    try:
        yield
    finally:
        if told:
            _limit_to(0)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in a block without a loop, so that it cleans up, and end the command."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # a shell's jobs in the background ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
