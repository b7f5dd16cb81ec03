"""Accepts clients' record sets for rewritten topics, in the order of their arrival, or refuses them.

Rules:
- A record set for a topic without metadata waits for it, and then for its turn. It also waits for the metadata of the
  topics that get copies.
- A retry of a batch that is under way or done is not accepted again: its client gets the outcome of the first attempt.
- Other records with the sequences of a batch under way are refused.
"""

import logging
from functools import partial

from ottla.codec.records import NO_PRODUCER_ID, RecordBatch
from ottla.errors import (
    BrokerError,
    InvalidRecord,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    UnknownServerError,
)
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import ClientBatch, Offer
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.opening import BUG, checked, max_memory_of
from ottla.proxy.clients.producers import KnownProducer
from ottla.proxy.clients.producers_at_work import ProducersAtWork
from ottla.proxy.clients.record_set_queue import OVERHEAD, RecordSetQueue
from ottla.proxy.clients.rewrite_counts import RewriteCounts
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.windows import AnsweredBatch, ClientResult
from ottla.proxy.threads import Threads

log = logging.getLogger("ottla.proxy")

UNDER_WAY = 64
"""The most unsettled batches of a client for one partition; correct idempotent clients have at most five."""


class Acceptance:
    """Hands the record sets that clients may send to the rewriter, and answers the others.

    Attributes:
        line: the queue of clients' record sets.
    """

    def __init__(
        self,
        topics: RoutedTopics,
        admission: Admission,
        rewriter: Rewriter,
        threads: Threads,
        buffered: Buffered,
        at_work: ProducersAtWork,
        counts: RewriteCounts,
    ) -> None:
        self._topics, self._admission, self._rewriter, self._at_work = topics, admission, rewriter, at_work
        self._threads, self._buffered, self._counts = threads, buffered, counts
        self.line = RecordSetQueue(topics, threads, buffered, self._judge, self._refuse, self._count_refusal)

    @property
    def deadline(self) -> float | None:
        deadlines = self._counts.deadline, self._admission.deadline, self._rewriter.deadline
        due = (each for each in deadlines if each is not None)
        return min(due, default=None) if self.line.idle else 0.0

    def pump(self, now: float) -> None:
        """Handle queued record sets; answer late requests; log the number of refusals without a line of their own."""
        self._admission.forget_excess()
        self._rewriter.answer_the_late(now)
        self._counts.log_counted(now)
        self._admission.log_counted(now)
        self.line.pump(now)

    def left(self, client: int, now: float) -> None:
        """Let go of a disconnected client once everything that it has sent was handled."""
        self.line.left(client, partial(self._all_handled, client), now)

    def _all_handled(self, client: int, now: float) -> None:
        """Take back the producer lent to a client, and stop counting its connection."""
        self._admission.left(client)
        self._at_work.left(client)

    def _judge(self, offer: Offer, now: float) -> None:
        """Accept a record set, have it wait for its topic's metadata, or refuse it."""
        try:
            batch = checked(offer.data)
            if batch.transactional != (offer.transactional_id is not None):
                raise InvalidTxnState("a batch is transactional if its request has a transactional id, and only then")
            if batch.transactional and batch.producer_id == NO_PRODUCER_ID:
                raise InvalidRecord("the transactional batch has no producer id")
            if self._topics.undescribed(offer.topic) is None:
                self._accept(offer, batch, now)
            else:
                self._buffered.check_room(offer.origin.client, len(offer.data) + OVERHEAD)
                self._park(offer, batch, now)
        except BrokerError as error:
            self._refuse(offer, error, now)
        except Exception:
            self._broken(offer, now)

    def _park(self, offer: Offer, batch: RecordBatch, now: float) -> None:
        """Have a record set wait for its topic's metadata, and then for its turn; EndTxn waits for it, too."""
        producer, transaction = self._admission.transaction(offer, batch) or (None, None)
        if transaction is not None:
            transaction.park()

        def take(now: float) -> None:
            try:
                self._accept(offer, batch, now)
            except Exception:
                self._broken(offer, now)

        def over(now: float) -> None:
            if producer is not None and transaction is not None:
                transaction.unpark()
                producer.go_on_ending(now)

        self.line.park(offer, take, over, now)

    def _accept(self, offer: Offer, batch: RecordBatch, now: float) -> None:
        try:
            routes, copies = self._admission.routes(offer), self._admission.copies(offer)
            producer = self._admission.producer(offer, batch)
            window = None
            if isinstance(producer, KnownProducer):
                window = producer.window(offer.place)
                match window.look_up(batch.producer_epoch, batch.base_sequence, batch.count):
                    case ClientBatch() as under_way:
                        self._threads.spend_a_look()
                        self._rewriter.join(under_way, offer, now)
                        return
                    case AnsweredBatch() as answered:
                        self._threads.spend_a_look()
                        if answered.told():  # or a restart would leave equal records of the next epoch out
                            self._admission.note_window(producer, offer.place, window)
                        offer.answered(answered.outcome, now)
                        return
                if len(window.under_way) >= UNDER_WAY:
                    raise NotEnoughReplicas(f"this partition has {UNDER_WAY} unsettled batches already")
            self._buffered.check_room(offer.origin.client, max_memory_of(batch, len(copies)))
            self._at_work.check(producer, offer.origin.host)
        except BrokerError as error:
            if isinstance(error, ProducerFenced):
                self._admission.tell_of_fencing(batch.producer_id, offer.topic, error.detail, offer.origin)
            self._refuse(offer, error, now)
            return
        self._rewriter.begin(offer, batch, producer, window, routes, copies, now)

    # -- refusals

    def _refuse(self, offer: Offer, error: BrokerError, now: float) -> None:
        self._count_refusal(offer, error, now)
        offer.refuse(error, now)

    def _count_refusal(self, offer: Offer, error: BrokerError, now: float) -> None:
        self._threads.spend_a_look()
        self._counts.offer_refused(offer, error, now)

    def _broken(self, offer: Offer, now: float) -> None:
        log.exception("a bug in the proxy, please report it: records for %s", offer.place)
        offer.answered(ClientResult(UnknownServerError.code, error_message=BUG), now)
