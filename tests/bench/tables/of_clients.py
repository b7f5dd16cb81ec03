"""Tables of whole clients, on Apache Kafka unless they say otherwise."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.bench import first
from tests.bench.clients import canned
from tests.bench.clients.task import TRANSACTION, Task
from tests.bench.tables.stage import Stage, contest, contest_of_clients
from tests.bench.tables.table import EACH, Column, Found, Line, Table

OURS, COLUMNS, LISTS = "ottla", "ottla, columns", "ottla, lists"
ASYNCIO, UVLOOP, BLOCKING = "ottla, asyncio", "ottla, uvloop", "ottla, blocking"
CONFLUENT, CONFLUENT_TUNED = "confluent-kafka", "confluent-kafka, tuned"
AIOKAFKA, AIOKAFKA_TUNED = "aiokafka", "aiokafka, tuned"
BARE = "no client, but a program on trio that sends one request over and over"
SIZES = {100: "100 B", 1000: "1 KB", 10_000: "10 KB", 100_000: "100 KB"}
PARTITIONS = 4
Attributes = Mapping[str, Any]
"""Attributes of a `Task`."""


def _compared(who: str, what: str, *, defaults: bool = True) -> list[Column]:
    """Columns that compare a contestant with confluent-kafka: with its defaults, if asked for, and tuned."""
    return [
        *([Column(f"{what}: × {CONFLUENT}", "rate", who, CONFLUENT)] if defaults else []),
        Column(f"{what}: × {CONFLUENT_TUNED}", "rate", who, CONFLUENT_TUNED),
        Column(f"{what}: × {CONFLUENT_TUNED}, processor time", "cpu_us", who, CONFLUENT_TUNED, "better"),
    ]


def _peers(way: str) -> dict[str, Attributes]:
    return {
        CONFLUENT: {"client": "confluent", "way": way, "tuned": False},
        CONFLUENT_TUNED: {"client": "confluent", "way": way},
        AIOKAFKA: {"client": "aiokafka", "way": way, "tuned": False},
        AIOKAFKA_TUNED: {"client": "aiokafka", "way": way},
    }


def _of(name: str, way: str) -> dict[str, Attributes]:
    clients = {ASYNCIO: "ottla_asyncio", UVLOOP: "ottla_uvloop", BLOCKING: "ottla_sync"}
    return {name: {"client": clients.get(name, "ottla"), "way": way}}


CONSUME = _of(OURS, "consume") | _of(COLUMNS, "consume_columns")
PRODUCE = _of(OURS, "produce") | _of(LISTS, "produce_many")
_PAIR = (CONFLUENT, CONFLUENT_TUNED)


def _only(names: tuple[str, ...], contestants: Mapping[str, Attributes]) -> dict[str, Attributes]:
    return {name: contestants[name] for name in names}


def _on_kafka(
    stage: Stage,
    *,
    contestants: Mapping[str, Attributes],
    size: int = 1000,
    partitions: int = PARTITIONS,
    compression: str = "none",
    filled: bool = False,
    few: bool = False,
) -> Found:
    with stage.topic(stage.kafka, partitions, size, compression=compression, filled=filled) as task:
        return contest_of_clients(task, contestants, stage.amounts.few if few else stage.amounts.rounds)


def _canned(stage: Stage, *, contestants: Mapping[str, Attributes], size: int = 100) -> Found:
    with canned.running(topics=1, partitions=PARTITIONS, size=size) as bootstrap:
        task = Task(
            client="",
            way="",
            bootstrap=bootstrap,
            partitions=PARTITIONS,
            size=size,
            seconds=stage.amounts.seconds,
            warm_up=stage.amounts.warm_up,
        )
        return contest_of_clients(task, contestants, stage.amounts.few)


def _both_ways(stage: Stage, *, compression: str) -> Found:
    """Produce and consume; the contestants of reading have the name of the client and "reads"."""
    pair = (OURS, CONFLUENT_TUNED)
    wrote = _only(pair, PRODUCE | _peers("produce"))
    read = _only(pair, CONSUME | _peers("consume"))
    found = _on_kafka(stage, contestants=wrote, compression=compression)
    found |= _on_kafka(
        stage, contestants={_reads(name): each for name, each in read.items()}, compression=compression, filled=True
    )
    return found


def _reads(name: str) -> str:
    return f"{name}, reads"


def _lone(stage: Stage) -> Found:
    # The bare program has no producer id, so that Kafka does not refuse its sequence.
    bare = {BARE: {"client": "trio", "way": "lone"}}
    contestants = _of(OURS, "lone") | _of(ASYNCIO, "lone") | _of(BLOCKING, "lone")
    peers = {CONFLUENT: {"client": "confluent", "way": "lone"}, AIOKAFKA: {"client": "aiokafka", "way": "lone"}}
    return _on_kafka(stage, contestants=contestants | peers | bare, size=100)


def _paced(stage: Stage) -> Found:
    peers = {CONFLUENT: {"client": "confluent", "way": "paced"}, AIOKAFKA: {"client": "aiokafka", "way": "paced"}}
    contestants = _of(OURS, "paced") | _of("ottla, a task for each", "awaited") | peers
    return _on_kafka(stage, contestants=contestants, size=100, few=True)


def _together(stage: Stage, *, number: int) -> Found:
    peer = {"client": "aiokafka", "way": "together", "tuned": False}
    contestants = {
        OURS: {"client": "ottla", "way": "together"},
        **_of(ASYNCIO, "together"),
        **_of(UVLOOP, "together"),
        AIOKAFKA: peer | {"idempotent": False},
        "aiokafka, idempotent": peer,
        "aiokafka, idempotent, uvloop": peer | {"loop": "uvloop"},
    }
    return _several(stage, contestants, number)


def _threads(stage: Stage) -> Found:
    return _several(
        stage,
        {
            **_of(BLOCKING, "together"),
            CONFLUENT: {"client": "confluent", "way": "together", "tuned": False},
            CONFLUENT_TUNED: {"client": "confluent", "way": "together"},
        },
        16,
    )


def _several(stage: Stage, contestants: Mapping[str, Attributes], number: int) -> Found:
    contestants = {name: {**each, "together": number} for name, each in contestants.items()}
    return _on_kafka(stage, contestants=contestants, size=100, few=True)


def _transactions(stage: Stage, *, way: str, partitions: int) -> Found:
    peers = _only((CONFLUENT_TUNED, AIOKAFKA_TUNED), _peers(way))
    contestants = _of(OURS, way) | _of(BLOCKING, way) | peers
    return _on_kafka(stage, contestants=contestants, size=100, partitions=partitions, few=True)


def _long_transactions(stage: Stage) -> Found:
    way = "long_transactions"
    contestants = {
        **_of(OURS, way),
        "ottla, without transactions": PRODUCE[OURS],
        CONFLUENT_TUNED: _peers(way)[CONFLUENT_TUNED],
        "confluent-kafka, tuned, without transactions": _peers("produce")[CONFLUENT_TUNED],
    }
    return _on_kafka(stage, contestants=contestants, size=100, few=True)


def _first(stage: Stage) -> Found:
    with first.serving() as bootstrap:
        return contest({name: partial(first.run, name, bootstrap) for name in first.PROGRAMS}, stage.amounts.rounds * 2)


def _lines(labels: Mapping[Any, str], measure: Callable[..., Found], name: str, **given: Any) -> tuple[Line, ...]:
    """A line for each value of an argument."""
    return tuple(Line((label,), partial(measure, **given, **{name: value})) for value, label in labels.items())


READ = {"contestants": CONSUME | _only((*_PAIR, AIOKAFKA_TUNED), _peers("consume")), "filled": True}
READ_BY_FEWER = {"contestants": CONSUME | _only(_PAIR, _peers("consume")), "filled": True}
WRITTEN = {"contestants": PRODUCE | _only((*_PAIR, AIOKAFKA_TUNED), _peers("produce"))}
CASES = {
    "consume, read values": _of(OURS, "consume") | _peers("consume"),
    "consume as columns": _of(OURS, "consume_columns") | _peers("consume"),
    "produce one by one, flush": _of(OURS, "produce") | _peers("produce"),
    "produce with a receipt for each": _of(OURS, "receipts") | _peers("receipts"),
}
LOOPS = (ASYNCIO, UVLOOP, BLOCKING)
_TXN = (
    Column("transactions/s", "transactions", EACH, digits=0),
    Column("processor time, µs", "txn_cpu_us", EACH, digits=0),
    Column("requests", "txn_requests", EACH),
    Column("×, transactions/s", "transactions", OURS, EACH),
    Column("×, processor time", "txn_cpu_us", OURS, EACH, "better"),
)
_LATENCY = (
    Column("p50, ms", "p50_ms", EACH),
    Column("p99, ms", "p99_ms", EACH),
    Column("processor time, µs", "cpu_us", EACH, digits=0),
    Column("p50: × confluent-kafka", "p50_ms", EACH, CONFLUENT),
    Column("processor time: × confluent-kafka", "cpu_us", EACH, CONFLUENT),
)

TABLES = (
    Table(
        name="first",
        heads=("program",),
        columns=(
            Column("seconds", "seconds", EACH),
            Column("processor time, s", "cpu_s", EACH, digits=3),
            Column("modules", "modules", EACH, digits=0),
            Column("seconds: × aiokafka", "seconds", EACH, AIOKAFKA),
            Column("processor time: × aiokafka", "cpu_s", EACH, AIOKAFKA),
        ),
        lines=(Line((), _first),),
    ),
    Table(
        name="consume",
        heads=("values",),
        columns=(
            *_compared(OURS, "values"),
            *_compared(COLUMNS, "columns"),
            Column(f"values: × {AIOKAFKA_TUNED}", "rate", OURS, AIOKAFKA_TUNED, digits=1),
        ),
        lines=_lines(SIZES, _on_kafka, "size", **READ),
    ),
    Table(
        name="consume-partitions",
        heads=("values of 1 KB",),
        columns=(*_compared(OURS, "values"), *_compared(COLUMNS, "columns")),
        lines=_lines({1: "1 partition", 100: "100 partitions"}, _on_kafka, "partitions", **READ_BY_FEWER, few=True),
    ),
    Table(
        name="produce",
        heads=("values",),
        columns=(
            *_compared(OURS, "one by one"),
            *_compared(LISTS, "lists"),
            Column(f"one by one: × {AIOKAFKA_TUNED}", "rate", OURS, AIOKAFKA_TUNED, digits=1),
        ),
        lines=_lines({size: SIZES[size] for size in (100, 1000, 10_000)}, _on_kafka, "size", **WRITTEN),
    ),
    Table(
        name="compressed",
        heads=("1 KB, compressed",),
        columns=(
            *_compared(OURS, "produce", defaults=False),
            *(
                dataclasses.replace(each, who=_reads(OURS), to=_reads(CONFLUENT_TUNED))
                for each in _compared(OURS, "consume", defaults=False)
            ),
        ),
        lines=_lines({"lz4": "lz4", "zstd": "zstd"}, _both_ways, "compression"),
    ),
    Table(
        name="loops",
        heads=("case",),
        columns=tuple(Column(name.removeprefix("ottla, "), "rate", name, OURS) for name in LOOPS),
        lines=tuple(
            Line(
                (name,),
                partial(
                    _on_kafka,
                    contestants={OURS: cases[OURS]} | {loop: _of(loop, cases[OURS]["way"])[loop] for loop in LOOPS},
                    size=100,
                    filled=name.startswith("consume"),
                    few=True,
                ),
            )
            for name, cases in CASES.items()
            if "receipt" not in name
        ),
    ),
    Table(
        name="canned",
        heads=("case",),
        columns=(
            *_compared(OURS, "ottla", defaults=False),
            Column(f"ottla: × {AIOKAFKA_TUNED}", "rate", OURS, AIOKAFKA_TUNED, digits=1),
        ),
        lines=tuple(
            Line((name,), partial(_canned, contestants=_only((OURS, CONFLUENT_TUNED, AIOKAFKA_TUNED), cases)))
            for name, cases in CASES.items()
        ),
    ),
    Table(name="lone", heads=("client",), columns=_LATENCY, lines=(Line((), _lone),)),
    Table(name="paced", heads=("client",), columns=_LATENCY, lines=(Line((), _paced),)),
    Table(
        name="together",
        heads=("at once", "client"),
        columns=(
            Column("records/s", "rate", EACH, digits=0),
            Column("processor time, µs", "cpu_us", EACH, digits=1),
            Column("processor time: × aiokafka, idempotent", "cpu_us", EACH, "aiokafka, idempotent"),
            Column("processor time: × confluent-kafka", "cpu_us", EACH, CONFLUENT),
        ),
        lines=(
            *_lines({50: "50 tasks", 500: "500 tasks"}, _together, "number"),
            Line(("16 threads",), _threads),
        ),
    ),
    Table(
        name="transactions",
        heads=(f"{TRANSACTION} records to", "client"),
        columns=_TXN,
        lines=_lines({4: "4 partitions", 12: "12 partitions"}, _transactions, "partitions", way="transactions"),
    ),
    Table(
        name="long-transactions",
        heads=("client",),
        columns=(
            Column("records/s", "rate", EACH, digits=0),
            Column("processor time, µs", "cpu_us", EACH),
            Column("×, records/s", "rate", OURS, EACH),
            Column("×, processor time", "cpu_us", OURS, EACH, "better"),
        ),
        lines=(Line((), _long_transactions),),
    ),
)
