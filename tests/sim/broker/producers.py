"""Handwritten transactional producers that keep to the protocol.

Rules:
- A producer sends one request at a time, and repeats it until it is answered: by the protocol, no repeat does harm. In
  version 1 it adds partitions before it writes to them; in version 2 (KIP-890) writing adds them.
- A producer that gives up a request with an unknown outcome aborts, and continues in another epoch.
- A fenced producer stops, and maybe starts again as a new one. Its transaction is then aborted, unless it had asked to
  commit.
- Any other error is a finding: a correct client does not get it.

Source: TransactionManager.java, Sender.java.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.records import BatchBuilder
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaStorageError,
    NotEnoughReplicas,
    ProducerFenced,
    UnstableOffsetCommit,
)
from tests.sim.broker.peer import Ask, Peer, Steps
from tests.sim.broker.readers import Committed
from tests.sim.data import Place
from tests.sim.history import code
from tests.sim.transaction_ledger import ABORTED, COMMITTED, ENDING, UNCERTAIN, TransactionLedger, Written, carried
from tests.sim.users import Violation

BY_NOBODY = "a producer is fenced, and no other producer fenced it"
REFUSED = "a correct producer is refused"
AGAIN = frozenset(
    each.code
    for each in (
        ConcurrentTransactions,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        KafkaStorageError,
        NotEnoughReplicas,
        UnstableOffsetCommit,
    )
)
"""Errors after which the same request is sent again."""
FENCED = frozenset(each.code for each in (InvalidProducerEpoch, ProducerFenced))
V1, V2 = 1, 2
"""Versions of transactions; below, the request versions that select them."""
_PRODUCE = {V1: 11, V2: 12}
_TXN_OFFSET_COMMIT = {V1: 4, V2: 5}
_END_TXN = {V1: 4, V2: 5}


class Fenced(Exception):
    """The producer was fenced."""


class GaveUp(Exception):
    """A request's outcome is unknown, and the producer does not want to wait until it is known."""


@dataclass(slots=True, eq=False)
class Work:
    """The common work of all producers of one transactional id."""

    transactional_id: str
    version: int
    timeout: float
    """Timeout of a transaction, in seconds."""
    left: int
    """The number of transactions still to be committed."""
    producers: int = 0
    """The number of producers so far."""


@dataclass(slots=True, eq=False)
class Transacting:
    """A producer of transactions to some partitions."""

    peer: Peer
    ledger: TransactionLedger
    work: Work
    chance: Random
    features: Counter[str]
    places: list[Place]
    producer: tuple[int, int] = (-1, -1)
    """Its producer id and epoch."""
    transaction: Written | None = None
    sequences: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    added: set[Place] = field(default_factory=set)
    offsets_added: bool = False
    since: float = 0.0
    """When the transaction began."""
    begun: bool = False
    """The broker may know the transaction."""
    _made: int = 0

    def script(self) -> Steps:
        """Run until the work is done; a fenced producer starts again later, as a new one."""
        self.work.producers += 1
        while self.is_wanted:
            try:
                yield from self._initialize()
                while self.is_wanted:
                    yield from self._one()
                    yield self.chance.choice((0.0, 0.0, 0.02, 0.3))
            except Fenced as fenced:
                self._note("a producer is fenced")
                self._check_fenced(str(fenced))
                if self.transaction is not None:
                    self._ended(UNCERTAIN if self.transaction.outcome == ENDING else ABORTED)
                yield self.chance.uniform(0.1, 3.0)

    def _check_fenced(self, error: str) -> None:
        """Check that another producer, or the transaction's timeout, has fenced it."""
        if self.transaction is not None and not self._may_have_ended():
            raise Violation(BY_NOBODY, f"{self.peer.name}: {error}")

    @property
    def is_wanted(self) -> bool:
        return self.work.left > 0

    # -- one transaction

    def _one(self) -> Steps:
        self._made += 1
        self.transaction = self.ledger.begin(f"{self.peer.name}.{self._made}")
        self.since = self.peer.clock.now
        try:
            yield from self._fill(self.transaction)
            if self.chance.random() < 0.03:
                self._note("a producer lets its transaction time out")
                yield self.work.timeout + self.chance.uniform(0.0, 5.0)
            commit = self.chance.random() < 0.75
        except GaveUp:
            self._note("a producer gives up a request")
            yield from self._end(commit=False)
            if self.work.version == V1:
                yield from self._initialize(bump=True)
            return
        yield from self._end(commit=commit)

    def _fill(self, written: Written) -> Steps:
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            places = self.chance.sample(self.places, self.chance.randint(1, len(self.places)))
            count = self.chance.choice((1, 1, 3))
            yield from self._write(
                written, {place: [self._value(written, place, n) for n in range(count)] for place in places}
            )
            yield self.chance.choice((0.0, 0.0, 0.01, 0.2))

    def _value(self, written: Written, place: Place, number: int) -> bytes:
        return f"{written.name}.{len(written.values)}.{place[1]}.{number}".encode() + b"." * self.chance.choice((0, 99))

    def _ended(self, outcome: str) -> None:
        assert self.transaction is not None
        self.transaction.outcome = outcome
        self.peer.history.add("·", self.peer.name, f"{self.transaction.name} is {outcome}")
        self._note(f"a transaction is {outcome}")
        self.transaction = None
        self.added.clear()
        self.offsets_added = self.begun = False
        self.work.left -= outcome == COMMITTED

    # -- requests

    def _initialize(self, *, bump: bool = False) -> Steps:
        """Get a producer id and an epoch: as a new producer, or to continue in another epoch."""
        had = self.producer if bump else (-1, -1)
        self.ledger.timeouts[self.work.transactional_id] = self.work.timeout
        request = InitProducerIdRequest(
            transactional_id=self.work.transactional_id,
            transaction_timeout_ms=round(self.work.timeout * 1000),
            producer_id=had[0],
            producer_epoch=had[1],
        )
        answer = yield from self._until_answered(request, 4 if self.work.version == V1 else 5)
        self._goes_on_as((answer.producer_id, answer.producer_epoch))

    def _goes_on_as(self, producer: tuple[int, int]) -> None:
        if producer != self.producer:
            self.sequences.clear()
        self.producer = producer

    def _write(self, written: Written, values: dict[Place, list[bytes]]) -> Steps:
        """Send a batch to each partition."""
        for place, each in values.items():
            written.values += [(place, value) for value in each]
        if self.work.version == V1:
            yield from self._add(values)
        self.begun = True
        batches = {place: self._batch(place, each) for place, each in values.items()}
        while batches:
            answer = yield from self._asked(_produce(self.work, batches), _PRODUCE[self.work.version])
            if answer is None:
                if self.chance.random() < 0.1:
                    raise GaveUp
                continue
            for topic in answer.responses:
                for each in topic.partition_responses:
                    place = (topic.name, each.index)
                    if self._succeeds(each.error_code, f"Produce to {topic.name}-{each.index}"):
                        del batches[place]
                        self.sequences[place] += len(values[place])
            if batches:
                yield self._pause()

    def _batch(self, place: Place, values: Iterable[bytes]) -> bytes:
        builder = BatchBuilder()
        for value in values:
            builder.append(1_700_000_000_000, None, value)
        return builder.build(
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequences[place],
            transactional=True,
        )

    def _add(self, places: Iterable[Place]) -> Steps:
        new = [place for place in places if place not in self.added]
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, index in new:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.work.transactional_id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes)) for name, indexes in topics.items()
            ),
        )
        self.begun = True
        while True:
            answer = yield from self._asked(request, 3)
            codes = {
                each.partition_error_code
                for topic in (answer.results_by_topic_v3_and_below if answer is not None else ())
                for each in topic.results_by_partition
            }
            if answer is not None and all(self._succeeds(each, "AddPartitionsToTxn") for each in sorted(codes)):
                break
            yield self._pause()
        self.added.update(new)

    def _end(self, *, commit: bool) -> Steps:
        assert self.transaction is not None
        if not self.begun:
            self._ended(ABORTED)
            return
        if commit:
            self.transaction.outcome = ENDING
        request = EndTxnRequest(
            transactional_id=self.work.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commit,
        )
        answer = yield from self._until_answered(request, _END_TXN[self.work.version], self._may_have_ended)
        if self.work.version == V2:
            self._goes_on_as((answer.producer_id, answer.producer_epoch))
        self._ended(COMMITTED if commit else ABORTED)

    # -- asking

    def _until_answered(self, request: Any, version: int, may_have_ended: Callable[[], bool] | None = None) -> Steps:
        """Repeat a request until it succeeds; return the answer.

        Args:
            may_have_ended: whether another producer or the timeout may have ended the transaction.
        """
        while True:
            answer = yield from self._asked(request, version)
            if answer is not None:
                if answer.error_code == InvalidTxnState.code and may_have_ended is not None and may_have_ended():
                    raise Fenced(code(answer.error_code))
                if self._succeeds(answer.error_code, type(request).__name__):
                    return answer
            yield self._pause()

    def _may_have_ended(self) -> bool:
        """Whether the timeout or another producer may have ended the transaction, maybe with the other outcome."""
        took = self.peer.clock.now - self.since
        return took >= self.work.timeout or self.work.producers > 1

    def _asked(self, request: Any, version: int) -> Generator[Ask | float, Any, Any]:
        answer = yield Ask(request, version)
        if answer is None:
            self._note("a request of a transactional producer is not answered")
            yield self._pause()
        return answer

    def _succeeds(self, error: int, what: str) -> bool:
        """Whether the request succeeded; otherwise it is to be sent again."""
        if error in FENCED or error == InvalidProducerIdMapping.code:
            raise Fenced(code(error))
        if error and error not in AGAIN:
            raise Violation(REFUSED, f"{self.peer.name}, {what}: {code(error)}")
        return not error

    def _pause(self) -> float:
        return self.chance.uniform(0.02, 0.2)

    def _note(self, what: str) -> None:
        self.features[what] += 1


@dataclass(slots=True, eq=False)
class Carrying(Transacting):
    """A worker that copies each record of a partition to another topic, once: consume, transform, produce."""

    source: Place = ("", 0)
    target: Place = ("", 0)
    group: str = ""
    is_over: bool = False
    _reader: Committed | None = None

    @property
    def is_wanted(self) -> bool:
        return not self.is_over

    def _initialize(self, *, bump: bool = False) -> Steps:
        yield from Transacting._initialize(self, bump=bump)
        yield from self._begin_where_the_group_stands()

    def _begin_where_the_group_stands(self) -> Steps:
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=self.group,
                    topics=(OffsetFetchRequestTopics(name=self.source[0], partition_indexes=(self.source[1],)),),
                ),
            ),
            require_stable=True,
        )
        while True:
            answer = yield from self._asked(request, 9)
            if answer is not None:
                found = answer.groups[0].topics[0].partitions[0]
                if self._succeeds(found.error_code or answer.groups[0].error_code, "OffsetFetch"):
                    self._reader = Committed(
                        self.peer.name, [self.source], {self.source: max(0, found.committed_offset)}
                    )
                    return
            yield self._pause()

    def _one(self) -> Steps:
        assert self._reader is not None
        found = yield from self._reader.fetch(wait=0.2, most=self.chance.choice((200, 1000)))
        if not found:
            yield 0.1
            return
        ahead = self._reader.positions[self.source]
        self._made += 1
        written = self.transaction = self.ledger.begin(f"{self.peer.name}.{self._made}")
        self.since = self.peer.clock.now
        try:
            values = [carried(value, written.name) for _, _, value in found]
            steps = [partial(self._write, written, {self.target: values}), partial(self._commit_offset, ahead)]
            for step in steps if self.chance.random() < 0.5 else reversed(steps):
                yield from step()
                yield self.chance.choice((0.0, 0.0, 0.05, 0.3))
            commit = self.chance.random() < 0.8
        except GaveUp:
            self._note("a worker gives up a request")
            commit = False
        gave_up = self.work.version == V1 and not commit
        yield from self._end(commit=commit)
        if gave_up:
            yield from self._initialize(bump=True)
        elif not commit:
            yield from self._begin_where_the_group_stands()

    def _commit_offset(self, offset: int) -> Steps:
        if self.work.version == V1 and not self.offsets_added:
            self.begun = True
            yield from self._until_answered(
                AddOffsetsToTxnRequest(
                    transactional_id=self.work.transactional_id,
                    producer_id=self.producer[0],
                    producer_epoch=self.producer[1],
                    group_id=self.group,
                ),
                3,
            )
            self.offsets_added = True
        self.begun = True
        partition = TxnOffsetCommitRequestPartition(
            partition_index=self.source[1], committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.work.transactional_id,
            group_id=self.group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=(TxnOffsetCommitRequestTopic(name=self.source[0], partitions=(partition,)),),
        )
        while True:
            answer = yield from self._asked(request, _TXN_OFFSET_COMMIT[self.work.version])
            if answer is not None:
                if self._succeeds(answer.topics[0].partitions[0].error_code, "TxnOffsetCommit"):
                    return
            elif self.chance.random() < 0.1:
                raise GaveUp
            yield self._pause()


def _produce(work: Work, batches: dict[Place, bytes]) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, index), batch in batches.items():
        topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=batch))
    return ProduceRequest(
        transactional_id=work.transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=tuple(TopicProduceData(name=name, partition_data=tuple(data)) for name, data in topics.items()),
    )
