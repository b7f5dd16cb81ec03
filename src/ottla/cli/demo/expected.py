"""The results that must come out, computed from the CSV with only the standard library; pure functions.

Delays and seats are kept as sums of integers, so that results can be compared for equality.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ottla.cli.demo.flights import ARR_DELAY, CARRIER, NOT_KNOWN, ORIGIN, TAILNUM, TIME_HOUR, key_of

Partitioner = Callable[[bytes, int], int]
Days = dict[str, dict[str, int]]
"""How many flights left each airport on each day of UTC; days are written as in 2013-01-31."""
Row = tuple[str | None, str]
"""A record's key and its row as a line of the CSV."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """An analyst's figures for one carrier."""

    flights: int = 0
    aircraft: int = 0
    arrived: int = 0
    """Flights with a known delay at arrival."""
    delay: int = 0
    """Minutes, of all flights that arrived."""
    seated: int = 0
    """Flights whose aircraft is in the register, so that its seats are known."""
    seats: int = 0
    """Seats of all those flights."""


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """How a topic's aircraft are distributed over partitions."""

    records: int
    without_key: int
    aircraft: int
    scattered: int
    """Aircraft in more than one partition."""
    counted_apart: int
    """Aircraft counted per partition, and added up: the result of a service that trusts its partition."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a multiset of rows differs from the rows sent."""

    missing: int
    doubled: int
    foreign: int
    """Rows that no service sent; a row under a wrong key is one, and the right one is missing."""

    def __bool__(self) -> bool:
        return any((self.missing, self.doubled, self.foreign))


def fleets(lines: Iterable[str], seats: Mapping[str, int]) -> dict[str, Fleet]:
    """The figures of each carrier."""
    flights, arrived, minutes, seated, taken = (Counter[str]() for _ in range(5))
    aircraft: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        fields = line.split(",")
        carrier, tail_number, delay = fields[CARRIER], fields[TAILNUM], fields[ARR_DELAY]
        flights[carrier] += 1
        if delay != NOT_KNOWN:
            arrived[carrier] += 1
            minutes[carrier] += int(delay)
        if tail_number != NOT_KNOWN:
            aircraft[carrier].add(tail_number)
        if tail_number in seats:
            seated[carrier] += 1
            taken[carrier] += seats[tail_number]
    return {
        carrier: Fleet(
            flights=count,
            aircraft=len(aircraft[carrier]),
            arrived=arrived[carrier],
            delay=minutes[carrier],
            seated=seated[carrier],
            seats=taken[carrier],
        )
        for carrier, count in flights.items()
    }


def scatter(lines: Iterable[str], odd: Partitioner, even: Partitioner, partitions: int) -> Scatter:
    """How the aircraft are distributed if one partitioner places odd rows and the other even ones."""
    homes: dict[str, set[int]] = defaultdict(set)
    records = without_key = 0
    for number, line in enumerate(lines, 1):
        records += 1
        key = key_of(line)
        if key is None:
            without_key += 1
        else:
            homes[key].add((odd if number % 2 else even)(key.encode(), partitions))
    return Scatter(
        records=records,
        without_key=without_key,
        aircraft=len(homes),
        scattered=sum(len(home) > 1 for home in homes.values()),
        counted_apart=sum(map(len, homes.values())),
    )


def days(lines: Iterable[str]) -> Days:
    """The counts of all days but the last two. A stream counts a day when its watermark has passed the day's end, and
    the watermark is a day behind the newest flight."""
    found: Days = defaultdict(lambda: defaultdict(int))
    for line in lines:
        fields = line.split(",")
        found[fields[TIME_HOUR][:10]][fields[ORIGIN]] += 1
    last = sorted(found)[-2:]
    return {day: dict(airports) for day, airports in found.items() if day not in last}


def rows(lines: Iterable[str]) -> Counter[Row]:
    """The multiset of rows, each with its key."""
    return Counter((key_of(line), line) for line in lines)


def difference(sent: Counter[Row], found: Counter[Row]) -> Difference:
    """How ``found`` differs from ``sent``."""
    beyond = found - sent
    return Difference(
        missing=(sent - found).total(),
        doubled=sum(count for row, count in beyond.items() if row in sent),
        foreign=sum(count for row, count in beyond.items() if row not in sent),
    )


def seats_of(planes_csv: str) -> dict[str, int]:
    """Tail number -> seats, from the register of aircraft."""
    header, *lines = planes_csv.splitlines()
    tail_number, seats = (header.split(",").index(name) for name in ("tailnum", "seats"))
    return {fields[tail_number]: int(fields[seats]) for fields in (line.split(",") for line in lines)}


def names_of(airlines_csv: str) -> dict[str, str]:
    """Carrier -> name."""
    lines = (line.partition(",") for line in airlines_csv.splitlines()[1:])
    return {carrier: name for carrier, _, name in lines}
