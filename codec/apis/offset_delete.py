"""OffsetDelete (key 47): delete a group's committed offsets for some partitions.

Sent by administrators (Admin.deleteConsumerGroupOffsets, kafka-consumer-groups.sh --delete-offsets) to the group's
coordinator. Requires the right to delete the group and to read each topic. Useful if a group has stopped reading a
topic, because its old offsets show as an ever-growing lag. To remove a whole group, use DeleteGroups.

Offsets of a topic that a member subscribes to are kept, because they are in use. A partition without an offset is no
error. Unlike other APIs of its time, it never became flexible.

Errors:
    GROUP_SUBSCRIBED_TO_TOPIC: for a partition: a member subscribes to its topic.
    NON_EMPTY_GROUP: the group has members but is not a consumer group (Connect's, say), so their topics are unknown.
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
    """Error of the group; then `topics` is empty."""
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(Array(OffsetDeleteResponseTopic))
