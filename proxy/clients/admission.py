"""Checks who may send to rewritten topics, and chooses the producer on upstream.

Rules:
- A producer id, and the epoch of a transactional one, is accepted only if it was allocated through this proxy.
- A producer sends only for the user to whom its id was allocated: it has the rights of this user upstream.
- After a failure in a transaction its records are refused until it is aborted.
- A producer that was opened before a topic's rule changed may not send to that topic: its sequences there mean other
  records now. The same holds for topics that get copies.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.codec.records import NO_PRODUCER_ID, RecordBatch
from ottla.codec.wire import Buffer
from ottla.complaints import Complaints
from ottla.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    broker_error,
)
from ottla.proxy.clients.batches import ClientBatch, Offer, Origin
from ottla.proxy.clients.opening import producer_in
from ottla.proxy.clients.producers import ClientProducers, KnownProducer
from ottla.proxy.clients.refused_memory import RefusedMemory
from ottla.proxy.clients.routed_topics import RoutedTopics, rule_has_changed
from ottla.proxy.clients.unknown_epochs import UnknownEpochs
from ottla.proxy.clients.windows import ClientResult, Window
from ottla.proxy.config import ProxyConfig
from ottla.proxy.routing import Copies, Destination, Routes, RuleHistory
from ottla.proxy.topic_rule import TopicRule
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.principals import Principal
from ottla.proxy.upstream.producer import UpstreamProducer, UpstreamTransaction
from ottla.proxy.upstream.stream_sender import IMPLICIT

if TYPE_CHECKING:
    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

_RULE_CHANGED = (
    "the proxy's rule for this topic, or for one that gets copies, has changed since this producer was opened: open "
    "another one"
)


_TOO_MANY_REFUSED = "the proxy remembers too many refused records, and of all hosts, this producer's has most of them"


class Admission:
    """Checks record sets against the producers of clients and the rules of topics.

    Attributes:
        producers: clients' producers.
        history: the topic rules over time.
        unknown: transactions of which records were refused.

    Args:
        now: returns the time in seconds.
    """

    def __init__(
        self,
        producers: ClientProducers[ClientBatch],
        topics: RoutedTopics,
        control: Control,
        delivery: Delivery,
        config: ProxyConfig,
        journal: "Journal | None",
        refused: RefusedMemory,
        now: Callable[[], float],
    ) -> None:
        self._topics, self._control, self._delivery, self._journal = topics, control, delivery, journal
        self.producers, self._refused = producers, refused
        self.history = RuleHistory(config.topics)
        self.unknown = UnknownEpochs()
        self._now = now
        self._complaints = Complaints()

    def remember(self, producer_id: int, origin: Origin) -> KnownProducer[ClientBatch]:
        """Remember the producer id of a client; it may be known already, and then belongs to the client's user."""
        principal = origin.principal
        producer = self.producers.allocated(producer_id, self.history.newest, origin.host, principal=principal)
        self._remembered(producer)
        return producer

    def _remembered(self, producer: KnownProducer[ClientBatch]) -> None:
        """Record a producer in the journal, and forget another one if there are too many."""
        if self._journal is not None:
            self._journal.allocated(producer)
        self._forget_one()

    def restored(
        self, producer_id: int, since: int, host: str, *, writes: bool, principal: Principal | None
    ) -> KnownProducer[ClientBatch]:
        """Remember a producer id that was allocated when the topic rules had the number ``since``."""
        producer = self.producers.allocated(producer_id, since, host, writes=writes, principal=principal)
        self._forget_one()
        return producer

    def _forget_one(self) -> None:
        if (oldest := self.producers.forget_one()) is not None:
            self._forget(oldest)

    def knows(self, producer: UpstreamProducer) -> bool:
        """Whether the producer is remembered, and its id has not been given to another one."""
        return self.producers.has(producer)

    def _forget(self, producer: KnownProducer[ClientBatch]) -> None:
        assert producer.producer_id is not None, "clients' producers have an id"
        self._refused.forgotten(producer)
        self._delivery.drop(producer)
        if self._journal is not None:
            self._journal.forgotten(producer.producer_id)

    def forget(self, producer_id: int) -> None:
        """Forget a producer: upstream has lost its records."""
        self._forget(self.producers.pop(producer_id))

    def remembers(self, producer: KnownProducer[ClientBatch], window: Window[ClientBatch]) -> None:
        """Have a window measured, because it was restored from the journal."""
        self._refused.changed(producer, window)

    def forget_excess(self) -> None:
        """Forget producers if the windows of all remember too many records of refused batches."""
        self._refused.measure()
        for producer in self._refused.excess():
            assert producer.producer_id is not None, "clients' producers have an id"
            facts = {"producer_id": producer.producer_id, "why": _TOO_MANY_REFUSED}
            log.warning("producer forgotten, it is fenced if it sends again", extra=facts)
            self.forget(producer.producer_id)

    def left(self, client: int) -> None:
        """Take back the producer lent to a client that has disconnected; its batches are still sent."""
        self._delivery.lent.back(client)

    def note_transaction(self, producer: UpstreamProducer) -> None:
        """Record the state of a producer's transaction in the journal, because it has changed."""
        if self._journal is not None:
            self._journal.transaction(producer)

    def note_begun(self, batch: ClientBatch) -> None:
        """Record a batch that was accepted, and its window, in the journal; its producer counts from now on."""
        if isinstance(batch.producer, KnownProducer) and self.producers.wrote(batch.producer, batch.origin.host):
            self._remembered(batch.producer)
        if self._journal is not None:
            self._journal.begun(batch)
        self.note_window_of(batch)

    def note_window_of(self, batch: ClientBatch) -> None:
        """Note that the window of a batch changes, if it has one."""
        if batch.window is not None:
            self.note_window(batch.producer, batch.place, batch.window)

    def note_window(self, producer: UpstreamProducer, place: Destination, window: Window[ClientBatch]) -> None:
        """Record a window in the journal, and have it measured, unless its id belongs to another producer by now.

        Args:
            place: the topic, and the partition that the client chose.
        """
        if not isinstance(producer, KnownProducer) or not self.producers.has(producer):
            return
        self._refused.changed(producer, window)
        if self._journal is not None:
            assert producer.producer_id is not None, "it is a client's"
            self._journal.window(producer.producer_id, place, window)

    def transaction(
        self, offer: Offer, batch: RecordBatch
    ) -> tuple[KnownProducer[ClientBatch], UpstreamTransaction] | None:
        """The producer and the transaction of a batch; ``None`` if it has none, or its epoch is unknown to its user."""
        if not batch.transactional:
            return None
        found = self.producers.in_transaction(batch.producer_id, batch.producer_epoch)
        return None if found is None or found[0].principal is not offer.origin.principal else found

    def change_rules(self, rules: Sequence[TopicRule]) -> None:
        """Remember new rules: producers that are open now were opened under the former ones."""
        self.history.change(rules)
        if self._journal is not None:
            self._journal.rules_changed()

    # -- checks

    def routes(self, offer: Offer) -> Routes:
        """The routes for the keys of a topic.

        Raises:
            BrokerError: the topic is no longer rewritten, has too few partitions, or lacks the partition in the
                request.
        """
        topic = offer.topic
        if not self._topics.rewrites(topic):  # since the records arrived: sent again, they pass unchanged
            raise rule_has_changed(topic)
        routes = self._topics.routes(topic)
        self._topics.check_partition(topic, routes, offer.partition)
        return routes

    def copies(self, offer: Offer) -> Copies:
        """The topics that get copies of a record set, with the routes for its keys there.

        Raises:
            BrokerError: one of them has too few partitions.
        """
        found = tuple((topic, self._topics.routes(topic)) for topic in self._topics.copies(offer.topic))
        for topic, routes in found:
            self._topics.check_count(topic, routes)
        return found

    def _changed(self, offer: Offer, since: int) -> bool:
        """Whether the rule of a topic that gets the records has changed since a producer was opened."""
        return any(self.history.changed(topic, since) for topic in self._topics.with_copies(offer.topic))

    def producer(self, offer: Offer, batch: RecordBatch) -> UpstreamProducer:
        """The producer that sends a batch upstream.

        Raises:
            BrokerError: the client may not send this batch.
        """
        if batch.producer_id == NO_PRODUCER_ID:
            return self._delivery.lent.to(offer.origin.client, offer.origin.principal)
        if batch.transactional:
            return self._in_transaction(offer, batch)
        producer = self.producers.known(batch.producer_id)
        if producer.principal is not offer.origin.principal:
            raise ProducerFenced(f"producer id {batch.producer_id} belongs to another user: open a new producer")
        if producer.transaction is not None:
            raise InvalidTxnState(f"producer id {batch.producer_id} belongs to a transactional producer")
        if self._changed(offer, producer.since):
            raise ProducerFenced(_RULE_CHANGED)
        # Batches that this client sent before the topic had a rule have at most the client's epoch on upstream, so a
        # later epoch cannot collide with them. Streams to other topics keep their epochs, or who may write to one topic
        # could use up the epochs of all.
        producer.pass_epoch(self._topics.with_copies(offer.topic), batch.producer_epoch)
        return producer

    def _in_transaction(self, offer: Offer, batch: RecordBatch) -> KnownProducer[ClientBatch]:
        """The transactional producer of a batch.

        Raises:
            OutOfOrderSequenceNumber: the transaction accepts no more records. A broker answers the same after a gap,
                and clients then abort and request a new epoch (see `ottla.proxy.clients.dialects`), even if they send
                no EndTxn because none of its records was stored.
        """
        found = self.transaction(offer, batch)
        if found is None:
            known = self.producers.known(batch.producer_id) if batch.producer_id in self.producers else None
            newest = None if known is None else known.transaction
            if newest is not None and batch.producer_epoch < newest.epoch:
                raise InvalidProducerEpoch(f"epoch {batch.producer_epoch} is fenced by epoch {newest.epoch}")
            if known is not None and known.principal is not offer.origin.principal:
                raise TransactionalIdAuthorizationFailed(f"producer id {batch.producer_id} belongs to another user")
            why = (
                f"the proxy does not know epoch {batch.producer_epoch} of producer id {batch.producer_id}: it was not "
                "allocated through this proxy, or the proxy has lost its state; abort, and if that does not help open "
                "a new producer"
            )
            self._note_unknown(batch, offer, why)
            raise OutOfOrderSequenceNumber(why)
        producer, transaction = found
        if transaction.transactional_id != offer.transactional_id:
            raise InvalidProducerIdMapping(f"producer id {batch.producer_id} belongs to another transactional id")
        if transaction.failure is not None:
            why = transaction.failure.message or broker_error(transaction.failure.error_code).name
            raise OutOfOrderSequenceNumber(f"abort the transaction, because a batch before this one failed: {why}")
        if any(stream.lost for stream in producer.streams.values()):
            raise OutOfOrderSequenceNumber(
                "abort the transaction: the next sequence of its epoch at upstream is unknown"
            )
        if self._changed(offer, producer.since):
            raise OutOfOrderSequenceNumber(_RULE_CHANGED)
        if transaction.written_with(implicit=offer.version >= IMPLICIT):
            self.note_transaction(producer)
        return producer

    def _note_unknown(self, batch: RecordBatch, offer: Offer, why: str) -> None:
        """Remember that records were refused because of an unknown epoch, and log it once."""
        if not self.unknown.add(batch.producer_id, batch.producer_epoch, offer.origin.host):
            return
        if self._is_new(f"transaction of producer {batch.producer_id} must be aborted", offer.origin):
            facts = {"producer_id": batch.producer_id, "epoch": batch.producer_epoch, "topic": offer.topic, "why": why}
            log.warning("transaction must be aborted, its producer needs a new epoch", extra=facts | offer.origin.facts)

    def refuses_to_pass(self, topic: str, data: Buffer | None, origin: Origin) -> ClientResult | None:
        """The error for records of a topic that is no longer rewritten, if their producer was open before that.

        Upstream knows this producer by the proxy's sequences, and could take new records for duplicates.
        """
        if self.may_pass(topic, data):
            return None
        producer_id, transactional = producer_in(data or b"")
        if not transactional:
            self.tell_of_fencing(producer_id, topic, _RULE_CHANGED, origin)
        error = OutOfOrderSequenceNumber if transactional else ProducerFenced
        return ClientResult(error.code, error_message=_RULE_CHANGED)

    def may_pass(self, topic: str, data: Buffer | None) -> bool:
        """Whether `refuses_to_pass` has no error for records, of which ``data`` may be only the header."""
        if not self.history.newest or not data:
            return True
        producer_id, _ = producer_in(data)
        if producer_id not in self.producers:
            return True
        return not self.history.changed(topic, self.producers.known(producer_id).since)

    def tell_of_fencing(self, producer_id: int, topic: str, why: str, origin: Origin) -> None:
        """Log that a producer is fenced: some clients keep sending and hide the error."""
        if self._is_new(f"producer {producer_id} fenced", origin):
            facts = {"producer_id": producer_id, "topic": topic, "why": why}
            log.warning("producer fenced, its application must open a new one", extra=facts | origin.facts)

    def _is_new(self, text: str, origin: Origin) -> bool:
        """Whether to log a line about a producer; clients may invent its id, so a host has a few lines a minute."""
        return self._complaints.is_new(self._now(), origin.host, text, kind=text)

    @property
    def deadline(self) -> float | None:
        """When to call `log_counted`."""
        return self._complaints.deadline

    def log_counted(self, now: float) -> None:
        """Log the number of producers without a line of their own."""
        for line in self._complaints.counted(now):
            log.warning("%s", line)
