"""Records of ``__consumer_offsets``, types 17 to 23: groups of Kafka Streams (KIP-1071, Kafka 4.2), which assign tasks.

An application's topology is made of subtopologies; a task is one subtopology for one partition of its input topics.
A member runs active tasks, keeps standby copies of the state of others', and warms copies up before it takes a task
over. The members send the topology, and the coordinator makes its internal topics and assigns. Pieces and epochs are
those of `consumer_groups`, and the topology is one more (23).

Source: StreamsCoordinatorRecordHelpers.java, StreamsGroupMember.java, StreamsTopology.java.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, Nested, String, UInt16, message, struct, wire

MEMBER_STATES = {1: "stable", 2: "unrevoked_tasks", 3: "unreleased_tasks", 127: "unknown"}
"""2: it must give tasks back first. 3: it waits for tasks that others must give back."""


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
    """Of all topics of the topology: when it changes the group is assigned again."""
    validated_topology_epoch: int = wire(Int32, default=-1, tag=0)
    """The topology whose topics were found to be there and as they must be; -1 for none."""
    last_assignment_configs: tuple[LastAssignmentConfig, ...] | None = wire(
        Array(LastAssignmentConfig), null="0+", default=(), tag=1
    )
    """The group's settings that the last assignment was computed with; ``()`` and ``None`` where there were none."""


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
    """Given by the user to a static member; ``None`` for others."""
    rack_id: str | None = wire(String, null="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address the member connected from, with a slash before it."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long it may take to give tasks back, in milliseconds."""
    topology_epoch: int = wire(Int32)
    """Of the topology that it runs."""
    process_id: str = wire(String)
    """Common to the members in one process, which share the state on its disk."""
    user_endpoint: Endpoint | None = wire(Nested(Endpoint), null="0+", default=None)
    """Where its state can be queried; ``None`` where it cannot."""
    client_tags: tuple[KeyValue, ...] = wire(Array(KeyValue))
    """By which standby copies are kept apart: racks, zones and the like."""


@message(key=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    """Type 20: the target assignment as a whole."""

    group_id: str = wire(String)


@message(key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(Int32)
    """The group's epoch that it was computed for."""
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
    """Of the input topics: a task for each."""


@message(key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))
    standby_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))
    warmup_tasks: tuple[TaskIds, ...] = wire(Array(TaskIds))


@message(key=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    """Type 22: what a member has now."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class AssignedTaskIds:
    subtopology_id: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))
    assignment_epochs: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=(), tag=0)
    """One for each of `partitions`: a commit from before it is refused. ``()``, ``None``: tasks that are not active."""


@message(key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(Int32)
    """What the member's heartbeats must say."""
    previous_member_epoch: int = wire(Int32)
    """What they may say too, because the answer with the newer one may have been lost."""
    state: int = wire(Int8)
    """As `MEMBER_STATES` says."""
    active_tasks: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    standby_tasks: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    warmup_tasks: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    active_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = wire(Array(AssignedTaskIds))
    """Those of which the member has not yet said that it gave them back."""
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
    """An internal topic, and how the broker shall make it."""

    name: str = wire(String)
    partitions: int = wire(Int32)
    """0: as many as its source topics have; always so for changelogs."""
    replication_factor: int = wire(Int16)
    """0: the broker's default."""
    topic_configs: tuple[TopicConfig, ...] = wire(Array(TopicConfig))


@struct
class CopartitionGroup:
    """Topics that must have equally many partitions, each as an index into the subtopology's list of that name."""

    source_topics: tuple[int, ...] = wire(Array(Int16))
    source_topic_regex: tuple[int, ...] = wire(Array(Int16))
    repartition_source_topics: tuple[int, ...] = wire(Array(Int16))


@struct
class Subtopology:
    subtopology_id: str = wire(String)
    source_topics: tuple[str, ...] = wire(Array(String))
    source_topic_regex: tuple[str, ...] = wire(Array(String))
    """Regular expressions for topics that it reads."""
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
