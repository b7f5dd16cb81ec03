"""Records of ``__consumer_offsets``, types 17 to 23: Kafka Streams groups (KIP-1071, Kafka 4.2), which assign tasks.

An application's topology consists of subtopologies; a task is one subtopology for one partition of its input topics. A
member runs active tasks, keeps standby copies of other tasks' state, and warms copies up before it takes over a task.
The members send the topology; the coordinator creates its internal topics and assigns. Pieces and epochs are as in
`consumer_groups`, with the topology as one more piece (23).

Source: StreamsCoordinatorRecordHelpers.java, StreamsGroupMember.java, StreamsTopology.java.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, Nested, String, UInt16, message, struct, wire

MEMBER_STATES = {1: "stable", 2: "unrevoked_tasks", 3: "unreleased_tasks", 127: "unknown"}
"""2: the member must first give up tasks. 3: it waits for tasks that other members must give up."""


@message(key=17, versions="0")
class StreamsGroupMetadataKey:
    """Type 17: the group."""

    group_id: str = wire(String)


@struct
class LastAssignmentConfig:
    key: str = wire(String)
    value: str = wire(String)


@message(key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: int = wire(Int32)
    metadata_hash: int = wire(Int64)
    """Hash of all topics of the topology: when it changes, the group is reassigned."""
    validated_topology_epoch: int = wire(Int32, default=-1, tag=0)
    """Epoch of the topology whose topics were found to exist in the required form; -1 for none."""
    last_assignment_configs: tuple[LastAssignmentConfig, ...] | None = wire(
        Array(LastAssignmentConfig), null="0+", default=(), tag=1
    )
    """The group settings that the last assignment was computed with; ``()`` and ``None`` if there were none."""


@message(key=19, versions="0")
class StreamsGroupMemberMetadataKey:
    """Type 19: a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class Endpoint:
    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class KeyValue:
    key: str = wire(String)
    value: str = wire(String)


@message(key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: str | None = wire(String, null="0+")
    """Set by the user for a static member; ``None`` for others."""
    rack_id: str | None = wire(String, null="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address from which the member connected, with a slash in front."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long the member may take to give up tasks, in milliseconds."""
    topology_epoch: int = wire(Int32)
    """Epoch of the topology that it runs."""
    process_id: str = wire(String)
    """The same for all members of a process; they share the state on its disk."""
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    """Where its state can be queried; ``None`` if it cannot be."""
    client_tags: tuple[KeyValue, ...] = wire(Array(KeyValue))
    """Tags (racks, zones, …) over which standby copies are spread."""


@message(key=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    """Type 20: the target assignment as a whole."""

    group_id: str = wire(String)


@message(key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(Int32)
    """The group epoch that it was computed for."""
    assignment_timestamp: int = wire(Int64, default=0, tag=0, ignorable=True)
    """When it was computed, in milliseconds since 1970; 0 before 4.3 (KIP-1263)."""


@message(key=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey:
    """Type 21: the target assignment of a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class TaskIds:
    subtopology_id: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))
    """Partitions of the input topics, one for each task."""


@message(key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))
    standby_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))
    warmup_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))


@message(key=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    """Type 22: the current assignment of a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class AssignedTaskIds:
    subtopology_id: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))
    assignment_epochs: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=(), tag=0)
    """One for each of `partitions`; commits with an older epoch are refused. ``()``, ``None``: not active tasks."""


@message(key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(Int32)
    """The epoch that the member's heartbeats must carry."""
    previous_member_epoch: int = wire(Int32)
    """An epoch that they may also carry, because the response with the newer one may have been lost."""
    state: int = wire(Int8)
    """One of `MEMBER_STATES`."""
    active_tasks: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    standby_tasks: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    warmup_tasks: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    active_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    """Tasks that the member has not yet confirmed to have given up."""
    standby_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    warmup_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))


@message(key=23, versions="0")
class StreamsGroupTopologyKey:
    """Type 23: the topology."""

    group_id: str = wire(String)


@struct
class TopicConfig:
    key: str = wire(String)
    value: str = wire(String)


@struct
class TopicInfo:
    """An internal topic, and how the broker creates it."""

    name: str = wire(String)
    partitions: int = wire(Int32)
    """0: as many as its source topics have; always 0 for changelogs."""
    replication_factor: int = wire(Int16)
    """0: the broker's default."""
    topic_configs: tuple[TopicConfig, ...] = wire(Array(TopicConfig))


@struct
class CopartitionGroup:
    """Topics that must have the same number of partitions, as indices into the subtopology's lists of these names."""

    source_topics: tuple[int, ...] = wire(Array(Int16))
    source_topic_regex: tuple[int, ...] = wire(Array(Int16))
    repartition_source_topics: tuple[int, ...] = wire(Array(Int16))


@struct
class Subtopology:
    subtopology_id: str = wire(String)
    source_topics: tuple[str, ...] = wire(Array(String))
    source_topic_regex: tuple[str, ...] = wire(Array(String))
    """Regular expressions for the topics that it reads."""
    state_changelog_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    repartition_sink_topics: tuple[str, ...] = wire(Array(String))
    """Repartition topics that it writes."""
    repartition_source_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    """Repartition topics that it reads."""
    copartition_groups: tuple[CopartitionGroup, ...] = wire(Array(CopartitionGroup))


@message(key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: int = wire(Int32)
    """Rises when the application changes its topology."""
    subtopologies: tuple[Subtopology, ...] = wire(Array(Subtopology))
