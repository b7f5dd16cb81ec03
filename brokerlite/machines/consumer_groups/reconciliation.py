"""Leads a member to its target assignment: it gives up partitions first, and gets others only when they are free.

Rules:
- A member keeps its epoch until it has given up every partition that is not in its target. Then it reaches the target's
  epoch, and gets the partitions of the target that no other member has.
- Its heartbeats say which partitions it still has. A heartbeat without that information does not count as giving up.
- A partition of a topic to which the member no longer subscribes is taken away at once, even before a new target
  assignment is known.

Source: CurrentAssignmentBuilder.java.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.consumer_groups.member import AssignedMember, MemberProgress, Owned, Partitions
from ottla.errors import FencedMemberEpoch

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goal of a member, and its own report.

    Attributes:
        epoch, target: the target assignment.
        subscribed: the ids of the topics that the member subscribes to.
        subscription_changed: the request has changed the subscription.
        has: the partitions that the member says it has; ``None``: it does not say.
        is_owned: whether some member has a partition.
    """

    epoch: int
    target: Partitions
    subscribed: "Set[UUID]"
    subscription_changed: bool
    has: Partitions | None
    is_owned: "Callable[[UUID, int], bool]"


def reconciled(member: AssignedMember, goal: Goal) -> AssignedMember:
    """Return the member one step further on its way, or as it is.

    Raises:
        FencedMemberEpoch: the member's state is unknown to this broker, and it still has partitions.
    """
    if not goal.subscription_changed and member.is_reconciled_to(goal.epoch):
        return member
    match member.state:
        case MemberProgress.STABLE if member.epoch == goal.epoch:
            return _within_subscription(member, goal)
        case MemberProgress.UNREVOKED if _still_has(member.revoking, goal):
            return _within_subscription(member, goal) if goal.subscription_changed else member
        case MemberProgress.UNKNOWN if goal.has is None or goal.has:
            raise FencedMemberEpoch(
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin."
            )
        case MemberProgress.UNKNOWN:
            return _next(member, goal, goal.epoch)
        case _:
            return _next(member, goal, member.epoch)


def _still_has(revoking: Owned, goal: Goal) -> bool:
    """Whether the member has any of these partitions, as far as the broker knows."""
    if goal.has is None:
        return True
    return any(index in revoking.get(topic_id, {}) for topic_id, indexes in goal.has.items() for index in indexes)


def _within_subscription(member: AssignedMember, goal: Goal) -> AssignedMember:
    """Take away the partitions of topics to which the member no longer subscribes."""
    lost = {topic_id: each for topic_id, each in member.assigned.items() if topic_id not in goal.subscribed}
    if not lost:
        return member
    kept = {topic_id: each for topic_id, each in member.assigned.items() if topic_id in goal.subscribed}
    revoking = {topic_id: dict(each) for topic_id, each in member.revoking.items()}
    for topic_id, each in lost.items():
        revoking.setdefault(topic_id, {}).update(each)
    if _still_has(revoking, goal):
        return replace(
            member, state=MemberProgress.UNREVOKED, previous_epoch=member.epoch, assigned=kept, revoking=revoking
        )
    return replace(member, previous_epoch=member.epoch, assigned=kept)


def _next(member: AssignedMember, goal: Goal, epoch: int) -> AssignedMember:
    assigned: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    free: dict[UUID, set[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*goal.target, *member.assigned)):
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        own = member.revoking.get(topic_id, {})  # free for this member: only one member has a partition
        if kept := {index: since for index, since in current.items() if index in target}:
            assigned[topic_id] = kept
        if lost := {index: since for index, since in current.items() if index not in target}:
            revoking[topic_id] = lost
        missing = target - kept.keys()
        taken = {index for index in missing if goal.is_owned(topic_id, index) and index not in own}
        waits = waits or bool(taken)
        if missing - taken:
            free[topic_id] = set(missing - taken)
    if revoking and _still_has(revoking, goal):
        return replace(
            member,
            state=MemberProgress.UNREVOKED,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    for topic_id, indexes in free.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(sorted(indexes), goal.epoch))
    return replace(
        member,
        state=MemberProgress.UNRELEASED if waits else MemberProgress.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking={},
    )
