"""ConsumerGroupDescribe v0-1: describes consumer groups: their members, with what these have and will have (KIP-848).

v1+: whether a member uses the classic protocol. If the client may not describe a topic of a group, it sees nothing of
the group.

Source: KafkaApis.scala (handleConsumerGroupDescribe), ConsumerGroup.java (asDescribedGroup).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

from ottla.acl.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from ottla.brokerlite.handlers.described_groups import check_topics, describe_each, operations, refused
from ottla.brokerlite.machines.consumer_groups.consumer_group import ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.member import AssignedMember, grouped
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    TopicPartitions,
)
from ottla.codec.apis.consumer_group_describe import Member as DescribedMember
from ottla.errors import GroupIdNotFound, InvalidGroupId

_CLASSIC, _CONSUMER = 0, 1
"""Types of members."""
_MEMBER, _PARTITION = 200, 8
"""Bytes counted for a member and for a partition, in addition to the member's own data."""


def handle(broker: BrokerCore, call: Call) -> ConsumerGroupDescribeResponse:
    request: ConsumerGroupDescribeRequest = call.message
    groups = describe_each(
        request.group_ids, partial(_described, broker, call), partial(refused, DescribedGroup), _size_of
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _size_of(member: DescribedMember) -> int:
    topics = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return (
        _MEMBER
        + sum(map(len, member.subscribed_topic_names))
        + _PARTITION * sum(len(each.partitions) for each in topics)
    )


def _described(broker: BrokerCore, call: Call, group_id: str) -> DescribedGroup:
    broker.access.require(call.session, DESCRIBE_GROUP, group_id)
    if not group_id:
        raise InvalidGroupId("the group id must not be empty")
    group = broker.consumer_groups.by_id.get(group_id)
    if group is None:
        other = broker.groups.get(group_id) is not None
        raise GroupIdNotFound(f"Group {group_id} is not a consumer group." if other else f"Group {group_id} not found.")
    members = tuple(_member(broker, group, each) for each in group.members.values())
    topics = {
        topic.topic_name
        for each in members
        for topic in (*each.assignment.topic_partitions, *each.target_assignment.topic_partitions)
    }
    check_topics(broker, call, DESCRIBE_TOPIC, topics)
    return DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor(broker.settings.consumer_groups.assignors[0]),
        members=members,
        authorized_operations=operations(broker, call, group_id),
    )


def _member(broker: BrokerCore, group: ConsumerGroup, member: AssignedMember) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(broker, grouped((*member.assigned.items(), *member.revoking.items()))),
        target_assignment=_assignment(broker, group.target.get(member.member_id, {})),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(broker: BrokerCore, partitions: Mapping[UUID, Iterable[int]]) -> Assignment:
    """Return an assignment with the names of its topics; deleted topics are left out."""
    known = broker.topics.by_id
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=known[topic_id].name, partitions=tuple(sorted(indexes)))
            for topic_id, indexes in partitions.items()
            if topic_id in known
        )
    )
