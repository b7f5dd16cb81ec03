"""The sending half of a producer: collects due batches per leader and forms requests.

Rules:
- State per node is in a `NodeQueue`, state per partition in a `PartitionQueue`; `Results` decides what happens to
  batches after their responses.
- A new leader that an error names is used at once (KIP-951).
- While a partition has no leader, metadata are refreshed again and again, with growing pauses, as for retries.
- The cost of a turn depends on the batches that it sends, not on the number of waiting partitions. Only `Stalls` looks
  at all of them now and then.
- Produce has its own connection to each node, because a broker serves the requests of one connection one by one, and
  acks=all waits for replicas. A producer with acks=0 shares its connection with no other: how the connection ends shows
  what arrived.

Source: Sender.java, ProduceRequestData.json.
"""

from collections.abc import Callable, Iterator

from ottla.codec.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from ottla.errors import (
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
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import InFlightBatches, PartitionQueue, ProducerBatch
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.node_queue import NodeQueue
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_identity import ProducerIdentity
from ottla.sdk.produce.requests import Batches, ProduceRequests
from ottla.sdk.produce.results import Results, details, name_of
from ottla.sdk.produce.sender_metrics import SenderMetrics
from ottla.sdk.produce.stalls import Stalls
from ottla.sdk.timers import Timer
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
        self._core, self._options = core, options
        self._metrics = SenderMetrics(core.metrics)
        self._requests = ProduceRequests(options, core.options.request_timeout, self._metrics)
        self.delivery_timeout = options.delivery_timeout or core.options.delivery_timeout
        self.channel = PRODUCE if options.acks else f"{PRODUCE}-{core.number()}"
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.identity: ProducerIdentity | ProducerTransactions
        if options.transactional_id is None:
            self.identity = ProducerIdentity(
                core,
                idempotent=options.required_acks == -1 and options.idempotent is not False,
                required=bool(options.idempotent),
                changed=self._identity_changed,
                fail=give_up,
            )
        else:
            self.identity = ProducerTransactions(
                core,
                options.transactional_id,
                options.transaction_timeout,
                changed=self._identity_changed,
                fail=give_up,
                shown=shown,
                wake=self.wake,
                leaves_gaps=self._leaves_gaps,
            )
            deliveries.doom, give_up = self.identity.doom, self.identity.give_up
        self.results = Results(
            core,
            deliveries,
            self._metrics,
            self.identity,
            self.delivery_timeout,
            node=self._node,
            wake=self.wake,
            watch=self._watch,
            give_up=give_up,
        )
        self._stalls = Stalls(core, self.queues, self.results)
        self._nodes: dict[int, NodeQueue] = {}
        self._turn: dict[int, None] = {}
        """Nodes that may get another request."""
        self._leaderless: dict[TopicPartition, PartitionQueue] = {}
        """Leaderless partitions that have a batch to send."""
        self._leaderless_answers = 0
        """Consecutive metadata responses that named no leader for a partition that has a batch to send."""
        self._drain_due: Timer | None = None
        self._stopped = False
        self._drained: Outcome[None] | None = None
        """Settled when no request is in flight any more."""
        core.metadata.observers.append(self._metadata_changed)

    def stop(self) -> None:
        """Send nothing more, because the producer has failed or is closed."""
        self._stopped = True
        self.identity.failed()

    def close(self) -> None:
        self.stop()
        self._metrics.close()
        self._core.metadata.observers.remove(self._metadata_changed)

    def queue(self, place: TopicPartition) -> PartitionQueue:
        found = self.queues.get(place)
        if found is None:
            transactional = self.identity.transactional_id is not None
            found = self.queues[place] = PartitionQueue(place, self.identity.idempotent, transactional=transactional)
            found.incarnation = found.known_in = self._core.cluster.incarnation(place[0])
            if leader := self._core.cluster.leader(*place):
                self._core.open_connection(leader, self.channel, self._core.now)
        return found

    def forget(self, topic: str) -> None:
        """Drop all state of a topic that has nothing in flight.

        That includes its sequences, so later batches need another epoch, whose sequences begin at 0. In the current
        epoch a broker could take them for duplicates of earlier batches.
        """
        self._metrics.forget(topic)
        gone = [self.queues.pop(place) for place in list(self.queues) if place[0] == topic]
        current = self.identity.current
        if current is not None and any(each.identity == current for each in gone):
            self.identity.bump(self._core.now)

    def add(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a new batch, the last of its partition for now."""
        queue.batches.append(batch)
        self._watch(queue, batch)

    def due(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Allow the batch to be sent; until then it may still grow."""
        if batch is queue.open:
            queue.cancel_linger()
        if not batch.due:
            batch.due = True
            if batch is queue.batches[0]:
                queue.moved_at = self._core.now
            self.wake(queue)

    def wake(self, queue: PartitionQueue) -> None:
        """Consider a partition that may have a batch to send."""
        if not queue.batches:
            return
        leader = self._core.cluster.leader(*queue.place)
        if leader is None:
            self._leaderless[queue.place] = queue
        else:
            self._node(leader.id).ready[queue.place] = queue
            self._turn[leader.id] = None
        self._drain_soon()

    def withdraw(self, error: OttlaError) -> Outcome[None]:
        """Fail everything, and send no more of it; settled when no request is in flight any more."""
        for queue in self.queues.values():
            for batch in list(queue.batches):
                self.results.withdraw(queue, batch, error)
        drained = Outcome[None]()
        if any(each.batches for each in self.queues.values()):
            self._drained = drained
        else:
            drained.succeed(None)
        return drained

    def _leaves_gaps(self) -> bool:
        """Whether a batch of this epoch is in flight, has an unknown outcome, or is missing at the broker."""
        current = self.identity.current
        return any(
            queue.gap or queue.renumber_from is not None or queue.outcome_unknown
            for queue in self.queues.values()
            if queue.identity == current
        )

    def explain(self, now: float) -> Iterator[str]:
        for queue in self.queues.values():
            oldest = queue.batches[0] if queue.batches else None
            if oldest and oldest.due and (oldest.trouble or now > oldest.opened + _OVERDUE):
                records = sum(each.count for each in queue.batches)
                where, progress = name_of(queue.place), self.results.progress(queue, oldest, now)
                yield f"producer: {records} record(s) for {where} wait: {progress}"
        for node_id, node in self._nodes.items():
            if (left := node.muted_until - now) > 0:
                yield f"producer: node {node_id} throttles, for another {left:.1f} s"

    def _watch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Fail the batch when its deadline passes."""
        batch.expiry = self._core.later(batch.deadline, lambda now: self.results.expire(queue, batch, now))

    def _node(self, node_id: int) -> NodeQueue:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = NodeQueue(self._core, node_id, self.channel, self.wake)
        return node

    def _metadata_changed(self, now: float) -> None:
        metadata = self._core.metadata
        for queue in self.queues.values():
            if queue.place[0] not in metadata.learned_of:
                continue
            incarnation = self._core.cluster.incarnation(queue.place[0])
            if incarnation != queue.incarnation and incarnation >= 0:
                log.info("topic recreated: new producer epoch", extra={"partition": queue.place})
                queue.recreate(incarnation)
            first = queue.batches[0] if queue.batches else None
            if first is not None and first.retry_at > now:
                leader = self._core.cluster.leader(*queue.place)
                if leader is not None and leader.id != first.node:
                    first.retry_at = now  # it was refused by a former leader
            self._stalls.metadata_changed(queue, now)
        self._wake_all()
        if not self._leaderless:
            self._leaderless_answers = 0
        elif metadata.learned_all:
            self._leaderless_answers += 1

    def _identity_changed(self, now: float) -> None:
        if not self.identity.idempotent:
            for queue in self.queues.values():
                queue.idempotent = False
        self._wake_all()

    def _wake_all(self) -> None:
        self._leaderless.clear()
        for node in self._nodes.values():
            node.ready.clear()
        for queue in self.queues.values():
            self.wake(queue)
        self._drain_soon()

    # -- sending -----------------------------------------------------------------------------------------------------

    def _drain_soon(self) -> None:
        if self._drain_due is None:
            self._drain_due = self._core.soon(self._drain)

    def _drain(self, now: float) -> None:
        self._drain_due = None
        if not self._stopped:
            self._send_ready(now)
            self._stalls.look(now)

    def _send_ready(self, now: float) -> None:
        if self._leaderless:
            self._core.metadata.refresh(now, self._core.backoff(self._leaderless_answers))
        if not (self._turn or self._leaderless) or not self.identity.needed(now):
            return
        turn, self._turn = self._turn, {}
        for node_id in turn:
            node = self._node(node_id)
            while node.may_send(now):
                batches = self._collect(node_id, node, now)
                if not batches:
                    break
                self._send(self._core.cluster.nodes[node_id], node, batches, now)

    def _collect(self, node_id: int, node: NodeQueue, now: float) -> Batches:
        """The batches of the next request to the node: at most one per partition."""
        batches: Batches = {}
        again: list[PartitionQueue] = []
        room = self._core.options.max_request_size
        while node.ready:
            place, queue = node.ready.popitem(last=False)
            batch = queue.sendable(now)
            if batch is None:
                continue
            leader = self._core.cluster.leader(*place)
            if leader is None or leader.id != node_id:
                self.wake(queue)
                continue
            if self.results.fail_unrenumberable(queue, now):
                self.wake(queue)
                continue
            if not self._adopt(queue, now):
                if self.identity.current is None:
                    break
                continue
            if not self.identity.admits(queue):
                continue
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
        log.info("new producer epoch: a batch was refused or lost", extra={"partition": queue.place})
        self.identity.bump(now)
        if self.identity.current is None:
            return False
        queue.adopt(self.identity.current)
        return True

    def _send(self, node: Node, target: NodeQueue, batches: Batches, now: float) -> None:
        records, request = 0, InFlightBatches(batches)
        for batch, queue in batches.items():
            if not batch.attempts:
                self._metrics.queue_time.record(now - batch.opened, now)
            else:
                self._metrics.count("record-retry", queue.place[0], batch.count, now)
            queue.send(batch, node.id, request)
            records += batch.count
        self._metrics.records_per_request.record(records, now)
        target.in_flight += 1
        unsendable: dict[ProducerBatch, EncodeError] = {}

        def build(version: int) -> ProduceRequest:
            return self._requests.build(batches, version, unsendable, now)

        def ended(answer: ProduceResponse | OttlaError | None, now: float) -> None:
            target.in_flight -= 1
            self.identity.answered((queue.place for queue in batches.values()), now)
            self._answered(node, request, answer, unsendable, now)
            if target.ready:
                self._turn[node.id] = None
                self._drain_soon()

        deadline = now + self._core.options.request_timeout
        one_way = self._options.acks == 0
        exchange = request.exchange = Exchange(ProduceRequest, ended, deadline, one_way=one_way, build=build)
        if self.identity.idempotent:
            exchange.versions = self.identity.versions
        self._core.submit(node, exchange, now, self.channel)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answered(
        self,
        node: Node,
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
            batch.request = None
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
            self.wake(queue)
        if self._drained is not None and not any(each.batches for each in self.queues.values()):
            self._drained.succeed(None)
            self._drained = None

    def _learn(self, node: Node, answer: ProduceResponse, now: float) -> None:
        """Use the other contents of a response: new leaders, and the throttle time."""
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    hint = each.current_leader
                    self._core.cluster.moved(topic.name, each.index, hint.leader_id, hint.leader_epoch, nodes)
        if answer.throttle_time_ms > 0:
            self._metrics.throttle_time.record(answer.throttle_time_ms / 1000, now)
            if (until := self._node(node.id).muted_until) > now:
                self._core.later(until, lambda now: self._throttle_over(node.id))

    def _throttle_over(self, node_id: int) -> None:
        if self._node(node_id).ready:
            self._turn[node_id] = None
            self._drain_soon()
