"""TxnOffsetCommit (key 28): store a consumer's progress as part of a transaction.

Sent by a transactional producer (Producer.sendOffsetsToTransaction) to the coordinator of the consumer's group, to
consume, transform and produce exactly once: the offsets take effect when the transaction commits, and are dropped if it
aborts. Until then OffsetFetch returns the previous offsets, or UNSTABLE_OFFSET_COMMIT if the request asks for stable
ones.

Up to v4 the producer first sends AddOffsetsToTxn to its transaction's coordinator. From v5 on this request does that
itself, so a producer may use v5 in a transaction only if the feature `transaction.version` is at least 2. Then each
transaction bumps the producer's epoch.

A group's membership is checked only if the request names it (v3+): so a zombie whose partitions were taken away gets an
error here. Without it (generation -1, no member id) the offsets are accepted unchecked.

Errors:
    ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID: the consumer no longer owns what it
        read: abort the transaction, and let the consumer rejoin.
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED: another producer has taken over the transactional id: close this one.
    INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING: the coordinator of the transaction knows no such transaction.
    TRANSACTION_ABORTABLE: abort this transaction; the next one may succeed.
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: retry after a pause. Before v2 it is sent as COORDINATOR_NOT_AVAILABLE, because old
        clients crash on it.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: deleted, or not known to this broker yet: retry.
    GROUP_ID_NOT_FOUND: the request names a member, and the group does not exist; ILLEGAL_GENERATION before v6.
    OFFSET_METADATA_TOO_LARGE: `committed_metadata` is longer than `offset.metadata.max.bytes`.
    UNSUPPORTED_FOR_MESSAGE_FORMAT: `__consumer_offsets` has a format older than batches v2.

Versions:
    0 (0.11.0)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.1): `committed_leader_epoch` (KIP-320).
    3 (2.5): flexible; generation, member and instance id fence zombies (KIP-447).
    4 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).
    5 (4.0): the same bytes; adds the group to the transaction itself (KIP-890).
    6 (4.4): topics by id; GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH under their own names (KIP-1319).

Source: KafkaApis.scala, handleTxnOffsetCommitRequest; OffsetMetadataManager.java, validateTransactionalOffsetCommit.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    """Offset of the next record to read: one past the last record processed."""
    committed_leader_epoch: int = wire(Int32, "2+", default=-1, ignorable=True)
    """Leader epoch of the last record processed, to notice truncation later; -1: unknown."""
    committed_metadata: str | None = wire(String, null="0+")
    """Free text that OffsetFetch returns."""


@struct
class TxnOffsetCommitRequestTopic:
    name: str = wire(String, "0-5", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "6+", default=NO_UUID, ignorable=True)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(Array(TxnOffsetCommitRequestPartition))


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = wire(String)
    group_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    generation_id_or_member_epoch: int = wire(Int32, "3+", default=-1)
    """The generation of a classic group, or the member epoch (KIP-848); -1: do not check. Called `generation_id` up to
    v5."""
    member_id: str = wire(String, "3+", default="")
    """From the consumer's group metadata; ``""``: do not check."""
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(Array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class TxnOffsetCommitResponseTopic:
    name: str = wire(String, "0-5", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "6+", default=NO_UUID, ignorable=True)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(Array(TxnOffsetCommitResponsePartition))


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(Array(TxnOffsetCommitResponseTopic))
