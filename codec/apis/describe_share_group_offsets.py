"""DescribeShareGroupOffsets (key 90): the progress of share groups in their partitions, and their lag (KIP-932).

Sent by an administrator (Admin.listShareGroupOffsets, `kafka-share-groups.sh --describe`) to the coordinator of the
groups. A share group has no committed offset but a start offset: all records before it are processed, and some of the
later ones may be. `lag` counts the records that are not.

Errors:
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.
    UNKNOWN_TOPIC_OR_PARTITION: for a partition: it does not exist.

Versions:
    0 (4.1): flexible.
    1 (4.2): `lag` (KIP-1226).

Source: GroupCoordinatorService.java, describeShareGroupOffsets.
"""

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
    """``None``: all partitions for which the group has a state."""


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = wire(Array(DescribeShareGroupOffsetsRequestGroup))


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = wire(Int32)
    start_offset: int = wire(Int64)
    """All records before it are processed; -1: not decided yet, because no member has fetched."""
    leader_epoch: int = wire(Int32)
    """Epoch of the leader that last stored the state."""
    lag: int = wire(Int64, "1+", default=-1, ignorable=True)
    """Offsets from `start_offset` to the end of the log, without processed ones; -1: unknown."""
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
