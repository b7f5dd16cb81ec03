"""The coordinator of consumer groups: takes the heartbeats of their members, and answers with their partitions.

    groups.heartbeat(asked, now)   # joins a member, keeps it, or lets it leave; answers at once, or raises

Rules:
- This module decides about the changes of a heartbeat; `Roster` keeps the groups, and stores their changes.
- A member is removed when its session times out, or when it does not give up partitions within its rebalance timeout.
- A lost connection changes nothing.
- Everything is bounded: groups, their members, and the bytes that the members' own data takes.

Source: GroupMetadataManager.java (consumerGroupHeartbeat, consumerGroupLeave), GroupCoordinatorService.java
(throwIfConsumerGroupHeartbeatRequestIsInvalid).
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.member import (
    LEFT_FOR_A_WHILE,
    AssignedMember,
    MemberProgress,
    Owned,
    Partitions,
    is_within,
    without_epochs,
)
from ottla.brokerlite.machines.consumer_groups.reconciliation import reconciled
from ottla.brokerlite.machines.consumer_groups.roster import Roster
from ottla.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    InvalidRequest,
    NotCoordinator,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")

JOIN, LEAVE = 0, -1
"""Epochs that a heartbeat may name, besides the member's own and `LEFT_FOR_A_WHILE`."""
OWN_IDS_SINCE = 1
"""The version from which members make their own ids (KIP-1082)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request; ``None`` and -1 stand for unchanged values.

    Attributes:
        has: the partitions that the member has.
        describable: whether the client may describe a topic.
        creator: the principal for which a new group counts; see `GroupRoom`.
    """

    version: int
    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    describable: Callable[[str], bool]
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    has: Partitions | None = None
    creator: str | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member tells everything, as it does when it joins and after an error: it gets everything back."""
        tells = self.topics is not None or self.pattern is not None
        return self.epoch == JOIN or (self.rebalance_timeout_ms != -1 and tells and self.has is not None)


class Beaten(NamedTuple):
    """The answer to a heartbeat.

    Attributes:
        assigned: all partitions that the member may have; ``None``: as before.
    """

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Owned | None = None


class ConsumerGroups:
    """Takes the heartbeats of the members of all consumer groups.

    Args:
        new_id: makes the ids of members that bring none.
    """

    def __init__(self, roster: Roster, new_id: "Callable[[], UUID]") -> None:
        self._roster = roster
        self._settings = roster.settings
        self._new_id = new_id
        self._draining = False

    @property
    def by_id(self) -> dict[str, ConsumerGroup]:
        """The groups, including groups loaded at the start."""
        return self._roster.by_id

    def drain(self) -> None:
        """From now on, answer NOT_COORDINATOR."""
        self._draining = True

    def heartbeat(self, asked: Heartbeat, now: float) -> Beaten:
        """Add a member, keep it, or let it leave; return its epoch and its partitions.

        Raises:
            InvalidRequest, UnsupportedAssignor, InvalidRegularExpression, UnsupportedVersion: the member asks for what
                cannot be.
            UnknownMemberId, FencedMemberEpoch: the member must join again.
            FencedInstanceId, UnreleasedInstanceId: another member has its instance id.
            GroupIdNotFound, GroupMaxSizeReached: there is no such group, or no room for a member.
            CoordinatorNotAvailable, PolicyViolation: there is no room for a group.
            CoordinatorLoadInProgress, NotCoordinator: the member must ask again.
        """
        if self._draining:
            raise NotCoordinator
        _check(asked, self._settings.assignors)
        if asked.epoch in (LEAVE, LEFT_FOR_A_WHILE):
            return self._leave(asked, now)
        change = self._roster.open(asked.group_id, joining=asked.epoch == JOIN, creator=asked.creator)
        self._roster.check_room(change, asked.member_id)
        member = self._find(change, asked, asked.member_id or str(self._new_id()))
        told = _told(member, asked)
        self._roster.check_room(change, told.member_id, told)
        change.put(told)
        led = self._lead(change, member, told, asked)
        self._roster.commit(change, now)
        self._watch(asked.group_id, told, led, now)
        differs = without_epochs(led.assigned) != without_epochs(member.assigned)
        return Beaten(
            led.member_id,
            led.epoch,
            round(self._settings.heartbeat_interval * 1000),
            led.assigned if asked.is_full or differs else None,
        )

    def _find(self, change: Change, asked: Heartbeat, member_id: str) -> AssignedMember:
        """Return the member of a request, or a new one if it joins."""
        group = change.group
        if asked.instance_id is None:
            if asked.epoch == JOIN:
                return group.members.get(member_id) or AssignedMember(member_id=member_id)
            member = group.member(member_id)
            _check_epoch(member, asked)
            return member
        holder = group.static_member(asked.instance_id)
        if asked.epoch == JOIN:
            return join_static(change, holder, member_id, asked.instance_id)
        member = _own(holder, member_id, asked.instance_id)
        _check_epoch(member, asked)
        return member

    def _lead(self, change: Change, member: AssignedMember, told: AssignedMember, asked: Heartbeat) -> AssignedMember:
        """Bring the group up to date, and lead the member one step further."""
        targets, timestamp = self._roster.targets, self._roster.timestamp
        changed = told.topics != member.topics or told.pattern != member.pattern
        resolved = targets.resolve_patterns(change, asked.describable, timestamp)
        targets.raise_epoch(change, needed=changed or resolved)
        targets.assign(change, timestamp)
        led = reconciled(told, self._roster.goal(change, told, asked.has, subscription_changed=changed))
        change.put(led)
        return led

    def _watch(self, group_id: str, told: AssignedMember, led: AssignedMember, now: float) -> None:
        """Set the timers of a member after its heartbeat."""
        self._roster.renew(group_id, led, now)
        if led.state is not MemberProgress.UNREVOKED:
            self._roster.sessions.revoked(group_id, led.member_id)
        elif led.progress != told.progress:
            self._roster.sessions.await_revocation(group_id, led, now)

    def _leave(self, asked: Heartbeat, now: float) -> Beaten:
        group = self._roster.find(asked.group_id)
        if asked.instance_id is None:
            member = group.member(asked.member_id)
        else:
            member = _own(group.static_member(asked.instance_id), asked.member_id, asked.instance_id)
        if asked.instance_id is None or asked.epoch == LEAVE:
            log.info("member %s left", member.member_id, extra={"group": asked.group_id})
            self._roster.fence(group, [member], now)
            return Beaten(asked.member_id, asked.epoch)
        log.info("static member %s left for a while", member.member_id, extra={"group": asked.group_id})
        change = Change(group)
        # The epochs of its partitions are 0: whatever epoch the member has when it is back, it may commit for them.
        kept = {topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in member.assigned.items()}
        change.put(replace(member, epoch=LEFT_FOR_A_WHILE, assigned=kept, revoking={}))
        self._roster.commit(change, now)
        return Beaten(member.member_id, LEFT_FOR_A_WHILE)


def _told(member: AssignedMember, asked: Heartbeat) -> AssignedMember:
    """Return the member with the values of a request; omitted values stay as they are."""
    return replace(
        member,
        instance_id=member.instance_id if asked.instance_id is None else asked.instance_id,
        rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if asked.rebalance_timeout_ms < 0
        else asked.rebalance_timeout_ms,
        assignor=member.assignor if asked.assignor is None else asked.assignor,
        topics=member.topics if asked.topics is None else asked.topics,
        pattern=member.pattern if asked.pattern is None else asked.pattern,
        client_id=asked.client_id,
        client_host=asked.client_host,
        classic=None,
    )


def join_static(
    change: Change, holder: AssignedMember | None, member_id: str, instance_id: str, *, classic: bool = False
) -> AssignedMember:
    """Return the static member that joins; it takes over the place of the one before, if there is one.

    Raises:
        UnreleasedInstanceId: both use the new protocol, and the one before has not left.
    """
    if holder is None:
        return change.group.members.get(member_id) or AssignedMember(member_id=member_id)
    if not classic and holder.classic is None and holder.epoch != LEFT_FOR_A_WHILE:
        raise UnreleasedInstanceId(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {holder.member_id} member."
        )
    target = change.target_of(holder.member_id)
    change.remove(holder.member_id)
    change.target[member_id] = target or {}
    member = replace(holder, member_id=member_id, epoch=0, previous_epoch=0)
    change.put(member)
    return member


def _own(holder: AssignedMember | None, member_id: str, instance_id: str) -> AssignedMember:
    """Return the member with an instance id, which the client with this member id must be."""
    if holder is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}."
        )
    return holder


def _check_epoch(member: AssignedMember, asked: Heartbeat) -> None:
    """Check the epoch that a member names. The one before counts if the answer with the newer one may be lost."""
    if asked.epoch == member.epoch:
        return
    if asked.epoch < member.epoch and asked.epoch == member.previous_epoch and is_within(asked.has, member.assigned):
        return
    than = "greater" if asked.epoch > member.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {than} member epoch ({asked.epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _check(asked: Heartbeat, assignors: Collection[str]) -> None:
    """Check the fields that are required whatever the state of the group."""
    if asked.version >= OWN_IDS_SINCE or asked.epoch > 0 or asked.epoch == LEAVE:
        _check_text("MemberId", asked.member_id)
    _check_text("GroupId", asked.group_id)
    _check_text("InstanceId", asked.instance_id)
    _check_text("RackId", asked.rack_id)
    if asked.epoch == JOIN:
        if asked.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if asked.has is None or asked.has:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if asked.topics is None and asked.pattern is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif asked.epoch == LEFT_FOR_A_WHILE and asked.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif asked.epoch < LEFT_FOR_A_WHILE:
        raise InvalidRequest("MemberEpoch is invalid.")
    if asked.assignor is not None and asked.assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {asked.assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )


def _check_text(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise InvalidRequest(f"{name} can't be empty.")
