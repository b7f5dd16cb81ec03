"""The command line: `ottla broker`, `proxy`, `topics`, `produce`, `consume`, `dump`, `demo`.

Rules of this package:
- Starting is cheap: a command imports its dependencies when it runs; ``ottla --help`` imports no command (`help.py`). A
  server, `consume` and `produce` import no other command, and do not parse by Typer unless something is wrong
  (`plain.py`).
- A command runs once, even if Typer has to print its error: its files may be pipes, which are empty the second time.
- Results go to stdout, all messages to stderr. ``--json`` is for scripts: one JSON value per line.
- An error of `ottla.errors` is one line on stderr and an exit code (`exits.py`), never a traceback.

`main` is the program `ottla`. It calls `commands.py`, which lists the commands; each command, or group of commands, has
a file, and both servers are in `servers.py`. `options.py` and `command_config.py` have the shared options; `lines.py`,
`places.py`, `nodes.py` and `tables.py` read and write what people see; `resets.py` and `group_types.py` are for groups
of every type; `logs.py` formats the log on stderr.
"""

import atexit
import gc
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.uncollected import uncollected

if TYPE_CHECKING:
    from typer import BadParameter

_PLAIN = {
    "broker": "ottla.cli.servers",
    "proxy": "ottla.cli.servers",
    "consume": "ottla.cli.consume",
    "produce": "ottla.cli.produce",
}
"""The commands whose plain command lines are parsed without Typer, and their modules."""


def main() -> None:
    """The entry point of the program `ottla`."""
    atexit.register(_drop_what_stderr_does_not_take)
    try:
        _main()
    except Exception as error:
        from ottla.cli import exits

        exits.end_if_full(error)
        raise


def _drop_what_stderr_does_not_take() -> None:
    """Without this, the interpreter would end with exit code 120, because its last flush fails."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except AttributeError:  # there is no stderr at all
        pass


def _main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's jobs in the background ignore it
        # Not by an exception: from within an import, it would print a traceback, or even get lost in a callback.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    if sys.argv[1:2] in (["broker"], ["proxy"]):
        gc.disable()  # until everything is imported: collections would scan the same modules and classes repeatedly
        if any(word.startswith("--config") for word in sys.argv) and hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it has a file to reload, which is read later anyway
    if sys.argv[1:] in (["--help"], ["-h"]):
        from ottla.cli import help

        if help.shown():
            return
    refused = None
    if module := _PLAIN.get(*sys.argv[1:2] or [""]):
        refused = _run(module, *sys.argv[1:])
    with uncollected():
        from ottla.cli import commands

    if refused is None:
        commands.app(prog_name="ottla")
    else:
        commands.explain(refused)


def _run(module: str, name: str, *words: str) -> "BadParameter | None":
    """Run a command and end the process, unless Typer is needed.

    Returns:
        ``None`` if Typer has to parse the command line, or refuse it; the error of a command that refused it.
    """
    with uncollected():
        import typer

        from ottla.cli import plain

        command = getattr(import_module(module), name)
    try:
        arguments = plain.arguments(command, words)
    except (plain.NotPlain, typer.BadParameter):
        return None
    try:
        command(**arguments)
    except typer.BadParameter as error:
        return error
    except typer.Exit as end:
        sys.exit(end.exit_code)
    sys.exit()
