"""Stores transactions as records of `__transaction_state` in Kafka's own format, and loads them.

Source: TransactionLog.java, TransactionStateManager.scala (loadTransactionMetadata).
"""

import logging

from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, KeyedRecord
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_metadata import TransactionalIdState, TransactionMetadata
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed
from ottla.codec.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.codec.wire import api
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite.transactions")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 2**20), "max.message.bytes": str(64 * 2**20)}
"""The topic's configuration, the same as that of `__consumer_offsets`."""

_VERSION = 1
"""The version of record values. Kafka 4.3 writes this one, which has the fields of KIP-890."""
_STATES = {
    TransactionalIdState.EMPTY: 0,
    TransactionalIdState.ONGOING: 1,
    TransactionalIdState.PREPARE_COMMIT: 2,
    TransactionalIdState.PREPARE_ABORT: 3,
    TransactionalIdState.COMPLETE_COMMIT: 4,
    TransactionalIdState.COMPLETE_ABORT: 5,
}
_BY_NUMBER = {number: state for state, number in _STATES.items()}


class TransactionLog:
    """Writes and loads the log of all transactional ids."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log

    def store(self, transaction: TransactionMetadata, gone: bool) -> None:
        """Write a transaction's state, or a tombstone if it is ``gone``.

        Raises:
            BrokerError: the disk refused.
        """
        key = TransactionLogKey(transactional_id=transaction.transactional_id)
        number = api(TransactionLogKey).key.to_bytes(SIZE, "big")
        value = None if gone else build_prefixed(_value(transaction), _VERSION)
        self._log.write([(number + messages.build(key, 0), value)])

    def load(self, transactions: dict[str, TransactionMetadata]) -> None:
        """Put the stored transactions into ``transactions``."""
        for entry in self._log.load().entries:
            try:
                transaction = _transaction(entry)
            except DecodeError as error:
                log.error("damaged record of %s skipped: %s", self._log.name, error)
            else:
                transactions[transaction.transactional_id] = transaction


def _value(transaction: TransactionMetadata) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    partitions = tuple(PartitionsSchema(topic=topic, partition_ids=tuple(ids)) for topic, ids in topics.items())
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        next_producer_epoch=0 if transaction.next_producer_id >= 0 else -1,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=_STATES[transaction.state],
        transaction_partitions=None if transaction.state is TransactionalIdState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated,
        transaction_start_timestamp_ms=transaction.started,
        client_transaction_version=transaction.version,
    )


def _transaction(entry: KeyedRecord) -> TransactionMetadata:
    name, _ = messages.parse(TransactionLogKey, 0, entry.key, SIZE)
    _, value, _ = parse_prefixed(TransactionLogValue, entry.value or b"")
    if (state := _BY_NUMBER.get(value.transaction_status)) is None:
        raise DecodeError(f"{name.transactional_id} is in unknown state {value.transaction_status}")
    places: list[TopicPartition] = [
        (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
    ]
    return TransactionMetadata(
        transactional_id=name.transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=tuple(places),
        started=value.transaction_start_timestamp_ms,
        updated=value.transaction_last_update_timestamp_ms,
        version=value.client_transaction_version,
    )
