"""OffsetForLeaderEpoch v2-4: returns the end offset of a leader epoch.

A consumer compares it with its position in that epoch (KIP-320). v3+: the request has a replica id.

Source: Partition.scala (lastOffsetForLeaderEpoch), LeaderEpochFileCache.java (endOffsetFor).
"""

from ottla.acl.rights import CLUSTER_ACTION, DESCRIBE_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.errors import BrokerError, UnknownTopicOrPartition


def handle(broker: BrokerCore, call: Call) -> OffsetForLeaderEpochResponse:
    request: OffsetForLeaderEpochRequest = call.message
    is_broker = broker.access.shows(call.session, CLUSTER_ACTION)
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(topic=each.topic, partitions=_ends(broker, call, each, is_broker))
            for each in request.topics
        )
    )


def _ends(broker: BrokerCore, call: Call, topic: OffsetForLeaderTopic, is_broker: bool) -> tuple[EpochEndOffset, ...]:
    denied = None if is_broker else broker.access.refusal(call.session, DESCRIBE_TOPIC, topic.topic)
    if denied is not None:
        return tuple(EpochEndOffset(error_code=denied.code, partition=each.partition) for each in topic.partitions)
    return tuple(_end(broker, topic.topic, each) for each in topic.partitions)


def _end(broker: BrokerCore, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        if (log := broker.topics.partition(name, asked.partition)) is None:
            raise UnknownTopicOrPartition
        log.epochs.check(asked.current_leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end_offset = log.epochs.end_of(asked.leader_epoch, log.end_offset)
    return EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
