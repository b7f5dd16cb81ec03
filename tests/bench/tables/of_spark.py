"""Tables of reading in Spark, beside Spark's own connector and its `from_json`: rows a second, in millions."""

from collections.abc import Callable
from functools import partial

from tests.bench.clients.task import Figures
from tests.bench.spark import run as reading
from tests.bench.spark.run import OURS, THEIRS, WORK, Case, Cost, Work
from tests.bench.tables.stage import Stage, contest
from tests.bench.tables.table import Column, Found, Line, Table

QUERIES = {
    "all columns": "all columns",
    "aggregation": "aggregation",
    "stream, availableNow": "stream",
    "20 micro-batches, without the start": "micro-batches",
}
TOPICS = {"4 partitions, 100 B": Case(4, 100, "none"), "4 partitions, 1 KB": Case(4, 1000, "none")}
_MILLION = 10**6


def _read(stage: Stage, *, case: Case, work: Work) -> Found:
    server, count = stage.kafka, case.records(stage.amounts.spark)
    stage.once(case.topic, lambda: reading.fill(server.bootstrap, case, count))
    return _compared(stage, lambda way: reading.cost(stage.spark, server.bootstrap, case, way, work, count), count)


def _parsed(stage: Stage, *, size: int, kind: str) -> Found:
    from tests.bench.spark_json import run as parsing  # here, not above: PySpark takes a second

    case, server = parsing.Case(size, kind), stage.brokerlite
    count = stage.amounts.spark // 8 // size
    stage.once(case.topic, lambda: parsing.fill(server.bootstrap, case, count))
    return _compared(stage, lambda way: parsing.cost(stage.spark, server.bootstrap, case, way), count)


def _compared(stage: Stage, cost: Callable[[str], Cost], count: int) -> Found:
    def measure(way: str) -> Figures:
        needed = cost(way)
        return {"rate": count / needed.wall, "cpu_rate": count / needed.cpu}

    for way in (OURS, THEIRS):
        cost(way)  # the JVM compiles
    return contest({way: partial(measure, way) for way in (OURS, THEIRS)}, stage.amounts.few)


COLUMNS = (
    Column("ottla by the clock", "rate", OURS, unit=_MILLION),
    Column("×", "rate", OURS, THEIRS),
    Column("ottla by processor time", "cpu_rate", OURS, unit=_MILLION),
    Column("×", "cpu_rate", OURS, THEIRS),
)
TABLES = (
    Table(
        name="spark",
        heads=("topic", "query"),
        columns=COLUMNS,
        lines=tuple(
            Line((topic, title), partial(_read, case=case, work=WORK[name]))
            for topic, case in TOPICS.items()
            for title, name in QUERIES.items()
            if case.size == 100 or name in ("all columns", "aggregation")
        ),
    ),
    Table(
        name="spark-json",
        heads=("values",),
        columns=COLUMNS,
        lines=tuple(
            Line((label,), partial(_parsed, size=size, kind=kind))
            for label, size, kind in (
                ("100 B, five fields", 100, ""),
                ("1 KB, six fields", 1000, ""),
                ("100 B, each thousandth does not fit", 100, "bad"),
            )
        ),
    ),
)
