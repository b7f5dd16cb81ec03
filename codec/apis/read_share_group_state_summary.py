"""ReadShareGroupStateSummary (key 87): a share group's progress in partitions, without single records (KIP-932).

Brokers only: sent by the group coordinator to the share coordinator, to answer DescribeShareGroupOffsets. Requires the
right to CLUSTER_ACTION. Unlike ReadShareGroupState it does not take over the state.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION: the share coordinator does not know the partition, or not yet.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (4.1): flexible.
    1 (4.2): `delivery_complete_count` (KIP-1226).

Source: ShareCoordinatorShard.java, readStateSummary.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class ReadStateSummaryData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = wire(String)
    topics: tuple[ReadStateSummaryData, ...] = wire(Array(ReadStateSummaryData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    state_epoch: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    """Epoch of the leader that last wrote."""
    start_offset: int = wire(Int64)
    """All records before it are processed; -1: not decided yet."""
    delivery_complete_count: int = wire(Int32, "1+", default=-1, ignorable=True)
    """Number of offsets from `start_offset` on that are acknowledged or archived; -1: unknown."""


@struct
class ReadStateSummaryResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: tuple[ReadStateSummaryResult, ...] = wire(Array(ReadStateSummaryResult))
