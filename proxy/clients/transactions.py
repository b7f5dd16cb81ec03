"""Transactions that write to rewritten topics.

A transactional producer keeps its id and its epoch upstream, because upstream's coordinator knows it by them, and
speaks to that coordinator itself. The proxy sees to what it cannot know:

Rules:
- Where its records go. Up to version 1 of transactions the client's own AddPartitionsToTxn is widened to all partitions
  to which keys of the topic go, and the answer is narrowed to those that the client has named. A second speaker at the
  coordinator would collide with the client. The price is a marker in each of these partitions.
- When all of it is settled. EndTxn waits until nothing of the transaction is under way. What is to be aborted is not
  sent any more, but for what may be stored already: before version 2 it could come late, and be part of the next
  transaction of the epoch, so it is sent again until upstream has it. Records that come behind EndTxn, on another
  connection, are refused for the same reason.
- Whether it may be committed. Where a batch was refused and some of its records are stored, or nobody can know whether
  they are, the client is told to abort, whatever it sends, and EndTxn refuses to commit. That is all: what the proxy
  does not know never fences a transactional producer. Only its coordinator does.

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
    ConcurrentTransactions,
    OperationNotAttempted,
    TransactionAbortable,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.topics import Topics
from ottla.proxy.routing import TopicRules
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.producer import Transaction
from ottla.proxy.upstream.streams import ABORTED

MOST_WAITING = 100
"""EndTxns of a transaction that wait; a client needs one, and some more if it has given up waiting."""
MOST_WIDENING = 1000
"""AddPartitionsToTxn of all clients that wait until a topic is described; a client needs one at a time."""


class Transactions:
    """The transactions of clients, as far as the proxy has to know of them."""

    def __init__(
        self, rules: TopicRules, topics: Topics, admission: Admission, rewriter: Rewriter, delivery: Delivery
    ) -> None:
        self._rules, self._topics = rules, topics
        self._admission, self._rewriter, self._delivery = admission, rewriter, delivery
        self._widening = 0
        """AddPartitionsToTxn that wait for a topic."""
        self.newest = 0
        """The number of the last `Transaction` that was begun with."""

    def initialized(
        self, transactional_id: str, producer_id: int, epoch: int, now: float, *, older: int | None = None
    ) -> None:
        """Upstream's coordinator gave a producer this id and epoch: what is of an earlier epoch is over.

        Args:
            older: what `newest` was when the client asked, if it asked for a new epoch; ``None`` if the same answer
                may have come before.
        """
        producers = self._admission.producers
        known = producers.known(producer_id).transaction if producer_id in producers else None
        if known is None or known.epoch < epoch:
            producer = self._admission.remember(producer_id)
        elif older is None or known.number > older:  # the answer is an old one
            return
        else:
            producer = self._rewriter.allocated(producer_id, now)  # upstream has lost its data
        self.newest += 1
        producer.transaction = Transaction(transactional_id, epoch, number=self.newest)
        self._admission.note_transaction(producer)
        self._delivery.renew(producer, epoch, now)
        self._rewriter.withdraw(producer, now, before=epoch)
        if known is not None:
            known.go_on(now)

    # -- the end

    def end(
        self, request: EndTxnRequest, go_on: Callable[[float], None], refuse: Callable[[int], None], now: float
    ) -> None:
        """A client ends its transaction: ``go_on`` once nothing of it is under way, or ``refuse`` with a code.

        UNKNOWN_PRODUCER_ID says that it needs another epoch.
        """
        found = self._admission.producers.in_transaction(request.producer_id, request.producer_epoch)
        if found is None or found[1].transactional_id != request.transactional_id:
            if request.committed and not self._admission.may_commit(request.producer_id, request.producer_epoch):
                refuse(UnknownProducerId.code)  # it is not known in any transaction of this epoch
            else:
                go_on(now)
            return
        producer, transaction = found
        if len(transaction.waiting) >= MOST_WAITING:
            refuse(ConcurrentTransactions.code)
            return

        def settled(now: float) -> None:
            if request.committed and transaction.failure is not None:
                # What nobody can know ends with the epoch alone (see `ended`).
                refuse((UnknownProducerId if transaction.failure.unknown else TransactionAbortable).code)
            else:
                transaction.ending = request
                if transaction.added:  # what comes behind its end could be part of the next one
                    transaction.added.clear()
                    self._admission.note_transaction(producer)
                go_on(now)

        if not request.committed and not producer.settled:
            transaction.aborting, transaction.failure = True, transaction.failure or ABORTED
            self._admission.note_transaction(producer)
            self._rewriter.withdraw(producer, now)
            self._delivery.stop(producer, now)
        if producer.settled:
            settled(now)
        else:
            transaction.waiting.append(settled)

    def ended(self, request: EndTxnRequest, answer: EndTxnResponse, now: float) -> None:
        """Upstream's coordinator has answered."""
        if answer.error_code:
            return
        if answer.producer_id >= 0:  # from version 5 on each transaction has its own epoch
            self.initialized(request.transactional_id, answer.producer_id, answer.producer_epoch, now)
        elif found := self._admission.producers.in_transaction(request.producer_id, request.producer_epoch):
            producer, transaction = found
            if transaction.ending is not request:
                return
            transaction.aborting = False
            if transaction.failure is not None and not transaction.failure.unknown:
                transaction.failure = None  # else what comes late of this transaction would be part of the next one
            self._admission.note_transaction(producer)

    # -- the partitions

    def widen(
        self,
        request: AddPartitionsToTxnRequest,
        go_on: Callable[[AddPartitionsToTxnRequest, float], None],
        refuse: Callable[[AddPartitionsToTxnResponse], None],
        now: float,
    ) -> None:
        """Have ``go_on`` called with a request that names all partitions to which records may go, or ``refuse``.

        A topic that upstream does not describe in time is refused, and the others with it.
        """
        names = [topic.name for topic in request.v3_and_below_topics if self._rules.rewrites(topic.name)]
        unknown = next((name for name in names if not self._topics.is_described(name)), None)
        if unknown is None:
            go_on(self._widened(request), now)
            return

        def give_up(message: str, now: float) -> None:
            self._widening -= 1
            refuse(_refusal(request, unknown))

        def described(now: float) -> None:
            self._widening -= 1
            self.widen(request, go_on, refuse, now)

        if self._widening >= MOST_WIDENING:
            refuse(_refusal(request, unknown))
            return
        self._widening += 1
        self._topics.request(*names)
        self._topics.when_described(unknown, described, give_up, now)

    def added(self, request: AddPartitionsToTxnRequest, answer: AddPartitionsToTxnResponse) -> None:
        """Upstream's coordinator has answered a client; records may go to what was added, and nowhere else."""
        found = self._admission.producers.in_transaction(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        if found is None:
            return
        producer, transaction = found
        for topic in answer.results_by_topic_v3_and_below:
            added = {each.partition_index for each in topic.results_by_partition if not each.partition_error_code}
            if not added <= transaction.added.get(topic.name, set()):
                transaction.added.setdefault(topic.name, set()).update(added)
                self._admission.note_transaction(producer)

    def _widened(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnRequest:
        named: dict[str, dict[int, None]] = {}
        for topic in request.v3_and_below_topics:  # a topic that is named again is not widened again
            named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=request.v3_and_below_transactional_id,
            v3_and_below_producer_id=request.v3_and_below_producer_id,
            v3_and_below_producer_epoch=request.v3_and_below_producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=self._all(name, partitions))
                for name, partitions in named.items()
            ),
        )

    def _all(self, topic: str, named: Iterable[int]) -> tuple[int, ...]:
        """Those that the client has named, where records without a key stay, and those to which keys go."""
        if not self._rules.rewrites(topic):
            return tuple(named)
        there = self._topics.partitions(topic)
        return tuple(sorted({*named, *(there & {*range(self._topics.routes(topic).partitions)})}))


def narrowed(request: AddPartitionsToTxnRequest, answer: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    """The answer to a widened request, as the client expects it: a partition that failed fails those it has named."""
    told = {
        topic.name: {each.partition_index: each.partition_error_code for each in topic.results_by_partition}
        for topic in answer.results_by_topic_v3_and_below
    }

    vague = (0, OperationNotAttempted.code)
    refused = {name: next((each for each in codes.values() if each not in vague), 0) for name, codes in told.items()}

    def code(name: str, partition: int) -> int:
        own = told.get(name, {}).get(partition, UnknownTopicOrPartition.code)
        return own if own not in vague else refused[name] or own

    return AddPartitionsToTxnResponse(
        throttle_time_ms=answer.throttle_time_ms,
        results_by_topic_v3_and_below=_results(request, code),
    )


def _refusal(request: AddPartitionsToTxnRequest, unknown: str) -> AddPartitionsToTxnResponse:
    """Nothing is added, because this topic is not known."""

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
