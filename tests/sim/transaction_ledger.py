"""The promises of transactions, and checks that brokers and clients keep them.

Rules:
- A transaction whose end was acknowledged is whole or absent, as its producer asked; a transaction with an unknown
  outcome is one of the two. The offsets that it commits share its outcome.
- A record that was acknowledged within a transaction is in the log, once, and in order.
- Once a producer has its id and epoch, no batch of an older epoch of the transactional id is appended any more.
- A producer id belongs to one producer, and so does an epoch of a transactional id.
- No transaction stays open for longer than its timeout and the broker's scan.
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

TORN = "a transaction is visible in part"
VISIBLE = "an aborted transaction is visible"
MISSING = "a committed transaction is missing"
MIXED = "one transaction has records of two"
TWICE = "a record of a transaction is in the log twice"
ORDER = "records of a transactional producer are out of order"
FENCED = "the broker appends a batch of a fenced producer"
ID_TWICE = "a producer id, or an epoch of it, is given out twice"
HANGS = "a transaction stays open for longer than it may take"
OTHER = "a read_committed reader does not get the committed records"
OFFSETS = "committed offsets do not match the records of their transactions"
MISPLACED = "a record is in a partition to which no rule sends it"
UNKNOWN = "a record is in the log that no producer sent"

OPEN, ENDING, COMMITTED, ABORTED, UNCERTAIN = "open", "ending", "committed", "aborted", "unknown"


@dataclass(slots=True, eq=False)
class Written:
    """A transaction as its producer knows it."""

    name: str
    values: list[tuple[Place, bytes]] = field(default_factory=list)
    outcome: str = OPEN
    perhaps: list[tuple[Place, bytes]] = field(default_factory=list)
    """Records of which the producer does not know whether they were accepted."""
    ordered: bool = True
    """The records of a partition were sent one after the other."""


class Views(Protocol):
    @property
    def views(self) -> Mapping[Place, View]: ...


@dataclass
class TransactionLedger:
    """
    Args:
        slack: seconds that the broker may take in addition to a transaction's timeout.

    Attributes:
        astray: values of appended records that belong to no transaction: there is no promise for them.
    """

    logs: Views
    slack: float
    astray: set[bytes] = field(default_factory=set)
    transactions: list[Written] = field(default_factory=list)
    timeouts: dict[str, float] = field(default_factory=dict)
    """Transactional id -> the longest timeout of its producers, in seconds."""
    chains: dict[tuple[str, str], str] = field(default_factory=dict)
    """(input topic, output topic) -> group: each record of the input has to be once in the output."""
    moved: dict[bytes, tuple[Place, Place]] = field(default_factory=dict)
    """Value -> the partition of its record by one rule of the proxy, under which it counts, and by another rule."""
    _given: set[tuple[str | None, int, int]] = field(default_factory=set)
    _owner: dict[int, str | None] = field(default_factory=dict)
    """Producer id -> transactional id."""
    _current: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id -> the last producer id and epoch that were given out."""
    _waiting: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """Per partition, the last stable offset and since when it has stood there."""

    def begin(self, name: str) -> Written:
        written = Written(name)
        self.transactions.append(written)
        return written

    # -- during the run

    def initialized(self, request: InitProducerIdRequest, answer: InitProducerIdResponse) -> None:
        """The broker answers InitProducerId."""
        if answer.error_code:
            return
        owner, given = request.transactional_id, (answer.producer_id, answer.producer_epoch)
        if self._owner.setdefault(given[0], owner) != owner or (owner is None and (owner, *given) in self._given):
            raise Violation(ID_TWICE, f"producer id {given[0]} of {owner} and {self._owner[given[0]]}")
        repeats = request.producer_id >= 0  # a retry gets the same answer
        if (owner, *given) in self._given and not repeats:
            raise Violation(ID_TWICE, f"{owner} has producer id {given[0]} and epoch {given[1]} again")
        self._given.add((owner, *given))
        if owner is not None:
            self._current[owner] = given

    def appended(self, place: Place, stored: Stored) -> None:
        """A batch was appended that is no duplicate."""
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
        """Check that no transaction is open for too long.

        Args:
            well_since: when a fault last hindered the broker in ending one.
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
        """Compare the logs with what each producer asked for."""
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
        """Check that no transaction in a log has records of two of the producers' transactions."""
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
        """Check that every record of one topic is once in the other topic, in the same order."""
        target = [value.partition(b" carries ")[2] for value in target]
        if target != source:
            at = next((n for n, pair in enumerate(zip(source, target, strict=False)) if pair[0] != pair[1]), None)
            at = min(len(source), len(target)) if at is None else at
            wanted = brief(source[at]) if at < len(source) else "nothing"
            found = brief(target[at]) if at < len(target) else "nothing"
            told = f"of {place[0]}-{place[1]}, number {at} is {found} and not {wanted}"
            raise Violation(OFFSETS, f"{told}, in the output of group {group!r}")


def carried(value: bytes, transaction: str) -> bytes:
    """The output that a worker makes of a record; each attempt makes a different one."""
    return transaction.encode() + b" carries " + value
