"""Kills brokerlite with SIGKILL again and again under load: everything that the clients were told must stay true.

    python -m tests.interop.kills --kills 100
    python -m tests.interop.kills --kills 100 --load streams

Under the load of transactions, the clients of `TRANSACTIONAL` make transfers and copy them (`tests.interop.transfers`).
Under the load of streams, idempotent producers send as fast as they can (`tests.interop.streams`). Each kill comes
after a random number of transactions or records; some kills are followed by another during the start. In the end all
clients must read the same: every acknowledged record is stored, each record once, and each transaction is whole or
absent.
"""

import argparse
import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.brokerlite.running import BrokerProcess
from tests.interop import peers
from tests.interop.lines import Received
from tests.interop.peers import create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.streams import Streamer
from tests.interop.transacting import TRANSACTORS
from tests.interop.transfers import CREDITS, DEBITS, PARTITIONS, Ledger, Passer, Steps, Teller, Told, until
from tests.patience import HUNG

TRANSACTIONAL = ("java", "java-3.9", "librdkafka", "aiokafka", "franz-go", "sarama", "kafkajs")
COMMITTED = {"isolation.level": "read_committed"}
AT_ONCE = 0.15
"""The share of kills that are followed by a second one, before the broker listens again."""
EVERYBODY = 0.1
"""The share of kills before which each client must have ended a transaction or a record: some recover sooner."""

Read = Callable[[str], list[Received]]


class Storm(ABC):
    """A broker, its clients, and the kills so far; a context manager.

    Attributes:
        before_a_kill: the maximum number of transactions or records before a kill.
    """

    before_a_kill: int

    def __init__(self, folder: Path, seed: int, steps: Steps, topics: Iterable[str]) -> None:
        self.broker = BrokerProcess(folder / "data", "--group-delay", "0")
        self.kills = 0
        self._rng = random.Random(seed)
        self._steps = steps
        for topic in topics:
            create_topic(self.broker.bootstrap, topic, PARTITIONS, internal_segment_bytes="100000")

    @property
    @abstractmethod
    def clients(self) -> Sequence[Teller | Passer | Streamer]: ...

    @abstractmethod
    def finish(self) -> None:
        """Let the clients finish their work."""

    @abstractmethod
    def check(self) -> None:
        """Check that all readers find the right records."""

    @abstractmethod
    def said(self) -> str:
        """The result in a line."""

    def run(self, kills: int, seconds: float) -> None:
        """Kill the broker ``kills`` times, or until ``seconds`` have passed; then let the clients finish their work."""
        over = time.monotonic() + seconds
        for client in self.clients:
            client.start()
        while self.kills < kills and time.monotonic() < over:
            all_come = not self.kills or self._rng.random() < EVERYBODY  # a starting client might give up
            everybody = [each.name for each in self.clients] if all_come else []
            self._steps.await_steps(self._rng.randrange(1, self.before_a_kill), everybody)
            self._kill()
        self._steps.await_steps(1)
        self.finish()
        assert not self._steps.errors, self._steps.errors

    def _kill(self) -> None:
        self.broker.kill()
        self.kills += 1
        while self._rng.random() < AT_ONCE:
            self.broker.start()
            time.sleep(self._rng.uniform(0, 0.5))  # some moment of its start, which gives no signal
            self.broker.kill()
            self.kills += 1
        self.broker.revive()

    def end(self) -> None:
        for client in self.clients:
            client.stop()
            client.end()
        if self.broker.runs:
            self.broker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Transactions(Storm):
    """A storm under the load of transactional clients."""

    before_a_kill = 150

    def __init__(self, folder: Path, seed: int, clients: Sequence[str] = TRANSACTIONAL) -> None:
        self.ledger = Ledger()
        super().__init__(folder, seed, self.ledger, (DEBITS, CREDITS, *(f"passed-{name}" for name in clients)))
        bootstrap = self._address(folder)
        self._tellers = [Teller(TRANSACTORS[name], bootstrap, f"teller-{name}", self.ledger, seed) for name in clients]
        right = [f"passed-{name}" for name in clients if TRANSACTORS[name].leaves_out_aborted]
        alone = right[0] if right else DEBITS  # has a single producer, so every client reads it correctly
        self._passers = [
            Passer(each, bootstrap, f"passed-{each}", self.ledger, DEBITS if each.leaves_out_aborted else alone)
            for each in map(TRANSACTORS.__getitem__, clients)
        ]

    def _address(self, folder: Path) -> str:
        """The address of the broker, as clients get it."""
        return self.broker.bootstrap

    @property
    def clients(self) -> Sequence[Teller | Passer]:
        return [*self._tellers, *self._passers]

    def finish(self) -> None:
        _await_ends(self._tellers)
        with RawReader(self.broker.bootstrap) as reader:
            for topic in (DEBITS, CREDITS):
                until(partial(_is_settled, reader, topic), f"the end of what is open in {topic}")
            there = len(reader.committed(DEBITS))
            for passer in self._passers:
                until(partial(self._has, reader, passer.name, there), f"{passer.name} passing on {there} debits")
        _await_ends(self._passers)

    def _has(self, reader: RawReader, topic: str, count: int) -> bool:
        return bool(self.ledger.errors) or len(reader.committed(topic)) >= count

    def check(self) -> None:
        for name, read in _readers(self.broker.bootstrap, [each for each in peers.CLIENTS if each.leaves_out_aborted]):
            debits, credits = read(DEBITS), read(CREDITS)
            self.ledger.check([(DEBITS, each) for each in debits] + [(CREDITS, each) for each in credits])
            for passer in self._passers:
                if name not in ("raw", passer.name.removeprefix("passed-")):
                    continue  # each reading by Java takes seconds: its own client and the raw reader are enough
                passed = Counter((each.key, each.value) for each in read(passer.name))
                whole = Counter((each.key, each.value) for each in debits)
                assert passed == whole, f"{name}: {passer.name} lost {whole - passed}, repeated {passed - whole}"

    def said(self) -> str:
        told = ", ".join(f"{self.ledger.count(each)} {each.name.lower()}" for each in Told)
        hung = sum(each.hung for each in self.clients)
        refused = sum((each.refused for each in self.clients), Counter[str]())
        return (
            f"{self.kills} kills; transactions: {dict(self.ledger.steps)}; of {len(self.ledger.transfers)} transfers "
            f"{told}; {hung} times a client hung; errors that clients were told: {dict(refused)}"
        )


class Streams(Storm):
    """A storm under the load of idempotent producers."""

    before_a_kill = 5_000

    def __init__(self, folder: Path, seed: int, clients: Sequence[str] = ()) -> None:
        chosen = [each for each in peers.CLIENTS if each.name in clients or not clients]
        super().__init__(folder, seed, Steps(), [f"stream-{client}" for client in chosen])
        self._streamers = [Streamer(each, self.broker.bootstrap, f"stream-{each}", self._steps) for each in chosen]

    @property
    def clients(self) -> Sequence[Streamer]:
        return self._streamers

    def finish(self) -> None:
        _await_ends(self._streamers)

    def check(self) -> None:
        for _, read in _readers(self.broker.bootstrap, peers.CLIENTS):
            for streamer in self._streamers:
                streamer.check(read(streamer.name))

    def said(self) -> str:
        return f"{self.kills} kills; records: {dict(self._steps.steps)}"


LOADS: dict[str, Callable[..., Storm]] = {"transactions": Transactions, "streams": Streams}


def _await_ends(clients: Iterable[Teller | Passer | Streamer]) -> None:
    for client in clients:
        client.stop()
    for client in clients:
        client.join(HUNG)
        assert not client.is_alive(), f"{client.name} did not end"


def _readers(bootstrap: str, clients: Iterable[peers.Client]) -> Iterator[tuple[str, Read]]:
    """Each reader, and the committed records that it reads: the raw reader and each client."""
    with RawReader(bootstrap) as raw:
        yield "raw", raw.committed
    for client in clients:
        yield client.name, partial(_consumed, client, bootstrap)


def _is_settled(reader: RawReader, topic: str) -> bool:
    return not any(reader.is_open(topic, partition) for partition in range(PARTITIONS))


def _consumed(client: Any, bootstrap: str, topic: str) -> list[Received]:
    received: list[Received] = client.consume(bootstrap, topic, COMMITTED)
    return received


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", choices=LOADS, default="transactions")
    parser.add_argument("--clients", help="names between commas; else all of that load")
    parser.add_argument("--keep", type=Path, help="a folder that stays")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        chosen = {"clients": asked.clients.split(",")} if asked.clients else {}
        storm = stack.enter_context(LOADS[asked.load](folder, asked.seed, **chosen))
        try:
            storm.run(asked.kills, asked.seconds)
        finally:
            print(storm.said(), flush=True)
        storm.check()
        storm.broker.stop()
    print("everything is as it was told")


if __name__ == "__main__":
    main()
