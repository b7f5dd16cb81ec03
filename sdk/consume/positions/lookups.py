"""Builds and reads the fetcher's ListOffsets and OffsetForLeaderEpoch requests.

Rules:
- A request is built once its version is known. For a timestamp, ListOffsets v0 (Kafka 0.10.0) returns the start of a
  segment, which is at or before the record in question.
- Consumers may send OffsetForLeaderEpoch from version 3 on; older brokers allow it to followers only.

Source: OffsetFetcherUtils.java, OffsetsForLeaderEpochUtils.java.
"""

from collections.abc import Mapping

from ottla.codec.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from ottla.codec.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.requests import CONSUMER


def offset_in(answer: ListOffsetsPartitionResponse) -> int:
    """The offset in a response of any version; -1: there is none."""
    return answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset


def ends_of_epochs(wanted: Mapping[TopicPartition, tuple[int, int]]) -> OffsetForLeaderEpochRequest:
    """The request for ``{(topic, partition): (epoch, leader epoch)}``."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, partition), (epoch, leader_epoch) in wanted.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderPartition(partition=partition, current_leader_epoch=leader_epoch, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=tuple(OffsetForLeaderTopic(topic=name, partitions=tuple(each)) for name, each in topics.items()),
    )


def by_place(
    answer: ListOffsetsResponse | OffsetForLeaderEpochResponse,
) -> Mapping[TopicPartition, ListOffsetsPartitionResponse | EpochEndOffset]:
    """The results of a response, by partition."""
    if isinstance(answer, ListOffsetsResponse):
        return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
    return {(topic.topic, each.partition): each for topic in answer.topics for each in topic.partitions}
