"""Reads the configuration file of a server, when it starts and when it reloads.

Rules:
- A file whose name ends in ``.properties`` is a properties file. Every other file is TOML, where a dotted name such as
  ``log.segment.bytes`` may stand in quotation marks or not.
- Every error names the file.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ottla.errors import ConfigurationError
from ottla.properties import Properties, decode_properties, parse_properties
from ottla.setting_names import is_shown, not_shown

_BARE_TEXT = re.compile(r"""[^=#]+=\s*[^\s"'\[{#][^"']*""")
"""A line whose value is neither a text in quotation marks nor a list or a table."""
_TWICE = re.compile("Cannot overwrite a value|Cannot declare .* twice")
"""Errors of `tomllib` about a name, or a table, that a file has twice."""
OF_LOGS = ("log-format", "log-level")
"""Settings that every server's file may have."""
COMMAND_LINE = ("announce", "name", "config", "json")
"""Options of servers that a file cannot have."""
OF_ONE_SERVER = {
    "broker": (
        "acls",
        "allow-if-no-acl",
        "auto-create",
        "data",
        "group-delay",
        "node-id",
        "partitions",
        "super-users",
        "sync",
    ),
    "proxy": (
        "connect-timeout",
        "delivery-timeout",
        "first-node",
        "max-batch",
        "max-buffered",
        "max-connections",
        "max-request-bytes",
        "observe-sample",
        "report",
        "report-keys",
        "request-timeout",
        "state",
        "stats-interval",
        "topics",
        "upstream",
        "upstream-config",
    ),
}
"""Settings that only one of the servers has, for errors about files of the other one."""
_TABLES = ("topics",)
"""Tables whose names are no settings."""


@dataclass(frozen=True)
class Reloaded:
    """The result of a reload.

    Attributes:
        applied: names of changed settings that are in effect now.
        needs_restart: names of changed settings that need a restart of the server.
        warnings: what the file says without effect.
    """

    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConfigFile:
    """The settings of a file, by name as it is written there."""

    path: Path
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Read a file.

        Raises:
            ConfigurationError: the file cannot be read, or is neither TOML nor properties.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
        if path.suffix == ".properties":
            try:
                return cls(path, parse_properties(decode_properties(data)))
            except ValueError as error:
                raise ConfigurationError(f"{path}, {error}") from None
        try:
            return cls(path, dict(_flat(tomllib.loads(data.decode()))))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            line = _wrong_line(data, str(error))
            if _TWICE.match(str(error)):
                where = str(error)[str(error).rfind("(") :]
                raise ConfigurationError(f"{path}: {_name_in(line)} is there twice {where}") from None
            hint = "; put texts in quotation marks" if _BARE_TEXT.fullmatch(line) else ""
            hint = "; put names with * in quotation marks" if "*" in line.partition("=")[0] else hint
            raise ConfigurationError(f"{path} is not TOML: {error}{hint}") from None

    @property
    def of_logs(self) -> dict[str, Any]:
        """The settings that are in `OF_LOGS`."""
        return {dashed(name): value for name, value in self.settings.items() if dashed(name) in OF_LOGS}

    def others(self) -> Iterator[tuple[str, Any]]:
        """The settings that are not in `OF_LOGS`."""
        return ((name, value) for name, value in self.settings.items() if dashed(name) not in OF_LOGS)

    def error(self, text: str) -> ConfigurationError:
        """The error for a mistake in this file."""
        return ConfigurationError(f"{self.path}: {text}" if self is not NO_FILE else text)

    def unknown(self, name: str, known: Iterable[str], server: str) -> ConfigurationError:
        """The error for a name that is no setting of the server, ``"broker"`` or ``"proxy"``."""
        asked = dashed(name)
        others = (each for each, names in OF_ONE_SERVER.items() if each != server and asked in names)
        known = [*known, *OF_LOGS]
        elsewhere = [*COMMAND_LINE, *(each for names in OF_ONE_SERVER.values() for each in names)]
        if isinstance(self.settings, Properties) and not is_shown(name, [*known, *elsewhere]):
            return self.error(not_shown(self.settings, [name]))
        near = get_close_matches(asked, known, 1)
        if asked in COMMAND_LINE:
            advice = f"it is only an option of the command line: --{asked}"
        elif other := next(others, None):
            advice = f"it is one of the {other}"
        else:
            advice = f"do you mean {near[0]}?" if near else f"docs/{server}.md lists them"
        return self.error(f"{name!r} is not a setting of the {server}: {advice}")


def one_of(names: Iterable[str]) -> str:
    """Names as a choice: ``a, b or c``."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _wrong_line(data: bytes, error: str) -> str:
    """The line that an error of `tomllib` names; empty if it names none."""
    found = re.search(r"at line (\d+)", error)
    lines = data.decode(errors="replace").splitlines()
    if error.endswith("(at end of document)") and lines:
        return lines[-1]
    return lines[int(found[1]) - 1] if found and int(found[1]) <= len(lines) else ""


def _name_in(line: str) -> str:
    """The name in a line of TOML; only the last line of a long value may have none."""
    name, equals, _ = line.partition("=")
    return name.strip() if equals or name.strip().startswith("[") else "a name"


def dashed(name: str) -> str:
    """A name of ours as users write it."""
    return name.replace("_", "-")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and prefix + name not in _TABLES:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


NO_FILE = ConfigFile(Path(), {})
"""Stands for the file where there is none."""
