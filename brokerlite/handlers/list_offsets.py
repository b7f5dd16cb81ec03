"""ListOffsets v1-11: finds the offset for a timestamp, or the start or end of the log.

v2+: with read_committed the search ends at the last stable offset. v4+: leader epochs. v7+: the record with the largest
timestamp (-3). v8+: the local log start (-4), which is the log start. v9+: the last tiered offset (-5), and v11+: the
earliest pending upload (-6); there is no tiered storage, so -1. A special timestamp in an earlier version is
UNSUPPORTED_VERSION. A partition that is listed twice gets one INVALID_REQUEST. Records are searched in threads.

Source: KafkaApis.scala and ReplicaManager.scala (handleListOffsetsRequest, fetchOffset).
"""

from collections import Counter
from collections.abc import Generator
from functools import partial

from ottla.acl.rights import DESCRIBE_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.requests.request_work import WorkFirst
from ottla.codec.apis.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    DecodeError,
    FencedLeaderEpoch,
    InvalidRequest,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)

READ_COMMITTED = 1
EPOCHS_SINCE = 4
"""The first version with leader epochs."""
_NO_EPOCH = -1
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_ENDS = {LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD}
"""Answered without reading records."""
_BATCH = 2**20
"""Approximate bytes of the batch that a search holds in memory."""
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(broker: BrokerCore, call: Call) -> WorkFirst:
    request: ListOffsetsRequest = call.message
    searches = any(each.timestamp not in _ENDS for topic in request.topics for each in topic.partitions)
    return WorkFirst(_answers(broker, call), partial(_refused, request), _BATCH if searches else 0)


def _answers(broker: BrokerCore, call: Call) -> Generator[Work, None, ListOffsetsResponse]:
    request: ListOffsetsRequest = call.message
    named = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        denied = broker.access.refusal(call.session, DESCRIBE_TOPIC, topic.name)
        for each in topic.partitions:
            of_topic = answers.setdefault(topic.name, {})
            if denied is not None:
                of_topic[each.partition_index] = _error(each.partition_index, denied.code)
            elif each.partition_index not in of_topic:
                twice = named[topic.name, each.partition_index] > 1
                of_topic[each.partition_index] = yield from _answer(broker, call, topic.name, each, twice)
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(name=name, partitions=tuple(partitions.values()))
            for name, partitions in answers.items()
        )
    )


def _refused(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return a retriable error for all partitions, because too many searches are waiting."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_error(each.partition_index, LeaderNotAvailable.code) for each in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _error(partition: int, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=code)


def _answer(
    broker: BrokerCore, call: Call, name: str, asked: ListOffsetsPartition, twice: bool
) -> Generator[Work, None, ListOffsetsPartitionResponse]:
    try:
        if twice:
            raise InvalidRequest("the partition is listed twice")
        if (log := broker.topics.partition(name, asked.partition_index)) is None:
            raise UnknownTopicOrPartition
        if asked.current_leader_epoch < _NO_EPOCH:
            raise FencedLeaderEpoch
        log.epochs.check(asked.current_leader_epoch)
        if asked.timestamp < 0 and call.header.api_version < _SINCE.get(asked.timestamp, 2**15):
            raise UnsupportedVersion
        stable = call.message.isolation_level == READ_COMMITTED
        timestamp, offset = yield from _find(log, asked.timestamp, stable)
    except BrokerError as error:
        return _error(asked.partition_index, error.code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=log.epochs.at(offset) if offset >= 0 and call.header.api_version >= EPOCHS_SINCE else -1,
    )


def _find(log: PartitionLog, timestamp: int, stable: bool) -> Generator[Work, None, tuple[int, int]]:
    """Return the (timestamp, offset) to answer; -1 means none.

    Args:
        stable: only look before the last stable offset.
    """
    end = log.last_stable_offset if stable else log.high_watermark
    if timestamp == LATEST:
        return -1, end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    try:
        record = yield from log.of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.first_at(timestamp)
    except DecodeError as error:
        raise CorruptMessage(f"a stored batch of {log.name} cannot be read: {error}") from None
    return (record.timestamp, record.offset) if record and record.offset < end else (-1, -1)
