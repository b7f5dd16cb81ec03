"""Records of rewritten topics: from a client's batch to the partitions of their keys, and back to the client's answer.

Rules:
- What the proxy cannot do right is refused with an error that no client retries and a message that says what to do.
- A batch that is large when decompressed is opened in a thread (see `ottla.proxy.threads`). It has its place among the
  client's batches from the beginning, and what comes behind it waits.
- A client is answered when every part of its batch is settled. Its offset is told where the batch stayed whole and in
  place, else it is -1, "unknown".
- The work goes on when the client has gone: its retry, over whatever connection, finds it under way or done.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.compression import Compression, decompressed_bound
from ottla.codec.records import HEADER_SIZE, MAGIC, NO_PRODUCER_ID, RecordBatch, Records, parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    DecodeError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
    broker_error,
)
from ottla.proxy.batches import Part, Result, SomeRecords
from ottla.proxy.cluster import Cluster
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import contained
from ottla.proxy.control import Control
from ottla.proxy.delivery import IMPLICIT, Delivery
from ottla.proxy.journal.notes import NotedBatch
from ottla.proxy.lent import Producer, Transaction
from ottla.proxy.producers import KnownProducer, Numbered, Outcome, Producers, Window
from ottla.proxy.routing import Routes, RuleHistory
from ottla.proxy.streams import ABORTED, LAST_EPOCH, OVERTAKEN, WITHDRAWN
from ottla.proxy.threads import Threads
from ottla.proxy.topics import Topics

if TYPE_CHECKING:
    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

Answered = Callable[[Outcome, float], None]

DECOMPRESSED_LIMIT = 64 * 2**20
"""Bytes that one batch of a client may take when decompressed."""
_BUG = "the proxy failed on these records, as its log says"
_IN_PART = "a batch before it failed, and some of its records are stored"
_NOT_ADDED = "its keys belong to partitions that were not added to the transaction: abort it"
_RULE_CHANGED = "the proxy's rule for this topic has changed since this producer was opened: open another one"
_MAGIC = 16
"""Where the format of a record set stands."""
_FARTHEST = 2**63 - 1
"""Milliseconds between two timestamps of a batch at the most, whichever of them its records are counted from."""
_PER_RECORD = 64
"""Bytes that a record takes in memory beside its own, about."""
MOST_FENCED = 10_000
"""Producers to remember as told of."""


@dataclass(slots=True)
class Tally:
    """What was seen of one topic."""

    records: int = 0
    keyless: int = 0
    misplaced: int = 0
    """Keys that the client put elsewhere than the partitioner would: moved, or in mode `observe` only counted."""
    refused: int = 0
    """Batches."""


@dataclass(slots=True, eq=False, kw_only=True)
class ClientBatch(Numbered):
    """A client's batch under way. Its parts settle one by one (see `Result`)."""

    rewriter: "Rewriter"
    number: int
    """Counts up."""
    producer: Producer
    client: int
    topic: str
    partition: int
    """The one that the client chose."""
    batch: RecordBatch
    ways: Routes
    size: int
    """Bytes that it takes in memory, about; while it is being opened, at most."""
    window: "Window[ClientBatch] | None"
    """``None`` where the client is not idempotent."""
    waiting: list[Answered]
    """Who wants to hear the outcome; a retry adds itself."""
    records: Records = field(default_factory=Records)
    """None while it is being opened, and where it cannot be."""
    parts: dict[int, SomeRecords] = field(default_factory=dict)
    """Partition -> the records that go there; their offsets are their indexes in the batch."""
    left_out: set[int] = field(default_factory=set)
    """Indexes of records that were stored before."""
    in_place: bool = False
    """All of its records go where its client put them."""
    unstored: list[tuple[Part, bool]] = field(default_factory=list)
    """Parts that are not stored, or (true) of which nobody can know."""

    def leave_out(self, indexes: set[int]) -> None:
        """Have these records not sent."""
        self.left_out = indexes
        if indexes:
            self.in_place = False
            kept = {place: [each for each in part if each.offset not in indexes] for place, part in self.parts.items()}
            self.parts = {place: part for place, part in kept.items() if part}

    def parted(self) -> None:
        self.open_parts += 1

    def settled(self, part: Part, result: Result, now: float) -> None:
        self.open_parts -= 1
        if result.error_code:
            self.unstored.append((part, result.doubtful))
            self.rewriter.failed(self, result, now)
        elif self.in_place and part.whole is not None:
            self.offset = result.offset
        if self.open_parts == 0:
            self.rewriter.finished(self, now)

    def fingerprints(self) -> Iterable[tuple[int, bool | None]]:
        unstored: dict[int, bool | None] = {
            each.offset: None if doubtful else False for part, doubtful in self.unstored for each in part.records
        }
        for index, fingerprint in enumerate(_fingerprints(self.records)):
            yield fingerprint, unstored.get(index, self.begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A record set that a client sent for a partition of a rewritten topic.

    Attributes:
        version: of its request.
        answered: hears what became of it.
    """

    topic: str
    partition: int
    data: Buffer
    transactional_id: str | None
    version: int
    client: int
    answered: Answered

    def refuse(self, error: BrokerError, now: float) -> None:
        self.answered(Outcome(error.code, error_message=error.detail or None), now)


class _Opened(NamedTuple):
    """The records of a batch, and sorted by the partitions that they go to."""

    records: Records
    parts: dict[int, Records]


class Rewriter:
    """Takes the records of rewritten topics, and counts those of observed ones."""

    def __init__(
        self,
        topics: Topics,
        cluster: Cluster,
        control: Control,
        delivery: Delivery,
        threads: Threads,
        config: ProxyConfig,
        journal: "Journal | None",
    ) -> None:
        self.producers: Producers[ClientBatch] = Producers(self._forget)
        self._journal = journal
        self._numbers = count(1)
        self.tallies: dict[str, Tally] = {}
        self.buffered = 0
        """Bytes of records on their way, about."""
        self.buffered_of: Counter[int] = Counter()
        """The same by client."""
        self._topics, self._cluster, self._control, self._delivery = topics, cluster, control, delivery
        self._threads, self._config = threads, config
        self.history = RuleHistory(config.topics)
        self._fenced: set[int] = set()
        """Producers that the log has told of."""

    def allocated(self, producer_id: int, now: float) -> KnownProducer[ClientBatch]:
        """Upstream gave a client this producer id, which nobody had before."""
        if producer_id in self.producers:  # upstream has lost its data, and all that was sent under this id
            earlier = self.producers.known(producer_id)
            self._delivery.renew(earlier, 0, now)
            self.withdraw(earlier, now, before=LAST_EPOCH + 1)
            self._forget(self.producers.pop(producer_id))
        return self.remember(producer_id)

    def remember(self, producer_id: int) -> KnownProducer[ClientBatch]:
        """A client's producer id, which may be known already."""
        producer = self.producers.allocated(producer_id)
        producer.since = self.history.newest
        if self._journal is not None:
            self._journal.allocated(producer_id, producer.since)
        return producer

    def _forget(self, producer: Producer) -> None:
        assert producer.producer_id is not None, "it is a client's"
        self._delivery.drop(producer)
        if self._journal is not None:
            self._journal.forgotten(producer.producer_id)

    # -- in

    def offer(self, offer: Offer, now: float) -> None:
        """Deliver what a client has sent."""
        try:
            batch = _checked(offer.data)
            if batch.transactional != (offer.transactional_id is not None):
                raise InvalidTxnState("a batch is transactional if its request has a transactional id, and only then")
            if batch.transactional and batch.producer_id == NO_PRODUCER_ID:
                raise InvalidRecord("a transactional batch without a producer id")
            if not self._topics.is_described(offer.topic):
                self._check_room()
        except BrokerError as error:
            self._tally(offer.topic).refused += 1
            offer.refuse(error, now)
            return
        if self._topics.is_described(offer.topic):
            self._accept(offer, batch, now)
        else:
            self._park(offer, batch, now)

    def _park(self, offer: Offer, batch: RecordBatch, now: float) -> None:
        """Have it wait until its topic is described."""
        producer, transaction = self._transaction(batch) or (None, None)
        self._count(offer.client, len(offer.data))
        if transaction is not None:
            transaction.parked += 1

        def go_on(now: float) -> None:
            self._count(offer.client, -len(offer.data))
            try:
                self._accept(offer, batch, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s-%d", offer.topic, offer.partition)
                offer.answered(Outcome(UnknownServerError.code, error_message=_BUG), now)
            finally:
                over(now)

        def give_up(message: str, now: float) -> None:
            self._count(offer.client, -len(offer.data))
            offer.refuse(UnknownTopicOrPartition(message), now)
            over(now)

        def over(now: float) -> None:
            if producer is not None and transaction is not None:
                transaction.parked -= 1
                self._go_on_ending(producer, now)

        self._topics.when_described(offer.topic, go_on, give_up, now)

    def _transaction(self, batch: RecordBatch) -> tuple[KnownProducer[ClientBatch], Transaction] | None:
        """The producer and the transaction of a batch; ``None`` where the proxy does not know its epoch."""
        if not batch.transactional or batch.producer_id not in self.producers:
            return None
        producer = self.producers.known(batch.producer_id)
        transaction = producer.transaction
        known = transaction is not None and transaction.epoch == batch.producer_epoch
        return (producer, transaction) if known and transaction is not None else None

    def refuses_to_pass(self, topic: str, data: Buffer | None) -> Outcome | None:
        """Why records of a topic that is not rewritten are not for upstream: it was, and knows other numbers."""
        if not self.history.newest or not data:
            return None
        try:
            batch = parse_batch(data)
        except DecodeError:
            return None
        if batch.producer_id not in self.producers:
            return None
        producer = self.producers.known(batch.producer_id)
        if not self.history.changed(topic, producer.since):
            return None
        error = OutOfOrderSequenceNumber if batch.transactional else ProducerFenced
        self._tell_of_fencing(batch.producer_id, topic, ProducerFenced(_RULE_CHANGED))
        return Outcome(error.code, error_message=_RULE_CHANGED)

    def left(self, client: int) -> None:
        """A client has gone; what it has sent goes its way."""
        self._delivery.lent.back(client)

    def _accept(self, offer: Offer, batch: RecordBatch, now: float) -> None:
        try:
            ways = self._ways(offer)
            producer = self._producer(offer, batch)
            window = None
            if isinstance(producer, KnownProducer):
                window = producer.window(offer.topic, offer.partition)
                match window.look_up(batch.producer_epoch, batch.base_sequence, batch.count):
                    case ClientBatch() as under_way:
                        under_way.waiting.append(offer.answered)
                        return
                    case Outcome() as outcome:
                        offer.answered(outcome, now)
                        return
            self._check_room()
        except BrokerError as error:
            self._tally(offer.topic).refused += 1
            if isinstance(error, ProducerFenced):
                self._tell_of_fencing(batch.producer_id, offer.topic, error)
            offer.refuse(error, now)
            return
        place = offer.topic, offer.partition
        taken = self._client_batch(batch, offer.client, producer, place, window, ways, next(self._numbers))
        taken.waiting.append(offer.answered)
        if window is None:
            producer.unopened.append(taken)
        else:
            window.begin(taken)
            if self._journal is not None:
                self._journal.begun(taken)
            self._note(taken)
        self.open(taken, now)

    def open(self, batch: ClientBatch, now: float) -> None:
        """Open a batch that was taken on, and go on with it."""
        self._open(batch.batch, batch.size, batch.ways, batch.partition, partial(self._go_on, batch), now)

    def _open(
        self,
        batch: RecordBatch,
        most: int,
        ways: Routes,
        partition: int,
        then: "Callable[[_Opened | BrokerError, float], None]",
        now: float,
    ) -> None:
        """Open a batch, here or in a thread, which takes up to ``most`` bytes; then call ``then``."""
        call = partial(_opened, batch, ways, partition)
        if not self._threads.fits(most):
            self._threads.run(call, then)
            return
        found = call()
        self._threads.spend(_size(batch, found.records) if isinstance(found, _Opened) else most)
        then(found, now)

    def _go_on(self, batch: ClientBatch, found: "_Opened | BrokerError", now: float) -> None:
        """A batch is opened, or cannot be."""
        batch.opening = False
        if isinstance(found, BrokerError):
            self.failed(batch, Result(found.code, message=found.detail or None), now)
        else:
            self._take(batch, found)
        window = batch.window
        if window is None:
            self._deliver_unopened(batch.producer, now)
        elif batch.refused:
            self.finished(batch, now)
        else:
            self._deliver_due(window, now)

    def _take(self, batch: ClientBatch, opened: _Opened) -> None:
        batch.records, batch.parts = opened.records, {**opened.parts}
        batch.in_place = list(batch.parts) == [batch.partition]
        size = _size(batch.batch, batch.records)
        self._count(batch.client, size - batch.size)
        batch.size = size

    def _deliver_unopened(self, producer: Producer, now: float) -> None:
        """Deliver what a lent producer has to send, in its order."""
        while producer.unopened and not producer.unopened[0].opening:
            batch: ClientBatch = producer.unopened.popleft()
            if batch.failure is None:
                self._deliver(batch, now)
            else:
                self.finished(batch, now)

    def _ways(self, offer: Offer) -> Routes:
        """Where the keys of a topic go.

        Raises:
            BrokerError: not for what is offered.
        """
        topic = offer.topic
        ways, partitions = self._topics.ways(topic), self._topics.partitions(topic)
        if len(partitions) < ways.partitions:
            self._control.request_topics(topic)  # it may have grown, or been made anew
            raise PolicyViolation(
                f"{topic} has {len(partitions)} partitions, and the proxy is to spread its keys over "
                f"{ways.partitions}: give the topic that many, or state another number in the proxy's topic rule"
            )
        if offer.partition not in partitions:
            raise UnknownTopicOrPartition(f"{topic} has no partition {offer.partition}")
        return ways

    def _producer(self, offer: Offer, batch: RecordBatch) -> Producer:
        """Who sends a batch upstream.

        Raises:
            BrokerError: nobody may.
        """
        if batch.producer_id == NO_PRODUCER_ID:
            return self._delivery.lent.to(offer.client)
        if batch.transactional:
            return self._in_transaction(offer, batch)
        producer = self.producers.known(batch.producer_id)
        if producer.transaction is not None:
            raise InvalidTxnState(f"producer id {batch.producer_id} is of a transactional producer")
        if self.history.changed(offer.topic, producer.since):
            raise ProducerFenced(_RULE_CHANGED)
        # What a client has sent here before the topic had a rule is of no later epoch than its own.
        producer.epoch = max(producer.epoch, batch.producer_epoch + 1)
        return producer

    def _in_transaction(self, offer: Offer, batch: RecordBatch) -> KnownProducer[ClientBatch]:
        """A transactional producer.

        Raises:
            OutOfOrderSequenceNumber: the transaction takes no more records. A broker says the same behind a gap, and
                clients abort and ask for another epoch then; franz-go also where it would send no EndTxn, because
                nothing of the transaction was stored.
        """
        found = self._transaction(batch)
        if found is None:
            known = batch.producer_id in self.producers and self.producers.known(batch.producer_id).transaction
            if known and batch.producer_epoch < known.epoch:
                raise InvalidProducerEpoch(f"epoch {batch.producer_epoch} has been followed by {known.epoch}")
            raise OutOfOrderSequenceNumber(
                f"the proxy does not know epoch {batch.producer_epoch} of producer id {batch.producer_id}, because it "
                "was not given through this proxy, or its state is lost: abort, and if that does not help open a new "
                "producer"
            )
        producer, transaction = found
        if transaction.transactional_id != offer.transactional_id:
            raise InvalidProducerIdMapping(f"producer id {batch.producer_id} is of another transactional id")
        if transaction.failure is not None:
            why = transaction.failure.message or broker_error(transaction.failure.error_code).name
            raise OutOfOrderSequenceNumber(f"abort the transaction, because a batch before this one failed: {why}")
        if any(stream.lost for stream in producer.streams.values()):
            raise OutOfOrderSequenceNumber("abort the transaction: upstream does not know its earlier records any more")
        if self.history.changed(offer.topic, producer.since):
            raise OutOfOrderSequenceNumber(_RULE_CHANGED)
        if transaction.implicit != (offer.version >= IMPLICIT):
            transaction.implicit = not transaction.implicit
            self.note_transaction(producer)
        return producer

    def note_transaction(self, producer: Producer) -> None:
        """What is known of a producer's transactions has changed."""
        if self._journal is not None:
            self._journal.transaction(producer)

    def _client_batch(
        self,
        batch: RecordBatch,
        client: int,
        producer: Producer,
        place: tuple[str, int],
        window: "Window[ClientBatch] | None",
        ways: Routes,
        number: int,
    ) -> ClientBatch:
        size = _most(batch)
        self._count(client, size)
        return ClientBatch(
            epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            transactional=batch.transactional,
            opening=True,
            rewriter=self,
            number=number,
            producer=producer,
            client=client,
            topic=place[0],
            partition=place[1],
            batch=batch,
            ways=ways,
            size=size,
            window=window,
            waiting=[],
        )

    def _note(self, batch: ClientBatch) -> None:
        """Something has changed in the window of a batch."""
        if self._journal is not None and batch.window is not None:
            self._journal.window(batch, batch.window)

    # -- what another process has left

    def restored(
        self,
        producer: KnownProducer[ClientBatch],
        place: tuple[str, int],
        window: "Window[ClientBatch]",
        noted: NotedBatch,
        client: int,
        *,
        begun: bool,
    ) -> ClientBatch:
        """A batch that was under way; it is for the caller to `open` one that was not ``begun``.

        Raises:
            BrokerError: it is damaged.
        """
        ways = Routes(noted.topic_id, noted.partitions, noted.partitioner)
        self._numbers = count(max(next(self._numbers), noted.number + 1))
        batch = self._client_batch(_checked(noted.data), client, producer, place, window, ways, noted.number)
        if begun:
            opened = _opened(batch.batch, ways, batch.partition)
            if isinstance(opened, BrokerError):
                raise opened
            batch.begun, batch.opening = True, False
            self._take(batch, opened)
        return batch

    def resume(self, window: "Window[ClientBatch]", now: float) -> None:
        """Go on with the batches of a window."""
        self._tell_of_those_over(window, now)
        self._deliver_due(window, now)

    def withdraw(self, producer: KnownProducer[ClientBatch], now: float, *, before: int | None = None) -> None:
        """Have nothing more stored of a transaction that is to be aborted, or of what is of an epoch ``before``."""
        result = ABORTED if before is None else OVERTAKEN
        for window in list(producer.windows.values()):
            for batch in list(window.under_way):
                if not batch.refused and (before is None or batch.epoch < before):
                    self.failed(batch, result, now)
            self.resume(window, now)

    def _count(self, client: int, size: int) -> None:
        """So many more bytes are held for a client."""
        self.buffered += size
        self.buffered_of[client] += size
        if not self.buffered_of[client]:
            del self.buffered_of[client]

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

    def _sift(self, batch: ClientBatch) -> None:
        """Leave out those of its records that are stored since a batch with them was refused."""
        if batch.window is not None and batch.window.remembers:
            batch.leave_out(batch.window.stored_already(_fingerprints(batch.records)))
        tally = self._tally(batch.topic)
        tally.records += batch.count
        tally.keyless += batch.records.keyless
        tally.misplaced += batch.count - len(batch.left_out) - len(batch.parts.get(batch.partition, ()))

    def _deliver_due(self, window: "Window[ClientBatch]", now: float) -> None:
        while batch := window.due():
            self._deliver(batch, now)

    def _deliver(self, batch: ClientBatch, now: float) -> None:
        self._note(batch)
        try:
            self._sift(batch)
        except ProducerFenced as error:
            self.failed(batch, Result(error.code, message=error.detail, doubtful=True), now)
            self.finished(batch, now)
            return
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, batch.partition)
            self.failed(batch, Result(UnknownServerError.code, message=_BUG), now)
            self.finished(batch, now)
            return
        if not self._may_go(batch):
            self.failed(batch, Result(TransactionAbortable.code, message=_NOT_ADDED), now)
            self.finished(batch, now)
            return
        batch.begun = True
        batch.open_parts = len(batch.parts)
        if not batch.parts:
            self.finished(batch, now)
            return
        each, compression = batch.size // max(batch.count, 1), Compression(batch.batch.compression)
        for destination, records in batch.parts.items():
            size, whole = each * len(records), batch.batch if batch.in_place else None
            part = Part(batch, destination, records, size, compression, now, whole)
            if batch.refused:  # for a part of it that could not be put
                batch.settled(part, WITHDRAWN, now)
                continue
            try:
                self._delivery.put(batch.producer, batch.topic, part, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, destination)
                batch.settled(part, Result(UnknownServerError.code, message=_BUG), now)

    def _may_go(self, batch: ClientBatch) -> bool:
        """Whether a batch goes to partitions only that belong to its transaction.

        Before version 2 nothing else sees to that, and brokers before 3.6 store such records in no transaction. The
        partitions may be others than those that were added, where a topic has grown, was recreated, or has other rules.
        """
        transaction = batch.producer.transaction
        if not batch.transactional or transaction is None or transaction.implicit:
            return True
        return batch.parts.keys() <= transaction.added.get(batch.topic, set())

    # -- out

    def failed(self, batch: ClientBatch, result: Result, now: float) -> None:
        """A part of a batch is not stored, or in doubt."""
        self._note(batch)
        try:
            self._fail(batch, result, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, batch.partition)
            batch.refused, batch.failure = True, Result(UnknownServerError.code, message=_BUG, doubtful=True)

    def _fail(self, batch: ClientBatch, result: Result, now: float) -> None:
        window = batch.window
        if window is None:
            batch.failure = batch.failure or result
            return
        for each in window.failed(batch, result):  # what follows may not be stored before it
            self._delivery.withdraw(each.producer, each.topic, each.parts, now)

    def _fail_transaction(self, batch: ClientBatch) -> None:
        """See that it is not committed with a part of a batch that is refused."""
        doubtful = batch.failure is not None and batch.failure.doubtful
        unstored = sum(len(part.records) for part, _ in batch.unstored)
        if not doubtful and (not batch.begun or unstored == batch.count):
            return
        if batch.failure is None:
            batch.failure = Result(TransactionAbortable.code, message=_IN_PART)
        transaction = batch.producer.transaction
        if transaction is None or transaction.epoch != batch.epoch:
            return
        if transaction.failure is None or (doubtful and not transaction.failure.doubtful):
            transaction.failure = batch.failure
            self.note_transaction(batch.producer)

    def finished(self, batch: ClientBatch, now: float) -> None:
        """Every part of a batch is settled."""
        window = batch.window
        if window is None:
            self._tell(batch, batch.outcome(), now)
            return
        self._note(batch)
        self._tell_of_those_over(window, now)
        self._deliver_due(window, now)

    def _tell_of_those_over(self, window: "Window[ClientBatch]", now: float) -> None:
        while over := window.over():
            try:
                if over.transactional and over.refused:
                    self._fail_transaction(over)
                outcome = window.judged(over)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s-%d", over.topic, over.partition)
                outcome = Outcome(UnknownServerError.code, error_message=_BUG)
                for each in window.abandon():
                    self._tell(each, outcome, now)
            self._tell(over, outcome, now)

    def _tell(self, batch: ClientBatch, outcome: Outcome, now: float) -> None:
        with contained("records are over"):
            self._count(batch.client, -batch.size)
            if batch.failure is not None:
                self._log_refusal(batch, batch.failure)
        waiting, batch.waiting = batch.waiting, []
        for answered in waiting:
            with contained("a client is told what became of its records"):
                answered(outcome, now)
        if isinstance(batch.producer, KnownProducer):
            self._go_on_ending(batch.producer, now)

    def _go_on_ending(self, producer: KnownProducer[ClientBatch], now: float) -> None:
        """Something of a producer is over, for the end of which its transaction may wait."""
        transaction = producer.transaction
        if transaction is not None and transaction.waiting and producer.settled:
            transaction.go_on(now)

    def _log_refusal(self, batch: ClientBatch, result: Result) -> None:
        self._tally(batch.topic).refused += 1
        place = f"{batch.topic}-{batch.partition}"
        log.warning(
            "nobody can know whether records were stored" if result.doubtful else "records were refused",
            extra={"partition": place, "records": batch.count, "error": broker_error(result.error_code).name},
        )

    # -- observed topics

    def observe(self, client: int, topic: str, partition: int, data: Buffer | None, now: float) -> None:
        """Count the keys of a record set that passes untouched; what cannot be read is for upstream to judge."""
        ways = self._topics.observed(topic)
        if ways is None:
            self._control.request_topics(topic)  # its first records pass uncounted
            return
        if not data:
            return
        try:
            batch = parse_batch(data)
        except DecodeError:
            return
        size = len(data)
        self._count(client, size)

        def opened(found: _Opened | BrokerError, now: float) -> None:
            self._count(client, -size)
            if isinstance(found, _Opened):
                tally = self._tally(topic)
                tally.records += len(found.records)
                tally.keyless += found.records.keyless
                tally.misplaced += len(found.records) - len(found.parts.get(partition, ()))

        self._open(batch, _most(batch), ways, partition, opened, now)

    def _tally(self, topic: str) -> Tally:
        return self.tallies.setdefault(topic, Tally())


def _checked(data: Buffer) -> RecordBatch:
    """The one batch in a record set, judged as a broker would.

    Raises:
        BrokerError: it cannot be taken.
    """
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
    if batch.control or batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise InvalidRecord(
            "a control batch" if batch.control else f"{batch.count} records up to {batch.last_offset_delta}"
        )
    batch.base_offset = 0  # upstream gives it another
    return batch


def _opened(batch: RecordBatch, ways: Routes, partition: int) -> _Opened | BrokerError:
    """The records, numbered from 0 on, unless they are damaged or may not fit a batch any more once they are parted.

    It may be called in a thread.
    """
    try:
        records = batch.records(DECOMPRESSED_LIMIT, _decompressed(batch))
        if records.time_span > _FARTHEST:
            return InvalidTimestamp("the timestamps of a batch lie more than 63 bits apart")
        return _Opened(records, ways.split(records, partition))
    except DecodeError as error:
        return InvalidRecord(f"the records cannot be read: {error}")
    except Exception:
        log.exception("a bug in the proxy, please report it: records for partition %d", partition)
        return UnknownServerError(_BUG)


def _size(batch: RecordBatch, records: Records) -> int:
    """Bytes that a batch takes in memory while it is under way: as it came, opened, sorted and in upstream's batch."""
    return len(batch.data) + 2 * records.memory


def _most(batch: RecordBatch) -> int:
    """The same before it is opened, at most."""
    opened = _decompressed(batch) + _PER_RECORD * max(batch.count, 0)
    return len(batch.data) + 2 * min(opened, DECOMPRESSED_LIMIT)


def _decompressed(batch: RecordBatch) -> int:
    """Bytes that the records are decompressed, at most, by what the batch says of itself; more is not looked at."""
    return decompressed_bound(batch.compression, batch.data[HEADER_SIZE:])


def _fingerprints(records: Records) -> Iterator[int]:
    """Of each record the hash of all that is in it, the same in every process."""
    for each in records:
        key, value = (None if part is None else bytes(part) for part in (each.key, each.value))
        content = (each.timestamp, key, value, tuple(each.headers))
        digest = blake2b(repr(content).encode(), digest_size=8).digest()
        yield int.from_bytes(digest, "big", signed=True)
