"""The cases of the clients' benchmark, each in every way that a client has."""

from dataclasses import dataclass
from typing import Literal

from tests.bench.clients.canned import ENDLESS
from tests.bench.clients.task import TRANSACTION, Figures


@dataclass(frozen=True)
class Column:
    """A figure of a case.

    Attributes:
        figure: its name (`tests.bench.clients.task`).
        better: which direction is better, if the table compares others with ottla.
    """

    figure: str
    title: str
    digits: int = 0
    better: Literal["more", "less"] | None = None

    def ratio(self, ours: Figures, theirs: Figures) -> float:
        """How many times better ottla is."""
        good, bad = (ours, theirs) if self.better == "more" else (theirs, ours)
        return good[self.figure] / bad[self.figure]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Several clients that do the same work.

    Attributes:
        ours: the way of ottla's module with which others are compared.
        theirs: names of `MODULES`, and the way of each.
        rounds: the number of rounds, in each of which every client works once.
        seconds: the work of each client in a round, after a warm-up.
        topics, partitions, end: the contents of the broker (`CannedBroker`).
        reads: whether a real broker must get records first.
        steady: whether growth of memory is measured; only the canned broker has enough to read.
        kills: whether nodes of a cluster are killed meanwhile.
        transactional: whether the broker must support transactions.
    """

    name: str
    columns: tuple[Column, ...]
    ours: str
    theirs: dict[str, str]
    rounds: int = 5
    seconds: float = 2.0
    topics: int = 1
    partitions: int = 4
    end: int = ENDLESS
    reads: bool = False
    steady: bool = False
    kills: bool = False
    transactional: bool = False


PEERS = {"confluent-kafka": "confluent", "aiokafka": "aiokafka", "kafka-python": "kafka_python"}
"""Distribution -> the suffix of its module's name."""
OURS, AWAITED, ASYNCIO, UVLOOP = "ottla", "ottla, a task for each", "ottla, asyncio", "ottla, uvloop"
SYNC = "ottla, blocking"
BARE = "a bare trio program"
OUTSIDE, THEIRS_OUTSIDE = "ottla, without transactions", "confluent-kafka, without"
MODULES = PEERS | {
    OURS: "ottla",
    AWAITED: "ottla",
    ASYNCIO: "ottla_asyncio",
    UVLOOP: "ottla_uvloop",
    SYNC: "ottla_sync",
    BARE: "trio",
    OUTSIDE: "ottla",
    THEIRS_OUTSIDE: "confluent",
}
"""The same value for every line of a table."""
RATE = (
    Column("rate", "records/s", 0, "more"),
    Column("cpu_us", "µs of CPU", 2, "less"),
)
LATENCY = (
    Column("p50_ms", "p50 in ms", 2, "less"),
    Column("p99_ms", "p99 in ms", 2, "less"),
    Column("max_ms", "max in ms", 1),
    Column("cpu_us", "µs of CPU", 0),
)
LONE = (*LATENCY[:2], Column("cpu_us", "µs of CPU", 0, "less"))
KILLS = (
    Column("acknowledged", "acknowledged/s", 0, "more"),
    Column("silence", "silence in s", 2, "less"),
    Column("p99_ms", "p99 in ms", 0),
    Column("failed", "failed"),
)
GROWTH = (
    Column("growth_mb", "MB in 10⁷", 2),
    Column("memory_mb", "MB at the end", 1),
    Column("rate", "records/s"),
)
EACH = (
    Column("ready_s", "s until ready", 2, "less"),
    Column("ready_cpu_s", "s of CPU", 2, "less"),
    Column("idle_cpu", "idle, of a core", 4),
    Column("memory_mb", "MB", 1),
)
TRANSACTIONS = (
    Column("transactions", "transactions/s", 1, "more"),
    Column("txn_cpu_us", "µs of CPU", 0, "less"),
    Column("txn_requests", "requests", 2, "less"),
)
MANY = {"topics": 1000, "partitions": 5, "end": 1, "rounds": 3, "seconds": 5.0}


def all_commit(way: str) -> dict[str, str]:
    """The transactional ways of clients; without kafka-python, which does not report its number of requests."""
    return dict.fromkeys(("confluent-kafka", "aiokafka", ASYNCIO, UVLOOP, SYNC), way)


def all_do(way: str, ours: str | None = None) -> dict[str, str]:
    """The ways of other clients, and of ottla on the other loops and without one; `Case.ours` is on trio."""
    return dict.fromkeys(PEERS, way) | (dict.fromkeys((ASYNCIO, UVLOOP, SYNC), ours) if ours else {})


CASES = [
    Case(name="consume, read values", columns=RATE, ours="consume", theirs=all_do("consume", "consume"), reads=True),
    Case(
        name="consume as columns",
        columns=RATE,
        ours="consume_columns",
        theirs=all_do("consume", "consume_columns"),
        reads=True,
    ),
    Case(name="produce one by one, flush", columns=RATE, ours="produce", theirs=all_do("produce", "produce")),
    Case(
        name="produce lists, flush",
        columns=RATE,
        ours="produce_many",
        theirs=all_do("produce", "produce_many") | {"confluent-kafka": "produce_many"},
    ),
    Case(name="produce with a receipt for each", columns=RATE, ours="receipts", theirs=all_do("receipts", "receipts")),
    Case(
        name="produce lists with a receipt for each",
        columns=RATE,
        ours="receipts_many",
        theirs=all_do("receipts", "receipts_many"),
    ),
    Case(
        name="a send that is awaited, and the next",
        columns=LONE,
        ours="lone",
        theirs={**all_do("lone", "lone"), BARE: "lone"},
    ),
    *(
        Case(
            name=f"transactions of {TRANSACTION} records to {partitions} partitions",
            columns=TRANSACTIONS,
            ours="transactions",
            theirs=all_commit("transactions"),
            partitions=partitions,
            seconds=5.0,
            transactional=True,
        )
        for partitions in (4, 12)
    ),
    Case(
        name="transactions of a second",
        columns=RATE,
        ours="long_transactions",
        theirs={OUTSIDE: "produce", **all_commit("long_transactions"), THEIRS_OUTSIDE: "produce"},
        seconds=5.0,
        transactional=True,
    ),
    Case(
        name="latency from send to receipt",
        columns=LATENCY,
        ours="paced",
        theirs={AWAITED: "awaited", **all_do("paced", "paced")},
        rounds=1,
        seconds=60.0,
    ),
    Case(
        name="acknowledged while nodes are killed",
        columns=KILLS,
        ours="paced",
        theirs=all_do("paced"),
        rounds=1,
        seconds=60.0,
        partitions=6,
        kills=True,
    ),
    Case(
        name="memory while records are consumed",
        columns=GROWTH,
        ours="consume",
        theirs={"confluent-kafka": "consume"},
        rounds=1,
        steady=True,
    ),
    Case(
        name="memory while records are produced",
        columns=GROWTH,
        ours="produce",
        theirs={"confluent-kafka": "produce"},
        rounds=1,
        steady=True,
    ),
    Case(
        name="a record to each of 5,000 partitions",
        columns=EACH,
        ours="write_each",
        theirs=all_do("write_each"),
        **MANY,  # type: ignore[arg-type] # mypy takes any value for any argument
    ),
    Case(
        name="a record from each of 5,000 partitions",
        columns=EACH,
        ours="read_each",
        theirs=all_do("read_each"),
        reads=True,
        **MANY,  # type: ignore[arg-type] # mypy takes any value for any argument
    ),
]
