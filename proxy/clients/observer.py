"""Counts the keys of topics, and the keys outside the partition that the topic's partitioner chooses.

Rules:
- With ``observe-sample`` N, the keys of one batch in N are counted, and each counts N times: counts are estimates then.
- Records that pass unread are counted as their batch's header says, up to what its bytes may hold. Upstream checks that
  number. Message sets, of clients before Kafka 0.11, have no such header: only their bytes are counted.
- Clients choose their ids, so there is a bound on how many are counted apart (`ottla.server_metrics`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.codec.apis.produce import PartitionProduceData
from ottla.codec.compression import Compression
from ottla.codec.records import HEADER_SIZE, MAGIC, count_keys
from ottla.codec.wire import Buffer
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.key_report import KeyReport
from ottla.proxy.clients.key_scan import FoundKeys, is_plain, memory_to_scan, parsed, scan_batch, scan_plain
from ottla.proxy.clients.opening import MAGIC_AT, claimed_records, plainly_claimed_records
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.routing import Routes
from ottla.proxy.threads import Threads
from ottla.proxy.topic_rule import Mode
from ottla.proxy.upstream.control import Control
from ottla.server_metrics import bounded

if TYPE_CHECKING:
    from random import Random  # for types only: the caller provides the randomness


@dataclass(slots=True)
class Tally:
    """The counts of one topic."""

    sent: dict[Mode, int] = field(default_factory=dict)
    """Records that were sent to upstream, by the mode that the topic's rule had then."""
    keyless: int = 0
    misplaced: int = 0
    """Keys in another partition than the partitioner chooses, those of refused batches included."""
    moved: int = 0
    """Records that were sent to another partition than their client chose."""
    copied: dict[str, int] = field(default_factory=dict)
    """Topic -> copies of these records that were sent to it."""
    refused: int = 0
    """Batches that were refused, at least in part."""
    outcome_unknown: int = 0
    """Batches that may or may not be stored."""
    dropped: int = 0
    """Batches of disconnected clients that were not sent, because too many bytes were held."""
    unobserved: int = 0
    """Batches whose keys were not counted, because too many others were being read."""

    @property
    def records(self) -> int:
        """Records that were sent to upstream, in all modes."""
        return sum(self.sent.values())

    def count(self, mode: Mode, records: int, keyless: int, misplaced: int) -> None:
        """Count the records of a batch; ``mode``: of the topic's rule for the batch."""
        self.sent[mode] = self.sent.get(mode, 0) + records
        self.keyless += keyless
        self.misplaced += misplaced
        if mode in (Mode.REWRITE, Mode.COPY):
            self.moved += misplaced

    def facts(self) -> dict[str, Any]:
        """The counts for a log line; the ones about batches say so."""
        by_mode = {f"records_in_{mode.value}": self.sent[mode] for mode in Mode if mode in self.sent}
        return {
            "records": self.records,
            **(by_mode if len(by_mode) > 1 else {}),
            "keyless": self.keyless,
            "misplaced": self.misplaced,
            "moved": self.moved,
            **({"copied": sum(self.copied.values())} if self.copied else {}),
            "refused_batches": self.refused,
            "outcome_unknown_batches": self.outcome_unknown,
            "dropped_batches": self.dropped,
            "unobserved_batches": self.unobserved,
        }

    def count_copied(self, to: str, records: int) -> None:
        """Count records that are sent to a further topic."""
        self.copied[to] = self.copied.get(to, 0) + records

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

    def count(
        self, topic: str, mode: Mode, client_id: str | None, *, records: int, keyless: int, misplaced: int
    ) -> None:
        """Count the records of a batch; ``mode``: of the topic's rule for the batch."""
        self[topic].count(mode, records, keyless, misplaced)
        if misplaced:
            labels = bounded((topic, client_id or ""), self.misplaced)
            self.misplaced[labels] = self.misplaced.get(labels, 0) + misplaced

    def passed(self, data: Buffer | None) -> None:
        """Count a record set that passes unchanged."""
        if data:
            self.count_passed(claimed_records(data) if _has_header(data) else 0, len(data))

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


class KeyCounts:
    """Counts keys, and has the report take some of them.

    Args:
        report: ``None``: there is none.
    """

    def __init__(self, tallies: Tallies, report: KeyReport | None, topics: RoutedTopics) -> None:
        self._tallies, self._report, self._topics = tallies, report, topics

    def wanted(self, topic: str, routes: Routes, origin: Origin, now: float) -> tuple[int, bool]:
        """How many examples of a batch's misplaced keys the report wants, and whether it looks at others."""
        if self._report is None or not self._topics.are_current(topic, routes):
            return 0, False
        return self._report.client(topic, routes, origin).missing_samples, self._report.may_look(now)

    def count(
        self,
        topic: str,
        mode: Mode,
        routes: Routes,
        partition: int,
        origin: Origin,
        found: FoundKeys,
        *,
        sent: bool = True,
    ) -> None:
        """Count the keys of a batch for ``partition``; ``sent``: its records go to upstream."""
        self.add(topic, mode, routes, origin, found.records, found.keyless, found.misplaced, sent=sent)
        self.take(topic, routes, partition, origin, found)

    def add(
        self,
        topic: str,
        mode: Mode,
        routes: Routes,
        origin: Origin,
        records: int,
        keyless: int,
        misplaced: int,
        *,
        sent: bool = True,
    ) -> None:
        """Count records."""
        told = (records, keyless) if sent else (0, 0)
        self._tallies.count(topic, mode, origin.client_id, records=told[0], keyless=told[1], misplaced=misplaced)
        if self._report is not None and self._topics.are_current(topic, routes):
            self._report.client(topic, routes, origin).count(mode, records, keyless, misplaced)

    def take(self, topic: str, routes: Routes, partition: int, origin: Origin, found: FoundKeys) -> None:
        """Have the report take the examples and the looked at keys of a batch."""
        if self._report is None or not self._topics.are_current(topic, routes):
            return
        if found.examples or found.looked:
            self._report.take(topic, self._report.client(topic, routes, origin), routes, partition, found)


class Observer:
    """Counts the keys of topics in mode `observe`.

    Args:
        sample: counts the keys of one batch in so many.
        rng: chooses them: a pattern could meet a client's own.
    """

    def __init__(
        self,
        tallies: Tallies,
        counts: KeyCounts,
        topics: RoutedTopics,
        control: Control,
        threads: Threads,
        buffered: Buffered,
        sample: int,
        rng: "Random",
    ) -> None:
        self._tallies, self._counts, self._topics, self._control = tallies, counts, topics, control
        self._threads, self._buffered = threads, buffered
        self._sample, self._rng = sample, rng
        self._under_way = 0
        """Batches that threads are reading."""

    def observe(self, origin: Origin, topic: str, sets: Iterable[PartitionProduceData], now: float) -> None:
        """Count the keys of record sets that pass unchanged; upstream judges unreadable ones."""
        routes = self._topics.observed(topic)
        if routes is None:
            self._control.hint_topics(topic, asker=origin.client)  # until it is described, records pass uncounted
            return
        partitions = self._topics.partitions(topic)
        plain: list[tuple[int, Buffer]] = []
        for each in sets:
            partition, data = each.index, each.records
            if not data or partition not in partitions or (self._sample > 1 and self._rng.randrange(self._sample)):
                continue
            if is_plain(data) and not self._threads.budget_is_spent:
                plain.append((partition, data))
            else:
                self._read(origin, topic, routes, partition, data, now)
        if plain:
            self._read_plain(origin, topic, routes, plain, now)

    def _read_plain(
        self, origin: Origin, topic: str, routes: Routes, plain: list[tuple[int, Buffer]], now: float
    ) -> None:
        """Read uncompressed batches, which are counted together: that costs less than the scan of a small batch."""
        self._threads.spend(sum(len(data) for _, data in plain), Compression.NONE)
        found = None
        most, looks = self._counts.wanted(topic, routes, origin, now)
        if most or looks:  # the report takes one batch of a request
            partition, data = plain.pop(self._rng.randrange(len(plain)))
            found = scan_plain(data, routes, partition, most, looks=looks)
        records, keyless, misplaced = count_keys(plain, routes.partitioner, routes.partitions)
        if found is not None:
            self._counts.take(topic, routes, partition, origin, found)
            records, keyless, misplaced = records + found[0], keyless + found[1], misplaced + found[2]
        if records:
            times = self._sample
            self._counts.add(topic, Mode.OBSERVE, routes, origin, times * records, times * keyless, times * misplaced)

    def _read(self, origin: Origin, topic: str, routes: Routes, partition: int, data: Buffer, now: float) -> None:
        """Read a compressed batch, or any when the step's budget is spent: at once or in a thread."""
        batch = parsed(data)
        if batch is None:
            return
        size, compression = memory_to_scan(batch), batch.compression
        here = self._threads.fits(size, compression)
        if not here and self._under_way >= MOST:
            self._tallies[topic].count_unobserved()
            return
        most, looks = self._counts.wanted(topic, routes, origin, now)
        scan = partial(scan_batch, batch, routes, partition, most, looks)
        if here:
            self._threads.spend(size, compression)
            self._take(origin, topic, routes, partition, scan())
            return
        self._under_way += 1
        self._buffered.count(origin.client, size)

        def done(found: FoundKeys | None, now: float) -> None:
            self._under_way -= 1
            self._buffered.count(origin.client, -size)
            self._take(origin, topic, routes, partition, found)

        self._threads.run(scan, done)

    def _take(self, origin: Origin, topic: str, routes: Routes, partition: int, found: FoundKeys | None) -> None:
        if found is not None:
            records, keyless, misplaced = (self._sample * each for each in found[:3])
            self._counts.add(topic, Mode.OBSERVE, routes, origin, records, keyless, misplaced)
            self._counts.take(topic, routes, partition, origin, found)
