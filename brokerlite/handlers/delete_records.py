"""DeleteRecords v0-2: move the start offset of partitions; what lies before it is gone.

An offset of -1 is the high watermark: everything goes. v2: flexible. With one replica the low watermark is the start
offset.

Source: KafkaApis.scala (handleDeleteRecordsRequest), Partition.scala (deleteRecordsOnLeader).
"""

import logging

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics import INTERNAL, Topic
from ottla.codec.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from ottla.errors import BrokerError, InvalidTopic, UnknownTopicOrPartition

log = logging.getLogger("ottla.brokerlite")

_NO_LOW_WATERMARK = -1


def handle(broker: BrokerCore, call: Call) -> DeleteRecordsResponse:
    request: DeleteRecordsRequest = call.message
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=asked.name,
                partitions=tuple(_delete(broker, asked, each) for each in asked.partitions),
            )
            for asked in request.topics
        )
    )


def _delete(
    broker: BrokerCore, asked: DeleteRecordsTopic, partition: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    low_watermark, error_code = _NO_LOW_WATERMARK, 0
    try:
        topic: Topic | None = broker.topics.by_name.get(asked.name)
        known = topic.partition(partition.partition_index) if topic is not None else None
        if known is None:
            raise UnknownTopicOrPartition(f"there is no partition {partition.partition_index} of {asked.name}")
        if asked.name in INTERNAL:
            raise InvalidTopic(f"{asked.name} is the broker's own")
        low_watermark = known.delete_records(partition.offset)
    except BrokerError as error:  # the answer has no room for its text
        log.info("records are not deleted: %s", error, extra={"topic": asked.name})
        error_code = error.code
    return DeleteRecordsPartitionResult(
        partition_index=partition.partition_index, low_watermark=low_watermark, error_code=error_code
    )
