"""Share groups (KIP-932), with Kafka's rules; written for these tests alone.

    a record      AVAILABLE ── a ShareFetch ──► ACQUIRED ── accept ──► ACKNOWLEDGED
                      ▲                            │   └─── reject ──► ARCHIVED
                      └── release, expired lock ───┘
                          closed session, new leader

Rules:
- The coordinator assigns partitions to members; several members may have the same partition. A member is removed if it
  is silent for its session. A new coordinator knows the members.
- Locks and share sessions live in the leader's memory: a new leader has none. Acknowledgements, rejections and delivery
  counts are stored, and survive.
- Of the acknowledgements for a partition in one request, all are stored or none: one of a record that is not locked for
  the member refuses the others as well.
- A session belongs to a connection: once the node notices that the connection has ended, it forgets the session, and
  the records locked in it become available.
- Requests of a session carry consecutive epochs; 0 opens another session, -1 closes it and releases its records.

Source: SharePartition.java, SharePartitionManager.java, ShareSessionCache.java; GroupMetadataManager.java.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.codec.apis import share_acknowledge, share_fetch
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.codec.apis.share_fetch import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcquiredRecords,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.codec.apis.share_group_heartbeat import (
    JOIN,
    LEAVE,
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotCoordinator,
    NotLeaderOrFollower,
    ShareSessionNotFound,
    UnknownMemberId,
    UnknownTopicId,
)
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.network import Link, Reply

if TYPE_CHECKING:
    from tests.sim.cluster import ModelCluster

POLL = 0.02
"""Seconds between two looks for available records, and for ended connections."""


class SharedState(Enum):
    AVAILABLE = auto()
    ACQUIRED = auto()
    ACKNOWLEDGED = auto()
    ARCHIVED = auto()


@dataclass(slots=True)
class SharedOffset:
    """The state of one offset for one group."""

    state: SharedState = SharedState.AVAILABLE
    deliveries: int = 0
    member: str = ""
    until: float = 0.0
    """When the lock expires."""


@dataclass(slots=True, eq=False)
class SharingMember:
    id: str
    topics: tuple[str, ...] = ()
    epoch: int = 0
    heard: float = 0.0
    known: frozenset[tuple[UUID, int]] | None = None
    """The assignment that it was sent last."""


@dataclass(slots=True, eq=False)
class SharingGroup:
    epoch: int = 0
    members: dict[str, SharingMember] = field(default_factory=dict)
    offsets: dict[Place, dict[int, SharedOffset]] = field(default_factory=lambda: defaultdict(dict))
    started: dict[Place, int] = field(default_factory=dict)
    """The epoch of the leader that has loaded each partition."""


@dataclass(slots=True, eq=False)
class ShareSessionAtNode:
    member: str
    link: Link | None
    epoch: int = 1
    """The epoch of the next request."""
    places: dict[Place, UUID] = field(default_factory=dict)
    dying: bool = False
    """The node is about to notice that the connection has ended."""


class Refusal(Exception):
    """A request is answered with an error code."""

    def __init__(self, error: type[Any]) -> None:
        super().__init__(error.name)
        self.code: int = error.code


Seen = Callable[[Place, int, str, int, str], None]


class ShareGroups:
    """Serves the share groups of a cluster.

    Attributes:
        session: `group.share.session.timeout.ms` in seconds.
        interval: `group.share.heartbeat.interval.ms` in seconds.
        lock: `group.share.record.lock.duration.ms` in seconds.
        gaps: the offsets of each partition that have no record.
        troubled: until when leaders cannot store acknowledgements of a partition, or do not know that they have.
        seen: called with every acquisition and every stored acknowledgement: place, offset, member, delivery, what.
    """

    def __init__(self, cluster: "ModelCluster", history: History) -> None:
        self._cluster, self._history = cluster, history
        self._clock: Clock = cluster.clock
        self.session, self.interval, self.lock = 3.0, 0.5, 2.0
        self.groups: defaultdict[str, SharingGroup] = defaultdict(SharingGroup)
        self.sessions: defaultdict[int, dict[tuple[str, str], ShareSessionAtNode]] = defaultdict(dict)
        self.seen: Seen = lambda place, offset, member, delivery, what: None
        self.features = cluster.data.features
        self._chance = Random("share groups")
        self.troubled: dict[Place, float] = {}
        self._loading: dict[Place, float] = {}
        """Until when a new coordinator loads its groups."""
        self._current: Link | None = None
        """The connection of the request that is handled."""
        self._sweeping = False

    def admit(self, link: Link) -> None:
        """Take note of the connection of the next request."""
        self._current = link
        if not self._sweeping:
            self._sweeping = True
            self._sweep()

    def handle(self, node: int, version: int, message: Any, reply: Reply) -> None:
        try:
            match message:
                case ShareGroupHeartbeatRequest():
                    reply(self._heartbeat(node, message))
                case ShareFetchRequest():
                    self._fetch(node, message, reply)
                case ShareAcknowledgeRequest():
                    reply(self._acknowledge(node, message))
        except Refusal as refused:
            match message:
                case ShareGroupHeartbeatRequest():
                    reply(ShareGroupHeartbeatResponse(error_code=refused.code, member_epoch=0, heartbeat_interval_ms=0))
                case ShareFetchRequest():
                    reply(_fetched(refused.code, self.lock, ()))
                case ShareAcknowledgeRequest():
                    reply(_acknowledged(refused.code, self.lock, ()))

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def moved(self, place: Place) -> None:
        """Another node coordinates the groups of a partition; sessions of members begin again."""
        self._loading[place] = self._clock.now + self._chance.uniform(0.0, 0.3)
        for name, group in self.groups.items():
            if self._cluster.groups.place(name) == place:
                for member in group.members.values():
                    member.heard = self._clock.now

    def expel(self, group: str, member: str) -> None:
        """Remove a member, as after a long silence."""
        if self.groups[group].members.pop(member, None) is not None:
            self._history.add("#", group, f"{member} is expelled")
            self.groups[group].epoch += 1

    def _heartbeat(self, node: int, message: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        place = self._cluster.groups.place(message.group_id)
        view = self._cluster.nodes[node].leaders.get(place)
        if view is None or view.node != node or self._cluster.leaders[place].node != node:
            raise Refusal(NotCoordinator)
        if self._loading.get(place, 0.0) > self._clock.now:
            raise Refusal(CoordinatorLoadInProgress)
        group = self.groups[message.group_id]
        for each in [each for each in group.members.values() if each.heard + self.session <= self._clock.now]:
            self.expel(message.group_id, each.id)
        if message.member_epoch == LEAVE:
            if group.members.pop(message.member_id, None) is None:
                raise Refusal(UnknownMemberId)
            group.epoch += 1
            return ShareGroupHeartbeatResponse(
                error_code=0, member_id=message.member_id, member_epoch=LEAVE, heartbeat_interval_ms=0
            )
        member = group.members.get(message.member_id)
        if member is None and message.member_epoch != JOIN:
            raise Refusal(UnknownMemberId)
        if member is not None and message.member_epoch not in (JOIN, member.epoch):
            raise Refusal(FencedMemberEpoch)
        if member is None:
            if not message.subscribed_topic_names:
                raise Refusal(InvalidRequest)
            group.epoch += 1
            member = group.members[message.member_id] = SharingMember(message.member_id)
        if message.subscribed_topic_names is not None:
            member.topics = tuple(message.subscribed_topic_names)
        member.heard, member.epoch = self._clock.now, group.epoch
        assigned = self._assigned(message.group_id, group, member)
        changed = message.member_epoch == JOIN or message.subscribed_topic_names is not None or assigned != member.known
        member.known = assigned
        return ShareGroupHeartbeatResponse(
            error_code=0,
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=int(self.interval * 1000),
            assignment=_assignment(assigned) if changed else None,
        )

    def _assigned(self, name: str, group: SharingGroup, member: SharingMember) -> frozenset[tuple[UUID, int]]:
        """Some of the partitions: each has at least one member."""
        members = sorted(group.members)
        found = []
        for place in self._cluster.leaders:
            if place[0] in member.topics and place[0] in self._cluster.ids:
                own = Random(f"{name} {group.epoch} {place}")
                if own.choice(members) == member.id or own.random() < 0.5:
                    found.append((self._cluster.ids[place[0]], place[1]))
        return frozenset(found)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Forget sessions whose connections have ended."""
        for node, sessions in self.sessions.items():
            for key, session in list(sessions.items()):
                link = session.link
                if link is not None and not link.open and not link.swallowed and not session.dying:
                    session.dying = True
                    pause = self._chance.choice((0.0, 0.05, 0.5))
                    self._clock.later(pause, partial(self._forget, node, key, session))
        self._clock.later(POLL, self._sweep)

    def _forget(self, node: int, key: tuple[str, str], session: ShareSessionAtNode) -> None:
        if self.sessions[node].get(key) is session and self._cluster.awake(node):
            del self.sessions[node][key]
            self._release(node, key[0], session)
            self.features["a share session ends with its connection"] += 1

    def _release(self, node: int, group: str, session: ShareSessionAtNode) -> None:
        for place in session.places:
            if self._leads(node, place):
                for each in self._offsets(group, place).values():
                    if each.state is SharedState.ACQUIRED and each.member == session.member:
                        each.state = SharedState.AVAILABLE

    def crashed(self, node: int) -> None:
        self.sessions.pop(node, None)

    def forget_sessions(self) -> None:
        """Let all nodes forget their sessions, as if their caches were full; the locks stay."""
        self.sessions.clear()

    def _session(self, node: int, message: Any) -> ShareSessionAtNode:
        session = self.sessions[node].get((message.group_id, message.member_id))
        if session is None:
            raise Refusal(ShareSessionNotFound)
        if message.share_session_epoch == -1:
            return session
        if session.epoch != message.share_session_epoch:
            raise Refusal(InvalidShareSessionEpoch)
        session.epoch += 1
        return session

    # -- records -----------------------------------------------------------------------------------------------------

    def _leads(self, node: int, place: Place) -> bool:
        leader = self._cluster.leaders.get(place)
        return leader is not None and leader.node == node

    def _offsets(self, group: str, place: Place) -> dict[int, SharedOffset]:
        """The offsets of a partition, as its leader knows them now."""
        shared = self.groups[group]
        offsets, epoch = shared.offsets[place], self._cluster.leaders[place].epoch
        fresh = shared.started.get(place, epoch) != epoch
        shared.started[place] = epoch
        for each in offsets.values():
            if each.state is SharedState.ACQUIRED and (fresh or each.until <= self._clock.now):
                each.state = SharedState.AVAILABLE
                self.features["a lock is gone with its leader" if fresh else "a lock expires"] += 1
        return offsets

    def _fetch(self, node: int, message: ShareFetchRequest, reply: Reply) -> None:
        group, member = message.group_id or "", message.member_id or ""
        key = (group, member)
        if message.share_session_epoch == 0:
            if any(each.acknowledgement_batches for topic in message.topics for each in topic.partitions):
                raise Refusal(InvalidRequest)
            self.sessions[node][key] = ShareSessionAtNode(member, self._current)
            session = self.sessions[node][key]
        else:
            session = self._session(node, message)
            session.link = self._current
        named = {topic_id: name for name, topic_id in self._cluster.nodes[node].ids.items()}
        unknown: list[tuple[UUID, int]] = []
        for topic in message.topics:
            for each in topic.partitions:
                if topic.topic_id in named:
                    session.places[named[topic.topic_id], each.partition_index] = topic.topic_id
                else:
                    unknown.append((topic.topic_id, each.partition_index))
        for forgotten in message.forgotten_topics_data:
            for index in forgotten.partitions:
                session.places.pop((named.get(forgotten.topic_id, ""), index), None)
        deadline = self._clock.now + message.max_wait_ms / 1000

        def attempt() -> None:
            found = [_refused(*each, UnknownTopicId.code) for each in unknown]
            room = message.max_records
            for place, topic_id in list(session.places.items()):
                if not self._knows(node, place):
                    found.append(_refused(topic_id, place[1], NotLeaderOrFollower.code))
                elif self._leads(node, place) and room > 0:
                    data = self._acquire(group, member, place, room)
                    if data is not None:
                        room -= sum(each.last_offset - each.first_offset + 1 for each in data.acquired_records)
                        found.append((topic_id, data))
            if found or self._clock.now >= deadline:
                reply(_fetched(0, self.lock, found))
            else:
                self._clock.later(min(POLL, deadline - self._clock.now), attempt)

        attempt()

    def _knows(self, node: int, place: Place) -> bool:
        """Whether the node believes that it leads the partition."""
        view = self._cluster.nodes[node].leaders.get(place)
        return view is not None and view.node == node

    def _acquire(self, group: str, member: str, place: Place, room: int) -> share_fetch.PartitionData | None:
        log, offsets = self._cluster.logs[place], self._offsets(group, place)
        chosen: list[int] = []
        for offset in range(log.start, log.high_watermark):
            each = offsets.setdefault(offset, SharedOffset())
            if each.state is SharedState.AVAILABLE:
                chosen.append(offset)
            if len(chosen) == room:
                break
        if not chosen:
            return None
        ranges: list[AcquiredRecords] = []
        for offset in chosen:
            each = offsets[offset]
            each.state, each.member = SharedState.ACQUIRED, member
            each.deliveries += 1
            each.until = self._clock.now + self.lock
            self.seen(place, offset, member, each.deliveries, "acquired")
            last = ranges[-1] if ranges else None
            if last is not None and last.last_offset == offset - 1 and last.delivery_count == each.deliveries:
                first = ranges.pop().first_offset
            else:
                first = offset
            ranges.append(AcquiredRecords(first_offset=first, last_offset=offset, delivery_count=each.deliveries))
        data = b"".join(each.data for each in log.batches if each.end > chosen[0] and each.base <= chosen[-1])
        return share_fetch.PartitionData(
            partition_index=place[1],
            error_code=0,
            acknowledge_error_code=0,
            current_leader=share_fetch.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            records=data,
            acquired_records=tuple(ranges),
        )

    def _acknowledge(self, node: int, message: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        session = self._session(node, message)
        group, member = message.group_id or "", message.member_id or ""
        named = {topic_id: name for name, topic_id in self._cluster.nodes[node].ids.items()}
        found = []
        for topic in message.topics:
            for each in topic.partitions:
                place = (named.get(topic.topic_id, ""), each.partition_index)
                code, batches = 0, each.acknowledgement_batches
                troubled = self._clock.now < self.troubled.get(place, 0.0)
                if not troubled or self._chance.random() < 0.3:
                    code = self._store(node, group, member, place, batches, message.is_renew_ack)
                if troubled and code == 0:
                    self.features["an acknowledgement is refused for now"] += 1
                    code = CoordinatorNotAvailable.code
                found.append(
                    share_acknowledge.ShareAcknowledgeTopicResponse(
                        topic_id=topic.topic_id,
                        partitions=(
                            share_acknowledge.PartitionData(
                                partition_index=each.partition_index,
                                error_code=code,
                                current_leader=share_acknowledge.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                            ),
                        ),
                    )
                )
        if message.share_session_epoch == -1:
            del self.sessions[node][group, member]
            self._release(node, group, session)
        return _acknowledged(0, self.lock, found)

    def _store(
        self,
        node: int,
        group: str,
        member: str,
        place: Place,
        batches: Iterable[share_acknowledge.AcknowledgementBatch],
        renews: bool,
    ) -> int:
        if not self._knows(node, place) or not self._leads(node, place):
            return NotLeaderOrFollower.code
        offsets = self._offsets(group, place)
        wanted: dict[int, int] = {}
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                kinds = batch.acknowledge_types
                wanted[offset] = kinds[0] if len(kinds) == 1 else kinds[offset - batch.first_offset]
        if list(wanted) != sorted(wanted) or (RENEW in wanted.values()) > renews:
            return InvalidRequest.code
        for offset in wanted:
            each = offsets.get(offset)
            if each is None or each.state is not SharedState.ACQUIRED or each.member != member:
                self.features["an acknowledgement is refused"] += 1
                return InvalidRecordState.code
        for offset, kind in wanted.items():
            each = offsets[offset]
            match kind:
                case share_fetch.RENEW:
                    each.until = self._clock.now + self.lock
                case share_fetch.RELEASE:
                    each.state = SharedState.AVAILABLE
                case share_fetch.REJECT:
                    each.state = SharedState.ARCHIVED
                case share_fetch.ACCEPT | share_fetch.GAP:
                    each.state = SharedState.ACKNOWLEDGED
            self.seen(place, offset, member, each.deliveries, KINDS[kind])
        return 0


KINDS = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected", RENEW: "renewed", GAP: "a gap"}


def _assignment(parts: Iterable[tuple[UUID, int]]) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(parts):
        topics.setdefault(topic_id, []).append(index)
    return Assignment(
        topic_partitions=tuple(TopicPartitions(topic_id=each, partitions=tuple(some)) for each, some in topics.items())
    )


def _refused(topic_id: UUID, index: int, code: int) -> tuple[UUID, share_fetch.PartitionData]:
    data = share_fetch.PartitionData(
        partition_index=index,
        error_code=code,
        acknowledge_error_code=0,
        current_leader=share_fetch.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        records=b"",
        acquired_records=(),
    )
    return topic_id, data


def _fetched(code: int, lock: float, found: Iterable[tuple[UUID, share_fetch.PartitionData]]) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=code,
        acquisition_lock_timeout_ms=int(lock * 1000),
        responses=tuple(
            share_fetch.ShareFetchableTopicResponse(topic_id=topic_id, partitions=(data,)) for topic_id, data in found
        ),
        node_endpoints=(),
    )


def _acknowledged(
    code: int, lock: float, found: Iterable[share_acknowledge.ShareAcknowledgeTopicResponse]
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=code, acquisition_lock_timeout_ms=int(lock * 1000), responses=tuple(found), node_endpoints=()
    )
