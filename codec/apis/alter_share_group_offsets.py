"""AlterShareGroupOffsets (key 91): set where a share group starts in its partitions (KIP-932).

Sent by an administrator (Admin.alterShareGroupOffsets, `kafka-share-groups.sh --reset-offsets`) to the group's
coordinator. The group must have no members. The state of the partitions restarts at the given offset: records after it
are delivered again even if they were acknowledged, and delivery counts are reset.

Errors:
    NON_EMPTY_GROUP: the group has members: stop them first.
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    UNKNOWN_TOPIC_OR_PARTITION: for a partition: it does not exist.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.

Versions:
    0 (4.1): flexible.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = wire(Int32)
    start_offset: int = wire(Int64)
    """The first offset to deliver."""


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = wire(String)
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = wire(Array(AlterShareGroupOffsetsRequestPartition))


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = wire(String)
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = wire(Array(AlterShareGroupOffsetsRequestTopic))


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = wire(
        Array(AlterShareGroupOffsetsResponsePartition)
    )


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    """Error of the group as a whole; then `responses` is empty."""
    error_message: str | None = wire(String, null="0+", default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = wire(Array(AlterShareGroupOffsetsResponseTopic))
