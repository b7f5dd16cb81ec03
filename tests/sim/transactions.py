"""The transaction coordinators of the model, of both protocols: KIP-98 with KIP-360 and KIP-447, and KIP-890.

The leader of a transactional id's partition of `__transaction_state` coordinates it.

Rules:
- A change takes effect once it is on every replica. Until then, and until the markers of a transaction are written, the
  coordinator answers CONCURRENT_TRANSACTIONS. If the coordinator moves meanwhile, the client gets NOT_COORDINATOR,
  whether the change has survived or not: so the outcome of an EndTxn may be unknown.
- A decided outcome is carried out by the current coordinator: it sends a marker to the leader of each partition as soon
  as it can reach it, and sends it again to a leader that may not have it.
- A producer that initializes a transactional id aborts the predecessor's open transaction and fences the predecessor by
  a higher epoch. So does the transaction's timeout, which the coordinator checks now and then.
- In version 2 each outcome bumps the epoch, and the answer to EndTxn has the new one.

Source: TransactionCoordinator.scala, TransactionMetadata.java, TransactionMarkerChannelManager.scala,
TransactionStateManager.scala.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.codec.apis.list_transactions import TransactionState as Listed
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from tests.sim.network import Reply

if TYPE_CHECKING:
    from tests.sim.cluster import ModelCluster

Place = tuple[str, int]
STATE = "__transaction_state"
PARTITIONS = 2
LAST_EPOCH = 2**15 - 2
MAX_TIMEOUT_MS = 15 * 60_000
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
DECIDED = (PREPARE_COMMIT, PREPARE_ABORT)
STATES = {EMPTY, ONGOING, *DECIDED, COMPLETE_COMMIT, COMPLETE_ABORT, "PrepareEpochFence", "Dead"}


class Asking(NamedTuple):
    """The producer that a request names."""

    name: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of a transactional id; immutable, so a change replaces it."""

    name: str
    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    previous_id: int = -1
    next_id: int = -1
    """The producer id of the next transaction, if this one's epochs are used up."""
    timeout_ms: int
    state: str = EMPTY
    places: tuple[Place, ...] = ()
    started: float = -1.0
    version: int = 0
    """The version of transactions that the client speaks."""


Then = Callable[[int], None]
"""Called with an error code once a change has taken effect, or its outcome cannot be known."""


class Transactions:
    def __init__(self, cluster: "ModelCluster", chance: Random) -> None:
        self._cluster, self._clock, self._chance = cluster, cluster.clock, chance
        self.known: dict[str, Transaction] = {}
        self._pending: dict[str, tuple[Transaction, Then]] = {}
        """Changes that are not on every replica yet, with their callbacks."""
        self._marking: dict[str, set[Place]] = {}
        """Partitions to which this coordinator still has to send the marker, once it has begun to."""
        self._loading: dict[Place, float] = {}
        self._withheld: dict[int, list[Callable[[], None]]] = {}
        """Per node that does not know that it no longer coordinates, the refusals that it sends once it knows."""
        self._watched = False
        self.features: Counter[str] = Counter()
        """How often each rare event happened."""
        self.held: Callable[[Place], bool] = lambda place: False
        """Whether a partition gets no marker for now."""
        self.reluctance = 0.0
        """How often EndTxn gets TRANSACTION_ABORTABLE instead of committing, which the protocol allows."""
        self.lateness = 0.05
        """How often a marker is late."""

    def place(self, name: str) -> Place:
        """The partition of `__transaction_state` that has a transactional id."""
        return (STATE, sum(name.encode()) % PARTITIONS)

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def handle(self, node: int, version: int, message: Any, reply: Reply) -> None:
        match message:
            case DescribeTransactionsRequest():
                reply(self._described(node, message))
            case ListTransactionsRequest():
                reply(self._listed(node, message))
            case AddPartitionsToTxnRequest() if version >= 4:
                (each,) = message.transactions
                asking = Asking(each.transactional_id, each.producer_id, each.producer_epoch)
                self._add(node, asking, version, each.topics, reply, verify=each.verify_only)
            case AddPartitionsToTxnRequest():
                asking = Asking(
                    message.v3_and_below_transactional_id,
                    message.v3_and_below_producer_id,
                    message.v3_and_below_producer_epoch,
                )
                self._add(node, asking, version, message.v3_and_below_topics, reply)
            case AddOffsetsToTxnRequest():
                asking = Asking(message.transactional_id, message.producer_id, message.producer_epoch)
                place = self._cluster.groups.place(message.group_id)

                def added(code: int) -> None:
                    reply(AddOffsetsToTxnResponse(error_code=_known(code, version, 2)))

                self._if_coordinator(node, asking.name, added, lambda: self.add(asking, [place], 1, added))
            case EndTxnRequest():
                asking = Asking(message.transactional_id, message.producer_id, message.producer_epoch)

                def ended(code: int, producer_id: int = -1, epoch: int = -1) -> None:
                    code = _known(code, version, 2)
                    reply(EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

                self._if_coordinator(
                    node,
                    asking.name,
                    ended,
                    lambda: self._end(asking, message.committed, 2 if version >= 5 else 1, ended),
                )
            case InitProducerIdRequest():

                def given(code: int, producer_id: int = -1, epoch: int = -1) -> None:
                    code = _known(code, version, 4)
                    reply(InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

                self._if_coordinator(node, message.transactional_id, given, lambda: self._init(message, given))

    def _if_coordinator(self, node: int, name: str | None, refuse: Then, act: Callable[[], None]) -> None:
        """Act if the node coordinates the id and knows it; otherwise refuse."""
        place = self.place(name or "")
        view = self._cluster.nodes[node].leaders.get(place)
        if view is None or view.node != node:
            refuse(NotCoordinator.code)
        elif self._cluster.leaders[place].node != node:
            self._withheld.setdefault(node, []).append(lambda: refuse(NotCoordinator.code))
        elif self._loading.get(place, 0.0) > self._clock.now:
            refuse(CoordinatorLoadInProgress.code)
        else:
            act()

    def learned(self, node: int) -> None:
        for refuse in self._withheld.pop(node, []):
            refuse()

    def crashed(self, node: int) -> None:
        self._withheld.pop(node, None)

    def moved(self, place: Place) -> None:
        """Another node coordinates the ids of a partition, or the same one again, from their stored state."""
        self._loading[place] = self._clock.now + self._chance.uniform(0.0, 0.3)
        for name in [name for name in self._pending if self.place(name) == place]:
            changed, then = self._pending.pop(name)
            if self._chance.random() < 0.5:  # it was on enough replicas
                self.known[name] = changed
                self.features["a change survives its coordinator"] += 1
            then(NotCoordinator.code)
        for name, each in self.known.items():
            if self.place(name) == place and each.state in DECIDED:
                self._marking.pop(name, None)
                self._clock.at(self._loading[place], partial(self._write_markers, name))

    # -- changes -----------------------------------------------------------------------------------------------------

    def _change(self, changed: Transaction, then: Then) -> None:
        """Let a change take effect in a moment."""
        name = changed.name
        self._pending[name] = change = (changed, then)

        def hold() -> None:
            if self._pending.get(name) is not change:
                return
            leader = self._cluster.leaders[self.place(name)].node
            if leader == -1 or not self._cluster.nodes[leader].healthy:
                self._clock.later(0.1, hold)
                return
            del self._pending[name]
            self.known[name] = changed
            self._watch()
            then(0)

        self._clock.later(self._chance.uniform(0.0002, 0.005), hold)

    # -- InitProducerId ----------------------------------------------------------------------------------------------

    def _init(self, message: InitProducerIdRequest, given: Callable[..., None]) -> None:
        name, timeout_ms = message.transactional_id or "", message.transaction_timeout_ms
        asked = (message.producer_id, message.producer_epoch)
        if not name or (asked[0] < 0) != (asked[1] < 0):
            return given(InvalidRequest.code)
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            return given(InvalidTransactionTimeout.code)
        known = self.known.get(name)
        if known is None:
            known = Transaction(name=name, producer_id=self._cluster.new_producer_id(), timeout_ms=timeout_ms)
        if name in self._pending:
            return given(ConcurrentTransactions.code)
        new = asked[0] < 0
        goes_on = known.epoch < 0 or asked[0] == known.producer_id
        goes_on = goes_on or (asked[0] == known.previous_id and asked[1] >= LAST_EPOCH)
        if not new and not goes_on:
            return given(ProducerFenced.code)
        if known.state in DECIDED:
            return given(ConcurrentTransactions.code)
        if known.state == ONGOING:
            return self._fence(known, lambda code: given(code or ConcurrentTransactions.code))
        started = -1.0 if self._cluster.epochs_rise else known.started
        begun = replace(
            known, state=EMPTY, places=(), started=started, timeout_ms=timeout_ms, previous_id=known.producer_id
        )
        if known.epoch >= LAST_EPOCH and (new or asked[1] == known.epoch):
            last = -1 if new else known.epoch
            begun = replace(begun, producer_id=self._cluster.new_producer_id(), epoch=0, last_epoch=last)
        elif new:
            begun = replace(begun, epoch=known.epoch + 1, last_epoch=-1)
        elif known.epoch in (-1, asked[1]):
            begun = replace(begun, epoch=known.epoch + 1, last_epoch=known.epoch)
        elif asked[1] != known.last_epoch:
            return given(ProducerFenced.code)
        self._change(begun, lambda code: given(code) if code else given(0, begun.producer_id, begun.epoch))
        return None

    # -- partitions --------------------------------------------------------------------------------------------------

    def _add(
        self,
        node: int,
        asking: Asking,
        version: int,
        topics: Iterable[AddPartitionsToTxnTopic],
        reply: Reply,
        *,
        verify: bool = False,
    ) -> None:
        places = [(topic.name, index) for topic in topics for index in topic.partitions]
        unknown = {place for place in places if place not in self._cluster.logs or place[0] == STATE}

        def told(codes: dict[Place, int]) -> None:
            results = tuple(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=_known(codes[topic.name, index], version, 2)
                        )
                        for index in topic.partitions
                    ),
                )
                for topic in topics
            )
            if version < 4:
                reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
            else:
                each = AddPartitionsToTxnResult(transactional_id=asking.name, topic_results=results)
                reply(AddPartitionsToTxnResponse(results_by_transaction=(each,)))

        def all_told(code: int) -> None:
            told(dict.fromkeys(places, code))

        def act() -> None:
            if unknown:
                told(
                    {
                        place: (UnknownTopicOrPartition if place in unknown else OperationNotAttempted).code
                        for place in places
                    }
                )
            elif verify:
                told(self.verify(asking, places))
            else:
                self.add(asking, places, 2 if version >= 4 else 1, all_told)

        self._if_coordinator(node, asking.name, all_told, act)

    def add(self, asking: Asking, places: Iterable[Place], version: int, then: Then) -> None:
        """Add partitions to a transaction, and begin it if necessary."""
        if code := self._judge(asking):
            return then(code)
        known = self.known[asking.name]
        new = tuple(dict.fromkeys(place for place in places if place not in known.places))
        if known.state == ONGOING and not new:
            return then(0)
        started = known.started if known.state == ONGOING else self._clock.now
        self._change(replace(known, state=ONGOING, places=known.places + new, started=started, version=version), then)
        return None

    def verify(self, asking: Asking, places: Iterable[Place]) -> dict[Place, int]:
        """The error code of each partition: whether it belongs to the transaction."""
        if code := self._judge(asking, at_once=True):
            return dict.fromkeys(places, code)
        there = self.known[asking.name].places
        return {place: 0 if place in there else TransactionAbortable.code for place in places}

    def ask(
        self, asking: Asking, places: list[Place], then: Callable[[dict[Place, int]], None], *, rises: bool
    ) -> None:
        """For a leader, add partitions to a transaction (version 2), or verify that they belong to it."""
        place = self.place(asking.name)
        node = self._cluster.leaders[place].node
        if node == -1 or not self._cluster.nodes[node].healthy:
            then(dict.fromkeys(places, NotCoordinator.code))
            return

        def refuse(code: int) -> None:
            then(dict.fromkeys(places, code))

        if rises:
            self._if_coordinator(node, asking.name, refuse, lambda: self.add(asking, places, 2, refuse))
        else:
            self._if_coordinator(node, asking.name, refuse, lambda: then(self.verify(asking, places)))

    def _judge(self, asking: Asking, *, at_once: bool = False) -> int:
        """The error code for a producer that wants to continue a transaction.

        Args:
            at_once: also while a transaction is being ended, a fenced producer gets its error.
        """
        known = self.known.get(asking.name)
        if not asking.name:
            return InvalidRequest.code
        if known is None:
            return InvalidProducerIdMapping.code
        waits = asking.name in self._pending or known.state in DECIDED
        if waits and self._cluster.epochs_rise and not at_once:  # the next id or epoch may be in effect already
            return ConcurrentTransactions.code
        if known.producer_id != asking.producer_id:
            return InvalidProducerIdMapping.code
        if known.epoch != asking.epoch:
            return ProducerFenced.code
        return ConcurrentTransactions.code if waits else 0

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self, asking: Asking, commits: bool, version: int, ended: Callable[..., None]) -> None:
        known = self.known.get(asking.name)
        if not asking.name:
            return ended(InvalidRequest.code)
        if known is None:
            return ended(InvalidProducerIdMapping.code)
        repeated = version >= 2 and self._is_repeated(known, asking)
        if known.producer_id != asking.producer_id and not repeated:
            return ended(InvalidProducerIdMapping.code)
        if not repeated and known.epoch != asking.epoch:
            return ended(ProducerFenced.code)
        if asking.name in self._pending or known.state in DECIDED:
            if self.reluctance and version >= 2 and not repeated and known.state in DECIDED:
                return ended(ProducerFenced.code)  # as Kafka answers when a pending change was lost in a failure
            return ended(ConcurrentTransactions.code)
        if known.state != ONGOING and (repeated or version < 2):
            state = COMPLETE_COMMIT if commits else COMPLETE_ABORT
            return ended(InvalidTxnState.code) if known.state != state else ended(0, known.producer_id, known.epoch)
        if known.state != ONGOING and commits:
            return ended(InvalidTxnState.code)
        if commits and version >= 2 and self.reluctance and self._chance.random() < self.reluctance:
            self.features["a transaction can only be aborted"] += 1
            return ended(TransactionAbortable.code)

        def then(code: int, decided: Transaction) -> None:
            if code:
                ended(code)
            elif decided.next_id >= 0:
                ended(0, decided.next_id, 0)
            else:
                ended(0, decided.producer_id, decided.epoch)

        decided = self._decide(known, commits=commits, version=version, then=lambda code: then(code, decided))
        return None

    @staticmethod
    def _is_repeated(known: Transaction, asking: Asking) -> bool:
        """In version 2: whether a producer retries an EndTxn whose answer, with the new id or epoch, was lost."""
        if known.state in (EMPTY, ONGOING):
            return False
        if known.producer_id == asking.producer_id:
            return known.epoch == asking.epoch + 1
        return known.previous_id == asking.producer_id and asking.epoch == LAST_EPOCH and known.epoch == 0

    def _fence(self, known: Transaction, then: Then) -> None:
        """Abort a producer's open transaction. Up to Kafka 3.9 this fences even the producer that asks for it."""
        self._decide(known, commits=False, version=2, then=then, last_epoch=None if self._cluster.epochs_rise else -1)

    def _decide(
        self, known: Transaction, *, commits: bool, version: int, then: Then, last_epoch: int | None = None
    ) -> Transaction:
        """Args: last_epoch: the epoch with which a producer may retry InitProducerId; ``None``: the current one."""
        decided = replace(known, state=PREPARE_COMMIT if commits else PREPARE_ABORT, version=version)
        decided = replace(decided, previous_id=known.producer_id)
        if known.state != ONGOING:
            decided = replace(decided, started=self._clock.now)
        if version >= 2:
            next_id = self._cluster.new_producer_id() if known.epoch >= LAST_EPOCH else -1
            last_epoch = known.epoch if last_epoch is None else last_epoch
            decided = replace(decided, epoch=known.epoch + 1, last_epoch=last_epoch, next_id=next_id)

        def stored(code: int) -> None:
            then(code)
            if not code:
                self._write_markers(known.name)

        self._change(decided, stored)
        return decided

    def _write_markers(self, name: str) -> None:
        """Send the marker to every partition, to each as soon as its leader can be reached."""
        known = self.known[name]
        if known.state not in DECIDED or name in self._marking:
            return
        self._marking[name] = left = set(known.places)
        leadership = self._cluster.leaders[self.place(name)]
        for place in known.places:
            self._clock.later(self._delay(), partial(self._mark, known, leadership.epoch, place, left))
        self._complete_if_marked(known, left)

    def _delay(self) -> float:
        """Most markers are written at once, some late."""
        late = self._chance.random() < self.lateness
        self.features["a marker is late"] += late
        return self._chance.uniform(0.2, 1.5) if late else self._chance.uniform(0.0002, 0.004)

    def _mark(self, known: Transaction, coordinator_epoch: int, place: Place, left: set[Place]) -> None:
        if self._marking.get(known.name) is not left or place not in left:
            return
        again = partial(self._mark, known, coordinator_epoch, place, left)
        if self.held(place):
            self._clock.later(0.05, again)
            return
        if place not in self._cluster.logs:  # the topic was deleted
            left.discard(place)
            self._complete_if_marked(known, left)
            return
        leader = self._cluster.leaders[place]
        if leader.node == -1 or not self._cluster.nodes[leader.node].healthy:
            self._clock.later(0.1, again)
            return

        def replicated(code: int) -> None:
            if code:
                self._clock.later(0.05, again)
            else:
                left.discard(place)
                self._complete_if_marked(known, left)

        self._cluster.mark(
            place,
            (known.producer_id, known.epoch),
            commits=known.state == PREPARE_COMMIT,
            coordinator_epoch=coordinator_epoch,
            rises=known.version >= 2 and self._cluster.epochs_rise,
            then=replicated,
        )

    def unmarked(self, name: str) -> Iterable[Place]:
        """The partitions that still need the marker of a transaction that is being ended."""
        return self._marking.get(name, self.known[name].places)

    def _complete_if_marked(self, known: Transaction, left: set[Place]) -> None:
        if left or self._marking.get(known.name) is not left or self.known[known.name] != known:
            return
        done = COMPLETE_COMMIT if known.state == PREPARE_COMMIT else COMPLETE_ABORT
        complete = replace(known, state=done, places=(), next_id=-1)
        if known.next_id >= 0:
            complete = replace(complete, producer_id=known.next_id, epoch=0)

        def stored(code: int) -> None:
            self._marking.pop(known.name, None)
            if code and self.known[known.name].state in DECIDED:
                self._clock.later(0.05, partial(self._write_markers, known.name))

        self._change(complete, stored)

    # -- time --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._clock.later(self._chance.uniform(1.0, 10.0), self._scan)

    def _scan(self) -> None:
        """Abort transactions that have exceeded their timeout."""
        self._watched = False
        for known in list(self.known.values()):
            if known.state != ONGOING:
                continue
            self._watch()
            place = self.place(known.name)
            leader = self._cluster.leaders[place].node
            late = self._clock.now > known.started + known.timeout_ms / 1000 and known.name not in self._pending
            if late and leader != -1 and self._cluster.nodes[leader].healthy and self._ready(place):
                self.features["a transaction takes too long"] += 1
                self._fence(known, lambda code: None)

    def _ready(self, place: Place) -> bool:
        return self._loading.get(place, 0.0) <= self._clock.now

    # -- queries -----------------------------------------------------------------------------------------------------

    def _described(self, node: int, message: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        states: list[TransactionState] = []
        for name in message.transactional_ids:
            self._if_coordinator(
                node,
                name,
                lambda code, name=name: states.append(_no_state(name, code)),  # type: ignore[misc]
                lambda name=name: states.append(self._state_of(name)),  # type: ignore[misc]
            )
        return DescribeTransactionsResponse(transaction_states=tuple(states))

    def _state_of(self, name: str) -> TransactionState:
        if (known := self.known.get(name)) is None:
            return _no_state(name, TransactionalIdNotFound.code if name else InvalidRequest.code)
        topics: dict[str, list[int]] = {}
        for topic, index in self.unmarked(name) if known.state in DECIDED else known.places:
            topics.setdefault(topic, []).append(index)
        return TransactionState(
            error_code=0,
            transactional_id=name,
            transaction_state=known.state,
            transaction_timeout_ms=known.timeout_ms,
            transaction_start_time_ms=-1 if known.started < 0 else 1 + int(known.started * 1000),
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            topics=tuple(TopicData(topic=topic, partitions=tuple(indexes)) for topic, indexes in topics.items()),
        )

    def _listed(self, node: int, message: ListTransactionsRequest) -> ListTransactionsResponse:
        led = {place for place, leader in self._cluster.leaders.items() if leader.node == node}
        states, producers = set(message.state_filters), set(message.producer_id_filters)
        return ListTransactionsResponse(
            error_code=0,
            unknown_state_filters=tuple(each for each in dict.fromkeys(message.state_filters) if each not in STATES),
            transaction_states=tuple(
                Listed(transactional_id=name, producer_id=each.producer_id, transaction_state=each.state)
                for name, each in self.known.items()
                if self.place(name) in led
                and (not states or each.state in states)
                and (not producers or each.producer_id in producers)
            ),
        )


def _known(code: int, version: int, since: int) -> int:
    """Map PRODUCER_FENCED, which versions before ``since`` do not have, to INVALID_PRODUCER_EPOCH."""
    return InvalidProducerEpoch.code if code == ProducerFenced.code and version < since else code


def _no_state(name: str, code: int) -> TransactionState:
    return TransactionState(
        error_code=code,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )
