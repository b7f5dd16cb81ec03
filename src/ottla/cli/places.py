"""Partitions, times and durations as people write them; pure functions.

All raise `typer.BadParameter`, which names the option.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ottla.sdk.client import Client

Place = tuple[str, int]

_DURATION = re.compile(
    r"P?(?:(?P<days>\d+)d)?T?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?", re.IGNORECASE
)


def parse_time(text: str, option: str, also: str = "") -> datetime:
    """A time with its zone, such as 2013-07-04T12:00:00Z. ``also``: other valid inputs, for the error."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        meant = {"earliest": "beginning", "latest": "end"}.get(text, "")
        near = f"; do you mean {meant}?" if meant and meant in also else ""
        message = f"{text!r} is not {also}a time such as 2013-07-04T12:00:00Z{near}"
        raise typer.BadParameter(message, param_hint=option) from None
    if time.tzinfo is None:
        message = f"{text!r} has no time zone: write {time.isoformat()}Z, or {time.isoformat()}+02:00"
        raise typer.BadParameter(message, param_hint=option)
    return time


def format_time(timestamp: int) -> str:
    """Milliseconds since 1970, in the format of `parse_time`."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)  # beyond any meaningful year


def parse_duration(text: str, option: str) -> timedelta:
    """A duration such as 90m, 1d12h, or P1DT12H in the notation of ISO 8601."""
    match = _DURATION.fullmatch(text.strip())
    parts = {name: float(value) for name, value in match.groupdict().items() if value} if match else {}
    if not parts:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90m, 1d12h or PT1H30M", param_hint=option)
    try:
        return timedelta(**parts)
    except OverflowError:
        raise typer.BadParameter(f"{text!r:.100} is too long", param_hint=option) from None


def format_places(places: Iterable[Place]) -> str:
    """Partitions in the format of `parse_places`."""
    topics: dict[str, list[str]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(partitions)}" for topic, partitions in topics.items())


def places_as_dicts(places: Iterable[Place]) -> list[dict[str, str | int]]:
    """Partitions for JSON."""
    return [{"topic": topic, "partition": partition} for topic, partition in places]


def parse_places(texts: Iterable[str], option: str) -> list[str | Place]:
    """Parse TOPIC, or some of its partitions as TOPIC:0,1,2."""
    places: list[str | Place] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        indexes = [each.strip() for each in numbers.split(",")] if colon else []
        if not topic or not all(re.fullmatch("[0-9]{1,10}", each) for each in indexes):
            raise typer.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:0,1,2", param_hint=option)
        places += [(topic, int(each)) for each in indexes] if colon else [topic]
    return places


async def partitions_of(client: "Client", places: Iterable[str | Place]) -> list[Place]:
    """All partitions of ``places``, sorted."""
    found: set[Place] = set()
    for each in places:
        if isinstance(each, str):
            topic = await client.describe_topic(each, configs=False)
            found |= {(each, partition.partition) for partition in topic.partitions}
        else:
            found.add(each)
    return sorted(found)
