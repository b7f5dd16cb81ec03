"""Turns a classic group into a consumer group, and back, while its members go on.

Rules:
- A classic group of consumers is upgraded when the first member of the new protocol joins. Its members stay as they
  are, with their assignments, until a heartbeat tells them of the next epoch and they join again.
- A consumer group is downgraded when its last member of the new protocol leaves and classic members stay.
- A conversion loses no data: a group whose leader sends data of its own assignor along stays classic.

Source: GroupMetadataManager.java (convertToConsumerGroup, convertToClassicGroup), ConsumerGroup.java
(fromClassicGroup), ClassicGroup.java (fromConsumerGroup).
"""

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, ConsumerGroup, topics_of
from ottla.brokerlite.machines.consumer_groups.member import (
    AssignedMember,
    ClassicPart,
    Owned,
    Partitions,
    without_epochs,
)
from ottla.brokerlite.machines.consumer_groups.subscriptions import hash_of
from ottla.brokerlite.machines.groups.group import CONSUMER, Group, JoinedMember
from ottla.brokerlite.machines.topics.topics import Topics
from ottla.codec.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    build_assignment,
    parse_assignment,
    parse_subscription,
)
from ottla.errors import DecodeError, GroupIdNotFound

if TYPE_CHECKING:
    from uuid import UUID


def upgraded(classic: Group, topics: Topics) -> Change:
    """Return the change that makes the consumer group of a classic group's members.

    Raises:
        GroupIdNotFound: its members use another protocol, or send data that a conversion would lose.
    """
    change = Change(ConsumerGroup(classic.group_id, classic.creator))
    try:
        for each in classic.members.values():
            change.put(_from_classic(classic, each, topics))
    except DecodeError:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {classic.group_id} to consumer group because the embedded consumer protocol "
            "is malformed."
        ) from None
    members = change.all_members()
    names = {name for member in members.values() for name in topics_of(member, {})}
    change.restore_epoch(classic.generation, hash_of(names, topics))
    change.restore_target_epoch(classic.generation, 0)
    change.target.update({member_id: without_epochs(member.assigned) for member_id, member in members.items()})
    return change


def _from_classic(group: Group, member: JoinedMember, topics: Topics) -> AssignedMember:
    # In a rebalance the group may have no protocol yet, or this member may have given it up. All protocols of a member
    # name the same topics. Kafka fails if the group has no protocol (`protocolName().get()`).
    metadata = member.metadata(group.protocol) or member.protocols[0].metadata
    _, subscription = parse_subscription(metadata)
    assigned: Owned = {}
    if member.assignment:
        _, assignment = parse_assignment(member.assignment)
        if assignment.user_data:
            raise GroupIdNotFound(
                f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom "
                "assignor is in use. Please refer to the documentation or switch to a default assignor before "
                "re-attempting the upgrade."
            )
        assigned = {
            topics.by_name[each.topic].topic_id: dict.fromkeys(each.partitions, group.generation)
            for each in assignment.assigned_partitions
            if each.topic in topics.by_name and each.partitions
        }
    return AssignedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicPart(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
    )


def downgraded(change: Change, topics: Topics, leaving: Set[str], timestamp: int, *, rebalance: bool) -> Group:
    """Return the classic group of a consumer group's classic members, stable in the generation of the group's epoch.

    Args:
        change: the group as it is now, with the changes of the request.
        leaving: the ids of members that do not stay.
        rebalance: the members must join again.
    """
    former = change.group
    group = Group(former.group_id, since=timestamp, generation=change.epoch, creator=former.creator)
    targets: dict[str, Partitions] = {}
    for member_id, member in change.all_members().items():
        if member_id in leaving or member.classic is None:
            continue
        targets[member_id] = change.target_of(member_id) or {}
        group.add(_to_classic(member, member.classic), CONSUMER)
    group.load(CONSUMER, None if rebalance else next(iter(group.members), None))
    group.settle()
    for each in group.members.values():
        version, _ = parse_subscription(each.metadata(group.protocol))
        each.set_assignment(assignment_of(targets[each.member_id], topics, version))
    return group


def _to_classic(member: AssignedMember, classic: ClassicPart) -> JoinedMember:
    return JoinedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        classic.protocols,
    )


def assignment_of(partitions: Partitions, topics: Topics, version: int) -> bytes:
    """Return an assignment as classic members get it; topics that no longer exist are left out."""
    named: Mapping[UUID, str] = {
        topic_id: topics.by_id[topic_id].name for topic_id in partitions if topic_id in topics.by_id
    }
    assigned = tuple(
        TopicPartition(topic=name, partitions=tuple(sorted(partitions[topic_id]))) for topic_id, name in named.items()
    )
    return build_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), min(max(version, 0), 3))
