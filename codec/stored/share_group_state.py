"""Records of ``__share_group_state``: the delivery state of share groups (KIP-932, Kafka 4.2).

A share partition is a partition as one share group reads it. For each record from `start_offset` on, the partition's
leader keeps whether it is available, acknowledged or archived, and stores that with the share coordinator, by
WriteShareGroupState requests. The coordinator writes a snapshot of each share partition now and then (type 0), with the
complete state, and updates (type 1) in between, with the changes. A snapshot makes the records before it superfluous,
and they are deleted. A null value with a snapshot's key ends the state. The partition of this topic follows from a hash
of group, topic id and partition.

Source: ShareCoordinatorRecordHelpers.java, ShareCoordinatorShard.java, ShareGroupOffset.java.
"""

import uuid

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, Uuid, message, struct, wire

DELIVERY_STATES = {0: "available", 2: "acknowledged", 4: "archived"}
"""4: delivered too often, or rejected; it is not delivered again."""


@message(key=0, versions="0")
class ShareSnapshotKey:
    """Type 0: the whole state of a share partition."""

    group_id: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid)
    partition: int = wire(Int32)


@struct
class StateBatch:
    """Records from `first_offset` to `last_offset`, both inclusive, with the same state."""

    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    delivery_state: int = wire(Int8)
    """One of `DELIVERY_STATES`; records that are being delivered count as available here."""
    delivery_count: int = wire(Int16)
    """How many times they were delivered."""


@message(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int = wire(Int32)
    """Counts the snapshots of this share partition."""
    state_epoch: int = wire(Int32)
    """Rises when the state is initialized again, so that late writes for the old state are refused."""
    leader_epoch: int = wire(Int32)
    """Epoch of the partition's leader that wrote the state."""
    start_offset: int = wire(Int64)
    """All records before it are processed; -1 if it is not known yet."""
    delivery_complete_count: int = wire(Int32, default=-1, tag=0)
    """How many records from `start_offset` on are processed (4.2, KIP-1226); -1 if it is unknown."""
    create_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""
    write_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))


@message(key=1, versions="0")
class ShareUpdateKey:
    """Type 1: changes since the snapshot."""

    group_id: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid)
    partition: int = wire(Int32)


@message(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int = wire(Int32)
    """The snapshot that the update belongs to."""
    leader_epoch: int = wire(Int32)
    """Epoch of the partition's leader that wrote the state."""
    start_offset: int = wire(Int64)
    """-1: unchanged."""
    delivery_complete_count: int = wire(Int32, default=-1, tag=0)
    """How many records from the start on are processed (4.2, KIP-1226); -1 if it is unknown."""
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))
    """The batches that changed."""
