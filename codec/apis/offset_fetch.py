"""OffsetFetch (key 9)."""

import uuid

from ottla.codec.wire import NO_UUID, Array, Boolean, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class OffsetFetchRequestTopic:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@struct
class OffsetFetchRequestTopics:
    name: str = wire(String, "0-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@struct
class OffsetFetchRequestGroup:
    group_id: str = wire(String)
    member_id: str | None = wire(String, "9+", null="9+", default=None, ignorable=True)
    member_epoch: int = wire(Int32, "9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(Array(OffsetFetchRequestTopics), null="0+")


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = wire(String, "0-7", default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(
        Array(OffsetFetchRequestTopic), "0-7", null="2-7", default=()
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(Array(OffsetFetchRequestGroup), "8+", default=())
    require_stable: bool = wire(Boolean, "7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, "5+", default=-1, ignorable=True)
    metadata: str | None = wire(String, null="0+")
    error_code: int = wire(Int16)


@struct
class OffsetFetchResponseTopic:
    name: str = wire(String)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(Array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, default=-1, ignorable=True)
    metadata: str | None = wire(String, null="0+")
    error_code: int = wire(Int16)


@struct
class OffsetFetchResponseTopics:
    name: str = wire(String, "0-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire(Array(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup:
    group_id: str = wire(String)
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(Array(OffsetFetchResponseTopics))
    error_code: int = wire(Int16, default=0)


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = wire(Int32, "3+", default=0, ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(Array(OffsetFetchResponseTopic), "0-7", default=())
    error_code: int = wire(Int16, "2-7", default=0, ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(Array(OffsetFetchResponseGroup), "8+", default=())
