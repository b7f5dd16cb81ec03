"""Fetch v4-18: batches from an offset on, waiting a while if there is little to read.

Every fetch is answered without a session (id 0, KIP-227 allows it), so each one names all its partitions. v13+: topics
by id. read_committed equals read_uncommitted, because there are no transactions yet.

Source: ReplicaManager.java (readFromLog, fetchMessages), DelayedFetch.java, FetchSession.java.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.brokerlite.machines.core import BrokerCore, Call, Wait
from ottla.brokerlite.machines.log import LEADER_EPOCH, PartitionLog
from ottla.codec.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.errors import (
    BrokerError,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

BY_ID = 13
"""The version from which topics are named by id."""
_FULL_FETCH_EPOCHS = (0, -1)
"""Session epochs that ask for everything: a new session, and none."""
_READ_COMMITTED = 1


class _Read(NamedTuple):
    """What one pass over the partitions gave."""

    response: FetchResponse
    size: int
    """Bytes of records."""
    final: bool
    """Waiting would not add to it: there is an error, or an older segment ends here."""


def handle(broker: BrokerCore, call: Call) -> FetchResponse | Wait:
    request: FetchRequest = call.message
    if request.session_id != 0 or request.session_epoch not in _FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=FetchSessionIdNotFound.code, responses=())
    read = _read(broker, call)
    missing = request.min_bytes - read.size
    logs = tuple(log for _, _, log in _partitions(broker, call) if log is not None)
    if read.final or missing <= 0 or request.max_wait_ms <= 0 or not logs:
        return read.response
    return Wait(call.now + request.max_wait_ms / 1000, logs, missing, lambda: _read(broker, call).response)


def _partitions(broker: BrokerCore, call: Call) -> Iterator[tuple[FetchTopic, FetchPartition, PartitionLog | None]]:
    by_id = call.header.api_version >= BY_ID
    for topic in call.message.topics:
        found = broker.topics.by_id.get(topic.topic_id) if by_id else broker.topics.by_name.get(topic.topic)
        for partition in topic.partitions:
            yield topic, partition, found.partition(partition.partition) if found else None


def _read(broker: BrokerCore, call: Call) -> _Read:
    request: FetchRequest = call.message
    limit = min(request.max_bytes, broker.settings.fetch_max_bytes)
    size, final = 0, False
    answers: dict[int, list[PartitionData]] = {id(topic): [] for topic in request.topics}
    for topic, asked, log in _partitions(broker, call):
        try:
            if log is None:
                raise UnknownTopicId if call.header.api_version >= BY_ID else UnknownTopicOrPartition
            _check_epoch(asked.current_leader_epoch)
            room = max(0, min(asked.partition_max_bytes, limit - size))
            records = log.read(asked.fetch_offset, room, at_least_one=size == 0)
            size += len(records)
            final = final or (bool(records) and not log.in_active_segment(asked.fetch_offset))
            answers[id(topic)].append(_data(asked, log, records, request.isolation_level))
        except BrokerError as error:
            final = True
            answers[id(topic)].append(
                PartitionData(partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b"")
            )
    responses = tuple(
        FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(answers[id(topic)]))
        for topic in request.topics
    )
    return _Read(FetchResponse(responses=responses), size, final)


def _data(asked: FetchPartition, log: PartitionLog, records: bytes, isolation_level: int) -> PartitionData:
    return PartitionData(
        partition_index=asked.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=() if isolation_level == _READ_COMMITTED else None,
        records=records,
    )


def _check_epoch(epoch: int) -> None:
    if epoch > LEADER_EPOCH:
        raise UnknownLeaderEpoch(f"leader epoch {epoch}; this broker's is {LEADER_EPOCH}")
    if -1 < epoch < LEADER_EPOCH:
        raise FencedLeaderEpoch(f"leader epoch {epoch}; this broker's is {LEADER_EPOCH}")
