"""Builds the journal's entries: after each poll one entry with all changes.

Rules:
- An entry is stored before the other actions of its poll are done (`Store` is the first action). So the journal has
  everything that upstream or a client has seen, and an entry that is cut off by the end of the process had no effects.
- It has only producer ids of clients. Clients without a producer id must send their records again themselves.
- It is bounded: a full segment is followed by a new one, to which every producer is copied, a few with each entry; then
  the older segments are removed.
- If an entry cannot be stored, the journal is abandoned, and rebuilt from memory in the same way. It is valid again
  with the last producer that is copied; until then changes are dropped, because the copy will have them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.codec.checksums import crc32c
from ottla.codec.messages import build_parts
from ottla.codec.wire import Buffer, in_memory
from ottla.proxy.events import AbandonJournal, Store
from ottla.proxy.journal.notes import (
    JournalEntry,
    NotedAdded,
    NotedBatch,
    NotedFingerprint,
    NotedOutcome,
    NotedPart,
    NotedProducer,
    NotedRules,
    NotedSent,
    NotedStream,
    NotedTopic,
    NotedTransaction,
    NotedUnderWay,
    NotedUnstored,
    NotedWindow,
)
from ottla.proxy.journal.outage import JournalOutage
from ottla.proxy.routing import RuleHistory

if TYPE_CHECKING:
    from ottla.codec.records import RecordBatch
    from ottla.proxy.clients.producers import ClientProducers, KnownProducer
    from ottla.proxy.clients.windows import AnsweredBatch, Window
    from ottla.proxy.routing import Copies, Destination, Routes
    from ottla.proxy.upstream.batches import Part, PartResult, UpstreamBatch
    from ottla.proxy.upstream.producer import UpstreamProducer, UpstreamTransaction
    from ottla.proxy.upstream.streams import Stream

log = logging.getLogger("ottla.proxy")

SEGMENT_BYTES = 64 * 2**20
LARGE_FIELD = 4 * 2**10
"""A client's batch of at least so many bytes is written without a copy."""
COPIED_AT_ONCE = 256 * 2**10
"""Approximate bytes that are copied to a new segment with each entry."""


class JournaledBatch(Protocol):
    """The fields of `ottla.proxy.clients.batches.ClientBatch` that the journal keeps."""

    number: int
    place: "Destination"
    batch: "RecordBatch"
    routes: "Routes"
    copies: "Copies"
    begun: bool
    refused: bool
    failure: "PartResult | None"
    offset: int
    append_time: int
    left_out: set[int]
    unstored: "list[tuple[Part, bool]]"

    def entry(self, build: "Callable[[Any], NotedUnderWay]") -> NotedUnderWay: ...


class Journal:
    """Collects changes, and builds entries of them.

    Args:
        segment: the number of the first segment.
    """

    def __init__(self, segment: int = 1, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._rules: list[tuple[str, ...]] = []
        self._producers: list[NotedProducer] = []
        self._forgotten: list[int] = []
        self._topics: dict[str, Routes] = {}
        self._batches: list[NotedBatch] = []
        self._windows: dict[Window[Any], tuple[int, Destination]] = {}
        self._streams: dict[Stream, int] = {}
        """Changed streams, each with its producer id; a stream that changes more than once is written once."""
        self._transactions: dict[int, UpstreamTransaction] = {}
        self._segment, self._size, self._limit, self._least = segment, 0, segment_bytes, segment_bytes
        self._known: ClientProducers[Any] | None = None
        self._pins: Callable[[], dict[str, Routes]] = dict
        self._history = RuleHistory(())
        self._cluster_id = ""
        self._cluster_ids: list[str] = []
        self._outage = JournalOutage()
        self._rebuilt = False
        """The last entry has made an abandoned journal whole, unless `lost` follows."""
        self._copying: Iterator[KnownProducer[Any]] | None = None

    def watch(
        self, known: "ClientProducers[Any]", pins: "Callable[[], dict[str, Routes]]", history: RuleHistory
    ) -> None:
        """Set the state that is copied to each new segment, also to the first."""
        self._known, self._pins, self._history = known, pins, history
        self._begin_copying()

    # -- changes

    def of_cluster(self, cluster_id: str) -> None:
        """Record the id of upstream's cluster: the journal is valid only for it."""
        if cluster_id != self._cluster_id:
            self._cluster_id = cluster_id
            self._cluster_ids.append(cluster_id)

    def rules_changed(self) -> None:
        """Record the rules, because the operator has changed them."""
        self._rules = list(self._history.texts)

    def allocated(self, producer: "KnownProducer[Any]") -> None:
        assert producer.producer_id is not None, "it is a client's"
        principal = "" if producer.principal is None else producer.principal.name
        noted = NotedProducer(
            producer_id=producer.producer_id, since=producer.since, host=producer.host, principal=principal
        )
        self._producers.append(noted)

    def forgotten(self, producer_id: int) -> None:
        self._forgotten.append(producer_id)
        self._producers = [each for each in self._producers if each.producer_id != producer_id]
        self._windows = {each: key for each, key in self._windows.items() if key[0] != producer_id}
        self._streams = {each: own for each, own in self._streams.items() if own != producer_id}
        self._transactions.pop(producer_id, None)

    def pinned(self, topic: str, routes: "Routes") -> None:
        self._topics[topic] = routes

    def begun(self, batch: JournaledBatch) -> None:
        """Record an accepted client's batch."""
        self._batches.append(_batch(batch))

    def window(self, producer_id: int, place: "Destination", window: "Window[Any]") -> None:
        """Record a window, because it has changed."""
        self._windows[window] = producer_id, place

    def stream(self, producer_id: int, stream: "Stream") -> None:
        self._streams[stream] = producer_id

    def transaction(self, producer: "UpstreamProducer") -> None:
        """Record the state of a producer's transaction, because it has changed."""
        assert producer.producer_id is not None and producer.transaction is not None, "it is a client's"
        self._transactions[producer.producer_id] = producer.transaction

    # -- out

    @property
    def works(self) -> bool:
        """The journal has the state with which the next proxy can continue."""
        return not self._outage.lasts

    @property
    def outage(self) -> str | None:
        """Why the journal cannot be written; ``None`` if it can."""
        return self._outage.why

    @property
    def deadline(self) -> float | None:
        """When to take an entry even without a change, because the journal is being rebuilt."""
        if not self._outage.lasts:
            return None
        return 0.0 if self._rebuilt or self._copying is not None else self._outage.not_before

    def lost(self, why: str, now: float) -> None:
        """Rebuild the journal soon: an entry could not be stored, and the journal was abandoned."""
        self._outage.failed(why, now)
        self._copying, self._rebuilt = None, False
        self._segment += 1  # the file of the failed segment may still exist

    def retry(self, now: float) -> None:
        """Rebuild an abandoned journal now, because the proxy stops."""
        self._outage.end_pause(now)

    def take(self, now: float) -> Store | AbandonJournal | None:
        """The entry to store now; if building it fails, the journal is abandoned, so that no proxy trusts it."""
        if self._rebuilt:
            self._rebuilt = False
            self._outage.ended(now)
        try:
            if self._outage.lasts and self._copying is None:
                for each in self._changed:
                    each.clear()
                if now < self._outage.not_before:
                    return None
                self._begin_copying()
            return self._take()
        except Exception:
            log.exception("a bug in the proxy, please report it: an entry of the journal")
            self.lost("a bug in the proxy", now)
            return AbandonJournal()

    @property
    def _changed(self) -> "tuple[list[Any] | dict[Any, Any], ...]":
        """The changes for the next entry."""
        return (
            self._cluster_ids,
            self._rules,
            self._producers,
            self._forgotten,
            self._topics,
            self._batches,
            self._windows,
            self._streams,
            self._transactions,
        )

    def _take(self) -> Store | None:
        changed = self._changed
        if not any(changed) and self._copying is None:
            return None
        copied = self._copying is not None and self._copy()
        entry = JournalEntry(
            cluster_id=self._cluster_ids[-1] if self._cluster_ids else None,
            rules=tuple(NotedRules(rules=each) for each in self._rules),
            producers=tuple(self._producers),
            forgotten=tuple(self._forgotten),
            topics=tuple(_topic(name, routes) for name, routes in self._topics.items()),
            batches=tuple(self._batches),
            windows=tuple(_window(*key, window) for window, key in self._windows.items()),
            streams=tuple(_stream(own, stream) for stream, own in self._streams.items()),
            transactions=tuple(_transaction(*each) for each in self._transactions.items()),
        )
        for each in changed:
            each.clear()
        parts = framed(in_memory(build_parts(entry, 0, LARGE_FIELD)))
        stored = Store(self._segment, parts, self._segment if copied else 0)
        self._size += sum(map(len, parts))
        if copied:
            self._limit = max(self._least, 2 * self._size)
            self._copying, self._rebuilt = None, self._outage.lasts
        elif self._copying is None and self._size >= self._limit:
            self._segment += 1
            self._begin_copying()
        return stored

    def _begin_copying(self) -> None:
        assert self._known is not None
        self._size = 0
        self._cluster_ids = [self._cluster_id] if self._cluster_id else []
        self._rules = list(self._history.texts)
        self._topics |= self._pins()
        self._copying = iter(list(self._known))

    def _copy(self) -> bool:
        """Copy some more producers to the new segment; returns whether these were the last."""
        assert self._copying is not None
        size = 0
        for producer in self._copying:
            size += self._copy_producer(producer)
            if size >= COPIED_AT_ONCE:
                return False
        return True

    def _copy_producer(self, producer: "KnownProducer[Any]") -> int:
        assert producer.producer_id is not None
        if self._known is None or producer.producer_id not in self._known:
            return 0
        self.allocated(producer)
        size = 16
        noted = {batch.number for batch in self._batches}
        for place, window in producer.windows.items():
            self._windows[window] = producer.producer_id, place
            for batch in window.under_way:
                if batch.number not in noted:
                    self._batches.append(_batch(batch))
                    size += len(batch.batch.data)
            size += 100
        for stream in producer.streams.values():
            self._streams[stream] = producer.producer_id
            size += 100
        if producer.transaction is not None:
            self._transactions[producer.producer_id] = producer.transaction
            size += 100
        return size


def framed(parts: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The parts of an entry, with its length and CRC-32C in front."""
    size = crc = 0
    for each in parts:
        size += len(each)
        crc = crc32c(each, crc)
    return (size.to_bytes(4, "big") + crc.to_bytes(4, "big"), *parts)


def _topic(name: str, routes: "Routes") -> NotedTopic:
    return NotedTopic(
        name=name,
        topic_id=routes.topic_id,
        partitions=routes.partitions,
        partitioner=routes.partitioner,
        fans_out=routes.fans_out,
    )


def _batch(batch: JournaledBatch) -> NotedBatch:
    return NotedBatch(
        number=batch.number,
        topic_id=batch.routes.topic_id,
        partitions=batch.routes.partitions,
        partitioner=batch.routes.partitioner,
        data=batch.batch.data,
        fans_out=batch.routes.fans_out,
        copies=tuple(_topic(*each) for each in batch.copies),
    )


def _part(part: "Part") -> NotedPart:
    sender: Any = part.sender  # a `JournaledBatch`: the journal has only producers with an id
    return NotedPart(
        batch=sender.number,
        first=part.first,
        count=len(part.records),
        alone=part.alone,
        maybe_in=tuple(sorted(part.maybe_in)),
    )


def _sent(batch: "UpstreamBatch") -> NotedSent:
    return NotedSent(
        sequence=batch.sequence,
        stored=batch.stored,
        refused=batch.refused,
        named=batch.named,
        maybe_stored=batch.maybe_stored or batch.in_flight,
        parts=() if batch.stored else tuple(each.entry(_part) for each in batch.parts),
    )


def _stream(producer_id: int, stream: "Stream") -> NotedStream:
    epoch, next_sequence = stream.resumes_at
    return NotedStream(
        producer_id=producer_id,
        topic=stream.topic,
        partition=stream.partition,
        topic_id=stream.topic_id,
        epoch=epoch,
        next_sequence=next_sequence,
        lost=stream.lost,
        last_offset=stream.last_offset,
        sent=tuple(each.entry(_sent) for each in stream.sent),
        waiting=tuple(each.entry(_part) for each in stream.waiting),
    )


def _window(producer_id: int, place: "Destination", window: "Window[Any]") -> NotedWindow:
    refused = window.refused_records()
    return NotedWindow(
        producer_id=producer_id,
        topic=place[0],
        partition=place[1],
        epoch=window.epoch,
        next_sequence=window.next_sequence,
        fenced=window.fenced,
        done=tuple(each.entry(_outcome) for each in window.done),
        under_way=tuple(each.entry(_under_way) for each in window.under_way),
        stored=tuple(refused.stored),
        others=tuple(refused.others),
        unknown=tuple(refused.unknown),
        numbered=tuple(NotedFingerprint(timed=timed, numbered=each) for each, timed in refused.numbered.items()),
    )


def _outcome(told: "AnsweredBatch") -> NotedOutcome:
    return NotedOutcome(
        sequence=told.sequence,
        count=told.count,
        error_code=told.outcome.error_code,
        base_offset=told.outcome.base_offset,
        append_time=told.outcome.append_time,
        message=told.outcome.error_message,
        untold=told.untold,
    )


def _transaction(producer_id: int, transaction: "UpstreamTransaction") -> NotedTransaction:
    failure = transaction.failure
    return NotedTransaction(
        producer_id=producer_id,
        transactional_id=transaction.transactional_id,
        epoch=transaction.epoch,
        implicit=transaction.implicit,
        failed=failure is not None,
        error_code=failure.error_code if failure else 0,
        message=failure.message if failure else None,
        unknown=failure is not None and failure.unknown,
        aborting=transaction.aborting,
        added=tuple(
            NotedAdded(name=name, partitions=tuple(partitions)) for name, partitions in transaction.added.items()
        ),
    )


def _under_way(batch: JournaledBatch) -> NotedUnderWay:
    failure = batch.failure
    return NotedUnderWay(
        batch=batch.number,
        begun=batch.begun,
        refused=batch.refused,
        failed=failure is not None,
        error_code=failure.error_code if failure else 0,
        message=failure.message if failure else None,
        unknown=failure is not None and failure.unknown,
        offset=batch.offset,
        append_time=batch.append_time,
        left_out=tuple(batch.left_out),
        unstored=tuple(
            NotedUnstored(
                partition=part.destination.partition,
                first=part.first,
                count=len(part.records),
                unknown=unknown,
                topic=part.destination.topic if part.destination.topic != batch.place.topic else "",
            )
            for part, unknown in batch.unstored
        ),
    )
