"""Metadata (key 3): the brokers of the cluster, and the leader of each partition.

Sent by every client to any broker: first to a bootstrap server, then every `metadata.max.age.ms` (five minutes) and
whenever a leader turns out to have moved. Each broker answers from its own copy, which may lag a little: ignore a lower
`leader_epoch` than you have already seen.

`host` and `port` are the addresses that brokers advertise on the listener that received the request
(`advertised.listeners`). So a client that reaches one broker from outside may still get internal addresses.

Naming a topic that does not exist creates it if both the request (`allow_auto_topic_creation`) and the broker
(`auto.create.topics.enable`) allow it. The response that does so has UNKNOWN_TOPIC_OR_PARTITION or
LEADER_NOT_AVAILABLE; ask again.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: for a topic: deleted, or so new that this broker does not know it yet.
    LEADER_NOT_AVAILABLE: for a partition without a leader, or a topic that is being created: ask again after a pause.
        The rest of the entry is valid.
    LISTENER_NOT_FOUND: for a partition (v6+): its leader does not have the listener that received the request. Before
        version 6: LEADER_NOT_AVAILABLE.
    REPLICA_NOT_AVAILABLE: for a partition (v0): a replica is down; later versions use `offline_replicas`. Ignore it.
    INVALID_TOPIC_EXCEPTION: for a topic: no topic can have this name.
    TOPIC_AUTHORIZATION_FAILED: for a topic that was named: the principal may not describe it, or not create it. If all
        topics are asked for, topics that it may not describe are left out.
    REBOOTSTRAP_REQUIRED (v13+): at the top: the client's view of the cluster is useless: start again with the bootstrap
        servers.

Versions:
    0 (0.8.2): an empty list of topics asks for all.
    1 (0.10.0): ``None`` asks for all topics, an empty list for none; `controller_id`, `rack`, `is_internal`.
    2 (0.10.1): `cluster_id` (KIP-78).
    3 (0.11.0): `throttle_time_ms`.
    4 (0.11.0): `allow_auto_topic_creation`; before, naming a topic always allowed it.
    5 (1.0): `offline_replicas` (KIP-112).
    6 (2.0): throttled after the answer (KIP-219); LISTENER_NOT_FOUND.
    7 (2.1): `leader_epoch` (KIP-320).
    8 (2.3): authorized operations (KIP-430).
    9 (2.4): flexible.
    10 (2.8): the response has topic ids; brokers refuse requests that contain them (KIP-516).
    11 (2.8): without the authorized operations of the cluster, see DescribeCluster (KIP-700).
    12 (3.1): topics by id (KIP-516).
    13 (4.0): an error at the top, REBOOTSTRAP_REQUIRED (KIP-1102).

Source: KafkaApis.scala, handleTopicMetadataRequest; KRaftMetadataCache.scala, getPartitionMetadata.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Boolean, Int16, Int32, String, Uuid, message, struct, wire


@struct
class MetadataRequestTopic:
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    """v12+, and then for all topics of the request."""
    name: str | None = wire(String, null="10+")
    """``None`` if the topic is asked for by id (v12+)."""


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
    """`broker.rack`, for example the availability zone; ``None``: not set."""


@struct
class MetadataResponsePartition:
    error_code: int = wire(Int16)
    partition_index: int = wire(Int32)
    leader_id: int = wire(Int32)
    """-1: there is no leader now."""
    leader_epoch: int = wire(Int32, "7+", default=-1, ignorable=True)
    """Rises with each change of the leader; -1: unknown."""
    replica_nodes: tuple[int, ...] = wire(Array(Int32))
    """In order of preference: the first should lead."""
    isr_nodes: tuple[int, ...] = wire(Array(Int32))
    """Replicas in sync, including the leader; each of them may be elected."""
    offline_replicas: tuple[int, ...] = wire(Array(Int32), "5+", default=(), ignorable=True)
    """Replicas whose broker or log directory is down."""


@struct
class MetadataResponseTopic:
    error_code: int = wire(Int16)
    name: str | None = wire(String, null="12+")
    """``None`` with UNKNOWN_TOPIC_ID."""
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    is_internal: bool = wire(Boolean, "1+", default=False, ignorable=True)
    """One of Kafka's own topics, for example `__consumer_offsets`."""
    partitions: tuple[MetadataResponsePartition, ...] = wire(Array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(Int32, "8+", default=-(2**31))


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = wire(Int32, "3+", default=0, ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(Array(MetadataResponseBroker))
    """Live brokers, with their addresses for the listener that received the request."""
    cluster_id: str | None = wire(String, "2+", null="2+", default=None, ignorable=True)
    """Created when the cluster was set up: 16 random bytes in base64, usually."""
    controller_id: int = wire(Int32, "1+", default=-1, ignorable=True)
    """In KRaft clusters any broker: it forwards requests for the controller. -1: none."""
    topics: tuple[MetadataResponseTopic, ...] = wire(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(Int32, "8-10", default=-(2**31))
    error_code: int = wire(Int16, "13+", default=0, ignorable=True)
