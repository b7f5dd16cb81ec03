"""The stored state of share partitions: snapshots, and updates with the changes since the last snapshot.

Rules:
- A snapshot has the whole state. An update has everything that changed since the snapshot, so the last snapshot and the
  last update are enough, and compaction may drop all others. In Apache Kafka an update has the changes since the last
  update; both kinds are read.
- If two batches have the same offsets, the later one counts. Batches before the start offset are gone.
- A snapshot is written after `UPDATES` updates, or when an update would have more than `BATCHES` batches.
- An update without its snapshot is nothing.
- If the disk refuses, the state stays as it was.

Source: ShareCoordinatorShard.java (generateShareStateRecord, handleShareSnapshot, handleShareUpdate),
PersisterStateBatchCombiner.java.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, KeyedRecord, Pair
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed, version_of
from ottla.codec.stored.share_group_state import (
    DELIVERY_STATES,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from ottla.codec.wire import Declared, api
from ottla.errors import DecodeError

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 2**20), "max.message.bytes": str(64 * 2**20)}
"""The topic's configuration. Apache Kafka does not compact it, but deletes what snapshots have made superfluous."""

UNDECIDED = -1
"""The start offset of a share partition from which no one has fetched yet."""
UPDATES = 500
"""Updates after which a snapshot is written (`share.coordinator.snapshot.update.records.per.snapshot`)."""
BATCHES = 64
"""The most batches of an update."""
_AVAILABLE, _ARCHIVING, _ARCHIVED = 0, 3, 4


class StoredBatch(NamedTuple):
    """Records from ``first`` to ``last``, both inclusive, with the same state: one of `DELIVERY_STATES`."""

    first: int
    last: int
    state: int
    deliveries: int


class ShareKey(NamedTuple):
    """Names a share partition."""

    group_id: str
    topic_id: "UUID"
    partition: int


@dataclass(frozen=True, slots=True)
class StoredState:
    """The stored state of a share partition.

    Attributes:
        start_offset: all records before it are final; `UNDECIDED`: no one has fetched yet.
        final: how many records from the start on are final; -1: unknown.
        batches: in order, without overlaps.
        leader_epoch: of the partition's leader that wrote it.
        state_epoch: rises when the state is replaced.
        snapshot_epoch: counts the snapshots.
        created: when it was first stored, in milliseconds since 1970.
        since: the batches that were stored since the snapshot.
        updates: the number of updates since the snapshot.
    """

    start_offset: int
    final: int = 0
    batches: tuple[StoredBatch, ...] = ()
    leader_epoch: int = 0
    state_epoch: int = 0
    snapshot_epoch: int = 0
    created: int = 0
    since: tuple[StoredBatch, ...] = ()
    updates: int = 0

    @property
    def end_offset(self) -> int:
        """One past the last record of which something is stored."""
        return self.batches[-1].last + 1 if self.batches else self.start_offset

    def lag(self, high_watermark: int) -> int | None:
        """Return how many records are not final; ``None``: it is unknown."""
        if self.start_offset == UNDECIDED or self.final < 0:
            return None
        return max(0, high_watermark - self.start_offset - self.final)

    def cut(self, end_offset: int) -> "StoredState":
        """Return the state without the records from ``end_offset`` on, which the log has lost."""
        batches = tuple(
            each._replace(last=min(each.last, end_offset - 1)) for each in self.batches if each.first < end_offset
        )
        start = min(self.start_offset, end_offset)
        return replace(self, start_offset=start, batches=batches, final=_final(batches))


def merged(old: Sequence[StoredBatch], new: Sequence[StoredBatch], start_offset: int) -> tuple[StoredBatch, ...]:
    """Lay new batches over old ones, drop records before the start offset, and join neighbours with the same state.

    The old batches are in order, without overlaps, and joined. Most of them stay as they are.
    """
    latest = _without_overlaps(new)
    begin = end = bisect_left(old, start_offset, key=_last)
    if latest:
        # From the neighbour before the new batches to the neighbour after them: those may be joined with them.
        begin = max(begin, bisect_left(old, latest[0].first - 1, key=_last))
        end = max(begin, bisect_right(old, max(each.last for each in latest) + 1, key=_first))
    joined = list(old[bisect_left(old, start_offset, key=_last) : begin])
    for each in sorted(_laid_over(old[begin:end], latest)):
        if joined and joined[-1].last + 1 == each.first and joined[-1][2:] == each[2:]:
            joined[-1] = joined[-1]._replace(last=each.last)
        elif each.last >= start_offset:
            joined.append(each)
    joined += old[end:]
    if joined and joined[0].first < start_offset:
        joined[0] = joined[0]._replace(first=start_offset)
    return tuple(joined)


def _first(batch: StoredBatch) -> int:
    return batch.first


def _last(batch: StoredBatch) -> int:
    return batch.last


def _without_overlaps(batches: Sequence[StoredBatch]) -> list[StoredBatch]:
    """Return batches in order; where they overlap, the later one counts. This broker stores none that overlap."""
    found = sorted(batches)
    if all(one.last < two.first for one, two in pairwise(found)):
        return found
    begun = sorted(enumerate(batches), key=lambda each: each[1].first, reverse=True)
    bounds = sorted({each.first for each in batches} | {each.last + 1 for each in batches})
    found = []
    latest: list[tuple[int, StoredBatch]] = []  # a heap
    for first, after in pairwise(bounds):
        while begun and begun[-1][1].first == first:
            position, batch = begun.pop()
            heappush(latest, (-position, batch))
        while latest and latest[0][1].last < first:
            heappop(latest)
        if latest:
            found.append(latest[0][1]._replace(first=first, last=after - 1))
    return found


def _laid_over(old: Iterable[StoredBatch], new: Sequence[StoredBatch]) -> Iterator[StoredBatch]:
    """Yield the new batches, and the parts of the old ones that they do not cover; each is in order."""
    yield from new
    at = 0
    for each in old:
        while at < len(new) and new[at].last < each.first:
            at += 1
        first = each.first
        for over in new[at:]:
            if over.first > each.last:
                break
            if over.first > first:
                yield each._replace(first=first, last=over.first - 1)
            first = max(first, over.last + 1)
        if first <= each.last:
            yield each if first == each.first else each._replace(first=first)


def _final(batches: Iterable[StoredBatch]) -> int:
    return sum(each.last - each.first + 1 for each in batches if each.state != 0)


class StoredStates:
    """Keeps the stored states of all share partitions.

    Args:
        log: the log of `__share_group_state`.
    """

    def __init__(self, log: KeyedLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._states: dict[ShareKey, StoredState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ShareKey]:
        return iter(self._states)

    def get(self, key: ShareKey) -> StoredState | None:
        return self._states.get(key)

    def initialize(self, starts: Mapping[ShareKey, int], state_epoch: int) -> None:
        """Store new states, or replace known ones.

        Args:
            starts: the start offset of each, or `UNDECIDED`.

        Raises:
            BrokerError: the disk refused; the states stay as they are.
        """
        made = {}
        for key, start in starts.items():
            known = self._states.get(key)
            made[key] = StoredState(
                start,
                final=-1 if start == UNDECIDED else 0,
                leader_epoch=known.leader_epoch if known else 0,
                state_epoch=state_epoch,
                snapshot_epoch=known.snapshot_epoch + 1 if known else 0,
                created=self._clock.timestamp,
            )
        self._write_snapshots(made)

    def store(self, states: Mapping[ShareKey, StoredState]) -> None:
        """Store other states than before.

        Raises:
            BrokerError: the disk refused; the states stay as they are.
        """
        self._write_snapshots(
            {key: replace(state, snapshot_epoch=state.snapshot_epoch + 1) for key, state in states.items()}
        )

    def update(
        self, key: ShareKey, start_offset: int, final: int, batches: Sequence[StoredBatch], leader_epoch: int
    ) -> None:
        """Store the progress of a share partition.

        Raises:
            BrokerError: the disk refused; the states stay as they are.
        """
        known = self._states[key]
        state = replace(
            known,
            start_offset=start_offset,
            final=final,
            leader_epoch=leader_epoch,
            batches=merged(known.batches, batches, start_offset),
            since=merged(known.since, batches, start_offset),
            updates=known.updates + 1,
        )
        if state.updates > UPDATES or len(state.since) > BATCHES:
            self._write_snapshots({key: replace(state, snapshot_epoch=known.snapshot_epoch + 1)})
            return
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=final,
            state_batches=_built(state.since),
        )
        self._log.write([_record(ShareUpdateKey(**key._asdict()), value)])
        self._states[key] = state

    def delete(self, keys: Iterable[ShareKey]) -> None:
        """Forget states.

        The last update of each stays in the log, because Apache Kafka cannot read a null value there.

        Raises:
            BrokerError: the disk refused; the states stay as they are.
        """
        known = [key for key in keys if key in self._states]
        if known:
            self._log.write([_record(ShareSnapshotKey(**key._asdict()), None) for key in known])
        for key in known:
            del self._states[key]

    def _write_snapshots(self, states: Mapping[ShareKey, StoredState]) -> None:
        if not states:
            return
        now = self._clock.timestamp
        self._log.write(
            [
                _record(
                    ShareSnapshotKey(**key._asdict()),
                    ShareSnapshotValue(
                        snapshot_epoch=state.snapshot_epoch,
                        state_epoch=state.state_epoch,
                        leader_epoch=state.leader_epoch,
                        start_offset=state.start_offset,
                        delivery_complete_count=state.final,
                        create_timestamp=state.created,
                        write_timestamp=now,
                        state_batches=_built(state.batches),
                    ),
                )
                for key, state in states.items()
            ]
        )
        for key, state in states.items():
            self._states[key] = replace(state, since=(), updates=0)

    def load(self) -> None:
        """Read the whole log; damaged records are skipped and logged."""
        for entry in self._log.replay():
            try:
                match version_of(entry.key):
                    case 0:
                        self._load_snapshot(entry)
                    case 1 if entry.value is not None:
                        self._load_update(entry.key, entry.value)
                    case _:
                        pass
            except DecodeError as error:
                log.error("damaged record of %s skipped: %s", self._log.name, error)

    def _load_snapshot(self, entry: KeyedRecord) -> None:
        name, _ = messages.parse(ShareSnapshotKey, 0, entry.key, SIZE)
        key = ShareKey(name.group_id, name.topic_id, name.partition)
        if entry.value is None:
            self._states.pop(key, None)
            return
        _, value, _ = parse_prefixed(ShareSnapshotValue, entry.value)
        self._states[key] = StoredState(
            value.start_offset,
            value.delivery_complete_count,
            merged((), _parsed(value.state_batches), value.start_offset),
            value.leader_epoch,
            value.state_epoch,
            value.snapshot_epoch,
            value.create_timestamp,
        )

    def _load_update(self, key: bytes, data: bytes) -> None:
        name, _ = messages.parse(ShareUpdateKey, 0, key, SIZE)
        share = ShareKey(name.group_id, name.topic_id, name.partition)
        _, value, _ = parse_prefixed(ShareUpdateValue, data)
        known = self._states.get(share)
        if known is None or known.snapshot_epoch != value.snapshot_epoch:
            return
        start = known.start_offset if value.start_offset == UNDECIDED else value.start_offset
        batches = _parsed(value.state_batches)
        self._states[share] = replace(
            known,
            start_offset=start,
            final=value.delivery_complete_count,
            leader_epoch=value.leader_epoch,
            batches=merged(known.batches, batches, start),
            since=merged(known.since, batches, start),
            updates=known.updates + 1,
        )


def _record(key: Declared, value: Declared | None) -> Pair:
    number = api(type(key)).key.to_bytes(SIZE, "big")
    return number + messages.build(key, 0), None if value is None else build_prefixed(value, 0)


def _built(batches: Iterable[StoredBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=deliveries)
        for first, last, state, deliveries in batches
    )


def _parsed(batches: Iterable[StateBatch]) -> list[StoredBatch]:
    """Return the batches of a record; records with a state that this broker does not know are delivered again."""
    return [
        StoredBatch(each.first_offset, each.last_offset, _known(each.delivery_state), each.delivery_count)
        for each in batches
        if each.first_offset <= each.last_offset
    ]


def _known(state: int) -> int:
    if state == _ARCHIVING:  # Kafka 4.4 writes it before the record is in the dead letter queue
        return _ARCHIVED
    return state if state in DELIVERY_STATES else _AVAILABLE
