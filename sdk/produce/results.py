"""What becomes of a batch that was sent: stored, retried, renumbered, split or failed.

Rules:
- Retriable errors and lost connections are retried with the same sequence. The delivery deadline ends that, and so does
  a topic that was recreated without the partition (`ottla.sdk.produce.stalls`). Any other error fails one batch, unless
  it ends a producer for good (`fatal`).
- OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID or INVALID_PRODUCER_EPOCH of a batch that is not the oldest only
  means that the oldest has to go first. Of the oldest it means that the broker misses what came before: it and all
  behind it are renumbered in the next epoch of the producer id, which needs no request, and sent again (KIP-360). Where
  the broker has refused what came before, or nobody knows whether it is stored, that was to be expected. Otherwise
  acknowledged records are missing, which is logged as an error: the loss is the broker's, not of these records.
- Whatever a leader may say after it has appended leaves open whether the batch is stored: with acks=all it appends,
  waits for its replicas, and answers NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION if it has to step down
  meanwhile. An outcome that is unknown stays so, whatever later attempts are answered, until the batch is acknowledged.
- MESSAGE_TOO_LARGE splits a batch in halves, down to single records.
- Records that the broker calls invalid fail with its words; the others of their batch fail too, and say so (KIP-467).

Source: Sender.java, TransactionManager.java (canRetry, bumpIdempotentProducerEpoch), DelayedProduce.scala and
Partition.scala (what is answered after the append).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.addresses import format_address
from ottla.codec.apis.produce import PartitionProduceResponse
from ottla.errors import (
    BrokerError,
    ConnectionLost,
    CorruptMessage,
    DeliveryTimeout,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotEnoughReplicas,
    OttlaError,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    RemoteProtocolError,
    TimeoutExpired,
    UnknownErrorCode,
    UnknownProducerId,
    UnknownServerError,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.produce.batches import Batch, PartitionQueue
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.identity import ProducerIdentity
from ottla.sdk.produce.nodes import NodeQueue
from ottla.sdk.produce.sender_metrics import SenderMetrics

if TYPE_CHECKING:
    from ottla.sdk.transaction.transactions import Transactions

log = logger("ottla.sdk.producer")

_NOT_APPENDED = (CorruptMessage, NotEnoughReplicas)
"""Those retriable errors of which it is certain that nothing was appended."""
_OUTCOME_UNKNOWN = (UnknownServerError, UnknownErrorCode)
_NO_ANSWER = (ConnectionLost, TimeoutExpired, RemoteProtocolError)
_OUT_OF_SEQUENCE = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch)
_TOO_SLOW = "; where brokers take less than is buffered in that time, lower buffer_memory or raise delivery_timeout"
_UNSURE = "an earlier attempt was never answered: the records may be in the log, or not"
_OVERTAKEN = "what was sent behind them is stored already: the topic was recreated, or the broker has lost its state"
_TOO_LARGE = (MessageTooLarge, RecordListTooLarge)


class Results:
    """Decides what becomes of batches.

    Args:
        node: what is kept of a node, by its id.
        wake: called with a partition that may have something to send.
        watch: called with each half of a batch that was split.
        give_up: called with what makes the producer useless.
    """

    def __init__(
        self,
        core: ClientCore,
        deliveries: Deliveries,
        metrics: SenderMetrics,
        identity: "ProducerIdentity | Transactions",
        delivery_timeout: float,
        *,
        node: Callable[[int], NodeQueue],
        wake: Callable[[PartitionQueue], None],
        watch: Callable[[PartitionQueue, Batch], None],
        give_up: Callable[[OttlaError], None],
    ) -> None:
        self._core, self._deliveries, self._metrics, self._identity = core, deliveries, metrics, identity
        self._delivery_timeout = delivery_timeout
        self._node, self._wake, self._watch, self._give_up = node, wake, watch, give_up

    def stored(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time: int, now: float) -> None:
        queue.drop(batch, stored=True)
        queue.moved_at = now
        if batch.abandoned:
            self._deliveries.release(batch)
            return
        self._metrics.count("record-send", queue.place[0], batch.count, now)
        self._deliveries.stored(batch, base_offset, append_time)

    def refused(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: OttlaError,
        now: float,
        *,
        sent: bool,
        result: PartitionProduceResponse | None = None,
    ) -> None:
        """A batch was not acknowledged: retry, renumber or split it, or fail it.

        Args:
            sent: the broker may have the request.
            result: its answer, if it gave one.
        """
        batch.outcome_unknown |= sent and _maybe_stored(error)
        batch.trouble = str(error)
        if isinstance(error, _NO_ANSWER) or (isinstance(error, BrokerError) and error.stale_metadata):
            self._node(batch.node).refresh(now)
        if batch.abandoned:
            queue.drop(batch, stored=None)
            self._deliveries.release(batch)
        elif isinstance(error, _OUT_OF_SEQUENCE) and self._identity.idempotent:
            self._out_of_sequence(queue, batch, error, result, now)
        elif isinstance(error, _TOO_LARGE) and batch.count > 1:
            log.info("a batch is too large, and is split", extra={"partition": queue.place, "records": batch.count})
            self._metrics.splits.add(1, now)
            self._split(queue, batch)
        elif isinstance(error, BrokerError) and error.fatal:
            self._give_up(error)
        elif error.retriable:
            self._retry(queue, batch, error, now)
        else:
            self._fail(queue, batch, error, result, now)

    def _out_of_sequence(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: OttlaError,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        if queue.batches[0] is not batch:
            return  # what is before it has to go first
        if self._identity.transactional_id is not None:
            self._fail(queue, batch, error, result, now)  # no epoch begins within a transaction
            return
        if not batch.renumberable:
            self._fail(queue, batch, type(error)(f"{getattr(error, 'detail', error)}; {_why(batch)}"), result, now)
            return
        explained = queue.gap or queue.renumbering  # something before it was given up, or refused
        if not explained and isinstance(error, OutOfOrderSequenceNumber) and queue.acknowledged:
            log.error(
                "the broker misses records that it had acknowledged: was an unclean leader elected?",
                extra={"partition": queue.place, "why": batch.trouble},
            )
        queue.renumber(batch)
        self._node(batch.node).pause(queue, batch, error, now)

    def fail_unrenumberable(self, queue: PartitionQueue, now: float) -> bool:
        """Fail what cannot be renumbered, where that is next; whether there was something.

        An earlier attempt may be stored, or be under way still: under another number its records were twice. Or what
        was sent behind it is stored already.
        """
        batches = queue.unrenumberable()
        for batch in batches:
            why = f"what was sent before them was refused; {_why(batch)}; last trouble: {batch.trouble}"
            self._fail(queue, batch, OutOfOrderSequenceNumber(f"{name_of(queue.place)}; {why}"), None, now)
        return bool(batches)

    def _retry(self, queue: PartitionQueue, batch: Batch, error: OttlaError, now: float) -> None:
        leader = self._core.cluster.leader(*queue.place)
        if leader is not None and leader.id != batch.node:
            batch.retry_at = now  # there is a new leader
        else:
            self._node(batch.node).pause(queue, batch, error, now)
        log.debug("a batch is retried", extra={"partition": queue.place, "why": batch.trouble})

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.cancel_timers()
        self._deliveries.split(batch)
        for half in queue.split(batch):
            self._watch(queue, half)

    def _fail(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: OttlaError,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        """The broker did not store the batch, and never will; unless an earlier attempt did."""
        queue.drop(batch, stored=batch.fate)
        self._deliver_failure(batch, error, now, _guilty(result))
        self._deliveries.release(batch)

    def _deliver_failure(
        self, batch: Batch, error: OttlaError, now: float, guilty: Mapping[int, OttlaError] | None = None
    ) -> None:
        self._metrics.count("record-error", batch.place[0], batch.count, now)
        self._deliveries.failed(batch, error, guilty)

    def withdraw(self, queue: PartitionQueue, batch: Batch, error: OttlaError) -> None:
        """The batch is not wanted any more: it fails now, and is dropped once it is not under way."""
        if batch.abandoned:
            return
        batch.withdraw()
        self._deliver_failure(batch, error, self._core.now)
        if batch.in_flight:
            batch.abandoned = True
        else:
            queue.drop(batch, stored=batch.fate)
            self._deliveries.release(batch)

    # -- deadlines ---------------------------------------------------------------------------------------------------

    def expire(self, queue: PartitionQueue, batch: Batch, now: float) -> None:
        """The delivery deadline of a batch has passed."""
        if batch not in queue.batches or batch.abandoned:
            return
        progress = self.progress(queue, batch, now)
        batch.withdraw()
        fate = "may be stored or not" if batch.fate is None else "certainly not stored"
        error = DeliveryTimeout(
            f"{batch.count} record(s) for {name_of(queue.place)} were not acknowledged within "
            f"{self._delivery_timeout:g} s, {fate}: {progress}" + ("" if batch.attempts or batch.trouble else _TOO_SLOW)
        )
        if batch.in_flight:
            batch.abandoned = True
            self._deliver_failure(batch, error, now)
            return
        queue.drop(batch, stored=batch.fate)
        self._deliver_failure(batch, error, now)
        self._deliveries.release(batch)
        self._wake(queue)

    def progress(self, queue: PartitionQueue, batch: Batch, now: float) -> str:
        """Where a batch is, since when, and what was tried."""
        topic, partition = queue.place
        node = self._core.cluster.leader(topic, partition)
        words = [f"{batch.attempts} attempt(s) in {now - batch.opened:.1f} s"]
        if node is None:
            words.append(f"no leader ({self._core.metadata.why_no_leader(topic, partition)})")
        else:
            words.append(f"leader is node {node.id} at {format_address(node.host, node.port)}")
        if batch.request is not None:
            waits = "not sent yet, the request waits for its connection"
            words.append("sent, no answer yet" if batch.request.sent else waits)
        elif self._identity.idempotent and self._identity.current is None:
            why = self._identity.trouble and f" ({self._identity.trouble})"
            words.append(f"no broker has given a producer id{why}")
        elif queue.batches[0] is not batch:
            words.append("an older batch has to go first")
        elif node is not None and self._node(node.id).muted_until > now:
            words.append("the broker throttles")
        elif node is not None and not batch.attempts and self._node(node.id).in_flight:
            words.append("others are sent before it")
        trouble = batch.trouble or (self._core.trouble(node) if node else "")
        return ", ".join(words) + (f"; last trouble: {trouble}" if trouble else "")


def name_of(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def details(place: TopicPartition, result: PartitionProduceResponse) -> str:
    """What the broker says of a partition beside the error code."""
    said = [name_of(place), *filter(None, [result.error_message])]
    said += [f"record {each.batch_index}: {each.batch_index_error_message}" for each in result.record_errors[:3]]
    return "; ".join(said)


def _why(batch: Batch) -> str:
    """Why a batch cannot be sent in another epoch."""
    return _UNSURE if batch.outcome_unknown else _OVERTAKEN


def _maybe_stored(error: OttlaError) -> bool:
    """Whether a leader may have appended a batch whose request ended so."""
    if isinstance(error, _NO_ANSWER + _OUTCOME_UNKNOWN):
        return True
    return isinstance(error, BrokerError) and error.retriable and not isinstance(error, _NOT_APPENDED)


def _guilty(result: PartitionProduceResponse | None) -> dict[int, OttlaError]:
    """The errors of those records that the broker calls invalid, by their index in the batch."""
    if result is None:
        return {}
    why = {each.batch_index: each.batch_index_error_message or result.error_message for each in result.record_errors}
    return {index: broker_error(result.error_code, said or "") for index, said in why.items()}
