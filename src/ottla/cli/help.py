"""The help of the program itself, `ottla --help`, which imports no command.

Typer would import all commands, rich and pydantic to print it, which takes six times as long. Typer prints the help of
each command, and also this one where it does not fit. A test compares the words of both.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap

ABOUT = "Kafka's little sister: a broker, a proxy that puts equal keys together, and tools for any Kafka."
EXIT_CODES = (
    "Exit codes: 0 done, 1 refused or failed, 2 an option, address or file cannot be used, 3 unreachable or timed out, "
    "130 Ctrl-C, 143 SIGTERM, 129 SIGHUP. The broker and the proxy end with 0 on SIGTERM and SIGHUP."
)
OPTIONS = {
    "--version": "Print the version and the codec's engine.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "--help  -h": "Show this message and exit.",
}
COMMANDS = {
    "offsets": "Show the offsets of topics: where they begin and end, or at a time, or the committed offsets of a "
    "group.",
    "produce": "Send lines from stdin or a file as records, and wait until the broker has stored them all.",
    "consume": "Print the records of a topic, and wait for more until Ctrl-C, --count or --until-end.",
    "dump": "Show the contents of Kafka's files (logs, indexes, snapshots, checkpoints) and of captured frames.",
    "demo": "Run the demo: real flights, two services that disagree where a key goes, a proxy that settles it, and "
    "PySpark.",
    "broker": "Run a small Kafka-compatible broker, for laptops, CI and the edge.",
    "proxy": "Run a proxy that puts records with equal keys into one partition, whatever partitioner their clients "
    "use.",
    "topics": "Create, list, describe, configure, grow and delete topics.",
    "groups": "List, describe, delete and reset consumer groups.",
    "share": "List, describe, delete and reset share groups.",
    "transactions": "List, describe and abort transactions, and fence producers.",
    "acls": "List, add and delete ACLs, which say who may do what.",
    "users": "List, add and delete users that log in with a password.",
    "perf": "Measure throughput and latency.",
}
"""The first paragraph of each command's docstring, in the order in which Typer shows the commands."""

_NARROWEST = 50
_BOLD, _CYAN, _YELLOW, _DIM, _PLAIN = "\33[1m", "\33[1;36m", "\33[33m", "\33[2m", "\33[0m"


def shown() -> bool:
    """Print the help, unless Typer has to do it: for a narrow terminal, or one without Unicode."""
    width = _width()
    if sys.stdout is None or sys.stdout.encoding.lower() != "utf-8" or width < _NARROWEST:
        return False
    terminal = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        print("\n".join(lines(width, colored=terminal)), flush=True)
    except BrokenPipeError:  # the interpreter flushes stdout again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    try:
        return int(columns) if columns.isdigit() else os.get_terminal_size(sys.stdout.fileno()).columns
    except (AttributeError, OSError, ValueError):  # it is no terminal
        return 80


def lines(width: int, *, colored: bool) -> Iterator[str]:
    """The help in lines of ``width`` characters at most."""

    def painted(color: str, text: str) -> str:
        return f"{color}{text}{_PLAIN}" if colored else text

    def paragraph(text: str) -> Iterable[str]:
        return [f" {line}" for line in wrap(text, width - 2)]

    def box(title: str, rows: Mapping[str, str]) -> Iterator[str]:
        yield painted(_DIM, f"╭─ {title} {'─' * (width - len(title) - 5)}╮")
        side, names = painted(_DIM, "│"), max(map(len, rows))
        for name, text in rows.items():
            for line in wrap(text, width - names - 6):
                yield f"{side} {painted(_CYAN, name.ljust(names))}  {line.ljust(width - names - 6)} {side}"
                name = ""
        yield painted(_DIM, f"╰{'─' * (width - 2)}╯")

    yield ""
    yield f" {painted(_YELLOW, 'Usage:')} {painted(_BOLD, 'ottla [OPTIONS] COMMAND [ARGS]...')}"
    yield from ("", *paragraph(ABOUT), "")
    yield from (*box("Options", OPTIONS), *box("Commands", COMMANDS), "")
    yield from (*paragraph(EXIT_CODES), "")
