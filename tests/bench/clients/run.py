"""``python -m tests.bench clients``: ottla against other clients, each in a process of its own, on the same broker.

In every round each client works once, so that a machine that slows down slows all of them. A ratio says how many times
better ottla is, and is taken within each round; the output has its median and, in brackets, its quartiles. Rates are
per second of elapsed time, so other programs on the machine affect them; they affect processor time less.
"""

import argparse
import importlib.metadata
import os
import platform
import statistics
import sys

import confluent_kafka

from ottla.codec import engine
from ottla.codec.compression import Compression
from tests import kafka
from tests.bench.clients.canned import ENDLESS, SIZE
from tests.bench.clients.cases import CASES, MODULES, OURS, PEERS, Case
from tests.bench.clients.grounds import Apache, Canned, Ground, Running, Target
from tests.bench.clients.process import Broken, run
from tests.bench.clients.task import Figures, Task

STEADY_RECORDS = 2 * 10**7
STEADY_SECONDS = 1800.0
WARM_UP = 0.5
"""Seconds."""
PATIENCE = 120.0
"""Seconds by which a client may exceed its time."""


def load() -> str:
    return ", ".join(f"{each:.1f}" for each in os.getloadavg())


def machine(target: Target) -> list[str]:
    """The facts about the machine that a reader of the figures needs."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("trio", *PEERS)]
    versions[1] += f" (librdkafka {confluent_kafka.libversion()[0]})"
    cores = os.cpu_count() or 1
    lines = [
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores, load {load()}",
        f"ottla with its codec in {engine}, {', '.join(versions)}",
        f"on {target.name}; columns with × say how many times better ottla is",
    ]
    if os.getloadavg()[0] > cores:
        lines.append("More wants to run than there are cores: believe no rate, and ratios only of processor time.")
    return lines


def table(title: str, case: Case, found: dict[str, list[Figures]], broken: dict[str, str]) -> list[str]:
    """A line for each client that succeeded, and the error of each that failed."""
    compared = [column for column in case.columns if column.better and case.theirs]
    titles = "".join(f"{column.title:>17}" for column in case.columns)
    lines = [f"{title:<42}{titles}" + "".join(f"{'× ' + column.title:>26}" for column in compared)]
    ours = found.get(OURS, [])
    for name, rounds in found.items():
        line = f"  {name:<40}"
        for column in case.columns:
            median = statistics.median(each[column.figure] for each in rounds)
            line += f"{median:>17,.{column.digits}f}"
        for column in compared if name != OURS and ours else ():
            ratios = [column.ratio(*pair) for pair in zip(ours, rounds, strict=True)]
            line += f"{_spread(ratios):>26}"
        lines.append(line)
    return lines + [f"  {name:<40}failed: {why}" for name, why in broken.items()]


def _spread(ratios: list[float]) -> str:
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    low, median, high = statistics.quantiles(ratios, n=4)
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def measured(case: Case, ground: Ground, given: argparse.Namespace, size: int) -> list[str]:
    """The table of a case."""
    seconds = STEADY_SECONDS if case.steady else given.seconds or case.seconds
    count = given.records or STEADY_RECORDS if case.steady else ground.count
    endless = count is None and case.end == ENDLESS
    tasks = {
        name: Task(
            client=client,
            way=way,
            bootstrap=ground.bootstrap,
            prefix=ground.prefix,
            topics=case.topics,
            partitions=case.partitions,
            size=size,
            compression=given.compression,
            ca=ground.ca,
            seconds=seconds,
            warm_up=min(WARM_UP, seconds / 4) if endless or not case.reads else 0.0,
            count=count,
            rate=given.rate,
            measure_memory=case.steady,
        )
        for name, client, way in _ways(case, given.clients)
    }
    found: dict[str, list[Figures]] = {name: [] for name in tasks}
    broken: dict[str, str] = {}
    for _ in range(given.rounds or case.rounds):
        for name, task in tasks.items():
            if name in broken:
                continue
            try:
                found[name].append(run(task, seconds * 2 + PATIENCE, ground.meanwhile))
            except Broken as error:
                broken[name] = str(error)
                del found[name]
    title = f"{case.name}, {size:,} B" + (f", {given.compression}" if given.compression != "none" else "")
    return table(title, case, found, broken)


def _ways(case: Case, wanted: list[str]) -> list[tuple[str, str, str]]:
    """Name, module and way of each participating client."""
    ways = {OURS: case.ours, **case.theirs}
    return [(name, MODULES[name], way) for name, way in ways.items() if not wanted or name in wanted]


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="cases:\n" + "\n".join(f"  {case.name}" for case in CASES),
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="those with one of these words in their name")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--kafka", nargs="?", const="", metavar="HOST:PORT", help="a broker that runs; without an address, start Kafka"
    )
    where.add_argument("--canned", action="store_true", help="a broker that costs next to nothing (the default)")
    parser.add_argument("--clients", nargs="+", default=[], choices=[*MODULES], help="these only")
    parser.add_argument("--seconds", type=float, help="of each measurement, in place of each case's own")
    parser.add_argument("--rounds", type=int, help="in place of each case's own")
    parser.add_argument(
        "--records",
        type=int,
        help="records to read or write, for brokers that are not canned; records to measure memory with",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[SIZE], help="bytes of each value; 100 by itself")
    parser.add_argument("--compression", default="none", choices=[each.name.lower() for each in Compression])
    parser.add_argument("--release", choices=kafka.OLD, help=f"of the Kafka that is started; by itself {kafka.VERSION}")
    parser.add_argument("--tls", action="store_true", help="over TLS, with a Kafka that is started for it")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second where the pace is given")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the cases whose name contains one of the given words, or all without any; return the exit code."""
    given = options(arguments)
    if unknown := [word for word in given.cases if not any(word in case.name for case in CASES)]:
        names = "".join(f"\n  {case.name}" for case in CASES)
        print(f"no case has {' or '.join(map(repr, unknown))} in its name; there are:{names}", file=sys.stderr)
        return 2
    if (given.tls or given.release) and given.kafka != "":
        print(
            "--tls and --release need --kafka without an address: they are about one that is started", file=sys.stderr
        )
        return 2
    target: Target
    if given.kafka == "":
        target = Apache(kafka.OLD.get(given.release, kafka.NOW), tls=given.tls)
    else:
        target = Canned() if given.kafka is None else Running(given.kafka)
    print(*machine(target), "", sep="\n", flush=True)
    for case in CASES:
        if given.cases and not any(word in case.name for word in given.cases):
            continue
        if why := target.refuses(case):
            print(f"{case.name}: left out, {why}\n", flush=True)
            continue
        for size in given.sizes:
            before = load()
            with target.ground(case, given.records, size, given.compression) as ground:
                lines = measured(case, ground, given, size)
            print(*lines, f"  load before: {before}; behind: {load()}", "", sep="\n", flush=True)
    return 0
