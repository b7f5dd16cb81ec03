"""ShareGroupDescribe v1: describes share groups and their members (KIP-932).

If the client may not describe a topic that a member has, it sees nothing of the group.

Source: KafkaApis.scala (handleShareGroupDescribe), ShareGroup.java (asDescribedGroup).
"""

from functools import partial

from ottla.acl.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from ottla.brokerlite.handlers.described_groups import check_topics, describe_each, operations, refused
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.share_groups import share_assignor
from ottla.brokerlite.machines.share_groups.share_group import AssignedShareMember, ShareGroup
from ottla.codec.apis.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ottla.errors import InvalidGroupId

_MEMBER, _PARTITION = 200, 4
"""Bytes counted for a member and for a partition, in addition to the member's own data."""


def handle(broker: BrokerCore, call: Call) -> ShareGroupDescribeResponse:
    request: ShareGroupDescribeRequest = call.message
    groups = describe_each(
        request.group_ids, partial(_described, broker, call), partial(refused, DescribedGroup), _size_of
    )
    return ShareGroupDescribeResponse(groups=groups)


def _size_of(member: Member) -> int:
    partitions = sum(len(each.partitions) for each in member.assignment.topic_partitions)
    return _MEMBER + sum(map(len, member.subscribed_topic_names)) + _PARTITION * partitions


def _described(broker: BrokerCore, call: Call, group_id: str) -> DescribedGroup:
    broker.access.require(call.session, DESCRIBE_GROUP, group_id)
    if not group_id:
        raise InvalidGroupId("the group id must not be empty")
    broker.groups.check_kind(group_id, ShareGroup.kind)
    group = broker.share_groups.find(group_id)
    members = tuple(_member(broker, each) for each in group.members.values())
    topics = (topic.topic_name for member in members for topic in member.assignment.topic_partitions)
    check_topics(broker, call, DESCRIBE_TOPIC, topics)
    return DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=share_assignor.NAME,
        members=members,
        authorized_operations=operations(broker, call, group_id),
    )


def _member(broker: BrokerCore, member: AssignedShareMember) -> Member:
    known = broker.topics.by_id
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, topic_name=known[topic_id].name, partitions=tuple(sorted(indexes)))
                for topic_id, indexes in member.assigned.items()
                if topic_id in known
            )
        ),
    )
