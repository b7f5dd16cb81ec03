"""Records of ``__share_group_state``: what share groups were delivered, and what became of it (KIP-932, Kafka 4.2).

A share partition is a partition as one share group reads it. Its leader keeps, for each record from `start_offset` on,
whether it may be delivered, was acknowledged, or was given up; the share coordinator keeps that here, where the
leader writes it with WriteShareGroupState. Of each share partition there are a snapshot now and then (type 0), which is
all there is to know, and updates (type 1) after it, which hold what changed; a snapshot makes what is before it
superfluous, and such records are deleted. A null value under a snapshot's key ends the state. A share partition
belongs to the partition that a hash of group, topic id and partition gives.

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
    """Records from `first_offset` to `last_offset`, both inclusive, that are in the same state."""

    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    delivery_state: int = wire(Int8)
    """As `DELIVERY_STATES` says; records that are out for delivery count as available here."""
    delivery_count: int = wire(Int16)
    """How often they were delivered."""


@message(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int = wire(Int32)
    """Counts the snapshots of this share partition."""
    state_epoch: int = wire(Int32)
    """Rises when the state is begun again, so that late writes for the old one are refused."""
    leader_epoch: int = wire(Int32)
    """Of the partition's leader that wrote."""
    start_offset: int = wire(Int64)
    """All before it is done with; -1 where it is not known yet."""
    delivery_complete_count: int = wire(Int32, default=-1, tag=0)
    """How many records from `start_offset` on are done with (4.2, KIP-1226); -1 where it is unknown."""
    create_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""
    write_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))


@message(key=1, versions="0")
class ShareUpdateKey:
    """Type 1: what changed since the snapshot."""

    group_id: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid)
    partition: int = wire(Int32)


@message(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int = wire(Int32)
    """The snapshot that it adds to."""
    leader_epoch: int = wire(Int32)
    """Of the partition's leader that wrote."""
    start_offset: int = wire(Int64)
    """-1: as it was."""
    delivery_complete_count: int = wire(Int32, default=-1, tag=0)
    """How many records from the start on are done with (4.2, KIP-1226); -1 where it is unknown."""
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))
    """Those that changed."""
