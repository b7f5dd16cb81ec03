"""Records of ``__transaction_state``: the transactions that a transaction coordinator looks after.

The topic is compacted: of each transactional id the last record holds, and a null value takes it back (the id has not
been used for a week). Which partition: a hash of the transactional id. The coordinator writes a record with each change
of state, before it acts on it; so whoever takes over its partition knows what is left to do.
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
    """Versions: 1: flexible (KIP-915), and what the second version of transactions needs (KIP-890)."""

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
