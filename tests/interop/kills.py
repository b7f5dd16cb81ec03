"""Kills brokerlite with SIGKILL again and again under load: everything that the clients were told must stay true.

    python -m tests.interop.kills --kills 100
    python -m tests.interop.kills --kills 100 --load streams

Under the load of transactions, the clients of `TRANSACTIONAL` make transfers and copy them (`tests.interop.transfers`).
Under the load of streams, idempotent producers send as fast as they can (`tests.interop.streams`). Under the loads of
groups and shares, members of several clients read a topic together (`tests.interop.group_storms`). Each kill comes
after a random number of transactions or records; some kills are followed by another during the start. In the end all
clients must read the same: every acknowledged record is stored, each record once, and each transaction is whole or
absent; and a group has read every record.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop import peers
from tests.interop.group_storms import Groups, Shares
from tests.interop.lines import Received
from tests.interop.raw_reader import RawReader
from tests.interop.storm import Storm, await_ends
from tests.interop.streams import Streamer
from tests.interop.transacting import TRANSACTORS
from tests.interop.transfers import CREDITS, DEBITS, PARTITIONS, Ledger, Passer, Steps, Teller, Told, until

TRANSACTIONAL = ("java", "java-3.9", "librdkafka", "aiokafka", "franz-go", "sarama", "kafkajs")
COMMITTED = {"isolation.level": "read_committed"}
Read = Callable[[str], list[Received]]


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
        await_ends(self._tellers)
        with RawReader(self.broker.bootstrap) as reader:
            for topic in (DEBITS, CREDITS):
                until(partial(_is_settled, reader, topic), f"the end of what is open in {topic}")
            there = len(reader.committed(DEBITS))
            for passer in self._passers:
                until(partial(self._has, reader, passer.name, there), f"{passer.name} passing on {there} debits")
        await_ends(self._passers)

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
        await_ends(self._streamers)

    def check(self) -> None:
        for _, read in _readers(self.broker.bootstrap, peers.CLIENTS):
            for streamer in self._streamers:
                streamer.check(read(streamer.name))

    def said(self) -> str:
        return f"{self.kills} kills; records: {dict(self._steps.steps)}"


LOADS: dict[str, Callable[..., Storm]] = {
    "transactions": Transactions,
    "streams": Streams,
    "groups": Groups,
    "shares": Shares,
}


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
