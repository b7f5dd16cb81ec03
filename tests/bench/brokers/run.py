"""``python -m tests.bench brokers``: brokerlite beside Apache Kafka, under the same load, on the same cores.

Each broker is a process of its own with its data in a temporary folder, and only one runs at a time; the order changes
with each round. A ratio divides brokerlite's figure by Apache Kafka's within a round; the output has its median and, in
brackets, its quartiles. Reads are served from the page cache, and brokers flush nothing, so the disk does not count, as
long as it keeps up.
"""

import argparse
import importlib.metadata
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import confluent_kafka

from ottla.codec import engine
from ottla.errors import OttlaError
from tests import kafka
from tests.bench.brokers.cases import CLIENTS, ROWS, Case, Found, Options, cases
from tests.bench.brokers.server import BROKERS, Broker, Server
from tests.bench.clients.process import Broken

ROUNDS = 3
FULL = 10 * 2**30
_BUSY, _IDLE = 0.9, 0.7
"""If a load generator takes more of a core than the first figure, and the broker less than the second, then the
generator, or one of its threads, is at its limit."""


def load() -> str:
    return ", ".join(f"{each:.1f}" for each in os.getloadavg())


def machine() -> list[str]:
    """The facts about the machine that a reader of the figures needs."""
    cores = os.cpu_count() or 1
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[:1]
    peer = f"confluent-kafka {importlib.metadata.version('confluent-kafka')}"
    lines = [
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores, load {load()}",
        f"ottla with its codec in {engine}; {', '.join(each.name for each in BROKERS)}, {''.join(java)}",
        f"{peer} (librdkafka {confluent_kafka.libversion()[0]}), trio {importlib.metadata.version('trio')}",
        f"data in {tempfile.gettempdir()}, read from the page cache, nothing flushed",
    ]
    if os.getloadavg()[0] > cores / 2:
        lines.append("Others work on these cores: believe no rate, and ratios only of processor time.")
    return lines


def measured(case: Case, options: Options, rounds: int) -> list[str]:
    """The table of a case."""
    found: dict[str, list[Found]] = {broker.name: [] for broker in BROKERS}
    for number in range(rounds):
        for broker in BROKERS if number % 2 == 0 else reversed(BROKERS):
            try:
                found[broker.name].append(_round(case, broker, options))
            except (Broken, OttlaError, subprocess.SubprocessError, OSError) as error:
                return [case.name, f"  failed on {broker.name}: {error}"]
    return table(case, *found.values())


def _round(case: Case, broker: Broker, options: Options) -> Found:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
        server = Server(broker, Path(home))
        try:
            return case.measure(server, options)
        finally:
            server.close()


def table(case: Case, ours: list[Found], theirs: list[Found]) -> list[str]:
    """A line for each figure: both medians, and the ratio."""
    names = "".join(f"{broker.name:>20}" for broker in BROKERS)
    lines = [f"{case.name:<52}{names}{'ratio':>24}"]
    for what in ours[0]:
        lines.append(f"  {what}{_doubt([*ours, *theirs], what)}")
        for figure, row in ROWS.items():
            if figure not in ours[0][what]:
                continue
            pairs = [(one[what][figure], other[what][figure]) for one, other in zip(ours, theirs, strict=True)]
            medians = "".join(f"{statistics.median(each):>20,.{row.digits}f}" for each in zip(*pairs, strict=True))
            ratios = [one / other for one, other in pairs if other]
            better = f"  {row.better} is better" if row.better else ""
            lines.append(f"    {row.title:<48}{medians}{_spread(ratios):>24}{better}")
    return lines


def _doubt(rounds: list[Found], what: str) -> str:
    """A warning where the load generator, not the broker, limits the figures."""
    figures = [each[what] for each in rounds if "client_cores" in each[what]]
    limited = [each for each in figures if each["client_cores"] > _BUSY and each["broker_cores"] < _IDLE]
    return f"  (the load generator was the limit in {len(limited)} of {len(figures)} runs)" if limited else ""


def _spread(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return "".join(f"{each:.2f}" for each in ratios)
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench brokers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="cases:\n" + "\n".join(f"  {case.name}" for case in cases(Options())),
    )
    given = Options()
    parser.add_argument("cases", nargs="*", metavar="CASE", help="those with one of these words in their name")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in each of which both brokers run")
    parser.add_argument("--seconds", type=float, default=given.seconds, help="for which a client sends")
    parser.add_argument("--warm-up", type=float, default=given.warm_up, help="seconds of the same beforehand")
    parser.add_argument("--sizes", type=int, nargs="+", default=given.sizes, help="bytes of each value")
    parser.add_argument("--clients", nargs="+", default=given.clients, choices=[*CLIENTS], help="these only")
    parser.add_argument("--full", action="store_true", help="restart on 10 GiB, which need that much room on the disk")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the cases whose name contains one of the given words, or all without any; return the exit code."""
    given = parsed(arguments)
    options = Options(
        clients=tuple(given.clients),
        sizes=tuple(given.sizes),
        seconds=given.seconds,
        warm_up=given.warm_up,
        **({"restarted": FULL} if given.full else {}),
    )
    known = cases(options)
    if unknown := [word for word in given.cases if not any(word in case.name for case in known)]:
        names = "".join(f"\n  {case.name}" for case in known)
        print(f"no case has {' or '.join(map(repr, unknown))} in its name; there are:{names}", file=sys.stderr)
        return 2
    allow_many_connections()
    # When a run is ended, as by `timeout`, it must end its broker and remove the data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    kafka.classpath()  # downloads are not measured
    print(*machine(), "", sep="\n", flush=True)
    for case in known:
        if not given.cases or any(word in case.name for word in given.cases):
            before = load()
            lines = measured(case, options, given.rounds)
            print(*lines, f"  load before: {before}; behind: {load()}", "", sep="\n", flush=True)
    return 0


def allow_many_connections() -> None:
    """Raise the limit of open files for the processes started from here."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
