"""The end of a transaction, by the answers of its coordinator, without a socket or a clock."""

import random

import pytest

from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionOutcomeUnknown,
    UnknownServerError,
    UnsupportedVersion,
)
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_leaving import CLOSE_TIMEOUT
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.core import TransactionCore
from tests.sdk.calling import Call, Cancelled, T
from tests.sdk.coordinator import VERSIONS, Coordinator

DESCRIBE = 65
"""The key of DescribeTransactions."""
DOUBT = 5.0
"""Seconds after which the client believes a coordinator in any case."""


class Teller:
    """A producer with transactions of version 2; each has one record, which is stored."""

    def __init__(self) -> None:
        self.world = Coordinator({"t": 1}, transactions=2)
        options = ProducerOptions(transactional_id="t-1", linger=0.0)
        self.producer = ProducerCore(self.world.core, options, random.Random(1))
        self.world.run()
        self.initialize()

    def initialize(self, error_code: int = 0, epoch: int = 0) -> None:
        answer = InitProducerIdResponse(error_code=error_code, producer_id=7, producer_epoch=epoch)
        self.world.answer(self.world.asked(InitProducerIdRequest), answer)

    def call(self, steps: Steps[T]) -> Call[T]:
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    def send(self) -> TransactionCore:
        """A transaction whose record has been sent."""
        transaction = TransactionCore(self.world.core, self.producer)
        assert self.call(transaction.begin()).over
        sent = self.call(self.producer.send_soon(PendingRecord("t", b"v", None, 0, (), 1000)))
        assert sent.over and sent.error is None
        self.world.later(0.1)
        return transaction

    def store(self, error_code: int = 0) -> None:
        """Answer the pending Produce."""
        stored = PartitionProduceResponse(index=0, error_code=error_code, base_offset=0)
        answer = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(stored,)),))
        self.world.answer(self.world.asked(ProduceRequest), answer)

    def commit(self) -> tuple[TransactionCore, Call[None]]:
        """Begin and commit a transaction; its EndTxn is pending."""
        transaction = self.send()
        self.store()
        self._end = self.call(transaction.leave(None))
        return transaction, self._end

    def abort(self, transaction: TransactionCore) -> Call[None]:
        self._end = self.call(transaction.leave(ZeroDivisionError()))
        return self._end

    def refuse(self, error_code: int, seconds: float = 1.0) -> None:
        """Answer the pending EndTxn with an error, and let so much time pass."""
        answer = EndTxnResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)
        self.world.answer(self.world.asked(EndTxnRequest), answer)
        self._end.go_on()
        self.world.later(seconds)

    def describe(self, producer_id: int, epoch: int, state: str) -> None:
        """Answer every pending DescribeTransactions with this producer id, epoch and state."""
        known = TransactionState(
            error_code=0,
            transactional_id="t-1",
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=-1,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=(),
        )
        while waiting := self.world.pending(DescribeTransactionsRequest):
            self.world.answer(waiting[0], DescribeTransactionsResponse(transaction_states=(known,)))
            self._end.go_on()

    def accept(self, epoch: int) -> None:
        answer = EndTxnResponse(error_code=0, producer_id=7, producer_epoch=epoch)
        self.world.answer(self.world.asked(EndTxnRequest), answer)


def test_a_coordinator_that_does_not_know_yet_that_another_has_taken_over_is_not_believed() -> None:
    teller = Teller()
    transaction, end = teller.commit()
    lookups = teller.world.lookups
    teller.refuse(InvalidTxnState.code)  # a former coordinator does not know a transaction that began at the new one
    assert teller.world.lookups > lookups and teller.world.asked(EndTxnRequest).committed
    teller.accept(epoch=1)
    assert end.go_on().over and end.error is None and transaction.committed
    assert teller.commit()[1].error is None


def test_a_transaction_that_somebody_else_has_ended_is_aborted() -> None:
    teller = Teller()
    transaction, end = teller.commit()
    until = teller.world.now + DOUBT
    while teller.world.asked(EndTxnRequest).committed:
        assert teller.world.now < until
        teller.refuse(InvalidTxnState.code)
    teller.accept(epoch=1)  # the transaction had timed out, so the coordinator has aborted it already
    assert end.go_on().over and transaction.committed is False
    assert isinstance(end.error, TransactionAborted) and isinstance(end.error.cause, InvalidTxnState)
    _, following = teller.commit()
    assert teller.world.asked(EndTxnRequest).producer_epoch == 1
    teller.accept(epoch=2)
    assert following.go_on().error is None


def test_an_end_that_makes_the_coordinator_fail_is_asked_for_again() -> None:
    teller = Teller()
    transaction, end = teller.commit()
    teller.refuse(UnknownServerError.code)  # the answer while a newer producer fences this one
    assert teller.world.asked(EndTxnRequest).committed and not end.over
    teller.accept(epoch=1)
    assert end.go_on().over and transaction.committed


@pytest.mark.parametrize("refusal", [TransactionalIdAuthorizationFailed, UnsupportedVersion])
def test_the_outcome_is_unknown_if_the_end_was_not_answered_and_another_attempt_is_refused(
    refusal: type[BrokerError],
) -> None:
    teller = Teller()
    transaction, end = teller.commit()
    teller.world.break_connections()
    teller.world.later(1.0)
    teller.refuse(refusal.code)
    assert isinstance(end.go_on().error, TransactionOutcomeUnknown) and transaction.committed is None


def test_a_transaction_that_a_newer_producer_has_ended_says_so() -> None:
    teller = Teller()
    _, end = teller.commit()
    while teller.world.asked(EndTxnRequest).committed:
        teller.refuse(InvalidTxnState.code)
    teller.refuse(ProducerFenced.code)
    teller.initialize(ProducerFenced.code)
    assert isinstance(end.go_on().error, ProducerFenced)


def test_an_abort_that_is_refused_as_of_a_fenced_producer_need_not_be_its_end() -> None:
    # Kafka also answers so while it writes the markers of the previous transaction.
    teller = Teller()
    end = teller.abort(teller.send())
    teller.store(ConcurrentTransactions.code)
    end.go_on()
    teller.refuse(ProducerFenced.code)
    assert not end.go_on().over
    teller.initialize(epoch=1)
    assert end.go_on().over and end.error is None
    _, following = teller.commit()
    assert teller.world.asked(EndTxnRequest).producer_epoch == 1
    teller.accept(epoch=2)
    assert following.go_on().error is None


def test_a_coordinator_that_does_not_know_yet_that_another_has_taken_over_fences_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERSIONS, DESCRIBE, (0, 0))
    teller = Teller()
    transaction, end = teller.commit()
    lookups = teller.world.lookups
    teller.refuse(ProducerFenced.code, seconds=0.0)  # the broker still has the previous transaction
    teller.describe(7, 0, "Ongoing")
    teller.world.later(1.0)
    assert teller.world.lookups > lookups and teller.world.asked(EndTxnRequest).committed and not end.go_on().over
    teller.accept(epoch=1)
    assert end.go_on().over and end.error is None and transaction.committed


def test_a_coordinator_that_goes_on_to_say_that_a_producer_is_fenced_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERSIONS, DESCRIBE, (0, 0))
    teller = Teller()
    _, end = teller.commit()
    until = teller.world.now + DOUBT
    while not end.go_on().over and teller.world.now < until:
        if teller.world.pending(EndTxnRequest):
            teller.refuse(ProducerFenced.code, seconds=0.0)
        teller.describe(7, 0, "Ongoing")
        teller.world.later(0.1)
    assert isinstance(end.error, ProducerFenced)


def test_a_commit_of_a_transaction_that_was_too_old_is_not_the_end_of_its_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERSIONS, DESCRIBE, (0, 0))
    teller = Teller()
    transaction, end = teller.commit()
    for committed in (True, False):
        assert teller.world.asked(EndTxnRequest).committed == committed
        teller.refuse(ProducerFenced.code, seconds=0.0)
        teller.describe(7, 1, "CompleteAbort")
        end.go_on()
    teller.initialize(epoch=2)
    assert end.go_on().over and isinstance(end.error, TransactionAborted) and transaction.committed is False
    teller.commit()
    teller.world.later(1.0)  # the question for the reason got no answer, so there is another connection
    assert teller.world.asked(EndTxnRequest).producer_epoch == 2


NEWER = {"another producer has come": (7, 2, "Ongoing"), "its transaction was too old": (7, 1, "CompleteAbort")}


@pytest.mark.parametrize("why", NEWER)
def test_a_producer_that_was_fenced_does_not_fence_the_newer_one(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # With an open transaction, Kafka ignores the epoch in InitProducerId, and aborts the transaction.
    monkeypatch.setitem(VERSIONS, DESCRIBE, (0, 0))
    producer_id, epoch, state = NEWER[why]
    teller = Teller()
    end = teller.abort(teller.send())
    teller.store(InvalidProducerEpoch.code)
    end.go_on()
    teller.refuse(ProducerFenced.code, seconds=0.0)
    assert not teller.world.pending(InitProducerIdRequest)
    teller.describe(producer_id, epoch, state)
    assert bool(teller.world.pending(InitProducerIdRequest)) == (state == "CompleteAbort")


def test_a_commit_that_is_refused_when_nobody_waits_for_it_any_more_is_aborted() -> None:
    teller = Teller()
    transaction, end = teller.commit()
    end.throw(Cancelled())
    teller.world.later(CLOSE_TIMEOUT)
    assert isinstance(end.go_on().error, Cancelled) and transaction.committed is None
    teller.refuse(TransactionAbortable.code)
    assert not teller.world.asked(EndTxnRequest).committed
    teller.accept(epoch=1)
    assert not teller.commit()[1].over
