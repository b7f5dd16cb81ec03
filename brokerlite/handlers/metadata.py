"""Metadata v0-13: describes the broker itself, and topics.

A missing topic is created if both the client (v4+; before that it always does) and the broker allow it.
v0: an empty list means every topic; v1+: null does. v10+: topic ids. v12+: clients may request topics by id; a request
with an id counts for its ids only, even if it also has names, and before v12 it is INVALID_REQUEST. v8+: authorized
operations; -2147483648 if the client did not request them. A list of all topics leaves out topics
that the client may not describe.

Source: KafkaApis.scala (handleTopicMetadataRequest).
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from ottla.acl.rights import CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import (
    CONSUMER_OFFSETS,
    INTERNAL,
    TRANSACTION_STATE,
    TopicLogs,
    UnservedTopic,
    check_name,
)
from ottla.codec.apis.create_acls import ResourceType
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, InvalidRequest, LeaderNotAvailable, TopicAuthorizationFailed, UnknownTopicId

BY_ID = 12
"""The first version in which clients request topics by id."""
NOT_ASKED = -(2**31)
_CREATED_AT_ONCE = 50
"""The most topics created by one request. Clients request the others again, as with topics that Kafka is creating."""


def handle(broker: BrokerCore, call: Call) -> MetadataResponse:
    request: MetadataRequest = call.message
    if call.header.api_version < BY_ID and any(_has_id(each) for each in request.topics or ()):
        return _refused(request)
    settings = broker.settings
    host, port = settings.address_for(call.session)
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=settings.node_id, host=host, port=port),),
        cluster_id=settings.cluster_id,
        controller_id=settings.node_id,
        topics=tuple(_topics(broker, call)),
        cluster_authorized_operations=(
            broker.access.operations(call.session, ResourceType.CLUSTER, needs=DESCRIBE_CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def _operations(broker: BrokerCore, call: Call, name: str) -> int:
    if not call.message.include_topic_authorized_operations:
        return NOT_ASKED
    return broker.access.operations(call.session, ResourceType.TOPIC, name)


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


def _topics(broker: BrokerCore, call: Call) -> Iterator[MetadataResponseTopic]:
    request: MetadataRequest = call.message
    if request.topics is None or (call.header.api_version == 0 and not request.topics):
        for topic in broker.topics.by_name.values():
            if broker.access.shows(call.session, DESCRIBE_TOPIC, topic.name):
                yield _described(broker, call, topic)
        for left, unserved in broker.topics.unserved.items():
            if broker.access.shows(call.session, DESCRIBE_TOPIC, left):
                yield _leaderless(broker, call, left, unserved)
        return
    created = 0
    for name, topic_id in _asked(request.topics):
        asked = MetadataRequestTopic(name=name, topic_id=topic_id)
        try:
            known = name if name is not None else _name_of(broker, topic_id)
            broker.access.require(call.session, DESCRIBE_TOPIC, known)
            if known in broker.topics.unserved:
                yield _leaderless(broker, call, known, broker.topics.unserved[known])
                continue
            is_new = known not in broker.topics.by_name
            if is_new and created == _CREATED_AT_ONCE:
                raise LeaderNotAvailable(f"{name} is created when its metadata is requested again")
            topic = _found(broker, call, known)
            created += is_new
            yield _described(broker, call, topic)
        except BrokerError as error:
            yield _failed(broker, call, asked, error)


def _failed(broker: BrokerCore, call: Call, asked: MetadataRequestTopic, error: BrokerError) -> MetadataResponseTopic:
    hidden = asked.name is None or isinstance(error, TopicAuthorizationFailed)
    return MetadataResponseTopic(
        error_code=error.code,
        name=asked.name if asked.name is not None or call.header.api_version >= BY_ID else "",
        topic_id=asked.topic_id,
        partitions=(),
        topic_authorized_operations=NOT_ASKED if hidden else _operations(broker, call, asked.name or ""),
    )


def _name_of(broker: BrokerCore, topic_id: UUID) -> str:
    if topic := broker.topics.by_id.get(topic_id):
        return topic.name
    for name, unserved in broker.topics.unserved.items():
        if unserved.topic_id == topic_id:
            return name
    raise UnknownTopicId(str(topic_id))


def _found(broker: BrokerCore, call: Call, name: str) -> TopicLogs:
    """Return the topic; create it if it does not exist, and client and broker allow that."""
    if topic := broker.topics.by_name.get(name):
        return topic
    check_name(name)
    own = {CONSUMER_OFFSETS: broker.offsets_log, TRANSACTION_STATE: broker.transactions_log}
    if not (broker.settings.auto_create and call.message.allow_auto_topic_creation) or name in INTERNAL - own.keys():
        raise broker.topics.missing(name)
    if not broker.access.shows(call.session, CREATE_ON_CLUSTER):
        broker.access.require(call.session, CREATE_TOPIC, name)
    return own[name].topic() if name in own else broker.create_topic(name, broker.settings.default_partitions, {})


def _leaderless(broker: BrokerCore, call: Call, name: str, topic: UnservedTopic) -> MetadataResponseTopic:
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
        topic_authorized_operations=_operations(broker, call, name),
    )


def _described(broker: BrokerCore, call: Call, topic: TopicLogs) -> MetadataResponseTopic:
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
        topic_authorized_operations=_operations(broker, call, topic.name),
    )
