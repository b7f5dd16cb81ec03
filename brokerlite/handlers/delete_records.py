"""DeleteRecords v0-2: moves the start offset of partitions, and thereby deletes the records before it.

An offset of -1 is the high watermark: all records are deleted. v2: flexible. With one replica the low watermark is the
start offset. The response is sent when the new start offsets are on disk; if the disk refuses them, it has an error and
the start offsets that apply.

Source: KafkaApis.scala (handleDeleteRecordsRequest), Partition.scala (deleteRecordsOnLeader).
"""

import logging
from collections.abc import Mapping

from ottla.acl.rights import DELETE_TOPIC
from ottla.brokerlite.handlers.once import by_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.requests.waits import Later
from ottla.brokerlite.machines.topics.topics import INTERNAL, TopicPartition
from ottla.codec.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.errors import BrokerError, InvalidTopic, KafkaStorageError, UnknownTopicOrPartition

log = logging.getLogger("ottla.brokerlite")

_NO_LOW_WATERMARK = -1


def handle(broker: BrokerCore, call: Call) -> DeleteRecordsResponse | Later:
    request: DeleteRecordsRequest = call.message
    results: dict[TopicPartition, tuple[int, int]] = {}
    """Holds low watermark and error code of a partition."""
    starts: dict[TopicPartition, int] = {}
    refused, first = 0, ""
    asked = {(topic.name, each.partition_index): each.offset for topic in request.topics for each in topic.partitions}
    for place, offset in asked.items():
        try:
            broker.access.require(call.session, DELETE_TOPIC, place[0])
            partition = _partition(broker, place)
            start = partition.start_without(offset)
        except BrokerError as error:
            refused, first = refused + 1, first or str(error)
            results[place] = _NO_LOW_WATERMARK, error.code
            continue
        results[place] = start, 0
        if start > partition.start_offset:
            starts[place] = start
    if refused:  # the response has no field for messages; 10,000 log lines would take a second
        log.info("records not deleted: %s%s", first, f", and {refused - 1} more" if refused > 1 else "")
    if not starts:
        return _response(results)
    later = Later()

    def deleted(trouble: OSError | None) -> None:
        if trouble is not None:
            log.error("records not deleted: the disk refused: %s", trouble)
            results.update((place, (_low_watermark(broker, place), KafkaStorageError.code)) for place in starts)
        later.give(_response(results))

    broker.set_start_offsets(starts, deleted)
    return later


def _low_watermark(broker: BrokerCore, place: TopicPartition) -> int:
    """Return the current start offset: on a full disk, whole segments may have been removed despite the error."""
    partition = broker.topics.partition(*place)
    return _NO_LOW_WATERMARK if partition is None else partition.start_offset


def _partition(broker: BrokerCore, place: TopicPartition) -> PartitionLog:
    if place[0] in INTERNAL:
        raise InvalidTopic(f"{place[0]} is an internal topic")
    partition = broker.topics.partition(*place)
    if partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {place[1]} of {place[0]}")
    return partition


def _response(results: Mapping[TopicPartition, tuple[int, int]]) -> DeleteRecordsResponse:
    topics = by_name((name, (index,)) for name, index in results)
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=name, partitions=tuple(_result(index, *results[name, index]) for index in indexes)
            )
            for name, indexes in topics.items()
        )
    )


def _result(index: int, low_watermark: int, error_code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error_code)
