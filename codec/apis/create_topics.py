"""CreateTopics (key 19): make topics.

Versions: 1: `validate_only`. 2: throttle time. 4: -1 asks for the broker's default of partitions and replicas. 5:
flexible; the answer tells the configuration. 7: the answer tells the topic's id.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Boolean, Int8, Int16, Int32, String, Uuid, message, struct, wire


@struct
class CreatableReplicaAssignment:
    partition_index: int = wire(Int32)
    broker_ids: tuple[int, ...] = wire(Array(Int32))


@struct
class CreatableTopicConfig:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")


@struct
class CreatableTopic:
    name: str = wire(String)
    num_partitions: int = wire(Int32)
    """-1: the broker's default (v4+), or as `assignments` say."""
    replication_factor: int = wire(Int16)
    """-1: the broker's default (v4+), or as `assignments` say."""
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(Array(CreatableReplicaAssignment))
    """Partitions and their replicas by hand; empty lets the broker choose."""
    configs: tuple[CreatableTopicConfig, ...] = wire(Array(CreatableTopicConfig))


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...] = wire(Array(CreatableTopic))
    timeout_ms: int = wire(Int32, default=60000)
    """How long the broker may take until the topics exist, in milliseconds."""
    validate_only: bool = wire(Boolean, "1+", default=False)
    """Check, and make nothing."""


@struct
class CreatableTopicConfigs:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    read_only: bool = wire(Boolean)
    config_source: int = wire(Int8, default=-1, ignorable=True)
    """As in DescribeConfigs."""
    is_sensitive: bool = wire(Boolean)


@struct
class CreatableTopicResult:
    name: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid, "7+", default=NO_UUID, ignorable=True)
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    error_message: str | None = wire(String, "1+", null="0+", default="", ignorable=True)
    topic_config_error_code: int = wire(Int16, "5+", default=0, tag=0, ignorable=True)
    num_partitions: int = wire(Int32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(Int16, "5+", default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        Array(CreatableTopicConfigs), "5+", null="5+", default=(), ignorable=True
    )


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    topics: tuple[CreatableTopicResult, ...] = wire(Array(CreatableTopicResult))
