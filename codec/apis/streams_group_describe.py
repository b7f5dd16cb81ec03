"""StreamsGroupDescribe (key 89): the members of groups of Kafka Streams (KIP-1071), their topology, and their tasks.

Sent by an administrator (Admin.describeStreamsGroups, `kafka-streams-groups.sh --describe`) to the coordinator of the
groups. StreamsGroupHeartbeat explains tasks and topologies; the three epochs are those of ConsumerGroupDescribe.

`topology` is what the coordinator assigns tasks by, with topics resolved. `topology_description` is the whole graph of
processors, for people to look at; it is there only if the application sent it and the broker has a plugin to store it.

Errors:
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    INVALID_GROUP_ID: an empty group id.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.
    TOPIC_AUTHORIZATION_FAILED: some topic of the group may not be described; then nothing of the group is shown.

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
    """Repartition topics it writes; another subtopology has them as source."""
    state_changelog_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    repartition_source_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    """Repartition topics it reads."""


@struct
class Topology:
    epoch: int = wire(Int32)
    subtopologies: tuple[Subtopology, ...] | None = wire(Array(Subtopology), null="0+", default=None)
    """``None``: source topics are missing, or partition numbers do not fit together."""


@struct
class Endpoint:
    """Where an instance answers interactive queries, its `application.server`."""

    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class TaskOffset:
    """Summed over the changelog partitions of a task."""

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
    """Its address, such as ``/192.0.2.1``."""
    topology_epoch: int = wire(Int32)
    """Of the topology it joined with; lower than the group's: it runs an older one."""
    process_id: str = wire(String)
    """The same for all members of one process."""
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    client_tags: tuple[KeyValue, ...] = wire(Array(KeyValue))
    task_offsets: tuple[TaskOffset, ...] = wire(Array(TaskOffset))
    """How far each task has restored its state."""
    task_end_offsets: tuple[TaskOffset, ...] = wire(Array(TaskOffset))
    assignment: Assignment = wire(Nested(Assignment))
    """What the member has."""
    target_assignment: Assignment = wire(Nested(Assignment))
    """What it shall have, once others have given it up."""
    is_classic: bool = wire(Boolean)
    """A classic member in a group that is migrating."""


@struct
class TopologyDescriptionNode:
    name: str = wire(String)
    """Such as ``KSTREAM-SOURCE-0000000000``."""
    node_type: int = wire(Int8)
    """1: source. 2: processor. 3: sink."""
    source_topics: tuple[str, ...] = wire(Array(String))
    """Of a source; ``()`` where a pattern chooses them."""
    sink_topic: str | None = wire(String, null="0+", default=None)
    """Of a sink; ``None`` where each record chooses its own."""
    stores: tuple[str, ...] = wire(Array(String))
    """State stores that a processor uses."""
    successors: tuple[str, ...] = wire(Array(String))
    """Names of the nodes it hands records to."""


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(String)
    nodes: tuple[TopologyDescriptionNode, ...] = wire(Array(TopologyDescriptionNode))


@struct
class TopologyDescriptionGlobalStore:
    """A store that each instance holds whole: the source it is filled from, and the processor that fills it."""

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
    """``Empty``: no members. ``NotReady``: the topology cannot be run, as topics are missing or do not fit.
    ``Assigning``: a new target is to be computed. ``Reconciling``: members are on the way to it. ``Stable``: all have
    reached it. ``Dead``: gone. ``""`` with an error."""
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    topology: Topology | None = wire(Nested(Topology), null="0+", default=None)
    """``None`` with an error."""
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))
    topology_description: TopologyDescription | None = wire(Nested(TopologyDescription), "1+", null="1+", default=None)
    topology_description_status: int = wire(Int8, "1+", default=0)
    """0: not asked for. 1: none is stored. 2: the plugin failed. 3: here it is."""
    assignor_name: str | None = wire(String, "1+", null="1+", default=None, ignorable=True)
    """The next assignment will be computed by it, the current one may not have been; ``None`` with an error."""


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
