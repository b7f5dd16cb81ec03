"""Places in a partition, as users name them."""

from datetime import datetime, timedelta
from typing import Literal

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import LocalProtocolError
from ottla.sdk.consume.positions import Ago, Offset, Time

Where = Literal["beginning", "end"] | datetime | timedelta | int
"""Its beginning, its end, the first record at or after a time, or since so long ago, or an offset."""


def start_at(where: Where) -> Offset | Time | Ago:
    """What the machine makes of it; `LocalProtocolError` for anything else."""
    match where:
        case "beginning":
            return Time(EARLIEST)
        case "end":
            return Time(LATEST)
        case datetime():
            if where.tzinfo is None:
                raise LocalProtocolError(f"{where} has no time zone: give it one, as in datetime.now(UTC)")
            return _since_1970(where.timestamp())
        case timedelta():
            if where < timedelta(0):
                raise LocalProtocolError(
                    f"a timedelta is so long ago, and cannot be negative: {where.total_seconds():g} s"
                )
            return Ago(where.total_seconds())
        case int() if where >= 0 and not isinstance(where, bool):
            return Offset(where)
    near = {"earliest": "; do you mean 'beginning'?", "latest": "; do you mean 'end'?"}.get(str(where), "")
    places = "'beginning', 'end', a datetime, a timedelta (so long ago) or an offset"
    raise LocalProtocolError(f"{where!r} is no place in a partition: {places}{near}")


def place_at(where: Where, wall: float) -> Offset | Time:
    """As `start_at`, where what is so long ago counts from ``wall``, in seconds since 1970."""
    start = start_at(where)
    return _since_1970(wall - start.seconds) if isinstance(start, Ago) else start


def _since_1970(seconds: float) -> Time:
    """A time before 1970 is the beginning: as negative milliseconds it would mean something else to brokers."""
    return Time(int(seconds * 1000)) if seconds >= 0 else Time(EARLIEST)
