"""Checks the promises of transfers against the tellers' journals and the reads of independent clients; pure.

each transfer is whole or absent       whole if its teller was notified so, absent if it never began to commit;
                                       each record is stored once, and all clients read the same
a poll returns the committed records   all of them between its two positions: no aborted ones, no repeats, no gaps, and
                                       none before its transaction began to commit
a fenced program writes no more        in each partition, the records of a transactional id are in the order in which
                                       they were sent, one program after the other
a fencing has a reason                 a newer program, or a transaction older than its timeout
every transaction has ended            and soon; none is open for longer than its timeout
no teller has died

Source: Jepsen's workload for Kafka (jepsen.tests.kafka): lost writes, aborted reads, duplicates, skipped and
nonmonotonic polls and sends.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TypeVar

from tests.chaos.fences import Programs
from tests.chaos.journal import Event
from tests.chaos.ledger import add
from tests.interop.lines import Received
from tests.interop.transfers import Ledger, Told, Transfer

LONGEST = 120.0
"""Seconds within which any transaction has ended: nodes are never away for as long."""
P = TypeVar("P")
R = TypeVar("R")
Place = tuple[str, int]
Record = tuple[int, str, int]
"""Offset, key, amount."""


@dataclass
class Evidence:
    """The evidence of a run.

    Attributes:
        open: partitions with a transaction that should long have ended.
        readers: name of a client -> topic -> the records that it read, in the order of each partition.
    """

    programs: Programs
    open: list[str]
    readers: dict[str, dict[str, list[Received]]]


@dataclass
class Transaction:
    """A transaction in its teller's journal; a time is infinite if the transaction never got that far."""

    name: str
    teller: str
    begins: float
    legs: list[tuple[str, str, int]]
    """Topic, key and amount."""
    open: float = float("inf")
    commits: float = float("inf")
    """The start of the commit."""
    over: float = float("inf")
    outcome: str = ""
    """The outcome that the teller was notified of; empty if of none."""
    why: str = ""

    @property
    def told(self) -> Told:
        if self.outcome == "committed":
            return Told.COMMITTED
        return Told.NOTHING if self.commits < float("inf") and self.outcome != "aborted" else Told.ABORTED

    def transfer(self) -> Transfer:
        return Transfer({(topic, key.encode()): amount for topic, key, amount in self.legs}, self.told)


@dataclass
class Poll:
    """The records that a poll returned, from ``position`` up to ``next``."""

    time: float
    reader: str
    place: Place
    position: int
    next: int
    records: list[Record]


@dataclass
class Verdict:
    broken: list[str] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    fenced: dict[str, str] = field(default_factory=dict)
    """Program -> reason."""
    found: dict[str, int] = field(default_factory=dict)
    """The actual outcome of transactions whose tellers were notified of none -> number of transactions."""


def judge(evidence: Evidence) -> Verdict:
    verdict = Verdict()
    programs = evidence.programs
    for name, events in programs.journals.items():
        verdict.transactions += _transactions(name, events)
        verdict.polls += _polls(name, events)
    add(verdict.broken, "a teller died", [f"{name}: {how}" for name, how in programs.died.items()])
    add(verdict.broken, "a transaction hangs", evidence.open)
    verdict.fenced, unexplained = programs.fences()
    add(verdict.broken, "fenced without a reason", unexplained)
    _judge_ends(verdict, programs)
    _judge_readers(verdict, evidence)
    log = by_place(next(iter(evidence.readers.values())))
    _judge_polls(verdict, log)
    _judge_order(verdict, programs, log)
    return verdict


# -- the journals ------------------------------------------------------------------------------------------------------


def _transactions(teller: str, events: Iterable[Event]) -> list[Transaction]:
    found: dict[str, Transaction] = {}
    for kind, time, *what in events:
        match kind:
            case "begins":
                name, legs = what
                found[name] = Transaction(name, teller, time, [(topic, key, amount) for topic, key, amount in legs])
            case "open":
                found[what[0]].open = time
            case "commits":
                found[what[0]].commits = time
            case "over":
                each = found[what[0]]
                each.over, each.outcome, each.why = time, what[1], what[2]
    return list(found.values())


def _polls(reader: str, events: Iterable[Event]) -> list[Poll]:
    at: dict[Place, int] = {}
    polls: list[Poll] = []
    for kind, time, *what in events:
        if kind == "reads":
            topic, partition, position = what
            at[topic, partition] = position
        elif kind == "poll":
            topic, partition, next_, records = what
            read = [(offset, key, amount) for offset, key, amount in records]
            polls.append(Poll(time, reader, (topic, partition), at[topic, partition], next_, read))
            at[topic, partition] = next_
    return polls


def by_place(read: Mapping[str, list[Received]]) -> dict[Place, list[Record]]:
    log: dict[Place, list[Record]] = defaultdict(list)
    for topic, records in read.items():
        for each in records:
            log[topic, each.partition].append((each.offset, (each.key or b"").decode(), int(each.value or b"")))
    return log


# -- the promises ----------------------------------------------------------------------------------------------------


def _judge_ends(verdict: Verdict, programs: Programs) -> None:
    gone = {*programs.killed, *programs.died}
    endless = [each for each in verdict.transactions if not each.outcome and each.teller not in gone]
    add(verdict.broken, "a transaction without an end", [each.name for each in endless])
    late = [each for each in verdict.transactions if each.outcome and each.over - each.begins > LONGEST]
    add(verdict.broken, "a transaction that took too long", [f"{t.name}, {t.over - t.begins:.0f} s" for t in late])


def _judge_readers(verdict: Verdict, evidence: Evidence) -> None:
    ledger = Ledger()
    ledger.transfers = [each.transfer() for each in verdict.transactions]
    (first, expected), *_ = evidence.readers.items()
    there = {(topic, record.key) for topic, records in expected.items() for record in records}
    for each, transfer in zip(verdict.transactions, ledger.transfers, strict=True):
        if transfer.told is Told.NOTHING:
            became = f"{each.outcome or 'killed'}, {'committed' if set(transfer.legs) <= there else 'absent'}"
            verdict.found[became] = verdict.found.get(became, 0) + 1
    for name, read in evidence.readers.items():
        try:
            ledger.check((topic, record) for topic, records in read.items() for record in records)
        except AssertionError as error:
            verdict.broken.append(f"as {name} reads it: {error}"[:1000])
        if name != first and (other := difference(by_place(read), by_place(expected))):
            verdict.broken.append(f"{name} and {first} read otherwise: {other}")


def difference(read: Mapping[P, list[R]], expected: Mapping[P, list[R]]) -> str:
    """The first difference between the reads of two clients; empty if there is none."""
    for place in {**read, **expected}:
        one, other = read.get(place, []), expected.get(place, [])
        if one != other:
            at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
            return f"{place}: {len(one)} and {len(other)} records, {one[at : at + 2]} and {other[at : at + 2]}"
    return ""


def _judge_polls(verdict: Verdict, log: Mapping[Place, list[Record]]) -> None:
    back: list[str] = []
    wrong: list[str] = []
    skipped: list[str] = []
    early: list[str] = []
    by_key = {(topic, key): each for each in verdict.transactions for topic, key, _ in each.legs}
    offsets = {place: [offset for offset, _, _ in records] for place, records in log.items()}
    for poll in verdict.polls:
        place = poll.place
        low, high = (bisect_left(offsets.get(place, []), each) for each in (poll.position, poll.next))
        expected = log.get(place, [])[low:high]
        where = f"{place[0]}-{place[1]}"
        for record in poll.records:
            transaction = by_key.get((place[0], record[1]))
            if transaction is not None and transaction.commits > poll.time:
                early.append(f"{where}: {record} of {transaction.name} by {poll.reader}")
        if poll.records == expected:
            continue
        back += [f"{where}: {each} by {poll.reader}" for each in poll.records if each[0] < poll.position]
        wrong += [f"{where}: {each} by {poll.reader}" for each in poll.records if each not in expected]
        skipped += [f"{where}: {each} by {poll.reader}" for each in expected if each not in poll.records]
        if sorted(poll.records) != poll.records:
            back.append(f"{where}: {poll.position}..{poll.next} by {poll.reader}, out of order")
    add(verdict.broken, "read before its commit was asked for", early)
    add(verdict.broken, "a poll went backwards", back)
    add(verdict.broken, "read, and not committed", wrong)
    add(verdict.broken, "committed, and left out by a poll", skipped)


def _judge_order(verdict: Verdict, programs: Programs, log: Mapping[Place, list[Record]]) -> None:
    """In each partition, the records of a transactional id are in the order in which they were sent."""
    sent: dict[tuple[str, str], tuple[str, int]] = {}
    """Topic and key -> transactional id, number."""
    order = sorted(verdict.transactions, key=lambda each: (programs.started[each.teller], each.begins))
    for number, (teller, leg) in enumerate((each.teller, leg) for each in order for leg in each.legs):
        sent[leg[0], leg[1]] = programs.ids[teller], number
    wrong = []
    for (topic, partition), records in log.items():
        known = [(sent[topic, key], key) for _, key, _ in records if (topic, key) in sent]
        for _, group in groupby(sorted(known, key=lambda each: each[0][0]), key=lambda each: each[0][0]):
            ours = list(group)
            wrong += [
                f"{topic}-{partition}: {after[1]} behind {before[1]}"
                for before, after in pairwise(ours)
                if after[0][1] < before[0][1]
            ]
    add(verdict.broken, "stored in another order than sent", wrong)
