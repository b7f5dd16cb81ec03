"""A proxy with a state folder under the load of idempotent producers, with faults again and again.

    python -m tests.proxy.kills --strikes 100
    python -m tests.proxy.cuts --leg upstream --strikes 100
    python -m tests.proxy.nodes --kafka 3.9 --seconds 600

Each producer sends records with keys as fast as it can, with another partitioner than the proxy. In the end each record
must be stored once, in the partition of its key, and the records of a key in their order. No producer may get an error,
and above all, none may be fenced.
"""

import argparse
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from ottla.codec.partitioners import PARTITIONERS
from tests.interop.lines import Message, Received
from tests.interop.peers import JAVA, PRODUCERS, Client, create_topic
from tests.interop.streams import Streamer
from tests.interop.transfers import Steps
from tests.kafka import free_ports
from tests.patience import HUNG, PROGRAM

PARTITIONS = 12
KEYS = 97
BETWEEN = 4_000
"""The maximum number of records between two strikes."""
STALL = 120.0
"""Seconds within which each client must have had a record stored, where a strike waits for it: some clients wait half a
minute for a response, possibly twice."""
EVERYBODY = 0.3
"""The share of strikes before which each client has had a record stored: some recover sooner than others."""
PARTITIONER = {"librdkafka": "murmur2", "sarama": "murmur2", "franz-go": "fnv1a", "ottla": "fnv1a"}
"""Client -> the proxy's partitioner for its topic, which differs from the client's own; the default is ``crc32``."""
MOST_NODES = 3


class ProxyProcess:
    """A proxy in a process of its own, with the same address after each start."""

    def __init__(self, folder: Path, upstream: str, *options: str) -> None:
        self.bootstrap = f"127.0.0.1:{port_with_room()}"
        self.log = folder / "proxy.log"
        self._command = [
            *(sys.executable, "-m", "ottla", "proxy", "--upstream", upstream, "--listen", self.bootstrap, "--json"),
            *options,
        ]
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start the process, and return once it accepts requests."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(self._command, text=True, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log.read_text()[-2000:]

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(HUNG)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def port_with_room() -> int:
    """A port with free ports behind it, for more nodes."""
    while True:
        [port] = free_ports(1)
        if all(map(_is_free, range(port + 1, port + MOST_NODES))):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Keyed(Streamer):
    """A producer of records with keys."""

    partitioner: str
    """The proxy's partitioner for its topic."""

    def message(self, number: int) -> Message:
        return Message(self.name, b"k%d" % (number % KEYS), b"%d" % number)

    def check(self, read: Iterable[Received]) -> None:
        errors = Counter(f"{each.error}: {each.message}" for each in self.outcomes if each.error)
        assert not errors, f"{self.name}: of {self.sent} {errors.most_common(3)}"
        place = PARTITIONERS[self.partitioner]
        found: list[int] = []
        order: dict[bytes, list[int]] = defaultdict(list)
        for record in read:
            assert record.key is not None and record.value is not None
            assert record.partition == place(record.key, PARTITIONS), f"{self.name}: misplaced {record}"
            found.append(int(record.value))
            order[record.key].append(int(record.value))
        lost, twice = set(range(self.sent)) - set(found), len(found) - len(set(found))
        assert not lost and not twice, f"{self.name}: {twice} repeated, {len(lost)} lost: {sorted(lost)[:9]}"
        for key, numbers in order.items():
            assert numbers == sorted(numbers), f"{self.name}: {key!r} is out of order"


class Storm(ABC):
    """A proxy and its clients; a context manager.

    Args:
        upstream: the addresses of the brokers for the checks.
        in_place: whether the proxy uses the partitioner of each client.

    Attributes:
        strikes: the number of faults so far.
    """

    def __init__(
        self,
        upstream: str,
        seed: int,
        clients: Sequence[Client] = PRODUCERS,
        *,
        in_place: bool = False,
        replicas: int = 1,
    ) -> None:
        self.upstream, self.strikes = upstream, 0
        self.rng, self.steps = random.Random(seed), Steps()
        self.names = {f"keyed-{client}-{seed}": client for client in clients}
        self._own = in_place
        self.create_topics()

    def create_topics(self) -> None:
        for name in self.names:
            create_topic(self.upstream, name, PARTITIONS)

    @property
    def rules(self) -> list[str]:
        """The options with rules for topics."""
        return [
            option
            for name, client in self.names.items()
            for option in ("--topic", f"{name}=rewrite:{self._partitioner(client)}")
        ]

    def _partitioner(self, client: Client) -> str:
        if self._own:
            return {"librdkafka": "crc32", "sarama": "fnv1a"}.get(client.name, "murmur2")
        return PARTITIONER.get(client.name, "crc32")

    def begin(self, proxy: ProxyProcess, bootstrap: str) -> None:
        """Prepare the clients for their start."""
        self.proxy = proxy
        self.streamers = [Keyed(client, bootstrap, name, self.steps) for name, client in self.names.items()]
        for streamer in self.streamers:
            streamer.partitioner = self._partitioner(self.names[streamer.name])

    @abstractmethod
    def strike(self) -> None:
        """Cause a fault, and return once it is repaired."""

    def run(self, strikes: int, seconds: float) -> None:
        """Strike so many times, or until ``seconds`` have passed; then let the clients finish."""
        over = time.monotonic() + seconds
        for streamer in self.streamers:
            streamer.start()
        while self.strikes < strikes and time.monotonic() < over:
            all_come = not self.strikes or self.rng.random() < EVERYBODY
            self._await_steps(self.rng.randrange(1, BETWEEN), list(self.names) if all_come else ())
            self.strike()
            self.strikes += 1
        self._await_steps(1)
        for streamer in self.streamers:
            streamer.stop()
        for streamer in self.streamers:
            streamer.join(PROGRAM)
            assert not streamer.is_alive(), f"{streamer.name} did not end"
        assert not self.steps.errors, self.steps.errors

    def _await_steps(self, count: int, clients: Sequence[str] = ()) -> None:
        try:
            self.steps.await_steps(count, clients, STALL)
        except AssertionError as error:
            for streamer in self.streamers:
                error.add_note(f"{streamer.name} said: {streamer.said()[-1000:]}")
            raise

    def check(self) -> None:
        """Check the records against the receipts of the clients, and the proxy's log for bugs."""
        for streamer in self.streamers:
            streamer.check(JAVA.consume(self.upstream, streamer.name, timeout=HUNG))
        text = self.proxy.log.read_text()
        for complaint in ("Traceback", "please report it", "producer fenced"):
            assert complaint not in text, text[text.index(complaint) :][:3000]

    def said(self) -> str:
        return f"{self.strikes} strikes; records: {sum(self.steps.steps.values())}, {dict(self.steps.steps)}"

    def end(self) -> None:
        """End all processes of the storm."""
        for streamer in self.streamers:
            streamer.end()
        self.proxy.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def parser(text: str | None) -> argparse.ArgumentParser:
    """The options of every storm."""
    made = argparse.ArgumentParser(description=text)
    made.add_argument("--strikes", type=int, default=100)
    made.add_argument("--seconds", type=float, default=600.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--clients", help="names between commas; else all")
    made.add_argument("--in-place", action="store_true", help="the proxy's partitioners are the clients'")
    return made


def play(asked: argparse.Namespace, made: Callable[[Path, Sequence[Client], ExitStack], Storm]) -> None:
    """Run the storm from ``made``, and print its result."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = [each for each in PRODUCERS if not asked.clients or each.name in asked.clients.split(",")]
        storm = stack.enter_context(made(folder, clients, stack))
        try:
            storm.run(asked.strikes, asked.seconds)
        finally:
            print(storm.said(), flush=True)
        storm.check()
    print("everything is as it was told")
