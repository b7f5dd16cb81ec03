"""AlterShareGroupOffsets v0: sets where a share group without members starts (KIP-932).

All partitions that exist are set, the others are errors. A group that does not exist begins with its offsets.

Source: KafkaApis.scala (handleAlterShareGroupOffsetsRequest), GroupMetadataManager.java (alterShareGroupOffsets).
"""

from ottla.acl.rights import READ_GROUP, READ_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.share_groups.share_group import ShareGroup
from ottla.brokerlite.machines.topics.topics import TopicLogs
from ottla.codec.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    BrokerError,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)


def handle(broker: BrokerCore, call: Call) -> AlterShareGroupOffsetsResponse:
    request: AlterShareGroupOffsetsRequest = call.message
    wanted: dict[str, dict[int, int]] = {}
    for asked in request.topics:
        starts = {each.partition_index: each.start_offset for each in asked.partitions}
        wanted.setdefault(asked.topic_name, {}).update(starts)
    try:
        broker.access.require(call.session, READ_GROUP, request.group_id)
        group = empty_group(broker, request.group_id, create=True, creator=broker.access.limited(call.session))
        responses, valid = [], []
        for name, starts in wanted.items():
            topic, errors = _checked(broker, call, name, starts)
            if topic is not None:
                valid.append((topic, {index: start for index, start in starts.items() if index not in errors}))
            responses.append(_response(name, topic, starts, errors))
        if any(starts for _, starts in valid):
            broker.share_groups.set_offsets(group, [(topic, starts) for topic, starts in valid if starts])
    except BrokerError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.detail or None, responses=())
    return AlterShareGroupOffsetsResponse(error_code=0, responses=tuple(responses))


def empty_group(broker: BrokerCore, group_id: str, *, create: bool = False, creator: str | None = None) -> ShareGroup:
    """Return a share group without members.

    Args:
        create: return a new group if there is none; it is stored with its first change.
        creator: the principal for which it counts.

    Raises:
        InvalidGroupId, GroupIdNotFound, NonEmptyGroup.
        CoordinatorNotAvailable: there are too many groups.
    """
    if not group_id:
        raise InvalidGroupId("the group id must not be empty")
    broker.groups.check_kind(group_id, ShareGroup.kind)
    group = broker.share_groups.open(group_id, creator) if create else broker.share_groups.find(group_id)
    if not group.is_empty:
        raise NonEmptyGroup(f"group {group_id} has members: stop them first")
    return group


def _checked(
    broker: BrokerCore, call: Call, name: str, starts: dict[int, int]
) -> tuple[TopicLogs | None, dict[int, BrokerError]]:
    """Return the topic, and the errors of its partitions."""
    if (denied := broker.access.refusal(call.session, READ_TOPIC, name)) is not None:
        return None, dict.fromkeys(starts, TopicAuthorizationFailed(denied.detail))
    topic = broker.topics.by_name.get(name)
    errors: dict[int, BrokerError] = {}
    for index, start in starts.items():
        if topic is None or topic.partition(index) is None:
            errors[index] = UnknownTopicOrPartition(f"{name} has no partition {index}")
        elif start < 0:
            errors[index] = OffsetOutOfRange(f"{start} is not an offset")
    return topic, errors


def _response(
    name: str, topic: TopicLogs | None, starts: dict[int, int], errors: dict[int, BrokerError]
) -> AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=NO_UUID if topic is None else topic.topic_id,
        partitions=tuple(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=errors[index].code if index in errors else 0,
                error_message=errors[index].detail or None if index in errors else None,
            )
            for index in starts
        ),
    )
