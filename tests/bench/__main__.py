"""``make bench``: ottla against other libraries on the same data, in the same run; the ratios are the results.

In each round every way of a case works once, so that a machine that slows down slows all of them. A ratio is taken
within each round; the output has its median and, in brackets, its quartiles. The figures are processor time of this
process, which other programs on the machine disturb less than elapsed time.

``python -m tests.bench all`` makes every table of docs/benchmarks.md (`tests.bench.tables.run`),
``python -m tests.bench clients`` measures whole clients on a broker (`tests.bench.clients.run`),
``python -m tests.bench brokers`` brokerlite beside Apache Kafka (`tests.bench.brokers.run`),
``python -m tests.bench first`` programs until their first record (`tests.bench.first`),
``python -m tests.bench proxy`` the proxy beside a direct connection (`tests.bench.proxy.run`),
``python -m tests.bench spark`` reading in Spark beside its own connector (`tests.bench.spark.run`),
``python -m tests.bench spark-json`` JSON values beside Spark's `from_json` (`tests.bench.spark_json.run`), and
``python -m tests.bench spark-write`` writing in Spark beside its own connector (`tests.bench.spark_write.run`).
"""

import gc
import os
import platform
import statistics
import sys

from tests.bench import first, messages, records
from tests.bench.brokers import run as brokers
from tests.bench.case import Case, per_second
from tests.bench.clients import run as clients
from tests.bench.proxy import run as proxy
from tests.bench.spark import run as spark
from tests.bench.tables import run as tables

ROUNDS = 15
CASES: list[Case] = [*records.CASES, *messages.CASES]


def measured(case: Case) -> list[str]:
    """The table of a case, with a line for each way."""
    ways = case.ours | case.theirs
    for work in ways.values():
        work()  # objects that the first use creates are not measured
    rounds = [{name: per_second(work) for name, work in ways.items()} for _ in range(ROUNDS)]
    lines = [f"{case.name:<44}{case.unit + '/s':>14}" + "".join(f"{f'× by {name}':>24}" for name in case.ours)]
    for name in ways:
        lines.append(f"  {name:<42}{statistics.median(each[name] for each in rounds):>14,.0f}")
        for ours in case.ours:
            ratios = [each[ours] / each[name] for each in rounds]
            low, median, high = statistics.quantiles(ratios, n=4)
            text = f"{median:.2f} ({low:.2f}-{high:.2f})"
            lines[-1] += f"{'' if name in case.ours else text:>24}"
    return lines


def main(wanted: list[str]) -> int:
    """Run the cases whose name contains one of ``wanted``, or all without any; return the exit code."""
    if wanted[:1] == ["all"]:
        return tables.main(wanted[1:])
    if wanted[:1] == ["clients"]:
        return clients.main(wanted[1:])
    if wanted[:1] == ["brokers"]:
        return brokers.main(wanted[1:])
    if wanted[:1] == ["first"]:
        return first.main(wanted[1:])
    if wanted[:1] == ["proxy"]:
        return proxy.main(wanted[1:])
    if wanted[:1] == ["spark"]:
        return spark.main(wanted[1:])
    if wanted[:1] == ["spark-json"]:
        from tests.bench.spark_json import run as spark_json  # here, not above: pyspark may be absent

        return spark_json.main(wanted[1:])
    if wanted[:1] == ["spark-write"]:
        from tests.bench.spark_write import run as spark_write  # here, not above: pyspark may be absent

        return spark_write.main(wanted[1:])
    if unknown := [word for word in wanted if not any(word in case.name for case in CASES)]:
        names = "".join(f"\n  {case.name}" for case in CASES)
        print(f"no case has {' or '.join(map(repr, unknown))} in its name; there are:{names}", file=sys.stderr)
        return 2
    gc.collect()
    gc.freeze()  # otherwise collections would charge a way for all objects that this program has loaded
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load}\n")
    for case in CASES:
        if not wanted or any(word in case.name for word in wanted):
            print(*measured(case), "", sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
