"""StreamsGroupHeartbeat (key 88): join, stay in, and leave a Kafka Streams group, which assigns tasks.

Sent by each member (a thread of Kafka Streams with `group.protocol=streams`) to the group's coordinator every
`heartbeat_interval_ms` of the last response. It is ConsumerGroupHeartbeat with tasks in place of partitions (KIP-1071):
a task is a subtopology and a partition number; it reads that partition of each source topic of the subtopology, and
keeps its state in that partition of the changelog topics. A member runs a task as active, or as standby or warm-up,
which only follow the changelog.

The first member to join sends the topology, and the coordinator stores it, creates missing internal topics, and assigns
no tasks while a source topic is missing. `status` describes such problems; they are not errors, and heartbeats
continue. Another member gets a task only after its owner has reported that it no longer owns it; then the owner's epoch
rises.

Fields that have not changed since the last heartbeat are left out (``None``, or -1); all are sent when joining
(`member_epoch` 0) and after any error.

Errors:
    UNKNOWN_MEMBER_ID: the member was removed: close all tasks, join with epoch 0 and the same member id.
    FENCED_MEMBER_EPOCH: the member's epoch is not the coordinator's: do the same.
    STREAMS_INVALID_TOPOLOGY: the topology contradicts itself, or the topics: stop.
    INVALID_REQUEST: a required field is missing, or a field is set that brokers do not support yet; up to Kafka 4.4
        also a topology that is neither the group's nor older: stop.
    UNRELEASED_INSTANCE_ID: another live member has this `instance_id`: stop.
    GROUP_MAX_SIZE_REACHED: the group has `group.streams.max.size` members: stop.
    GROUP_ID_NOT_FOUND: not a group of this kind, or, when not joining, no group at all.
    TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED: a topic of the topology may not be read, or not created.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (4.2): flexible.
    1 (4.4): `topology_description_required` (KIP-1331); `acceptable_recovery_lag` has 64 bits; status 6.

Source: GroupMetadataManager.java, streamsGroupHeartbeat; GroupCoordinatorService.java; KIP-1071.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, Nested, String, UInt16, message, struct, wire

JOIN = 0
"""As `member_epoch`: join, or join again."""
LEAVE = -1
"""As `member_epoch`: leave for good."""
LEAVE_STATIC = -2
"""As `member_epoch`: a static member leaves for a while."""


@struct
class KeyValue:
    key: str = wire(String)
    value: str = wire(String)


@struct
class TopicInfo:
    """An internal topic, which the coordinator creates."""

    name: str = wire(String)
    partitions: int = wire(Int32)
    """0: as many as its sources have; always 0 for changelogs."""
    replication_factor: int = wire(Int16)
    """0: the broker's default."""
    topic_configs: tuple[KeyValue, ...] = wire(Array(KeyValue))


@struct
class CopartitionGroup:
    """Topics that must have equal numbers of partitions, as indices into the fields of `Subtopology` of these names."""

    source_topics: tuple[int, ...] = wire(Array(Int16))
    source_topic_regex: tuple[int, ...] = wire(Array(Int16))
    repartition_source_topics: tuple[int, ...] = wire(Array(Int16))


@struct
class Subtopology:
    subtopology_id: str = wire(String)
    """The same in every member, because it is derived from the topology."""
    source_topics: tuple[str, ...] = wire(Array(String))
    source_topic_regex: tuple[str, ...] = wire(Array(String))
    """Kafka 4.3 refuses any."""
    state_changelog_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    repartition_sink_topics: tuple[str, ...] = wire(Array(String))
    """Repartition topics that it writes; another subtopology reads them."""
    repartition_source_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    """Repartition topics that it reads."""
    copartition_groups: tuple[CopartitionGroup, ...] = wire(Array(CopartitionGroup))


@struct
class Topology:
    epoch: int = wire(Int32)
    """Raised by the application when it changes its topology."""
    subtopologies: tuple[Subtopology, ...] = wire(Array(Subtopology))


@struct
class TaskIds:
    """The tasks of one subtopology."""

    subtopology_id: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Endpoint:
    """Address at which an instance answers interactive queries, its `application.server`."""

    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class TaskOffset:
    """The sum over the changelog partitions of a task."""

    subtopology_id: str = wire(String)
    partition: int = wire(Int32)
    offset: int = wire(Int64)


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str = wire(String)
    """The `application.id`."""
    member_id: str = wire(String)
    """A random UUID that the member creates once and keeps."""
    member_epoch: int = wire(Int32)
    """The one in the last response, or `JOIN`, `LEAVE` or `LEAVE_STATIC`."""
    endpoint_information_epoch: int = wire(Int32)
    """From the last response with `partitions_by_user_endpoint`."""
    instance_id: str | None = wire(String, null="0+", default=None)
    """The `group.instance.id` of a static member; Kafka 4.3 refuses any. ``None``: the member is dynamic."""
    rack_id: str | None = wire(String, null="0+", default=None)
    """The `client.rack`; ``None``: none, or unchanged."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long the member may take to give up tasks; -1: unchanged."""
    topology: Topology | None = wire(Nested(Topology), null="0+", default=None)
    """Only when joining."""
    active_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    """The member's current tasks; ``None``: unchanged. The three are ``None`` together, and ``()`` when joining."""
    standby_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    process_id: str | None = wire(String, null="0+", default=None)
    """The same for all members that share a process and its state directory; ``None``: unchanged."""
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    """``None``: unchanged, or none."""
    client_tags: tuple[KeyValue, ...] | None = wire(Array(KeyValue), null="0+", default=None)
    """Tags over which standby tasks are spread; ``None``: unchanged."""
    task_offsets: tuple[TaskOffset, ...] | None = wire(Array(TaskOffset), null="0+", default=None)
    """Progress of each task in restoring its state; ``None``: unchanged. Kafka 4.3 refuses any."""
    task_end_offsets: tuple[TaskOffset, ...] | None = wire(Array(TaskOffset), null="0+", default=None)
    """Where each task's restoring ends; ``None``: unchanged. Kafka 4.3 refuses any."""
    shutdown_application: bool = wire(Boolean, default=False)
    """Ask all members to shut down: they get status 4."""


@struct
class Status:
    status_code: int = wire(Int8)
    """0: the member's topology is older than the group's. 1: source topics are missing. 2: numbers of partitions do not
    fit together. 3: internal topics are missing, and are being created. 4: a member asked all to shut down.
    5: the assignment is not computed yet. 6 (v1+): client tags for spreading standby tasks are missing."""
    status_detail: str = wire(String)


@struct
class TopicPartition:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class EndpointToPartitions:
    """The partitions of one member. An endpoint may have several members; then combine their partitions."""

    user_endpoint: Endpoint = wire(Nested(Endpoint))
    active_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    standby_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    """Partitions of standby and warm-up tasks."""


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str = wire(String)
    """As in the request."""
    member_epoch: int = wire(Int32)
    """Send it in the next heartbeat, and in OffsetCommit."""
    heartbeat_interval_ms: int = wire(Int32)
    """`group.streams.heartbeat.interval.ms` (5 s), which can be set for each group."""
    acceptable_recovery_lag_legacy: int = wire(Int32, "0", default=0)
    """`acceptable_recovery_lag` in 32 bits."""
    task_offset_interval_ms: int = wire(Int32)
    """How often to send `task_offsets`."""
    acceptable_recovery_lag: int = wire(Int64, "1+", default=-1, ignorable=True)
    """A task may become active with at most this many offsets to restore; -1: the broker has no such limit."""
    status: tuple[Status, ...] | None = wire(Array(Status), null="0+")
    """Problems that keep the group from working; empty: none."""
    active_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    """All tasks that the member should run now; ``None``: as before."""
    standby_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    topology_description_required: bool = wire(Boolean, "1+", default=False)
    """The broker wants a StreamsGroupTopologyDescriptionUpdate."""
    endpoint_information_epoch: int = wire(Int32)
    """Rises when `partitions_by_user_endpoint` changes."""
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = wire(
        Array(EndpointToPartitions), null="0+", default=None
    )
    """Which instance has which partitions; ``None``: as before."""
