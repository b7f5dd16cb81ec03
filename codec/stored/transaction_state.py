"""Records of ``__transaction_state``: the transactions that a transaction coordinator looks after.

The topic is compacted: of each transactional id the last record holds, and a null value takes it back (it has not been
used for `transactional.id.expiration.ms`, 7 days). A transactional id belongs to the partition that Java's hash of it
gives, modulo the number of partitions (50), and whoever leads that partition coordinates it.

The coordinator writes each change of state before it acts upon it, so that whoever takes over knows what is left to do:
a transaction found in `prepare_commit` gets its markers written again, one found `ongoing` for longer than its timeout
is aborted. The way of a transaction: empty, ongoing (a record more whenever a partition joins), prepare_commit or
prepare_abort, complete_commit or complete_abort, and ongoing again.

Versions of TransactionLogValue:
    0 (0.11.0)
    1 (3.5): flexible (KIP-915); the tagged fields came with 4.0, for transactions whose epoch rises each time
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
"""2, 3: decided, and the markers are being written. 4, 5: they are written. 6: the id is being dropped."""


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
    """Of the last transaction that was completed, where the id has changed since; -1 for none."""
    next_producer_id: int = wire(Int64, "1+", default=-1, tag=1)
    """The id that the producer was given to go on with, where epochs of the present one are used up; -1 for none."""
    producer_epoch: int = wire(Int16)
    next_producer_epoch: int = wire(Int16, "1+", default=-1, tag=3)
    """The epoch beside `next_producer_id`; -1 for none."""
    transaction_timeout_ms: int = wire(Int32)
    """After how long the coordinator aborts a transaction, in milliseconds."""
    transaction_status: int = wire(Int8)
    """As `TRANSACTION_STATES` says."""
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire(Array(PartitionsSchema), null="0+")
    """Those that take part and still need a marker; ``None`` in the states without a transaction."""
    transaction_last_update_timestamp_ms: int = wire(Int64)
    """Milliseconds since 1970."""
    transaction_start_timestamp_ms: int = wire(Int64)
    """Milliseconds since 1970; -1 without a transaction."""
    client_transaction_version: int = wire(Int16, "1+", default=0, tag=2)
    """0 and 1: the producer's epoch stays. 2: it rises with every transaction (KIP-890)."""
