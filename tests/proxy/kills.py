"""A proxy with a state, killed with SIGKILL again and again under the load of other people's idempotent producers.

    python -m tests.proxy.kills --kills 100

Each producer sends records with keys as fast as it can, which its own partitioner puts elsewhere than the proxy does.
In the end each record is there once, in the partition of its key, those of a key in their order; and no producer has
heard of an error, least of all that it is fenced.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from ottla.codec.partitioners import murmur2_partition
from tests.brokerlite.running import BrokerProcess
from tests.interop.lines import Message, Received
from tests.interop.peers import CLIENTS, JAVA, Client, create_topic
from tests.interop.streams import Streamer
from tests.interop.transfers import Steps
from tests.kafka import free_ports

PARTITIONS = 12
KEYS = 97
PATIENCE = 30.0
"""Seconds in which a proxy has to listen."""
BEFORE_A_KILL = 4_000
"""Records at most."""


class ProxyProcess:
    """A proxy in a process of its own, at the same address each time it is started."""

    def __init__(self, folder: Path, upstream: str, *options: str) -> None:
        [self._port] = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.log = folder / "proxy.log"
        self.state = folder / "state"
        self._command = [
            *(sys.executable, "-m", "ottla", "proxy", "--upstream", upstream, "--listen", self.bootstrap),
            *("--state", str(self.state), "--json", *options),
        ]
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Run it, and return when it takes requests."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(self._command, text=True, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log.read_text()[-2000:]

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class Keyed(Streamer):
    """A producer of records with keys."""

    def message(self, number: int) -> Message:
        return Message(self.name, b"k%d" % (number % KEYS), b"%d" % number)

    def check(self, read: Iterable[Received]) -> None:
        errors = [each.error for each in self.outcomes if each.error]
        assert not errors, f"{self.name}: {errors[0]}"
        found: list[int] = []
        order: dict[bytes, list[int]] = defaultdict(list)
        for record in read:
            assert record.key is not None and record.value is not None
            assert record.partition == murmur2_partition(record.key, PARTITIONS), f"{self.name}: misplaced {record}"
            found.append(int(record.value))
            order[record.key].append(int(record.value))
        lost, twice = set(range(self.sent)) - set(found), len(found) - len(set(found))
        assert not lost and not twice, f"{self.name}: {twice} twice, {len(lost)} lost: {sorted(lost)[:9]}"
        for key, numbers in order.items():
            assert numbers == sorted(numbers), f"{self.name}: {key!r} is out of order"


class Storm:
    """A proxy and its clients; a context manager."""

    def __init__(self, folder: Path, upstream: str, seed: int, clients: Sequence[Client] = CLIENTS) -> None:
        self.upstream, self.kills = upstream, 0
        self._rng, self._steps = random.Random(seed), Steps()
        names = [f"keyed-{client}-{seed}" for client in clients]
        for name in names:
            create_topic(upstream, name, PARTITIONS)
        self.proxy = ProxyProcess(folder, upstream, "--topic", "keyed-*=rewrite")
        self.streamers = [
            Keyed(client, self.proxy.bootstrap, name, self._steps) for client, name in zip(clients, names, strict=True)
        ]

    def run(self, kills: int, seconds: float) -> None:
        """Kill the proxy ``kills`` times, or until ``seconds`` are over; then let the clients come to an end."""
        over = time.monotonic() + seconds
        for streamer in self.streamers:
            streamer.start()
        while self.kills < kills and time.monotonic() < over:
            everybody = [] if self.kills else [each.name for each in self.streamers]
            self._steps.await_steps(self._rng.randrange(1, BEFORE_A_KILL), everybody)
            self.proxy.end(signal.SIGTERM if self._rng.random() < 0.1 else signal.SIGKILL)
            self.kills += 1
            self.proxy.start()
        self._steps.await_steps(1)
        for streamer in self.streamers:
            streamer.stop()
        for streamer in self.streamers:
            streamer.join(120)
            assert not streamer.is_alive(), f"{streamer.name} does not end"
        assert not self._steps.errors, self._steps.errors

    def check(self) -> None:
        for streamer in self.streamers:
            streamer.check(JAVA.consume(self.upstream, streamer.name))

    def said(self) -> str:
        return f"{self.kills} kills; records: {dict(self._steps.steps)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for streamer in self.streamers:
            streamer.end()
        self.proxy.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--upstream", help="brokers that run already; else brokerlite")
    parser.add_argument("--clients", help="names between commas; else all")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = asked.upstream
        if upstream is None:
            broker = BrokerProcess(folder / "data")
            stack.callback(broker.kill)
            upstream = broker.bootstrap
        clients = [each for each in CLIENTS if not asked.clients or each.name in asked.clients.split(",")]
        storm = stack.enter_context(Storm(folder, upstream, asked.seed, clients))
        try:
            storm.run(asked.kills, asked.seconds)
        finally:
            print(storm.said(), flush=True)
        storm.check()
        assert "Traceback" not in (text := storm.proxy.log.read_text()), text[-3000:]
    print("everything is as it was told")


if __name__ == "__main__":
    main()
