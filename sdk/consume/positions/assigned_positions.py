"""Manages the positions of assigned partitions: assignment, seeks, resets by policy, and failures.

Rules:
- A problem at `fetch_offset` is handled once the user has taken the records before it; until then the position is
  stuck.
- The client acts on an error only if new metadata still shows the same topic, and the leader that reported the error.
- The ``reset`` policy moves a position without the user, and so do records that the user may not see. Observers learn
  of both.
- Observers learn of a recreated topic as soon as the client knows: a commit for the old topic would be stored for the
  new one, and the group's next member would skip records.

Source: SubscriptionState.java, OffsetFetcher.java, FetchCollector.java.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.codec.apis.fetch import PartitionData
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.records import BEYOND
from ottla.codec.wire import NO_UUID
from ottla.errors import DataLoss, LogTruncated, NoCommittedOffset, OffsetOutOfRange, OttlaError
from ottla.sdk.cluster.cluster import TopicPartition, is_another
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.fetching.fetch_metrics import FetchMetrics
from ottla.sdk.consume.fetching.fetch_scheduler import FetchScheduler
from ottla.sdk.consume.fetching.near_replicas import NearReplicas
from ottla.sdk.consume.partitions.position import (
    NO_NODE,
    Ago,
    Led,
    NoStart,
    Offset,
    Position,
    PositionState,
    Start,
    Time,
    troubles,
)
from ottla.sdk.consume.positions.changes import Changes
from ottla.sdk.consume.positions.retries import Retries
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow
from ottla.sdk.logs import about, logger
from ottla.sdk.steps import Steps

if TYPE_CHECKING:
    from uuid import UUID

log = logger("ottla.sdk.consumer")


class PositionObserver(Protocol):
    """Learns of positions that move without the user."""

    def log_changed(self, place: TopicPartition) -> None:
        """The log changed or was truncated: offsets read before must not be committed, unless the user seeks."""
        ...

    def reset(self, place: TopicPartition) -> None:
        """The ``reset`` policy has moved the position: it was out of range, or the log is another, or was truncated."""
        ...

    def passed(self, place: TopicPartition) -> None:
        """The position has passed records that the user may not see."""
        ...


class AssignedPositions:
    """Holds the positions of one fetcher, and changes them.

    Args:
        reset: where to resume when a position is outside the log; ``None`` makes that an error.
    """

    def __init__(
        self,
        core: ClientCore,
        buffers: FetchBuffers,
        scheduler: FetchScheduler,
        near: NearReplicas,
        changes: Changes,
        metrics: FetchMetrics,
        reset: Time | Ago | None = None,
    ) -> None:
        self._core, self._buffers, self._scheduler, self._near = core, buffers, scheduler, near
        self._changes, self._metrics, self._reset = changes, metrics, reset
        self.observers: list[PositionObserver] = []
        self.assigned: dict[TopicPartition, Position] = {}
        self.unresolved: dict[Position, None] = {}
        """Positions whose offset is being looked up."""
        self.failed: dict[TopicPartition, OttlaError] = {}
        """Partitions that cannot be read until a seek, and why."""
        self.followed: set[str] = set()
        """Topics whose new partitions are read as well."""
        self.may_go: set[str] = set()
        """Topics that may be deleted and recreated without an error."""
        self._holds: dict[str, tuple[Callable[[], None], dict[Position, None]]] = {}
        """Per topic, a function that releases its metadata, and the positions for which the metadata is held."""
        self._retries = Retries(core, self.assigned, scheduler.leave, self._again, self._give_up)

    # -- by the user --------------------------------------------------------------------------------------------------

    def assign(
        self,
        starts: Mapping[TopicPartition, Start],
        ends: Mapping[TopicPartition, int] | None = None,
        topic_ids: "Mapping[TopicPartition, UUID] | None" = None,
    ) -> None:
        """Start to read these partitions, up to ``ends``; a partition that is read already is sought."""
        for place, start in starts.items():
            position = self.assigned.get(place)
            sought = position is not None
            if position is None:
                topic_id = NO_UUID if topic_ids is None else topic_ids.get(place, NO_UUID)
                position = self.assigned[place] = Position(place, start, topic_id=topic_id)
                if place[0] not in self._holds:
                    self._holds[place[0]] = (self._core.metadata.hold(place[0]), {})
                self._holds[place[0]][1][position] = None
                self._metrics.watch(position)
            self.seek(position, start)
            if sought:
                self._scheduler.sought(position)
            position.stop_at(BEYOND if ends is None else ends.get(place, BEYOND))
        self._changes.wake()

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions: drop their buffers, and ignore late responses."""
        gone = [self.assigned[place] for place in places if place in self.assigned]
        for position in gone:
            place = position.place
            del self.assigned[place]
            self._buffers.forget(position)
            self._scheduler.forget(position)
            self._near.accepted(place)
            self._changes.forget(position)
            self.failed.pop(place, None)
            self.unresolved.pop(position, None)
            release, held = self._holds[place[0]]
            del held[position]
            if not held:
                del self._holds[place[0]]
                release()
                if place[0] not in self._core.cluster.topics:
                    self._metrics.forget_topic(place[0])
        self._metrics.forget(gone)
        self._changes.notify()
        self._changes.wake()

    def seek(self, position: Position, start: Start) -> None:
        """Continue to read at ``start``."""
        self._buffers.drop(position)
        self._scheduler.leave(position)
        position.seek(start, self._core.cluster.topic_id(position.place[0]))
        self.failed.pop(position.place, None)
        if isinstance(start, Offset):
            self.unresolved.pop(position, None)
        elif isinstance(start, NoStart):
            self.fail(position, NoCommittedOffset(f"{position.place[0]}-{position.place[1]}: {start.why}"))
        else:
            self.unresolved[position] = None
        self._changes.review(position)

    def resolved(self, position: Position, offset: int) -> None:
        """Start at ``offset``, which was looked up; if the topic was recreated meanwhile, look it up again."""
        # ListOffsets names the topic without its id, so the answer may be about either topic.
        if not is_another(position.topic_id, self._core.cluster.topic_id(position.place[0])):
            position.go(offset)
            self.unresolved.pop(position, None)

    # -- errors -------------------------------------------------------------------------------------------------------

    def fail(self, position: Position, error: OttlaError) -> None:
        """Stop reading the partition until a seek.

        ``error`` is raised once, in the partition's turn, after the user has taken all buffered records.
        """
        self._scheduler.leave(position)
        if not position.fail(error):
            return
        self.failed[position.place] = error
        self.unresolved.pop(position, None)
        self._buffers.offer(position)
        self._changes.notify()

    def retry(self, positions: Sequence[Position], error: OttlaError, now: float) -> None:
        """Retry requests about these partitions, which failed with ``error``, unless that would not help."""
        self._retries.retry(positions, error, now)

    def damaged(self, position: Position, damage: OttlaError, now: float) -> None:
        """Handle damaged bytes at the fetch offset. If a near replica sent them, try the leader, else fail."""
        if position.replica == NO_NODE:
            self.fail(position, position.about(damage))
            return
        self._near.refused(position.place, position.replica, damage, now)
        self._scheduler.leave(position)
        position.read_from_leader()
        self._changes.review(position)

    def confirm(self, position: Position, act: Callable[[], None]) -> None:
        """Call ``act`` if new metadata confirms that the error came from the current leader of the topic that was read.

        A former leader may not know yet that it was replaced. OffsetForLeaderEpoch, and Fetch before version 13, name
        the topic without its id, so the answer may be about a recreated topic. Only new metadata shows that. Without
        topic ids a new incarnation is only a suspicion, which the error confirms.
        """
        LoneFlow(self._core, self._confirm(position, act))

    def _confirm(self, position: Position, act: Callable[[], None]) -> Steps[None]:
        core, led = self._core, position.led
        self._scheduler.leave(position)
        seeks = position.ask()
        found = core.metadata.topic(position.place[0], core.now, fresh=True)
        yield found
        if not position.answered(seeks):
            return
        if found.error is not None:
            self.retry([position], found.error, core.now)
        elif led is None or self.leader(position) != led:
            self._changes.review(position)  # ask the new leader instead
        elif led.incarnation != position.incarnation:  # the error confirms that the topic was recreated
            self.recreated(position)
        else:
            act()
        self._changes.notify()

    def passed(self, position: Position) -> None:
        """Take note that the position has passed records that the user may not see."""
        for each in self.observers:
            each.passed(position.place)

    def truncated(self, position: Position, end: int, epoch: int) -> None:
        """Handle a truncated log (KIP-320): it matches the records that were read only up to ``end``.

        Args:
            end: an offset; -1: unknown.
            epoch: the leader epoch of the record before ``end``; -1: unknown.
        """
        # With a wrong checksum in the buffer, offsets in there may be wrong too, and the log may reach far enough.
        if not self._buffers.is_sound(position):
            position.await_reader()
            return
        topic, index = position.place
        where = about(position.place)
        log.warning("the log was truncated", extra=where | {"position": position.position, "end": end})
        if position.position <= end and position.position < position.fetch_offset:
            # The user has not seen any record that was truncated.
            self.seek(position, Offset(position.position, position.position_epoch))
        elif self._reset is not None:
            self._go_on(position, Offset(end, epoch) if end >= 0 else self._reset)
        else:
            self._buffers.drop(position)
            self._log_changed(position)
            self.fail(position, LogTruncated(topic, index, position.position, end if end >= 0 else None))

    def recreated(self, position: Position) -> None:
        """Handle a topic that was deleted and recreated."""
        where = about(position.place)
        self._log_changed(position)
        if position.buffer:
            self.fail(position, DataLoss())  # only marks the position as stuck: handled once the buffer is empty
        elif position.place[0] in self.may_go:
            log.warning("the topic was deleted and recreated: it is read from its beginning", extra=where)
            self._go_on(position, Time(EARLIEST))
        elif self._reset is not None:
            log.warning("the topic was deleted and recreated: the position is reset", extra=where)
            self._go_on(position, self._reset)
        else:
            recreated = "the topic was deleted and recreated: seek, or choose reset='beginning' or 'end'"
            self.fail(position, position.about(DataLoss(recreated)))

    def recreated_unread(self, position: Position) -> None:
        """Handle a topic that was recreated before the client knew where to start: no record is lost."""
        if position.start != Time(EARLIEST):
            where = about(position.place)
            log.warning("the topic was deleted and recreated: it is read from its beginning", extra=where)
        self._go_on(position, Time(EARLIEST))

    def out_of_range(self, position: Position, result: PartitionData) -> None:
        """Handle OFFSET_OUT_OF_RANGE of the leader."""
        topic, index = position.place
        log_start = f"; the log begins at {result.log_start_offset}" if result.log_start_offset >= 0 else ""
        if self._reset is not None and not position.buffer:
            where = about(position.place) | {"position": position.fetch_offset}
            log.warning("the position is outside the log and is reset", extra=where)
            self._go_on(position, self._reset)
            return
        advice = "seek to an offset within the log, or choose reset='beginning' or 'end'"
        self.fail(position, OffsetOutOfRange(f"{topic}-{index} at {position.fetch_offset}{log_start}: {advice}"))

    def _go_on(self, position: Position, start: Start) -> None:
        """Move the position by the ``reset`` policy."""
        self.seek(position, start)
        for each in self.observers:
            each.reset(position.place)

    def _log_changed(self, position: Position) -> None:
        for each in self.observers:
            each.log_changed(position.place)

    def _again(self, position: Position) -> None:
        if self.assigned.get(position.place) is position:
            self._changes.review(position)

    def _give_up(self, position: Position, error: OttlaError, gone: bool) -> bool:
        """Stop reading the partition; return whether it is given up.

        A partition assigned by a group is kept until the group revokes it, or until the topic is back.
        """
        topic, _ = position.place
        if not (gone and topic in self.may_go) or position.buffer:
            self.fail(position, error)
            return True
        log.warning("the topic was deleted and is no longer read", extra=about(position.place))
        if topic in self.followed:
            self.unassign([position.place])
        return topic in self.followed

    # -- leaders ------------------------------------------------------------------------------------------------------

    def leader(self, position: Position) -> Led | None:
        """The partition's leader according to the metadata."""
        cluster, topic = self._core.cluster, position.place[0]
        if (leader := cluster.leader(*position.place)) is None:
            return None
        return Led(leader.id, self.leader_epoch(position), cluster.incarnation(topic), cluster.topic_id(topic))

    def leader_epoch(self, position: Position) -> int:
        """The leader epoch according to the metadata; -1: unknown."""
        return self._core.cluster.leader_epoch(*position.place)

    def metadata_changed(self) -> None:
        """Read new partitions of followed topics, and review partitions whose leader or topic differs."""
        topics = self._core.cluster.topics
        new: dict[TopicPartition, Start] = {
            (name, index): Time(EARLIEST)
            for name in sorted(self.followed)
            if (topic := topics.get(name))
            for index in topic.partitions
            if (name, index) not in self.assigned
        }
        if new:
            self.assign(new)
        for position in self.assigned.values():
            if is_another(position.topic_id, self._core.cluster.topic_id(position.place[0])):
                self._log_changed(position)  # now: the review leaves out failed positions
            leader = self.leader(position)
            if leader is not None and leader != position.led:
                position.retry_now()
                self._changes.review(position)

    # -- explaining ---------------------------------------------------------------------------------------------------

    def waiting(self, nodes: Container[int] | None) -> int:
        """The number of partitions that cannot be read without these nodes (``None``: without any)."""
        leader, paused = self._core.cluster.leader, self._buffers.paused
        leaders = [
            leader(*place)
            for place, each in self.assigned.items()
            if each not in paused and each.state is not PositionState.FAILED
        ]
        return sum(nodes is None or (led is not None and led.id in nodes) for led in leaders)

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about partitions that cannot be read, or wait for something."""
        for (topic, index), error in self.failed.items():
            yield f"{topic}-{index}: cannot be read until a seek: {error}"
        yield from troubles(self.assigned.values(), now)
