"""AlterShareGroupOffsets (key 91)."""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = wire(Int32)
    start_offset: int = wire(Int64)


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
    error_message: str | None = wire(String, null="0+", default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = wire(Array(AlterShareGroupOffsetsResponseTopic))
