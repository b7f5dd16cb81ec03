"""Converts the starts that users name, such as ``"end"``, into the machines' starts."""

from datetime import datetime, timedelta
from typing import Literal

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.records import BEYOND
from ottla.errors import ConfigurationError
from ottla.sdk.consume.partitions.position import Ago, Offset, Time

Where = Literal["beginning", "end"] | datetime | timedelta | int
"""The beginning, the end, the first record at or after a time, the first since a time span ago, or an offset."""


def start_at(where: Where) -> Offset | Time | Ago:
    """The start that ``where`` names; raises `ConfigurationError` for any other value."""
    match where:
        case "beginning":
            return Time(EARLIEST)
        case "end":
            return Time(LATEST)
        case datetime():
            if where.tzinfo is None:
                raise ConfigurationError(f"{where} has no time zone: give it one, as in datetime.now(UTC)")
            return _since_1970(where.timestamp())
        case timedelta():
            if where < timedelta(0):
                raise ConfigurationError(
                    f"a timedelta counts backwards from now and cannot be negative: {where.total_seconds():g} s"
                )
            return Ago(where.total_seconds())
        case int() if 0 <= where < BEYOND and not isinstance(where, bool):
            return Offset(where)
    near = {"earliest": "; do you mean 'beginning'?", "latest": "; do you mean 'end'?"}.get(str(where), "")
    choices = "'beginning', 'end', a datetime, a timedelta (before now) or an offset"
    raise ConfigurationError(f"{where!r} is not a place in a partition: use {choices}{near}")


def fixed_start_at(where: Where, wall: float) -> Offset | Time:
    """Like `start_at`, with a timedelta counted back from ``wall``, in seconds since 1970."""
    start = start_at(where)
    return _since_1970(wall - start.seconds) if isinstance(start, Ago) else start


def _since_1970(seconds: float) -> Time:
    """A time as a start. Before 1970 it is the beginning: brokers have other meanings for negative timestamps."""
    return Time(int(seconds * 1000)) if seconds >= 0 else Time(EARLIEST)
