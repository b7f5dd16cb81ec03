"""OffsetDelete (key 47): forget a group's committed offsets of some partitions.

Sent by administrators (Admin.deleteConsumerGroupOffsets, kafka-consumer-groups.sh --delete-offsets) to the group's
coordinator. It takes the right to delete the group and to read each topic. Useful where a group has stopped reading a
topic, and its old offsets show as a lag that grows for ever. To remove a whole group there is DeleteGroups.

Offsets of a topic that a member subscribes to stay, for they would be in use. A partition without an offset is no
error. The one API of its age that never became flexible.

Errors:
    GROUP_SUBSCRIBED_TO_TOPIC: of a partition: a member subscribes to its topic.
    NON_EMPTY_GROUP: the group has members, and is no consumer group (Connect's, say), so one cannot know what they use.
    GROUP_ID_NOT_FOUND: no such group.
    UNKNOWN_TOPIC_OR_PARTITION: no such partition.
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: retry after a pause.

Versions:
    0 (2.4)

Source: KafkaApis.scala, handleOffsetDeleteRequest; OffsetMetadataManager.java, deleteOffsets; KIP-496.
"""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = wire(Int32)


@struct
class OffsetDeleteRequestTopic:
    name: str = wire(String)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(Array(OffsetDeleteRequestPartition))


@message(key=47, versions="0")
class OffsetDeleteRequest:
    group_id: str = wire(String)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(Array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class OffsetDeleteResponseTopic:
    name: str = wire(String)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(Array(OffsetDeleteResponsePartition))


@message(key=47, versions="0")
class OffsetDeleteResponse:
    error_code: int = wire(Int16)
    """That of the group; `topics` is empty then."""
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(Array(OffsetDeleteResponseTopic))
