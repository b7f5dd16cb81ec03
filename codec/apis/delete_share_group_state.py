"""DeleteShareGroupState (key 86): delete the state of a share group for partitions (KIP-932).

Brokers only: sent by the group coordinator to the share coordinator when a share group (DeleteGroups) or some of its
topics (DeleteShareGroupOffsets) are deleted. Requires the right to CLUSTER_ACTION. Deleting a state that does not exist
succeeds.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION: the share coordinator does not know the partition.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (4.1): flexible.

Source: ShareCoordinatorShard.java, deleteState.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)


@struct
class DeleteStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[DeleteStateData, ...] = wire(Array(DeleteStateData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class DeleteStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: tuple[DeleteStateResult, ...] = wire(Array(DeleteStateResult))
