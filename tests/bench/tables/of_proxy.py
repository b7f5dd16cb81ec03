"""Tables of the proxy beside a direct connection."""

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.bench.clients import canned
from tests.bench.proxy.run import DIRECT, JOURNAL, PARTITIONS, PASSED, REWRITE, Case, addresses, cases
from tests.bench.tables.of_clients import SIZES
from tests.bench.tables.stage import Stage, contest
from tests.bench.tables.table import Column, Found, Line, Table

WAYS = (PASSED, REWRITE, JOURNAL)
CASES = {case.name: case for case in cases([100, 1000], ["none", "lz4"])}
_THOUSAND = 1000.0


def _measured(stage: Stage, *, case: Case, ways: tuple[str, ...], on_kafka: bool = False) -> Found:
    with (
        _broker(stage, on_kafka) as where,
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        addresses(where, Path(home), ways) as at,
    ):
        works = {way: partial(case.measure, *at[way], stage.amounts.seconds) for way in ways}
        return contest(works, stage.amounts.few)


@contextlib.contextmanager
def _broker(stage: Stage, on_kafka: bool) -> Iterator[str]:
    if on_kafka:
        with stage.kafka.topic(PARTITIONS):
            yield stage.kafka.bootstrap
    else:
        with canned.running(topics=1, partitions=PARTITIONS) as where:
            yield where


def _produced(batches: str, label: str, *sizes: tuple[int, str]) -> Iterator[Line]:
    for size, compression in sizes:
        case = CASES[f"produce, batches of {batches}, {size:,} B{compression}"]
        yield Line((f"{label}{compression}", SIZES[size]), partial(_measured, case=case, ways=WAYS))


TABLES = (
    Table(
        name="proxy",
        heads=("batches", "values"),
        columns=tuple(Column(way, "per_core", way, digits=0, unit=_THOUSAND) for way in WAYS),
        lines=(
            *_produced("1 MB", "1 MB", (100, ""), (1000, ""), (1000, ", lz4")),
            *_produced("16 KB", "16 KB, twelve in a request", (100, ""), (1000, ""), (1000, ", lz4")),
            *_produced("16 KB, one in a request", "16 KB, one in a request", (1000, "")),
        ),
    ),
    Table(
        name="proxy-latency",
        heads=("",),
        columns=(
            Column("direct, ms", "p50_ms", DIRECT),
            *(Column(f"{way}, ms", "p50_ms", way, DIRECT, "more") for way in WAYS),
        ),
        lines=tuple(
            Line((label,), partial(_measured, case=CASES[name], ways=(DIRECT, *WAYS)))
            for label, name in (
                ("one record at a time", "latency, one record, 1,000 B"),
                ("confluent-kafka, 1,000 records a second", "latency, confluent-kafka, 1,000 records/s, 1,000 B"),
            )
        ),
    ),
    Table(
        name="proxy-kafka",
        heads=("values",),
        columns=(
            Column("direct, records/s", "rate", DIRECT, digits=0),
            *(Column(way, "rate", way, DIRECT) for way in WAYS),
        ),
        lines=tuple(
            Line(
                (f"{SIZES[size]}{compression}",),
                partial(
                    _measured,
                    case=CASES[f"produce, confluent's client, {size:,} B{compression}"],
                    ways=(DIRECT, *WAYS),
                    on_kafka=True,
                ),
            )
            for size, compression in ((100, ""), (1000, ""), (1000, ", lz4"))
        ),
    ),
)
