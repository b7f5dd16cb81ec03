"""Decides what happens to a batch after its response: stored, retried, renumbered, split or failed.

Rules:
- Retriable errors and lost connections are retried with the same sequence, until the delivery timeout, or until the
  topic turns out to be recreated without the partition (`ottla.sdk.produce.stalls`). Any other error fails one batch,
  unless it ends a producer for good (`fatal`).
- OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID or INVALID_PRODUCER_EPOCH of a batch that is not the oldest only
  means that the oldest has to go first. For the oldest it means that the broker lacks the batches before it: it and all
  later batches are renumbered in the next epoch of the producer id, which needs no request, and sent again (KIP-360).
  This is expected if the broker refused an earlier batch, or its outcome is unknown. Otherwise acknowledged records are
  missing, which is logged as an error: the broker lost them; these records are not affected. In a transaction the batch
  fails instead, and the next transaction begins in the next epoch.
- An error that a leader may return after it has appended leaves the outcome unknown: with acks=all it appends, waits
  for its replicas, and answers NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION if it has to step down meanwhile.
  An unknown outcome stays unknown, whatever later attempts are answered, until the batch is acknowledged.
- MESSAGE_TOO_LARGE splits a batch in halves, down to single records.
- Records that the broker calls invalid fail with its message; the other records of their batch fail, too, and their
  error says so (KIP-467).

Source: Sender.java, TransactionManager.java (canRetry, bumpIdempotentProducerEpoch), DelayedProduce.scala and
Partition.scala (errors after the append).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.addresses import format_address
from ottla.codec.apis.produce import PartitionProduceResponse
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    DeliveryTimeout,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotEnoughReplicas,
    OttlaError,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    UnknownErrorCode,
    UnknownProducerId,
    UnknownServerError,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import NO_ANSWER
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import about, logger
from ottla.sdk.produce.batches import PartitionQueue, ProducerBatch
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.producer_identity import ProducerIdentity
from ottla.sdk.produce.producer_queues import ProducerQueues
from ottla.sdk.produce.sender_metrics import SenderMetrics

if TYPE_CHECKING:
    from ottla.sdk.transaction.producer_transactions import ProducerTransactions

log = logger("ottla.sdk.producer")

_NOT_APPENDED = (CorruptMessage, NotEnoughReplicas)
"""Retriable errors after which certainly no record was appended."""
_OUTCOME_UNKNOWN = (UnknownServerError, UnknownErrorCode)
_OUT_OF_SEQUENCE = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch)
_TOO_SLOW = "; if brokers accept less than is buffered in that time, lower buffer_memory or raise delivery_timeout"
_UNSURE = "an earlier attempt was never answered: the records may or may not be in the log"
_OVERTAKEN = "later records are stored already: the topic was recreated, or the broker has lost its state"
_TOO_LARGE = (MessageTooLarge, RecordListTooLarge)


class Results:
    """Decides what happens to batches."""

    def __init__(
        self,
        core: ClientCore,
        deliveries: Deliveries,
        metrics: SenderMetrics,
        identity: "ProducerIdentity | ProducerTransactions",
        queues: ProducerQueues,
        delivery_timeout: float,
    ) -> None:
        self._core, self._deliveries, self._metrics = core, deliveries, metrics
        self._identity, self._queues, self._delivery_timeout = identity, queues, delivery_timeout

    def stored(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time: int, now: float
    ) -> None:
        queue.stored(batch, now)
        if batch.abandoned:
            self._deliveries.release(batch)
            return
        self._metrics.count("record-send", queue.place[0], batch.count, now)
        self._deliveries.stored(batch, base_offset, append_time)

    def refused(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: OttlaError,
        now: float,
        *,
        sent: bool,
        result: PartitionProduceResponse | None = None,
    ) -> None:
        """A batch was not acknowledged: retry, renumber, split or fail it.

        Args:
            sent: whether the broker may have received the request.
            result: its response, if there is one.
        """
        batch.refused(str(error), maybe_stored=sent and _maybe_stored(error))
        if isinstance(error, NO_ANSWER) or (isinstance(error, BrokerError) and error.stale_metadata):
            self._queues.node(batch.node).refresh(now)
        if batch.abandoned:
            queue.failed(batch, maybe_stored=True)
            self._deliveries.release(batch)
        elif isinstance(error, _OUT_OF_SEQUENCE) and self._identity.idempotent:
            self._out_of_sequence(queue, batch, error, result, now)
        elif isinstance(error, _TOO_LARGE) and batch.count > 1:
            log.info("batch too large, splitting", extra=about(queue.place) | {"records": batch.count})
            self._metrics.splits.add(1, now)
            self._split(queue, batch)
        elif isinstance(error, BrokerError) and error.fatal:
            self._identity.give_up(error)
        elif error.retriable:
            self._retry(queue, batch, error, now)
        else:
            self._fail(queue, batch, error, result, now)

    def _out_of_sequence(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: OttlaError,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        if queue.batches[0] is not batch:
            return  # the batches before it have to go first
        if self._identity.transactional_id is not None:
            # A transaction cannot change its epoch, but the next one has to: in this one the broker refuses them all.
            queue.renumber(batch)
            self._fail(queue, batch, error, result, now)
            return
        if not batch.renumberable:
            self._fail(queue, batch, type(error)(f"{getattr(error, 'detail', error)}; {_why(batch)}"), result, now)
            return
        explained = queue.gap or queue.renumbering  # an earlier batch was given up, or refused
        if not explained and isinstance(error, OutOfOrderSequenceNumber) and queue.acknowledged:
            log.error(
                "broker lost records that it had acknowledged: was an unclean leader elected?",
                extra=about(queue.place) | {"why": batch.trouble},
            )
        queue.renumber(batch)
        self._queues.node(batch.node).pause(queue, batch, error, now)

    def fail_unrenumberable(self, queue: PartitionQueue, now: float) -> bool:
        """Fail batches that cannot be renumbered, if that is due; returns whether there were any.

        An earlier attempt may be stored, or still be in flight: renumbered, its records would be stored twice. Or a
        later batch is stored already.
        """
        batches = queue.unrenumberable()
        for batch in batches:
            why = f"records before them were refused; {_why(batch)}; last error: {batch.trouble}"
            self._fail(queue, batch, OutOfOrderSequenceNumber(f"{name_of(queue.place)}; {why}"), None, now)
        return bool(batches)

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, error: OttlaError, now: float) -> None:
        leader = self._core.cluster.leader(*queue.place)
        if leader is not None and leader.id != batch.node:
            batch.retry(now)  # there is a new leader
        else:
            self._queues.node(batch.node).pause(queue, batch, error, now)
        log.debug("retrying batch", extra=about(queue.place) | {"why": batch.trouble})

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.cancel_timers()
        self._deliveries.split(batch)
        for half in queue.split(batch):
            self.watch(queue, half)

    def _fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: OttlaError,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        """Fail a batch that the broker refused for good; it is not stored, unless an earlier attempt stored it."""
        queue.failed(batch, maybe_stored=batch.maybe_stored)
        self._deliver_failure(batch, error, now, _guilty(result))
        self._deliveries.release(batch)

    def _deliver_failure(
        self, batch: ProducerBatch, error: OttlaError, now: float, guilty: Mapping[int, OttlaError] | None = None
    ) -> None:
        self._metrics.count("record-error", batch.place[0], batch.count, now)
        self._deliveries.failed(batch, error, guilty)

    def drop(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch that has no records and was not sent."""
        queue.failed(batch, maybe_stored=False)
        self._deliveries.release(batch)
        self._deliveries.settled(batch.number)

    def withdraw(self, queue: PartitionQueue, batch: ProducerBatch, error: OttlaError) -> None:
        """Fail a batch that is no longer wanted, and drop it once it is not in flight."""
        if batch.abandoned:
            return
        batch.withdraw()
        self._deliver_failure(batch, error, self._core.now)
        if batch.in_flight:
            batch.abandon()
        else:
            queue.failed(batch, maybe_stored=batch.maybe_stored)
            self._deliveries.release(batch)

    def fail_all(self, error: OttlaError) -> None:
        """Fail and drop all batches: the producer can never send again."""
        for queue in list(self._queues.partitions.values()):
            for batch in list(queue.batches):
                batch.withdraw()
                queue.failed(batch, maybe_stored=True)
                self._deliveries.release(batch)
                if not batch.abandoned:
                    self._deliveries.failed(batch, error)

    # -- deadlines ---------------------------------------------------------------------------------------------------

    def watch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Fail the batch when its deadline passes."""
        batch.watch(self._core, lambda now: self.expire(queue, batch, now))

    def expire(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> None:
        """Fail a batch whose delivery timeout has passed."""
        if batch not in queue.batches or batch.abandoned:
            return
        progress = self.progress(queue, batch, now)
        batch.withdraw()
        fate = "and may or may not be stored" if batch.maybe_stored else "and are not stored"
        error = DeliveryTimeout(
            f"{batch.count} record(s) for {name_of(queue.place)} were not acknowledged within "
            f"{self._delivery_timeout:g} s, {fate}: {progress}" + ("" if batch.attempts or batch.trouble else _TOO_SLOW)
        )
        if batch.in_flight:
            batch.abandon()
            self._deliver_failure(batch, error, now)
            return
        queue.failed(batch, maybe_stored=batch.maybe_stored)
        self._deliver_failure(batch, error, now)
        self._deliveries.release(batch)
        self._queues.wake(queue)

    def progress(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> str:
        """Where a batch is, since when, and which attempts were made."""
        topic, partition = queue.place
        node = self._core.cluster.leader(topic, partition)
        words = [f"{batch.attempts} attempt(s) in {now - batch.opened:.1f} s"]
        if node is None:
            words.append(f"no leader ({self._core.metadata.why_no_leader(topic, partition)})")
        else:
            words.append(f"leader is node {node.id} at {format_address(node.host, node.port)}")
        if batch.request is not None:
            waits = "not sent yet, the request waits for its connection"
            words.append("sent, no response yet" if batch.request.sent else waits)
        elif self._identity.idempotent and self._identity.current is None:
            why = self._identity.trouble and f" ({self._identity.trouble})"
            words.append(f"no broker has given a producer id{why}")
        elif queue.batches[0] is not batch:
            words.append("an older batch has to go first")
        elif node is not None and self._queues.node(node.id).muted_until > now:
            words.append("the broker throttles")
        elif node is not None and not batch.attempts and self._queues.node(node.id).in_flight:
            words.append("other batches are sent before it")
        trouble = batch.trouble or (self._core.trouble(node) if node else "")
        return ", ".join(words) + (f"; last error: {trouble}" if trouble else "")


def name_of(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def details(place: TopicPartition, result: PartitionProduceResponse) -> str:
    """The partition's name, and the broker's messages about it."""
    said = [name_of(place), *filter(None, [result.error_message])]
    said += [f"record {each.batch_index}: {each.batch_index_error_message}" for each in result.record_errors[:3]]
    return "; ".join(said)


def _why(batch: ProducerBatch) -> str:
    """Why a batch cannot be sent in another epoch."""
    return _UNSURE if batch.outcome_unknown else _OVERTAKEN


def _maybe_stored(error: OttlaError) -> bool:
    """Whether a leader may have appended a batch although its request ended with this error."""
    if not isinstance(error, BrokerError):
        return True  # no broker has refused the batch
    return isinstance(error, _OUTCOME_UNKNOWN) or (error.retriable and not isinstance(error, _NOT_APPENDED))


def _guilty(result: PartitionProduceResponse | None) -> dict[int, OttlaError]:
    """The errors of the records that the broker calls invalid, by their index in the batch."""
    if result is None:
        return {}
    why = {each.batch_index: each.batch_index_error_message or result.error_message for each in result.record_errors}
    return {index: broker_error(result.error_code, said or "") for index, said in why.items()}
