"""Break three nodes of Apache Kafka under load, and check whether the client keeps its promises.

The command prints each fault and a table of results, and writes a report as a web page. The exit code is 1 if a promise
was broken. The report's folder then also keeps the journals of the programs and the logs of the brokers.
"""

import argparse
import random
import shutil
import signal
import sys
from pathlib import Path

from tests.chaos.report import page, table
from tests.chaos.run import Load, run
from tests.chaos.streams import Streams
from tests.chaos.transfers import Transfers
from tests.chaos.transform import Transform
from tests.kafka import NOW, OLD

LOADS: dict[str, type[Load]] = {"streams": Streams, "transfers": Transfers, "transform": Transform}
RELEASES = {"4.3": NOW, "3.9": OLD["3.9"]}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load", choices=LOADS, default="streams", help="the load during the faults (default streams)")
    parser.add_argument("--kafka", choices=RELEASES, default="4.3", help="the version of Apache Kafka (default 4.3)")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="for how long faults come, each kind once (default 120)"
    )
    parser.add_argument("--seed", type=int, help="chooses the faults and their order (default: random)")
    parser.add_argument(
        "--rate", type=float, help="records a second of each producer, or transactions of each teller (default 100, 15)"
    )
    parser.add_argument(
        "--secured", action="store_true", help="clients, a proxy and the nodes talk SASL_SSL, with ACLs (Kafka 4.3)"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/chaos"), help="for the report (default build/chaos)")
    given = parser.parse_args(arguments)
    if given.secured and given.kafka != "4.3":
        parser.error("--secured needs --kafka 4.3: older releases have another authorizer")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes end
    seed = random.randrange(10_000) if given.seed is None else given.seed
    folder = given.folder.resolve() / f"{given.load}-{'secured-' * given.secured}{given.kafka}-seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {seed}, {given.seconds:g} s, in {folder}", flush=True)
    load, release = LOADS[given.load], RELEASES[given.kafka]
    result = run(
        *(load, given.seconds, seed, folder, release, given.rate, lambda line: print(line, flush=True)),
        secured=given.secured,
    )
    report = folder / "report.html"
    report.write_text(page(result))
    print(f"\n{table(result)}\n\n{report.as_uri()}")
    return int(bool(result.findings.broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
