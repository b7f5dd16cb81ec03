"""ShareAcknowledge (key 79): report to the leader the results of records acquired with ShareFetch (KIP-932).

Sent by a member of a share group (Java's ShareConsumer, commitSync and commitAsync) to the leader of the partitions, if
it has nothing to fetch; otherwise ShareFetch carries acknowledgements too. When the response comes, they are stored.

It belongs to the share session that ShareFetch opened, and shares its epochs: each request of the session, of either
kind, raises the epoch by one. It cannot open a session. Epoch -1 closes the session, and the records that the member
still holds become available.

Errors:
    INVALID_RECORD_STATE: some of the records were not locked for this member; the lock may have expired, and another
        member may have them now. No acknowledgement of the partition counts.
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH: the leader lost the session, or a request: open a new session
        with ShareFetch. Records that were locked in the old one become available when the locks expire.
    INVALID_REQUEST: batches out of order or overlapping, or a number of types other than one, or one for each offset.
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH: the leader has moved, and the locks are gone with it.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: refresh the metadata.

Versions:
    1 (4.1): flexible. Version 0 was an early access in 4.0, and was removed.
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
    """-1: close the session. Otherwise one more than in the last request of the session."""
    is_renew_ack: bool = wire(Boolean, "2+", default=False)
    """An acknowledgement is a renewal."""
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
    """How long renewed locks last from now on."""
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = wire(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint))
    """Addresses of the leaders named in `current_leader`."""
