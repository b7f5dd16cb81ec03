"""InitializeShareGroupState (key 83): begin to keep a share group's state of partitions, or begin it again (KIP-932).

Brokers only: sent by the group coordinator to the share coordinator (FindCoordinator, `SHARE`) when a share group gets
to read partitions it never read, and for AlterShareGroupOffsets. Needs the right to cluster actions.

The share coordinator keeps, in `__share_group_state`, for each group and partition: the start offset, the state of the
records behind it, and two epochs that fence late writers. The state epoch belongs to the group coordinator, which
raises it with each initialization; the leader epoch to the partition's leader, which reads the state
(ReadShareGroupState) and then writes it (WriteShareGroupState).

Errors:
    FENCED_STATE_EPOCH: the state has a higher state epoch already: some later initialization was faster.
    UNKNOWN_TOPIC_OR_PARTITION: the share coordinator does not know the partition, perhaps not yet.
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
    """The first offset to deliver; -1: the leader shall find it by `share.auto.offset.reset`."""


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
