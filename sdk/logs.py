"""The client's log lines: constant texts, with their details in two places.

For machines the details are fields of the record, under their own names (``extra``), and the text alone is in
``record.msg.event``. For people, whatever the formatter, they follow the text: "partition stalled (topic=orders,
partition=3, seconds=31, why=…)". One partition is ``topic`` and ``partition`` (`about`), several are ``partitions``
(`named`), and their number is ``partition_count``.

A line written while a client is inside a step is held back until the step ends (`ottla.sdk.gate`), because a handler
of the user's may call the client.
"""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

STALL = 30.0
"""Seconds without progress of a partition before that is logged."""


class LogLine:
    """A text and its details.

    Attributes:
        event: the text alone; it is constant, so you can search for it.
    """

    def __init__(self, event: str, facts: Mapping[str, object]) -> None:
        self.event, self._facts = event, facts

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self._facts.items())
        return f"{self.event} ({facts})" if facts else self.event


class Held(threading.local):
    """The lines that this thread holds back while a client is inside a step; ``None``: lines are written at once."""

    lines: list[logging.LogRecord] | None = None


HELD = Held()


def _hold(record: logging.LogRecord) -> bool:
    """A filter of loggers: whether to write the line now."""
    if HELD.lines is None:
        return True
    HELD.lines.append(record)
    return False


def emit(write: Callable[[], object]) -> None:
    """Write a line; a handler's error affects only that line, and is printed as `logging` prints such errors."""
    try:
        write()
    except Exception:
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc(file=sys.stderr)


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger of the client: ``log.warning("something happened", extra={…})``.

    Facts that are ``None`` are unknown, and left out.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 2  # skip `emit` and its lambda
        emit(lambda: super(Log, self).log(level, msg, *args, **kwargs))

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        facts = {name: value for name, value in (kwargs.get("extra") or {}).items() if value is not None}
        kwargs["extra"] = facts
        return LogLine(msg, facts), kwargs


def about(place: tuple[str, int]) -> dict[str, object]:
    """The fields that name one partition in a line."""
    return {"topic": place[0], "partition": place[1]}


def named(places: Iterable[tuple[str, int]]) -> list[str]:
    """The value of the field ``partitions``: for example ``orders-3``."""
    return [f"{topic}-{partition}" for topic, partition in places]


def logger(name: str) -> Log:
    """The log called ``name``, such as ``ottla.sdk.consumer``."""
    own = logging.getLogger(name)
    own.addFilter(_hold)  # logging adds the same function only once
    return Log(own)
