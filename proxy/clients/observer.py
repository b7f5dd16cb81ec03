"""Counts the keys of topics, and the keys outside the partition that the topic's partitioner chooses."""

from dataclasses import dataclass

from ottla.codec.records import parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import BrokerError, DecodeError
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.opening import Opened, Opener, max_memory_of
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.upstream.control import Control


@dataclass(slots=True)
class Tally:
    """The counts of one topic."""

    records: int = 0
    keyless: int = 0
    misplaced: int = 0
    """Keys in another partition than the partitioner chooses; moved, or in mode `observe` only counted."""
    refused: int = 0
    """Refused batches."""
    unobserved: int = 0
    """Batches whose keys were not counted, because too many others were being read."""


MOST = 4
"""The most batches that are read at a time only to be counted: threads are for rewritten batches first."""


class Tallies(dict[str, Tally]):
    """Topic -> its counts."""

    def __missing__(self, topic: str) -> Tally:
        return self.setdefault(topic, Tally())


class Observer:
    """Counts the keys of topics in mode `observe`."""

    def __init__(
        self, tallies: Tallies, topics: RoutedTopics, control: Control, opener: Opener, buffered: Buffered
    ) -> None:
        self._tallies, self._topics, self._control = tallies, topics, control
        self._opener, self._buffered = opener, buffered
        self._under_way = 0
        """Batches that threads are reading."""

    def observe(self, client: int, topic: str, partition: int, data: Buffer | None, now: float) -> None:
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
            self._tallies[topic].unobserved += 1
            return
        self._under_way += 1
        self._buffered.count(client, size)

        def opened(found: Opened | BrokerError, now: float) -> None:
            self._under_way -= 1
            self._buffered.count(client, -size)
            if isinstance(found, Opened):
                tally = self._tallies[topic]
                tally.records += len(found.records)
                tally.keyless += found.records.keyless
                tally.misplaced += len(found.records) - len(found.parts.get(partition, ()))

        self._opener.open(batch, size, routes, partition, opened, now)
