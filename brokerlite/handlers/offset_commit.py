"""OffsetCommit v2-10: commits the offsets of a group.

v2-4: the request may set a retention time. v6+: leader epochs. v7+: static members. v9+: a group that does not exist
has its own error, and members of consumer groups name their epoch. v10: topics by id.

Partitions that do not exist, or whose offset metadata is too long, get their own errors; all other partitions get the
error of the group or the member, if there is one.

Source: KafkaApis.scala (handleOffsetCommitRequest), OffsetMetadataManager.java (commitOffset).
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.acl.rights import READ_GROUP, READ_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.groups.offsets import GROUP_ID_NOT_FOUND_SINCE, Committed
from ottla.brokerlite.machines.topics.topics import TopicLogs
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.errors import (
    BrokerError,
    GroupAuthorizationFailed,
    OffsetMetadataTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

BY_ID = 10
"""The version from which topics are named by id."""
_BROKERS_RETENTION = -1
_LAST_TIMESTAMP = 2**63 - 1


class _AskedTopic(NamedTuple):
    """A topic of the request.

    Attributes:
        topic: ``None`` if it does not exist, or the client may not use it.
        error: the error code of partitions that are not there.
    """

    asked: OffsetCommitRequestTopic
    topic: TopicLogs | None
    error: int

    def refused(self, partition: OffsetCommitRequestPartition) -> int:
        """Return an error code if the client cannot commit an offset of the partition, otherwise 0."""
        return self.error if self.topic is None or self.topic.partition(partition.partition_index) is None else 0


def handle(broker: BrokerCore, call: Call) -> OffsetCommitResponse:
    request: OffsetCommitRequest = call.message
    if broker.access.allows(call.session, READ_GROUP, request.group_id):
        topics = [_find(broker, call, asked) for asked in request.topics]
        error = _commit(broker, call, topics)
    else:
        topics = [_AskedTopic(asked, None, GroupAuthorizationFailed.code) for asked in request.topics]
        error = 0
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=each.asked.name,
                topic_id=each.asked.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=each.refused(partition) or error or _too_large(broker, partition),
                    )
                    for partition in each.asked.partitions
                ),
            )
            for each in topics
            if each.asked.partitions
        )
    )


def _find(broker: BrokerCore, call: Call, asked: OffsetCommitRequestTopic) -> _AskedTopic:
    by_id = call.header.api_version >= BY_ID
    topic = broker.topics.by_id.get(asked.topic_id) if by_id else broker.topics.by_name.get(asked.name)
    if by_id and topic is None:
        return _AskedTopic(asked, None, UnknownTopicId.code)
    if not broker.access.allows(call.session, READ_TOPIC, asked.name if topic is None else topic.name):
        return _AskedTopic(asked, None, TopicAuthorizationFailed.code)
    return _AskedTopic(asked, topic, UnknownTopicOrPartition.code)


def _commit(broker: BrokerCore, call: Call, topics: Iterable[_AskedTopic]) -> int:
    """Commit the valid offsets; return the error code for all of them."""
    request: OffsetCommitRequest = call.message
    known = [
        (asked.topic, each)
        for asked in topics
        if asked.topic
        for each in asked.asked.partitions
        if not asked.refused(each)
    ]
    if not known:
        return 0
    retention = request.retention_time_ms
    expires = -1 if retention == _BROKERS_RETENTION else min(broker.clock.timestamp + retention, _LAST_TIMESTAMP)
    offsets = {
        (topic.name, each.partition_index): Committed(
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
            broker.clock.timestamp,
            expires,
            topic.topic_id,
        )
        for topic, each in known
        if not _too_large(broker, each)
    }
    is_new = call.header.api_version >= GROUP_ID_NOT_FOUND_SINCE
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        knows_epochs=is_new,
        creator=broker.access.limited(call.session),
    )
    places = [(topic.topic_id, each.partition_index) for topic, each in known]
    try:
        group = broker.offsets.begin_commit(request.group_id, committer, call.now, places, names_groups=is_new)
        broker.offsets.commit(group, offsets)
    except BrokerError as error:
        return error.code
    return 0


def _too_large(broker: BrokerCore, asked: OffsetCommitRequestPartition) -> int:
    """Return an error code if the offset's metadata is too long, otherwise 0."""
    limit = broker.settings.groups.max_offset_metadata
    return OffsetMetadataTooLarge.code if len(asked.committed_metadata or "") > limit else 0
