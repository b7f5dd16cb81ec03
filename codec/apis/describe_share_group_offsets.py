"""DescribeShareGroupOffsets (key 90)."""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = wire(String)
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = wire(
        Array(DescribeShareGroupOffsetsRequestTopic), null="0+"
    )


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = wire(Array(DescribeShareGroupOffsetsRequestGroup))


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = wire(Int32)
    start_offset: int = wire(Int64)
    leader_epoch: int = wire(Int32)
    lag: int = wire(Int64, "1+", default=-1, ignorable=True)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = wire(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = wire(String)
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = wire(Array(DescribeShareGroupOffsetsResponseTopic))
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = wire(Array(DescribeShareGroupOffsetsResponseGroup))
