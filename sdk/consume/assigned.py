"""The partitions that are assigned, and what becomes of each: sought in, read on elsewhere by policy, or failed.

Rules:
- What is wrong at `fetch_offset` counts once the user has taken what lies before it: until then the position is stuck.
- An error is acted upon only if new metadata still name the leader that reported it, and the topic that was read.
- `on_reset` is called where reading goes on elsewhere without a seek, by ``reset``: offsets lower than before are meant
  from then on. `on_passed` is called where a position has passed what the user may not see.

Source: SubscriptionState.java, OffsetFetcher.java, FetchCollector.java.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.codec.apis.fetch import PartitionData
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.records import BEYOND
from ottla.errors import DataLoss, LogTruncated, NoCommittedOffset, OffsetOutOfRange, OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.buffers import FetchBuffers
from ottla.sdk.consume.changes import Changes
from ottla.sdk.consume.fetch_metrics import FetchMetrics
from ottla.sdk.consume.near import NearReplicas
from ottla.sdk.consume.positions import NO_NODE, Ago, Led, NoStart, Offset, Position, Start, State, Time
from ottla.sdk.consume.retries import Retries
from ottla.sdk.consume.scheduler import FetchScheduler
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger

log = logger("ottla.sdk.consumer")


class Positions:
    """Of one fetcher, whose parts are given.

    Args:
        reset: where to go on when a position lies outside the log; ``None`` makes that an error.
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
        self.on_reset: Callable[[TopicPartition], None] = lambda place: None
        self.on_passed: Callable[[TopicPartition], None] = lambda place: None
        self.assigned = metrics.positions
        self.unresolved: dict[Position, None] = {}
        """Those whose offset is being looked up."""
        self.failed: dict[TopicPartition, OttlaError] = {}
        """Those that cannot be read on, until a seek."""
        self.followed: set[str] = set()
        """Topics of which later partitions are read too."""
        self.may_go: set[str] = set()
        """Topics that may be deleted, and recreated."""
        self.closed = False
        self._holds: dict[str, tuple[Callable[[], None], dict[Position, None]]] = {}
        """Per topic, how to let go of its metadata, and for which partitions they are held."""
        self._retries = Retries(core, self.assigned, self.may_go, scheduler.leave, self._again, self._give_up)

    # -- by the user --------------------------------------------------------------------------------------------------

    def assign(self, starts: Mapping[TopicPartition, Start], ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Read these partitions too, up to their ends; for one that is read already this is a seek."""
        for place, start in starts.items():
            position = self.assigned.get(place)
            sought = position is not None
            if position is None:
                position = self.assigned[place] = Position(place, start)
                if place[0] not in self._holds:
                    self._holds[place[0]] = (self._core.metadata.hold(place[0]), {})
                self._holds[place[0]][1][position] = None
                self._metrics.watch(position)
            self.seek(position, start)
            position.priority = sought
            position.end = BEYOND if ends is None else ends.get(place, BEYOND)
        self._changes.wake()

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions: what is buffered of them is dropped, late answers are ignored."""
        gone = [place for place in places if place in self.assigned]
        for place in gone:
            position = self.assigned.pop(place)
            self._buffers.forget(position)
            self._scheduler.leave(position)
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
        """Read on from there."""
        self._buffers.drop(position)
        self._scheduler.leave(position)
        position.recovered()
        position.start, position.replica, position.end_before = start, NO_NODE, None
        position.topic_id = self._core.cluster.topic_id(position.place[0])
        self.failed.pop(position.place, None)
        if isinstance(start, Offset):
            position.go(start.offset, start.leader_epoch)
            self.unresolved.pop(position, None)
        elif isinstance(start, NoStart):
            self.fail(position, NoCommittedOffset(f"{position.place[0]}-{position.place[1]}: {start.why}"))
        else:
            position.state = State.RESOLVING
            self.unresolved[position] = None
        self._changes.review(position)

    def resolved(self, position: Position, offset: int) -> None:
        """The offset to start at was looked up."""
        position.go(offset)
        position.topic_id = self._core.cluster.topic_id(position.place[0])
        self.unresolved.pop(position, None)

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def fail(self, position: Position, error: OttlaError) -> None:
        """It cannot be read on, which is raised once, in its turn, when the user has taken what lies before."""
        self._scheduler.leave(position)
        if position.buffer:
            position.stuck = True
            return
        position.state, position.trouble, position.unraised = State.FAILED, error, True
        self.failed[position.place] = error
        self.unresolved.pop(position, None)
        self._buffers.offer(position)
        self._changes.notify()

    def retry(self, positions: Sequence[Position], error: OttlaError, now: float) -> None:
        """Partitions could not be asked about this time, by one ``error``: ask again, unless that would not help."""
        self._retries.retry(positions, error, now)

    def damaged(self, position: Position, damage: OttlaError, now: float) -> None:
        """What is to be read next is not what was written; but where a near replica sent it, the leader may have it."""
        if position.replica == NO_NODE:
            self.fail(position, position.about(damage))
            return
        self._near.refused(position.place, position.replica, damage, now)
        self._scheduler.leave(position)
        position.replica = NO_NODE
        self._changes.review(position)

    def confirm(self, position: Position, act: Callable[[], None], now: float) -> None:
        """Act upon bad news if they are about the topic that was read, and from the leader of the partition.

        A leader just deposed does not know that. Epochs are asked about by name, and so is what Fetch brings before
        version 13, so the topic may be a later one of the same name. Only new metadata show that; where they have no
        ids, another incarnation is a suspicion, which the bad news confirm.
        """
        name, seeks, led = position.place[0], position.seeks, position.led
        self._scheduler.leave(position)
        position.asking = True
        found = self._core.metadata.topic(name, now, fresh=True)

        def arrived(now: float) -> None:
            if position.seeks != seeks or self.closed or self._core.closed:
                return
            position.asking = False
            if found.error is not None:
                self.retry([position], found.error, now)
            elif led is None or self.leader(position) != led:
                self._changes.review(position)  # the new leader has the last word
            elif led.incarnation != position.incarnation:  # so that is what the bad news mean
                self.recreated(position)
            else:
                act()
            self._changes.notify()

        found.when_done(lambda: self._core.soon(arrived))

    def truncated(self, position: Position, end: int, epoch: int) -> None:
        """The log is as it was read up to ``end`` only, the last record there being of ``epoch``; -1: unknown."""
        if not self._buffers.is_sound(position):  # so it may be a mistake that the log does not reach so far
            position.state, position.stuck = State.FETCHING, True
            return
        topic, index = position.place
        where = {"topic": topic, "partition": index}
        log.warning("the log was truncated", extra=where | {"position": position.position, "end": end})
        if position.position <= end and position.position < position.fetch_offset:
            self.seek(position, Offset(position.position, position.position_epoch))  # the user saw nothing of it
        elif self._reset is not None:
            self._go_on(position, Offset(end, epoch) if end >= 0 else self._reset)
        else:
            self._buffers.drop(position)
            self.fail(position, LogTruncated(topic, index, position.position, end if end >= 0 else None))

    def recreated(self, position: Position) -> None:
        """The topic is another one, of the same name."""
        where = {"topic": position.place[0], "partition": position.place[1]}
        if position.buffer:
            self.fail(position, DataLoss())  # looked into again in a moment
        elif position.place[0] in self.may_go:
            log.warning("the topic was deleted and recreated: it is read from its beginning", extra=where)
            self._go_on(position, Time(EARLIEST))
        elif self._reset is not None:
            log.warning("the topic was deleted and recreated: the position is reset", extra=where)
            self._go_on(position, self._reset)
        else:
            recreated = "the topic was deleted and recreated: seek, or choose reset='beginning' or 'end'"
            self.fail(position, position.about(DataLoss(recreated)))

    def out_of_range(self, position: Position, result: PartitionData) -> None:
        """The log does not have the offset."""
        topic, index = position.place
        log_start = f"; the log begins at {result.log_start_offset}" if result.log_start_offset >= 0 else ""
        if self._reset is not None and not position.buffer:
            where = {"topic": topic, "partition": index, "position": position.fetch_offset}
            log.warning("the position is outside the log and is reset", extra=where)
            self._go_on(position, self._reset)
            return
        advice = "seek to an offset within the log, or choose reset='beginning' or 'end'"
        self.fail(position, OffsetOutOfRange(f"{topic}-{index} at {position.fetch_offset}{log_start}: {advice}"))

    def _go_on(self, position: Position, start: Start) -> None:
        """Go on elsewhere by policy."""
        self.seek(position, start)
        self.on_reset(position.place)

    def _again(self, position: Position) -> None:
        if self.assigned.get(position.place) is position:
            self._changes.review(position)

    def _give_up(self, position: Position, error: OttlaError, gone: bool) -> bool:
        """Whether it is given up. What a group gave stays assigned until the group takes it, or the topic is back."""
        topic, partition = position.place
        if not (gone and topic in self.may_go) or position.buffer:
            self.fail(position, error)
            return True
        where = {"topic": topic, "partition": partition}
        log.warning("the topic was deleted: it is not read any more", extra=where)
        if topic in self.followed:
            self.unassign([position.place])
        return topic in self.followed

    # -- its leader ---------------------------------------------------------------------------------------------------

    def leader(self, position: Position) -> Led | None:
        """By whom the partition is led, by the metadata."""
        cluster, topic = self._core.cluster, position.place[0]
        if (leader := cluster.leader(*position.place)) is None:
            return None
        return Led(leader.id, self.leader_epoch(position), cluster.incarnation(topic), cluster.topic_id(topic))

    def leader_epoch(self, position: Position) -> int:
        """The leader epoch by the metadata; -1: unknown."""
        return self._core.cluster.leader_epoch(*position.place)

    def recheck(self) -> None:
        """There are new metadata: see to the partitions that have another leader now, or another topic."""
        for position in self.assigned.values():
            leader = self.leader(position)
            if leader is not None and leader != position.led:
                position.retry_at = -math.inf
                self._changes.review(position)
