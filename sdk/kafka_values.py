"""Converts values of Kafka's configurations to ottla's: strings, as in a properties file, or Python's own values.

An option is declared with Kafka's names for it, and with the converter of the values of each; see
`ottla.sdk.options.option`. Every converter raises `ConfigurationError` for a value that Kafka's clients would refuse.

Source: ProducerConfig.java, ConsumerConfig.java, AdminClientConfig.java; librdkafka's CONFIGURATION.md.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ottla.errors import ConfigurationError

_LONGEST = (2**31 - 1) / 1000
"""Kafka's largest number of milliseconds, in seconds."""


def text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value).strip()


def number(value: Any) -> int:
    try:
        return int(text(value))
    except ValueError:
        raise ConfigurationError(f"{value!r} is not an integer") from None


def milliseconds(value: Any) -> float:
    """Milliseconds to seconds; librdkafka accepts fractions, too."""
    try:
        given = float(text(value))
    except ValueError:
        given = math.nan
    if not math.isfinite(given):
        raise ConfigurationError(f"{value!r} is not a number of milliseconds")
    return given / 1000


def milliseconds_or_never(value: Any) -> float:
    return math.inf if text(value) in ("-1", "0") else milliseconds(value)


def milliseconds_or_longest(value: Any) -> float:
    return min(milliseconds_or_never(value), _LONGEST)


def milliseconds_or_unlimited(value: Any) -> float:
    """For librdkafka's message.timeout.ms; Java's delivery.timeout.ms, a synonym here, cannot be 0."""
    return milliseconds(value) or _LONGEST


def pause(value: Any) -> float:
    if not (seconds := milliseconds(value)):
        raise ConfigurationError("0 would mean retrying without a pause: the minimum is 1")
    return seconds


def timeout(value: Any) -> float:
    if not (seconds := milliseconds(value)):
        raise ConfigurationError("0 would leave no time for anything: the minimum is 1")
    return seconds


def interval(value: Any) -> float:
    if not (seconds := milliseconds(value)):
        raise ConfigurationError(
            "0 means at every poll to Java and never to librdkafka: use 1, or enable.auto.commit=false"
        )
    return seconds


def size(value: Any) -> int:
    """A limit that always lets one record, or one batch, through: 0 means the same as 1."""
    return 1 if number(value) == 0 else number(value)


def boolean(value: Any) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}.get(text(value).lower())
    if known is None:
        raise ConfigurationError(f"{value!r} is neither true nor false")
    return known


def level(value: Any) -> int | None:
    return None if text(value) == "-1" else number(value)  # -1: the default of the codec's library


def kilobytes(value: Any) -> int:
    return number(value) * 1024


def servers(value: Any) -> str:
    if not all(isinstance(each, str) for each in (value if isinstance(value, list | tuple) else [value])):
        raise ConfigurationError(f"{value!r} is neither host:port nor a list of them")
    return text(value).replace("PLAINTEXT://", "")


def acks(value: Any) -> str | int:
    return "all" if text(value).lower() in ("all", "-1") else number(value)


def one_of(choices: Mapping[str, str]) -> Callable[[Any], str]:
    """A converter for case-insensitive words; of the name of a Java class only the last part counts."""

    def convert(value: Any) -> str:
        word = text(value).rpartition(".")[2].lower()
        if word not in choices:
            raise ConfigurationError(f"{value!r} is not one of {', '.join(choices)}")
        return choices[word]

    return convert


group_protocol = one_of({each: each for each in ("classic", "consumer", "auto")})

acknowledgement_mode = one_of({each: each for each in ("explicit", "implicit")})

acquire_mode = one_of({each: each for each in ("record_limit", "batch_optimized")})

isolation = one_of({each: each for each in ("read_uncommitted", "read_committed")})

partitioner_class = one_of({"roundrobinpartitioner": "round_robin"})
"""Java's ``partitioner.class``."""

partitioner = one_of(
    {each: each for each in ("consistent", "consistent_random", "fnv1a_random", "murmur2_random", "random")}
)
"""librdkafka's ``partitioner``."""

_assignor = one_of(
    {
        "range": "range",
        "rangeassignor": "range",
        "roundrobin": "roundrobin",
        "roundrobinassignor": "roundrobin",
        "sticky": "sticky",
        "stickyassignor": "sticky",
        "cooperative-sticky": "cooperative-sticky",
        "cooperativestickyassignor": "cooperative-sticky",
    }
)


def assignors(value: Any) -> tuple[str, ...]:
    return tuple(_assignor(each) for each in text(value).split(",") if each.strip())


_DURATION = r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?"


def start(value: Any) -> str | timedelta:
    word = text(value)
    if word.startswith("by_duration:"):
        found = re.fullmatch(_DURATION, word.removeprefix("by_duration:"), re.IGNORECASE)
        if not found or not any(found.groups()):
            raise ConfigurationError(f"{word!r} has no duration such as P1DT6H")
        try:
            days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except (ValueError, OverflowError):
            raise ConfigurationError(f"{word!r} is not a valid duration") from None
    places = {"earliest": "beginning", "smallest": "beginning", "beginning": "beginning"}
    places |= {"latest": "end", "largest": "end", "end": "end"}
    places |= {"none": "error", "error": "error"}
    if word not in places:
        raise ConfigurationError(f"{value!r} is not one of earliest, latest, none, by_duration:<PnDTnHnMn.nS>")
    return places[word]
