"""Transfers of money, each a transaction of its own, and the ledger that says what must be left of them.

A transfer takes an amount from the topic `DEBITS` and puts it, in up to three parts, into the topic `CREDITS`. Whatever
happens to producers and brokers, of each transfer both are there, each record once, or nothing is.

Rules:
- What a `Teller` was told is kept in the ledger as it was told: committed, aborted, or nothing.
- A `Passer` reads the committed debits and passes each on, in the transaction that commits how far it has read: in its
  topic there is each of them once.
- Both do about errors what the documentation of their client says (`Refused.kind`), and go on until they are stopped.
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
    """What a client said of a transaction."""

    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    NOTHING = enum.auto()
    """It was to be committed, and the client gave up."""


@dataclass(frozen=True)
class Transfer:
    """A transfer, and what its producer was told.

    Attributes:
        legs: topic and key of each record -> its amount; their sum is zero.
    """

    legs: dict[tuple[str, bytes], int]
    told: Told


class Steps:
    """How far clients have come; several threads write it."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.steps: Counter[str] = Counter()
        """Client -> how many of its transactions, or records, have come to an end."""
        self.errors: list[BaseException] = []
        """What has ended a thread."""

    def step(self, name: str) -> None:
        """A client has come to the end of a transaction, or of a record."""
        with self._news:
            self.steps[name] += 1
            self._news.notify_all()

    def failed(self, error: BaseException) -> None:
        with self._news:
            self.errors.append(error)
            self._news.notify_all()

    def await_steps(self, count: int, clients: Collection[str] = (), timeout: float = BOUND) -> None:
        """Wait until ``count`` more have ended, and one of each of ``clients``.

        Raises:
            AssertionError: they have not within ``timeout`` seconds, or a client has failed.
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
    """What is known of all transfers."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers: list[Transfer] = []

    def note(self, transfer: Transfer) -> None:
        with self._news:
            self.transfers.append(transfer)

    def count(self, told: Told) -> int:
        """How many transfers have ended so."""
        return sum(each.told is told for each in self.transfers)

    def check(self, read: Iterable[tuple[str, Received]]) -> None:
        """Whether the committed records of both topics are those that must be there.

        Raises:
            AssertionError: they are not.
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
            assert not there or transfer.told is not Told.ABORTED, f"there in spite of its end: {transfer}"
        assert not left, f"nobody has sent {left}"
        assert sum(amount for _, _, amount in seen) == 0


class _Client(threading.Thread):
    """One producer that goes on whatever happens.

    Attributes:
        hung: how often its program had to be started again, because it did not answer any more.
        refused: the errors that it was told, as their texts begin.
    """

    def __init__(self, client: TransactorClient, bootstrap: str, name: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.hung = 0
        self.refused: Counter[str] = Counter()
        self._client, self._address, self._ledger = client, bootstrap, ledger
        self._over, self._ended = threading.Event(), False
        self._producer: Transactor = client.start(bootstrap, name)

    def stop(self) -> None:
        """End after the transaction that it is in."""
        self._over.set()

    def end(self) -> None:
        """End its program at once, and fail no more."""
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
        """Before the first transaction of a program."""

    def _transact(self) -> None:
        """Have a transaction, and let none be open."""
        raise NotImplementedError

    def _recover(self, error: Refused | PeerFailed) -> bool:
        """Do what is to be done about an error, and return whether the transaction is known to be aborted."""
        if isinstance(error, Refused):
            self.refused[str(error)[:80]] += 1
        if isinstance(error, Refused) and error.kind == "abortable":
            try:
                self._producer.insist("abort")
                return True
            except Refused:
                pass  # then nothing but another producer helps
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
        self._producer = self._client.start(self._address, self.name)
        self._prepare()


class Teller(_Client):
    """Makes transfers.

    Args:
        seed: of amounts, partitions, and which are aborted.
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
        told = Told.ABORTED  # as long as nobody asked for more
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
    """Passes the committed records of a topic of debits on to that of its name."""

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
    """Wait for what programs do by themselves.

    Raises:
        AssertionError: it has not happened within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.1)  # for other processes there is nothing else to wait on
