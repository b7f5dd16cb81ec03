"""Resolves transactions that are open in a partition but not at the coordinator.

Such a transaction means that the disk has lost a record of the partition or of the coordinator.

Rules:
- If the coordinator has the transaction without this partition, the partition is added: the producer can continue, or
  the transaction times out.
- Otherwise it is aborted: with `Settings.sync` records that the disk lost were never acknowledged. Without it the lost
  record may be the marker; then the transaction ends with the outcome that the coordinator knows.
- If the last transaction was decided and is not complete, the partition may have a batch of the next one. This is
  resolved once the decided one is complete.
"""

import logging

from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import TRANSACTION_STATE, TopicPartition, Topics
from ottla.brokerlite.machines.transactions.transaction_coordinator import TransactionCoordinator
from ottla.brokerlite.machines.transactions.transaction_markers import TransactionMarkers
from ottla.brokerlite.machines.transactions.transaction_metadata import (
    EPOCH_RISES,
    TransactionalIdState,
    TransactionMetadata,
)
from ottla.errors import BrokerError, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

_AGAIN = 1.0
"""Seconds until the check of hanging transactions is repeated, if the disk refused a marker."""


class HangingTransactions:
    """Compares the partitions with the coordinator after a start, and ends or adopts the transactions that differ.

    Args:
        synced: records that the disk lost were never acknowledged.
    """

    def __init__(
        self,
        topics: Topics,
        transactions: TransactionCoordinator,
        markers: TransactionMarkers,
        timers: Timers,
        *,
        synced: bool,
    ) -> None:
        self._topics = topics
        self._transactions = transactions
        self._markers = markers
        self._timers = timers
        self._synced = synced
        self._decided: set[str] = set()
        """Transactional ids whose last transaction was decided before the start and is not complete yet."""

    def note_decided(self) -> None:
        """Remember which transactions are decided, before the coordinator completes them."""
        self._decided.update(name for name, each in self._transactions.by_id.items() if each.is_decided)

    def completed(self, transactional_id: str, now: float) -> None:
        """Notice that a transaction is complete; check again if it was decided before the start."""
        if transactional_id in self._decided:
            self._decided.remove(transactional_id)
            self.check(now)

    def check(self, now: float) -> None:
        """Resolve every hanging transaction."""
        if TRANSACTION_STATE in self._topics.unserved:  # this topic has the outcomes
            return
        self._transactions.catch_up(self._highest_epochs())
        by_producer = {
            producer_id: each.transactional_id
            for each in self._transactions.by_id.values()
            for producer_id in (each.producer_id, each.next_producer_id)
        }
        again = False
        for topic in self._topics.by_name.values():
            for index, partition in enumerate(topic.partitions):
                place = topic.name, index
                for producer_id in list(partition.producers.ongoing):
                    known = self._transactions.by_id.get(by_producer.get(producer_id, ""))
                    if known is not None and (known.is_decided or self._is_part(place, partition, known)):
                        continue
                    again |= not self._end_or_join(place, partition, producer_id, known)
        if again:
            self._timers.set("hanging", now + _AGAIN, self.check)

    def _highest_epochs(self) -> dict[int, int]:
        """Return for each producer id the highest epoch of its records in any partition.

        Markers do not count: administrators may write markers of any epoch.
        """
        epochs: dict[int, int] = {}
        for topic in self._topics.by_name.values():
            for partition in topic.partitions:
                for producer_id, producer in partition.producers.entries.items():
                    if producer.batches:
                        epochs[producer_id] = max(producer.epoch, epochs.get(producer_id, producer.epoch))
        return epochs

    def _is_part(self, place: TopicPartition, partition: PartitionLog, known: TransactionMetadata) -> bool:
        """Return whether the open transaction in a partition is the one at the coordinator, with this partition."""
        return place in known.partitions and partition.producers.entries[known.producer_id].epoch == known.epoch

    def _end_or_join(
        self, place: TopicPartition, partition: PartitionLog, producer_id: int, known: TransactionMetadata | None
    ) -> bool:
        """Add the partition to the transaction, or end it there; return ``False`` if the disk refused."""
        epoch = partition.producers.entries[producer_id].epoch
        goes_on = known is not None and known.epoch == epoch
        if known is not None and goes_on and (not known.has_ended or known.version >= EPOCH_RISES):
            version = known.version if known.state is TransactionalIdState.ONGOING else EPOCH_RISES
            log.warning("%s-%d added to an open transaction: the coordinator had lost this partition", *place)
            self._transactions.joined(known.transactional_id, place, version)
            return True
        return self._end_lost(place, partition, producer_id, known)

    def _end_lost(
        self, place: TopicPartition, partition: PartitionLog, producer_id: int, known: TransactionMetadata | None
    ) -> bool:
        epoch = partition.producers.entries[producer_id].epoch
        has_lost_a_marker = (
            known is not None and known.has_ended and known.epoch - epoch == int(known.version >= EPOCH_RISES)
        )
        commit = known is not None and has_lost_a_marker and known.commits and not self._synced
        outcome = "committed" if commit else "aborted"
        log.warning("%s-%d has a transaction that is not open at its coordinator: %s", *place, outcome)
        coordinator_epoch = partition.producers.entries[producer_id].coordinator_epoch
        try:
            self._markers.write(place, producer_id, epoch, commit=commit, coordinator_epoch=max(0, coordinator_epoch))
        except BrokerError as error:
            log.error("writing the transaction marker of %s-%d failed: %s", *place, error)
            return not isinstance(error, KafkaStorageError)
        return True
