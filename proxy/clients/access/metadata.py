"""Metadata, FindCoordinator and DescribeCluster: the first requests of clients.

Rules:
- A list of all topics leaves out topics that the client may not describe.
- A missing topic is created only if the client may create each of the topics that it names: the request has one flag
  for all of them. Otherwise the missing ones have the error that Kafka gives for a missing right to create.

Source: KafkaApis.scala (handleTopicMetadataRequest, handleFindCoordinatorRequest, handleDescribeCluster).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.acl.rights import (
    CLUSTER_ACTION,
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
)
from ottla.codec.apis.create_acls import ResourceType
from ottla.codec.apis.describe_cluster import DescribeClusterResponse
from ottla.codec.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import InvalidRequest, TopicAuthorizationFailed, UnknownTopicOrPartition
from ottla.proxy.clients.access.screening import PASS, Asked, Verdict, adding, sorted_out

_BY_ID = 12
"""The first version of Metadata in which clients name topics by id."""
_MANY_KEYS_SINCE = 4
"""The first version of FindCoordinator with many keys."""
_KEY_RIGHTS: Mapping[int, Any] = {0: DESCRIBE_GROUP, 1: DESCRIBE_TRANSACTIONAL_ID}
_SHARE = 2
"""The type of keys that only brokers use."""
_NOT_ASKED = -(2**31)


def metadata(asked: Asked) -> Verdict:
    request: MetadataRequest = asked.message
    if request.topics is None:
        return Verdict(change=lambda answer: _with_operations(asked, _listed(asked, answer)))
    kept, denied = sorted_out(request.topics, lambda each: _refusal(asked, each))
    missing = () if not request.allow_auto_topic_creation else _not_to_create(asked, kept)
    wants_operations = request.include_cluster_authorized_operations or request.include_topic_authorized_operations
    if not (denied or missing or wants_operations):
        return PASS
    rest = None
    if denied or missing:
        allowed = request.allow_auto_topic_creation and not missing
        rest = replace(request, topics=kept, allow_auto_topic_creation=allowed)
    results = tuple(_hidden(asked, *each) for each in denied)

    def change(answer: MetadataResponse) -> MetadataResponse:
        topics = (_not_created(each) if each.name in missing else each for each in answer.topics)
        shown = _with_operations(asked, replace(answer, topics=tuple(topics)))
        return replace(shown, topics=(*shown.topics, *results))

    return Verdict(request=rest, change=change)


def _refusal(asked: Asked, topic: MetadataRequestTopic) -> int:
    if asked.version < _BY_ID and (topic.name is None or topic.topic_id != NO_UUID):
        return InvalidRequest.code
    return asked.refusal_of_topic(DESCRIBE_TOPIC, topic.name, topic.topic_id)


def _not_to_create(asked: Asked, topics: tuple[MetadataRequestTopic, ...]) -> tuple[str, ...]:
    """The names of topics that the client may not create."""
    if asked.shows(CREATE_ON_CLUSTER):
        return ()
    names = (each.name for each in topics if each.name is not None and each.topic_id == NO_UUID)
    return tuple(name for name in names if not asked.shows(CREATE_TOPIC, name))


def _not_created(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    missing = topic.error_code == UnknownTopicOrPartition.code
    return replace(topic, error_code=TopicAuthorizationFailed.code) if missing else topic


def _hidden(asked: Asked, topic: MetadataRequestTopic, code: int) -> MetadataResponseTopic:
    name = topic.name if topic.topic_id == NO_UUID else None
    return MetadataResponseTopic(
        error_code=code,
        name=name or "" if asked.version < _BY_ID else name,
        topic_id=topic.topic_id,
        partitions=(),
    )


def _listed(asked: Asked, answer: MetadataResponse) -> MetadataResponse:
    topics = (each for each in answer.topics if each.name is not None and asked.shows(DESCRIBE_TOPIC, each.name))
    return replace(answer, topics=tuple(topics))


def _with_operations(asked: Asked, answer: MetadataResponse) -> MetadataResponse:
    """Show the operations that the client may do, and not the operations of the proxy's user."""
    request: MetadataRequest = asked.message
    if request.include_topic_authorized_operations:
        topics = (
            replace(
                each,
                topic_authorized_operations=_NOT_ASKED
                if each.name is None or each.error_code == TopicAuthorizationFailed.code
                else asked.access.operations(asked.client, ResourceType.TOPIC, each.name),
            )
            for each in answer.topics
        )
        answer = replace(answer, topics=tuple(topics))
    if request.include_cluster_authorized_operations:
        answer = replace(answer, cluster_authorized_operations=_of_cluster(asked))
    return answer


def _of_cluster(asked: Asked) -> int:
    return asked.access.operations(asked.client, ResourceType.CLUSTER, needs=DESCRIBE_CLUSTER)


def describe_cluster(asked: Asked) -> Verdict:
    if not asked.message.include_cluster_authorized_operations:
        return PASS

    def change(answer: DescribeClusterResponse) -> DescribeClusterResponse:
        return answer if answer.error_code else replace(answer, cluster_authorized_operations=_of_cluster(asked))

    return Verdict(change=change)


def find_coordinator(asked: Asked) -> Verdict:
    request: FindCoordinatorRequest = asked.message

    def code_of(key: str) -> int:
        if request.key_type == _SHARE:
            return asked.refusal(CLUSTER_ACTION)
        right = _KEY_RIGHTS.get(request.key_type)
        return InvalidRequest.code if right is None else asked.refusal(right, key)

    def denial(key: str, code: int) -> str | None:
        if request.key_type == _SHARE:
            return asked.denial(CLUSTER_ACTION, code=code)
        right = _KEY_RIGHTS.get(request.key_type)
        return None if right is None else asked.denial(right, key, code=code)

    if asked.version < _MANY_KEYS_SINCE:
        code = code_of(request.key)
        if not code:
            return PASS
        return Verdict(
            answer=FindCoordinatorResponse(
                error_code=code, error_message=denial(request.key, code), node_id=-1, host="", port=-1
            )
        )
    kept, denied = sorted_out(request.coordinator_keys, code_of)
    if not denied:
        return PASS
    results = tuple(
        Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=denial(key, code))
        for key, code in denied
    )
    if not kept:
        return Verdict(answer=FindCoordinatorResponse(coordinators=results))
    return Verdict(request=replace(request, coordinator_keys=kept), change=adding("coordinators", results))
