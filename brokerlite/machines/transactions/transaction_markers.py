"""Writes the markers that end transactions, into the partitions and for the committed offsets."""

import logging
from collections.abc import Callable, Iterator

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.groups.offsets import Offsets
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS, TopicPartition, Topics
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES, TransactionMetadata
from ottla.errors import BrokerError, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")


class TransactionMarkers:
    """Writes transaction markers.

    Args:
        own_log: the coordinator's log, whose leader epoch is the coordinator's epoch.
        grown: called with a partition that got a marker.
    """

    def __init__(
        self, topics: Topics, offsets: Offsets, own_log: KeyedLog, clock: Clock, grown: Callable[[PartitionLog], None]
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._own_log = own_log
        self._clock = clock
        self._grown = grown

    def write(
        self,
        place: TopicPartition,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        newer: bool = False,
    ) -> None:
        """End a transaction in one partition, as `PartitionLog.end_transaction`.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
            InvalidProducerEpoch, TransactionCoordinatorFenced: the marker is out of date.
            KafkaStorageError: the disk refused.
        """
        if (partition := self._topics.partition(*place)) is None:
            raise self._topics.missing(place[0])
        partition.end_transaction(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.timestamp,
            now=self._clock.now,
            newer=newer,
        )
        if place[0] == CONSUMER_OFFSETS:
            self._offsets.end_transaction(producer_id, commit=commit)
        self._grown(partition)

    def write_all(self, transaction: TransactionMetadata) -> Iterator[TopicPartition]:
        """Write the markers of a transaction; yield the partitions whose marker the disk refused."""
        own = self._own_log.topic().partitions[0].epochs.current
        for place in transaction.partitions:
            partition = self._topics.partition(*place)
            known = partition.producers.entries.get(transaction.producer_id) if partition else None
            # An administrator's marker may have had any epoch; no other coordinator exists that could be newer.
            coordinator_epoch = own if known is None else max(own, known.coordinator_epoch)
            try:
                self.write(
                    place,
                    transaction.producer_id,
                    transaction.epoch,
                    commit=transaction.commits,
                    coordinator_epoch=coordinator_epoch,
                    newer=transaction.version >= EPOCH_RISES,
                )
            except KafkaStorageError:
                yield place
            except BrokerError as error:  # the topic is gone, or an administrator has ended the transaction there
                log.info("transaction marker for %s-%d skipped: %s", *place, error)
