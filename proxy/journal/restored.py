"""Restores the state of a core from the journal.

Rules:
- The outcome of batches that were in flight is unknown. All numbered batches are sent again, with the same records and
  the same sequence, once the user of their producer has logged in.
- Records of a client's batch that are in no stream are settled: they are stored, unless the window says otherwise.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.codec.messages import parse
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError
from ottla.proxy.clients.refused_records import RefusedRecords
from ottla.proxy.clients.windows import AnsweredBatch, ClientResult, Window
from ottla.proxy.journal.notes import (
    JournalEntry,
    NotedBatch,
    NotedPart,
    NotedProducer,
    NotedStream,
    NotedTopic,
    NotedTransaction,
    NotedUnderWay,
    NotedUnstored,
    NotedWindow,
)
from ottla.proxy.routing import Destination, Routes, TopicRules
from ottla.proxy.topic_rule import parse_rule
from ottla.proxy.upstream.batches import Part, PartResult, UpstreamBatch, built
from ottla.proxy.upstream.producer import UpstreamTransaction
from ottla.proxy.upstream.streams import Stream

if TYPE_CHECKING:
    from ottla.proxy.clients.admission import Admission
    from ottla.proxy.clients.batches import ClientBatch
    from ottla.proxy.clients.rewriter import Rewriter
    from ottla.proxy.clients.routed_topics import RoutedTopics
    from ottla.proxy.upstream.delivery import Delivery
    from ottla.proxy.upstream.principals import Principals


@dataclass
class Noted:
    """The newest state of each object in a journal."""

    cluster_id: str | None = None
    rules: list[tuple[str, ...]] = field(default_factory=list)
    """All rules over time, the newest last."""
    producers: dict[int, NotedProducer] = field(default_factory=dict)
    """The least recently used first."""
    topics: dict[str, NotedTopic] = field(default_factory=dict)
    batches: dict[int, NotedBatch] = field(default_factory=dict)
    windows: dict[int, dict[Destination, NotedWindow]] = field(default_factory=lambda: defaultdict(dict))
    streams: dict[int, dict[Destination, NotedStream]] = field(default_factory=lambda: defaultdict(dict))
    transactions: dict[int, NotedTransaction] = field(default_factory=dict)

    def take(self, data: bytes) -> None:
        """Take over one more entry.

        Raises:
            DecodeError: the entry is malformed.
        """
        entry, end = parse(JournalEntry, 0, data)
        if end != len(data):
            raise DecodeError(f"{len(data) - end} bytes too many in an entry of the journal")
        self.cluster_id = entry.cluster_id or self.cluster_id
        if entry.rules:
            self.rules = [each.rules for each in entry.rules]
        for producer_id in entry.forgotten:
            for known in (self.producers, self.windows, self.streams, self.transactions):
                known.pop(producer_id, None)
        for producer in entry.producers:
            self.producers.pop(producer.producer_id, None)
            self.producers[producer.producer_id] = producer
        for topic in entry.topics:
            self.topics[topic.name] = topic
        under_way = {each.batch for window in entry.windows for each in window.under_way}
        self.batches |= {batch.number: batch for batch in entry.batches if batch.number in under_way}
        for window in entry.windows:
            if window.producer_id in self.producers:  # it is the most recently used one
                self.producers[window.producer_id] = self.producers.pop(window.producer_id)
            windows = self.windows[window.producer_id]
            before = windows.get(Destination(window.topic, window.partition))
            windows[Destination(window.topic, window.partition)] = window
            if before is not None:
                left = {each.batch for each in before.under_way} - {each.batch for each in window.under_way}
                for number in left:
                    self.batches.pop(number, None)
        for stream in entry.streams:
            self.streams[stream.producer_id][Destination(stream.topic, stream.partition)] = stream
        for transaction in entry.transactions:
            self.transactions[transaction.producer_id] = transaction

    @property
    def under_way(self) -> int:
        """How many clients' batches are under way."""
        return sum(len(window.under_way) for windows in self.windows.values() for window in windows.values())


def noted(entries: Iterable[bytes]) -> Noted:
    """Read the entries of a journal.

    Raises:
        DecodeError: it is damaged.
    """
    found = Noted()
    for entry in entries:
        found.take(entry)
    return found


def restore(
    found: Noted,
    topics: "RoutedTopics",
    admission: "Admission",
    rewriter: "Rewriter",
    delivery: "Delivery",
    principals: "Principals",
    now: float,
) -> None:
    """Restore the state of a journal in the parts of a new core.

    Raises:
        DecodeError: the journal contradicts itself.
    """
    for name, topic in found.topics.items():
        topics.pin(name, Routes(topic.topic_id, topic.partitions, topic.partitioner, topic.fans_out))
    for producer_id, noted_producer in found.producers.items():
        if noted_producer.since >= len(found.rules):
            raise DecodeError(f"the journal lacks the rules of producer {producer_id}")
        writes = producer_id in found.windows
        principal = principals.named(noted_producer.principal) if noted_producer.principal else None
        producer = admission.restored(
            producer_id, noted_producer.since, noted_producer.host, writes=writes, principal=principal
        )
        if (transaction := found.transactions.get(producer_id)) is not None:
            producer.begin_epoch(_transaction(transaction))
        batches: dict[int, ClientBatch] = {}
        for place, window in found.windows.get(producer_id, {}).items():
            own = producer.windows[place] = _window(window)
            for under_way in window.under_way:
                if under_way.batch not in found.batches:
                    raise DecodeError(f"the journal lacks batch {under_way.batch} of producer {producer_id}")
                data, begun = found.batches[under_way.batch], under_way.begun
                restored = rewriter.restored(producer, place, own, data, begun=begun)
                _mark(restored, under_way, now)
                batches[restored.number] = restored
                own.under_way.append(restored)
        for place, each in found.streams.get(producer_id, {}).items():
            producer.streams[place] = _stream(each, batches, producer.transaction is not None, now)
        for stream in list(producer.streams.values()):
            if not stream.idle:
                delivery.resume(producer, stream, now)
        for restored_window in producer.windows.values():
            for each_batch in list(restored_window.under_way):
                if each_batch.opening:
                    rewriter.open(each_batch, now)
            rewriter.resume(restored_window, now)
            admission.remembers(producer, restored_window)
    if found.rules:
        topics.tell_of_unused(TopicRules([parse_rule(text) for text in found.rules[-1]]))


def _transaction(noted: NotedTransaction) -> UpstreamTransaction:
    failure = PartResult(noted.error_code, message=noted.message, unknown=noted.unknown) if noted.failed else None
    added = {each.name: set(each.partitions) for each in noted.added}
    return UpstreamTransaction(
        noted.transactional_id, noted.epoch, noted.implicit, failure, noted.aborting, added=added
    )


def _window(noted: NotedWindow) -> "Window[ClientBatch]":
    return Window(
        noted.epoch,
        noted.next_sequence,
        noted.fenced,
        [
            AnsweredBatch(
                each.sequence,
                each.count,
                ClientResult(each.error_code, each.base_offset, each.message, each.append_time),
                each.untold,
            )
            for each in noted.done
        ],
        RefusedRecords(
            noted.stored, noted.others, noted.unknown, {each.numbered: each.timed for each in noted.numbered}
        ),
    )


def _mark(batch: "ClientBatch", noted: NotedUnderWay, now: float) -> None:
    failure = PartResult(noted.error_code, message=noted.message, unknown=noted.unknown) if noted.failed else None
    batch.restore(noted.offset, noted.append_time, failure, refused=noted.refused, left_out=set(noted.left_out))
    for each in noted.unstored:
        destination = Destination(each.topic or batch.place.topic, each.partition)
        batch.unstored.append((_part(batch, destination, each, now), each.unknown))


def _part(batch: "ClientBatch", destination: Destination, noted: NotedPart | NotedUnstored, now: float) -> Part:
    part = batch.part(destination, noted.first, noted.count, now)
    if len(part.records) != noted.count:
        raise DecodeError(f"the journal names {noted.count} records of a batch that has {len(part.records)}")
    return part


def _stream(noted: NotedStream, batches: "dict[int, ClientBatch]", transactional: bool, now: float) -> Stream:
    destination = Destination(noted.topic, noted.partition)
    stream = Stream(*destination, noted.epoch, noted.topic_id, transactional=transactional)

    def parts(of: Iterable[NotedPart]) -> list[Part]:
        found = []
        for each in of:
            if each.batch not in batches:
                raise DecodeError(f"the journal lacks batch {each.batch}")
            batches[each.batch].parted()
            part = _part(batches[each.batch], destination, each, now)
            if each.alone:
                part.isolate()
            for topic_id in each.maybe_in:
                part.maybe_stored_in(topic_id)
            found.append(part)
        return found

    sent = []
    for each in noted.sent:
        own = parts(each.parts)
        data: Buffer = b""
        if own and not each.refused:
            data = built(own, noted.producer_id, noted.epoch, each.sequence, transactional=transactional)[1]
        batch = UpstreamBatch(
            own,
            data,
            each.sequence,
            tries=1,
            named=each.named,
            maybe_stored=each.maybe_stored,
            stored=each.stored,
            refused=each.refused,
        )
        sent.append(batch)
    stream.resume(noted.next_sequence, noted.last_offset, sent, parts(noted.waiting), lost=noted.lost)
    return stream
