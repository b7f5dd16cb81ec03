"""Handles AddPartitionsToTxn and EndTxn of transactions that write to rewritten topics.

A transactional producer keeps its id and epoch upstream, because upstream's transaction coordinator knows it by them,
and the client sends its requests to that coordinator. The proxy handles everything that the client cannot know:

Rules:
- Partitions: for transactions before version 2 the proxy widens the client's AddPartitionsToTxn to all partitions for
  keys of the topic, and of the topics that get copies, and narrows the response to those that the client named. So
  copies are committed or aborted with their records. Requests of the proxy's own would collide with the client's at
  the coordinator. The cost is a transaction marker in each of these partitions.
- The end: EndTxn waits until none of the transaction's batches is under way. Batches of an aborting transaction are not
  sent any more, except those with an unknown outcome: before version 2 a late copy could become part of the next
  transaction of the epoch, so they are retried until upstream confirms them. For the same reason records that arrive
  after EndTxn, on another connection, are refused.
- Commit: if a refused batch is stored in part, or its outcome is unknown, every further request of the transaction gets
  an error that has the client abort, and EndTxn refuses to commit. The proxy never fences a transactional producer
  because of its own gaps in knowledge: only the coordinator fences.

Source: KIP-98, KIP-360, KIP-890; TransactionManager.java, TransactionCoordinator.scala.
"""

from collections.abc import Callable, Iterable

from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    OperationNotAttempted,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.steps import Steps, until
from ottla.proxy.routing import TopicRules
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.producer import UpstreamTransaction
from ottla.proxy.upstream.streams import ABORTED
from ottla.sdk.outcome import Outcome

MOST_WAITING = 100
"""The most waiting EndTxn requests of a transaction; a client needs one, and more only after its own timeouts."""
MOST_WIDENING = 1000
"""The most AddPartitionsToTxn requests of all clients that wait for metadata; a client needs one at a time."""


class ClientTransactions:
    """Follows clients' transactions, widens AddPartitionsToTxn, and delays or refuses EndTxn."""

    def __init__(
        self, rules: TopicRules, topics: RoutedTopics, admission: Admission, rewriter: Rewriter, delivery: Delivery
    ) -> None:
        self._rules, self._topics = rules, topics
        self._admission, self._rewriter, self._delivery = admission, rewriter, delivery
        self._widening = 0
        """How many AddPartitionsToTxn requests wait for metadata."""
        self.newest = 0
        """The number of the newest `UpstreamTransaction`."""

    def initialized(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        origin: Origin,
        now: float,
        *,
        older: int | None = None,
    ) -> None:
        """Take the id and epoch that upstream's coordinator gave a client's producer; batches of earlier epochs fail.

        Args:
            older: `newest` at the time of the client's request, if it requested a new epoch; ``None`` if the same
                response may have arrived before.
        """
        producers = self._admission.producers
        known = producers.known(producer_id).transaction if producer_id in producers else None
        if known is None or known.epoch < epoch:
            producer = self._admission.remember(producer_id, origin)
        elif older is None or known.number > older:  # a late response
            return
        else:
            producer = self._rewriter.allocated(producer_id, origin, now)  # upstream has lost its data
        self.newest += 1
        producer.begin_epoch(UpstreamTransaction(transactional_id, epoch, number=self.newest))
        self._admission.note_transaction(producer)
        self._delivery.renew(producer, epoch, now)
        self._rewriter.withdraw(producer, now, before=epoch)
        if known is not None:
            known.go_on(now)

    # -- EndTxn

    def end(self, request: EndTxnRequest, origin: Origin, now: float) -> Steps[tuple[int, float]]:
        """Wait until none of the transaction's batches is under way; returns 0, or why EndTxn is refused, and the time.

        UNKNOWN_PRODUCER_ID means that the client needs a new epoch.
        """
        found = self._admission.producers.in_transaction(request.producer_id, request.producer_epoch)
        if found is None or found[1].transactional_id != request.transactional_id:
            may_commit = self._admission.unknown.may_commit(request.producer_id, request.producer_epoch, origin.host)
            if request.committed and not may_commit:
                return UnknownProducerId.code, now  # the proxy has refused records of this unknown epoch
            return 0, now
        producer, transaction = found
        if producer.principal is not origin.principal:  # upstream would refuse it, but here batches would be withdrawn
            return TransactionalIdAuthorizationFailed.code, now
        if len(transaction.waiting) >= MOST_WAITING:
            return ConcurrentTransactions.code, now
        if not request.committed and not producer.settled:
            transaction.abort(ABORTED)
            self._admission.note_transaction(producer)
            self._rewriter.withdraw(producer, now)
            self._delivery.stop(producer, now)
        if not producer.settled:
            settled: Outcome[float] = Outcome()
            transaction.waiting.append(settled.succeed)
            now = yield from until(settled)
        if request.committed and transaction.failure is not None:
            # Only a new epoch helps if an outcome is unknown (see `ended`).
            return (UnknownProducerId if transaction.failure.unknown else TransactionAbortable).code, now
        if transaction.end(request):
            self._admission.note_transaction(producer)
        return 0, now

    def ended(self, request: EndTxnRequest, answer: EndTxnResponse, origin: Origin, now: float) -> None:
        """Take the EndTxn response of upstream's coordinator to a client."""
        if answer.error_code:
            return
        if answer.producer_id >= 0:  # from version 5 on each transaction has its own epoch
            self.initialized(request.transactional_id, answer.producer_id, answer.producer_epoch, origin, now)
        elif found := self._admission.producers.in_transaction(request.producer_id, request.producer_epoch):
            producer, transaction = found
            if transaction.ended(request):
                self._admission.note_transaction(producer)

    # -- AddPartitionsToTxn

    def described(self, request: AddPartitionsToTxnRequest, now: float) -> Steps[tuple[str | None, float]]:
        """Wait for the metadata of the rewritten topics and of their copies; returns the topic that lacks it, and the
        time.

        If the metadata of one topic does not arrive in time, the whole request is refused.
        """
        while unknown := {  # the rules may change during a wait
            missing: topic.name
            for topic in request.v3_and_below_topics
            if self._rules.rewrites(topic.name)
            for missing in self._topics.with_copies(topic.name)
            if not self._topics.is_described(missing)
        }:
            first, named = next(iter(unknown.items()))
            if self._widening >= MOST_WIDENING:
                return named, now
            self._widening += 1
            asker = request.v3_and_below_transactional_id
            self._topics.request(unknown, asker)
            found, now = yield from self._metadata_of(first, asker, now)
            self._widening -= 1
            if not found and first in self._topics.with_copies(named) and self._rules.rewrites(named):
                return named, now
        return None, now

    def _metadata_of(self, topic: str, asker: str, now: float) -> Steps[tuple[bool, float]]:
        """Wait for the metadata of a topic; returns whether it has arrived, and the time."""
        over: Outcome[tuple[bool, float]] = Outcome()

        def arrived(now: float) -> None:
            over.succeed((True, now))

        def gave_up(error: BrokerError, now: float) -> None:
            over.succeed((False, now))

        self._topics.when_described(topic, arrived, gave_up, now, asker=asker)
        return (yield from until(over))

    def widened(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnRequest:
        """The request with all partitions to which records may go."""
        named: dict[str, dict[int, None]] = {}
        for topic in request.v3_and_below_topics:  # the request may name a topic more than once
            named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
        for name in list(named):
            for copy in self._topics.copies(name):
                named.setdefault(copy, {})
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=request.v3_and_below_transactional_id,
            v3_and_below_producer_id=request.v3_and_below_producer_id,
            v3_and_below_producer_epoch=request.v3_and_below_producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=self._all(name, partitions))
                for name, partitions in named.items()
            ),
        )

    def added(self, request: AddPartitionsToTxnRequest, answer: AddPartitionsToTxnResponse) -> None:
        """Take the coordinator's response: the transaction's records may go only to partitions that were added."""
        found = self._admission.producers.in_transaction(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        if found is None:
            return
        producer, transaction = found
        for topic in answer.results_by_topic_v3_and_below:
            added = {each.partition_index for each in topic.results_by_partition if not each.partition_error_code}
            if transaction.add(topic.name, added):
                self._admission.note_transaction(producer)

    def _all(self, topic: str, named: Iterable[int]) -> tuple[int, ...]:
        """The partitions that the client named, for records without a key, and the partitions that keys go to."""
        if not self._rules.rewrites(topic):
            return tuple(named)
        there = self._topics.partitions(topic)
        return tuple(sorted({*named, *(there & {*range(self._topics.routes(topic).partitions)})}))


def narrowed(request: AddPartitionsToTxnRequest, answer: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    """The response for the client to a widened request: if any partition failed, all that the client named fail.

    Topics that the client did not name get copies of its records. A coordinator adds all partitions of a request or
    none, so their failure is that of all topics.
    """
    told = {
        topic.name: {each.partition_index: each.partition_error_code for each in topic.results_by_partition}
        for topic in answer.results_by_topic_v3_and_below
    }

    vague = (0, OperationNotAttempted.code)
    refused = {name: next((each for each in codes.values() if each not in vague), 0) for name, codes in told.items()}
    named = {topic.name for topic in request.v3_and_below_topics}
    copies = next((code for name, code in refused.items() if code and name not in named), 0)

    def code(name: str, partition: int) -> int:
        own = told.get(name, {}).get(partition, UnknownTopicOrPartition.code)
        return own if own not in vague else refused[name] or copies or own

    return AddPartitionsToTxnResponse(
        throttle_time_ms=answer.throttle_time_ms,
        results_by_topic_v3_and_below=_results(request, code),
    )


def refused(request: AddPartitionsToTxnRequest, unknown: str) -> AddPartitionsToTxnResponse:
    """The response to a request that is refused, because the metadata of a topic is missing."""

    def code(name: str, partition: int) -> int:
        return UnknownTopicOrPartition.code if name == unknown else OperationNotAttempted.code

    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request, code))


def _results(
    request: AddPartitionsToTxnRequest, code: Callable[[str, int], int]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=code(topic.name, partition)
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.v3_and_below_topics
    )
