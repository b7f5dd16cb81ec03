"""WriteShareGroupState (key 85): store changes of a share group's state for a partition (KIP-932).

Brokers only: sent by a partition's leader to the share coordinator whenever records were acknowledged, released or
archived, before the member gets its response. Requires the right to CLUSTER_ACTION. Only changes are sent; the
coordinator merges them into the state, and writes a complete snapshot from time to time.

Errors:
    FENCED_LEADER_EPOCH: a later leader has read the state: stop.
    FENCED_STATE_EPOCH: the state was initialized again, for example by AlterShareGroupOffsets: read it again.
    UNKNOWN_TOPIC_OR_PARTITION: the share coordinator does not know the partition, or not yet.
    INVALID_REQUEST: no state was initialized (InitializeShareGroupState).
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (4.1): flexible.
    1 (4.2): `delivery_complete_count` (KIP-1226).

Source: ShareCoordinatorShard.java, writeState.
"""

import uuid

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class StateBatch:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    """Inclusive."""
    delivery_state: int = wire(Int8)
    """0: available. 2: acknowledged. 4: archived, so never delivered again. (Locks are not stored.)"""
    delivery_count: int = wire(Int16)


@struct
class PartitionData:
    partition: int = wire(Int32)
    state_epoch: int = wire(Int32)
    """From ReadShareGroupState."""
    leader_epoch: int = wire(Int32)
    """Epoch of the leader that writes."""
    start_offset: int = wire(Int64)
    """All records before it are processed; -1: unchanged."""
    delivery_complete_count: int = wire(Int32, "1+", default=-1, ignorable=True)
    """Number of offsets from `start_offset` on that are acknowledged or archived, to compute the lag; -1: unknown."""
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))


@struct
class WriteStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[WriteStateData, ...] = wire(Array(WriteStateData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class WriteStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: tuple[WriteStateResult, ...] = wire(Array(WriteStateResult))
