"""The client's log lines: constant texts, whose facts are given twice.

For machines the facts are fields of the record, under their own names (``extra``), and the text alone is in
``record.msg.event``. For people, whatever formatter there happens to be, they stand behind the text: "a partition is
stalled (topic=orders, partition=3, seconds=31, why=…)".

A line that is written while a client is in the midst of a step is held until the step is over (`ottla.sdk.gate`): a
handler of the user's may call the client.
"""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

STALL = 30.0
"""Seconds for which a partition may take or give nothing before that is reported."""


class Line:
    """A text and its facts.

    Attributes:
        event: the text alone, which stays the same and so can be searched for.
    """

    def __init__(self, event: str, facts: Mapping[str, object]) -> None:
        self.event, self._facts = event, facts

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self._facts.items() if value is not None)
        return f"{self.event} ({facts})" if facts else self.event


class Held(threading.local):
    """Where the lines of this thread are kept while a client is in the midst of a step; ``None``: they are written."""

    lines: list[logging.LogRecord] | None = None


HELD = Held()


def _hold(record: logging.LogRecord) -> bool:
    """A filter of loggers: whether the line is to be written now."""
    if HELD.lines is None:
        return True
    HELD.lines.append(record)
    return False


def emit(write: Callable[[], object]) -> None:
    """Write a line; what a handler raises ends nothing but the line, and is shown as `logging` shows such errors."""
    try:
        write()
    except Exception:
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc(file=sys.stderr)


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger of the client: ``log.warning("what happened", extra={…})``."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 2  # `emit` and its function are not who writes
        emit(lambda: super(Log, self).log(level, msg, *args, **kwargs))

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return Line(msg, kwargs.get("extra") or {}), kwargs


def logger(name: str) -> Log:
    """The log called ``name``, such as ``ottla.sdk.consumer``."""
    own = logging.getLogger(name)
    own.addFilter(_hold)  # the same function each time, so it is there once
    return Log(own)
