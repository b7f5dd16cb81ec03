"""Three nodes of Apache Kafka behind the proxy, killed, paused and restarted under load, and their leaders moved;
`tests.proxy.storms` describes the checks.

    python -m tests.proxy.nodes --kafka 3.9 --seconds 600
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.injections import Log, Nodes
from tests.chaos.witness import Witness
from tests.interop.peers import PRODUCERS, Client
from tests.kafka import NOW, OLD, Release, start
from tests.proxy.storms import PARTITIONS, ProxyProcess, Storm, parser, play

RELEASES = {"4.3": NOW, "3.9": OLD["3.9"]}
REQUEST_TIMEOUT = 5.0
"""Seconds after which the proxy gives up a request to a node; pauses of nodes are longer."""


class Chaos(Storm):
    """Faults of nodes, one after the other, each when all replicas are in sync again."""

    def __init__(self, folder: Path, release: Release, seed: int, clients: Sequence[Client] = PRODUCERS) -> None:
        self._kafka = start(folder / "kafka", 3, release=release)
        self._witness = Witness(self._kafka.bootstrap, {f"keyed-{client}-{seed}": PARTITIONS for client in clients})
        super().__init__(self._kafka.bootstrap, seed, clients)
        options = ("--first-node", "0", "--request-timeout", str(REQUEST_TIMEOUT), "--state", str(folder / "state"))
        proxy = ProxyProcess(folder, self._kafka.bootstrap, *options, *self.rules)
        self.log = Log(time.monotonic(), lambda line: print(line, flush=True))
        self._nodes = Nodes(self._kafka, self._witness, self.log, random.Random(f"{seed} nodes"))
        self._round: list[str] = []
        host, _, port = proxy.bootstrap.rpartition(":")
        self.begin(proxy, ",".join(f"{host}:{int(port) + node}" for node in range(3)))

    def create_topics(self) -> None:
        self._witness.create_topics()
        self._witness.await_in_sync()

    def strike(self) -> None:
        if not self._round:
            self._round = self.rng.sample(list(self._nodes.kinds), len(self._nodes.kinds))
        self._nodes.kinds[self._round.pop()]()

    def end(self) -> None:
        super().end()
        self._kafka.stop()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kafka", choices=RELEASES, default="4.3", help="the version of Apache Kafka")
    asked = options.parse_args()
    play(asked, lambda folder, clients, stack: Chaos(folder, RELEASES[asked.kafka], asked.seed, clients))


if __name__ == "__main__":
    main()
