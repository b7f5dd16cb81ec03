"""Topics in mode `fan-out` as clients see them: with one partition, to which they can only write.

Rules:
- Metadata names partition 0 alone. Its leader is that of upstream's partition 0, or of another partition if this one is
  leaderless: the proxy takes the records on every port. The leader epochs of several partitions are unrelated, so the
  response has none.
- Metadata does not tell whether a producer or a consumer asks. So consumers see one partition, too. Upstream's
  partition 0 is another one, with some of the records: its offsets would be wrong answers about the topic.
- So a client that reads such a topic, or asks for its offsets, gets the error that brokers have for clients that may
  write but not read: TOPIC_AUTHORIZATION_FAILED. All clients pass this error on to their application.
- Members of groups are refused when they join. Otherwise a member could get partitions that its Metadata does not have,
  from another member or from upstream, and would read nothing without an error.
- Rules match names, so clients are not offered the versions of these requests that have topic ids instead.

Source: KafkaApis.scala (handleFetchRequest, handleOffsetCommitRequest), FetchCollector.java, FetchSessionHandler.java.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.codec.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.codec.apis.describe_topic_partitions import DescribeTopicPartitionsResponse
from ottla.codec.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.codec.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.codec.apis.metadata import MetadataResponseTopic
from ottla.codec.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.codec.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.codec.consumer_protocol import parse_subscription
from ottla.errors import DecodeError, NotLeaderOrFollower, TopicAuthorizationFailed
from ottla.proxy.clients.carried import (
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_RECORDS,
    FETCH,
    JOIN_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FOR_LEADER_EPOCH,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_HEARTBEAT,
    TXN_OFFSET_COMMIT,
)

FansOut = Callable[[str | None], bool]
"""Whether clients see one partition of the topic."""
REFUSED = TopicAuthorizationFailed.code
WHY = (
    "the proxy's rule for the topic has mode fan-out: clients can only write to it here; read it from the cluster "
    "itself, or through a proxy without this rule"
)


# -- what Metadata and DescribeTopicPartitions tell


def narrowed(topics: Iterable[MetadataResponseTopic], fans_out: FansOut) -> tuple[MetadataResponseTopic, ...]:
    """The topics of a Metadata response as clients see them."""
    return tuple(_with_one_partition(topic) if fans_out(topic.name) else topic for topic in topics)


def _with_one_partition(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    if not topic.partitions:
        return topic
    in_order = sorted(topic.partitions, key=lambda each: each.partition_index)
    seen = next((each for each in in_order if each.leader_id >= 0), in_order[0])
    return replace(topic, partitions=(replace(seen, partition_index=0, leader_epoch=-1),))


def narrowed_description(answer: DescribeTopicPartitionsResponse, fans_out: FansOut) -> DescribeTopicPartitionsResponse:
    """The response as clients see it; a page may begin behind the first partition of a topic."""
    return replace(
        answer,
        topics=tuple(
            replace(topic, partitions=tuple(each for each in topic.partitions if each.partition_index == 0))
            if fans_out(topic.name)
            else topic
            for topic in answer.topics
        ),
    )


# -- requests that name partitions: the other topics are passed on


class ByTopic(NamedTuple):
    """How to refuse topics of a request, and pass on the others.

    Attributes:
        response: the type of the response.
        refused: returns the part of the response about a topic that is refused.
    """

    response: type[Any]
    refused: Callable[[Any], Any]


def _refusing(topic: type[Any], partition: type[Any], **fields: int) -> Callable[[Any], Any]:
    """Returns a function that refuses all partitions of a topic, by these types of the response."""

    def refused(asked: Any) -> Any:
        refusals = (
            partition(partition_index=each.partition_index, error_code=REFUSED, **fields) for each in asked.partitions
        )
        return topic(name=asked.name, partitions=tuple(refusals))

    return refused


def _offset_for_leader_epoch(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=tuple(EpochEndOffset(partition=each.partition, error_code=REFUSED) for each in topic.partitions),
    )


BY_TOPIC: Mapping[int, ByTopic] = {
    LIST_OFFSETS: ByTopic(ListOffsetsResponse, _refusing(ListOffsetsTopicResponse, ListOffsetsPartitionResponse)),
    OFFSET_COMMIT: ByTopic(OffsetCommitResponse, _refusing(OffsetCommitResponseTopic, OffsetCommitResponsePartition)),
    DELETE_RECORDS: ByTopic(
        DeleteRecordsResponse, _refusing(DeleteRecordsTopicResult, DeleteRecordsPartitionResult, low_watermark=-1)
    ),
    OFFSET_FOR_LEADER_EPOCH: ByTopic(OffsetForLeaderEpochResponse, _offset_for_leader_epoch),
    TXN_OFFSET_COMMIT: ByTopic(
        TxnOffsetCommitResponse, _refusing(TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
    ),
}


def name_of(topic: Any) -> str:
    """The name of a topic in one of these requests."""
    name: str = topic.topic if isinstance(topic, OffsetForLeaderTopic) else topic.name
    return name


# -- requests that are refused as a whole


class Whole(NamedTuple):
    """How to refuse a request as a whole.

    Attributes:
        names: returns the topics that the request would read.
        refusal: returns the response.
    """

    names: Callable[[Any], Iterable[str]]
    refusal: Callable[[Any, FansOut], Any]


def _fetch(request: FetchRequest, fans_out: FansOut) -> FetchResponse:
    """Refuse a Fetch. A response that is passed on cannot get more partitions: it goes to the client unread.

    A fetch session would hide the refusal from the next request, so there is none. The client asks again for the other
    topics after it has looked up their leaders.
    """
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=each.partition,
                        error_code=REFUSED if fans_out(topic.topic) else NotLeaderOrFollower.code,
                        high_watermark=-1,
                        records=b"",
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _subscribed(request: JoinGroupRequest) -> Iterable[str]:
    """The topics to which a member of a classic group subscribes; other protocols than the consumers' have none."""
    if request.protocol_type != "consumer":
        return
    for protocol in request.protocols:
        try:
            yield from parse_subscription(protocol.metadata)[1].topics
        except DecodeError:  # the other members will refuse it
            continue


def _join_group(request: JoinGroupRequest, fans_out: FansOut) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=REFUSED, protocol_name="", leader="", member_id=request.member_id, members=())


def _consumer_heartbeat(request: ConsumerGroupHeartbeatRequest, fans_out: FansOut) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=REFUSED, error_message=WHY, member_id=request.member_id, member_epoch=0, heartbeat_interval_ms=0
    )


def _share_heartbeat(request: ShareGroupHeartbeatRequest, fans_out: FansOut) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=REFUSED, error_message=WHY, member_id=request.member_id, member_epoch=0, heartbeat_interval_ms=0
    )


def _sources(request: StreamsGroupHeartbeatRequest) -> Iterable[str]:
    if request.topology is not None:
        for each in request.topology.subtopologies:
            yield from each.source_topics


def _streams_heartbeat(request: StreamsGroupHeartbeatRequest, fans_out: FansOut) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        error_code=REFUSED,
        error_message=WHY,
        member_id=request.member_id,
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=None,
        endpoint_information_epoch=0,
    )


def _subscribes(request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest) -> Iterable[str]:
    return request.subscribed_topic_names or ()


WHOLE: Mapping[int, Whole] = {
    FETCH: Whole(lambda request: (topic.topic for topic in request.topics), _fetch),
    JOIN_GROUP: Whole(_subscribed, _join_group),
    CONSUMER_GROUP_HEARTBEAT: Whole(_subscribes, _consumer_heartbeat),
    SHARE_GROUP_HEARTBEAT: Whole(_subscribes, _share_heartbeat),
    STREAMS_GROUP_HEARTBEAT: Whole(_sources, _streams_heartbeat),
}
