"""A server's configuration file: read when the server starts, and again at SIGHUP and ``POST /reload``.

Rules:
- Options of the command line keep their precedence over the file.
- A file that cannot be used changes nothing: the server continues as before.
- A setting that needs a restart is named each time, until the server was started again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.logs import LogFormat, LogLevel, configure
from ottla.config_file import ConfigFile, Reloaded, one_of
from ottla.errors import ConfigurationError

log = logging.getLogger("ottla.cli")


class ServerLogs(NamedTuple):
    """How a server logs."""

    format: LogFormat
    level: LogLevel

    def apply(self) -> None:
        configure(self.format, self.level)


def server_logs(file: ConfigFile, format: LogFormat | None = None, level: LogLevel | None = None) -> ServerLogs:
    """The log settings of options or, where they are ``None``, of the file.

    Raises:
        ConfigurationError: the file has an invalid value.
    """
    given = file.of_logs
    found: list[Any] = []
    for name, kind, option, default in (
        ("log-format", LogFormat, format, LogFormat.TEXT),
        ("log-level", LogLevel, level, LogLevel.INFO),
    ):
        try:
            found.append(option or kind(given.get(name, default)))
        except ValueError:
            raise file.error(f"{name} is {given[name]!r}; it must be {one_of(kind)}") from None
    return ServerLogs(*found)


def log_warnings(warnings: Sequence[str]) -> None:
    """Log what a configuration says without effect."""
    for each in warnings:
        log.warning("setting without effect: %s", each)


class Configuration:
    """The settings of a running server, and how they change.

    Args:
        path: the file.
        read_logs: returns the log settings of the file and the command line.
        read: returns their configuration, a dataclass.
        live: names of fields that can change while the server runs -> how, in the order in which they are changed.
            Each may raise `ConfigurationError`; those before it are in effect then.
        name_of: returns a field's name in a file.
        warnings: returns what a configuration says without effect; each is logged.
    """

    def __init__(
        self,
        path: Path,
        read_logs: Callable[[ConfigFile], ServerLogs],
        read: Callable[[ConfigFile], Any],
        live: Mapping[str, Callable[[Any, Any], None]],
        name_of: Callable[[str], str],
        warnings: Callable[[Any], Sequence[str]] = lambda config: (),
    ) -> None:
        self._warnings = warnings
        self._path, self._read_logs, self._read = path, read_logs, read
        self._live, self._name_of = live, name_of
        file = ConfigFile.read(path)
        self._logs = read_logs(file)
        self._logs.apply()  # before the configuration is read, which may log a warning
        self._config = read(file)
        log_warnings(self._warnings(self._config))

    @property
    def config(self) -> Any:
        """The configuration that is in effect."""
        return self._config

    def reload(self, running: Any) -> Reloaded:
        """Read the file again, apply the changes, and log settings that need a restart.

        Raises:
            ConfigurationError: the file cannot be used; the server keeps the previous one.
        """
        try:
            logs, config = self._read_again()
        except ConfigurationError as error:
            log.error("configuration not reloaded, the server keeps the previous one: %s", error)
            raise
        changed = [
            field.name for field in fields(config) if getattr(config, field.name) != getattr(self._config, field.name)
        ]
        applied = []
        for name, change in self._live.items():
            if name in changed:
                value = getattr(config, name)
                try:
                    change(running, value)
                except ConfigurationError as error:
                    log.error("changed setting cannot be used, the server keeps the previous one: %s", error)
                    raise
                self._config = replace(self._config, **{name: value})
                applied.append(self._name_of(name))
        applied += [f"log-{name}" for name in logs._fields if getattr(logs, name) != getattr(self._logs, name)]
        logs.apply()
        self._logs = logs
        left = [self._name_of(name) for name in changed if name not in self._live]
        log.info("configuration reloaded", extra={"file": str(self._path), "applied": ", ".join(applied) or "nothing"})
        if left:
            log.warning("changed settings need a restart of the server", extra={"settings": ", ".join(left)})
        warnings = tuple(self._warnings(config))
        log_warnings(warnings)
        return Reloaded(tuple(applied), tuple(left), warnings)

    def _read_again(self) -> tuple[ServerLogs, Any]:
        try:
            if not self._path.is_file():  # a pipe would block
                raise ConfigurationError(f"{self._path} is no file that can be read again")
            file = ConfigFile.read(self._path)
            return self._read_logs(file), self._read(file)
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._path}: {error.strerror}") from None

    def hang_up(self, running: Any) -> None:
        """Reload at SIGHUP; errors are in the log only."""
        try:
            self.reload(running)
        except ConfigurationError:
            pass
        except Exception:
            log.exception("a bug, please report it: the configuration cannot be reloaded")
