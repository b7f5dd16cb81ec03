"""Moves the records of clients' batches to the partitions of their keys, and answers the clients.

Rules:
- A batch is judged as a whole before its first part goes (`ottla.proxy.clients.judging`).
- Batches are delivered in the order in which they were accepted: while a thread reads a batch, later ones wait.
- A client is answered when every part of its batch is settled. The response has the offset if the batch stayed whole in
  its partition; otherwise the offset is -1, "unknown".
- In mode `copy` further topics get the same records, as further parts of the batch. So all rules about parts hold for
  copies: the client is answered when all of them are stored, the failure of a copy is the failure of the batch, and a
  retry stores the missing ones.
- A batch is delivered even if its client disconnects: a retry, on any connection, finds it under way or done.
- Responses of one connection are in order, so a batch that waits delays those behind it, also of other topics. If
  upstream does not accept a batch for now (too few replicas, no leader, a deleted topic), and no record of it is in
  flight or may be stored, its client gets upstream's error at once, and sends it again, as with Kafka. If an idempotent
  client's batch is stored in part, the error is NOT_ENOUGH_REPLICAS_AFTER_APPEND, and the window remembers the stored
  records. A batch of a transaction, or of a client without idempotence, waits in this case: stored records would be
  stored twice. So do records with ``acks=0``, which no client sends again.
- No request waits longer than its ``timeout_ms``: it gets REQUEST_TIMED_OUT. The batch stays under way, and a retry
  joins it. A client without idempotence has no retries that the proxy recognises, so the unsent rest is given up.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from itertools import count

from ottla.codec.records import RecordBatch
from ottla.errors import (
    BrokerError,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnknownServerError,
    broker_error,
)
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import NOBODY, ClientBatch, Offer, Origin, Waiter, of_copy
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.judging import judged
from ottla.proxy.clients.opening import BUG, Opened, Opener, checked, max_memory_of, opened
from ottla.proxy.clients.producers import KnownProducer
from ottla.proxy.clients.producers_at_work import ProducersAtWork
from ottla.proxy.clients.rewrite_counts import RewriteCounts
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.windows import ClientResult, Window
from ottla.proxy.contained import contained
from ottla.proxy.journal.notes import NotedBatch
from ottla.proxy.routing import Copies, Destination, Routes
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.streams import ABORTED, LAST_EPOCH, OVERTAKEN, RECREATED, WITHDRAWN

log = logging.getLogger("ottla.proxy")

_IN_TIME = 0.9
"""The fraction of ``timeout_ms`` after which a request is answered, before its client closes the connection."""
_LEAST_WAIT = 1.0
"""Seconds that a request waits at least: some clients send a ``timeout_ms`` of 0."""
_LATE = PartResult(
    RequestTimedOut.code, message="upstream has not confirmed within timeout_ms that it stored these records"
)
_NOT_ADDED = "keys belong to partitions that were not added to the transaction: abort it"


class Rewriter:
    """Delivers the accepted batches of clients, and tells the outcomes.

    Args:
        wall: returns the time of day, in seconds since 1970; ``None``: it is unknown.

    Attributes:
        unsettled, unsettled_records: the accepted batches that are not settled yet, and their records.
    """

    def __init__(
        self,
        topics: RoutedTopics,
        admission: Admission,
        delivery: Delivery,
        opener: Opener,
        buffered: Buffered,
        at_work: ProducersAtWork,
        counts: RewriteCounts,
        wall: Callable[[], float] | None,
    ) -> None:
        self._wall = wall
        self._topics, self._admission, self._delivery = topics, admission, delivery
        self._opener, self._buffered, self._at_work, self._counts = opener, buffered, at_work, counts
        self.unsettled = self.unsettled_records = 0
        self._numbers = count(1)
        self._awaited: dict[ClientBatch, None] = {}
        """Batches with waiting requests."""
        self._look_at = math.inf
        """When the first of these requests must be answered, or earlier."""

    def allocated(self, producer_id: int, origin: Origin, now: float) -> KnownProducer[ClientBatch]:
        """Remember a producer id that upstream has newly allocated to a client."""
        if producer_id in self._admission.producers:  # allocated twice: upstream has lost its data, and these records
            earlier = self._admission.producers.known(producer_id)
            self._delivery.renew(earlier, 0, now)
            self.withdraw(earlier, now, before=LAST_EPOCH + 1)
            self._admission.forget(producer_id)
        self._delivery.retire_lent(producer_id, now)
        return self._admission.remember(producer_id, origin)

    # -- in

    def begin(
        self,
        offer: Offer,
        batch: RecordBatch,
        producer: UpstreamProducer,
        window: "Window[ClientBatch] | None",
        routes: Routes,
        copies: Copies,
        now: float,
    ) -> None:
        """Take an accepted record set, and deliver its batch."""
        taken = self._client_batch(
            batch, offer.origin, producer, offer.place, window, routes, copies, next(self._numbers)
        )
        self.join(taken, offer, now)
        producer.serve(offer.origin.client_id)
        if window is None:
            producer.accept(taken, awaited=offer.awaited)
        else:
            window.begin(taken)
            self._admission.note_begun(taken)
        self.open(taken, now)

    def join(self, batch: ClientBatch, offer: Offer, now: float) -> None:
        """Have a request wait for the outcome of a batch."""
        until = now + max(offer.timeout * _IN_TIME, _LEAST_WAIT) if offer.awaited else math.inf
        batch.waiting.append(Waiter(offer.answered, until))
        self._awaited[batch] = None
        self._look_at = min(self._look_at, until)

    def open(self, batch: ClientBatch, now: float) -> None:
        """Read the records of an accepted batch, and deliver them."""
        self._opener.open(batch.batch, batch.size, batch.divided, partial(self._go_on, batch), now)

    def _go_on(self, batch: ClientBatch, found: "Opened | BrokerError", now: float) -> None:
        """Deliver or refuse a batch whose records were read, and the batches that wait for it."""
        if isinstance(found, BrokerError):
            batch.opened(None)
            self.failed(batch, PartResult(found.code, message=found.detail or None), now)
        else:
            self._take(batch, found)
        window = batch.window
        if window is None:
            self._deliver_unopened(batch.producer, now)
        elif batch.refused:
            self.finished(batch, now)
        else:
            self._deliver_due(window, now)

    def _take(self, batch: ClientBatch, found: Opened) -> None:
        self._buffered.count(batch.origin.client, batch.opened(found))

    def _deliver_unopened(self, producer: UpstreamProducer, now: float) -> None:
        """Deliver the batches of a lent producer in their order, up to the first that is being read."""
        while producer.unopened and not producer.unopened[0].opening:
            batch: ClientBatch = producer.unopened.popleft()
            if batch.failure is None:
                self._deliver(batch, now)
            else:
                self.finished(batch, now)

    def _client_batch(
        self,
        batch: RecordBatch,
        origin: Origin,
        producer: UpstreamProducer,
        place: Destination,
        window: "Window[ClientBatch] | None",
        routes: Routes,
        copies: Copies,
        number: int,
        *,
        begun: bool = False,
    ) -> ClientBatch:
        size = max_memory_of(batch, len(copies))
        self._buffered.count(origin.client, size)
        self._at_work.begun(producer, origin.host)
        self.unsettled += 1
        self.unsettled_records += batch.count
        return ClientBatch(
            epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            transactional=batch.transactional,
            opening=True,
            begun=begun,
            owner=self,
            number=number,
            producer=producer,
            origin=origin,
            place=place,
            batch=batch,
            routes=routes,
            copies=copies,
            size=size,
            window=window,
            waiting=[],
        )

    # -- restoring from the journal

    def restored(
        self,
        producer: KnownProducer[ClientBatch],
        place: Destination,
        window: "Window[ClientBatch]",
        noted: NotedBatch,
        *,
        begun: bool,
    ) -> ClientBatch:
        """Restore a batch that was under way; the caller must `open` it if it was not ``begun``.

        Raises:
            BrokerError: the batch is damaged.
        """
        routes = Routes(noted.topic_id, noted.partitions, noted.partitioner, noted.fans_out)
        copies = tuple(
            (each.name, Routes(each.topic_id, each.partitions, each.partitioner, each.fans_out))
            for each in noted.copies
        )
        self._numbers = count(max(next(self._numbers), noted.number + 1))
        data = checked(noted.data)
        batch = self._client_batch(data, NOBODY, producer, place, window, routes, copies, noted.number, begun=begun)
        if begun:
            found = opened(batch.batch, batch.divided)
            if isinstance(found, BrokerError):
                raise found
            self._take(batch, found)
        return batch

    def resume(self, window: "Window[ClientBatch]", now: float) -> None:
        """Answer the settled batches of a window, and deliver its due batches."""
        self._tell_of_settled(window, now)
        self._deliver_due(window, now)

    def withdraw(self, producer: KnownProducer[ClientBatch], now: float, *, before: int | None = None) -> None:
        """Fail the unsettled batches of a transaction that is being aborted, or of epochs ``before`` this one."""
        result = ABORTED if before is None else OVERTAKEN
        for window in list(producer.windows.values()):
            for batch in list(window.under_way):
                if not batch.refused and (before is None or batch.epoch < before):
                    self.failed(batch, result, now)
            self.resume(window, now)

    def _sift(self, batch: ClientBatch) -> None:
        """Leave out records that are stored although an earlier batch with them was refused."""
        if batch.window is not None and batch.window.remembers:
            batch.leave_out(batch.window.stored_already(batch.contents()))

    def _deliver_due(self, window: "Window[ClientBatch]", now: float) -> None:
        while batch := window.due():
            self._deliver(batch, now)

    def _deliver(self, batch: ClientBatch, now: float) -> None:
        self._admission.note_window_of(batch)
        try:
            self._sift(batch)
            refusal = self._judged(batch, now)
        except ProducerFenced as error:
            self.failed(batch, PartResult(error.code, message=error.detail, unknown=True), now)
            self.finished(batch, now)
            return
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s", batch.place)
            self.failed(batch, PartResult(UnknownServerError.code, message=BUG), now)
            self.finished(batch, now)
            return
        if recreated := {topic for topic, topic_id in batch.topic_ids if not self._topics.is_still(topic, topic_id)}:
            batch.gone_with(recreated)
            refusal = RECREATED
        if refusal is not None:
            self.failed(batch, refusal, now)
            self.finished(batch, now)
            return
        if not self._may_go(batch):
            self.failed(batch, PartResult(TransactionAbortable.code, message=_NOT_ADDED), now)
            self.finished(batch, now)
            return
        parts = batch.begin(now)
        if not parts:
            self.finished(batch, now)
            return
        self._counts.delivered(batch, now)
        for part in parts:
            if batch.refused:  # because another part of it has failed
                batch.settled(part, WITHDRAWN, now)
                continue
            try:
                self._delivery.put(batch.producer, part, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s", part.destination)
                batch.settled(part, PartResult(UnknownServerError.code, message=BUG), now)

    def _judged(self, batch: ClientBatch, now: float) -> PartResult | None:
        """Why upstream would refuse a batch, or a copy; a batch with stored records is not judged again."""
        if batch.left_out:
            return None
        time_ms = None if self._wall is None else int(self._wall() * 1000)
        for topic in batch.topics:
            refusal = judged(batch.batch, batch.records, self._topics.configs.of(topic, now), time_ms)
            if refusal is not None:
                return refusal if topic == batch.place.topic else of_copy(topic, refusal)
        return None

    def _may_go(self, batch: ClientBatch) -> bool:
        """Whether all partitions of a batch belong to its transaction.

        With transactions before version 2 only the proxy checks this: brokers before 3.6 would store the records
        outside the transaction. A topic may have got other partitions since AddPartitionsToTxn if it has grown, was
        recreated, or has another rule.
        """
        transaction = batch.producer.transaction
        if not batch.transactional or transaction is None or transaction.implicit:
            return True
        return all(each.partition in transaction.added.get(each.topic, ()) for each in batch.parts)

    # -- out

    @property
    def deadline(self) -> float | None:
        return self._look_at if self._look_at < math.inf else None

    def answer_the_late(self, now: float) -> None:
        """Answer the requests that have waited for as long as their clients allow."""
        if now < self._look_at:
            return
        for batch in [each for each in self._awaited if each.answer_by <= now]:
            batch.answer_late(ClientResult(_LATE.error_code, error_message=_LATE.message), now)
            if not batch.waiting:
                self._awaited.pop(batch, None)
            # Requests of a disconnected client are carried out, as a broker does: it may not send them again.
            if batch.window is None and not batch.refused and self._delivery.lent.serves(batch.origin.client):
                batch.fail(_LATE)
                batch.refuse()
                self._delivery.withdraw(batch.producer, batch.parts, now)
        self._look_at = min((each.answer_by for each in self._awaited), default=math.inf)

    def put_off(self, batch: ClientBatch, code: int, destination: Destination, now: float) -> None:
        """Refuse a batch that a partition does not accept for now, if its client may send it again."""
        if batch.refused or self._goes_back(batch):
            message = f"{broker_error(code).name}: upstream does not accept the batch now, send it again"
            result = PartResult(code, message=message, passed_on=True)
            if destination.topic != batch.place.topic:
                result = of_copy(destination.topic, result)
            self._delivery.take_back(batch, batch.producer, batch.parts, result, now)

    def _goes_back(self, batch: ClientBatch) -> bool:
        """Whether no record of a batch may be stored twice if its client sends it again."""
        if batch.window is None:
            return batch.awaited and self._is_untouched(batch)
        if batch.transactional:  # no records are remembered, so records of later batches would be stored twice, too
            return all(map(self._is_untouched, batch.window.behind(batch)))
        return not self._delivery.may_store(batch, batch.producer, batch.parts)

    def _is_untouched(self, batch: ClientBatch) -> bool:
        """Whether no record of a batch is in flight, or is or may be stored."""
        where = batch.producer, batch.parts
        if self._delivery.may_store(batch, *where):
            return False
        return not batch.stored_beside(self._delivery.open_records(batch, *where))

    def changed(self, batch: ClientBatch) -> None:
        """Record a batch in the journal: it has changed, and some of its parts are still under way."""
        self._admission.note_window_of(batch)

    def failed(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        """Handle a part that is refused, or whose outcome is unknown."""
        self._admission.note_window_of(batch)
        try:
            self._fail(batch, result, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s", batch.place)
            batch.fail(PartResult(UnknownServerError.code, message=BUG, unknown=True))
            batch.refuse()

    def _fail(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        window = batch.window
        if window is None:
            if batch.failure is None:
                batch.fail(result)
            return
        for each in window.failed(batch, result):  # later batches must not be stored before it
            self._delivery.withdraw(each.producer, each.parts, now)

    def _fail_transaction(self, batch: ClientBatch) -> None:
        """Mark the transaction as failed if a refused batch is stored in part, or its outcome is unknown."""
        failure, transaction = batch.failure_of_transaction(), batch.producer.transaction
        if failure is None or transaction is None or transaction.epoch != batch.epoch:
            return
        if transaction.fail(failure):
            self._admission.note_transaction(batch.producer)

    def finished(self, batch: ClientBatch, now: float) -> None:
        """Answer a batch whose parts are all settled, and deliver the batches that wait for it."""
        window = batch.window
        if window is None:
            self._tell(batch, batch.outcome(), now)
            return
        self._admission.note_window_of(batch)
        self._tell_of_settled(window, now)
        self._deliver_due(window, now)

    def _tell_of_settled(self, window: "Window[ClientBatch]", now: float) -> None:
        while settled := window.pop_settled():
            try:
                if settled.transactional and settled.refused:
                    self._fail_transaction(settled)
                outcome = window.judged(settled)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s", settled.place)
                outcome = ClientResult(UnknownServerError.code, error_message=BUG)
                for each in window.abandon():
                    self._tell(each, outcome, now)
            self._tell(settled, outcome, now)

    def _tell(self, batch: ClientBatch, outcome: ClientResult, now: float) -> None:
        with contained("a batch is settled"):
            self._buffered.count(batch.origin.client, -batch.size)
            self._at_work.settled(batch.producer, batch.origin.host)
            self.unsettled -= 1
            self.unsettled_records -= batch.count
            if batch.failure is not None:
                self._counts.batch_refused(batch, batch.failure, now)
        self._awaited.pop(batch, None)
        batch.answer(outcome, now)
        if isinstance(batch.producer, KnownProducer):
            batch.producer.go_on_ending(now)
