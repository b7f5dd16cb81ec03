"""Coordinators of consumer groups (KIP-848), with Kafka's rules; written for these tests alone.

    a member's state    STABLE          it has all partitions of its target, in the epoch of the target
                        UNREVOKED       it has to give up partitions before its epoch rises
                        UNRELEASED      it waits for partitions that others have to give up

Rules:
- The group's epoch rises with each change of members, subscriptions or partitions. The next heartbeat then computes
  new targets, and each member is reconciled with its target by its own heartbeats, one step at a time.
- A partition belongs to one member at a time: to the member that has it assigned, or still has to give it up.
- A member is removed if it is silent for its session, or does not give up its partitions in time.
- A group may have classic members, too: JoinGroup and SyncGroup then return the epoch and the partitions. A classic
  group becomes such a group with the first heartbeat of a member, and is classic again when the last one leaves.

Source: GroupMetadataManager.java, CurrentAssignmentBuilder.java, ConsumerGroup.java.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.codec.apis import leave_group as leave
from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.codec.apis.offset_commit import OffsetCommitRequest
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.codec.consumer_protocol import parse_subscription
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from ottla.sdk.group.assignors import build_assigned
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.history import History

if TYPE_CHECKING:
    from tests.sim.cluster import ModelCluster

Part = tuple[UUID, int]


class Progress(Enum):
    STABLE = auto()
    UNREVOKED = auto()
    UNRELEASED = auto()


@dataclass(slots=True, eq=False)
class ModernMember:
    id: str
    instance: str | None
    rebalance: float = 0.0
    topics: tuple[str, ...] = ()
    regex: str = ""
    epoch: int = 0
    previous: int = 0
    progress: Progress = Progress.STABLE
    assigned: frozenset[Part] = frozenset()
    pending: frozenset[Part] = frozenset()
    """Partitions that it has to give up."""
    since: dict[Part, int] = field(default_factory=dict)
    """The epoch in which it got each of these partitions; commits with an older one are stale (KIP-1251)."""
    heard: float = 0.0
    protocols: dict[str, bytes] | None = None
    """The subscriptions of a classic member."""
    session: float = 0.0

    @property
    def has(self) -> frozenset[Part]:
        return self.assigned | self.pending


@dataclass(slots=True, eq=False)
class ModernGroup:
    name: str
    epoch: int = 0
    target_epoch: int = 0
    targets: dict[str, frozenset[Part]] = field(default_factory=dict)
    members: dict[str, ModernMember] = field(default_factory=dict)
    counts: dict[str, tuple[UUID, int]] = field(default_factory=dict)
    """The subscribed topics as of the group's epoch: ids and numbers of partitions."""
    next_targets: float = 0.0
    """When the next targets may be computed."""
    phase: int = 0
    """Counts coordinators, so that timers of earlier ones are ignored."""

    def static(self, instance: str | None) -> ModernMember | None:
        return next((each for each in self.members.values() if instance and each.instance == instance), None)

    def owner(self, part: Part) -> ModernMember | None:
        return next((each for each in self.members.values() if part in each.has), None)

    @property
    def only_classic(self) -> bool:
        return bool(self.members) and all(each.protocols is not None for each in self.members.values())


class Refused(Exception):
    """A request is answered with an error code."""

    def __init__(self, error: type[Any]) -> None:
        super().__init__(error.name)
        self.code: int = error.code


Later = Callable[[float, Callable[[], None]], None]


class ModernCoordinator:
    """Serves the requests of all consumer groups.

    Attributes:
        session: `group.consumer.session.timeout.ms` in seconds.
        interval: `group.consumer.heartbeat.interval.ms` in seconds.
        pause: `group.consumer.assignment.interval.ms` in seconds.
        upgrades: `group.consumer.migration.policy` lets a classic group with members become such a group.
        strict: as in Kafka 4.0, commits need the member's present epoch, and a member that the group has cannot join.
    """

    def __init__(self, cluster: "ModelCluster", chance: Random, history: History) -> None:
        self._cluster, self._chance, self._history = cluster, chance, history
        self._clock: Clock = cluster.clock
        self.session, self.interval, self.pause, self.strict, self.upgrades = 3.0, 0.5, 0.0, False, True
        self.expelled: Callable[[str], None] = lambda member: None
        """Called with every member that is removed because it was silent, or too slow to give up partitions."""
        self.removed: Callable[[ModernGroup], None] = lambda group: None
        """Called after a member was removed."""
        self._made = 0

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(
        self, group: ModernGroup, message: ConsumerGroupHeartbeatRequest, later: Later
    ) -> ConsumerGroupHeartbeatResponse:
        try:
            if invalid_heartbeat(message):
                raise Refused(InvalidRequest)
            if message.member_epoch in (LEAVE, LEAVE_STATIC):
                return self._leave(group, message)
            return self._beat(group, message, later)
        except Refused as refused:
            return refused_heartbeat(refused.code)

    def _beat(
        self, group: ModernGroup, message: ConsumerGroupHeartbeatRequest, later: Later
    ) -> ConsumerGroupHeartbeatResponse:
        joins = message.member_epoch == JOIN
        owned = None
        if message.topic_partitions is not None:
            owned = frozenset((t.topic_id, p) for t in message.topic_partitions for p in t.partitions)
        member = self._member(group, message, owned)
        before = member.assigned
        was = member.topics, member.regex
        if message.rebalance_timeout_ms >= 0:
            member.rebalance = message.rebalance_timeout_ms / 1000
        if message.subscribed_topic_names is not None:
            member.topics = tuple(sorted(message.subscribed_topic_names))
        if message.subscribed_topic_regex is not None:
            member.regex = message.subscribed_topic_regex
        member.protocols = None
        self._touch(member)
        self._go_on(group, member, owned, later, changed=was != (member.topics, member.regex))
        whole = joins or (
            message.rebalance_timeout_ms >= 0 and message.subscribed_topic_names is not None and owned is not None
        )
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=int(self.interval * 1000),
            assignment=_assignment(member.assigned) if whole or member.assigned != before else None,
        )

    def _go_on(
        self, group: ModernGroup, member: ModernMember, owned: Collection[Part] | None, later: Later, *, changed: bool
    ) -> None:
        """Compute new targets if anything has changed, and take the member's next step."""
        counts = self._counts(group)
        if changed or counts != group.counts:
            group.epoch += 1
            group.counts = counts
        if group.epoch > group.target_epoch and (not group.target_epoch or self._clock.now >= group.next_targets):
            group.next_targets = self._clock.now + self.pause
            self._divide(group)
        was = member.pending
        self._reconcile(group, member, owned, changed=changed)
        if member.progress is Progress.UNREVOKED and member.pending is not was:
            later(member.rebalance, partial(self._too_slow, group, member, member.pending))

    def _member(
        self, group: ModernGroup, message: ConsumerGroupHeartbeatRequest, owned: Collection[Part] | None
    ) -> ModernMember:
        """The member that sends a heartbeat."""
        joins, instance = message.member_epoch == JOIN, message.instance_id
        static = group.static(instance)
        if instance is None:
            member = group.members.get(message.member_id)
            if member is None and joins:
                return self._add(group, message.member_id, None)
            if member is None:
                raise Refused(UnknownMemberId)
        elif joins:
            if static is None:
                return self._add(group, message.member_id, instance)
            if static.protocols is None and static.epoch != LEAVE_STATIC:
                raise Refused(UnreleasedInstanceId)
            return self._replaced(group, static, message.member_id)
        elif static is None:
            raise Refused(UnknownMemberId)
        elif static.id != message.member_id:
            raise Refused(FencedInstanceId)
        else:
            member = static
        self._check_epoch(member, message.member_epoch, owned)
        return member

    def _check_epoch(self, member: ModernMember, epoch: int, owned: Collection[Part] | None) -> None:
        """Accept the epoch before the last one if the response with the last one may have been lost."""
        if epoch == member.epoch or (epoch == JOIN and not self.strict):
            return
        subset = owned is not None and member.assigned.issuperset(owned)
        if epoch > member.epoch or epoch != member.previous or not subset:
            raise Refused(FencedMemberEpoch)

    def _add(self, group: ModernGroup, member_id: str, instance: str | None) -> ModernMember:
        member = group.members[member_id] = ModernMember(member_id, instance)
        self._history.add("#", group.name, f"{member_id} is new")
        return member

    def _replaced(self, group: ModernGroup, old: ModernMember, new: str) -> ModernMember:
        """A static member has come back with another member id."""
        member = replace(old, id=new, epoch=0, previous=0, protocols=None)
        group.members = {new if key == old.id else key: each for key, each in group.members.items()}
        group.members[new] = member
        group.targets = {new if key == old.id else key: each for key, each in group.targets.items()}
        return member

    # -- leaving -----------------------------------------------------------------------------------------------------

    def _leave(self, group: ModernGroup, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = group.members.get(message.member_id)
        if message.instance_id is not None:
            member = group.static(message.instance_id)
            if member is not None and member.id != message.member_id:
                raise Refused(FencedInstanceId)
        if member is None:
            raise Refused(UnknownMemberId)
        if message.instance_id is not None and message.member_epoch == LEAVE_STATIC:
            member.epoch, member.pending = LEAVE_STATIC, frozenset()
        else:
            self.remove(group, "left", member)
        return replace(refused_heartbeat(0), member_id=message.member_id, member_epoch=message.member_epoch)

    def remove(self, group: ModernGroup, how: str, *members: ModernMember) -> None:
        for member in members:
            self._history.add("#", group.name, f"{member.id} {how}")
            del group.members[member.id]
            group.targets.pop(member.id, None)
        if not group.only_classic:  # otherwise the group becomes a classic one in its present epoch
            group.epoch, group.counts = group.epoch + 1, self._counts(group)
        self.removed(group)

    def _too_slow(self, group: ModernGroup, member: ModernMember, pending: frozenset[Part]) -> None:
        waits = member.progress is Progress.UNREVOKED and member.pending is pending
        if group.members.get(member.id) is member and waits:
            self.expelled(member.id)
            self.remove(group, "did not give up its partitions in time", member)

    def _touch(self, member: ModernMember) -> None:
        member.heard = self._clock.now

    def watch(self, group: ModernGroup, later: Later) -> None:
        """Remove members whose session expires, for as long as this node coordinates the group."""
        phase = group.phase

        def look() -> None:
            if group.phase != phase:
                return
            for member in list(group.members.values()):
                session = member.session if member.protocols is not None else self.session
                if member.heard + session <= self._clock.now:
                    if member.epoch != LEAVE_STATIC:
                        self.expelled(member.id)
                    self.remove(group, "was silent for its session", member)
            later(0.1, look)

        later(0.1, look)

    def moved(self, group: ModernGroup, later: Later) -> None:
        """Another node coordinates the group; sessions begin again."""
        group.phase += 1
        for member in group.members.values():
            self._touch(member)
            if member.progress is Progress.UNREVOKED:
                later(member.rebalance, partial(self._too_slow, group, member, member.pending))
        self.watch(group, later)

    # -- targets -----------------------------------------------------------------------------------------------------

    def _counts(self, group: ModernGroup) -> dict[str, tuple[UUID, int]]:
        topics = {name for member in group.members.values() for name in self._topics(member)}
        found: dict[str, tuple[UUID, int]] = {}
        for name in sorted(topics):
            if name in self._cluster.ids:
                count = sum(place[0] == name for place in self._cluster.leaders)
                found[name] = self._cluster.ids[name], count
        return found

    def _topics(self, member: ModernMember) -> Iterable[str]:
        matched = [name for name in self._cluster.ids if not name.startswith("__")] if member.regex else []
        return {*member.topics, *(name for name in matched if re.fullmatch(member.regex, name))}

    def _divide(self, group: ModernGroup) -> None:
        """Divide the partitions: evenly for each topic, and every partition stays where it can."""
        targets: dict[str, set[Part]] = {each: set() for each in group.members}
        for name, (topic_id, count) in group.counts.items():
            members = sorted(each.id for each in group.members.values() if name in self._topics(each))
            if not members:
                continue
            self._chance.shuffle(members)
            share, more = divmod(count, len(members))
            room = {each: share + (index < more) for index, each in enumerate(members)}
            left = []
            for part in [(topic_id, index) for index in range(count)]:
                before = [each for each in members if part in group.targets.get(each, ()) and room[each]]
                if before:
                    room[before[0]] -= 1
                    targets[before[0]].add(part)
                else:
                    left.append(part)
            for part in left:
                taker = next(each for each in members if room[each])
                room[taker] -= 1
                targets[taker].add(part)
        group.targets = {each: frozenset(parts) for each, parts in targets.items()}
        group.target_epoch = group.epoch
        self._history.add("#", group.name, f"has targets of epoch {group.epoch} for {', '.join(group.members)}")

    def _reconcile(
        self, group: ModernGroup, member: ModernMember, owned: Collection[Part] | None, *, changed: bool
    ) -> None:
        """Take the member's next step towards its target.

        Args:
            changed: the request has changed the subscription.
        """
        settled = member.progress is Progress.STABLE and member.epoch == group.target_epoch
        if settled or (member.progress is Progress.UNREVOKED and _still_has(member.pending, owned)):
            if changed:
                self._unsubscribe(member, owned)
            return
        topics = self._ids(member)
        target = frozenset(part for part in group.targets.get(member.id, ()) if part[0] in topics)
        kept = member.assigned & target
        revoked = member.assigned - kept
        # Its own pending partitions are free for it: it has answered that it gave them up.
        free = frozenset(part for part in target - kept if group.owner(part) in (None, member))
        waits = bool(target - kept - free)
        member.previous = member.epoch
        if revoked and _still_has(revoked, owned):
            member.progress, member.assigned, member.pending = Progress.UNREVOKED, kept, revoked
            return
        member.progress = Progress.UNRELEASED if waits else Progress.STABLE
        member.assigned, member.pending, member.epoch = kept | free, frozenset(), group.target_epoch
        member.since = {part: member.since.get(part, 0) for part in kept} | dict.fromkeys(free, group.target_epoch)

    def _unsubscribe(self, member: ModernMember, owned: Collection[Part] | None) -> None:
        """Take away the partitions of topics to which the member no longer subscribes, without a new target."""
        topics = self._ids(member)
        lost = frozenset(part for part in member.assigned if part[0] not in topics)
        if not lost:
            return
        member.previous, member.assigned = member.epoch, member.assigned - lost
        if _still_has(member.pending | lost, owned):
            member.progress, member.pending = Progress.UNREVOKED, member.pending | lost

    def _ids(self, member: ModernMember) -> set[UUID]:
        return {self._cluster.ids[name] for name in self._topics(member) if name in self._cluster.ids}

    # -- offsets -----------------------------------------------------------------------------------------------------

    def may_commit(self, group: ModernGroup, version: int, message: Any) -> int:
        """The error code for a commit, also of a transaction."""
        epoch, transactional = message.generation_id_or_member_epoch, not isinstance(message, OffsetCommitRequest)
        if epoch < 0 and not message.member_id and transactional:
            return 0
        if epoch < 0 and not group.members:
            return 0
        member = group.members.get(message.member_id)
        if member is None:
            return UnknownMemberId.code
        if not transactional and member.protocols is None and version < 9:
            return UnsupportedVersion.code
        ids = self._cluster.ids
        places = [
            (ids.get(self._cluster.name(topic), NO_UUID), each.partition_index)
            for topic in message.topics
            for each in topic.partitions
        ]
        missing = any(epoch < member.since.get(place, epoch + 1) for place in places)
        if epoch > member.epoch or (epoch < member.epoch and (missing or self.strict)):
            stale = member.protocols is None and not transactional
            return (StaleMemberEpoch if stale else IllegalGeneration).code
        if member.protocols is not None and not transactional:
            self._touch(member)
        return 0

    def may_fetch(self, group: ModernGroup, member_id: str | None, epoch: int) -> int:
        if member_id is None and epoch < 0:
            return 0
        member = group.members.get(member_id or "")
        if member is None:
            return UnknownMemberId.code
        return 0 if epoch == member.epoch else StaleMemberEpoch.code

    # -- classic members ---------------------------------------------------------------------------------------------

    def join(
        self, group: ModernGroup, client: str, version: int, message: JoinGroupRequest, later: Later
    ) -> JoinGroupResponse:
        """JoinGroup of a classic member."""
        member_id, instance = message.member_id, message.group_instance_id
        protocols = {each.name: each.metadata for each in message.protocols}
        kinds = [set(each.protocols) for each in group.members.values() if each.protocols is not None]
        common = set.intersection(*kinds) if kinds else set(protocols)
        static = group.static(instance)
        if message.protocol_type != "consumer" or not common & set(protocols):
            return _refused_join(InconsistentGroupProtocol.code, member_id)
        if not member_id:
            self._made += 1
            member_id = f"{instance or client}-m{self._made}"
            if instance is None and version >= 4:
                return _refused_join(MemberIdRequired.code, member_id)
        elif static is not None and static.id != member_id:
            return _refused_join(FencedInstanceId.code, member_id)
        if static is not None and static.id != member_id:
            member = self._replaced(group, static, member_id)
        else:
            member = group.members.get(member_id) or self._add(group, member_id, instance)
        subscription = parse_subscription(next(iter(protocols.values())))[1]
        ids = self._cluster.ids
        owned = {
            (ids[each.topic], index)
            for each in subscription.owned_partitions
            if each.topic in ids
            for index in each.partitions
        }
        was = member.topics, member.regex
        member.topics, member.regex, member.protocols = tuple(sorted(subscription.topics)), "", protocols
        member.session = message.session_timeout_ms / 1000
        member.rebalance = message.rebalance_timeout_ms / 1000
        self._touch(member)
        self._go_on(group, member, owned, later, changed=was != (member.topics, ""))
        return JoinGroupResponse(
            error_code=0,
            generation_id=member.epoch,
            protocol_type="consumer",
            protocol_name=next(name for name in protocols if name in common),
            leader="",
            member_id=member.id,
            members=(),
        )

    def sync(self, group: ModernGroup, message: SyncGroupRequest) -> SyncGroupResponse:
        try:
            member = self._classic(group, message.member_id, message.group_instance_id, message.generation_id)
            if group.epoch > member.epoch and member.progress is not Progress.UNREVOKED:
                raise Refused(RebalanceInProgress)
        except Refused as refused:
            return SyncGroupResponse(error_code=refused.code, assignment=b"")
        return SyncGroupResponse(
            error_code=0,
            protocol_type="consumer",
            protocol_name=message.protocol_name,
            assignment=build_assigned(sorted(self.places(member.assigned))),
        )

    def classic_heartbeat(self, group: ModernGroup, message: HeartbeatRequest) -> int:
        try:
            member = self._classic(group, message.member_id, message.group_instance_id, message.generation_id)
        except Refused as refused:
            return refused.code
        self._touch(member)
        target = group.targets.get(member.id, frozenset())
        waits = any(group.owner(part) not in (None, member) for part in target - member.assigned)
        released = member.progress is Progress.UNRELEASED and not waits
        if released:
            self._history.add("#", group.name, f"{member.id} may get further partitions")
        behind = member.epoch < group.epoch or member.progress is Progress.UNREVOKED or released
        return RebalanceInProgress.code if behind else 0

    def classic_leave(self, group: ModernGroup, message: LeaveGroupRequest) -> LeaveGroupResponse:
        codes, leaving = [], []
        for each in message.members:
            member = group.static(each.group_instance_id) or group.members.get(each.member_id)
            if member is None:
                codes.append(UnknownMemberId.code)
            else:
                leaving.append(member)
                codes.append(0)
        if leaving:
            self.remove(group, "left", *leaving)
        return LeaveGroupResponse(
            error_code=0,
            members=tuple(
                leave.MemberResponse(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
                )
                for each, code in zip(message.members, codes, strict=True)
            ),
        )

    def _classic(self, group: ModernGroup, member_id: str, instance: str | None, generation: int) -> ModernMember:
        """A classic member that claims to be in this generation."""
        member = group.members.get(member_id)
        static = group.static(instance)
        if static is not None and static.id != member_id:
            raise Refused(FencedInstanceId)
        if member is None or member.protocols is None:
            raise Refused(UnknownMemberId)
        if generation != member.epoch:
            raise Refused(IllegalGeneration)
        return member

    def places(self, parts: Iterable[Part]) -> set[Place]:
        """Partitions by the names of their topics, without deleted topics."""
        names = {topic_id: name for name, topic_id in self._cluster.ids.items()}
        return {(names[topic_id], index) for topic_id, index in parts if topic_id in names}


def _still_has(parts: frozenset[Part], owned: Collection[Part] | None) -> bool:
    """Whether the member has any of these partitions, as far as the coordinator knows."""
    return owned is None or bool(parts.intersection(owned))


def _assignment(parts: Iterable[Part]) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(parts):
        topics.setdefault(topic_id, []).append(index)
    return Assignment(
        topic_partitions=tuple(TopicPartitions(topic_id=each, partitions=tuple(some)) for each, some in topics.items())
    )


def invalid_heartbeat(message: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has fields that no state of a group allows."""
    if message.member_epoch in (LEAVE, LEAVE_STATIC):
        return message.member_epoch == LEAVE_STATIC and message.instance_id is None
    subscribed = message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None
    incomplete = message.rebalance_timeout_ms < 0 or message.topic_partitions != () or not subscribed
    return message.member_epoch < 0 or (message.member_epoch == JOIN and incomplete)


def refused_heartbeat(code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)


def _refused_join(code: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, protocol_name="", leader="", member_id=member_id, members=(), generation_id=-1
    )
