"""The results of records as a request has them, and the changes that they make, until these are stored."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.brokerlite.machines.share_partitions.delivery_states import DeliveryState
from ottla.brokerlite.machines.share_partitions.in_flight import InFlightBatch, OffsetSpan, RecordRun, changed, joined
from ottla.brokerlite.machines.share_partitions.stored_state import StoredBatch


class RecordResults(NamedTuple):
    """The results of records, as a request has them: one type for all offsets, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]

    def tally(self) -> Mapping[int, int]:
        """Return how many records have each type."""
        return Counter(self.types) if len(self.types) > 1 else {self.types[0]: self.last - self.first + 1}

    def spans(self, first: int, last: int) -> Iterator[OffsetSpan]:
        """Yield the results from ``first`` to ``last``, neighbours with the same type as one span."""
        first, last = max(first, self.first), min(last, self.last)
        if len(self.types) == 1:
            yield OffsetSpan(first, last, self.types[0])
            return
        begun = first
        for offset in range(first, last + 1):
            kind = self.types[offset - self.first]
            if offset == last or self.types[offset + 1 - self.first] != kind:
                yield OffsetSpan(begun, offset, kind)
                begun = offset + 1


class RecordChanges:
    """New runs of batches, until they are stored."""

    def __init__(self) -> None:
        self._new: dict[InFlightBatch, tuple[list[RecordRun], Sequence[OffsetSpan], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._new)

    def runs_of(self, batch: InFlightBatch) -> list[RecordRun]:
        """Return the runs of a batch, as they will be."""
        new = self._new.get(batch)
        return batch.runs if new is None else new[0]

    def put(self, batch: InFlightBatch, runs: list[RecordRun], spans: Sequence[OffsetSpan], *, split: bool) -> None:
        """Add the new runs of a batch, which differ from its runs within the spans only."""
        self._new[batch] = runs, spans, split

    def stored(self) -> list[StoredBatch]:
        """Return the batches to store: the records that changed, but no renewed ones."""
        found: list[StoredBatch] = []
        for runs, spans, _ in self._new.values():
            parts: list[RecordRun] = []

            def note(run: RecordRun, _: int, parts: list[RecordRun] = parts) -> RecordRun:
                parts.append(run)
                return run

            changed(runs, spans, note)
            settled = joined(part for part in parts if part.state is not DeliveryState.ACQUIRED)
            found += (StoredBatch(run.first, run.last, run.state, run.deliveries) for run in settled)
        return found

    def apply(self) -> None:
        for batch, (runs, _, split) in self._new.items():
            batch.take(runs, split=split)
