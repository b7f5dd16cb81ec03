"""brokerlite killed with SIGKILL again and again, while transactional clients work: what they were told must hold.

    python -m tests.interop.kills --kills 100

Clients of `CLIENTS` make transfers and pass them on (`tests.interop.transfers`). The broker is killed after a random
number of their transactions, now and then once more while it starts. In the end everybody reads the same: nothing that
was acknowledged is lost, nothing is there twice, each transaction is whole or absent.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.brokerlite.running import BrokerProcess
from tests.interop import peers
from tests.interop.lines import Received
from tests.interop.peers import create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.transacting import TRANSACTORS
from tests.interop.transfers import CREDITS, DEBITS, PARTITIONS, Ledger, Passer, Teller, Told, until

CLIENTS = ("java", "java-3.9", "librdkafka", "aiokafka", "franz-go", "kafkajs")
COMMITTED = {"isolation.level": "read_committed"}
AT_ONCE = 0.15
"""The share of kills after which the broker is killed once more before it listens again."""
EVERYBODY = 0.1
"""The share of kills before which each client has had a transaction: some come back sooner than others."""
BEFORE_A_KILL = 150
"""Transactions at most."""

Read = Callable[[str], list[Received]]


class Storm:
    """A broker, its clients, and how often it was killed."""

    def __init__(self, folder: Path, seed: int, clients: Sequence[str] = CLIENTS) -> None:
        self.broker = BrokerProcess(folder / "data", "--group-delay", "0")
        self.ledger = Ledger()
        self.kills = 0
        self._rng = random.Random(seed)
        bootstrap = self.broker.bootstrap
        for topic in (DEBITS, CREDITS, *(f"passed-{name}" for name in clients)):
            create_topic(bootstrap, topic, PARTITIONS, segment_bytes="100000")
        self._tellers = [Teller(TRANSACTORS[name], bootstrap, f"teller-{name}", self.ledger, seed) for name in clients]
        self._passers = [Passer(TRANSACTORS[name], bootstrap, f"passed-{name}", self.ledger) for name in clients]

    @property
    def _clients(self) -> list[Teller | Passer]:
        return [*self._tellers, *self._passers]

    def run(self, kills: int, seconds: float) -> None:
        """Kill the broker ``kills`` times, or until ``seconds`` are over; then let the clients come to an end."""
        over = time.monotonic() + seconds
        for client in self._clients:
            client.start()
        while self.kills < kills and time.monotonic() < over:
            everybody = [each.name for each in self._clients] if self._rng.random() < EVERYBODY else []
            self.ledger.await_steps(self._rng.randrange(1, BEFORE_A_KILL), everybody)
            self._kill()
        self.ledger.await_steps(1)
        self._finish()

    def _kill(self) -> None:
        self.broker.kill()
        self.kills += 1
        while self._rng.random() < AT_ONCE:
            self.broker.start()
            time.sleep(self._rng.uniform(0, 0.5))  # a moment of its start, which nothing tells
            self.broker.kill()
            self.kills += 1
        self.broker.revive()

    def _finish(self) -> None:
        for teller in self._tellers:
            teller.stop()
        for teller in self._tellers:
            teller.join(120)
            assert not teller.is_alive(), f"{teller.name} does not end"
        with RawReader(self.broker.bootstrap) as reader:
            for topic in (DEBITS, CREDITS):
                until(partial(_is_settled, reader, topic), f"the end of what is open in {topic}")
            there = len(reader.committed(DEBITS))
            for passer in self._passers:
                until(partial(self._has, reader, passer.name, there), f"{passer.name} passing on {there} debits")
        for passer in self._passers:
            passer.stop()
            passer.join(120)
            assert not passer.is_alive(), f"{passer.name} does not end"
        assert not self.ledger.errors, self.ledger.errors

    def _has(self, reader: RawReader, topic: str, count: int) -> bool:
        return bool(self.ledger.errors) or len(reader.committed(topic)) >= count

    def check(self) -> None:
        """Whether all readers find what must be there."""
        bootstrap = self.broker.bootstrap
        with RawReader(bootstrap) as raw:
            reads: dict[str, Read] = {"raw": raw.committed}
            for client in peers.CLIENTS:
                reads[client.name] = partial(_consumed, client, bootstrap)
            for name, read in reads.items():
                debits, credits = read(DEBITS), read(CREDITS)
                self.ledger.check([(DEBITS, each) for each in debits] + [(CREDITS, each) for each in credits])
                for passer in self._passers:
                    passed = Counter((each.key, each.value) for each in read(passer.name))
                    assert passed == Counter((each.key, each.value) for each in debits), (name, passer.name)

    def said(self) -> str:
        """What it was, in a line."""
        told = ", ".join(f"{self.ledger.count(each)} {each.name.lower()}" for each in Told)
        hung = sum(each.hung for each in self._clients)
        return (
            f"{self.kills} kills; transactions: {dict(self.ledger.steps)}; "
            f"of {len(self.ledger.transfers)} transfers {told}; {hung} times a client hung"
        )

    def end(self) -> None:
        for client in self._clients:
            client.stop()
            client.end()
        if self.broker.runs:
            self.broker.kill()

    def __enter__(self) -> "Storm":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


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
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--keep", type=Path, help="a folder that stays")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        storm = stack.enter_context(Storm(folder, asked.seed, asked.clients.split(",")))
        try:
            storm.run(asked.kills, asked.seconds)
        finally:
            print(storm.said(), flush=True)
        storm.check()
        storm.broker.stop()
    print("everything is as it was told")


if __name__ == "__main__":
    main()
