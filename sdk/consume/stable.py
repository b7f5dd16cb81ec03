"""Why a reader of committed records waits: last stable offsets that stand still, and the transactions that hold them.

    the last stable offset stays where it is, and the high watermark lies beyond
        ── `STILL` seconds ──► explained; its leader is asked which producer has a transaction open there
        ── `REPORT` seconds ──► a line in the log, one for each transaction
    it moves, or is reached by the high watermark ──► forgotten

Rules:
- Whoever waits is explained at once, with what is known by then: brokers are asked in the background, all leaders
  together, never twice at a time, and again only of what they have not said, after ever longer pauses. What brokers
  cannot say, or may not, is left out.
- Only where all is read that can be: elsewhere the reader does not wait for a transaction.
- Of a transaction its first offset in a partition never changes, so its producer is asked for once.

Source: UnifiedLog.java (lastStableOffset, activeProducers); KIP-664.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.errors import OttlaError
from ottla.sdk.admin import ProducerState, TransactionDescription
from ottla.sdk.calls.call import Task
from ottla.sdk.calls.fan_out import place_name
from ottla.sdk.calls.transactions import owners, remembered, why_hanging
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.positions import Position, State
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

STILL = 5.0
"""Seconds for which a last stable offset stands still before that is worth a line: most transactions are shorter."""
REPORT = 30.0
"""Seconds after which it is worth one in the log, as with a partition that stalls for any other reason."""
_ASK_FOR = 10.0
"""Seconds in which brokers have to say whose transactions these are."""
_PAUSE = 30.0
"""Seconds before they are asked again what they did not say; four times as long each time, up to `_LONGEST_PAUSE`."""
_LONGEST_PAUSE = 600.0
_NAMED = 3
"""Partitions that a line names; of the others it gives the number."""


@dataclass(slots=True, eq=False)
class Holder:
    """A producer whose transaction is open.

    Attributes:
        owner: its transactional id, as the coordinator describes it; ``None``: no broker has said.
    """

    producer_id: int
    producer_epoch: int
    owner: TransactionDescription | None = None


@dataclass(slots=True, eq=False)
class _Still:
    """A last stable offset that stands still.

    Attributes:
        offset: the last stable offset.
        since: when it was seen first with a high watermark beyond it.
        trouble: why it is not known whose transaction it is.
    """

    offset: int
    since: float
    ask_at: float
    pause: float = _PAUSE
    holder: Holder | None = None
    trouble: str = ""
    reported: bool = False


@dataclass(slots=True)
class _Group:
    """Partitions that wait for the same transaction, or of which the same is known."""

    holder: Holder | None
    trouble: str
    waiting: list[tuple[Position, _Still]] = field(default_factory=list)

    @property
    def since(self) -> float:
        return min(still.since for _, still in self.waiting)

    @property
    def records(self) -> int:
        """Behind the last stable offsets, as offsets count them."""
        return sum(position.high_watermark - still.offset for position, still in self.waiting)


class StableOffsets:
    """Those of one fetcher that reads committed records.

    Args:
        assigned: the partitions that are read.
        wall: the time of day, in seconds since 1970, when the machine's time was 0; NaN: not known.
    """

    def __init__(self, core: ClientCore, assigned: Mapping[TopicPartition, Position], wall: float) -> None:
        self._core, self._assigned, self._wall = core, assigned, wall
        self._still: dict[Position, _Still] = {}
        self._timer: Timer | None = None
        self._asking: Outcome[None] | None = None

    def seen(self, position: Position, now: float) -> None:
        """A leader has told the offsets of a partition."""
        offset, still = position.last_stable_offset, self._still.get(position)
        if not 0 <= offset < position.high_watermark:
            self._still.pop(position, None)
        elif still is None or still.offset != offset:
            self._still[position] = _Still(offset, now, now + STILL)
            self._watch(now)

    def close(self) -> None:
        self._still.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def explain(self, now: float) -> Iterator[str]:
        """What is waited for, in lines for people: one for each transaction."""
        for group in _grouped(self._waiting(now, STILL)):
            places = [f"{place_name(position.place)} at {still.offset}" for position, still in group.waiting[:_NAMED]]
            more = f" and {len(group.waiting) - _NAMED} more" if len(group.waiting) > _NAMED else ""
            for_ = f"{now - group.since:.1f} s, with {group.records} record(s) behind"
            yield f"{', '.join(places)}{more}: the last stable offset stands still for {for_}: {self._whose(group, now)}"

    # -- what stands still --------------------------------------------------------------------------------------------

    def _waiting(self, now: float, seconds: float) -> list[tuple[Position, _Still]]:
        """The partitions whose reader has waited for a transaction for so long."""
        return [
            (position, still)
            for position, still in self._still.items()
            if still.since + seconds <= now
            and position.position >= still.offset
            and position.state is State.FETCHING
            and position.trouble is None
            and not position.paused
            and self._assigned.get(position.place) is position
        ]

    def _watch(self, now: float) -> None:
        if self._timer is None:
            self._timer = self._core.later(now + STILL, self._look)

    def _look(self, now: float) -> None:
        """Ask about what is new, and report what goes on."""
        self._timer = None
        for position in [each for each in self._still if self._assigned.get(each.place) is not each]:
            del self._still[position]
        unknown = [
            (position, still)
            for position, still in self._waiting(now, STILL)
            if (still.holder is None or still.holder.owner is None) and still.ask_at <= now
        ]
        if unknown and self._asking is None:
            self._ask(unknown, now)
        self._report([each for each in self._waiting(now, REPORT) if not each[1].reported], now)
        if any(still.holder is None or still.holder.owner is None or not still.reported for still in self._still.values()):
            self._watch(now)

    def _report(self, waiting: Sequence[tuple[Position, _Still]], now: float) -> None:
        reported = {still.holder for still in self._still.values() if still.reported}
        for group in _grouped(waiting):
            for _, still in group.waiting:
                still.reported = True
            if group.holder is not None and group.holder in reported:
                continue
            (topic, partition), offset = group.waiting[0][0].place, group.waiting[0][1].offset
            holder, owner = group.holder, group.holder.owner if group.holder is not None else None
            log.warning(
                "committed records wait behind a transaction that is open",
                extra={
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "partitions": len(group.waiting),
                    "records": group.records,
                    "seconds": round(now - group.since),
                    "producer_id": holder.producer_id if holder is not None else None,
                    "producer_epoch": holder.producer_epoch if holder is not None else None,
                    "transactional_id": owner.transactional_id if owner is not None else None,
                },
            )

    # -- whose they are ----------------------------------------------------------------------------------------------

    def _ask(self, unknown: Sequence[tuple[Position, _Still]], now: float) -> None:
        for _, still in unknown:
            still.ask_at = now + still.pause
            still.pause = min(4 * still.pause, _LONGEST_PAUSE)

        def answered() -> None:
            self._asking = None
            if asked.error is not None:
                for _, still in unknown:
                    still.trouble = still.trouble or str(asked.error)

        work = partial(self._find, {position.place: still for position, still in unknown})
        asked = self._asking = Task(self._core, "DescribeProducers", now, work, _ASK_FOR, background=True).outcome
        asked.when_done(answered)

    def _find(self, wanted: Mapping[TopicPartition, _Still], task: Task[None]) -> Steps[None]:
        """Find out which producers hold these partitions, and by which transactional ids they go."""
        told = yield from remembered(task, [place for place, still in wanted.items() if still.holder is None], 0.0)
        known = {_key(still.holder): still.holder for still in self._still.values() if still.holder is not None}
        for place, producers in told.items():
            self._learn(wanted[place], producers, known)
        holders = {still.holder for still in wanted.values() if still.holder is not None}
        nameless = sorted(each.producer_id for each in holders if each.owner is None)
        if nameless:
            found, _ = yield from owners(task, nameless)
            for holder in holders:
                holder.owner = found.get(holder.producer_id, holder.owner)

    def _learn(
        self, still: _Still, producers: Iterable[ProducerState] | OttlaError, known: dict[tuple[int, int], Holder]
    ) -> None:
        """Which of the producers that a partition remembers holds it: the one whose transaction begins there."""
        if isinstance(producers, OttlaError):
            still.trouble = str(producers)
            return
        for each in producers:
            if each.transaction_start == still.offset:
                holder = Holder(each.producer_id, each.producer_epoch)
                still.holder, still.trouble = known.setdefault(_key(holder), holder), ""

    def _whose(self, group: _Group, now: float) -> str:
        """Whose transaction is waited for, and what becomes of it."""
        holder = group.holder
        if holder is None:
            said = f"; brokers do not say whose: {group.trouble}" if group.trouble else ""
            return f"it waits for a transaction to end{said}"
        producer = f"producer id {holder.producer_id}, epoch {holder.producer_epoch}"
        if (owner := holder.owner) is None:
            ends = "it ends when that does, or at its timeout; if it does not, see `ottla transactions find-hanging`"
            return f"it waits for the transaction of {producer}: {ends}"
        whose = f"it waits for the transaction of transactional id {owner.transactional_id!r}, {producer}"
        if why := why_hanging(group.waiting[0][0].place, holder.producer_epoch, owner):
            abort = "`ottla transactions abort` ends it, after `ottla transactions find-hanging` has named it"
            return f"{whose}, which hangs, because {why}: {abort}"
        age = ""
        if owner.start_timestamp is not None and now + self._wall == now + self._wall:
            age = f", open for {max(0.0, now + self._wall - owner.start_timestamp / 1000):.0f} s"
        return f"{whose}{age}: it ends when that does, or after {owner.timeout:g} s, its timeout"


def _key(holder: Holder) -> tuple[int, int]:
    return holder.producer_id, holder.producer_epoch


def _grouped(waiting: Iterable[tuple[Position, _Still]]) -> list[_Group]:
    groups: dict[tuple[Holder | None, str], _Group] = {}
    for position, still in waiting:
        key = (still.holder, still.trouble)
        groups.setdefault(key, _Group(*key)).waiting.append((position, still))
    return list(groups.values())
