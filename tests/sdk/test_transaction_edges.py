"""Edge cases of transactions: requests in flight at the end, late answers, and a second `begin`."""

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

import ottla
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.errors import (
    BrokerError,
    Closed,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    LocalProtocolError,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    TransactionAbortable,
    TransactionAborted,
    TransactionOutcomeUnknown,
    UnknownProducerId,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.assignment.committing import BatchAssignment
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.steps import TURN
from ottla.sdk.transaction.core import TransactionCore
from ottla.sdk.transaction.options import TransformOptions
from ottla.sdk.transaction.transform import TransformCore
from ottla.testing import Broker
from tests.sdk.calling import Call
from tests.sdk.coordinator import Coordinator
from tests.sdk.test_transaction_machine import P0, Transacting
from tests.sdk.test_transforms import VALUES, committed, fill


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def both(request: pytest.FixtureRequest) -> Transacting:
    return Transacting(request.param)


def join(teller: Transacting) -> None:
    if teller.pending(AddPartitionsToTxnRequest):
        teller.answer_partitions()


def sent(request: ProduceRequest) -> list[tuple[int, int]]:
    """Epoch and base sequence of each batch."""
    batches = [bytes(each.records or b"") for topic in request.topic_data for each in topic.partition_data]
    return [struct.unpack_from(">hi", batch, 51) for batch in batches]


def refuse(teller: Transacting, request: ProduceRequest, code: int) -> None:
    refused = PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
    teller.answer(request, ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(refused,)),)))


def abort(teller: Transacting) -> None:
    teller.end = teller.call(teller.transaction.leave(ZeroDivisionError()))


def aborted(teller: Transacting) -> None:
    """Let the coordinator confirm the abort."""
    assert teller.end is not None
    teller.end.go_on()
    assert teller.answer_end() is False
    teller.world.run()
    assert teller.end.go_on().over
    teller.end = None


def test_a_batch_goes_in_the_epoch_of_its_own_transaction(both: Transacting) -> None:
    # A paused leader processes both requests when it resumes. In the old epoch, with the old transaction still open,
    # the second record would join it: acknowledged, committed, and then aborted by the marker of the old transaction.
    both.send(0)
    join(both)
    both.store()
    both.send(0)  # gets no answer
    [older] = both.world.pending(ProduceRequest)
    abort(both)
    both.world.later(6.0)
    aborted(both)
    if both.pending(InitProducerIdRequest):
        both.initialize()
    both.transaction = both.begin()
    both.send(0)
    join(both)
    both.world.later(0.1)
    newer = [each for each in both.world.pending(ProduceRequest) if each is not older]
    assert all(epoch == 1 for each in newer for epoch, _ in sent(each))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_batch_of_unknown_outcome_makes_the_epoch_rise_after_an_abort(when: str) -> None:
    teller = Transacting(1)
    teller.send(0)
    teller.answer_partitions()
    if when == "before":  # the batch waits for its retry
        teller.world.break_connections()
    abort(teller)
    if when == "after":  # the batch is still in flight
        teller.world.break_connections()
    teller.world.later(1.0)
    aborted(teller)
    assert teller.pending(InitProducerIdRequest)  # otherwise a late Produce could join the next transaction


def test_a_gap_in_the_sequences_of_an_aborted_transaction_does_not_abort_the_next() -> None:
    teller = Transacting(1)
    teller.send(0)
    teller.answer_partitions()
    teller.store()
    teller.send(0)
    teller.send(0)
    first, second = teller.world.pending(ProduceRequest)
    refuse(teller, first, NotEnoughReplicas.code)
    abort(teller)
    refuse(teller, second, OutOfOrderSequenceNumber.code)
    aborted(teller)
    if teller.pending(InitProducerIdRequest):
        teller.initialize()
    teller.transaction = teller.begin()
    teller.send(0)
    join(teller)
    teller.transaction.check()


def send(
    teller: Transacting, partition: int, callback: Callable[[Any], object] | None = None, size: int = 1
) -> Call[None]:
    record = PendingRecord("t", b"v" * size, None, partition, (), 1000, callback)
    call = teller.call(teller.producer.send_soon(record))
    teller.world.later(0.01)
    return call


def test_a_record_that_comes_while_its_transaction_commits_does_not_go_with_the_next(both: Transacting) -> None:
    refused: list[Exception] = []

    def second(result: object) -> None:
        try:
            both.producer.send_nowait(PendingRecord("t", b"v", None, 1, (), 1000))
        except LocalProtocolError as error:
            refused.append(error)

    send(both, 0, second)
    join(both)
    both.leave()
    both.store()
    join(both)
    while not both.pending(EndTxnRequest):  # if the broker stores it, it belongs to this transaction
        both.store()
    assert both.answer_end() and both.error is None
    both.end = None
    both.transaction = both.begin()
    both.world.later(0.1)
    assert refused or not (both.pending(AddPartitionsToTxnRequest) or both.pending(ProduceRequest))


def test_a_record_that_is_taken_while_its_transaction_commits_is_not_lost_without_a_word() -> None:
    teller = Transacting(2)
    said: list[object] = []

    def second(result: object) -> None:
        try:
            teller.producer.send_nowait(PendingRecord("t", b"v", None, 1, (), 1000))
        except LocalProtocolError as error:
            said.append(error)

    send(teller, 0, second)
    teller.leave()
    teller.store()
    stored = False
    while not teller.pending(EndTxnRequest):
        teller.store()
        stored = True
    assert teller.answer_end() and teller.error is None
    left = teller.call(teller.producer.leave(None))
    teller.world.later(130.0)  # more than delivery_timeout
    assert left.go_on().over
    assert stored or said or left.error is not None


def test_a_record_that_waits_for_room_is_not_taken_once_its_transaction_commits() -> None:
    teller = Transacting(2)
    teller.producer._room.memory = teller.producer.appends.free = 20_000
    send(teller, 0, size=15_000)
    waiting = send(teller, 1, size=15_000)
    assert not waiting.over
    teller.leave()
    teller.store()
    waiting.go_on()
    while not teller.pending(EndTxnRequest):
        teller.store()
        waiting.go_on()
    assert teller.answer_end() and teller.error is None
    assert waiting.go_on().over and (waiting.error is not None or not teller.producer.pending)


def test_offsets_that_a_delivery_callback_adds_are_sent_or_refused(both: Transacting) -> None:
    refused: list[Exception] = []

    def add(result: object) -> None:
        assert both.producer.transactions is not None
        try:
            both.transaction.check()  # as `TransactionCore.commit_offsets` does
        except LocalProtocolError as error:
            refused.append(error)
        else:
            both.producer.transactions.offsets.add(both.commits, both.assignments[P0], CommittedOffset(9))

    send(both, 0, add)
    join(both)
    both.leave()
    both.store()
    assert refused or both.pending(TxnOffsetCommitRequest) or not both.pending(EndTxnRequest)


# -- beginning ---------------------------------------------------------------------------------------------------------


class Starting:
    """A producer during its initialization."""

    def __init__(self) -> None:
        self.world = Coordinator({"t": 1}, transactions=2)
        options = ProducerOptions(transactional_id="t-1", linger=0.0)
        self.producer = ProducerCore(self.world.core, options, random.Random(1))
        self.world.run()

    def call(self, steps: Any) -> Call[Any]:
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    def begin(self) -> tuple[TransactionCore, Call[None]]:
        transaction = TransactionCore(self.world.core, self.producer)
        return transaction, self.call(transaction.begin())

    def initialize(self) -> None:
        answer = InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0)
        self.world.answer(self.world.asked(InitProducerIdRequest), answer)


def test_a_transaction_that_waits_to_begin_when_its_producer_is_closed_says_so() -> None:
    starting = Starting()
    _, begun = starting.begin()
    starting.initialize()
    starting.producer.close(Closed("the producer is closed"))  # before the waiting task continues
    assert isinstance(begun.go_on().error, Closed)


def test_of_two_that_wait_to_begin_the_second_waits_for_the_first() -> None:
    starting = Starting()
    (first, begun), (_, other) = starting.begin(), starting.begin()
    starting.initialize()
    begun.go_on()
    starting.call(starting.producer.send_soon(PendingRecord("t", b"v", None, 0, (), 1000)))
    starting.world.later(0.01)
    stored = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
    answer = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(stored,)),))
    starting.world.answer(starting.world.asked(ProduceRequest), answer)
    starting.call(first.leave(None))
    assert starting.world.pending(EndTxnRequest)
    assert not isinstance(other.go_on().error, KeyError)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_producer_that_is_left_within_a_transaction_aborts_it(both: Transacting) -> None:
    both.send(0)
    join(both)
    both.store()
    both.call(both.producer.leave(None))
    assert not both.asked(EndTxnRequest).committed  # otherwise readers wait for the transaction's timeout


def test_an_abort_leaves_time_for_its_answer_where_a_leader_does_not_answer(both: Transacting) -> None:
    both.send(0)
    join(both)
    abort(both)
    assert both.end is not None
    both.world.later(4.0)
    both.end.go_on()
    assert both.pending(EndTxnRequest) and not both.end.over


def test_a_transaction_of_version_2_that_took_too_long_is_not_the_end_of_its_producer() -> None:
    # Kafka 4.3 does this: AddPartitionsToTxnManager.scala turns PRODUCER_FENCED into INVALID_PRODUCER_EPOCH.
    teller = Transacting(2)
    teller.send(0)
    teller.store()
    teller.add(P0, 5)
    teller.world.later(70.0)
    teller.leave()
    teller.answer_offsets(InvalidProducerEpoch.code)
    teller.world.later(2.0)
    assert teller.producer.fatal is None  # as after the same error of Produce


def test_a_commit_that_came_after_the_timeout_says_so() -> None:
    # Kafka 4.3 does this: the commit looks to it like a retry of the end of an aborted transaction.
    teller = Transacting(2)
    teller.send(0)
    teller.store()
    teller.world.later(70.0)
    teller.leave()
    assert teller.end is not None
    for _ in range(100):
        if not teller.asked(EndTxnRequest).committed:
            break
        teller.answer_end(InvalidTxnState.code)
        teller.world.later(0.3)
        teller.end.go_on()
    teller.answer_end()
    assert "transaction_timeout" in str(teller.error)


# -- transforms --------------------------------------------------------------------------------------------------------


async def test_batches_are_part_of_one_transaction_only(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        await client.create_topic("out", partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1") as transform:
            batches = await anext(transform)
            one, two = transform.transaction(batches), transform.transaction(batches)
            async with one:
                await one.send("out", b"v")
            with pytest.raises(LocalProtocolError):
                async with two:
                    await two.send("out", b"v")
        assert await committed(client, "out") == [b"v"]


async def test_a_transaction_that_is_entered_twice_does_not_give_its_batches_back(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1") as transform:
            batches = await anext(transform)
            async with transform.transaction(batches) as txn:
                with pytest.raises(LocalProtocolError):
                    async with txn:
                        pass
            assert txn.committed
            assert transform.consumer.position("in", 0) == 1  # otherwise the committed records are read again


def test_to_put_a_transaction_together_costs_what_it_is_made_of() -> None:
    looks = 0

    class Small:
        size, topic, partition = 100, "in", 0

        @property
        def count(self) -> int:
            nonlocal looks
            looks += 1
            return 1

    claim = BatchAssignment(Assignment(("in", 0)), 0)
    batches: Any = iter([(Small(), claim)] * 400)

    class Reading:
        has_batch = True

        def poll(self, task: object, timeout: float, reader: object) -> Any:
            return next(batches, None)
            yield

    transform = TransformCore.__new__(TransformCore)
    transform.core, transform.consumer = Coordinator({}).core, Reading()  # type: ignore[assignment] # all that it uses
    transform._options = TransformOptions(group="g", transactional_id="t-1", max_records=10_000, max_wait=1.0)
    taken = [next(batches)]
    with pytest.raises(StopIteration):
        next(transform._gather(taken, None))
    assert len(taken) == 400 and looks < 10 * 400


def test_an_abort_that_waits_when_its_producer_is_closed_sends_nothing(both: Transacting) -> None:
    both.send(0)
    join(both)
    abort(both)  # waits for the answer to the batch
    both.producer.close(Closed("the producer is closed"))
    both.world.later(6.0)
    assert both.end is not None and both.end.go_on().over
    assert not both.pending(EndTxnRequest)


@pytest.mark.parametrize("refusal", [InvalidTxnState, TransactionAbortable])
def test_a_commit_that_may_have_been_carried_out_is_not_said_to_be_aborted(refusal: type[BrokerError]) -> None:
    teller = Transacting(1)
    teller.send(0)
    join(teller)
    teller.store()
    teller.leave()
    assert teller.pending(EndTxnRequest)
    teller.world.break_connections()  # the broker commits, then another producer gets the transactional id
    teller.world.later(1.0)
    for _ in range(100):
        if not teller.pending(EndTxnRequest):
            break
        teller.answer_end(refusal.code)
        teller.world.later(0.3)
    assert isinstance(teller.error, TransactionOutcomeUnknown) and teller.transaction.committed is None


def test_a_commit_for_which_the_epoch_will_not_do_is_aborted_and_another_one_asked_for() -> None:
    teller = Transacting(1)
    teller.send(0)
    join(teller)
    teller.store()
    teller.leave()
    teller.answer_end(UnknownProducerId.code)
    teller.world.later(0.3)
    abort = teller.asked(EndTxnRequest)
    assert not abort.committed and not teller.pending(InitProducerIdRequest)
    teller.answer_end(0)
    teller.world.later(0.3)
    assert isinstance(teller.error, TransactionAborted) and teller.transaction.committed is False
    assert teller.asked(InitProducerIdRequest).producer_id == abort.producer_id


def test_a_commit_that_is_not_answered_in_time_is_still_a_commit(both: Transacting) -> None:
    both.send(0)
    join(both)
    both.store()
    both.leave()
    assert both.asked(EndTxnRequest).committed
    both.world.later(both.world.core.options.api_timeout + 1.0)
    assert isinstance(both.error, TransactionOutcomeUnknown) and both.transaction.committed is None
    both.world.later(1.0)
    assert both.asked(EndTxnRequest).committed


def test_a_transaction_that_is_still_being_ended_has_not_ended(both: Transacting) -> None:
    both.send(0)
    join(both)
    both.store()
    both.leave()
    assert both.answer_end(ConcurrentTransactions.code)
    both.world.later(0.3)
    assert both.end is not None and not both.end.go_on().over
    assert both.answer_end() and both.error is None


def test_a_record_that_waits_for_its_turn_is_not_part_of_the_next_transaction(both: Transacting) -> None:
    both.world.later(1.0)
    late = both.producer.send_soon(PendingRecord("t", b"late", None, 0, (), 1000))
    assert next(late) is TURN
    both.leave()
    assert both.end is not None and both.end.over
    both.transaction = both.begin()
    with pytest.raises(LocalProtocolError, match="this transaction is over"):
        late.send(None)
    both.send(0)
    assert both.producer.pending == 1
