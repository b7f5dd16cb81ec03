"""Requests that name topics.

Source: KafkaApis.scala, ControllerApis.scala (deleteTopics, createTopics, createPartitions).
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from ottla.acl.rights import (
    ALTER_TOPIC,
    CLUSTER_ACTION,
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DELETE_ON_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_TOPIC,
)
from ottla.codec.apis.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.codec.apis.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsResponse
from ottla.codec.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.codec.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from ottla.codec.apis.describe_producers import DescribeProducersResponse, PartitionResponse, TopicResponse
from ottla.codec.apis.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from ottla.codec.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import InvalidRequest, InvalidTopic, TopicAuthorizationFailed
from ottla.proxy.clients.access.screening import PASS, Asked, Verdict, without_denied
from ottla.proxy.topic_rule import LEGAL_NAME

_STATES_SINCE = 6
"""The first version of DeleteTopics with ids."""


def list_offsets(asked: Asked) -> Verdict:
    def refused(topic: Any, code: int) -> Any:
        partitions = (
            ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        )
        return ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions))

    return without_denied(
        asked, "topics", ListOffsetsResponse, "topics", lambda each: asked.refusal(DESCRIBE_TOPIC, each.name), refused
    )


def offset_for_leader_epoch(asked: Asked) -> Verdict:
    if asked.shows(CLUSTER_ACTION):
        return PASS

    def refused(topic: Any, code: int) -> Any:
        partitions = (EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions)
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions))

    return without_denied(
        asked,
        "topics",
        OffsetForLeaderEpochResponse,
        "topics",
        lambda each: asked.refusal(DESCRIBE_TOPIC, each.topic),
        refused,
    )


def delete_records(asked: Asked) -> Verdict:
    def refused(topic: Any, code: int) -> Any:
        partitions = (
            DeleteRecordsPartitionResult(partition_index=each.partition_index, low_watermark=-1, error_code=code)
            for each in topic.partitions
        )
        return DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions))

    return without_denied(
        asked, "topics", DeleteRecordsResponse, "topics", lambda each: asked.refusal(DELETE_TOPIC, each.name), refused
    )


def describe_producers(asked: Asked) -> Verdict:
    def refused(topic: Any, code: int) -> Any:
        partitions = (
            PartitionResponse(
                partition_index=index,
                error_code=code,
                error_message=asked.denial(READ_TOPIC, topic.name, code=code),
                active_producers=(),
            )
            for index in topic.partition_indexes
        )
        return TopicResponse(name=topic.name, partitions=tuple(partitions))

    def code_of(topic: Any) -> int:
        return asked.refusal(READ_TOPIC, topic.name) if LEGAL_NAME.fullmatch(topic.name) else InvalidTopic.code

    return without_denied(asked, "topics", DescribeProducersResponse, "topics", code_of, refused)


def create_partitions(asked: Asked) -> Verdict:
    return without_denied(
        asked,
        "topics",
        CreatePartitionsResponse,
        "results",
        lambda each: asked.refusal(ALTER_TOPIC, each.name),
        lambda topic, code: CreatePartitionsTopicResult(
            name=topic.name, error_code=code, error_message=asked.denial(ALTER_TOPIC, topic.name, code=code)
        ),
    )


def create_topics(asked: Asked) -> Verdict:
    """Check Create, and hide the configuration of new topics from clients without DescribeConfigs."""
    may_all = asked.shows(CREATE_ON_CLUSTER)
    named = Counter(each.name for each in asked.message.topics)

    def code_of(topic: CreatableTopic) -> int:
        if may_all:
            return 0
        return InvalidRequest.code if named[topic.name] > 1 else asked.refusal(CREATE_TOPIC, topic.name)

    verdict = without_denied(
        asked,
        "topics",
        CreateTopicsResponse,
        "topics",
        code_of,
        lambda topic, code: CreatableTopicResult(
            name=topic.name,
            error_code=code,
            error_message=asked.denial(CREATE_TOPIC, topic.name, code=code),
            configs=None,
        ),
    )
    hidden = {each.name for each in asked.message.topics if not asked.shows(DESCRIBE_TOPIC_CONFIGS, each.name)}
    if verdict.answer is not None or not hidden:
        return verdict
    change = verdict.change

    def hiding(response: CreateTopicsResponse) -> CreateTopicsResponse:
        topics = tuple(_without_configs(each) if each.name in hidden else each for each in response.topics)
        shown = replace(response, topics=topics)
        return shown if change is None else change(shown)

    return verdict._replace(change=hiding)


def _without_configs(result: CreatableTopicResult) -> CreatableTopicResult:
    if result.error_code:
        return result
    return replace(
        result,
        topic_config_error_code=TopicAuthorizationFailed.code,
        num_partitions=-1,
        replication_factor=-1,
        configs=None,
    )


def delete_topics(asked: Asked) -> Verdict:
    """Check Delete; a topic that is named by its id, and may not be described, stays without its name."""
    if asked.shows(DELETE_ON_CLUSTER):
        return PASS
    if asked.version < _STATES_SINCE:
        return without_denied(
            asked,
            "topic_names",
            DeleteTopicsResponse,
            "responses",
            lambda name: _refusal_to_delete(asked, name),
            lambda name, code: DeletableTopicResult(
                name=name, error_code=code, error_message=_denial_of_deleting(asked, name, code)
            ),
        )

    def code_of(topic: DeleteTopicState) -> int:
        if (topic.name is None) == (topic.topic_id == NO_UUID):
            return InvalidRequest.code  # a topic has either its name or its id
        if topic.name is not None:
            return _refusal_to_delete(asked, topic.name)
        return asked.refusal_of_topic(DELETE_TOPIC, None, topic.topic_id)

    def refused(topic: DeleteTopicState, code: int) -> DeletableTopicResult:
        known = asked.names.get(topic.topic_id)
        shown = known if known is not None and asked.shows(DESCRIBE_TOPIC, known) else topic.name
        message = None if shown is None else _denial_of_deleting(asked, shown, code)
        return DeletableTopicResult(name=shown, topic_id=topic.topic_id, error_code=code, error_message=message)

    return without_denied(asked, "topics", DeleteTopicsResponse, "responses", code_of, refused)


def _denial_of_deleting(asked: Asked, name: str, code: int) -> str | None:
    missing = DELETE_TOPIC if asked.shows(DESCRIBE_TOPIC, name) else DESCRIBE_TOPIC
    return asked.denial(missing, name, code=code)


def _refusal_to_delete(asked: Asked, name: str) -> int:
    for right in (DESCRIBE_TOPIC, DELETE_TOPIC):
        if code := asked.refusal(right, name):
            return code
    return 0
