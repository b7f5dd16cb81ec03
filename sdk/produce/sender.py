"""The sending half of a producer: collects due batches per leader and forms requests.

Rules:
- `ProducerQueues` says which partitions may have a batch to send; `Results` decides what happens to batches after their
  responses.
- A new leader that an error names is used at once (KIP-951).
- The cost of a drain depends on the batches that it sends, not on the number of waiting partitions. Only `Stalls` looks
  at all of them now and then.
- Produce has its own connection to each node, because a broker serves the requests of one connection one by one, and
  acks=all waits for replicas. A producer with acks=0 shares its connection with no other: how the connection ends shows
  what arrived.

Source: Sender.java, ProduceRequestData.json.
"""

from collections.abc import Callable, Iterator

from ottla.codec.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from ottla.errors import (
    ClusterAuthorizationFailed,
    DuplicateSequenceNumber,
    EncodeError,
    OttlaError,
    OutOfOrderSequenceNumber,
    RemoteProtocolError,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import PRODUCE, Node
from ottla.sdk.logs import about, logger
from ottla.sdk.missing_rights import producer_id_denied
from ottla.sdk.outcome import Outcome, settled_with
from ottla.sdk.produce.batches import InFlightBatches, PartitionQueue, ProducerBatch
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.node_queue import NodeQueue
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_identity import ProducerIdentity
from ottla.sdk.produce.producer_queues import ProducerQueues
from ottla.sdk.produce.requests import Batches, ProduceRequests
from ottla.sdk.produce.results import Results, details, name_of
from ottla.sdk.produce.sender_metrics import SenderMetrics
from ottla.sdk.produce.stalls import Stalls
from ottla.sdk.transaction.producer_transactions import ProducerTransactions

log = logger("ottla.sdk.producer")

_OVERDUE = 1.0
"""Seconds that a batch may wait before `explain` mentions it."""


class Sender:
    """Sends the due batches in `queues`; calls ``give_up`` with a fatal error of the producer."""

    def __init__(
        self,
        core: ClientCore,
        options: ProducerOptions,
        deliveries: Deliveries,
        give_up: Callable[[OttlaError], None],
        shown: Callable[[], None],
    ) -> None:
        self._core, self._options, self._give_up = core, options, give_up
        self._metrics = SenderMetrics(core.metrics)
        self._requests = ProduceRequests(options, core.options.request_timeout, self._metrics)
        self.delivery_timeout = options.delivery_timeout or core.options.delivery_timeout
        self.channel = PRODUCE if options.acks else f"{PRODUCE}-{core.number()}"
        transactional = options.transactional_id is not None
        idempotent = transactional or (options.required_acks == -1 and options.idempotent is not False)
        self.queues = ProducerQueues(core, self.channel, self._drain, transactional=transactional)
        self.identity: ProducerIdentity | ProducerTransactions
        if options.transactional_id is None:
            self.identity = ProducerIdentity(
                core,
                idempotent=idempotent,
                required=bool(options.idempotent),
                changed=self._identity_changed,
                fail=self._identity_failed,
            )
        else:
            self.identity = ProducerTransactions(
                core, options.transactional_id, options.transaction_timeout, self.queues, fail=give_up, shown=shown
            )
        self.results = Results(core, deliveries, self._metrics, self.identity, self.queues, self.delivery_timeout)
        self._stalls = Stalls(core, self.queues.partitions, self.results)
        self._stopped = False
        self._drained: Outcome[None] | None = None
        """Settled when no request is in flight any more."""
        core.metadata.observers.append(self._metadata_changed)

    def stop(self) -> None:
        """Send nothing more, because the producer has failed or is closed."""
        self._stopped = True
        self.identity.failed()

    def fail_all(self, error: OttlaError) -> None:
        """Send nothing more, and fail all batches."""
        self.stop()
        self.results.fail_all(error)

    def finish(self) -> Outcome[None]:
        """Settled once the brokers have read what they do not answer (acks=0); send nothing more."""
        if self._options.acks == 0:
            return self._core.finish(self.channel)
        return settled_with(None)

    def close(self) -> None:
        self.stop()
        self._metrics.close()
        self._core.metadata.observers.remove(self._metadata_changed)
        if self._options.acks == 0:
            self._core.retire(self.channel)

    def forget(self, topic: str) -> None:
        """Drop all state of a topic that has nothing in flight.

        That includes its sequences, so later batches need another epoch, whose sequences begin at 0. In the current
        epoch a broker could take them for duplicates of earlier batches.
        """
        self._metrics.forget(topic)
        gone = self.queues.forget(topic)
        current = self.identity.current
        if current is not None and any(each.identity == current for each in gone):
            self.identity.bump(self._core.now)

    def add(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a new batch, which is the open one of its partition from now on."""
        queue.begin(batch)
        self.results.watch(queue, batch)

    def drop(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch that got no record."""
        self.results.drop(queue, batch)

    def withdraw(self, error: OttlaError) -> Outcome[None]:
        """Fail everything, and send no more of it; settled when no request is in flight any more."""
        for queue in self.queues.partitions.values():
            for batch in list(queue.batches):
                self.results.withdraw(queue, batch, error)
        drained = Outcome[None]()
        if self.queues.empty:
            drained.succeed(None)
        else:
            self._drained = drained
        return drained

    def explain(self, now: float) -> Iterator[str]:
        for queue in self.queues.partitions.values():
            oldest = queue.batches[0] if queue.batches else None
            if oldest and oldest.due and (oldest.trouble or now > oldest.opened + _OVERDUE):
                records = sum(each.count for each in queue.batches)
                where, progress = name_of(queue.place), self.results.progress(queue, oldest, now)
                yield f"producer: {records} record(s) for {where} wait: {progress}"
        for node_id, left in self.queues.muted(now):
            yield f"producer: node {node_id} throttles, for another {left:.1f} s"

    def _metadata_changed(self, now: float) -> None:
        metadata = self._core.metadata
        for queue in self.queues.partitions.values():
            if queue.place[0] not in metadata.learned_of:
                continue
            incarnation = self._core.cluster.incarnation(queue.place[0])
            if incarnation != queue.incarnation and incarnation >= 0:
                log.info("topic recreated: new producer epoch", extra=about(queue.place))
                queue.recreate(incarnation)
            first = queue.batches[0] if queue.batches else None
            if first is not None and first.retry_at > now:
                leader = self._core.cluster.leader(*queue.place)
                if leader is not None and leader.id != first.node:
                    first.retry(now)  # it was refused by a former leader
            self._stalls.metadata_changed(queue, now)
        self.queues.metadata_changed()

    def _identity_changed(self, now: float) -> None:
        self.queues.wake_all()

    def _identity_failed(self, error: OttlaError) -> None:
        """End the producer, which gets no producer id."""
        if isinstance(error, ClusterAuthorizationFailed):
            topics = [queue.place[0] for queue in self.queues.partitions.values() if queue.batches]
            error = producer_id_denied(error, list(dict.fromkeys(topics)))
        self._give_up(error)

    # -- sending -----------------------------------------------------------------------------------------------------

    def _drain(self, now: float) -> None:
        if self._stopped:
            return
        queues = self.queues
        if queues.leaderless:
            queues.find_leaders(now)
        if (queues.woken or queues.leaderless) and self.identity.obtain(now):
            for node in queues.take_woken():
                while node.may_send(now) and (batches := self._collect(node, now)):
                    self._send(node, batches, now)
                queues.wake_when_unmuted(node, now)
        self._stalls.look(now)

    def _collect(self, node: NodeQueue, now: float) -> Batches:
        """The batches of the next request to the node: at most one per partition.

        Drops all other partitions from `ready`; each is woken when it may send again.
        """
        batches: Batches = {}
        again: list[PartitionQueue] = []
        room = self._core.options.max_request_size
        while node.ready:
            place, queue = node.ready.popitem(last=False)
            batch = queue.sendable(now)
            if batch is None:  # woken by what makes a batch due, by the end of a pause, or by the next response
                continue
            leader = self._core.cluster.leader(*place)
            if leader is None or leader.id != node.id:
                self.queues.wake(queue)
                continue
            if queue.renumbering and self.results.fail_unrenumberable(queue, now):
                self.queues.wake(queue)
                continue
            if not self._adopt(queue, now):
                if self.identity.current is None:
                    break  # the next identity wakes all partitions
                continue  # batches of the old identity are in flight: the response wakes the partition
            if not self.identity.admits(queue):
                continue  # the transaction wakes it once the partition has joined
            full = bool(batches) and batch.size > room
            if full or batch is not queue.batches[-1]:
                again.append(queue)
            if full:
                break
            room -= batch.size
            batches[batch] = queue
        for queue in again:
            node.ready[queue.place] = queue
        return batches

    def _adopt(self, queue: PartitionQueue, now: float) -> bool:
        """Make sure that the partition's next batch goes out in a safe epoch; ``False`` if there is none now."""
        current = self.identity.current
        if not self.identity.idempotent:
            return True
        if current is None:
            return False  # the last epoch was needed for another partition
        adopted = queue.adopt(current)
        if isinstance(self.identity, ProducerTransactions):
            if adopted and queue.identity == current:
                return True
            if queue.renumbering:
                why = f"{name_of(queue.place)}: the partition needs another epoch: {queue.batches[0].trouble}"
                self.identity.doom(queue.place, 0, OutOfOrderSequenceNumber(why))
            return False  # otherwise a batch of the previous transaction is still in flight
        if adopted:
            return True
        # This partition is renumbered; the others switch once none of their batches has an unknown outcome.
        log.info("new producer epoch: a batch was refused or lost", extra=about(queue.place))
        self.identity.bump(now)
        if self.identity.current is None:
            return False
        queue.adopt(self.identity.current)
        return True

    def _send(self, node: NodeQueue, batches: Batches, now: float) -> None:
        unsendable: dict[ProducerBatch, EncodeError] = {}

        def build(version: int) -> ProduceRequest:
            return self._requests.build(batches, version, unsendable, now)

        # ``None``: written, and there is no response (acks=0); or withdrawn, and then `batches` is empty.
        def ended(answer: ProduceResponse | OttlaError | None, now: float) -> None:
            self.identity.answered((queue.place for queue in batches.values()), now)
            self._answered(node, request, answer, unsendable, now)
            self.queues.answered(node)

        deadline = now + self._core.options.request_timeout
        one_way = self._options.acks == 0
        exchange = Exchange(
            ProduceRequest, ended, deadline, one_way=one_way, build=build, versions=self.identity.versions
        )
        records, request = 0, InFlightBatches(batches, exchange)
        for batch, queue in batches.items():
            if not batch.attempts:
                self._metrics.queue_time.record(now - batch.opened, now)
            else:
                self._metrics.count("record-retry", queue.place[0], batch.count, now)
            queue.send(batch, node.id, request, idempotent=self.identity.idempotent)
            records += batch.count
        self._metrics.records_per_request.record(records, now)
        node.sent()
        self._core.submit(self._core.cluster.nodes[node.id], exchange, now, self.channel)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answered(
        self,
        node: NodeQueue,
        request: InFlightBatches,
        answer: ProduceResponse | OttlaError | None,
        unsendable: dict[ProducerBatch, EncodeError],
        now: float,
    ) -> None:
        found: dict[TopicPartition, PartitionProduceResponse] = {}
        if isinstance(answer, ProduceResponse):
            self._learn(node, answer, now)
            for topic in answer.responses:
                found |= {(topic.name, each.index): each for each in topic.partition_responses}
        for batch, queue in request.batches.items():
            batch.answered()
            if batch not in queue.batches:
                continue  # failed meanwhile, with all other batches
            result = found.get(queue.place)
            if batch in unsendable:
                self.results.refused(queue, batch, unsendable[batch], now, sent=False)
            elif answer is None:
                self.results.stored(queue, batch, -1, -1, now)
            elif isinstance(answer, OttlaError):
                self.results.refused(queue, batch, answer, now, sent=request.sent)
            elif result is None:
                left_out = RemoteProtocolError(f"the response of node {node.id} lacks {name_of(queue.place)}")
                self.results.refused(queue, batch, left_out, now, sent=True)
            elif result.error_code in (0, DuplicateSequenceNumber.code):
                self.results.stored(queue, batch, result.base_offset, result.log_append_time_ms, now)
            else:
                error = broker_error(result.error_code, details(queue.place, result))
                self.results.refused(queue, batch, error, now, sent=True, result=result)
            self.queues.wake(queue)
        if self._drained is not None and self.queues.empty:
            self._drained.succeed(None)
            self._drained = None

    def _learn(self, node: NodeQueue, answer: ProduceResponse, now: float) -> None:
        """Use the other contents of a response: new leaders, and the throttle time."""
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    hint = each.current_leader
                    self._core.cluster.moved(topic.name, each.index, hint.leader_id, hint.leader_epoch, nodes)
        if answer.throttle_time_ms > 0:
            self._metrics.throttle_time.record(answer.throttle_time_ms / 1000, now)
