"""What people see of names and keys that clients and brokers have chosen: never a control character.

Rules:
- A command prints line by line, with `tell` here or `say` of `stdio.py`. Both escape each line, so that no name can
  forge a second line, or control the terminal. Cells of tables are escaped before rich draws the table (`tables.py`).
- JSON is for programs, and keeps every character, as an escape of JSON. Values of records are bytes for pipes, and
  printed as they are.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ottla.errors import OttlaError

_C1 = re.compile("[\x80-\x9f\u2028\u2029]")
"""Control characters that JSON does not escape, but terminals heed."""


def escaped(text: str) -> str:
    """The text with control characters, line ends and invisible characters as escapes of Python."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def escaped_json(text: str) -> str:
    """JSON without control characters; it stays the same value."""
    return text if text.isascii() else _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class CannotWrite(OttlaError):
    """stdout or stderr takes no more, for example because the disk is full."""


@contextmanager
def writing(to: str) -> Iterator[None]:
    """Add the name of the output to errors of writing.

    Raises:
        BrokenPipeError: the reader has gone, which is no error of most commands.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite(f"cannot write to {to}: {(error.strerror or str(error)).lower()}") from None


def tell(*lines: str, err: bool = False) -> None:
    """Print lines to stdout, or to stderr if ``err`` is set, from a command without a loop."""
    with writing("stderr" if err else "stdout"):
        for line in lines:
            typer.echo(escaped(line), err=err)
