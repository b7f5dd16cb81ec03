"""Finds the open transactions that hold back a read_committed consumer, and reports them.

    the last stable offset does not move, and the high watermark is higher
        ── `STILL` seconds ──► `explain` names the partition; brokers are asked whose transaction is open there
        ── `REPORT` seconds ──► a line in the log, one for each transaction, once brokers have answered
    it moves ──► forgotten

Rules:
- This applies only to partitions that are read up to the last stable offset: others do not wait for a transaction.
- Brokers are asked in the background, by one request at a time for all partitions whose transaction is unknown, with
  growing pauses. Facts that they do not know, or may not tell, are left out.
- A transaction's first offset in a partition never changes, so the results stay valid and are kept.

Source: UnifiedLog.java (lastStableOffset, activeProducers); KIP-664.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

from ottla.errors import BrokerError, OttlaError, TimeoutExpired, UnsupportedVersion
from ottla.late_dataclass import dataclass
from ottla.sdk.admin import ProducerState, TransactionDescription
from ottla.sdk.calls.fan_out import place_name
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.position import Position, PositionState
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import about, logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

STILL = 5.0
"""Seconds without a move of the last stable offset before `explain` mentions it: most transactions are shorter."""
REPORT = 30.0
"""Seconds without a move before the log gets a line, as for partitions that cannot be read for another reason."""
_LIMIT = 30.0
"""Seconds for brokers to answer whose transactions these are."""
_PAUSE = 30.0
"""Seconds before brokers are asked again about unknown transactions; four times as long each time, up to
`_LONGEST_PAUSE`."""
_LONGEST_PAUSE = 600.0
_NAMED = 3
"""The number of partitions that a line names; the others are counted."""


@dataclass(slots=True, eq=False)
class _Holder:
    """A producer with an open transaction.

    Attributes:
        owner: the coordinator's description of the transaction; ``None``: unknown.
    """

    producer_id: int
    epoch: int
    owner: TransactionDescription | None = None

    def described(self, owner: TransactionDescription | None) -> None:
        """Take note of the coordinator's answer."""
        self.owner = owner


@dataclass(slots=True, eq=False)
class _StuckOffset:
    """A last stable offset that does not move.

    Attributes:
        since: when it was first seen with a higher high watermark.
        ask_at: when brokers may be asked whose transaction it is.
        holder: the producer with the open transaction; ``None``: unknown, perhaps because of ``trouble``.
        reported: the log has a line about it.
    """

    position: Position
    offset: int
    since: float
    ask_at: float
    pause: float = _PAUSE
    holder: _Holder | None = None
    trouble: str = ""
    reported: bool = False

    @property
    def known(self) -> bool:
        return self.holder is not None and self.holder.owner is not None

    @property
    def asked(self) -> bool:
        """Brokers were asked at least once."""
        return self.pause > _PAUSE

    def ask(self, now: float) -> None:
        """Take note that brokers are asked now; the pauses between two questions grow."""
        self.ask_at = now + self.pause
        self.pause = min(4 * self.pause, _LONGEST_PAUSE)

    def learn(self, producers: Iterable[ProducerState] | OttlaError, holders: dict[tuple[int, int], _Holder]) -> None:
        """Find the holder: the producer in the partition's state whose transaction begins at the last stable offset.

        Args:
            holders: the known ones, by producer id and epoch; a new one is added.
        """
        if isinstance(producers, OttlaError):
            self.trouble = _brief(producers)
            return
        for each in producers:
            if each.transaction_start == self.offset:
                key = each.producer_id, each.producer_epoch
                self.holder, self.trouble = holders.setdefault(key, _Holder(*key)), ""

    def unanswered(self, error: OttlaError) -> None:
        """Take note that brokers did not say whose transaction it is."""
        if self.holder is None:
            self.trouble = _brief(error)

    def report(self) -> None:
        """Take note that the log has a line about it, or about the same transaction in another partition."""
        self.reported = True


@dataclass(slots=True)
class _WaitingPartitions:
    """Partitions that wait for the same transaction, or for unknown ones with the same trouble."""

    holder: _Holder | None
    trouble: str
    waiting: list[_StuckOffset] = field(default_factory=list)

    @property
    def since(self) -> float:
        return min(each.since for each in self.waiting)

    @property
    def records(self) -> int:
        """The number of offsets between the last stable offsets and the high watermarks."""
        return sum(each.position.high_watermark - each.offset for each in self.waiting)


class StableOffsets:
    """Watches the last stable offsets of one read_committed fetcher.

    Args:
        assigned: the partitions that are read.
        paused: positions that are not read at the moment.
        wall: returns the time of day, in seconds since 1970; ``None``: it is unknown.
    """

    def __init__(
        self,
        core: ClientCore,
        assigned: Mapping[TopicPartition, Position],
        paused: Container[Position],
        wall: Callable[[], float] | None,
    ) -> None:
        self._core, self._assigned, self._paused, self._wall = core, assigned, paused, wall
        self._still: dict[Position, _StuckOffset] = {}
        self._timer: Timer | None = None
        self._asking: Outcome[None] | None = None

    def seen(self, position: Position, now: float) -> None:
        """Process the offsets of a partition from a Fetch response."""
        offset, still = position.last_stable_offset, self._still.get(position)
        if not 0 <= offset < position.high_watermark:
            self._still.pop(position, None)
        elif still is None or still.offset != offset:
            self._still[position] = _StuckOffset(position, offset, now, now + STILL)
            self._watch(now)

    def close(self) -> None:
        self._still.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people, one for each transaction that is waited for."""
        for group in _grouped(self._waiting(STILL, now)):
            waiting = sorted(group.waiting, key=lambda each: each.position.place)
            places = ", ".join(f"{place_name(each.position.place)} at {each.offset}" for each in waiting[:_NAMED])
            more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
            since = f"the last stable offset has not moved for {now - group.since:.1f} s"
            yield f"{places}{more}: {since}, with {group.records} record(s) behind it: {self._why(group)}"

    def _why(self, group: _WaitingPartitions) -> str:
        """A text for people: the open transaction, and the ways in which it may end."""
        holder, later = group.holder, "if it does not end, `ottla transactions find-hanging` says whether it can"
        if holder is None:
            unsaid = f"; its producer is unknown: {group.trouble}" if group.trouble else ""
            return f"a transaction is open there; {later}{unsaid}"
        producer, owner = f"producer id {holder.producer_id}, epoch {holder.epoch}", holder.owner
        if owner is None:
            return f"the transaction of {producer} is open there, until it ends it or its timeout expires; {later}"
        from shlex import quote  # only here, as hardly any consumer waits for a transaction

        from ottla.sdk.calls.transactions import why_hanging  # only here, as in `_find`

        whose = f"the transaction of transactional id {owner.transactional_id!r} ({producer}) is open there"
        if reason := why_hanging(group.waiting[0].position.place, holder.epoch, owner):
            return f"{whose}, and hangs, because {reason}: end it by `ottla transactions abort`"
        age = ""
        if owner.start_timestamp is not None and self._wall is not None:
            age = f", for {self._wall() - owner.start_timestamp / 1000:.0f} s"
        end = f"until that ends it or its timeout of {owner.timeout:g} s expires"
        return f"{whose}{age}, {end}; `ottla transactions fence {quote(owner.transactional_id)}` ends it now"

    # -- offsets that do not move -------------------------------------------------------------------------------------

    def _waiting(self, seconds: float, now: float) -> list[_StuckOffset]:
        """The offsets that have not moved for ``seconds``, in partitions that are read up to them."""
        return [
            still
            for position, still in self._still.items()
            if still.since + seconds <= now
            and position.position >= still.offset
            and position.state is PositionState.FETCHING
            and position.trouble is None
            and position not in self._paused
            and self._assigned.get(position.place) is position
        ]

    def _watch(self, now: float) -> None:
        if self._timer is None:
            self._timer = self._core.later(now + STILL, self._look)

    def _look(self, now: float) -> None:
        """Ask about unknown transactions, and report long ones."""
        self._timer = None
        for position in [each for each in self._still if self._assigned.get(each.place) is not each]:
            del self._still[position]
        if self._asking is None:  # else the line in the log waits for the answer, so that it can name the transaction
            self._report([each for each in self._waiting(REPORT, now) if not each.reported and each.asked], now)
            unknown = [each for each in self._waiting(STILL, now) if not each.known and each.ask_at <= now]
            if unknown:
                self._ask(unknown, now)
        if not all(each.known and each.reported for each in self._still.values()):
            self._watch(now)

    def _report(self, waiting: Sequence[_StuckOffset], now: float) -> None:
        reported = {each.holder for each in self._still.values() if each.reported and each.holder is not None}
        for group in _grouped(waiting):
            for each in group.waiting:
                each.report()
            if group.holder in reported:
                continue
            holder, first = group.holder, group.waiting[0]
            owner = holder.owner if holder is not None else None
            log.warning(
                "committed records wait behind an open transaction",
                extra=about(first.position.place)
                | {
                    "offset": first.offset,
                    "partition_count": len(group.waiting),
                    "records": group.records,
                    "seconds": round(now - group.since),
                    "producer_id": holder.producer_id if holder is not None else None,
                    "producer_epoch": holder.epoch if holder is not None else None,
                    "transactional_id": owner.transactional_id if owner is not None else None,
                },
            )

    # -- owners of transactions --------------------------------------------------------------------------------------

    def _ask(self, unknown: Sequence[_StuckOffset], now: float) -> None:
        for each in unknown:
            each.ask(now)

        def answered() -> None:
            self._asking = None
            if isinstance(asked.error, OttlaError):
                for each in unknown:
                    each.unanswered(asked.error)

        find = partial(self._find, unknown)
        asked = Task(self._core, "DescribeProducers", now, find, _LIMIT, background=True).outcome
        self._asking = asked
        asked.when_done(answered)

    def _find(self, unknown: Sequence[_StuckOffset], task: Task[None]) -> Steps[None]:
        """Find out which producers hold back these offsets, and their transactional ids."""
        wanted = {each.position.place: each for each in unknown if each.holder is None}
        from ottla.sdk.calls import transactions  # only here: hardly any reader waits for a transaction that hangs

        told = yield from transactions.remembered(task, wanted, 0.0)
        held = [each.holder for each in self._still.values() if each.holder is not None]
        holders = {(each.producer_id, each.epoch): each for each in held}
        for place, producers in told.items():
            wanted[place].learn(producers, holders)
        nameless = [each.holder for each in unknown if each.holder is not None and each.holder.owner is None]
        if nameless:
            found, _ = yield from transactions.owners_of(task, {each.producer_id for each in nameless})
            for holder in nameless:
                holder.described(found.get(holder.producer_id))


def _brief(error: OttlaError) -> str:
    """The error in brief, without details that differ between partitions, so that equal ones can be grouped."""
    if isinstance(error, TimeoutExpired):
        return f"no answer within {_LIMIT:g} s"
    if isinstance(error, UnsupportedVersion):
        return "brokers before Kafka 2.8 cannot tell"
    return error.name if isinstance(error, BrokerError) else str(error)


def _grouped(waiting: Iterable[_StuckOffset]) -> list[_WaitingPartitions]:
    groups: dict[tuple[_Holder | None, str], _WaitingPartitions] = {}
    for each in waiting:
        key = each.holder, each.trouble
        groups.setdefault(key, _WaitingPartitions(*key)).waiting.append(each)
    return list(groups.values())
