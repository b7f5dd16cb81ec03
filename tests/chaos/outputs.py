"""Checks the promises of consume, transform, produce: each input record is in the output exactly once; pure.

each output is stored once             every client reads all of them, without repeats and without other records
the order of each key is kept          its numbers ascend in the output
all clients read the same              the same records, in the same order
commits never go backwards             offsets of a transaction count if it was committed
a fencing has a reason                 a newer program, or a transaction older than its timeout
no transaction hangs
no client has died

`tests.chaos.ledger` judges the records that producers send into the input.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.fences import Programs
from tests.chaos.history import difference
from tests.chaos.journal import Event
from tests.chaos.ledger import Verdict as Sends
from tests.chaos.ledger import add, backwards, judge_log, sends_of
from tests.interop.lines import Received


@dataclass
class Evidence:
    """The evidence of a run.

    Attributes:
        input: partition -> its records (offset, key, value).
        readers: name of a client -> the records that it reads from the output, by partition, in order.
        commits: partition of the input -> committed offsets, in their order in the coordinator's log.
        behind: partition of the input -> the number of records that the group has not committed in the end.
        open: partitions with a transaction that should long have ended.
    """

    programs: Programs
    input: Mapping[int, list[tuple[int, bytes, bytes]]]
    readers: dict[str, list[Received]]
    commits: dict[int, list[int]]
    behind: dict[int, int]
    open: list[str]


@dataclass
class Transaction:
    """A transaction in its program's journal; a time is infinite if the transaction never got that far."""

    name: str
    records: int
    begins: float
    commits: float = float("inf")
    over: float = float("inf")
    outcome: str = ""


@dataclass
class Verdict:
    sends: Sends
    broken: list[str] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    fenced: dict[str, str] = field(default_factory=dict)


def judge(evidence: Evidence, delivery: float) -> Verdict:
    """Check all promises; ``delivery``: seconds within which a producer's send has ended."""
    programs = evidence.programs
    verdict = Verdict(Sends())
    for events in programs.journals.values():
        verdict.sends.sends += sends_of(events)
        verdict.transactions += _transactions(events)
    judge_log(verdict.sends, evidence.input, delivery)
    verdict.broken += verdict.sends.broken
    verdict.fenced, unexplained = programs.fences()
    add(verdict.broken, "a client died", [f"{name}: {how}" for name, how in programs.died.items()])
    add(verdict.broken, "fenced without a reason", unexplained)
    add(verdict.broken, "a transaction hangs", evidence.open)
    add(verdict.broken, "a commit went backwards", backwards(evidence.commits))
    add(verdict.broken, "never committed by the group", [f"{each}: {n} records" for each, n in evidence.behind.items()])
    _judge_outputs(verdict, evidence)
    return verdict


def _transactions(events: Sequence[Event]) -> list[Transaction]:
    found: dict[str, Transaction] = {}
    for kind, time, *what in events:
        if kind == "begins":
            name, batches = what
            found[name] = Transaction(name, sum(count for _, _, count in batches), time)
        elif kind == "commits":
            found[what[0]].commits = time
        elif kind == "over":
            found[what[0]].over, found[what[0]].outcome = time, what[1]
    return list(found.values())


def _judge_outputs(verdict: Verdict, evidence: Evidence) -> None:
    wanted = Counter((key, value) for records in evidence.input.values() for _, key, value in records)
    (first, expected), *others = evidence.readers.items()
    for name, read in evidence.readers.items():
        found = Counter((each.key or b"", each.value or b"") for each in read)
        for what, records in (("left out", wanted - found), ("too often, or nobody's", found - wanted)):
            add(verdict.broken, f"{what}, as {name} reads it", [_shown(*each) for each in records.elements()])
    for name, read in others:
        if other := difference(_by_partition(read), _by_partition(expected)):
            verdict.broken.append(f"{name} and {first} read otherwise: {other}")
    wrong = []
    last: dict[bytes, int] = {}
    for each in expected:
        key, number = each.key or b"", int((each.value or b"").split(b" ", 1)[0])
        if number < last.get(key, -1):
            wrong.append(f"{key.decode()} #{number} behind #{last[key]} at {each.partition}/{each.offset}")
        last[key] = number
    add(verdict.broken, "the outputs of a key are out of order", wrong)


def _by_partition(read: Sequence[Received]) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}
    for each in read:
        found.setdefault(each.partition, []).append((each.offset, each.key, each.value))
    return found


def _shown(key: bytes, value: bytes) -> str:
    return f"{key.decode()} #{value.split(b' ', 1)[0].decode()}"
