"""ReadShareGroupState (key 84): read the state of a share group for a partition, to continue from there (KIP-932).

Brokers only: sent by a partition's leader to the share coordinator when the group first reads the partition from it.
Requires the right to CLUSTER_ACTION. Reading also takes over: the coordinator stores `leader_epoch`, and from then on
refuses earlier leaders.

Errors:
    FENCED_LEADER_EPOCH: a later leader has read the state: stop.
    UNKNOWN_TOPIC_OR_PARTITION: the share coordinator does not know the partition, or not yet.
    INVALID_REQUEST: no state was initialized (InitializeShareGroupState).
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (4.1): flexible.

Source: ShareCoordinatorShard.java, readStateAndMaybeUpdateLeaderEpoch.
"""

import uuid

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    """Epoch of the leader that asks."""


@struct
class ReadStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[ReadStateData, ...] = wire(Array(ReadStateData))


@struct
class StateBatch:
    """Records in one state. Records after `start_offset` that are in no batch are available, never delivered."""

    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    """Inclusive."""
    delivery_state: int = wire(Int8)
    """0: available. 2: acknowledged. 4: archived, so never delivered again. (Locks are not stored.)"""
    delivery_count: int = wire(Int16)


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    state_epoch: int = wire(Int32)
    """Send it with each WriteShareGroupState."""
    start_offset: int = wire(Int64)
    """All records before it are processed; -1: undecided, the leader finds it by `share.auto.offset.reset`."""
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))


@struct
class ReadStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: tuple[ReadStateResult, ...] = wire(Array(ReadStateResult))
