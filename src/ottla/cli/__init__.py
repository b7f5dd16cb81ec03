"""The command line: `ottla broker`, `proxy`, `topics`, `produce`, `consume`, `dump`, `demo`.

Rules of this package:
- Starting is cheap: a command imports its dependencies when it runs; ``ottla --help`` imports neither trio nor Spark. A
  server imports no other command, and no Typer unless something is wrong (`plain.py`).
- Results go to stdout, all messages to stderr. ``--json`` is for scripts: one JSON value per line.
- An error of `ottla.errors` is one line on stderr and an exit code (`exits.py`), never a traceback.

`main` is the program `ottla`. It calls `commands.py`, which lists the commands; each command, or group of commands, has
a file, and both servers are in `servers.py`. `options.py` and `command_config.py` have the shared options; `lines.py`,
`places.py` and `tables.py` read and write what people see; `logs.py` formats the log on stderr.
"""

import gc
import sys
from collections.abc import Callable


def main() -> None:
    """The entry point of the program `ottla`."""
    if sys.argv[1:2] in (["broker"], ["proxy"]):
        gc.disable()  # until everything is imported: collections would scan the same modules and classes repeatedly
        _serve(*sys.argv[1:])
    from ottla.cli.commands import app

    app(prog_name="ottla")


def _serve(name: str, *words: str) -> None:
    """Run a server and end the process; return if Typer has to parse the command line, or refuse it."""
    import typer

    from ottla.cli import plain, servers

    commands: dict[str, Callable[..., None]] = {"broker": servers.broker, "proxy": servers.proxy}
    try:
        commands[name](**plain.arguments(commands[name], words))
    except (plain.NotPlain, typer.BadParameter):
        return
    except typer.Exit as end:
        sys.exit(end.exit_code)
    sys.exit()
