"""InitializeShareGroupState (key 83): start or restart the state of a share group for partitions (KIP-932).

Brokers only: sent by the group coordinator to the share coordinator (FindCoordinator, `SHARE`) when a share group is
about to read partitions for the first time, and for AlterShareGroupOffsets. Requires the right to CLUSTER_ACTION.

The share coordinator keeps, in `__share_group_state`, for each group and partition: the start offset, the state of the
records after it, and two epochs that fence late writers. The group coordinator owns the state epoch, and raises it with
each initialization. The partition's leader owns the leader epoch: it reads the state (ReadShareGroupState) and then
writes it (WriteShareGroupState).

Errors:
    FENCED_STATE_EPOCH: the state already has a higher state epoch: a later initialization came first.
    UNKNOWN_TOPIC_OR_PARTITION: the share coordinator does not know the partition, or not yet.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (4.1): flexible.

Source: ShareCoordinatorShard.java, initializeState.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)
    state_epoch: int = wire(Int32)
    start_offset: int = wire(Int64)
    """The first offset to deliver; -1: the leader finds it by `share.auto.offset.reset`."""


@struct
class InitializeStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[InitializeStateData, ...] = wire(Array(InitializeStateData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: tuple[InitializeStateResult, ...] = wire(Array(InitializeStateResult))
