"""The consumer's positions and fetches.

    RESOLVING ── ListOffsets ──► FETCHING ── records ──► (buffered) ── take ──► the user
        ▲                            │
        └── reset by policy ── OFFSET_OUT_OF_RANGE ── no policy ──► FAILED, raised by the next take

Rules:
- One Fetch per node is under way at a time; it asks for every partition there that has room in its buffer.
- Two offsets per partition: `fetch_offset`, where the next Fetch reads, and `position`, what the user gets next.
- An answer to a question that a seek has overtaken is dropped.
- Control batches never reach the user; with read_committed neither do aborted records.
- Reading may wait for ever, but not silently: a partition without an answer for `STALL` seconds is reported.

Source: Fetcher.java, CompletedFetch.java, SubscriptionState.java.
"""

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.records import RecordBatch, read_batches
from ottla.errors import (
    BrokerError,
    ConnectionLost,
    OffsetOutOfRange,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.machines.actions import Node
from ottla.sdk.machines.calls import offsets
from ottla.sdk.machines.cluster import TopicPartition
from ottla.sdk.machines.connection import Exchange
from ottla.sdk.machines.core import FETCH, ClientCore
from ottla.sdk.machines.outcome import Outcome
from ottla.sdk.machines.timers import Timer

log = logging.getLogger("ottla.sdk.consumer")

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
STALL = 30.0
"""Seconds without an answer before a partition is reported."""
_BRIEFLY = 0.02
_ABORT_MARKER = b"\x00\x00\x00\x00"
"""Key of the control record that ends an aborted transaction: version 0, type 0."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Start at this very offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Time:
    """Start at the first record of this time or later: milliseconds, or `EARLIEST` or `LATEST`."""

    timestamp: int


Start = Offset | Time


class State(Enum):
    RESOLVING = auto()
    FETCHING = auto()
    FAILED = auto()


@dataclass(slots=True)
class Fetched:
    """What one answer held for one partition."""

    topic: str
    partition: int
    first_offset: int
    """Records before it were not asked for."""
    batches: list[RecordBatch]
    high_watermark: int

    @property
    def size(self) -> int:
        return sum(len(each.data) for each in self.batches)

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset


@dataclass(slots=True, eq=False)
class Position:
    """One assigned partition."""

    place: TopicPartition
    start: Start
    state: State = State.RESOLVING
    fetch_offset: int = -1
    position: int = -1
    high_watermark: int = -1
    buffer: deque[Fetched] = field(default_factory=deque)
    buffered: int = 0
    epoch: int = 0
    """Counts seeks, so that late answers are known as such."""
    in_flight: bool = False
    failures: int = 0
    failing_since: float = math.nan
    reported: float = -math.inf
    retry_at: float = -math.inf


class FetcherMachine:
    """The reading half of a consumer, on a `ClientCore`.

    Args:
        reset: where to go on when a position lies outside the log; ``None`` makes that an error.
    """

    _channels = itertools.count(1)

    def __init__(self, core: ClientCore, *, isolation: int = READ_UNCOMMITTED, reset: Time | None = None) -> None:
        self._core, self._isolation, self._reset = core, isolation, reset
        self._channel = f"{FETCH}-{next(self._channels)}"
        self._positions: dict[TopicPartition, Position] = {}
        self._turn: deque[Position] = deque()
        """Partitions with something buffered, in the order in which the user gets them."""
        self._idle: dict[Position, None] = {}
        """Partitions with room, for which no Fetch is under way."""
        self._asked: set[int] = set()
        """Nodes with a Fetch under way."""
        self._taken = False
        """The user has taken something since the last Fetch."""
        self._broken: dict[TopicPartition, OttlaError] = {}
        self._holds: dict[str, Callable[[], None]] = {}
        self._waiters: list[Outcome[None]] = []
        self._due: Timer | None = None
        self._followed: set[str] = set()
        self.closed = False
        core.observers.append(self._metadata_changed)
        self._leave = core.on_close(lambda error: self.close())

    # -- the user's side ---------------------------------------------------------------------------------------------

    def assign(self, starts: Mapping[TopicPartition, Start], now: float) -> None:
        """Read these partitions too, each from its start; for one that is read already this is a seek."""
        for place, start in starts.items():
            position = self._positions.get(place)
            if position is None:
                position = self._positions[place] = Position(place, start)
                if place[0] not in self._holds:
                    self._holds[place[0]] = self._core.hold(place[0])
            self._forget(position)
            self._broken.pop(place, None)
            position.start, position.epoch = start, position.epoch + 1
            if isinstance(start, Offset):
                position.fetch_offset = position.position = start.offset
                position.state = State.FETCHING
                self._idle[position] = None
            else:
                position.state = State.RESOLVING
        self._resolve(now)
        self._wake()

    def follow(self, topics: Iterable[str]) -> None:
        """Read partitions that these topics get later too, each from its beginning."""
        self._followed |= set(topics)

    @property
    def resolved(self) -> bool:
        """Every position is known (or has failed)."""
        return all(each.state is not State.RESOLVING for each in self._positions.values())

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions)

    def position(self, place: TopicPartition) -> int | None:
        """The offset of the next record that the user gets; ``None`` while it is being looked up."""
        position = self._positions[place]
        return None if position.state is State.RESOLVING else position.position

    def take(self) -> Fetched | None:
        """The next records of some partition, in fair turns; ``None`` where nothing is buffered.

        Raises:
            OttlaError: a partition cannot be read on; the error says which and why.
        """
        self.raise_errors()
        if not self._turn:
            return None
        position = self._turn.popleft()
        fetched = position.buffer.popleft()
        position.buffered -= fetched.size
        position.position = fetched.next_offset if position.buffer else position.fetch_offset
        if position.buffer:
            self._turn.append(position)
        self._taken = True
        self._offer(position)
        return fetched

    def raise_errors(self) -> None:
        """Raise the first partition's error, if there is any."""
        for error in self._broken.values():
            raise error

    def moved(self) -> Outcome[None]:
        """Settled when the state of some position has changed."""
        outcome: Outcome[None] = Outcome()
        self._waiters.append(outcome)
        return outcome

    def wait(self) -> Outcome[None]:
        """Settled when `take` has something to say, perhaps earlier."""
        outcome: Outcome[None] = Outcome()
        if self._turn or self.closed or self._broken:
            outcome.succeed(None)
        else:
            self._waiters.append(outcome)
        return outcome

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._leave()
            self._core.observers.remove(self._metadata_changed)
            self._core.retire(self._channel)
            for release in self._holds.values():
                release()
            self._positions.clear()
            self._idle.clear()
            self._turn.clear()
            self._notify()

    # -- positions ---------------------------------------------------------------------------------------------------

    def _forget(self, position: Position) -> None:
        position.buffer.clear()
        position.buffered = 0
        if position in self._turn:
            self._turn.remove(position)

    def _resolve(self, now: float) -> None:
        """Look up the offsets of all positions that begin at a time."""
        wanted = {
            place: (each, each.epoch, each.start.timestamp)
            for place, each in self._positions.items()
            if each.state is State.RESOLVING and isinstance(each.start, Time)
        }
        if not wanted:
            return
        found = offsets(
            self._core, {place: timestamp for place, (_, _, timestamp) in wanted.items()}, now, self._isolation
        )

        def arrived() -> None:
            young: dict[TopicPartition, Start] = {}
            for place, (position, epoch, _) in wanted.items():
                if position.epoch != epoch or self.closed:
                    continue
                if found.error is not None:
                    self._break(position, found.error)
                elif (offset := found.result()[place]) < 0:
                    young[place] = Time(LATEST)  # no record is that young: wait for one
                else:
                    position.fetch_offset = position.position = offset
                    position.state = State.FETCHING
                    self._idle[position] = None
            if young:
                self._core.soon(lambda now: self.assign(young, now))
            self._notify()
            self._wake()

        found.when_done(arrived)

    def _break(self, position: Position, error: OttlaError) -> None:
        position.state = State.FAILED
        self._broken[position.place] = error
        self._idle.pop(position, None)
        self._notify()

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            each.succeed(None)

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self.closed and (self._due is None or self._due.call is None):
            self._due = self._core.soon(self._drain)

    def _offer(self, position: Position) -> None:
        """Have the partition fetched again, if it may be."""
        room = position.buffered < self._core.options.partition_max_bytes
        if position.state is State.FETCHING and not position.in_flight and room:
            self._idle[position] = None
            self._wake()

    def _metadata_changed(self, now: float) -> None:
        new: dict[TopicPartition, Start] = {
            (name, partition): Time(EARLIEST)
            for name in sorted(self._followed)
            if (topic := self._core.cluster.topics.get(name))
            for partition in topic.partitions
            if (name, partition) not in self._positions
        }
        if new:
            self.assign(new, now)
        self._wake()

    def _drain(self, now: float) -> None:
        self._due = None
        groups: dict[Node, list[Position]] = {}
        for position in list(self._idle):
            if position.retry_at > now:
                continue
            leader = self._core.cluster.leader(*position.place)
            if leader is None:
                self._trouble(position, self._core.why_no_leader(*position.place), now)
            elif leader.id not in self._asked:
                groups.setdefault(leader, []).append(position)
                del self._idle[position]
        wait = self._core.options.fetch_max_wait
        if self._taken and len(self._idle) + sum(map(len, groups.values())) < len(self._positions):
            # Who reads fast will want more of a partition whose buffer is full now: it must not wait behind this.
            wait = min(_BRIEFLY, wait)
        for node, positions in groups.items():
            self._taken = False
            self._fetch(node, positions, wait, now)

    def _fetch(self, node: Node, positions: list[Position], wait: float, now: float) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        asked: dict[TopicPartition, tuple[Position, int]] = {}
        for position in positions:
            topic, partition = position.place
            position.in_flight = True
            asked[position.place] = (position, position.epoch)
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=self._core.cluster.leader_epoch(topic, partition),
                    fetch_offset=position.fetch_offset,
                    partition_max_bytes=self._core.options.partition_max_bytes,
                )
            )
        options = self._core.options
        request = FetchRequest(
            max_wait_ms=int(wait * 1000),
            min_bytes=1,
            max_bytes=options.fetch_max_bytes,
            isolation_level=self._isolation,
            topics=tuple(FetchTopic(topic=name, partitions=tuple(each)) for name, each in topics.items()),
        )
        self._asked.add(node.id)

        def ended(answer: FetchResponse | OttlaError, now: float) -> None:
            self._asked.discard(node.id)
            self._answered(asked, answer, now)
            self._wake()

        deadline = now + wait + options.request_timeout
        self._core.submit(node, Exchange(request, ended, deadline), now, self._channel)

    def _answered(
        self, asked: dict[TopicPartition, tuple[Position, int]], answer: FetchResponse | OttlaError, now: float
    ) -> None:
        results: dict[TopicPartition, PartitionData] = {}
        error = answer if isinstance(answer, OttlaError) else None
        if isinstance(answer, FetchResponse):
            error = broker_error(answer.error_code, "Fetch") if answer.error_code else None
            results = {
                (topic.topic, each.partition_index): each for topic in answer.responses for each in topic.partitions
            }
        for place, (position, epoch) in asked.items():
            position.in_flight = False
            if position.epoch == epoch and not self.closed:
                if error is not None:
                    self._trouble(position, error, now)
                elif result := results.get(place):
                    self._read(position, result, now)
                else:
                    self._trouble(
                        position, RemoteProtocolError(f"{place[0]}-{place[1]} was left out of the answer"), now
                    )
            self._offer(position)

    def _read(self, position: Position, result: PartitionData, now: float) -> None:
        topic, partition = position.place
        if isinstance(error := broker_error(result.error_code, f"{topic}-{partition}"), OffsetOutOfRange):
            self._out_of_range(position, result, now)
            return
        if result.error_code:
            self._trouble(position, error, now)
            return
        position.failures, position.failing_since = 0, math.nan
        position.high_watermark = result.high_watermark
        try:
            batches = [each for each in read_batches(result.records or b"") if each.next_offset > position.fetch_offset]
        except OttlaError as broken:
            self._break(position, type(broken)(f"{topic}-{partition} from offset {position.fetch_offset}: {broken}"))
            return
        if not batches:
            return
        visible = _visible(batches, result, self._isolation)
        first, position.fetch_offset = position.fetch_offset, batches[-1].next_offset
        if visible:
            fetched = Fetched(topic, partition, first, visible, result.high_watermark)
            position.buffer.append(fetched)
            position.buffered += fetched.size
            if len(position.buffer) == 1:
                self._turn.append(position)
            self._notify()
        elif not position.buffer:
            position.position = position.fetch_offset

    def _out_of_range(self, position: Position, result: PartitionData, now: float) -> None:
        topic, partition = position.place
        if self._reset is not None:
            log.warning(
                "the position is outside the log and is reset",
                extra={"topic": topic, "partition": partition, "position": position.fetch_offset},
            )
            self._core.soon(lambda now: self.assign({position.place: self._reset or Time(EARLIEST)}, now))
            return
        log_start = f"; the log begins at {result.log_start_offset}" if result.log_start_offset >= 0 else ""
        advice = "seek to an offset within the log, or choose reset='beginning' or 'end'"
        self._break(position, OffsetOutOfRange(f"{topic}-{partition} at {position.fetch_offset}{log_start}: {advice}"))

    def _trouble(self, position: Position, error: OttlaError, now: float) -> None:
        """A partition could not be read this time: try again, and say so if that goes on."""
        topic, partition = position.place
        if math.isnan(position.failing_since):
            position.failing_since = now
        waited = now - position.failing_since
        passing = (
            error.retriable
            if isinstance(error, BrokerError)
            else isinstance(error, ConnectionLost | TimeoutExpired | RemoteProtocolError)
        )
        # Brokers forget a partition for a moment when it moves; one that stays unknown is gone.
        if isinstance(error, UnknownTopicOrPartition) and waited > self._core.options.api_timeout / 2:
            passing = False
        if not passing or self._core.closed:
            self._break(position, error)
            return
        if waited >= STALL and now - position.reported >= STALL:
            position.reported = now
            log.error(
                "a partition is stalled",
                extra={"topic": topic, "partition": partition, "seconds": round(waited), "why": str(error)},
            )
        self._core.refresh(now, self._core.backoff(position.failures))
        position.retry_at = now + self._core.backoff(position.failures)
        position.failures += 1
        self._core.later(position.retry_at, lambda now: self._wake())


def _visible(batches: list[RecordBatch], result: PartitionData, isolation: int) -> list[RecordBatch]:
    """The batches whose records the user may see."""
    if isolation == READ_UNCOMMITTED:
        return [each for each in batches if not each.control]
    aborted = deque(sorted(result.aborted_transactions or (), key=lambda each: each.first_offset))
    dropping: set[int] = set()
    visible = []
    for batch in batches:
        while aborted and aborted[0].first_offset <= batch.last_offset:
            dropping.add(aborted.popleft().producer_id)
        if batch.control:
            if any(each.key == _ABORT_MARKER for each in batch.records()):
                dropping.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in dropping):
            visible.append(batch)
    return visible
