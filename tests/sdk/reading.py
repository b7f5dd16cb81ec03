"""Make a fetcher and read with it."""

from collections.abc import Mapping
from typing import Any

from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Start
from ottla.sdk.consume.reading.fetcher import Fetcher
from tests.sdk.leaders import Leaders
from tests.sim.data import Place


def reader(leaders: Leaders, starts: Mapping[Place, Start], **options: Any) -> Fetcher:
    """A fetcher that reads from these offsets."""
    fetcher = Fetcher(leaders.core, **options)
    fetcher.assign(starts, leaders.now)
    return fetcher


def values(fetched: Fetched) -> list[bytes]:
    return [record.value or b"" for record in fetched.records()]


def read(leaders: Leaders, fetcher: Fetcher, count: int, limit: float = 60.0) -> dict[Place, list[bytes]]:
    """The next ``count`` records, by partition; fails if more arrive."""
    got: dict[Place, list[bytes]] = {}
    while sum(map(len, got.values())) < count:
        fetched = fetcher.take()
        if fetched is None:
            leaders.run(fetcher.wait(), limit)
        else:
            got.setdefault((fetched.topic, fetched.partition), []).extend(values(fetched))
    assert sum(map(len, got.values())) == count
    return got
