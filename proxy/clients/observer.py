"""Counts the keys of topics, and the keys outside the partition that the topic's partitioner chooses.

Rules:
- Records that pass unread are counted as their batch's header says, up to what its bytes may hold. Upstream checks that
  number. Message sets, of clients before Kafka 0.11, have no such header: only their bytes are counted.
- Clients choose their ids, so there is a bound on how many are counted apart (`ottla.server_metrics`).
"""

from dataclasses import dataclass

from ottla.codec.records import HEADER_SIZE, MAGIC, parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import BrokerError, DecodeError
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.opening import (
    MAGIC_AT,
    Opened,
    Opener,
    claimed_records,
    max_memory_of,
    plainly_claimed_records,
)
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.upstream.control import Control
from ottla.server_metrics import bounded


@dataclass(slots=True)
class Tally:
    """The counts of one topic."""

    records: int = 0
    keyless: int = 0
    misplaced: int = 0
    """Keys in another partition than the partitioner chooses; moved, or in mode `observe` only counted."""
    refused: int = 0
    """Batches that were refused, at least in part."""
    outcome_unknown: int = 0
    """Batches that may or may not be stored."""
    dropped: int = 0
    """Batches of disconnected clients that were not sent, because too many bytes were held."""
    unobserved: int = 0
    """Batches whose keys were not counted, because too many others were being read."""

    def count(self, records: int, keyless: int, misplaced: int) -> None:
        """Count the records of a batch."""
        self.records += records
        self.keyless += keyless
        self.misplaced += misplaced

    def count_refused(self) -> None:
        """Count a refused batch."""
        self.refused += 1

    def count_unknown(self) -> None:
        """Count a batch whose outcome is unknown."""
        self.outcome_unknown += 1

    def count_dropped(self) -> None:
        """Count a batch that was given up because its client has gone."""
        self.dropped += 1

    def count_unobserved(self) -> None:
        """Count a batch whose keys are not counted."""
        self.unobserved += 1


MOST = 4
"""The most batches that are read at a time only to be counted: threads are for rewritten batches first."""


class Tallies(dict[str, Tally]):
    """Topic -> its counts.

    Attributes:
        misplaced: (topic, client id) -> keys that the client put in another partition than the partitioner chooses.
        passed_records, passed_bytes: of record sets that were passed to upstream unchanged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.misplaced: dict[tuple[str, ...], int] = {}
        self.passed_records = self.passed_bytes = 0

    def __missing__(self, topic: str) -> Tally:
        return self.setdefault(topic, Tally())

    def count(self, topic: str, client_id: str | None, *, records: int, keyless: int, misplaced: int) -> None:
        """Count the records of a batch."""
        self[topic].count(records, keyless, misplaced)
        if misplaced:
            labels = bounded((topic, client_id or ""), self.misplaced)
            self.misplaced[labels] = self.misplaced.get(labels, 0) + misplaced

    def passed(self, data: Buffer | None) -> None:
        """Count a record set that passes unchanged."""
        if not data:
            return
        known = _has_header(data)
        self.count_passed(claimed_records(data) if known else 0, len(data))

    def count_passed(self, records: int, size: int) -> None:
        """Count the records and bytes of a record set that passes unchanged."""
        self.passed_records += records
        self.passed_bytes += size


def _has_header(data: Buffer) -> bool:
    """Whether the records begin with the header of a batch, as all do since Kafka 0.11."""
    return len(data) >= HEADER_SIZE and data[MAGIC_AT] == MAGIC


def records_of_head(data: Buffer, size: int) -> int | None:
    """The number of records of a record set of ``size`` bytes, as `Tallies.passed` counts them, from its beginning;
    ``None`` if that is not enough."""
    if not _has_header(data):
        return 0 if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC else None
    return plainly_claimed_records(data, size)


class Observer:
    """Counts the keys of topics in mode `observe`."""

    def __init__(
        self, tallies: Tallies, topics: RoutedTopics, control: Control, opener: Opener, buffered: Buffered
    ) -> None:
        self._tallies, self._topics, self._control = tallies, topics, control
        self._opener, self._buffered = opener, buffered
        self._under_way = 0
        """Batches that threads are reading."""

    def observe(self, origin: Origin, topic: str, partition: int, data: Buffer | None, now: float) -> None:
        """Count the keys of a record set that passes unchanged; upstream judges unreadable ones."""
        routes = self._topics.observed(topic)
        if routes is None:
            self._control.request_topics(topic)  # until the metadata arrives, records pass uncounted
            return
        if not data or partition not in self._topics.partitions(topic):
            return
        try:
            batch = parse_batch(data)
        except DecodeError:
            return
        size = max_memory_of(batch)
        if self._under_way >= MOST and not self._opener.opens_here(size, batch.compression):
            self._tallies[topic].count_unobserved()
            return
        self._under_way += 1
        self._buffered.count(origin.client, size)

        def opened(found: Opened | BrokerError, now: float) -> None:
            self._under_way -= 1
            self._buffered.count(origin.client, -size)
            if isinstance(found, Opened):
                records = len(found.records)
                misplaced = records - len(found.parts.get(partition, ()))
                keyless = found.records.keyless
                self._tallies.count(topic, origin.client_id, records=records, keyless=keyless, misplaced=misplaced)

        self._opener.open(batch, size, routes, partition, opened, now)
