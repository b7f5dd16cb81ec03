"""Assigns producer ids, each of them once in the life of the data folder."""

from ottla.brokerlite.machines.topics.topics import Storage

PRODUCER_ID_BLOCK = 1000
"""Producer ids that are reserved on disk in one step, as in Kafka."""


class ProducerIds:
    """Assigns the producer ids of one broker."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._reserved = range(0)

    def assign(self) -> int:
        """Return a producer id that was never used.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if not self._reserved:
            first = self._storage.reserve_producer_ids(PRODUCER_ID_BLOCK)
            self._reserved = range(first, first + PRODUCER_ID_BLOCK)
        assigned, self._reserved = self._reserved[0], self._reserved[1:]
        return assigned
