"""Metadata v0-13: describes the broker itself, and topics.

A missing topic is created if both the client (v4+; before that it always does) and the broker allow it.
v0: an empty list means every topic; v1+: null does. v10+: topic ids. v12+: clients may request topics by id; a request
with an id counts for its ids only, even if it also has names, and before v12 it is INVALID_REQUEST. v8+: authorized
operations, always all, because there is no authorizer; -2147483648 if the client did not request them.

Source: KafkaApis.scala (handleTopicMetadataRequest).
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS, INTERNAL, TopicLogs, UnservedTopic, check_name
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, InvalidRequest, LeaderNotAvailable, UnknownTopicId

BY_ID = 12
"""The first version in which clients request topics by id."""
NOT_ASKED = -(2**31)
_CREATED_AT_ONCE = 50
"""The most topics created by one request. Clients request the others again, as with topics that Kafka is creating."""
_TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS of AclOperation.java."""
_CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def handle(broker: BrokerCore, call: Call) -> MetadataResponse:
    request: MetadataRequest = call.message
    if call.header.api_version < BY_ID and any(_has_id(each) for each in request.topics or ()):
        return _refused(request)
    settings = broker.settings
    host, port = settings.address_for(call.session)
    operations = _TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=settings.node_id, host=host, port=port),),
        cluster_id=settings.cluster_id,
        controller_id=settings.node_id,
        topics=tuple(_topics(broker, request, call.header.api_version, operations)),
        cluster_authorized_operations=(
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _has_id(asked: MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != NO_UUID


def _refused(request: MetadataRequest) -> MetadataResponse:
    names = dict.fromkeys((each.name or "", each.topic_id) for each in request.topics or ())
    return MetadataResponse(
        brokers=(),
        topics=tuple(
            MetadataResponseTopic(error_code=InvalidRequest.code, name=name, topic_id=topic_id, partitions=())
            for name, topic_id in names
        ),
    )


def _asked(topics: Iterable[MetadataRequestTopic]) -> Iterable[tuple[str | None, UUID]]:
    """Return the names and ids in a request, each once; if there are ids, only the ids."""
    ids = dict.fromkeys(each.topic_id for each in topics if each.topic_id != NO_UUID)
    if ids:
        return [(None, each) for each in ids]
    return [(name, NO_UUID) for name in dict.fromkeys(each.name for each in topics)]


def _topics(
    broker: BrokerCore, request: MetadataRequest, version: int, operations: int
) -> Iterator[MetadataResponseTopic]:
    if request.topics is None or (version == 0 and not request.topics):
        for topic in broker.topics.by_name.values():
            yield _described(broker, topic, operations)
        for each in broker.topics.unserved.items():
            yield _leaderless(broker, *each, operations)
        return
    create = broker.settings.auto_create and request.allow_auto_topic_creation
    created = 0
    for name, topic_id in _asked(request.topics):
        if (left := _unserved(broker, name, topic_id)) is not None:
            yield _leaderless(broker, *left, operations)
            continue
        asked = MetadataRequestTopic(name=name, topic_id=topic_id)
        try:
            is_new = name is not None and name not in broker.topics.by_name
            if is_new and created == _CREATED_AT_ONCE:
                raise LeaderNotAvailable(f"{name} is created when its metadata is requested again")
            topic = _found(broker, asked, create)
            created += is_new
            yield _described(broker, topic, operations)
        except BrokerError as error:
            yield MetadataResponseTopic(
                error_code=error.code,
                name=asked.name if asked.name is not None or version >= BY_ID else "",
                topic_id=asked.topic_id,
                partitions=(),
                topic_authorized_operations=operations,
            )


def _found(broker: BrokerCore, asked: MetadataRequestTopic, create: bool) -> TopicLogs:
    if asked.name is None:
        if topic := broker.topics.by_id.get(asked.topic_id):
            return topic
        raise UnknownTopicId(str(asked.topic_id))
    if topic := broker.topics.by_name.get(asked.name):
        return topic
    check_name(asked.name)
    if create and asked.name in INTERNAL:
        return (broker.offsets_log if asked.name == CONSUMER_OFFSETS else broker.transactions_log).topic()
    if not create:
        raise broker.topics.missing(asked.name)
    return broker.create_topic(asked.name, broker.settings.default_partitions, {})


def _unserved(broker: BrokerCore, name: str | None, topic_id: UUID) -> tuple[str, UnservedTopic] | None:
    if name is None:
        return next((each for each in broker.topics.unserved.items() if each[1].topic_id == topic_id), None)
    unserved = broker.topics.unserved.get(name)
    return None if unserved is None else (name, unserved)


def _leaderless(broker: BrokerCore, name: str, topic: UnservedTopic, operations: int) -> MetadataResponseTopic:
    """Describe a topic like Apache Kafka does when its disk is offline: clients wait for a leader."""
    node = broker.settings.node_id
    return MetadataResponseTopic(
        error_code=0,
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=LeaderNotAvailable.code,
                partition_index=index,
                leader_id=-1,
                replica_nodes=(node,),
                isr_nodes=(node,),
                offline_replicas=(node,),
            )
            for index in range(topic.partitions)
        ),
        topic_authorized_operations=operations,
    )


def _described(broker: BrokerCore, topic: TopicLogs, operations: int) -> MetadataResponseTopic:
    node = broker.settings.node_id
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=node,
                leader_epoch=log.epochs.current,
                replica_nodes=(node,),
                isr_nodes=(node,),
            )
            for index, log in enumerate(topic.partitions)
        ),
        topic_authorized_operations=operations,
    )
