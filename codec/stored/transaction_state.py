"""Records of ``__transaction_state``: the transactions of a transaction coordinator.

The topic is compacted: of each transactional id only the last record counts, and a null value deletes the id (it has
not been used for `transactional.id.expiration.ms`, 7 days). A transactional id belongs to one partition: Java's hash of
it, modulo the number of partitions (50). The leader of that partition is its coordinator.

The coordinator writes each change of state before it acts on it, so that its successor knows the remaining work: for a
transaction in `prepare_commit` it writes the markers again, and it aborts a transaction that is `ongoing` for longer
than its timeout. The states of a transaction in order: empty, ongoing (one more record whenever a partition is added),
prepare_commit or prepare_abort, complete_commit or complete_abort, and ongoing again.

Versions of TransactionLogValue:
    0 (0.11.0)
    1 (3.5): flexible (KIP-915); the tagged fields came with 4.0, for transactions that bump the epoch each time
        (KIP-890), and for two-phase commit (KIP-939).

Source: TransactionLog.java, TransactionMetadata.java, TransactionStateManager.scala.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, message, struct, wire

TRANSACTION_STATES = {
    0: "empty",
    1: "ongoing",
    2: "prepare_commit",
    3: "prepare_abort",
    4: "complete_commit",
    5: "complete_abort",
    6: "dead",
    7: "prepare_epoch_fence",
}
"""2, 3: decided, and the markers are being written. 4, 5: the markers are written. 6: the id is being deleted."""


@message(key=0, versions="0")
class TransactionLogKey:
    """Type 0, the only one."""

    transactional_id: str = wire(String)


@struct
class PartitionsSchema:
    topic: str = wire(String)
    partition_ids: tuple[int, ...] = wire(Array(Int32))


@message(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int = wire(Int64)
    previous_producer_id: int = wire(Int64, "1+", default=-1, tag=0)
    """Producer id of the last completed transaction, if the id has changed since; -1 for none."""
    next_producer_id: int = wire(Int64, "1+", default=-1, tag=1)
    """The producer's next id, if the epochs of the current one are used up; -1 for none."""
    producer_epoch: int = wire(Int16)
    next_producer_epoch: int = wire(Int16, "1+", default=-1, tag=3)
    """The epoch that goes with `next_producer_id`; -1 for none."""
    transaction_timeout_ms: int = wire(Int32)
    """After this time the coordinator aborts a transaction, in milliseconds."""
    transaction_status: int = wire(Int8)
    """One of `TRANSACTION_STATES`."""
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire(Array(PartitionsSchema), null="0+")
    """Partitions that take part and still need a marker; ``None`` in the states without a transaction."""
    transaction_last_update_timestamp_ms: int = wire(Int64)
    """Milliseconds since 1970."""
    transaction_start_timestamp_ms: int = wire(Int64)
    """Milliseconds since 1970; -1 without a transaction."""
    client_transaction_version: int = wire(Int16, "1+", default=0, tag=2)
    """0 and 1: the producer's epoch does not change. 2: each transaction bumps it (KIP-890)."""
