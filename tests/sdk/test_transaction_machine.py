"""Transactions of a producer, without a socket or a clock: states, partitions and offsets that join."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.codec.records import RecordBatch, parse_batch
from ottla.errors import (
    BrokerError,
    CommitFailed,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    IllegalGeneration,
    NotCoordinator,
    OttlaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAborted,
    UnknownMemberId,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.core import TransactionCore
from ottla.sdk.transaction.states import FEATURE, TRANSITIONS, TransactionalProducerInput, TransactionalProducerState
from tests.sdk.calling import Call, T
from tests.sdk.coordinator import Coordinator

M = TypeVar("M")
P0, P1 = ("in", 0), ("in", 1)
GROUP = "billing"


class Transacting:
    """A transactional producer and a member of a group with two partitions; the test plays their brokers."""

    def __init__(self, version: int, more: dict[int, tuple[int, int]] | None = None) -> None:
        self.world = Coordinator({"in": 2, "t": 3}, transactions=version, more=more)
        self.producer = ProducerCore(
            self.world.core, ProducerOptions(transactional_id="t-1", linger=0.0), random.Random(1)
        )
        self.epoch = -1
        self.initialize()
        self.member: CommittingMember | None = CommittingMember(5, "m-1", "i-1")
        self.refusals: list[OttlaError] = []
        self.commits = Commits(self.world.core, GROUP, lambda: self.member, self._refused)
        self.assignments = {place: self.commits.own(place) for place in (P0, P1)}
        self.transaction = self.begin()
        self.end: Call[None] | None = None

    def _refused(self, error: OttlaError, identity: CommittingMember, now: float) -> bool:
        self.refusals.append(error)
        return True

    def initialize(self) -> InitProducerIdRequest:
        self.world.run()
        request = self.world.asked(InitProducerIdRequest)
        self.epoch += 1
        self.world.answer(request, InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=self.epoch))
        return request

    def call(self, steps: Steps[T]) -> Call[T]:
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    def begin(self) -> TransactionCore:
        transaction = TransactionCore(self.world.core, self.producer)
        begun = self.call(transaction.begin())
        assert begun.over and begun.error is None
        return transaction

    def send(self, *partitions: int) -> None:
        for partition in partitions:
            sent = self.call(self.producer.send_soon(PendingRecord("t", b"v", None, partition, (), 1000)))
            assert sent.over and sent.error is None
        self.world.later(0.01)

    def add(self, place: tuple[str, int], offset: int) -> None:
        assert self.producer.transactions is not None
        self.producer.transactions.offsets.add(self.commits, self.assignments[place], CommittedOffset(offset))
        self.world.run()

    def leave(self) -> None:
        self.end = self.call(self.transaction.leave(None))

    def pending(self, kind: type[M]) -> bool:
        return bool(self.world.pending(kind))

    def asked(self, kind: type[M]) -> M:
        return self.world.asked(kind)

    def answer(self, request: object, response: object) -> None:
        self.world.answer(request, response)
        if self.end is not None:
            self.end.go_on()
        self.world.run()

    def answer_offsets(self, code: int = 0) -> TxnOffsetCommitRequest:
        request = self.asked(TxnOffsetCommitRequest)
        topics = tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        self.answer(request, TxnOffsetCommitResponse(topics=topics))
        return request

    def answer_group(self, code: int = 0) -> None:
        request = self.asked(AddOffsetsToTxnRequest)
        assert (request.group_id, request.producer_epoch) == (GROUP, self.epoch)
        self.answer(request, AddOffsetsToTxnResponse(error_code=code))

    def answer_partitions(self, code: int = 0) -> set[int]:
        """Let the waiting partitions join, and return their numbers."""
        request = self.asked(AddPartitionsToTxnRequest)
        [topic] = request.v3_and_below_topics
        results = tuple(
            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
            for each in topic.partitions
        )
        result = AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
        self.answer(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(result,)))
        return set(topic.partitions)

    def store(self, code: int = 0) -> None:
        """Answer every pending Produce."""
        for request in self.world.pending(ProduceRequest):
            stored = tuple(
                PartitionProduceResponse(index=each.index, error_code=code, base_offset=0)
                for topic in request.topic_data
                for each in topic.partition_data
            )
            self.answer(
                request, ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=stored),))
            )

    def answer_end(self, code: int = 0) -> bool:
        """Answer EndTxn; return whether it asked to commit."""
        request = self.asked(EndTxnRequest)
        next_epoch = code == 0 and self.producer.transactions is not None and self.producer.transactions.version >= 2
        self.epoch += next_epoch
        answer = EndTxnResponse(
            error_code=code, producer_id=7 if next_epoch else -1, producer_epoch=self.epoch if next_epoch else -1
        )
        self.answer(request, answer)
        return request.committed

    @property
    def error(self) -> Any:
        assert self.end is not None and self.end.go_on().over
        return self.end.error


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def both(request: pytest.FixtureRequest) -> Transacting:
    return Transacting(request.param)


@pytest.mark.parametrize("state", TransactionalProducerState)
@pytest.mark.parametrize("what", TransactionalProducerInput)
def test_every_input_has_a_state_that_follows_or_none(
    state: TransactionalProducerState, what: TransactionalProducerInput
) -> None:
    following = {
        TransactionalProducerInput.NEEDED: {TransactionalProducerState.NONE: TransactionalProducerState.ASKING},
        TransactionalProducerInput.GIVEN: {TransactionalProducerState.ASKING: TransactionalProducerState.READY},
        TransactionalProducerInput.BEGUN: {TransactionalProducerState.READY: TransactionalProducerState.OPEN},
        TransactionalProducerInput.DOOMED: dict.fromkeys(
            (TransactionalProducerState.OPEN, TransactionalProducerState.ENDING, TransactionalProducerState.DOOMED),
            TransactionalProducerState.DOOMED,
        ),
        TransactionalProducerInput.END: {TransactionalProducerState.OPEN: TransactionalProducerState.ENDING},
        TransactionalProducerInput.COMMIT: {TransactionalProducerState.ENDING: TransactionalProducerState.COMMITTING},
        TransactionalProducerInput.ABORT: dict.fromkeys(
            (TransactionalProducerState.OPEN, TransactionalProducerState.ENDING, TransactionalProducerState.DOOMED),
            TransactionalProducerState.ABORTING,
        ),
        TransactionalProducerInput.REFUSED: {TransactionalProducerState.COMMITTING: TransactionalProducerState.DOOMED},
        TransactionalProducerInput.ENDED: dict.fromkeys(
            (TransactionalProducerState.COMMITTING, TransactionalProducerState.ABORTING),
            TransactionalProducerState.READY,
        ),
        TransactionalProducerInput.RENEW: dict.fromkeys(
            (
                TransactionalProducerState.COMMITTING,
                TransactionalProducerState.ABORTING,
                TransactionalProducerState.READY,
            ),
            TransactionalProducerState.NONE,
        ),
        TransactionalProducerInput.FATAL: dict.fromkeys(TransactionalProducerState, TransactionalProducerState.FAILED),
    }[what]
    assert TRANSITIONS.get((state, what)) is following.get(state)


# -- partitions that join ----------------------------------------------------------------------------------------------


def test_partitions_and_groups_join_one_request_after_the_other_before_anything_is_sent() -> None:
    teller = Transacting(1)
    teller.send(0)
    teller.send(1)
    teller.add(P0, 5)
    assert teller.answer_partitions() == {0}
    assert not teller.pending(AddOffsetsToTxnRequest)  # waiting partitions go first
    assert teller.answer_partitions() == {1}
    teller.store()
    teller.leave()
    teller.answer_group(ConcurrentTransactions.code)
    assert not teller.pending(TxnOffsetCommitRequest)
    teller.world.later(0.1)
    teller.answer_group()
    assert not teller.pending(EndTxnRequest)
    teller.answer_offsets()
    assert teller.answer_end() and teller.error is None


def test_in_version_2_nothing_has_to_join() -> None:
    teller = Transacting(2)
    teller.send(0)
    teller.add(P0, 5)
    teller.store()
    teller.leave()
    assert not teller.pending(AddPartitionsToTxnRequest) and not teller.pending(AddOffsetsToTxnRequest)
    teller.answer_offsets()
    assert teller.answer_end() and teller.error is None


@pytest.mark.parametrize("learned", ["before the next transaction", "within it"])
def test_where_the_cluster_becomes_ready_for_version_2_it_begins_in_an_epoch_of_its_own(learned: str) -> None:
    teller = Transacting(1)
    teller.send(0)
    teller.answer_partitions()
    teller.store()
    teller.leave()
    assert teller.answer_end() and teller.error is None
    teller.world.transactions = 2
    teller.world.break_connections()
    if learned == "before the next transaction":
        teller.world.later(1.0)
        assert teller.world.core.connections.feature(FEATURE) == 2
    teller.transaction = teller.begin()
    teller.send(0)
    teller.world.later(1.0)
    teller.answer_partitions()  # still in the epoch of the previous transaction
    teller.store()
    teller.leave()
    assert teller.answer_end() and teller.error is None
    assert teller.initialize().producer_epoch == 0
    teller.transaction = teller.begin()
    teller.send(0)
    assert not teller.pending(AddPartitionsToTxnRequest) and teller.pending(ProduceRequest)


def transact(teller: Transacting) -> None:
    """Commit the open transaction of version 1, with a record of partition 0."""
    teller.send(0)
    teller.answer_partitions()
    teller.store()
    teller.leave()
    assert teller.answer_end() and teller.error is None


def idle(teller: Transacting) -> None:
    """Let so much time pass that the producer may forget its topic."""
    for _ in range(4):
        teller.world.later(400.0)


def sent(teller: Transacting) -> list[RecordBatch]:
    """The batches of the pending Produce."""
    topics = teller.asked(ProduceRequest).topic_data
    return [parse_batch(each.records) for topic in topics for each in topic.partition_data if each.records]


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_in_which_nothing_was_sent_asks_nobody(version: int) -> None:
    teller = Transacting(version)
    teller.leave()
    assert teller.error is None and teller.transaction.committed and not teller.world.waiting


def test_what_was_asked_to_join_and_not_answered_makes_the_epoch_rise() -> None:
    teller = Transacting(1)
    teller.send(0)
    teller.world.break_connections()
    teller.world.later(1.0)
    teller.answer_partitions()
    teller.store()
    teller.leave()
    assert teller.answer_end() and teller.error is None
    assert teller.initialize().producer_epoch == 0  # in epoch 0 a late retry would begin another transaction


@pytest.mark.parametrize("refusal", [OutOfOrderSequenceNumber, UnknownProducerId])
def test_after_a_batch_out_of_sequence_the_next_transaction_commits_in_another_epoch(
    refusal: type[BrokerError],
) -> None:
    teller = Transacting(1)
    transact(teller)
    teller.transaction = teller.begin()
    teller.send(0)
    teller.answer_partitions()
    teller.store(refusal.code)  # the leader has lost the batch that it had acknowledged
    teller.leave()
    assert not teller.answer_end() and isinstance(teller.error, TransactionAborted)
    assert teller.initialize().producer_epoch == 0
    teller.transaction = teller.begin()
    teller.send(0)
    teller.answer_partitions()
    assert [(each.producer_epoch, each.base_sequence) for each in sent(teller)] == [(1, 0)]
    teller.store()
    teller.leave()
    assert teller.answer_end() and teller.error is None
    assert not teller.pending(InitProducerIdRequest)


def test_an_idle_producer_keeps_its_sequences_where_the_epoch_cannot_be_bumped() -> None:
    teller = Transacting(1, more={22: (0, 2)})  # before Kafka 2.5
    transact(teller)
    idle(teller)
    assert not teller.pending(InitProducerIdRequest)
    teller.transaction = teller.begin()
    teller.send(0)
    teller.world.later(1.0)
    teller.answer_partitions()
    assert [(each.producer_epoch, each.base_sequence) for each in sent(teller)] == [(0, 1)]


def test_an_idle_producer_begins_another_epoch_where_it_can() -> None:
    teller = Transacting(1)
    transact(teller)
    idle(teller)
    begun = teller.call(TransactionCore(teller.world.core, teller.producer).begin())
    assert not begun.over
    assert teller.initialize().producer_epoch == 0 and begun.go_on().over


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_the_highest_offset_of_each_partition_goes_as_the_member_that_has_it(both: Transacting) -> None:
    for place, offset in ((P0, 5), (P1, 3), (P0, 9), (P0, 7)):
        both.add(place, offset)
    assert not both.pending(TxnOffsetCommitRequest)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    request = both.answer_offsets()
    [topic] = request.topics
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == {0: 9, 1: 3}
    member = request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    assert member == (5, "m-1", "i-1")
    assert (request.producer_id, request.producer_epoch, request.transactional_id) == (7, 0, "t-1")
    assert self_committed(both) == (-1, -1)
    assert both.answer_end() and both.error is None
    assert self_committed(both) == (9, 3)


def self_committed(teller: Transacting) -> tuple[int, ...]:
    """The committed offsets that the member knows."""
    return tuple(each.committed for each in teller.assignments.values())


def ended_early(teller: Transacting) -> TransactionAborted:
    """The error of a transaction that the client aborts, after EndTxn has reached the coordinator."""
    assert teller.end is not None
    teller.end.go_on()
    teller.world.later(6.0)
    teller.end.go_on()
    if teller.pending(EndTxnRequest):
        assert teller.answer_end() is False
    assert isinstance(teller.error, TransactionAborted) and teller.transaction.committed is False
    assert self_committed(teller) == (-1, -1)
    return teller.error


@pytest.mark.parametrize("what", ["a topic that records go to", "a topic that was read"])
def test_a_transaction_with_a_deleted_topic_ends_soon_and_names_it(what: str) -> None:
    teller = Transacting(1)
    if what == "a topic that was read":
        teller.add(P0, 5)
        teller.leave()
        teller.answer_group()
        answer: Callable[[int], Any] = teller.answer_offsets
    else:
        teller.send(0)
        teller.leave()
        answer = teller.answer_partitions
    teller.world.topics.clear()
    kind = TxnOffsetCommitRequest if what == "a topic that was read" else AddPartitionsToTxnRequest
    began = teller.world.now
    while not teller.pending(EndTxnRequest):
        if teller.pending(kind):
            answer(UnknownTopicOrPartition.code)
        assert teller.end is not None
        teller.world.later(0.2)
        teller.end.go_on()
        assert teller.world.now < began + 5
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(ended_early(teller))


def test_the_topics_of_a_refused_request_are_looked_up_together() -> None:
    teller = Transacting(1)
    topics = {f"t{number}": 1 for number in range(50)}
    teller.world.topics |= topics
    for name in topics:
        teller.producer.append(PendingRecord(name, b"v", None, 0, (), 1000), teller.world.now)
    teller.world.later(0.2)
    request, answers = teller.asked(AddPartitionsToTxnRequest), list[int]()
    assert len(request.v3_and_below_topics) == len(topics)
    unknown = (AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=UnknownTopicOrPartition.code),)
    results = tuple(AddPartitionsToTxnTopicResult(name=name, results_by_partition=unknown) for name in topics)
    metadata = teller.world.core.metadata
    metadata.observers.append(lambda now: answers.append(len(metadata.learned_of)))
    teller.answer(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
    assert answers[-1] == len(topics) and len(answers) <= 2


def test_they_wait_while_the_members_synchronize(both: Transacting) -> None:
    both.member = None
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.world.later(5.0)
    assert not both.pending(TxnOffsetCommitRequest)
    assert any("group 'billing'" in line for line in both.world.core.explain(both.world.now))
    both.member = CommittingMember(6, "m-1")
    both.commits.wake()
    both.world.run()
    assert both.answer_offsets().generation_id_or_member_epoch == 6
    assert both.answer_end() and both.error is None


def test_a_partition_that_was_lost_before_they_are_sent_aborts(both: Transacting) -> None:
    both.add(P0, 5)
    both.add(P1, 5)
    both.commits.disown(P1, "the group has given it to another member")
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    error = ended_early(both)
    assert isinstance(error.cause, CommitFailed) and "given it to another" in str(error)
    assert not both.pending(TxnOffsetCommitRequest)


def test_a_partition_that_is_lost_while_there_is_no_member_to_send_them_as_aborts_at_once(both: Transacting) -> None:
    both.add(P0, 5)
    both.member = None  # the user exceeded max_poll_interval, so the member has left
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.commits.disown(P0, "did not ask for a batch within max_poll_interval")
    both.world.run()
    assert isinstance(ended_early(both).cause, CommitFailed)


def test_a_partition_that_is_lost_refuses_the_next_record_of_the_block(both: Transacting) -> None:
    both.add(P0, 5)
    both.commits.disown(P0, "did not ask for a batch within max_poll_interval")
    both.world.run()
    with pytest.raises(TransactionAborted, match="max_poll_interval"):
        both.transaction.check()


def test_what_is_lost_behind_a_transaction_is_nothing_to_it(both: Transacting) -> None:
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.answer_offsets()
    assert both.answer_end() and both.error is None
    both.transaction = both.begin()
    both.commits.disown(P0, "the group has given it to another member")
    both.world.run()
    both.transaction.check()


def test_a_member_that_keeps_its_partitions_goes_on_in_the_next_generation(both: Transacting) -> None:
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.answer_offsets(IllegalGeneration.code)
    assert [type(each) for each in both.refusals] == [IllegalGeneration]
    both.member = CommittingMember(6, "m-1")
    both.world.later(1.0)
    assert both.answer_offsets().generation_id_or_member_epoch == 6
    assert both.answer_end() and both.error is None


def test_a_member_that_does_not_aborts(both: Transacting) -> None:
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.answer_offsets(UnknownMemberId.code)
    both.commits.disown(P0, "the coordinator does not know this member any more")
    both.world.later(1.0)
    assert isinstance(ended_early(both).cause, CommitFailed)


@pytest.mark.parametrize("error", [NotCoordinator, CoordinatorLoadInProgress, ConcurrentTransactions])
def test_what_may_pass_is_tried_again(both: Transacting, error: type[BrokerError]) -> None:
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.answer_offsets(error.code)
    both.world.later(1.0)
    both.answer_offsets()
    assert both.answer_end() and both.error is None
    assert not both.pending(InitProducerIdRequest)


def test_an_answer_that_was_lost_makes_the_epoch_rise_in_version_1() -> None:
    for version, rises in ((1, True), (2, False)):
        teller = Transacting(version)
        teller.add(P0, 5)
        teller.leave()
        if teller.pending(AddOffsetsToTxnRequest):
            teller.answer_group()
        assert teller.pending(TxnOffsetCommitRequest)
        teller.world.break_connections()
        teller.world.later(1.0)
        teller.answer_offsets()
        assert teller.answer_end() and teller.error is None
        assert teller.pending(InitProducerIdRequest) is rises


def test_what_does_not_pass_aborts_and_the_next_transaction_may_begin(both: Transacting) -> None:
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.answer_offsets(GroupAuthorizationFailed.code)
    assert isinstance(ended_early(both).cause, GroupAuthorizationFailed)
    if both.pending(InitProducerIdRequest):
        both.initialize()
    both.begin()


def test_a_producer_that_is_fenced_ends(both: Transacting) -> None:
    both.add(P0, 5)
    both.leave()
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    both.answer_offsets(ProducerFenced.code)
    assert isinstance(both.error, ProducerFenced)
    with pytest.raises(ProducerFenced):
        both.transaction.check()


def test_a_producer_that_is_fenced_sends_no_offsets() -> None:
    teller = Transacting(1)
    teller.send(0)
    teller.add(P0, 5)
    teller.answer_partitions(ProducerFenced.code)
    teller.leave()
    assert isinstance(teller.error, ProducerFenced)
    assert not teller.pending(AddOffsetsToTxnRequest) and not teller.pending(TxnOffsetCommitRequest)
