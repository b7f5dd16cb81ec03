"""``--command-config FILE`` and ``-X NAME=VALUE``: how to connect, in Kafka's own names, of Java or of librdkafka.

Rules:
- A file is one of Java's properties. It is read in a thread: it may be a pipe, as in ``<(pass show kafka)``.
- What is about connections is taken, by `ottla.from_kafka_config`. What Kafka's clients know besides (producers',
  consumers') is left out with a warning, since a file may be shared; from ``-X`` it is refused. What nobody knows is
  refused.
- No message shows a value, nor a line of the file. What may be a secret is not taken from ``-X``: everybody on the
  machine can see the arguments of a command.

Source: Properties.java (load), CommandLineUtils.java.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from ottla.kafka_names import in_kafkas_names

log = logging.getLogger("ottla.cli")

_SECRET = re.compile(r"password|secret|jaas|token|credential|key\.pem|keystore\.key")
_ENTRY = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_IN_KAFKAS_TERMS = {
    r"; if it is another program's, ignore=\('[^']*',\)": "",
    r"`force`": "`--force`",
}
"""What errors advise a program to write, and what it is in a file for ``--command-config``, or as an option."""


def read(file: Path | None, settings: Iterable[str] = (), *, option: str = "--command-config") -> dict[str, Any]:
    """The arguments of `ottla.connect` that a file and settings, which go before it, stand for.

    Args:
        option: by which the file is given.

    Raises:
        BadParameter: the file cannot be read, or a setting cannot be given so.
        ConfigurationError: what a name or a value does not mean.
    """
    from ottla.sdk.kafka_config import from_kafka_config

    names = _from_file(file, option) if file is not None else {}
    names |= _from_settings(settings)
    return dict(from_kafka_config(names, lenient=True))


def in_kafkas_terms(message: str) -> str:
    """What an error says, with its advice for the command line."""
    message = in_kafkas_names(message)
    for python, name in _IN_KAFKAS_TERMS.items():
        message = re.sub(python, name, message)
    return message


def _from_file(file: Path, option: str) -> dict[str, str]:
    from ottla.sdk.kafka_meanings import is_about_connections

    try:
        data = file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint=option) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # as Java has it
    try:
        names = parse_properties(text)
    except ValueError as error:
        raise typer.BadParameter(f"{file}, {error}", param_hint=option) from None
    if others := [name for name in names if is_about_connections(name) is False]:
        log.warning("names that are not about connections are left out", extra={"file": str(file), "names": others})
    return {name: value for name, value in names.items() if name not in others}


def _from_settings(settings: Iterable[str]) -> dict[str, str]:
    from ottla.sdk.kafka_meanings import is_about_connections

    names: dict[str, str] = {}
    for number, setting in enumerate(settings, 1):
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"number {number} is not NAME=VALUE", param_hint="-X")
        if _SECRET.search(name):
            where = "everybody on this machine can see it there: put it in a file for --command-config"
            raise typer.BadParameter(f"{name} is not taken from the command line, {where}", param_hint="-X")
        if is_about_connections(name) is False:
            raise typer.BadParameter(f"{name} is not about connections: this command has options", param_hint="-X")
        names[name] = value
    return names


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a properties file; of several of a name the last counts.

    Raises:
        ValueError: an escape is none; says in which line.
    """
    names: dict[str, str] = {}
    natural = iter(enumerate(re.split(r"\r\n|[\r\n]", text), 1))
    for number, line in natural:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:  # goes on in the next line
            _, following = next(natural, (0, ""))
            line = line[:-1] + following.lstrip(" \t\f")
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "it matches anything"
        try:
            name, value = (_ESCAPE.sub(_unescaped, part) for part in entry.groups())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        try:  # Java writes what is beyond 16 bits as two escapes
            names[name] = value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise ValueError(f"line {number}: half of a pair of escapes") from None
    return names


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    if len(what) > 1:
        return chr(int(what[1:], 16))
    if what == "u":
        raise ValueError(r"\u is not followed by four hexadecimal digits")
    return _CONTROLS.get(what, what)
