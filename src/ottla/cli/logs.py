"""Logs: one line for each event on stderr, as text for people or as JSON for machines.

Rules:
- Everything passed as ``extra`` is printed; messages are constant, so you can search for them.
- Names chosen by clients are printed, too, and may contain anything: control characters are escaped, so that a client
  can neither fake a log line nor control the terminal.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from ottla.cli.escapes import escaped
from ottla.kafka_names import in_kafkas_names

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def extras(record: logging.LogRecord) -> dict[str, object]:
    """The values passed as ``extra``; advice for programs in them is put into Kafka's names, as in errors."""
    given = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return {key: in_kafkas_names(value) if isinstance(value, str) else value for key, value in given.items()}


def _text(record: logging.LogRecord) -> str:
    """The message without the extras, which the client's messages repeat."""
    return in_kafkas_names(getattr(record.msg, "event", None) or record.getMessage())


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO    ottla.brokerlite  ready  listen=127.0.0.1:9092 node=1``"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {record.name}  {escaped(_text(record))}"
        if given := extras(record):
            line += "  " + " ".join(f"{key}={_quoted(value)}" for key, value in given.items())
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            line = "\n  ".join((line, *map(escaped, lines)))  # indented, as an exception may have several lines
        return line


def _quoted(value: object) -> str:
    text = str(value)
    return escaped(json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=') else text)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, the extras, and an exception's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text(record),
            **extras(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # in ASCII: clients choose names, and terminals obey control characters


def configure(format: LogFormat, level: LogLevel) -> None:
    """Send ottla's logs of at least this level, and other libraries' warnings, to stderr.

    A line is written at once: while stderr is a full pipe, it blocks the loop (`exits.py`).
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format is LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("ottla").setLevel(level.name)
