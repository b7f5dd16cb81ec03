"""StreamsGroupDescribe (key 89): the members of Kafka Streams groups (KIP-1071), their topology, and their tasks.

Sent by an administrator (Admin.describeStreamsGroups, `kafka-streams-groups.sh --describe`) to the coordinator of the
groups. StreamsGroupHeartbeat explains tasks and topologies; the three epochs are as in ConsumerGroupDescribe.

`topology` is the basis of the coordinator's assignment, with topics resolved. `topology_description` is the whole graph
of processors, for people; it exists only if the application sent it and the broker has a plugin that stores it.

Errors:
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    INVALID_GROUP_ID: an empty group id.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.
    TOPIC_AUTHORIZATION_FAILED: a topic of the group may not be described; then the group is not shown at all.

Versions:
    0 (4.2): flexible.
    1 (4.4): the topology's description (KIP-1331), `assignor_name` (KIP-1357).
"""

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
    """An internal topic, which the coordinator creates."""

    name: str = wire(String)
    partitions: int = wire(Int32)
    replication_factor: int = wire(Int16)
    """0: the broker's default."""
    topic_configs: tuple[KeyValue, ...] = wire(Array(KeyValue))


@struct
class Subtopology:
    subtopology_id: str = wire(String)
    source_topics: tuple[str, ...] = wire(Array(String))
    repartition_sink_topics: tuple[str, ...] = wire(Array(String))
    """Repartition topics that it writes; another subtopology reads them."""
    state_changelog_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    repartition_source_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    """Repartition topics that it reads."""


@struct
class Topology:
    epoch: int = wire(Int32)
    subtopologies: tuple[Subtopology, ...] | None = wire(Array(Subtopology), null="0+", default=None)
    """``None``: source topics are missing, or their numbers of partitions do not fit together."""


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


@struct
class TaskIds:
    """The tasks of one subtopology."""

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
    """From the header of its last heartbeat."""
    client_host: str = wire(String)
    """Its address, for example ``/192.0.2.1``."""
    topology_epoch: int = wire(Int32)
    """Epoch of the topology with which it joined; lower than the group's: it runs an older one."""
    process_id: str = wire(String)
    """The same for all members of one process."""
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    client_tags: tuple[KeyValue, ...] = wire(Array(KeyValue))
    task_offsets: tuple[TaskOffset, ...] = wire(Array(TaskOffset))
    """Progress of each task in restoring its state."""
    task_end_offsets: tuple[TaskOffset, ...] = wire(Array(TaskOffset))
    assignment: Assignment = wire(Nested(Assignment))
    """The current assignment."""
    target_assignment: Assignment = wire(Nested(Assignment))
    """The future assignment, once other members have given up its tasks."""
    is_classic: bool = wire(Boolean)
    """A classic member in a group that is migrating."""


@struct
class TopologyDescriptionNode:
    name: str = wire(String)
    """For example ``KSTREAM-SOURCE-0000000000``."""
    node_type: int = wire(Int8)
    """1: source. 2: processor. 3: sink."""
    source_topics: tuple[str, ...] = wire(Array(String))
    """Topics of a source; ``()`` if they match a pattern."""
    sink_topic: str | None = wire(String, null="0+", default=None)
    """Topic of a sink; ``None`` if each record chooses its own."""
    stores: tuple[str, ...] = wire(Array(String))
    """State stores that the processor uses."""
    successors: tuple[str, ...] = wire(Array(String))
    """Names of the nodes to which it passes records."""


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(String)
    nodes: tuple[TopologyDescriptionNode, ...] = wire(Array(TopologyDescriptionNode))


@struct
class TopologyDescriptionGlobalStore:
    """A store of which each instance has all data: its source, and the processor that fills it."""

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
    """``Empty``: no members. ``NotReady``: the topology cannot run, because topics are missing or do not fit.
    ``Assigning``: a new target is being computed. ``Reconciling``: members are moving to the target. ``Stable``: all
    have reached it. ``Dead``: gone. ``""`` with an error."""
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    topology: Topology | None = wire(Nested(Topology), null="0+", default=None)
    """``None`` with an error."""
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))
    topology_description: TopologyDescription | None = wire(Nested(TopologyDescription), "1+", null="1+", default=None)
    topology_description_status: int = wire(Int8, "1+", default=0)
    """0: not asked for. 1: none is stored. 2: the plugin failed. 3: in `topology_description`."""
    assignor_name: str | None = wire(String, "1+", null="1+", default=None, ignorable=True)
    """The assignor of the next assignment, not necessarily of the current one; ``None`` with an error."""


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
