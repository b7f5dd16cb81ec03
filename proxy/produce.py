"""Records of rewritten topics: from a client's batch to the partitions of their keys, and back to the client's answer.

Rules:
- What the proxy cannot do right is refused with an error that no client retries and a message that says what to do.
- A client is answered when every part of its batch is settled. Its offset is told where the batch stayed whole and in
  place, else it is -1, "unknown".
- The work goes on when the client has gone: its retry, over whatever connection, finds it under way or done.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.compression import Compression
from ottla.codec.records import MAGIC, NO_PRODUCER_ID, RecordBatch, Records, parse_batch
from ottla.codec.wire import NO_UUID, Buffer
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    DecodeError,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ProducerFenced,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
    broker_error,
)
from ottla.proxy.batches import Result, SomeRecords
from ottla.proxy.cluster import Cluster
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import contained
from ottla.proxy.control import Control
from ottla.proxy.delivery import Delivery
from ottla.proxy.producers import Numbered, Outcome, Producers, Window
from ottla.proxy.routing import Routes, TopicRules, routes

log = logging.getLogger("ottla.proxy")

Answered = Callable[[Outcome, float], None]

DECOMPRESSED_LIMIT = 64 * 2**20
"""Bytes that one batch of a client may take when decompressed."""
TRANSACTIONS_REFUSED = (
    "the proxy moves this topic's records by key and cannot do so in transactions: produce to it without "
    "transactional.id, or to upstream directly"
)
_BUG = "the proxy failed on these records, as its log says"
_MAGIC = 16
"""Where the format of a record set stands."""
_FARTHEST = 2**63 - 1
"""Milliseconds between two timestamps of a batch at the most, whichever of them its records are counted from."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names of topics; others would fail, or break the connection, where upstream is asked. Source: Topic.java."""
MOST_FENCED = 10_000
"""Producers to remember as told of."""
METADATA_WAIT = 15.0
"""Seconds that records wait for the number of their topic's partitions."""


@dataclass(slots=True)
class Tally:
    """What was seen of one topic."""

    records: int = 0
    keyless: int = 0
    misplaced: int = 0
    """Keys that the client put elsewhere than the partitioner would: moved, or in mode `observe` only counted."""
    refused: int = 0
    """Batches."""


@dataclass(slots=True, eq=False)
class ClientBatch(Numbered):
    """A client's batch under way. Its parts settle one by one (see `Result`)."""

    rewriter: "Rewriter"
    topic: str
    partition: int
    """The one that the client chose."""
    compression: Compression
    size: int
    """Bytes that it takes in memory, about."""
    window: "Window[ClientBatch] | None"
    """``None`` where the client is not idempotent."""
    waiting: list[Answered]
    """Who wants to hear the outcome; a retry adds itself."""
    parts: dict[int, SomeRecords]
    """Partition -> the records that go there; their offsets are their indexes in the batch."""
    whole: RecordBatch | None
    """As it came, if all of its records stay where the client put them."""
    open_parts: int = 0
    offset: int = -1
    failures: dict[int, Result] = field(default_factory=dict)

    def settled(self, partition: int, result: Result, now: float) -> None:
        if result.error_code:
            self.failures[partition] = result
        elif self.whole is not None:
            self.offset = result.offset
        self.open_parts -= 1
        if self.open_parts == 0:
            self.rewriter.finished(self, now)


@dataclass(slots=True)
class _Parked:
    """Records whose topic is not known yet."""

    topic: str
    partition: int
    data: Buffer
    transactional: bool
    answered: Answered
    deadline: float


class Rewriter:
    """Takes the records of rewritten topics, and counts those of observed ones."""

    def __init__(
        self, rules: TopicRules, cluster: Cluster, control: Control, delivery: Delivery, config: ProxyConfig
    ) -> None:
        self.producers: Producers[ClientBatch] = Producers()
        self.tallies: dict[str, Tally] = {}
        self.buffered = 0
        """Bytes of records on their way, about."""
        self._rules, self._cluster, self._control, self._delivery = rules, cluster, control, delivery
        self._config = config
        self._routes: dict[str, Routes] = {}
        self._alerted: set[tuple[str, int]] = set()
        self._fenced: set[int] = set()
        """Producers that the log has told of."""
        self._parked: dict[str, deque[_Parked]] = {}
        """By topic."""

    # -- in

    def offer(
        self, topic: str, partition: int, data: Buffer | None, transactional: bool, answered: Answered, now: float
    ) -> None:
        """Deliver the record set ``data`` that a client sent for a partition; ``answered`` hears what became of it."""
        if not _LEGAL_NAME.fullmatch(topic):
            answered(Outcome(InvalidTopic.code, error_message="there can be no topic of this name"), now)
            return
        if topic in self._cluster.topics and topic not in self._parked:
            self._accept(topic, partition, data or b"", transactional, answered, now)
            return
        try:
            self._check_room()
        except NotEnoughReplicas as error:
            answered(Outcome(error.code, error_message=error.detail), now)
            return
        self._control.want_topics(topic)
        parked = _Parked(topic, partition, data or b"", transactional, answered, now + METADATA_WAIT)
        self._parked.setdefault(topic, deque()).append(parked)
        self.buffered += len(data or b"")

    def _accept(
        self, topic: str, partition: int, data: Buffer, transactional: bool, answered: Answered, now: float
    ) -> None:
        try:
            batch = _checked(data, transactional)
            ways = self._routes_of(topic)
            partitions = self._cluster.topics[topic].leaders
            if len(partitions) < ways.partitions:
                self._control.want_topics(topic)  # it may have grown, or been made anew
                raise PolicyViolation(
                    f"{topic} has {len(partitions)} partitions, and the proxy is to spread its keys over "
                    f"{ways.partitions}: give the topic that many, or state another number in the proxy's topic rule"
                )
            if partition not in partitions:
                raise UnknownTopicOrPartition(f"{topic} has no partition {partition}")
            window = None
            if batch.producer_id != NO_PRODUCER_ID:
                window = self.producers.window(batch.producer_id, topic, partition)
                match window.look_up(batch.producer_epoch, batch.base_sequence, batch.count):
                    case ClientBatch() as under_way:
                        under_way.waiting.append(answered)
                        return
                    case Outcome() as outcome:
                        answered(outcome, now)
                        return
            self._check_room()
            client_batch = self._sorted(topic, partition, batch, ways, window)
        except BrokerError as error:
            self._tally(topic).refused += 1
            if isinstance(error, ProducerFenced):
                self._tell_of_fencing(batch.producer_id, topic, error)
            answered(Outcome(error.code, error_message=error.detail or None), now)
            return
        client_batch.waiting.append(answered)
        self.buffered += client_batch.size
        if window is None or window.begin(client_batch):
            self._deliver(client_batch, now)

    def _tell_of_fencing(self, producer_id: int, topic: str, error: ProducerFenced) -> None:
        """Once for each producer: some clients keep on sending, and hide why nothing arrives."""
        if producer_id not in self._fenced:
            if len(self._fenced) >= MOST_FENCED:
                self._fenced.clear()
            self._fenced.add(producer_id)
            log.warning(
                "a producer is fenced: its application must open a new one",
                extra={"producer_id": producer_id, "topic": topic, "why": error.detail},
            )

    def _check_room(self) -> None:
        """Raises `NotEnoughReplicas` when far too much is buffered.

        Clients are held before this; it bounds what ever new connections bring while upstream is away.
        """
        if self.buffered > 2 * self._config.max_buffered:
            raise NotEnoughReplicas("the proxy's buffer is full, because upstream takes no records at the moment")

    def _sorted(
        self, topic: str, partition: int, batch: RecordBatch, ways: Routes, window: "Window[ClientBatch] | None"
    ) -> ClientBatch:
        """The records by destination.

        Raises:
            InvalidRecord: they are damaged.
            InvalidTimestamp: they may not fit a batch any more once they are parted.
        """
        records = _opened(batch)
        parts: dict[int, SomeRecords] = {**ways.split(records, partition)}
        in_place = list(parts) == [partition]
        tally = self._tally(topic)
        tally.records += batch.count
        tally.keyless += records.keyless
        tally.misplaced += batch.count - len(parts.get(partition, ()))
        if window is not None and window.has_stored_ahead:
            marks = _fingerprints(parts)
            stored = window.stored_already(batch.base_sequence, [marks.get(index, 0) for index in range(batch.count)])
            if stored:
                in_place = False
                kept = {place: [each for each in part if each.offset not in stored] for place, part in parts.items()}
                parts = {place: part for place, part in kept.items() if part}
        return ClientBatch(
            epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            rewriter=self,
            topic=topic,
            partition=partition,
            compression=Compression(batch.compression),
            size=_size(batch, records),
            window=window,
            waiting=[],
            parts=parts,
            whole=batch if in_place else None,
        )

    def _deliver(self, batch: ClientBatch, now: float) -> None:
        parts = dict(batch.parts)
        batch.open_parts = len(parts)
        if not parts:
            self.finished(batch, now)
        each, put = batch.size // max(batch.count, 1), self._delivery.put
        for destination, part in parts.items():
            size = each * len(part)
            try:
                put(batch.topic, destination, part, size, batch.compression, batch, now, batch.whole)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, destination)
                batch.settled(destination, Result(UnknownServerError.code, message=_BUG), now)

    # -- out

    def finished(self, batch: ClientBatch, now: float) -> None:
        """Every part of a batch is settled."""
        try:
            outcome, followers = self._judged(batch)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, batch.partition)
            outcome = Outcome(UnknownServerError.code, error_message=_BUG)
            followers = [each for each in batch.window.abandon() if each is not batch] if batch.window else []
        self._tell(batch, outcome, now)
        for follower in followers:
            self._tell(follower, Outcome(OutOfOrderSequenceNumber.code, error_message="a batch before it failed"), now)
        if batch.window is not None and batch.window.under_way:
            self._deliver(batch.window.under_way[0], now)

    def _judged(self, batch: ClientBatch) -> tuple[Outcome, list[ClientBatch]]:
        """What the clients of a batch are told, and the batches that were to follow it and are refused with it."""
        followers: list[ClientBatch] = []
        if batch.failures:
            worst = max(batch.failures.values(), key=lambda result: result.doubtful)
            self._log_refusal(batch, worst)
            if batch.window is not None:
                stored = _fingerprints(
                    {place: part for place, part in batch.parts.items() if place not in batch.failures}
                )
                followers = batch.window.fail(stored, fence=worst.doubtful)
            fenced = worst.doubtful and batch.window is not None
            outcome = Outcome(ProducerFenced.code if fenced else worst.error_code, error_message=worst.message)
        else:
            outcome = Outcome(0, batch.offset)
            if batch.window is not None:
                batch.window.succeed(outcome)
        return outcome, followers

    def _tell(self, batch: ClientBatch, outcome: Outcome, now: float) -> None:
        self.buffered -= batch.size
        waiting, batch.waiting = batch.waiting, []
        for answered in waiting:
            with contained("a client is told what became of its records"):
                answered(outcome, now)

    def _log_refusal(self, batch: ClientBatch, result: Result) -> None:
        self._tally(batch.topic).refused += 1
        place = f"{batch.topic}-{batch.partition}"
        log.warning(
            "nobody can know whether records were stored" if result.doubtful else "upstream refused records",
            extra={"partition": place, "records": batch.count, "error": broker_error(result.error_code).name},
        )

    # -- topics

    def learned(self, metadata: MetadataResponse, now: float) -> None:
        """Metadata has come: go on with what waited for it."""
        for topic in metadata.topics:
            if topic.name in self._routes:
                self._routes_of(topic.name)
        for name in [name for name in self._parked if name in self._cluster.topics]:
            for each in self._parked.pop(name):
                self._unpark(each, now)

    def expire(self, now: float) -> None:
        """Give back what has waited too long for its topic."""
        for topic, parked in list(self._parked.items()):
            while parked and parked[0].deadline <= now:
                each = parked.popleft()
                self.buffered -= len(each.data)
                message = f"upstream has not described {topic} within {METADATA_WAIT:g} s"
                each.answered(Outcome(UnknownTopicOrPartition.code, error_message=message), now)
            if not parked:
                del self._parked[topic]
        self._control.want_topics(*self._parked)

    @property
    def deadline(self) -> float | None:
        return min((parked[0].deadline for parked in self._parked.values()), default=None)

    def _unpark(self, each: _Parked, now: float) -> None:
        self.buffered -= len(each.data)
        try:
            self._accept(each.topic, each.partition, each.data, each.transactional, each.answered, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", each.topic, each.partition)
            each.answered(Outcome(UnknownServerError.code, error_message=_BUG), now)

    def _routes_of(self, topic: str) -> Routes:
        known, ways = self._cluster.topics[topic], self._routes.get(topic)
        count = len(known.leaders)
        if ways is not None and ways.topic_id == NO_UUID:
            ways = self._routes[topic] = replace(ways, topic_id=known.topic_id)  # it was learnt without its id
        if ways is None or ways.topic_id != known.topic_id:
            rule = self._rules.of(topic)
            assert rule is not None, "only topics with a rule come here"
            ways = self._routes[topic] = routes(rule, known.topic_id, count)
            log.info("partitions pinned", extra={"topic": topic, "partitions": ways.partitions})
            if known.topic_id == NO_UUID:  # told by a client's old version of Metadata
                self._control.want_topics(topic)
        if count != ways.partitions and (topic, count) not in self._alerted:
            self._alerted.add((topic, count))
            what = "its keys go to the pinned number of them" if count > ways.partitions else "its records are refused"
            log.error(
                "a rewritten topic has another number of partitions than is pinned; %s",
                what,
                extra={"topic": topic, "pinned": ways.partitions, "partitions": count},
            )
        return ways

    # -- observed topics

    def observe(self, topic: str, partition: int, data: Buffer | None) -> None:
        """Count the keys of a record set that passes untouched; what cannot be read is for upstream to judge."""
        known = self._cluster.topics.get(topic)
        rule = self._rules.of(topic)
        if known is None and _LEGAL_NAME.fullmatch(topic):
            self._control.want_topics(topic)  # its first records pass uncounted
        if known is None or rule is None or not data:
            return
        try:
            records = parse_batch(data).records(DECOMPRESSED_LIMIT)
        except DecodeError:
            return
        ways = self._routes.get(topic)
        if ways is None or ways.partitions != (rule.partitions or len(known.leaders)):
            ways = self._routes[topic] = routes(rule, known.topic_id, len(known.leaders))
        tally = self._tally(topic)
        tally.records += len(records)
        tally.keyless += records.keyless
        tally.misplaced += len(records) - len(ways.split(records, partition).get(partition, ()))

    def _tally(self, topic: str) -> Tally:
        return self.tallies.setdefault(topic, Tally())


def _checked(data: Buffer, transactional: bool) -> RecordBatch:
    """The one batch in a record set, judged as a broker would.

    Raises:
        BrokerError: it cannot be taken.
    """
    if transactional:
        raise PolicyViolation(TRANSACTIONS_REFUSED)
    try:
        batch = parse_batch(data)
    except DecodeError as error:
        if len(data) > _MAGIC and data[_MAGIC] != MAGIC:
            raise UnsupportedForMessageFormat(f"{error}; use a client that speaks Kafka 0.11 or later") from None
        raise InvalidRecord(str(error)) from None
    if len(batch.data) != len(data):
        raise InvalidRecord("more than one batch for a partition in one request")
    if not batch.crc_matches:
        raise CorruptMessage("the CRC does not match")
    if batch.transactional:
        raise PolicyViolation(TRANSACTIONS_REFUSED)
    if batch.control or batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise InvalidRecord(
            "a control batch" if batch.control else f"{batch.count} records up to {batch.last_offset_delta}"
        )
    return batch


def _opened(batch: RecordBatch) -> Records:
    """The records, numbered from 0 on.

    Raises:
        InvalidRecord: they are damaged.
        InvalidTimestamp: they may not fit a batch any more once they are parted.
    """
    batch.base_offset = 0  # upstream gives it another
    try:
        records = batch.records(DECOMPRESSED_LIMIT)
    except DecodeError as error:
        raise InvalidRecord(f"the records cannot be read: {error}") from None
    if records.time_span > _FARTHEST:
        raise InvalidTimestamp("the timestamps of a batch lie more than 63 bits apart")
    return records


def _size(batch: RecordBatch, records: Records) -> int:
    """Bytes that a batch takes in memory while it is under way: as it came, opened, sorted and in upstream's batch."""
    return len(batch.data) + 2 * records.memory


def _fingerprints(parts: Mapping[int, SomeRecords]) -> dict[int, int]:
    """Index of a record in its batch -> the hash of all that is in it."""
    return {
        each.offset: hash((each.timestamp, each.key, each.value, each.headers))
        for part in parts.values()
        for each in part
    }
