"""Transfers of money, each a transaction of its own, and the ledger that checks the stored records.

A transfer takes an amount from the topic `DEBITS` and puts it, in up to three parts, into the topic `CREDITS`. Whatever
happens to producers and brokers, either all records of a transfer are stored, each once, or none of them.

Rules:
- The ledger keeps the outcome that the client reported to a `Teller`: committed, aborted, or unknown.
- A `Passer` reads the committed debits and copies each, in the transaction that commits its position. So its topic has
  each debit once.
- Both handle errors as the documentation of their client says (`Refused.kind`), and continue until they are stopped.
"""

import enum
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tests.interop.lines import Received
from tests.interop.peers import PeerFailed
from tests.interop.transacting import BOUND, Refused, Transactor, TransactorClient

DEBITS, CREDITS = "debits", "credits"
PARTITIONS = 4


class Told(enum.Enum):
    """The outcome of a transaction that a client reported."""

    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    NOTHING = enum.auto()
    """The client gave up during the commit."""


@dataclass(frozen=True)
class Transfer:
    """A transfer, and the outcome that its producer reported.

    Attributes:
        legs: topic and key of each record -> its amount; their sum is zero.
    """

    legs: dict[tuple[str, bytes], int]
    told: Told


class Steps:
    """The progress of clients; several threads write it."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.steps: Counter[str] = Counter()
        """Client -> number of its completed transactions or records."""
        self.errors: list[BaseException] = []
        """Errors that ended a thread."""

    def step(self, name: str) -> None:
        """Count a completed transaction or record of a client."""
        with self._news:
            self.steps[name] += 1
            self._news.notify_all()

    def failed(self, error: BaseException) -> None:
        with self._news:
            self.errors.append(error)
            self._news.notify_all()

    def await_steps(self, count: int, clients: Collection[str] = (), timeout: float = BOUND) -> None:
        """Wait until ``count`` more are complete, and one of each of ``clients``.

        Raises:
            AssertionError: they are not complete within ``timeout`` seconds, or a client has failed.
        """
        with self._news:
            before = self.steps.copy()

            def waiting() -> str:
                missing = [name for name in clients if self.steps[name] == before[name]]
                left = count - (self.steps.total() - before.total())
                return f"{left}, and those of {missing}" if missing or left > 0 else ""

            self._news.wait_for(lambda: self.errors or not waiting(), timeout)
            assert not self.errors, self.errors
            assert not waiting(), f"not ended in {timeout:g} s: {waiting()}"


class Ledger(Steps):
    """The outcomes of all transfers."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers: list[Transfer] = []

    def note(self, transfer: Transfer) -> None:
        with self._news:
            self.transfers.append(transfer)

    def count(self, told: Told) -> int:
        """The number of transfers with this outcome."""
        return sum(each.told is told for each in self.transfers)

    def check(self, read: Iterable[tuple[str, Received]]) -> None:
        """Check the committed records of both topics.

        Raises:
            AssertionError: records are lost, repeated, aborted or unknown, or a transfer is there only in part.
        """
        seen = Counter((topic, record.key or b"", int(record.value or b"")) for topic, record in read)
        twice = [record for record, count in seen.items() if count > 1]
        assert not twice, f"stored twice: {twice}"
        left = set(seen)
        for transfer in self.transfers:
            legs = {(topic, key, amount) for (topic, key), amount in transfer.legs.items()}
            there = legs & left
            left -= there
            assert there in (legs, set()), f"a part of {transfer}: {there}"
            assert there or transfer.told is not Told.COMMITTED, f"lost: {transfer}"
            assert not there or transfer.told is not Told.ABORTED, f"aborted, but visible: {transfer}"
        assert not left, f"records that no teller has sent: {left}"
        assert sum(amount for _, _, amount in seen) == 0


class _Client(threading.Thread):
    """A producer that continues whatever happens.

    Attributes:
        hung: the number of restarts of its program because it no longer responded.
        refused: the beginnings of the texts of its errors.
    """

    def __init__(self, client: TransactorClient, bootstrap: str, name: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.hung = 0
        self.refused: Counter[str] = Counter()
        self._client, self._address, self._ledger = client, bootstrap, ledger
        self._over, self._ended = threading.Event(), False
        self._producer: Transactor = client.start(bootstrap, name, enough=client.hangs_after)

    def stop(self) -> None:
        """Stop after the current transaction."""
        self._over.set()

    def end(self) -> None:
        """Kill its program; errors no longer count."""
        self._ended = True
        self._producer.__exit__(None, None, None)

    def run(self) -> None:
        try:
            self._producer.insist("init")
            self._prepare()
            while not self._over.is_set():
                self._transact()
        except BaseException as error:
            if not self._ended:
                self._ledger.failed(error)
                raise

    def _prepare(self) -> None:
        """Called before the first transaction of a program."""

    def _transact(self) -> None:
        """Run a transaction, and leave none open."""
        raise NotImplementedError

    def _recover(self, error: Refused | PeerFailed) -> bool:
        """Handle an error, and return whether the transaction is known to be aborted."""
        if isinstance(error, Refused):
            self.refused[str(error)[:80]] += 1
        if isinstance(error, Refused) and error.kind == "abortable":
            try:
                self._producer.insist("abort")
                return True
            except Refused:
                pass  # then only another producer helps
            except PeerFailed as failed:
                error = failed
        if isinstance(error, PeerFailed):
            self._start_again(error)
        deadline = time.monotonic() + BOUND
        while True:
            try:
                self._producer.open()
                self._producer.insist("init")
                return False
            except Refused:
                if time.monotonic() > deadline:
                    raise

    def _start_again(self, error: PeerFailed) -> None:
        if self._client.hangs_after is None or self._ended:
            raise error
        self.hung += 1
        self._producer.__exit__(None, None, None)
        self._producer = self._client.start(self._address, self.name, enough=self._client.hangs_after)
        self._prepare()


class Teller(_Client):
    """Makes transfers.

    Args:
        seed: the seed for amounts, partitions, and aborts.
    """

    def __init__(self, client: TransactorClient, bootstrap: str, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(client, bootstrap, name, ledger)
        self._rng = random.Random(f"{seed} {name}")
        self._number = 0

    def _transact(self) -> None:
        self._number += 1
        legs = self._legs(b"%s-%d" % (self.name.encode(), self._number))
        self._ledger.note(Transfer(legs, self._carry_out(legs)))
        self._ledger.step(self.name)

    def _legs(self, key: bytes) -> dict[tuple[str, bytes], int]:
        parts = [self._rng.randrange(1, 1000) for _ in range(self._rng.randrange(1, 4))]
        return {(DEBITS, key): -sum(parts)} | {(CREDITS, b"%s/%d" % (key, i)): part for i, part in enumerate(parts)}

    def _carry_out(self, legs: dict[tuple[str, bytes], int]) -> Told:
        told = Told.ABORTED  # until the commit begins
        try:
            self._producer.do("begin")
            for (topic, key), amount in legs.items():
                self._producer.send(topic, self._rng.randrange(PARTITIONS), key, b"%d" % amount)
            if self._rng.random() < 0.2:
                self._producer.do("flush")
                self._producer.insist("abort")
                return told
            told = Told.NOTHING
            self._producer.insist("commit")
            return Told.COMMITTED
        except (Refused, PeerFailed) as error:
            return Told.ABORTED if self._recover(error) else told


class Passer(_Client):
    """Copies the committed records of a topic of debits to the topic of its own name."""

    def __init__(self, client: TransactorClient, bootstrap: str, name: str, ledger: Ledger, source: str) -> None:
        super().__init__(client, bootstrap, name, ledger)
        self._source = source

    def _prepare(self) -> None:
        self._producer.subscribe(self._source, self.name)

    def _transact(self) -> None:
        try:
            if not (records := self._producer.poll()):
                return
            self._producer.do("begin")
            for record in records:
                self._producer.send(self.name, record.partition, record.key or b"", record.value or b"")
            self._producer.do("offsets")
            self._producer.insist("commit")
            self._ledger.step(self.name)
        except (Refused, PeerFailed) as error:
            self._recover(error)
            self._producer.insist("rewind")


def until(condition: Callable[[], bool], what: str, timeout: float = BOUND) -> None:
    """Wait for the work of other programs.

    Raises:
        AssertionError: the condition did not hold within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.1)  # other processes give the test no event to wait on
