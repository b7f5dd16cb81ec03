"""DescribeShareGroupOffsets v0-1: the progress of share groups in their partitions (KIP-932).

v1: the lag (KIP-1226). Without topics, the response has every partition that the group reads, as far as the client may
describe its topic. If the first groups have many partitions, the other groups get COORDINATOR_LOAD_IN_PROGRESS.

Source: KafkaApis.scala (handleDescribeShareGroupOffsetsRequest), GroupCoordinatorService.java
(describeShareGroupOffsets).
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from ottla.acl.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from ottla.brokerlite.handlers.once import by_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.share_groups.share_group import ShareGroup
from ottla.brokerlite.machines.share_partitions.stored_state import UNDECIDED, ShareKey
from ottla.brokerlite.machines.topics.topics import TopicLogs
from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, CoordinatorLoadInProgress, TopicAuthorizationFailed

MOST_PARTITIONS = 200_000
"""The most partitions in a response; the client has to request the remaining groups again."""
_UNKNOWN = -1


def handle(broker: BrokerCore, call: Call) -> DescribeShareGroupOffsetsResponse:
    request: DescribeShareGroupOffsetsRequest = call.message
    groups, count = [], 0
    for asked in {each.group_id: each for each in request.groups}.values():
        try:
            if count > MOST_PARTITIONS:
                raise CoordinatorLoadInProgress("too many groups at once")
            broker.access.require(call.session, DESCRIBE_GROUP, asked.group_id)
            # As in Apache Kafka, a group that does not exist or is of another kind is no error: it reads nothing.
            group = broker.share_groups.by_id.get(asked.group_id) or ShareGroup(asked.group_id)
            topics = tuple(_topics(broker, call, group, asked))
        except BrokerError as error:
            groups.append(
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=asked.group_id, topics=(), error_code=error.code, error_message=error.detail or None
                )
            )
        else:
            count += sum(len(topic.partitions) for topic in topics)
            groups.append(DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=topics, error_code=0))
    return DescribeShareGroupOffsetsResponse(groups=tuple(groups))


def _topics(
    broker: BrokerCore, call: Call, group: ShareGroup, asked: DescribeShareGroupOffsetsRequestGroup
) -> Iterator[DescribeShareGroupOffsetsResponseTopic]:
    if asked.topics is None:
        for topic_id, known in group.initialized.items():
            topic = broker.topics.by_id.get(topic_id)
            if topic is not None and broker.access.shows(call.session, DESCRIBE_TOPIC, topic.name):
                yield _topic(broker, group, topic, sorted(known.partitions))
        return
    for name, indexes in by_name((each.topic_name, each.partitions) for each in asked.topics).items():
        if not broker.access.allows(call.session, DESCRIBE_TOPIC, name):
            denied = TopicAuthorizationFailed("not authorized")
            yield _topic_of(name, NO_UUID, (_partition(index, error=denied) for index in indexes))
        elif (topic := broker.topics.by_name.get(name)) is None:
            yield _topic_of(name, NO_UUID, map(_partition, indexes))  # as in Apache Kafka, no error
        else:
            yield _topic(broker, group, topic, indexes)


def _topic_of(
    name: str, topic_id: UUID, partitions: Iterable[DescribeShareGroupOffsetsResponsePartition]
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=tuple(partitions))


def _topic(
    broker: BrokerCore, group: ShareGroup, topic: TopicLogs, indexes: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    partitions = []
    for index in indexes:
        state = broker.share_states.get(ShareKey(group.group_id, topic.topic_id, index))
        log = topic.partition(index)
        if state is None or log is None or state.start_offset == UNDECIDED:
            partitions.append(_partition(index))
            continue
        lag = state.lag(log.high_watermark)
        partitions.append(_partition(index, state.start_offset, state.leader_epoch, _UNKNOWN if lag is None else lag))
    return _topic_of(topic.name, topic.topic_id, partitions)


def _partition(
    index: int, start: int = UNDECIDED, epoch: int = 0, lag: int = _UNKNOWN, error: BrokerError | None = None
) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=start,
        leader_epoch=epoch,
        lag=lag,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.detail or None,
    )
