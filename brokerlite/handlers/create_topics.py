"""CreateTopics v2-7: creates topics; each succeeds or fails by itself.

v4+: -1 means the broker's default number of partitions or replicas; before that -1 needs `assignments`. v5+: the
response has the configuration, if the client may describe it. v7: the response has the topic id. There is one broker,
so topics have one replica.

Source: ReplicationControlManager.java (createTopics).
"""

from collections import Counter

from ottla.acl.rights import CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.configs import CONFIGS, check_asked
from ottla.brokerlite.machines.topics.topics import CLUSTER_METADATA, INTERNAL, MAX_PARTITIONS
from ottla.codec.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    BrokerError,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
)


def handle(broker: BrokerCore, call: Call) -> CreateTopicsResponse:
    request: CreateTopicsRequest = call.message
    named = Counter(topic.name for topic in request.topics)
    once = {topic.name: topic for topic in request.topics}
    if sum(_asked_partitions(broker, topic) for topic in request.topics) > MAX_PARTITIONS:
        error = PolicyViolation(f"more than {MAX_PARTITIONS} partitions in one request: make fewer topics at a time")
        return CreateTopicsResponse(topics=tuple(_refused(topic, error) for topic in once.values()))
    return CreateTopicsResponse(
        topics=tuple(_create(broker, call, topic, named[topic.name] > 1) for topic in once.values())
    )


def _asked_partitions(broker: BrokerCore, asked: CreatableTopic) -> int:
    if asked.num_partitions == -1:
        return len(asked.assignments) or broker.settings.default_partitions
    return max(0, asked.num_partitions)


def _refused(asked: CreatableTopic, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=asked.name, error_code=error.code, error_message=error.detail or None, configs=None
    )


def _create(broker: BrokerCore, call: Call, asked: CreatableTopic, twice: bool) -> CreatableTopicResult:
    request: CreateTopicsRequest = call.message
    try:
        if twice:
            raise InvalidRequest(f"{asked.name} is listed twice")
        if asked.name == CLUSTER_METADATA:
            raise InvalidRequest(f"clients cannot create {asked.name}")
        if not broker.access.shows(call.session, CREATE_ON_CLUSTER):
            broker.access.require(call.session, CREATE_TOPIC, asked.name)
        if asked.name in INTERNAL:
            raise TopicAlreadyExists(f"{asked.name} is an internal topic; the broker creates it when it needs it")
        partitions = _partitions(broker, asked)
        configs = _configs(asked)
        check_asked(broker.topics.check(asked.name, partitions, configs))
        topic_id = NO_UUID if request.validate_only else broker.create_topic(asked.name, partitions, configs).topic_id
    except BrokerError as error:
        return _refused(asked, error)
    if not broker.access.shows(call.session, DESCRIBE_TOPIC_CONFIGS, asked.name):
        return CreatableTopicResult(
            name=asked.name,
            topic_id=topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=TopicAuthorizationFailed.code,
            configs=None,
        )
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfigs(
                name=key,
                value=configs.get(key, broker.topics.default(key)),
                read_only=False,
                config_source=config_source(broker, configs, key),
                is_sensitive=False,
            )
            for key, known in CONFIGS.items()
            if key in configs or not known.internal
        ),
    )


def config_source(broker: BrokerCore, configs: dict[str, str], key: str) -> int:
    """Return the source of a topic's configuration, as DescribeConfigs numbers it."""
    if key in configs:
        return 1
    return 4 if key in broker.topics.defaults else 5


def _partitions(broker: BrokerCore, asked: CreatableTopic) -> int:
    if not asked.assignments:
        if asked.replication_factor not in (-1, 1):
            raise InvalidReplicationFactor(f"{asked.replication_factor} replicas, but there is only one broker")
        return broker.settings.default_partitions if asked.num_partitions == -1 else asked.num_partitions
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise InvalidRequest("with assignments, the numbers of partitions and replicas must be -1")
    indexes = sorted(each.partition_index for each in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise InvalidReplicaAssignment(f"partitions {indexes} are not numbered 0, 1, 2 and so on")
    if any(each.broker_ids != (broker.settings.node_id,) for each in asked.assignments):
        raise InvalidReplicaAssignment(f"the only broker is {broker.settings.node_id}")
    return len(indexes)


def _configs(asked: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for each in asked.configs:
        if each.value is None:
            raise InvalidConfig(f"{each.name} is null")
        configs[each.name] = each.value
    return configs
