"""Partitions, times and durations as people write them."""

from datetime import UTC, datetime, timedelta

import pytest
import typer

from ottla.cli.places import parse_duration, parse_places, parse_time


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90m", timedelta(minutes=90)),
        ("1d12h", timedelta(hours=36)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P7D", timedelta(days=7)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_is_short_or_iso_8601(text: str, duration: timedelta) -> None:
    assert parse_duration(text, "--x") == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "1h ago", "-1h", "1w", "h", "9" * 5000 + "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text, "--x")


def test_a_time_has_a_zone_and_is_refused_without_with_what_would_do() -> None:
    assert parse_time("2013-07-04T12:00:00Z", "--x") == datetime(2013, 7, 4, 12, tzinfo=UTC)
    assert parse_time("2013-07-04T14:00:00+02:00", "--x") == datetime(2013, 7, 4, 12, tzinfo=UTC)
    for text in ("2013-07-04T00:00:00", "2013-07-04 00:00", "2013-07-04"):
        with pytest.raises(typer.BadParameter, match=r"has no time zone: write 2013-07-04T00:00:00Z, or .*\+02:00"):
            parse_time(text, "--x")


def test_places_are_topics_or_some_of_their_partitions() -> None:
    assert parse_places(["t", "u:0,2"], "--x") == ["t", ("u", 0), ("u", 2)]
    for text in ("", ":1", "t:", "t:a", "t:1,", "t:-1", "t:" + "9" * 5000):
        with pytest.raises(typer.BadParameter):
            parse_places([text], "--x")
