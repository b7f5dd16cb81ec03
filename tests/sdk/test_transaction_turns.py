"""When partitions join a transaction: one broker after another, and after the markers of the previous one."""

import random

import pytest

from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
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
from ottla.errors import ConcurrentTransactions
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.core import TransactionCore
from tests.sdk.calling import Call, T
from tests.sdk.coordinator import Coordinator

DESCRIBE = {65: (0, 0)}
ASKED = 50
"""Transactions that begin with DescribeTransactions after a delayed one."""


class Teller:
    """A transactional producer; the test plays its brokers. Node n + 1 leads partition n."""

    def __init__(self, version: int = 2, partitions: int = 3) -> None:
        self.world = Coordinator({"t": partitions}, transactions=version, more=DESCRIBE)
        self.world.racks = dict.fromkeys(range(1, partitions + 1))
        self.world.leaders = {("t", index): index + 1 for index in range(partitions)}
        options = ProducerOptions(transactional_id="t-1", linger=0.0)
        self.producer = ProducerCore(self.world.core, options, random.Random(1))
        self.world.run()
        self.epoch = 0
        self.initialize()

    def initialize(self) -> None:
        answer = InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=self.epoch)
        self.world.answer(self.world.asked(InitProducerIdRequest), answer)

    def call(self, steps: Steps[T]) -> Call[T]:
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    def begin(self) -> None:
        self.transaction = TransactionCore(self.world.core, self.producer)
        assert self.call(self.transaction.begin()).over

    def send(self, *partitions: int) -> list[set[int]]:
        """Send a record to each partition; return the pending Produce requests, as `produced` does."""
        for partition in partitions:
            sent = self.call(self.producer.send_soon(PendingRecord("t", b"v", None, partition, (), 1000)))
            assert sent.over and sent.error is None
        self.world.run()
        return self.produced

    @property
    def produced(self) -> list[set[int]]:
        """The partitions of each pending Produce."""
        return [_partitions(each) for each in self.world.pending(ProduceRequest)]

    @property
    def questions(self) -> int:
        return len(self.world.pending(DescribeTransactionsRequest))

    def store(self) -> None:
        """Answer the oldest pending Produce."""
        request = self.world.pending(ProduceRequest)[0]
        stored = tuple(
            PartitionProduceResponse(index=each, error_code=0, base_offset=0) for each in _partitions(request)
        )
        answer = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=stored),))
        self.world.answer(request, answer)

    def commit(self, took: float = 0.001) -> None:
        ended = self.call(self.transaction.leave(None))
        self.world.later(took)
        request = self.world.asked(EndTxnRequest)
        assert request.committed
        if implicit := self.producer.transactions is not None and self.producer.transactions.version >= 2:
            self.epoch += 1
        answer = EndTxnResponse(
            error_code=0, producer_id=7 if implicit else -1, producer_epoch=self.epoch if implicit else -1
        )
        self.world.answer(request, answer)
        assert ended.go_on().over and ended.error is None

    def one(self, took: float, end_took: float = 0.001) -> None:
        """A transaction of one record, whose Produce takes so long."""
        self.begin()
        assert self.send(0) == [{0}]
        self.world.later(took)
        self.store()
        self.commit(end_took)

    def describe(self, state: str) -> None:
        """Answer DescribeTransactions with this state."""
        known = TransactionState(
            error_code=0,
            transactional_id="t-1",
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=-1,
            producer_id=7,
            producer_epoch=self.epoch,
            topics=(),
        )
        answer = DescribeTransactionsResponse(transaction_states=(known,))
        self.world.answer(self.world.asked(DescribeTransactionsRequest), answer)

    def join(self, code: int = 0) -> None:
        """Answer AddPartitionsToTxn."""
        request = self.world.asked(AddPartitionsToTxnRequest)
        [topic] = request.v3_and_below_topics
        results = tuple(
            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
            for each in topic.partitions
        )
        result = AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)
        self.world.answer(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(result,)))


def _partitions(request: ProduceRequest) -> set[int]:
    return {each.index for topic in request.topic_data for each in topic.partition_data}


# -- one broker after another ------------------------------------------------------------------------------------------


def test_what_has_to_join_is_sent_to_one_broker_after_the_other() -> None:
    teller = Teller()
    teller.begin()
    assert teller.send(0, 1, 2) == [{0}]
    teller.store()
    assert teller.produced == [{1}]
    teller.store()
    assert teller.produced == [{2}]
    teller.store()
    assert teller.send(0, 1, 2) == [{0}, {1}, {2}]  # all have joined already
    for _ in range(3):
        teller.store()
    teller.commit()
    teller.begin()
    assert teller.send(2, 1) == [{2}]


def test_what_is_led_by_one_broker_joins_together() -> None:
    teller = Teller()
    teller.world.leaders = {("t", 2): 2}
    teller.begin()
    assert teller.send(0, 2, 1) == [{0}, {1}]
    teller.store()
    assert teller.produced == [{1}]
    teller.store()
    assert teller.produced == [{2}]


def test_a_turn_ends_after_a_moment_for_brokers_that_are_far_away() -> None:
    teller = Teller()
    teller.begin()
    teller.send(0, 1, 2)
    teller.world.later(0.009)
    assert teller.produced == [{0}]
    teller.world.later(0.002)
    assert teller.produced == [{0}, {1}]
    teller.world.later(0.01)
    assert teller.produced == [{0}, {1}, {2}]


def test_a_turn_ends_with_an_answer_that_is_lost() -> None:
    teller = Teller()
    teller.begin()
    teller.send(0, 1)
    teller.world.break_connections()
    teller.world.later(1.0)
    assert {1} in teller.produced and {0} in teller.produced


def test_in_version_1_all_that_has_joined_is_sent_at_once() -> None:
    teller = Teller(version=1)
    teller.begin()
    teller.send(0, 1, 2)
    teller.join()
    teller.join()
    assert teller.produced == [{0}, {1}, {2}]


def test_offsets_of_a_group_wait_for_their_turn() -> None:
    teller = Teller()
    commits = Commits(teller.world.core, "billing", lambda: CommittingMember(5, "m-1"), lambda *_: True)
    assignment = commits.own(("t", 0))
    teller.begin()
    assert teller.producer.transactions is not None
    teller.producer.transactions.offsets.add(commits, assignment, CommittedOffset(5))
    teller.send(0, 1)
    ended = teller.call(teller.transaction.leave(None))
    for partition in (0, 1):
        assert teller.produced == [{partition}] and not teller.world.pending(TxnOffsetCommitRequest)
        teller.store()
    answered = TxnOffsetCommitResponsePartition(partition_index=0, error_code=0)
    answer = TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(name="t", partitions=(answered,)),))
    teller.world.answer(teller.world.asked(TxnOffsetCommitRequest), answer)
    ended.go_on()
    assert teller.world.asked(EndTxnRequest).committed


# -- markers -----------------------------------------------------------------------------------------------------------


def test_after_a_leader_had_to_wait_the_next_transactions_ask_whether_the_markers_are_written() -> None:
    teller = Teller()
    teller.one(took=0.022)
    teller.begin()
    assert teller.questions == 1 and not teller.send(0, 1)
    teller.describe("PrepareCommit")
    teller.world.later(0.01)
    assert not teller.produced
    teller.describe("CompleteCommit")
    assert teller.produced == [{0}]


def test_the_first_question_comes_when_it_may_be_answered() -> None:
    teller = Teller()
    teller.one(took=0.022)
    teller.begin()
    teller.send(0)
    teller.describe("PrepareCommit")
    teller.world.later(0.008)
    teller.describe("CompleteCommit")
    teller.store()
    teller.commit()
    teller.begin()
    teller.send(0)
    teller.world.later(0.003)
    assert not teller.questions
    teller.world.later(0.002)
    teller.describe("CompleteCommit")
    assert teller.produced == [{0}]


def test_after_so_many_transactions_none_asks_until_a_leader_has_to_wait_again() -> None:
    teller = Teller()
    teller.one(took=0.022)
    for _ in range(ASKED):
        teller.begin()
        teller.describe("CompleteCommit")
        assert teller.send(0) == [{0}]
        teller.store()
        teller.commit()
    teller.one(took=0.001)
    teller.begin()
    assert not teller.questions


def test_brokers_that_answer_slowly_are_not_asked() -> None:
    teller = Teller()
    teller.one(took=0.001, end_took=0.05)
    teller.one(took=0.06, end_took=0.05)
    teller.begin()
    assert not teller.questions


def test_what_was_refused_after_the_first_does_not_count() -> None:
    teller = Teller()
    teller.begin()
    teller.send(0)
    teller.store()
    teller.send(0)
    teller.world.later(0.05)
    teller.store()
    teller.commit()
    teller.begin()
    assert not teller.questions


@pytest.mark.parametrize("state", ["Empty", "CompleteAbort", "Ongoing", "", "SomethingNew"])
def test_only_markers_that_are_being_written_hold_anything_back(state: str) -> None:
    teller = Teller()
    teller.one(took=0.022)
    teller.begin()
    teller.describe(state)
    assert teller.send(0) == [{0}]


def test_a_question_that_nobody_answers_holds_up_nothing_for_long() -> None:
    teller = Teller()
    teller.one(took=0.022)
    teller.begin()
    assert not teller.send(0)
    teller.world.later(0.1)
    assert teller.produced == [{0}]


def test_in_version_1_the_first_attempt_waits_for_half_of_the_time_that_the_markers_took() -> None:
    teller = Teller(version=1)
    for took in (0.0, 0.01, 0.0025):
        teller.begin()
        teller.send(0)
        if took:
            teller.join(ConcurrentTransactions.code)
            teller.world.later(took)
        teller.join()
        teller.store()
        teller.commit()
        teller.world.later(0.005 if took == 0.01 else 0.0)
    teller.begin()
    teller.send(0)
    assert not teller.world.pending(AddPartitionsToTxnRequest)
    teller.world.later(0.004)
    teller.join()


def test_what_was_tried_long_after_the_end_says_nothing() -> None:
    teller = Teller(version=1)
    for _ in range(2):
        teller.world.later(1.0)
        teller.begin()
        teller.send(0)
        teller.join(ConcurrentTransactions.code)
        teller.world.later(0.02)
        teller.join()
        teller.store()
        teller.commit()
    teller.begin()
    teller.send(0)
    teller.join()


def test_what_waits_to_join_a_transaction_that_is_aborted_asks_nobody() -> None:
    teller = Teller(version=1)
    for refused in (False, True):
        teller.begin()
        teller.send(0)
        if refused:
            teller.join(ConcurrentTransactions.code)
            teller.world.later(0.02)
        teller.join()
        teller.store()
        teller.commit()
    teller.begin()
    teller.send(0)
    ended = teller.call(teller.transaction.leave(ZeroDivisionError()))
    teller.world.later(1.0)
    assert ended.go_on().over and not teller.world.waiting


# -- begin -------------------------------------------------------------------------------------------------------------


def test_a_producer_that_is_not_ready_any_more_when_the_task_goes_on_is_waited_for_once_more() -> None:
    teller = Teller()
    teller.one(took=0.001)
    transactions = teller.producer.transactions
    assert transactions is not None
    transactions.bump(teller.world.now)
    teller.transaction = TransactionCore(teller.world.core, teller.producer)
    begun = teller.call(teller.transaction.begin())
    teller.initialize()
    transactions.bump(teller.world.now)
    assert not begun.go_on().over
    teller.initialize()
    assert begun.go_on().over and begun.error is None
    assert teller.send(0) == [{0}]
