"""Checks the promises of a run against the journals of its programs and the reads of independent clients; pure.

no acknowledged record is lost         it is at the offset that the receipt names
no record is stored twice              each number of each key once
the order of each key is kept          its numbers ascend in the log
every send has ended                   by its deadline, with a receipt or an error
the group has read every record        and each time as it is stored
a member skips and repeats no record   from the assignment of a partition until its end
a repeat has a reason                  the first reader was killed, lost the partition, or could not commit
commits never go backwards             in the coordinator's log and in its responses
no partition is silent                 records are read within `Bounds.silence`, apart from slow handlers
no client has died
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from tests.chaos.journal import Event, checksum

SHOWN = 3
"""The number of examples that a broken promise shows."""


@dataclass(frozen=True)
class Bounds:
    """Limits in seconds."""

    delivery: float
    silence: float
    handler: float
    """The duration of a handler after which its member must leave the group."""


@dataclass
class Evidence:
    """The evidence of a run; all times are of one monotonic clock.

    Attributes:
        journals: name of a program -> its events.
        killed: name of a program -> when the run killed it.
        died: name of a program -> how it failed on its own.
        log: partition -> its records (offset, key, value).
        commits: partition -> committed offsets, in their order in the coordinator's log.
        answers: time, and the committed offsets in the coordinator's response.
    """

    journals: dict[str, list[Event]]
    killed: dict[str, float]
    died: dict[str, str]
    log: Mapping[int, list[tuple[int, bytes, bytes]]]
    commits: Mapping[int, list[int]]
    answers: list[tuple[float, dict[int, int]]]


@dataclass
class Send:
    key: str
    number: int
    time: float
    how: str
    partition: int = -1
    offset: int = -1
    latency: float = -1.0
    """Seconds until its receipt or its error; -1 if there was neither."""
    error: str = ""


@dataclass
class Read:
    """A batch that a consumer read."""

    time: float
    who: str
    partition: int
    first: int
    next: int
    checksum: int
    assignment: "Assignment"


@dataclass
class Assignment:
    """A partition's assignment to a consumer; ``end`` says how it ended: revoked, lost, killed or closed."""

    who: str
    partition: int
    start: float
    position: int | None
    """None if the position was not known yet."""
    end: str = ""
    ended: float = float("inf")
    refused: bool = False
    """Whether a commit failed, or the client gave it up, before the assignment ended or just after."""


@dataclass(frozen=True)
class Silence:
    seconds: float
    """Without the time that slow handlers took."""
    since: float
    time: float
    """When it ended."""
    who: str
    partition: int


@dataclass
class Verdict:
    broken: list[str] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)
    """Reason -> records read again."""
    silences: dict[str, Silence] = field(default_factory=dict)
    """Consumer -> its longest silence."""
    stale_answers: int = 0

    def add(self, what: str, examples: list[str]) -> None:
        add(self.broken, what, examples)


def add(broken: list[str], what: str, examples: Sequence[str]) -> None:
    """Record a broken promise, if there are examples."""
    if examples:
        more = f" and {len(examples) - SHOWN} more" if len(examples) > SHOWN else ""
        broken.append(f"{what}: {'; '.join(examples[:SHOWN])}{more}")


def judge(evidence: Evidence, bounds: Bounds) -> Verdict:
    verdict = Verdict()
    for name, events in evidence.journals.items():
        verdict.sends += sends_of(events)
        reads, assignments = _reads(name, events, evidence.killed.get(name))
        verdict.reads += reads
        verdict.assignments += assignments
    verdict.reads.sort(key=lambda each: each.time)
    verdict.add("a client died", [f"{name}: {how}" for name, how in evidence.died.items()])
    judge_log(verdict, evidence.log, bounds.delivery)
    _judge_reading(verdict, evidence)
    _judge_assignments(verdict)
    _judge_repeats(verdict)
    _judge_commits(verdict, evidence)
    _judge_silence(verdict, evidence, bounds)
    return verdict


# -- the journals ------------------------------------------------------------------------------------------------------


def sends_of(events: Iterable[Event]) -> list[Send]:
    sends: dict[tuple[str, int], Send] = {}
    for kind, time, *what in events:
        if kind == "sent":
            key, number, how = what
            sends[key, number] = Send(key, number, time, how)
        elif kind == "acked":
            key, number, partition, offset, latency = what
            send = sends[key, number]
            send.partition, send.offset, send.latency = partition, offset, latency
        elif kind == "failed":
            key, number, error, latency = what
            sends[key, number].error, sends[key, number].latency = error, latency
    return list(sends.values())


def _reads(who: str, events: Iterable[Event], killed: float | None) -> tuple[list[Read], list[Assignment]]:
    """The batches of a consumer, and its assignments."""
    reads: list[Read] = []
    assignments: list[Assignment] = []
    held: dict[int, Assignment] = {}
    leaving: list[Assignment] = []
    """Assignments that ended last: a commit that fails now may be for them."""
    for kind, time, *what in events:
        if kind == "assigned":
            for partition, position in what[0].items():
                held[int(partition)] = assignment = Assignment(who, int(partition), time, position)
                assignments.append(assignment)
        elif kind in ("revoked", "lost"):
            leaving = [held.pop(partition) for partition in what[0] if partition in held]
            for assignment in leaving:
                assignment.end, assignment.ended = kind, time
        elif kind == "batch":
            partition, first, next_, _, read = what
            leaving = []
            if partition not in held:  # read before the listener's call: a broken promise, which its `end` shows
                held[partition] = Assignment(who, partition, time, first, end="never assigned")
                assignments.append(held[partition])
            reads.append(Read(time, who, partition, first, next_, read, held[partition]))
        elif kind == "refused" or (
            kind == "log" and any(each in what[1] for each in ("commit", "given up", "abandoned"))
        ):
            for assignment in [*leaving, *held.values()]:
                assignment.refused = True
    for assignment in held.values():
        if not assignment.end:
            assignment.end, assignment.ended = ("killed", killed) if killed is not None else ("closed", float("inf"))
    return reads, assignments


# -- the promises ----------------------------------------------------------------------------------------------------


def judge_log(verdict: Verdict, log: Mapping[int, list[tuple[int, bytes, bytes]]], delivery: float) -> None:
    """Compare the sent records with the stored ones; ``delivery``: seconds within which a send has ended."""
    stored: dict[tuple[str, int], tuple[int, int]] = {}
    twice: list[str] = []
    order: list[str] = []
    last: dict[str, tuple[int, int]] = {}
    """Key -> number and partition of its last record."""
    for partition, records in log.items():
        for offset, raw_key, value in records:
            key, number = raw_key.decode(), int(value.split(b" ", 1)[0])
            if (key, number) in stored:
                before = stored[key, number]
                twice.append(f"{key} #{number} at {before[0]}/{before[1]} and {partition}/{offset}")
                continue
            stored[key, number] = partition, offset
            before = last.get(key, (-1, partition))
            if number < before[0]:
                order.append(f"{key} #{number} behind #{before[0]} at {partition}/{offset}")
            if partition != before[1]:
                order.append(f"{key} in partitions {before[1]} and {partition}")
            last[key] = number, partition
    verdict.add("stored twice", twice)
    verdict.add("out of order", order)
    acked = [each for each in verdict.sends if each.offset >= 0]
    lost = [each for each in acked if stored.get((each.key, each.number)) != (each.partition, each.offset)]
    verdict.add(
        "acknowledged and lost",
        [f"{s.key} #{s.number}, acknowledged at {s.partition}/{s.offset}, is {_at(stored, s)}" for s in lost],
    )
    open_ = [each for each in verdict.sends if each.latency < 0]
    verdict.add("a send without an end", [f"{each.key} #{each.number} ({each.how})" for each in open_])
    late = [each for each in verdict.sends if each.latency > delivery]
    verdict.add("a send after its deadline", [f"{s.key} #{s.number}, {s.latency:.1f} s: {s.error}" for s in late])


def _at(stored: Mapping[tuple[str, int], tuple[int, int]], send: Send) -> str:
    found = stored.get((send.key, send.number))
    return f"at {found[0]}/{found[1]}" if found else "nowhere"


def _judge_reading(verdict: Verdict, evidence: Evidence) -> None:
    """The group has read every record, and as it is stored."""
    wrong, missing = [], []
    offsets = {partition: [each[0] for each in records] for partition, records in evidence.log.items()}
    covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for read in verdict.reads:
        records = evidence.log[read.partition]
        low, high = (bisect_left(offsets[read.partition], each) for each in (read.first, read.next))
        if checksum(records[low:high]) != read.checksum:
            wrong.append(f"{read.partition}/{read.first}..{read.next - 1} by {read.who}")
        covered[read.partition].append((read.first, read.next))
    for partition, records in evidence.log.items():
        at = 0
        for first, next_ in [*sorted(covered[partition]), (len(records), len(records))]:
            if first > at:
                missing.append(f"{partition}/{at}..{first - 1}")
            at = max(at, next_)
    verdict.add("read otherwise than it is stored", wrong)
    verdict.add("never read by the group", missing)


def _judge_assignments(verdict: Verdict) -> None:
    """A member reads the records of an assigned partition once and without gaps."""
    at: dict[int, int] = {}
    wrong = []
    for read in verdict.reads:
        assignment = read.assignment
        expected = at.get(id(assignment), assignment.position)
        if expected is not None and read.first != expected:
            wrong.append(f"{read.who} got {read.partition}/{read.first}, expected {expected}")
        if assignment.end == "never assigned":
            wrong.append(f"{read.who} got {read.partition}/{read.first}, and was never assigned the partition")
        at[id(assignment)] = read.next
    verdict.add("skipped or repeated by one member", wrong)


def _judge_repeats(verdict: Verdict) -> None:
    """A repeated read must have a reason: the way in which the assignment of the first reader ended."""
    repeats: dict[str, int] = defaultdict(int)
    unexplained: list[str] = []
    pieces: dict[int, list[Read]] = defaultdict(list)
    """Partition -> the reads that a later one may repeat, in their order."""
    for read in verdict.reads:
        before = pieces[read.partition]
        while before and before[-1].first >= read.first and before[-1].assignment is not read.assignment:
            repeats[_reason(before[-1])] += before[-1].next - before[-1].first
            unexplained += _unexplained(read, before.pop())
        if before and before[-1].next > read.first and before[-1].assignment is not read.assignment:
            repeats[_reason(before[-1])] += before[-1].next - read.first
            unexplained += _unexplained(read, before[-1])
        before.append(read)
    verdict.repeats = dict(repeats)
    verdict.add("read again without a reason", unexplained)


def _reason(first: Read) -> str:
    assignment = first.assignment
    return (
        f"{assignment.end}, commit refused"
        if assignment.end in ("revoked", "closed") and assignment.refused
        else assignment.end
    )


def _unexplained(again: Read, first: Read) -> Iterator[str]:
    if _reason(first) in ("revoked", "closed"):
        yield (
            f"{again.partition}/{again.first} by {again.who}, after {first.who} had read "
            f"{first.first}..{first.next - 1} and the partition was {first.assignment.end} in peace"
        )


def _judge_commits(verdict: Verdict, evidence: Evidence) -> None:
    verdict.add("a commit went backwards", backwards(evidence.commits))
    highest: dict[int, int] = {}
    lower_since: dict[int, int] = {}
    stayed = []
    for _, answer in evidence.answers:
        for partition, offset in answer.items():
            if offset >= highest.get(partition, 0):
                highest[partition], lower_since[partition] = offset, 0
                continue
            verdict.stale_answers += 1
            lower_since[partition] += 1
            if lower_since[partition] == 3:
                stayed.append(f"partition {partition} from {highest[partition]} to {offset}")
    verdict.add("the coordinator answers with lower offsets, and goes on so", stayed)


def backwards(commits: Mapping[int, list[int]]) -> list[str]:
    """Each place where the coordinator's log has a lower offset after a higher one."""
    return [
        f"partition {partition} from {before} to {after}"
        for partition, offsets in commits.items()
        for before, after in pairwise(offsets)
        if after < before
    ]


def _judge_silence(verdict: Verdict, evidence: Evidence, bounds: Bounds) -> None:
    """How long a record that was stored, and was next in its partition, waited until any member read it.

    The time of slow handlers of the partition's owner is not counted: the run has asked for them.
    """
    there = {(each.partition, each.offset): each.time + each.latency for each in verdict.sends if each.offset >= 0}
    slow = _slow_handlers(verdict, evidence, bounds)
    at: dict[int, int] = defaultdict(int)
    before: dict[int, float] = {}
    for read in verdict.reads:
        partition = read.partition
        if read.next <= at[partition]:
            continue
        since = there.get((partition, max(read.first, at[partition])))
        if since is not None:
            since = max(since, before.get(partition, 0.0))
            seconds = (
                read.time
                - since
                - sum(max(min(end, read.time) - max(start, since), 0.0) for start, end in slow[partition])
            )
            known = verdict.silences.get(read.who)
            if known is None or seconds > known.seconds:
                verdict.silences[read.who] = Silence(seconds, since, read.time, read.who, partition)
        at[partition], before[partition] = read.next, read.time
    verdict.add(
        "a partition was silent for too long",
        [f"{s.partition}, {s.seconds:.1f} s, then read by {s.who}" for s in verdict.silences.values()
         if s.seconds > bounds.silence],
    )  # fmt: skip


def _slow_handlers(verdict: Verdict, evidence: Evidence, bounds: Bounds) -> Mapping[int, list[tuple[float, float]]]:
    """Partition -> when its owner was in a handler that the run had made slow; the times do not overlap.

    After `Bounds.handler` the client must leave the group, so the time after that counts as silence again.
    """
    handlers = {
        name: [(time, time + min(what[0], bounds.handler)) for kind, time, *what in events if kind == "slow"]
        for name, events in evidence.journals.items()
    }
    slow: dict[int, list[tuple[float, float]]] = defaultdict(list)
    owners: dict[int, list[Assignment]] = defaultdict(list)
    for each in sorted(verdict.assignments, key=lambda each: each.start):
        owners[each.partition].append(each)
    for partition, assignments in owners.items():
        # A member that was too slow learns late that it has lost the partition: the next owner ends its time.
        for one, after in zip_longest(assignments, assignments[1:]):
            ended = min(one.ended, after.start) if after else one.ended
            for start, end in handlers[one.who]:
                if max(start, one.start) < min(end, ended):
                    slow[partition].append((max(start, one.start), min(end, ended)))
    return slow
