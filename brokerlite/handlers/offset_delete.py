"""OffsetDelete v0: deletes a group's offsets of some partitions.

Offsets of topics that a member subscribes to are kept. A partition without an offset is no error; one that does not
exist is an error.

Source: KafkaApis.scala (handleOffsetDeleteRequest), OffsetMetadataManager.java (deleteOffsets).
"""

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.errors import BrokerError, GroupSubscribedToTopic, InvalidGroupId, UnknownTopicOrPartition


def handle(broker: BrokerCore, call: Call) -> OffsetDeleteResponse:
    request: OffsetDeleteRequest = call.message
    named = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = [place for place in named if broker.topics.partition(*place) is not None]
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id must not be empty")
        forgotten = broker.offsets.delete(request.group_id, known)
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=())
    errors = {place: 0 if free else GroupSubscribedToTopic.code for place, free in forgotten.items()}
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
