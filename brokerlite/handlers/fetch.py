"""Fetch v4-18: returns batches from an offset on, after a wait if there are few.

v7+: sessions (KIP-227); each fetch of a session checks the client's rights again. v12+: if a consumer has read records
that the log no longer contains, the response has the diverging epoch and its end offset. v13+: topics by id. With
read_committed the response ends at the last stable offset, and lists the aborted transactions.

Source: ReplicaManager.java (readFromLog, fetchMessages), DelayedFetch.java.
"""

from typing import NamedTuple, cast
from uuid import UUID

from ottla.acl.rights import CLUSTER_ACTION, READ_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.requests.fetch_sessions import Answers, Fetch, PartitionToFetch
from ottla.brokerlite.machines.requests.waits import Wait
from ottla.codec.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.codec.wire import Buffer, Part
from ottla.errors import (
    BrokerError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

BY_ID = 13
"""The first version with topic ids instead of names."""
REPLICA_STATE_SINCE = 15
_READ_COMMITTED = 1


class _Read(NamedTuple):
    """Holds the result of one pass over the partitions."""

    answers: Answers
    logs: tuple[PartitionLog, ...]
    """The logs of the partitions that exist."""
    size: int
    """Bytes of records."""
    sizes: tuple[tuple[PartitionLog, int], ...]
    """The same for each log with records in the response."""
    final: bool
    """The response must not wait for more: it has an error or a divergence, or reads from an older segment."""


def handle(broker: BrokerCore, call: Call) -> FetchResponse | Wait:
    request: FetchRequest = call.message
    try:
        fetch = broker.fetch_sessions.begin(request, call.header.api_version >= BY_ID, call.now)
    except BrokerError as error:
        return FetchResponse(error_code=error.code, responses=())
    read = _read(broker, call, fetch)
    missing = request.min_bytes - read.size
    if read.final or missing <= 0 or request.max_wait_ms <= 0 or not read.logs:
        return _response(fetch, read)
    return Wait(
        min(call.now + request.max_wait_ms / 1000, call.session.session_ends_at),
        read.logs,
        missing,
        lambda: _response(fetch, _read(broker, call, fetch)),
        stable=request.isolation_level == _READ_COMMITTED,
    )


def _read(broker: BrokerCore, call: Call, fetch: Fetch) -> _Read:
    request: FetchRequest = call.message
    by_id = call.header.api_version >= BY_ID
    replica = request.replica_state.replica_id if call.header.api_version >= REPLICA_STATE_SINCE else request.replica_id
    follower = replica >= 0  # this broker has no followers
    is_broker = follower and broker.access.allows(call.session, CLUSTER_ACTION)
    limit = min(request.max_bytes, broker.settings.fetch_max_bytes)
    size, final = 0, False
    answers: list[tuple[PartitionToFetch, PartitionData]] = []
    logs: list[PartitionLog] = []
    sizes: list[tuple[PartitionLog, int]] = []
    for each in fetch.asked:
        asked = each.partition
        topic = broker.topics.by_id.get(each.topic_id) if by_id else broker.topics.by_name.get(each.topic)
        log = topic.partition(asked.partition) if topic else None
        try:
            if follower and not is_broker:
                raise TopicAuthorizationFailed
            if topic is None and by_id:
                raise UnknownTopicId
            if not follower:
                broker.access.require(call.session, READ_TOPIC, each.topic if topic is None else topic.name)
            if log is None:
                raise UnknownTopicOrPartition
            if follower:
                raise NotLeaderOrFollower
            logs.append(log)
            log.epochs.check(asked.current_leader_epoch)
            records: Part = b""
            diverging = log.divergence(asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is None:
                room = max(0, min(asked.partition_max_bytes, limit - size))
                stable = log.last_stable_offset if request.isolation_level == _READ_COMMITTED else None
                records = log.read(asked.fetch_offset, room, at_least_one=size == 0, up_to=stable)
                size += len(records)
                sizes.append((log, len(records)))
            final = final or diverging is not None or (bool(records) and not log.in_active_segment(asked.fetch_offset))
            answer = _data(asked, log, records, request.isolation_level, diverging)
        except BrokerError as error:
            final = True
            answer = PartitionData(
                partition_index=asked.partition,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )
        answers.append((each, answer))
    return _Read(answers, tuple(logs), size, tuple(sizes), final)


def _response(fetch: Fetch, read: _Read) -> FetchResponse:
    try:
        session_id, told = fetch.tell(read.answers)
    except BrokerError as error:
        return FetchResponse(error_code=error.code, responses=())
    for log, size in read.sizes:
        log.count_read(size)
    topics: dict[tuple[str, UUID], list[PartitionData]] = {}
    for asked, answer in told:
        topics.setdefault((asked.topic, asked.topic_id), []).append(answer)
    return FetchResponse(
        session_id=session_id,
        responses=tuple(
            FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=tuple(partitions))
            for (topic, topic_id), partitions in topics.items()
        ),
    )


def _data(
    asked: FetchPartition, log: PartitionLog, records: Part, isolation_level: int, diverging: tuple[int, int] | None
) -> PartitionData:
    epoch, end_offset = diverging or (-1, -1)  # none
    return PartitionData(
        partition_index=asked.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=_aborted(asked, log, records) if isolation_level == _READ_COMMITTED else None,
        records=cast(Buffer, records),  # the codec also accepts bytes that are still in the file
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
    )


def _aborted(asked: FetchPartition, log: PartitionLog, records: Part) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions that may have records among ``records``."""
    found = log.aborted(asked.fetch_offset, len(records)) if records else ()
    return tuple(AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in found)
