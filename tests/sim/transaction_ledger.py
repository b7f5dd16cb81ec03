"""What transactions promise, and whether brokers and clients keep it.

Rules:
- A transaction whose end was acknowledged is whole, or absent, as it was asked for; one of which that is not known is
  whole or absent. The offsets that it commits go with it.
- What was acknowledged within a transaction is in the log, once, in its order.
- Once a producer has its id and epoch, nothing of an older epoch of the transactional id is written any more.
- A producer id is given to one, and so is an epoch of it.
- No transaction stays open for longer than it may take.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.records import parse_batch
from tests.sim.brokers import View
from tests.sim.data import Place
from tests.sim.ledger import brief
from tests.sim.log import Stored
from tests.sim.users import Violation

TORN = "a transaction is torn"
VISIBLE = "a transaction is seen that was aborted"
MISSING = "a transaction that was committed is missing"
MIXED = "records of two transactions are in one"
TWICE = "a record of a transaction is there twice"
ORDER = "records of a transactional producer are out of order"
FENCED = "a producer writes that was fenced"
ID_TWICE = "a producer id, or an epoch of it, is given twice"
HANGS = "a transaction stays open for longer than it may take"
OTHER = "a read_committed reader does not see what was committed"
OFFSETS = "offsets that a transaction commits do not go with it"
MISPLACED = "a record is where no rule sends it"
UNKNOWN = "a record is in the log that nobody sent"

OPEN, ENDING, COMMITTED, ABORTED, UNCERTAIN = "open", "ending", "committed", "aborted", "unknown"


@dataclass(slots=True, eq=False)
class Written:
    """A transaction as its producer knows it."""

    name: str
    values: list[tuple[Place, bytes]] = field(default_factory=list)
    outcome: str = OPEN
    perhaps: list[tuple[Place, bytes]] = field(default_factory=list)
    """Records of which its producer does not know whether they were accepted."""
    ordered: bool = True
    """Records of a partition were sent one after the other."""


class Views(Protocol):
    @property
    def views(self) -> Mapping[Place, View]: ...


@dataclass
class TransactionLedger:
    """
    Args:
        slack: seconds that the broker may take beside a transaction's own time.

    Attributes:
        astray: values of records that the broker has taken and that belong to no transaction: nothing is promised.
    """

    logs: Views
    slack: float
    astray: set[bytes] = field(default_factory=set)
    transactions: list[Written] = field(default_factory=list)
    timeouts: dict[str, float] = field(default_factory=dict)
    """Transactional id -> the longest timeout that a producer of it had, in seconds."""
    chains: dict[tuple[str, str], str] = field(default_factory=dict)
    """(topic that is read, topic that is written) -> group: each record of the one is to be once in the other."""
    moved: dict[bytes, tuple[Place, Place]] = field(default_factory=dict)
    """Value -> where its record goes under one of the proxy's rules, for which it counts, and under the other."""
    _given: set[tuple[str | None, int, int]] = field(default_factory=set)
    _owner: dict[int, str | None] = field(default_factory=dict)
    """Producer id -> transactional id."""
    _current: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id -> the producer id and epoch that were given out last."""
    _waiting: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """Where the last stable offset stands, and since when."""

    def begin(self, name: str) -> Written:
        written = Written(name)
        self.transactions.append(written)
        return written

    # -- while it goes on

    def initialized(self, request: InitProducerIdRequest, answer: InitProducerIdResponse) -> None:
        """The broker gives a producer its id."""
        if answer.error_code:
            return
        owner, given = request.transactional_id, (answer.producer_id, answer.producer_epoch)
        if self._owner.setdefault(given[0], owner) != owner or (owner is None and (owner, *given) in self._given):
            raise Violation(ID_TWICE, f"producer id {given[0]} of {owner} and {self._owner[given[0]]}")
        repeats = request.producer_id >= 0  # which is answered as the first time
        if (owner, *given) in self._given and not repeats:
            raise Violation(ID_TWICE, f"{owner} has producer id {given[0]} and epoch {given[1]} again")
        self._given.add((owner, *given))
        if owner is not None:
            self._current[owner] = given

    def appended(self, place: Place, stored: Stored) -> None:
        """A batch is in a log that was not there before."""
        batch = parse_batch(stored.data)
        owner = self._owner.get(batch.producer_id)
        if owner is None or batch.control:
            return
        current = self._current[owner]
        stale = batch.producer_epoch < current[1] if batch.producer_id == current[0] else batch.producer_id < current[0]
        if stale:
            told = f"{place[0]}-{place[1]} at {stored.base}: {stored.producer} of {owner}, which is {current}"
            raise Violation(FENCED, told)

    def look(self, now: float, well_since: float) -> None:
        """See whether a transaction takes too long.

        Args:
            well_since: when the broker was last hindered in ending one.
        """
        for place, view in self.logs.views.items():
            stable = view.stable
            if stable == view.end:
                self._waiting.pop(place, None)
                continue
            known, since = self._waiting.get(place, (-1, now))
            since = max(since if known == stable else now, well_since)
            self._waiting[place] = stable, since
            if now - since > max(self.timeouts.values(), default=0.0) + self.slack:
                raise Violation(HANGS, f"{place[0]}-{place[1]} at {stable} since {since:.3f}")

    # -- the end

    def seen(self) -> dict[Place, list[bytes]]:
        """The values in each partition that a read_committed consumer gets, in their order."""
        found: dict[Place, list[bytes]] = {place: [] for place in self.logs.views}
        for place, view in self.logs.views.items():
            for _, value in view.decided:
                places = self.moved.get(value, (place,))
                if place not in places:
                    raise Violation(MISPLACED, f"{brief(value)} is in {place[0]}-{place[1]}")
                found[places[0]].append(value)
        return found

    def check(self) -> None:
        """All that has happened, against what was asked for."""
        seen = self.seen()
        for written in self.transactions:
            self._check_one(written, seen)
        self._check_apart()
        for (source, target), group in self.chains.items():
            for place in [each for each in seen if each[0] == source]:
                self._check_chain(place, seen[place], seen[target, place[1]], group)

    def _check_one(self, written: Written, seen: dict[Place, list[bytes]]) -> None:
        counts = [seen[place].count(value) for place, value in written.values if value not in self.astray]
        perhaps = [seen[place].count(value) for place, value in written.perhaps if value not in self.astray]
        if any(count > 1 for count in counts + perhaps):
            raise Violation(TWICE, written.name)
        if written.outcome in (OPEN, ABORTED) and any(counts + perhaps):
            raise Violation(VISIBLE, f"{written.name}, which is {written.outcome}")
        if written.outcome == COMMITTED and not all(counts):
            raise Violation(MISSING, f"{written.name}: {sum(counts)} of {len(counts)} records")
        if any(counts + perhaps) and not all(counts):
            raise Violation(TORN, f"{written.name}: {sum(counts)} of {len(counts)} records")
        if all(counts) and written.ordered:
            at: dict[Place, list[int]] = defaultdict(list)
            for place, value in written.values:
                if value not in self.astray:
                    at[place].append(seen[place].index(value))
            if any(positions != sorted(positions) for positions in at.values()):
                raise Violation(ORDER, written.name)

    def _check_apart(self) -> None:
        """No transaction has records of two, as their producers know them."""
        names = {value: each.name for each in self.transactions for _, value in each.values + each.perhaps}
        for place, view in self.logs.views.items():
            open_: defaultdict[int, dict[str, None]] = defaultdict(dict)
            for stored in view.batches:
                batch = parse_batch(stored.data)
                if batch.control:
                    found = list(open_.pop(batch.producer_id, ()))
                    if len(found) > 1:
                        raise Violation(MIXED, f"{place[0]}-{place[1]} before {stored.base}: {', '.join(found)}")
                elif batch.transactional:
                    values = [bytes(record.value or b"") for record in batch.records()]
                    open_[batch.producer_id] |= dict.fromkeys(
                        names[value] for value in values if value in names and value not in self.astray
                    )

    def _check_chain(self, place: Place, source: list[bytes], target: list[bytes], group: str) -> None:
        """Every record of one topic is once in another one, in the same order."""
        target = [value.partition(b" carries ")[2] for value in target]
        if target != source:
            at = next((n for n, pair in enumerate(zip(source, target, strict=False)) if pair[0] != pair[1]), None)
            at = min(len(source), len(target)) if at is None else at
            wanted = brief(source[at]) if at < len(source) else "nothing"
            found = brief(target[at]) if at < len(target) else "nothing"
            told = f"of {place[0]}-{place[1]}, number {at} is {found} and not {wanted}"
            raise Violation(OFFSETS, f"{told}, as group {group!r} carries it on")


def carried(value: bytes, transaction: str) -> bytes:
    """What a worker makes of a record, in each attempt another one."""
    return transaction.encode() + b" carries " + value
