"""A persistent table: key -> last value, stored as the records of an internal topic.

Theory of operation: the topic has one partition, is compacted, and is created with the first record. The owner of a
table writes a record before it changes its memory or answers a client. At a start the log is read from its beginning,
and the last value of each key is valid. Records of a transaction become valid with its commit marker.

Rules:
- Records that are written together are one batch, so after a crash all of them are there or none.
- Of two values of a key, the one with the higher offset is valid, even if it was committed first.
- A damaged batch is skipped and logged: earlier values of its keys stay valid.

Source: CoordinatorRuntime.java, CoordinatorLoaderImpl.java; OffsetMetadataManager.java (replayEndTransactionMarker).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.partitions.producers import end_marker
from ottla.brokerlite.machines.topics.topics import TopicLogs, Topics
from ottla.codec.records import BatchBuilder, RecordBatch
from ottla.codec.stored.control import COMMIT

log = logging.getLogger("ottla.brokerlite")

Pair = tuple[bytes, bytes | None]
"""Key and value of a record."""


class Transactional(NamedTuple):
    """The producer whose open transaction the records belong to."""

    producer_id: int
    epoch: int


class KeyedRecord(NamedTuple):
    """A record of the log."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Loaded:
    """The content of a log.

    Attributes:
        entries: the last value of each key.
        complete: whether no record is known to be damaged or missing.
        damaged_offset: the last offset at which one is, -1 for none: values before it may be outdated, those behind it
            are not.
        pending: producer id -> the records of its open transaction.
    """

    entries: list[KeyedRecord] = field(default_factory=list)
    complete: bool = True
    damaged_offset: int = -1
    pending: dict[int, list[KeyedRecord]] = field(default_factory=dict)


class KeyedLog:
    """Writes and loads the log behind one table.

    Args:
        name, configs: the topic's name and configuration.
        grown: called when records were added, so that waiting fetches notice them.
    """

    def __init__(
        self,
        name: str,
        configs: Mapping[str, str],
        topics: Topics,
        clock: Clock,
        grown: Callable[[PartitionLog], None],
    ) -> None:
        self.name = name
        self._configs = configs
        self._topics = topics
        self._clock = clock
        self._grown = grown

    def topic(self) -> TopicLogs:
        """Return the topic; create it if it does not exist.

        Raises:
            KafkaStorageError: the disk refused.
        """
        return self._topics.own(self.name, self._configs)

    def write(self, pairs: Iterable[Pair], transactional: Transactional | None = None) -> int:
        """Store a batch; return the offset of the first record.

        Raises:
            KafkaStorageError: the disk refused.
        """
        partition = self.topic().partitions[0]
        builder = BatchBuilder()
        for key, value in pairs:
            builder.append(self._clock.timestamp, key, value)
        if transactional is None:
            batch = builder.build()
        else:
            producer_id, epoch = transactional
            batch = builder.build(producer_id=producer_id, producer_epoch=epoch, transactional=True)
        stored = partition.append_own(batch, self._clock.now)
        self._grown(partition)
        return stored.base_offset

    def load(self) -> Loaded:
        """Read the whole log.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if (topic := self._topics.find_own(self.name)) is None:
            return Loaded(complete=self.name not in self._topics.unserved)
        self._topics.configure_own(topic, self._configs)
        newest: dict[bytes, KeyedRecord] = {}
        pending: dict[int, list[KeyedRecord]] = {}
        for batch in topic.partitions[0].batches():
            if batch.control:
                marker = end_marker(batch)
                decided = pending.pop(batch.producer_id, []) if marker is not None else []
                if marker is not None and marker.type == COMMIT:
                    _take(newest, decided)
            elif batch.transactional:
                pending.setdefault(batch.producer_id, []).extend(_entries(batch))
            else:
                _take(newest, _entries(batch))
        for producer_id, entries in pending.items():
            pending[producer_id] = [each for each in entries if not _is_forgotten(each, newest)]
        damaged = topic.partitions[0].segments.damaged_offset
        return Loaded([each for each in newest.values() if each.value is not None], damaged < 0, damaged, pending)

    def replay(self) -> Iterator[KeyedRecord]:
        """Yield each record in order: the values of this table build on each other. It has no transactions.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if (topic := self._topics.find_own(self.name)) is None:
            return
        self._topics.configure_own(topic, self._configs)
        for batch in topic.partitions[0].batches():
            if not batch.control and not batch.transactional:
                yield from _entries(batch)


def _is_forgotten(pending: KeyedRecord, newest: Mapping[bytes, KeyedRecord]) -> bool:
    """Return whether a tombstone for its key was written after it."""
    known = newest.get(pending.key)
    return known is not None and known.value is None and known.offset > pending.offset


def _entries(batch: RecordBatch) -> Iterator[KeyedRecord]:
    return (KeyedRecord(record.offset, record.key or b"", record.value) for record in batch.records())


def _take(newest: dict[bytes, KeyedRecord], entries: Iterable[KeyedRecord]) -> None:
    for entry in entries:
        known = newest.get(entry.key)
        if known is None or known.offset < entry.offset:
            newest[entry.key] = entry
