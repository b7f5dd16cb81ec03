"""CreateTopics (key 19): create topics, each with its number of partitions, replicas and configuration.

Sent by tools and administrative clients (Admin.createTopics, kafka-topics.sh) to any broker, which forwards it to the
controller; in ZooKeeper clusters to the broker that is the controller. Each topic succeeds or fails independently. When
the response comes, the topic exists for the controller; brokers may answer UNKNOWN_TOPIC_OR_PARTITION for a moment.

Errors:
    TOPIC_ALREADY_EXISTS: its partitions and settings may differ from the request.
    INVALID_TOPIC_EXCEPTION: the name is empty, ``.``, ``..``, longer than 249, or has other characters than letters,
        digits, dots, underscores and hyphens; or differs from an existing name only by dots in place of underscores
        (their metrics would collide).
    INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG: see `error_message`;
        usually more replicas are asked for than there are brokers.
    POLICY_VIOLATION: the broker's `create.topic.policy.class.name` forbids it.
    INVALID_REQUEST: a name is repeated, or counts and `assignments` are both given.
    NOT_CONTROLLER: in ZooKeeper clusters: ask Metadata for the controller.
    REQUEST_TIMED_OUT: the topic may still be created.
    THROTTLING_QUOTA_EXCEEDED (v6+): repeat after `throttle_time_ms`. Older versions are delayed instead.
    TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED: the principal may not create it.

Versions:
    0 (0.10.1): new (KIP-4).
    1 (0.10.2): `validate_only`, `error_message` (KIP-108).
    2 (0.11.0): `throttle_time_ms`.
    3 (2.0): throttled after the answer (KIP-219).
    4 (2.4): -1 asks for the broker's default of partitions and replicas (KIP-464).
    5 (2.4): flexible; the response describes the new topic (KIP-525).
    6 (2.7): the same bytes; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599).
    7 (2.8): the response has the topic's id (KIP-516).

Source: ReplicationControlManager.java, createTopic.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Boolean, Int8, Int16, Int32, String, Uuid, message, struct, wire


@struct
class CreatableReplicaAssignment:
    partition_index: int = wire(Int32)
    broker_ids: tuple[int, ...] = wire(Array(Int32))
    """In order of preference: the first will lead."""


@struct
class CreatableTopicConfig:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    """Brokers refuse ``None``."""


@struct
class CreatableTopic:
    name: str = wire(String)
    num_partitions: int = wire(Int32)
    """-1: the broker's `num.partitions` (v4+), or as in `assignments`."""
    replication_factor: int = wire(Int16)
    """-1: the broker's `default.replication.factor` (v4+), or as in `assignments`."""
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(Array(CreatableReplicaAssignment))
    """The replicas of each partition, from partition 0 without gaps; ``()``: the controller chooses."""
    configs: tuple[CreatableTopicConfig, ...] = wire(Array(CreatableTopicConfig))


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...] = wire(Array(CreatableTopic))
    timeout_ms: int = wire(Int32, default=60000)
    """How long to wait until the topics exist."""
    validate_only: bool = wire(Boolean, "1+", default=False)
    """Check the request without creating anything."""


@struct
class CreatableTopicConfigs:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    """``None`` if it is sensitive."""
    read_only: bool = wire(Boolean)
    config_source: int = wire(Int8, default=-1, ignorable=True)
    """1: the topic. 2: this broker, 3: all brokers, set at run time. 4: the broker's properties file. 5: the default.
    -1: unknown."""
    is_sensitive: bool = wire(Boolean)


@struct
class CreatableTopicResult:
    name: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid, "7+", default=NO_UUID, ignorable=True)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "1+", null="0+", default="", ignorable=True)
    """``None`` without an error."""
    topic_config_error_code: int = wire(Int16, "5+", default=0, tag=0, ignorable=True)
    """Why `configs` and the counts are missing: TOPIC_AUTHORIZATION_FAILED if the principal may not describe the
    configuration."""
    num_partitions: int = wire(Int32, "5+", default=-1, ignorable=True)
    """-1: unknown."""
    replication_factor: int = wire(Int16, "5+", default=-1, ignorable=True)
    """-1: unknown."""
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        Array(CreatableTopicConfigs), "5+", null="5+", default=(), ignorable=True
    )
    """All settings of the topic, including defaults; ``None``: unknown."""


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = wire(Array(CreatableTopicResult))
