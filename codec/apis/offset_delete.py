"""OffsetDelete (key 47)."""

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
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(Array(OffsetDeleteResponseTopic))
