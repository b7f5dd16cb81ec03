"""The records of a share partition that are in flight: runs of records with one state, within batches.

A batch has the records that one member acquired at once. Unless it is split, it is delivered again as a whole, so the
boundaries of batches are kept. Each batch has runs of records whose state, count and lock are the same. A batch without
a split has one run, however many records it has.

Source: InFlightBatch.java, which has one state for the batch, or one for each offset.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.brokerlite.machines.share_partitions.delivery_states import TRANSITIONS, DeliveryInput, DeliveryState


class RecordRun(NamedTuple):
    """Records from ``first`` to ``last``, both inclusive, that have the same state.

    Attributes:
        deliveries: how many times they were delivered.
        member: the member that has acquired them; ``""``: none.
        deadline: when their lock expires, if they are acquired.
    """

    first: int
    last: int
    state: DeliveryState
    deliveries: int
    member: str = ""
    deadline: float = 0.0

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def has_expired(self, now: float) -> bool:
        """Whether a member has the records, and its lock has expired."""
        return self.state is DeliveryState.ACQUIRED and self.deadline <= now

    def cut(self, first: int, last: int) -> "RecordRun":
        """Return the part within these offsets, which must not be empty."""
        if first <= self.first and self.last <= last:
            return self
        return RecordRun(max(self.first, first), min(self.last, last), *self[2:])

    def acquire(self, member: str, deadline: float) -> "RecordRun":
        """Return the run once ``member`` has acquired it."""
        state = TRANSITIONS[self.state, DeliveryInput.ACQUIRED]
        return RecordRun(self.first, self.last, state, self.deliveries + 1, member, deadline)

    def go(self, what: DeliveryInput) -> "RecordRun":
        """Return the run after an input that leaves it without a member."""
        return RecordRun(self.first, self.last, TRANSITIONS[self.state, what], self.deliveries)

    def release(self, limit: int) -> "RecordRun":
        """Return the run once its member has given it back, or lost it.

        Args:
            limit: how many times a record may be delivered.
        """
        return self.go(DeliveryInput.RELEASED if self.deliveries < limit else DeliveryInput.EXHAUSTED)

    def continues(self, before: "RecordRun") -> bool:
        """Whether the run has the state of the run before it."""
        return before.last + 1 == self.first and before[2:] == self[2:]


def joined(runs: Iterable[RecordRun]) -> Iterator[RecordRun]:
    """Join neighbours that have the same state."""
    last: RecordRun | None = None
    for run in runs:
        if last is not None and run.continues(last):
            last = last._replace(last=run.last)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


class OffsetSpan(NamedTuple):
    """Offsets from ``first`` to ``last``, both inclusive, to which the same happens.

    Attributes:
        kind: passed on to the function that makes the change.
    """

    first: int
    last: int
    kind: int = 0


Change = Callable[[RecordRun, int], RecordRun]
"""Returns a run, with its offsets, in its new state; gets the kind of the span, too."""


def changed(runs: Iterable[RecordRun], spans: Iterable[OffsetSpan], change: Change) -> list[RecordRun]:
    """Return the runs with ``change`` applied to the parts within the spans, which ascend and do not overlap.

    It takes a step for each run and each span: a member may name each of its records.
    """
    return list(joined(_changed(runs, spans, change)))


def _changed(runs: Iterable[RecordRun], spans: Iterable[OffsetSpan], change: Change) -> Iterator[RecordRun]:
    rest = iter(spans)
    span = next(rest, None)
    for run in runs:
        at = run.first
        while span is not None and span.first <= run.last:
            if span.last >= at:
                if span.first > at:
                    yield run.cut(at, span.first - 1)
                end = min(run.last, span.last)
                yield change(run.cut(max(at, span.first), end), span.kind)
                at = end + 1
            if span.last > run.last:
                break
            span = next(rest, None)
        if at <= run.last:
            yield run.cut(at, run.last)


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """Records that were acquired at once.

    Attributes:
        size: the number of its offsets when it was made; its beginning may be gone.
        split: its records were treated differently once.
        fresh: none of its records was ever acquired. A restart makes such batches, of the records between stored ones.
    """

    runs: list[RecordRun]
    split: bool = False
    fresh: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.last - self.first + 1

    @property
    def first(self) -> int:
        return self.runs[0].first

    @property
    def last(self) -> int:
        return self.runs[-1].last

    @property
    def whole(self) -> RecordRun:
        """The run of a batch that is not split."""
        return self.runs[0]

    @property
    def is_final(self) -> bool:
        return all(run.state.is_final for run in self.runs)

    def within(self, first: int, last: int) -> Iterator[RecordRun]:
        """Iterate over the parts of the runs from ``first`` to ``last``."""
        return (run.cut(first, last) for run in self.runs if run.first <= last and run.last >= first)

    def first_available(self) -> int | None:
        """Return the first offset that a member may acquire."""
        return next((run.first for run in self.runs if run.state is DeliveryState.AVAILABLE), None)

    def take(self, runs: list[RecordRun], *, split: bool = True) -> None:
        """Take over runs of the same offsets; ``split``: they were computed for a part of the batch."""
        self.runs = runs
        self.split = self.split or split or len(runs) > 1

    def trim(self, start: int) -> None:
        """Forget the records before ``start``, which is within the batch."""
        if start > self.first:
            self.runs = [run.cut(start, self.last) for run in self.runs if run.last >= start]
            self.split = True
