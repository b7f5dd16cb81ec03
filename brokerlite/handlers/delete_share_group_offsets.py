"""DeleteShareGroupOffsets v0: deletes the progress of a share group without members in whole topics (KIP-932).

Source: KafkaApis.scala (handleDeleteShareGroupOffsetsRequest), GroupMetadataManager.java
(sharePartitionsEligibleForOffsetDeletion).
"""

from ottla.acl.rights import DELETE_GROUP, READ_TOPIC
from ottla.brokerlite.handlers.alter_share_group_offsets import empty_group
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, TopicAuthorizationFailed, UnknownTopicOrPartition


def handle(broker: BrokerCore, call: Call) -> DeleteShareGroupOffsetsResponse:
    request: DeleteShareGroupOffsetsRequest = call.message
    try:
        broker.access.require(call.session, DELETE_GROUP, request.group_id)
        group = empty_group(broker, request.group_id)
        responses, gone = [], []
        for name in dict.fromkeys(each.topic_name for each in request.topics):
            topic = broker.topics.by_name.get(name)
            error: BrokerError | None = None
            if not broker.access.allows(call.session, READ_TOPIC, name):
                error = TopicAuthorizationFailed("not authorized")
            elif topic is None or topic.topic_id not in group.initialized:
                error = UnknownTopicOrPartition(f"group {group.group_id} has no offsets of {name}")
            else:
                gone.append(topic.topic_id)
            responses.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=topic.topic_id if error is None and topic is not None else NO_UUID,
                    error_code=0 if error is None else error.code,
                    error_message=None if error is None else error.detail or None,
                )
            )
        if gone:
            broker.share_groups.delete_offsets(group, gone)
    except BrokerError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.detail or None, responses=())
    return DeleteShareGroupOffsetsResponse(error_code=0, responses=tuple(responses))
