"""OffsetDelete v0: deletes a group's offsets of some partitions.

Offsets of topics that a member subscribes to are kept. A partition without an offset is no error; one that does not
exist is an error.

Source: KafkaApis.scala (handleOffsetDeleteRequest), OffsetMetadataManager.java (deleteOffsets).
"""

from ottla.acl.rights import DELETE_GROUP, READ_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.errors import (
    BrokerError,
    GroupSubscribedToTopic,
    InvalidGroupId,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)


def handle(broker: BrokerCore, call: Call) -> OffsetDeleteResponse:
    request: OffsetDeleteRequest = call.message
    try:
        broker.access.require(call.session, DELETE_GROUP, request.group_id)
        if not request.group_id:
            raise InvalidGroupId("the group id must not be empty")
        errors = {
            (topic.name, each.partition_index): TopicAuthorizationFailed.code
            for topic in request.topics
            if not broker.access.allows(call.session, READ_TOPIC, topic.name)
            for each in topic.partitions
        }
        named = ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
        known = [place for place in named if place not in errors and broker.topics.partition(*place) is not None]
        forgotten = broker.offsets.delete(request.group_id, known)
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=())
    errors |= {place: 0 if free else GroupSubscribedToTopic.code for place, free in forgotten.items()}
    return OffsetDeleteResponse(
        error_code=0,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors.get((topic.name, each.partition_index), UnknownTopicOrPartition.code),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
