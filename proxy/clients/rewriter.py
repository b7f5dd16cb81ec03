"""Moves the records of clients' batches to the partitions of their keys, and answers the clients.

Rules:
- Batches are delivered in the order of their arrival: while a thread reads a batch, later ones wait.
- A client is answered when every part of its batch is settled. The response has the offset if the batch stayed whole in
  its partition; otherwise the offset is -1, "unknown".
- A batch is delivered even if its client disconnects: a retry, on any connection, finds it under way or done.
"""

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from ottla.codec.compression import Compression
from ottla.codec.records import NO_PRODUCER_ID, RecordBatch
from ottla.complaints import Complaints
from ottla.errors import (
    BrokerError,
    InvalidRecord,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
    broker_error,
)
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import NOBODY, ClientBatch, Offer, Origin
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.observer import Tallies
from ottla.proxy.clients.opening import BUG, Opened, Opener, checked, max_memory_of, memory_of, opened
from ottla.proxy.clients.producers import KnownProducer
from ottla.proxy.clients.record_set_queue import OVERHEAD, RecordSetQueue
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.windows import ClientResult, Window
from ottla.proxy.contained import contained
from ottla.proxy.journal.notes import NotedBatch
from ottla.proxy.routing import Routes
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.batches import Part, PartResult
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.streams import ABORTED, CLIENT_GONE, LAST_EPOCH, OVERTAKEN, RECREATED, WITHDRAWN

if TYPE_CHECKING:
    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

UNDER_WAY = 64
"""The most unsettled batches of a client for one partition; correct idempotent clients have at most five."""
_IN_PART = "an earlier batch failed, and some records of this one are stored"
_NOT_ADDED = "keys belong to partitions that were not added to the transaction: abort it"


class Rewriter:
    """Handles record sets for rewritten topics, from the client's request to its response.

    Attributes:
        line: the queue of clients' record sets.
        unsettled, unsettled_records: the accepted batches that are not settled yet, and their records.
    """

    def __init__(
        self,
        topics: RoutedTopics,
        admission: Admission,
        delivery: Delivery,
        threads: Threads,
        opener: Opener,
        tallies: Tallies,
        buffered: Buffered,
        journal: "Journal | None",
    ) -> None:
        self._topics, self._admission, self._delivery = topics, admission, delivery
        self._threads, self._opener = threads, opener
        self._tallies, self._buffered, self._journal = tallies, buffered, journal
        self.line = RecordSetQueue(topics, threads, buffered, self._judge, self._refuse, self._count_refusal)
        self.unsettled = self.unsettled_records = 0
        self._numbers = count(1)
        self._complaints = Complaints()

    @property
    def deadline(self) -> float | None:
        return self._complaints.deadline if self.line.idle else 0.0

    def pump(self, now: float) -> None:
        """Handle queued record sets; log the number of refusals without a line of their own."""
        for line in self._complaints.counted(now):
            log.warning("%s", line)
        self.line.pump(now)

    def left(self, client: int, now: float) -> None:
        """Take back the producer lent to a disconnected client, once everything that it has sent was handled."""
        self.line.left(client, lambda now: self._admission.left(client), now)

    def allocated(self, producer_id: int, now: float) -> KnownProducer[ClientBatch]:
        """Remember a producer id that upstream has newly allocated to a client."""
        if producer_id in self._admission.producers:  # allocated twice: upstream has lost its data, and these records
            earlier = self._admission.producers.known(producer_id)
            self._delivery.renew(earlier, 0, now)
            self.withdraw(earlier, now, before=LAST_EPOCH + 1)
            self._admission.forget(producer_id)
        self._delivery.retire_lent(producer_id, now)
        return self._admission.remember(producer_id)

    # -- in

    def _judge(self, offer: Offer, now: float) -> None:
        """Accept a record set, have it wait for its topic's metadata, or refuse it."""
        try:
            batch = checked(offer.data)
            if batch.transactional != (offer.transactional_id is not None):
                raise InvalidTxnState("a batch is transactional if its request has a transactional id, and only then")
            if batch.transactional and batch.producer_id == NO_PRODUCER_ID:
                raise InvalidRecord("the transactional batch has no producer id")
            if self._topics.is_described(offer.topic):
                self._accept(offer, batch, now)
            else:
                self._buffered.check_room(offer.origin.client, len(offer.data) + OVERHEAD)
                self._park(offer, batch, now)
        except BrokerError as error:
            self._refuse(offer, error, now)
        except Exception:
            self._broken(offer, now)

    def _refuse(self, offer: Offer, error: BrokerError, now: float) -> None:
        self._count_refusal(offer, error, now)
        offer.refuse(error, now)

    def _count_refusal(self, offer: Offer, error: BrokerError, now: float) -> None:
        """Count a record set that is refused, and log it if nothing else tells its client."""
        self._threads.spend_a_look()
        if offer.topic in self._tallies or self._topics.is_described(offer.topic):  # clients may send any name
            self._tallies[offer.topic].refused += 1
        if not offer.awaited:  # no answer tells its client, which may have gone
            self._log_refused_unawaited(offer, error, now)

    def _broken(self, offer: Offer, now: float) -> None:
        log.exception("a bug in the proxy, please report it: records for %s-%d", offer.topic, offer.partition)
        offer.answered(ClientResult(UnknownServerError.code, error_message=BUG), now)

    def _park(self, offer: Offer, batch: RecordBatch, now: float) -> None:
        """Have a record set wait for its topic's metadata, and then for its turn; EndTxn waits for it, too."""
        found = self._admission.transaction(batch)
        if found is not None:
            found[1].parked += 1

        def take(now: float) -> None:
            try:
                self._accept(offer, batch, now)
            except Exception:
                self._broken(offer, now)

        def over(now: float) -> None:
            if found is not None:
                found[1].parked -= 1
                self._go_on_ending(found[0], now)

        self.line.park(offer, take, over, now)

    def _accept(self, offer: Offer, batch: RecordBatch, now: float) -> None:
        try:
            routes = self._admission.routes(offer)
            producer = self._admission.producer(offer, batch)
            window = None
            if isinstance(producer, KnownProducer):
                window = producer.window(offer.topic, offer.partition)
                match window.look_up(batch.producer_epoch, batch.base_sequence, batch.count):
                    case ClientBatch() as under_way:
                        self._threads.spend_a_look()
                        under_way.waiting.append(offer.answered)
                        return
                    case ClientResult() as outcome:
                        self._threads.spend_a_look()
                        offer.answered(outcome, now)
                        return
                if len(window.under_way) >= UNDER_WAY:
                    raise NotEnoughReplicas(f"this partition has {UNDER_WAY} unsettled batches already")
            self._buffered.check_room(offer.origin.client, max_memory_of(batch))
        except BrokerError as error:
            if isinstance(error, ProducerFenced):
                self._admission.tell_of_fencing(batch.producer_id, offer.topic, error.detail, offer.origin)
            self._refuse(offer, error, now)
            return
        place = offer.topic, offer.partition
        taken = self._client_batch(batch, offer.origin, producer, place, window, routes, next(self._numbers))
        taken.waiting.append(offer.answered)
        if window is None:
            producer.unawaited |= not offer.awaited
            producer.unopened.append(taken)
        else:
            window.begin(taken)
            if self._journal is not None:
                self._journal.begun(taken)
            self._note(taken)
        self.open(taken, now)

    def open(self, batch: ClientBatch, now: float) -> None:
        """Read the records of an accepted batch, and deliver them."""
        self._opener.open(batch.batch, batch.size, batch.routes, batch.partition, partial(self._go_on, batch), now)

    def _go_on(self, batch: ClientBatch, found: "Opened | BrokerError", now: float) -> None:
        """Deliver or refuse a batch whose records were read, and the batches that wait for it."""
        batch.opening = False
        if isinstance(found, BrokerError):
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
        batch.records, batch.parts = found.records, {**found.parts}
        batch.in_place = list(batch.parts) == [batch.partition]
        size = memory_of(batch.batch, batch.records)
        self._buffered.count(batch.origin.client, size - batch.size)
        batch.size = size

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
        place: tuple[str, int],
        window: "Window[ClientBatch] | None",
        routes: Routes,
        number: int,
    ) -> ClientBatch:
        size = max_memory_of(batch)
        self._buffered.count(origin.client, size)
        self.unsettled += 1
        self.unsettled_records += batch.count
        return ClientBatch(
            epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            transactional=batch.transactional,
            opening=True,
            owner=self,
            number=number,
            producer=producer,
            origin=origin,
            topic=place[0],
            partition=place[1],
            batch=batch,
            routes=routes,
            size=size,
            window=window,
            waiting=[],
        )

    def _note(self, batch: ClientBatch) -> None:
        """Record the window of a batch in the journal, unless its producer id belongs to another producer by now."""
        if self._journal is not None and batch.window is not None and self._admission.knows(batch.producer):
            self._journal.window(batch, batch.window)

    # -- restoring from the journal

    def restored(
        self,
        producer: KnownProducer[ClientBatch],
        place: tuple[str, int],
        window: "Window[ClientBatch]",
        noted: NotedBatch,
        *,
        begun: bool,
    ) -> ClientBatch:
        """Restore a batch that was under way; the caller must `open` it if it was not ``begun``.

        Raises:
            BrokerError: the batch is damaged.
        """
        routes = Routes(noted.topic_id, noted.partitions, noted.partitioner)
        self._numbers = count(max(next(self._numbers), noted.number + 1))
        batch = self._client_batch(checked(noted.data), NOBODY, producer, place, window, routes, noted.number)
        if begun:
            found = opened(batch.batch, routes, batch.partition)
            if isinstance(found, BrokerError):
                raise found
            batch.begun, batch.opening = True, False
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
        """Leave out records that are stored although an earlier batch with them was refused; count the others."""
        if batch.window is not None and batch.window.remembers:
            batch.leave_out(batch.window.stored_already(batch.records.fingerprints()))
        misplaced = batch.count - len(batch.left_out) - len(batch.parts.get(batch.partition, ()))
        keyless, client_id = batch.records.keyless, batch.origin.client_id
        self._tallies.count(batch.topic, client_id, records=batch.count, keyless=keyless, misplaced=misplaced)

    def _deliver_due(self, window: "Window[ClientBatch]", now: float) -> None:
        while batch := window.due():
            self._deliver(batch, now)

    def _deliver(self, batch: ClientBatch, now: float) -> None:
        self._note(batch)
        try:
            self._sift(batch)
        except ProducerFenced as error:
            self.failed(batch, PartResult(error.code, message=error.detail, unknown=True), now)
            self.finished(batch, now)
            return
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, batch.partition)
            self.failed(batch, PartResult(UnknownServerError.code, message=BUG), now)
            self.finished(batch, now)
            return
        if not self._topics.is_still(batch.topic, batch.routes.topic_id):
            self.failed(batch, RECREATED, now)
            self.finished(batch, now)
            return
        if not self._may_go(batch):
            self.failed(batch, PartResult(TransactionAbortable.code, message=_NOT_ADDED), now)
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
            if batch.refused:  # because another part of it has failed
                batch.settled(part, WITHDRAWN, now)
                continue
            try:
                self._delivery.put(batch.producer, batch.topic, part, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, destination)
                batch.settled(part, PartResult(UnknownServerError.code, message=BUG), now)

    def _may_go(self, batch: ClientBatch) -> bool:
        """Whether all partitions of a batch belong to its transaction.

        With transactions before version 2 only the proxy checks this: brokers before 3.6 would store the records
        outside the transaction. A topic may have got other partitions since AddPartitionsToTxn if it has grown, was
        recreated, or has another rule.
        """
        transaction = batch.producer.transaction
        if not batch.transactional or transaction is None or transaction.implicit:
            return True
        return batch.parts.keys() <= transaction.added.get(batch.topic, set())

    # -- out

    def failed(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        """Handle a part that is refused, or whose outcome is unknown."""
        self._note(batch)
        try:
            self._fail(batch, result, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", batch.topic, batch.partition)
            batch.refused, batch.failure = True, PartResult(UnknownServerError.code, message=BUG, unknown=True)

    def _fail(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        window = batch.window
        if window is None:
            batch.failure = batch.failure or result
            return
        for each in window.failed(batch, result):  # later batches must not be stored before it
            self._delivery.withdraw(each.producer, each.topic, each.parts, now)

    def _fail_transaction(self, batch: ClientBatch) -> None:
        """Mark the transaction as failed if a refused batch is stored in part, or its outcome is unknown."""
        unknown = batch.failure is not None and batch.failure.unknown
        unstored = sum(len(part.records) for part, _ in batch.unstored)
        if not unknown and (not batch.begun or unstored == batch.count):
            return
        if batch.failure is None:
            batch.failure = PartResult(TransactionAbortable.code, message=_IN_PART)
        transaction = batch.producer.transaction
        if transaction is None or transaction.epoch != batch.epoch:
            return
        if transaction.failure is None or (unknown and not transaction.failure.unknown):
            transaction.failure = batch.failure
            self._admission.note_transaction(batch.producer)

    def finished(self, batch: ClientBatch, now: float) -> None:
        """Answer a batch whose parts are all settled, and deliver the batches that wait for it."""
        window = batch.window
        if window is None:
            self._tell(batch, batch.outcome(), now)
            return
        self._note(batch)
        self._tell_of_settled(window, now)
        self._deliver_due(window, now)

    def _tell_of_settled(self, window: "Window[ClientBatch]", now: float) -> None:
        while settled := window.pop_settled():
            try:
                if settled.transactional and settled.refused:
                    self._fail_transaction(settled)
                outcome = window.judged(settled)
            except Exception:
                log.exception(
                    "a bug in the proxy, please report it: records for %s-%d", settled.topic, settled.partition
                )
                outcome = ClientResult(UnknownServerError.code, error_message=BUG)
                for each in window.abandon():
                    self._tell(each, outcome, now)
            self._tell(settled, outcome, now)

    def _tell(self, batch: ClientBatch, outcome: ClientResult, now: float) -> None:
        with contained("a batch is settled"):
            self._buffered.count(batch.origin.client, -batch.size)
            self.unsettled -= 1
            self.unsettled_records -= batch.count
            if batch.failure is not None:
                self._log_refusal(batch, batch.failure, now)
        waiting, batch.waiting = batch.waiting, []
        for answered in waiting:
            with contained("a client gets the outcome of its records"):
                answered(outcome, now)
        if isinstance(batch.producer, KnownProducer):
            self._go_on_ending(batch.producer, now)

    def _go_on_ending(self, producer: KnownProducer[ClientBatch], now: float) -> None:
        """Continue with EndTxn if it waits and the producer has no more batches under way."""
        transaction = producer.transaction
        if transaction is not None and transaction.waiting and producer.settled:
            transaction.go_on(now)

    def _log_refused_unawaited(self, offer: Offer, error: BrokerError, now: float) -> None:
        if self._complaints.is_new(now, "", f"records with acks=0 were refused: {error.name}, {offer.topic}"):
            told = {"partition": f"{offer.topic}-{offer.partition}", "error": error.name, "why": error.detail}
            facts = told | {"bytes": len(offer.data)} | offer.origin.facts
            log.warning("records with acks=0 were refused", extra=facts)

    def _log_refusal(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        self._tallies[batch.topic].refused += 1
        what = (
            f"requests of a disconnected client dropped: {result.message}"
            if result is CLIENT_GONE
            else ("outcome unknown: records may or may not be stored" if result.unknown else "records were refused")
        )
        error = broker_error(result.error_code).name
        if self._complaints.is_new(now, "", f"{what}: {error}, {batch.topic}"):
            place = f"{batch.topic}-{batch.partition}"
            told = {"partition": place, "records": batch.count, "error": error, "why": result.message}
            log.warning(what, extra=told | {"producer_id": batch.producer.producer_id} | batch.origin.facts)
