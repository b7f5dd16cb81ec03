"""ShareFetch (key 78): acquire records for one member of a share group, and acknowledge earlier ones (KIP-932).

Sent by a member (Java's ShareConsumer) to the leaders of its partitions (ShareGroupHeartbeat). Unlike Fetch it names no
offsets: the leader chooses records that are available, and locks them for this member for `acquisition_lock_timeout_ms`
(`group.share.record.lock.duration.ms`, 30 s). In that time the member acknowledges them, here or with ShareAcknowledge;
otherwise they become available to any member again. A record that was delivered `group.share.delivery.count.limit` (5)
times is archived.

`records` are whole batches of the log, so they may contain more than was acquired: only the records within
`acquired_records` belong to the member; skip the rest. An acquired offset without a record in the batches (compacted
away, or a control record) must be acknowledged too, as `GAP`.

A member has one share session with each leader, which remembers the partitions. The request with epoch 0 opens it, and
names all of them. Each later request raises the epoch by one (after 2**31 - 1 comes 1) and names only partitions that
are added, acknowledged, or removed. Epoch -1 closes the session, and releases the records that the member still holds.

Errors:
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH: the leader lost the session, or a request: open a new session
        with epoch 0. Acknowledgements in flight are lost.
    SHARE_SESSION_LIMIT_REACHED: the broker has `group.share.max.share.sessions` open: try again after a pause.
    INVALID_REQUEST: acknowledgements in the request that opens a session, or batches of them out of order.
    INVALID_RECORD_STATE: as `acknowledge_error_code`: some of the records are not, or no longer, locked for this
        member. No acknowledgement of the partition counts.
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH: go to `current_leader`, or refresh the metadata.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: refresh the metadata.

Versions:
    1 (4.1): flexible. Version 0 was an early access in 4.0, and was removed.
    2 (4.2): `share_acquire_mode` (KIP-1206); `RENEW` and `is_renew_ack` (KIP-1222).

Source: KafkaApis.scala, handleShareFetchRequest; SharePartitionManager.java; SharePartition.java; KIP-932.
"""

import uuid

from ottla.codec.wire import (
    Array,
    Boolean,
    Buffer,
    Int8,
    Int16,
    Int32,
    Int64,
    Nested,
    Records,
    String,
    Uuid,
    message,
    struct,
    wire,
)

GAP = 0
"""The offset has no record."""
ACCEPT = 1
"""Processed: never deliver it again."""
RELEASE = 2
"""Not processed: deliver it again, to any member."""
REJECT = 3
"""Cannot be processed: archive it."""
RENEW = 4
"""Not yet processed: keep it locked for another `acquisition_lock_timeout_ms` (v2+)."""

BATCH_OPTIMIZED = 0
"""`max_records` is approximate: whole batches are acquired."""
RECORD_LIMIT = 1
"""`max_records` is a strict limit: a batch may be acquired in part."""


@struct
class AcknowledgementBatch:
    """Batches of a partition ascend and do not overlap."""

    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    """Inclusive."""
    acknowledge_types: tuple[int, ...] = wire(Array(Int8))
    """`GAP`, `ACCEPT`, `RELEASE`, `REJECT` or `RENEW`: one for all offsets of the batch, or one for each."""


@struct
class FetchPartition:
    partition_index: int = wire(Int32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(Array(AcknowledgementBatch))


@struct
class FetchTopic:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[FetchPartition, ...] = wire(Array(FetchPartition))


@struct
class ForgottenTopic:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = wire(String, null="0+", default=None)
    """Brokers refuse ``None``."""
    member_id: str | None = wire(String, null="0+")
    """As in ShareGroupHeartbeat, a UUID; brokers refuse ``None``."""
    share_session_epoch: int = wire(Int32)
    """0: open a session. -1: close it. Otherwise one more than in the last request."""
    max_wait_ms: int = wire(Int32)
    """How long the leader may wait for `min_bytes`."""
    min_bytes: int = wire(Int32)
    max_bytes: int = wire(Int32, default=2**31 - 1)
    """For all partitions together; the first batch may exceed it."""
    max_records: int = wire(Int32)
    """How many records to acquire, Java's `max.poll.records`; `share_acquire_mode` says how strictly."""
    batch_size: int = wire(Int32)
    """How many records an element of `acquired_records` should cover; whole batches of the log are not cut for it."""
    share_acquire_mode: int = wire(Int8, "2+", default=BATCH_OPTIMIZED, ignorable=True)
    """`BATCH_OPTIMIZED` or `RECORD_LIMIT`."""
    is_renew_ack: bool = wire(Boolean, "2+", default=False)
    """An acknowledgement is `RENEW`. Then the leader returns no records, and `max_wait_ms`, `min_bytes`, `max_bytes`
    and `max_records` must be 0."""
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    """Partitions to add to the session, or with acknowledgements."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic))
    """Partitions to remove from the session."""


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32)
    """-1: not known."""
    leader_epoch: int = wire(Int32)


@struct
class AcquiredRecords:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    """Inclusive."""
    delivery_count: int = wire(Int16)
    """1 at the first delivery."""


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    """Error of the fetch."""
    error_message: str | None = wire(String, null="0+", default=None)
    acknowledge_error_code: int = wire(Int16)
    """Error of the acknowledgements; the fetch may still have succeeded."""
    acknowledge_error_message: str | None = wire(String, null="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch))
    """Set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH."""
    records: Buffer | None = wire(Records, null="0")
    """Record batches of the log; empty if no record was acquired."""
    acquired_records: tuple[AcquiredRecords, ...] = wire(Array(AcquiredRecords))


@struct
class ShareFetchableTopicResponse:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(Int32)
    """Counts from when the leader acquired the records."""
    responses: tuple[ShareFetchableTopicResponse, ...] = wire(Array(ShareFetchableTopicResponse))
    """Partitions of the session with records, errors, or acknowledgements."""
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint))
    """Addresses of the leaders named in `current_leader`."""
