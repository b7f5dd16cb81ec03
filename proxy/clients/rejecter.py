"""Refuses record sets with keys outside their partition, in mode `reject`.

Rules:
- A batch with such a key is refused as a whole, as a broker refuses a batch with an invalid record: INVALID_RECORD, and
  the records by their index, with the partitions of their keys (Produce version 8, KIP-467). Nothing of the batch is
  passed, so upstream expects the same sequence next as a broker that has refused the batch.
- A batch that the proxy cannot read might have such keys. It is refused, with the same errors as for a rewritten topic.
- The record sets of a request are read in the loop as far as its step's budget goes, and then in a thread: some at a
  time, so that a request of many large batches leaves the thread to others in between. Record sets for a topic without
  metadata wait for it. Meanwhile later requests of the client wait, too (`RequestLine`).
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.codec.apis.produce import TopicProduceData
from ottla.codec.records import RecordBatch
from ottla.errors import BrokerError, InvalidRecord, UnknownServerError
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.key_scan import FoundKeys, memory_to_scan, scan_batch
from ottla.proxy.clients.observer import KeyCounts
from ottla.proxy.clients.opening import BUG, DECOMPRESSED_LIMIT, checked
from ottla.proxy.clients.pending_produce import MOST_NAMED
from ottla.proxy.clients.rewrite_counts import RewriteCounts
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.steps import Steps, until
from ottla.proxy.clients.windows import ClientResult
from ottla.proxy.routing import Routes
from ottla.proxy.threads import Threads
from ottla.proxy.topic_rule import Mode
from ottla.sdk.outcome import Outcome

log = logging.getLogger("ottla.proxy")

AT_ONCE = DECOMPRESSED_LIMIT
"""Bytes of records after which a thread is left to others; a single batch may have as many."""

Refusals = dict[tuple[str, int], ClientResult]
"""(topic, partition) -> why its record set is refused."""


class _Judged(NamedTuple):
    """A record set to judge."""

    topic: str
    partition: int
    batch: RecordBatch
    routes: Routes
    looks: bool


class Rejecter:
    """Finds the record sets that must not pass."""

    def __init__(
        self, topics: RoutedTopics, keys: KeyCounts, threads: Threads, buffered: Buffered, counts: RewriteCounts
    ) -> None:
        self._topics, self._keys, self._threads = topics, keys, threads
        self._buffered, self._counts = buffered, counts

    def screen(
        self, origin: Origin, topics: Sequence[TopicProduceData], now: float
    ) -> Steps[tuple[Refusals | None, float]]:
        """Return which record sets must not pass, and the time; the others pass unchanged.

        ``None``: the rule of a topic has changed meanwhile, so the record sets are judged again, under the new rules.
        """
        rules = [self._topics.rule(topic.name) for topic in topics]
        refusals: Refusals = {}
        readable: list[_Judged] = []
        described = [self._describe(topic, origin, now) for topic in topics]  # they wait together
        for topic, wait in zip(topics, described, strict=True):
            refused, then = yield from until(wait)
            now = max(now, then)
            if refused is not None:
                refusals |= {(topic.name, each.index): _refusal(refused) for each in topic.partition_data}
                continue
            routes = self._topics.observed(topic.name)
            if routes is None:  # its rule has changed meanwhile
                return None, now
            for each in topic.partition_data:
                try:
                    self._topics.check_partition(topic.name, routes, each.index)
                    batch = checked(each.records or b"")
                except BrokerError as error:
                    refusals[topic.name, each.index] = _refusal(error)
                else:
                    _, looks = self._keys.wanted(topic.name, routes, origin, now)
                    readable.append(_Judged(topic.name, each.index, batch, routes, looks))
        results, now = yield from self._read(readable, origin, now)
        if rules != [self._topics.rule(topic.name) for topic in topics]:
            return None, now
        for judged, found in zip(readable, results, strict=True):
            refusal = self._judge(judged, found, origin)
            if refusal is not None:
                refusals[judged.topic, judged.partition] = refusal
        for (name, partition), refusal in refusals.items():
            self._counts.rejected(name, partition, refusal, origin, now)
        return refusals, now

    def _describe(
        self, topic: TopicProduceData, origin: Origin, now: float
    ) -> Outcome[tuple[BrokerError | None, float]]:
        """Wait for the metadata of a topic; an error if it does not come, or if there is no room to wait."""
        described: Outcome[tuple[BrokerError | None, float]] = Outcome()
        if not self._topics.is_described(topic.name):
            try:
                self._buffered.check_room(origin.client, sum(len(each.records or b"") for each in topic.partition_data))
            except BrokerError as error:
                described.succeed((error, now))
                return described
        self._topics.when_described(
            topic.name,
            lambda now: described.succeed((None, now)),
            lambda error, now: described.succeed((error, now)),
            now,
            asker=origin.client,
        )
        return described

    def _read(
        self, readable: Sequence[_Judged], origin: Origin, now: float
    ) -> Steps[tuple[list[FoundKeys | BrokerError], float]]:
        """Read the keys of some record sets after the others."""
        results: list[FoundKeys | BrokerError] = []
        named = MOST_NAMED
        while (first := len(results)) < len(readable):
            batch = readable[first].batch
            memory = memory_to_scan(batch)
            if self._threads.fits(memory, batch.compression):
                self._threads.spend(memory, batch.compression)
                found = found_keys(readable[first : first + 1], named)
            else:
                last, memory = _together(readable, first)
                try:
                    self._buffered.check_room(origin.client, memory)
                except BrokerError as error:
                    return results + [error] * (len(readable) - first), now
                read: Outcome[tuple[list[FoundKeys | BrokerError], float]] = Outcome()
                self._buffered.count(origin.client, memory)
                self._threads.run(partial(found_keys, readable[first:last], named), partial(_settle, read))
                found, now = yield from until(read)
                self._buffered.count(origin.client, -memory)
            results += found
            named -= sum(len(each.examples) for each in found if isinstance(each, FoundKeys))
        return results, now

    def _judge(self, judged: _Judged, found: FoundKeys | BrokerError, origin: Origin) -> ClientResult | None:
        """Count the keys of a batch; return why it is refused, or ``None`` if it passes."""
        if isinstance(found, BrokerError):
            return _refusal(found)
        topic, partition, _, routes, _ = judged
        self._keys.count(topic, Mode.REJECT, routes, partition, origin, found, sent=not found.misplaced)
        if not found.misplaced:
            return None
        named = len(found.examples)
        more = "" if named == found.misplaced else f"; the first {named} are named" if named else "; none is named"
        return ClientResult(
            InvalidRecord.code,
            error_message=f"the proxy refuses keys outside the partition that {routes.partitioner} chooses: "
            f"{found.misplaced} of {found.records} records for {topic}-{partition}{more}",
            record_errors=tuple(
                (row, f"the key belongs to partition {place} by {routes.partitioner}, not to {partition}")
                for row, _, place in found.examples
            ),
        )


def _together(readable: Sequence[_Judged], first: int) -> tuple[int, int]:
    """Which record sets a thread reads at a time: the index behind the last one, and the memory for the largest."""
    read = largest = 0
    for last in range(first, len(readable)):
        size = memory_to_scan(readable[last].batch)
        if read and read + size > AT_ONCE:
            return last, largest
        read, largest = read + size, max(largest, size)
    return len(readable), largest


def found_keys(readable: Iterable[_Judged], most: int) -> list[FoundKeys | BrokerError]:
    """Read the keys of batches one after the other, with at most ``most`` examples; may run in a thread."""
    results: list[FoundKeys | BrokerError] = []
    for each in readable:
        found = _found(each, most)
        most -= len(found.examples) if isinstance(found, FoundKeys) else 0
        results.append(found)
    return results


def _found(judged: _Judged, most: int) -> FoundKeys | BrokerError:
    try:
        found = scan_batch(judged.batch, judged.routes, judged.partition, most, judged.looks)
    except Exception:
        log.exception("a bug in the proxy, please report it: records for %s-%d", judged.topic, judged.partition)
        return UnknownServerError(BUG)
    return InvalidRecord("the records cannot be read") if found is None else found


def _settle(read: Outcome[tuple[list[FoundKeys | BrokerError], float]], found: Any, now: float) -> None:
    read.succeed((found, now))


def _refusal(error: BrokerError) -> ClientResult:
    return ClientResult(error.code, error_message=error.detail or None)
