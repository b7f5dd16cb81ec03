"""Metadata (key 3): brokers, and for topics their partitions with leaders and replicas.

Versions: 0: an empty list asks for every topic; from 1 on ``None`` does and an empty list asks for none. 1:
`controller_id`, racks, internal topics. 2: `cluster_id`. 4: `allow_auto_topic_creation`. 5: offline replicas. 7:
leader epochs. 8: authorized operations. 9: flexible. 10: topic ids. 12: topics asked for by id. 13: a top-level
error.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Boolean, Int16, Int32, String, Uuid, message, struct, wire


@struct
class MetadataRequestTopic:
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    name: str | None = wire(String, null="10+")
    """``None`` where the topic is asked for by id."""


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None = wire(Array(MetadataRequestTopic), null="1+")
    """v0: ``()`` is every topic. v1+: ``None`` is every topic and ``()`` is none."""
    allow_auto_topic_creation: bool = wire(Boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(Boolean, "8-10", default=False)
    include_topic_authorized_operations: bool = wire(Boolean, "8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, "1+", null="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    partition_index: int = wire(Int32)
    leader_id: int = wire(Int32)
    """-1 while there is no leader."""
    leader_epoch: int = wire(Int32, "7+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(Array(Int32))
    isr_nodes: tuple[int, ...] = wire(Array(Int32))
    offline_replicas: tuple[int, ...] = wire(Array(Int32), "5+", default=(), ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    name: str | None = wire(String, null="12+")
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    is_internal: bool = wire(Boolean, "1+", default=False, ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(Array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(Int32, "8+", default=-(2**31))
    """A bit field; -2147483648 where it was not asked for."""


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = wire(Int32, "3+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    brokers: tuple[MetadataResponseBroker, ...] = wire(Array(MetadataResponseBroker))
    cluster_id: str | None = wire(String, "2+", null="2+", default=None, ignorable=True)
    controller_id: int = wire(Int32, "1+", default=-1, ignorable=True)
    """In KRaft clusters any broker: it forwards what the controller must do."""
    topics: tuple[MetadataResponseTopic, ...] = wire(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(Int32, "8-10", default=-(2**31))
    """A bit field; -2147483648 where it was not asked for."""
    error_code: int = wire(Int16, "13+", default=0, ignorable=True)
    """0, or a code of `ottla.errors`."""
