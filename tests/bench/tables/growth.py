"""The table of growth: the time and memory that a number of things takes, from one of them to thousands.

Every number has a broker of its own: brokerlite, except for topics in a client, which need a broker that costs nothing.
A column says what each thing takes. If it rises, the whole grows faster than linearly.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from tests.bench.brokers import crowd
from tests.bench.brokers.server import Brokerlite, Server
from tests.bench.clients import canned
from tests.bench.clients.task import Figures, Task
from tests.bench.tables.stage import Stage, contest, run, running
from tests.bench.tables.table import EACH, Column, Found, Line, Row, Table

STEEP = 1.5
"""How much more each thing may take than with a tenth of them; less is noise."""
LONG = 600.0
"""Seconds that thousands of things may take."""
ROUNDS = 2
"""At most."""
FEW = 50
"""With fewer things, most of the time is the start of the programs."""


def _each(figures: Figures, number: int) -> Figures:
    """The figures, with the share of each of so many things."""
    return figures | {"each_ms": figures["seconds"] * 1e3 / number, "each_cpu_ms": figures["cpu_s"] * 1e3 / number}


def _partitions(stage: Stage, number: int) -> Figures:
    with running(Brokerlite()) as server, stage.topic(server, number, 100, kept=True) as task:
        task = dataclasses.replace(task, client="ottla", seconds=0.0)
        return _of_server(server, [dataclasses.replace(task, way=way) for way in ("write_each", "read_each")])


def _members(stage: Stage, number: int) -> Figures:
    with running(Brokerlite()) as server, stage.topic(server, number, 100, kept=True) as task:
        return _of_server(server, [dataclasses.replace(task, client="ottla", way="join", together=number)])


def _of_server(server: Server, tasks: list[Task]) -> Figures:
    """The figures of clients, one after the other, and of their broker."""
    before = server.cpu()
    done = [run(each, LONG) for each in tasks]
    return {
        "seconds": sum(each["ready_s"] for each in done),
        "cpu_s": sum(each["ready_cpu_s"] for each in done) + server.cpu() - before,
        "client_mb": max(each["memory_mb"] for each in done),
        "broker_mb": server.memory(),
    }


def _connections(stage: Stage, number: int) -> Figures:
    """A request and its answer on each connection, in the middle of many such rounds."""
    with running(Brokerlite()) as server, stage.topic(server, 12, 100) as task:
        amounts = stage.amounts
        done = crowd.run(
            stage.crowd(server, task, busy=number, idle=0, seconds=amounts.seconds, warm_up=amounts.warm_up)
        )
        return {
            "seconds": number / done["rate"],
            "cpu_s": done["broker_us"] / 1e6 * number,
            "broker_mb": server.memory(),
        }


def _topics(stage: Stage, number: int) -> Figures:
    with canned.running(topics=number, partitions=1, end=1) as bootstrap:
        task = Task(client="ottla", way="", bootstrap=bootstrap, topics=number, partitions=1, seconds=0.0)
        done = [run(dataclasses.replace(task, way=way), LONG) for way in ("write_each", "read_each")]
    return {
        "seconds": sum(each["ready_s"] for each in done),
        "cpu_s": sum(each["ready_cpu_s"] for each in done),
        "client_mb": max(each["memory_mb"] for each in done),
    }


def _grown(stage: Stage, *, measure: Callable[[Stage, int], Figures], numbers: tuple[int, ...]) -> Found:
    def measured(number: int) -> Figures:
        return _each(measure(stage, number), number)

    chosen = [each for each in numbers if each <= stage.amounts.most]
    return contest({f"{each:,}": partial(measured, each) for each in chosen}, min(stage.amounts.rounds, ROUNDS))


def number_of(contestant: str) -> int:
    """The number of things that a contestant stands for."""
    return int(contestant.replace(",", ""))


def medians(found: Found, figure: str) -> dict[int, float]:
    """The number of things -> the median of a figure."""
    return {
        number_of(name): statistics.median(each[figure] for each in rounds)
        for name, rounds in found.items()
        if not isinstance(rounds, str) and all(figure in each for each in rounds)
    }


def steep(rows: list[Row]) -> Iterator[str]:
    """A line for whatever grows faster than linearly."""
    for row in rows:
        for figure, name in (("each_ms", "time"), ("each_cpu_ms", "processor time")):
            pairs = itertools.pairwise(sorted(medians(row.found, figure).items()))
            for (few, before), (many, after) in pairs:
                if few >= FEW and after > STEEP * before:
                    yield (
                        f"{', '.join(row.labels)}: {name} grows faster than linearly from {few:,} to {many:,}: each "
                        f"takes {after:.2f} ms, {before:.2f} before"
                    )


_KINDS: Mapping[str, tuple[Callable[[Stage, int], Figures], tuple[int, ...]]] = {
    "partitions, written and read": (_partitions, (1, 10, 100, 1000, 5000)),
    "members of a group": (_members, (1, 10, 100, 300, 1000)),
    "busy connections": (_connections, (1, 10, 100, 1000, 2000)),
    "topics in a client": (_topics, (1, 10, 100, 1000, 10_000)),
}
GROWTH = Table(
    name="growth",
    heads=("what", "number"),
    columns=(
        Column("seconds", "seconds", EACH, digits=3),
        Column("each, ms", "each_ms", EACH, digits=3),
        Column("each, ms of processor time", "each_cpu_ms", EACH, digits=3),
        Column("client's memory, MB", "client_mb", EACH, digits=0),
        Column("brokerlite's memory, MB", "broker_mb", EACH, digits=0),
    ),
    lines=tuple(
        Line((label,), partial(_grown, measure=measure, numbers=numbers))
        for label, (measure, numbers) in _KINDS.items()
    ),
)
