"""ShareAcknowledge (key 79): tell the leader what became of records acquired with ShareFetch, without fetching more.

Sent by a member of a share group (Java's ShareConsumer, commitSync and commitAsync) to the leader of the partitions,
when it has nothing to fetch; otherwise acknowledgements ride on ShareFetch. When the answer comes, they are stored.

It belongs to the share session that ShareFetch opened, and takes part in its epochs: each request of the session, of
either kind, raises the epoch by one. It cannot open a session. With epoch -1 it closes the session, and the records
that the member still holds become available.

Errors:
    INVALID_RECORD_STATE: some of the records were not locked for this member; the lock may have run out, and somebody
        else have them now. None of the partition's acknowledgements counts.
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH: the leader lost the session, or a request: open a new one with
        ShareFetch. What was locked in the old one becomes available once the locks run out.
    INVALID_REQUEST: batches out of order or overlapping, or another number of types than one or one for each offset.
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH: the leader moved, and the locks are gone with it.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: refresh the metadata.

Versions:
    1 (4.1): flexible. Version 0 was an early access in 4.0, and is gone.
    2 (4.2): `RENEW`, `is_renew_ack`, `acquisition_lock_timeout_ms` (KIP-1222).

Source: KafkaApis.scala, handleShareAcknowledgeRequest; SharePartitionManager.java; KIP-932.
"""

import uuid

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, Nested, String, Uuid, message, struct, wire


@struct
class AcknowledgementBatch:
    """Batches of a partition ascend and do not overlap."""

    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    """Inclusive."""
    acknowledge_types: tuple[int, ...] = wire(Array(Int8))
    """0: gap. 1: accept. 2: release. 3: reject. 4: renew (v2+). One for all offsets of the batch, or one for each.
    `share_fetch.py` names and explains them."""


@struct
class AcknowledgePartition:
    partition_index: int = wire(Int32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(Array(AcknowledgementBatch))


@struct
class AcknowledgeTopic:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[AcknowledgePartition, ...] = wire(Array(AcknowledgePartition))


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = wire(String, null="0+", default=None)
    """Brokers refuse ``None``."""
    member_id: str | None = wire(String, null="0+")
    """As in ShareGroupHeartbeat, a UUID; brokers refuse ``None``."""
    share_session_epoch: int = wire(Int32)
    """-1: close the session. Else one more than in the last request of the session."""
    is_renew_ack: bool = wire(Boolean, "2+", default=False)
    """Some acknowledgement is a renewal."""
    topics: tuple[AcknowledgeTopic, ...] = wire(Array(AcknowledgeTopic))


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32)
    """-1: not known."""
    leader_epoch: int = wire(Int32)


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch))
    """Set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH."""


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    """How long renewed locks hold from now on."""
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = wire(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint))
    """Where the leaders named in `current_leader` listen."""
