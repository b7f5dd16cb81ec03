"""StreamsGroupHeartbeat (key 88)."""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, Nested, String, UInt16, message, struct, wire


@struct
class KeyValue:
    key: str = wire(String)
    value: str = wire(String)


@struct
class TopicInfo:
    name: str = wire(String)
    partitions: int = wire(Int32)
    replication_factor: int = wire(Int16)
    topic_configs: tuple[KeyValue, ...] = wire(Array(KeyValue))


@struct
class CopartitionGroup:
    source_topics: tuple[int, ...] = wire(Array(Int16))
    source_topic_regex: tuple[int, ...] = wire(Array(Int16))
    repartition_source_topics: tuple[int, ...] = wire(Array(Int16))


@struct
class Subtopology:
    subtopology_id: str = wire(String)
    source_topics: tuple[str, ...] = wire(Array(String))
    source_topic_regex: tuple[str, ...] = wire(Array(String))
    state_changelog_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    repartition_sink_topics: tuple[str, ...] = wire(Array(String))
    repartition_source_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    copartition_groups: tuple[CopartitionGroup, ...] = wire(Array(CopartitionGroup))


@struct
class Topology:
    epoch: int = wire(Int32)
    subtopologies: tuple[Subtopology, ...] = wire(Array(Subtopology))


@struct
class TaskIds:
    subtopology_id: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Endpoint:
    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class TaskOffset:
    subtopology_id: str = wire(String)
    partition: int = wire(Int32)
    offset: int = wire(Int64)


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str = wire(String)
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    endpoint_information_epoch: int = wire(Int32)
    instance_id: str | None = wire(String, null="0+", default=None)
    rack_id: str | None = wire(String, null="0+", default=None)
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    topology: Topology | None = wire(Nested(Topology), null="0+", default=None)
    active_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    standby_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    process_id: str | None = wire(String, null="0+", default=None)
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    client_tags: tuple[KeyValue, ...] | None = wire(Array(KeyValue), null="0+", default=None)
    task_offsets: tuple[TaskOffset, ...] | None = wire(Array(TaskOffset), null="0+", default=None)
    task_end_offsets: tuple[TaskOffset, ...] | None = wire(Array(TaskOffset), null="0+", default=None)
    shutdown_application: bool = wire(Boolean, default=False)


@struct
class Status:
    status_code: int = wire(Int8)
    status_detail: str = wire(String)


@struct
class TopicPartition:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = wire(Nested(Endpoint))
    active_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    standby_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition))


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    heartbeat_interval_ms: int = wire(Int32)
    acceptable_recovery_lag_legacy: int = wire(Int32, "0", default=0)
    task_offset_interval_ms: int = wire(Int32)
    acceptable_recovery_lag: int = wire(Int64, "1+", default=-1, ignorable=True)
    status: tuple[Status, ...] | None = wire(Array(Status), null="0+")
    active_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    standby_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = wire(Array(TaskIds), null="0+", default=None)
    topology_description_required: bool = wire(Boolean, "1+", default=False)
    endpoint_information_epoch: int = wire(Int32)
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = wire(
        Array(EndpointToPartitions), null="0+", default=None
    )
