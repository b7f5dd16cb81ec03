"""Interprets Fetch responses: updates positions and buffers, and handles errors.

Rules:
- Results for a partition are ignored if the user sought there after the request was sent.
- After an error from a near replica, the partition goes back to its leader, which decides.
- A truncated batch is not damaged as long as the response may have lacked room for all of it.

Source: FetchCollector.java, AbstractFetch.java.
"""

from collections.abc import Sequence

from ottla.codec.apis.fetch import FetchResponse, PartitionData
from ottla.codec.wire import Buffer
from ottla.errors import (
    ConnectionLost,
    CorruptMessage,
    OffsetOutOfRange,
    OttlaError,
    RemoteProtocolError,
    broker_error,
)
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.fetching.fetch_metrics import FetchMetrics
from ottla.sdk.consume.fetching.fetch_scheduler import FetchScheduler
from ottla.sdk.consume.fetching.fetch_session import SESSION_ERRORS, FetchSession
from ottla.sdk.consume.fetching.near_replicas import NearReplicas
from ottla.sdk.consume.partitions.position import NO_NODE, Position
from ottla.sdk.consume.partitions.record_sets import AnyBatch, corrupt, cut, found, needed, too_large, visible
from ottla.sdk.consume.positions.assigned_positions import AssignedPositions
from ottla.sdk.consume.positions.changes import Changes
from ottla.sdk.consume.reading.stable_offsets import StableOffsets
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.logs import about, logger

log = logger("ottla.sdk.consumer")


class FetchAnswers:
    """Interprets the Fetch responses of one fetcher."""

    def __init__(
        self,
        core: ClientCore,
        positions: AssignedPositions,
        buffers: FetchBuffers,
        scheduler: FetchScheduler,
        near: NearReplicas,
        changes: Changes,
        metrics: FetchMetrics,
        isolation: int,
        stable: StableOffsets | None = None,
    ) -> None:
        self._core, self._positions, self._buffers, self._scheduler = core, positions, buffers, scheduler
        self._near, self._changes, self._metrics, self._isolation = near, changes, metrics, isolation
        self._stable = stable

    def answered(self, session: FetchSession, answer: FetchResponse | OttlaError, now: float) -> None:
        """Handle a Fetch response, or the error of the request."""
        if isinstance(answer, OttlaError):
            session.invalidate()
            self._near.failed(session.node.id, answer, now)
            self._positions.retry(list(session.wanted.values()), answer, now)
            return
        self._near.answered(session.node.id)
        self._metrics.answered(now - session.since, answer.throttle_time_ms / 1000, now)
        if error := session.answered(answer):
            self._session_lost(session, error, now)
            return
        size, records = 0, 0
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        for asked, result in session.results(answer):
            if not asked.matters:
                continue
            if isinstance(result, OttlaError):
                self._positions.retry([asked.position], result, now)
            elif _bad(result) and self._scheduler.node(asked.position) != session.node.id:
                continue  # the partition has moved since, and its new leader is asked
            elif result.error_code:
                self._refused(asked.position, session, result, nodes, now)
            else:
                size += len(result.records or b"")
                records += self._read(asked.position, session, result, now)
        for position in session.recovered():
            position.recovered()
        self._metrics.received(size, records, now)
        if session.priority:
            for position in self._scheduler.ended_priority(session):
                self._changes.review(position)

    def _session_lost(self, session: FetchSession, error: OttlaError, now: float) -> None:
        if not isinstance(error, SESSION_ERRORS):
            self._positions.retry(list(session.wanted.values()), error, now)
        elif session.failures > 1:
            session.pause(now + self._core.backoff(session.failures - 1))
            self._core.later(session.retry_at, lambda now: self._changes.wake())

    def _refused(
        self, position: Position, session: FetchSession, result: PartitionData, nodes: Sequence[Node], now: float
    ) -> None:
        """Handle an error of one partition."""
        topic, index = position.place
        error = broker_error(result.error_code, f"{topic}-{index}", repeatable=True)
        follower = position.replica == session.node.id
        position.read_from_leader()
        hint = result.current_leader
        if self._core.cluster.moved(topic, index, hint.leader_id, hint.leader_epoch, nodes):
            log.info("a partition has a new leader", extra=about((topic, index)) | {"node": hint.leader_id})
            self._changes.review(position)
            return
        if follower:  # the leader is asked next, and may recommend this replica again
            self._near.refused(position.place, session.node.id, error, now)
        if isinstance(error, CorruptMessage) and not follower:
            self._positions.fail(position, corrupt(position.place, position.fetch_offset))
        elif not isinstance(error, OffsetOutOfRange):
            self._positions.retry([position], error, now)
        elif follower:  # KIP-392: a follower may lack the offset although the leader has it
            self._changes.review(position)
        else:
            self._positions.confirm(position, lambda: self._positions.out_of_range(position, result))

    def _read(self, position: Position, session: FetchSession, result: PartitionData, now: float) -> int:
        """Process a partition's result; return the number of new records for the user."""
        position.learned(result)
        if self._stable is not None:
            self._stable.seen(position, now)
        # From Fetch 12 on: the log differs from what was read, by the epoch in the request (KIP-595).
        if result.diverging_epoch.end_offset >= 0:
            end = result.diverging_epoch
            if position.replica == session.node.id:  # its log may only end early: the leader has the last word
                what = f"its log ends at {end.end_offset}, before the requested offset {position.fetch_offset}"
                self._positions.damaged(position, RemoteProtocolError(what), now)
                return 0
            truncated = self._positions.truncated
            self._positions.confirm(position, lambda: truncated(position, end.end_offset, end.epoch))
        elif result.preferred_read_replica not in (NO_NODE, session.node.id):
            self._recommended(position, session.node.id, result.preferred_read_replica, now)
        elif result.records:
            session.served(position.place)
            batches, damage = found(result.records, position.fetch_offset, self._isolation)
            ahead = [each for each in batches if each.next_offset > position.fetch_offset]
            if ahead:
                return self._buffer(position, ahead, result)
            if batches:
                behind = f"only records before the requested offset {position.fetch_offset}"
                self._positions.retry([position], position.about(RemoteProtocolError(behind)), now)
            elif damage is not None:
                self._positions.damaged(position, damage, now)
            else:
                self._torn(position, session, result.records, now)
        return 0

    def _recommended(self, position: Position, leader: int, replica: int, now: float) -> None:
        """Switch to the near replica that the leader recommends; it sent no records (KIP-392)."""
        self._near.recommended(leader, replica, now)
        if why := self._near.against(replica, position.place, now):
            where = f"{position.place[0]}-{position.place[1]}"
            self._positions.retry([position], ConnectionLost(f"{where}: the leader names node {replica}, {why}"), now)
            return
        position.read_from(replica, now + self._core.options.metadata_max_age)

        def over(now: float) -> None:
            if self._positions.assigned.get(position.place) is position:
                self._changes.review(position)

        self._core.later(position.replica_until, over)
        self._changes.review(position)

    def _buffer(self, position: Position, batches: list[AnyBatch], result: PartitionData) -> int:
        try:
            seen = visible(batches, result.aborted_transactions, self._isolation)
        except OttlaError as damage:  # a control batch is damaged
            self._positions.damaged(position, damage, self._core.now)
            return 0
        fetched = self._buffers.add(position, batches, seen, len(result.records or b""))
        self._changes.review(position)
        if fetched is None:
            if not position.buffer:
                self._positions.passed(position)
            return 0
        self._changes.notify()
        return fetched.count

    def _torn(self, position: Position, session: FetchSession, records: Buffer, now: float) -> None:
        """Handle a response without a complete batch: ask for all of it, or report the damage."""
        size, limit = needed(records), self._core.options.fetch_max_bytes
        room = session.room_for(position.place) if position.needs else 0
        if room < min(size, limit):
            position.batch_truncated(min(size, limit))
            self._changes.review(position)
        elif size > limit:
            self._positions.fail(position, position.about(too_large(size, limit)))
        else:
            self._positions.damaged(position, cut(records), now)


def _bad(result: PartitionData) -> bool:
    """Whether the result says that the node cannot serve the position."""
    return bool(result.error_code) or result.diverging_epoch.end_offset >= 0
