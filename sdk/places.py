"""Places in a partition, as users name them."""

from datetime import datetime
from typing import Literal

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import LocalProtocolError
from ottla.sdk.machines.fetcher import Offset, Start, Time

Where = Literal["beginning", "end"] | datetime | int
"""Its beginning, its end, the first record at or after a time, or an offset."""


def start_at(where: Where) -> Start:
    """What the machine makes of it; `LocalProtocolError` for anything else."""
    match where:
        case "beginning":
            return Time(EARLIEST)
        case "end":
            return Time(LATEST)
        case datetime():
            if where.tzinfo is None:
                raise LocalProtocolError(f"{where!r} has no time zone: say which, as in datetime.now(timezone.utc)")
            return Time(int(where.timestamp() * 1000))
        case int() if where >= 0 and not isinstance(where, bool):
            return Offset(where)
    raise LocalProtocolError(f"{where!r} is no place in a partition: 'beginning', 'end', a datetime or an offset")
