"""StreamsGroupDescribe (key 89)."""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, Nested, String, UInt16, message, struct, wire


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: tuple[str, ...] = wire(Array(String))
    include_authorized_operations: bool = wire(Boolean)
    include_topology_description: bool = wire(Boolean, "1+", default=False)


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
class Subtopology:
    subtopology_id: str = wire(String)
    source_topics: tuple[str, ...] = wire(Array(String))
    repartition_sink_topics: tuple[str, ...] = wire(Array(String))
    state_changelog_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    repartition_source_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))


@struct
class Topology:
    epoch: int = wire(Int32)
    subtopologies: tuple[Subtopology, ...] | None = wire(Array(Subtopology), null="0+", default=None)


@struct
class Endpoint:
    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class TaskOffset:
    subtopology_id: str = wire(String)
    partition: int = wire(Int32)
    offset: int = wire(Int64)


@struct
class TaskIds:
    subtopology_id: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Assignment:
    active_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))
    standby_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))
    warmup_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))


@struct
class Member:
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    instance_id: str | None = wire(String, null="0+", default=None)
    rack_id: str | None = wire(String, null="0+", default=None)
    client_id: str = wire(String)
    client_host: str = wire(String)
    topology_epoch: int = wire(Int32)
    process_id: str = wire(String)
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    client_tags: tuple[KeyValue, ...] = wire(Array(KeyValue))
    task_offsets: tuple[TaskOffset, ...] = wire(Array(TaskOffset))
    task_end_offsets: tuple[TaskOffset, ...] = wire(Array(TaskOffset))
    assignment: Assignment = wire(Nested(Assignment))
    target_assignment: Assignment = wire(Nested(Assignment))
    is_classic: bool = wire(Boolean)


@struct
class TopologyDescriptionNode:
    name: str = wire(String)
    node_type: int = wire(Int8)
    source_topics: tuple[str, ...] = wire(Array(String))
    sink_topic: str | None = wire(String, null="0+", default=None)
    stores: tuple[str, ...] = wire(Array(String))
    successors: tuple[str, ...] = wire(Array(String))


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(String)
    nodes: tuple[TopologyDescriptionNode, ...] = wire(Array(TopologyDescriptionNode))


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = wire(Nested(TopologyDescriptionNode))
    processor: TopologyDescriptionNode = wire(Nested(TopologyDescriptionNode))


@struct
class TopologyDescription:
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = wire(Array(TopologyDescriptionSubtopology))
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = wire(Array(TopologyDescriptionGlobalStore))


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    topology: Topology | None = wire(Nested(Topology), null="0+", default=None)
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))
    topology_description: TopologyDescription | None = wire(Nested(TopologyDescription), "1+", null="1+", default=None)
    topology_description_status: int = wire(Int8, "1+", default=0)
    assignor_name: str | None = wire(String, "1+", null="1+", default=None, ignorable=True)


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
