"""Transactional requests whose outcome depends on a version, an order or an older batch; all found against Kafka."""

from typing import Any

import pytest

from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.records import parse_batch, rebased
from ottla.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from tests.brokerlite.machine import Machine, a_batch, fetching, producing

OUT_OF_ORDER, FENCED, TXN_STATE, MAPPING, NAMELESS, ABORTABLE = 45, 47, 48, 49, 53, 120
Producer = tuple[int, int]
"""Producer id and epoch."""


def begin(machine: Machine, name: str = "x") -> Producer:
    answer = machine.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def batch(producer: Producer, sequence: int, count: int = 1, transactional: bool = True) -> bytes:
    producer_id, epoch = producer
    return a_batch(
        *(b"%d" % i for i in range(count)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(machine: Machine, *batches: bytes, name: str | None = "x", version: int = 12, **others: Any) -> list[int]:
    """The errors of the partitions, from partition 0 on."""
    answer = machine.ask(producing(*batches, transactional_id=name, **others), version)
    return [each.error_code for each in answer.responses[0].partition_responses]


def add(
    machine: Machine, producer: Producer, *partitions: int, version: int = 4, verify: bool = False
) -> dict[int, int]:
    """Send AddPartitionsToTxn; the error of each partition."""
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify,
        topics=(AddPartitionsToTxnTopic(name="t", partitions=partitions),),
    )
    answer = machine.ask(AddPartitionsToTxnRequest(transactions=(transaction,)), version)
    (topic,) = answer.results_by_transaction[0].topic_results
    return {each.partition_index: each.partition_error_code for each in topic.results_by_partition}


def end(machine: Machine, producer: Producer, *, commit: bool = True, version: int = 5) -> Producer:
    producer_id, epoch = producer
    request = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=commit)
    answer = machine.ask(request, version)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def commit(machine: Machine, producer: Producer, *, name: str = "x", version: int = 5) -> int:
    partitions = (TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=4, committed_metadata=""),)
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id="g",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=partitions),),
    )
    answer = machine.ask(request, version)
    return int(answer.topics[0].partitions[0].error_code)


def store(machine: Machine, offset: int) -> int:
    """Commit an offset outside of transactions."""
    partitions = (OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=""),)
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
    answer = machine.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    return int(answer.topics[0].partitions[0].error_code)


def partitions_of(machine: Machine, name: str = "x") -> tuple[tuple[str, int], ...]:
    return machine.core.transactions.by_id[name].partitions


# -- Produce


def test_a_transactional_batch_without_a_transactional_id_is_refused_with_all_the_others(machine: Machine) -> None:
    producer = begin(machine)
    plain = a_batch()
    assert produce(machine, batch(producer, 0), plain, name=None) == [NAMELESS, NAMELESS]
    assert produce(machine, batch(producer, 0)) == [0]
    assert produce(machine, batch(producer, 1), name=None) == [NAMELESS], "also in an open transaction"
    assert machine.log("t", 1).end_offset == 0


def test_partitions_of_a_request_join_together_and_those_that_cannot_do_not(machine: Machine) -> None:
    producer = begin(machine)
    stored = machine.log("__transaction_state").end_offset
    sets = [batch(producer, 0)] * 4
    assert produce(machine, *sets) == [0, 0, 0, 3]
    assert partitions_of(machine) == (("t", 0), ("t", 1), ("t", 2))
    assert machine.log("__transaction_state").end_offset == stored + 1


def test_only_partitions_with_transactional_batches_join(machine: Machine) -> None:
    producer = begin(machine)
    assert produce(machine, batch(producer, 0), a_batch()) == [0, 0]
    assert partitions_of(machine) == (("t", 0),)


@pytest.mark.parametrize(("version", "code"), [(9, TXN_STATE), (10, TXN_STATE), (11, ABORTABLE)])
def test_a_repeat_of_a_batch_is_refused_when_its_transaction_has_ended(
    machine: Machine, version: int, code: int
) -> None:
    producer = begin(machine)
    add(machine, producer, 0)
    assert produce(machine, batch(producer, 0), version=version) == [0]
    assert produce(machine, batch(producer, 0), version=version) == [0]
    end(machine, producer, version=4)
    assert produce(machine, batch(producer, 0), version=version) == [code]


def test_an_old_epoch_is_told_so_before_the_coordinator_is_asked(machine: Machine) -> None:
    producer = begin(machine)
    assert produce(machine, batch(producer, 0)) == [0]
    end(machine, producer)
    assert produce(machine, batch(producer, 1), name="unknown") == [FENCED]
    assert produce(machine, batch(producer, 1), batch(producer, 0), name="unknown") == [FENCED, MAPPING]


@pytest.mark.parametrize("version", [9, 11])
def test_a_first_batch_that_was_refused_is_not_jumped_over(machine: Machine, version: int) -> None:
    producer = begin(machine)
    assert produce(machine, batch(producer, 0), version=version) != [0], "the partition has not joined yet"
    add(machine, producer, 0)
    assert produce(machine, batch(producer, 1), version=version) == [OUT_OF_ORDER]
    assert produce(machine, batch(producer, 0), version=version) == [0]
    assert produce(machine, batch(producer, 1), version=version) == [0]


def test_a_producer_that_is_not_remembered_begins_with_any_sequence_in_version_1(machine: Machine) -> None:
    producer = begin(machine)
    add(machine, producer, 0)
    assert produce(machine, batch(producer, 5), version=11) == [0]


def test_a_producer_that_is_not_remembered_begins_with_sequence_0_in_version_2(machine: Machine) -> None:
    producer = begin(machine)
    assert produce(machine, batch(producer, 5)) == [OUT_OF_ORDER]
    assert produce(machine, batch(producer, 0)) == [0]


# -- the memory of refused batches


def attempted(producers: Producers, epoch: int, sequence: int, rises: bool = False) -> None:
    producers.attempt(parse_batch(batch((7, epoch), sequence)), rises=rises)


def test_the_lowest_sequence_of_an_epoch_counts_and_a_newer_epoch_begins_again() -> None:
    producers = Producers()
    for sequence in (4, 2, 3):
        attempted(producers, 0, sequence)
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(parse_batch(batch((7, 0), 3)))
    attempted(producers, 1, 9)
    attempted(producers, 0, 1)
    producers.check(parse_batch(batch((7, 1), 9)))
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(parse_batch(batch((7, 1), 10)))


def test_also_a_producer_that_is_remembered_may_not_jump_over_what_was_refused() -> None:
    producers = Producers()
    producers.record(parse_batch(rebased(batch((7, 0), 0, 5), 0, 0)))
    attempted(producers, 0, 3)
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(parse_batch(batch((7, 0), 5)))


def test_what_began_in_the_end_is_an_attempt_no_more() -> None:
    producers = Producers()
    attempted(producers, 0, 0)
    producers.record(parse_batch(rebased(batch((7, 0), 0), 0, 0)))
    producers.check(parse_batch(batch((7, 0), 1)))


def test_the_oldest_attempts_are_dropped_so_that_strangers_cannot_fill_the_memory() -> None:
    producers = Producers()
    for producer_id in range(1500):
        producers.attempt(parse_batch(batch((producer_id, 0), 0)), rises=False)
    producers.check(parse_batch(batch((0, 0), 1)))
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(parse_batch(batch((1499, 0), 1)))


def test_a_marker_that_comes_late_leaves_the_attempt_of_the_next_transaction(machine: Machine) -> None:
    producer_id, epoch = begin(machine)
    assert produce(machine, batch((producer_id, epoch), 0)) == [0]
    producers = machine.log().producers
    producers.attempt(parse_batch(batch((producer_id, epoch + 1), 0)), rises=True)
    end(machine, (producer_id, epoch))
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(parse_batch(batch((producer_id, epoch + 1), 1)))


# -- markers


def test_a_marker_of_version_2_must_be_newer_than_the_records_of_an_open_transaction_and_may_be_repeated(
    machine: Machine,
) -> None:
    producer_id, epoch = begin(machine)
    assert produce(machine, batch((producer_id, epoch), 0)) == [0]
    producers = machine.log().producers
    with pytest.raises(InvalidProducerEpoch):
        producers.check_marker(producer_id, epoch, 0, newer=True)
    producers.check_marker(producer_id, epoch, 0)
    end(machine, (producer_id, epoch))
    producers.check_marker(producer_id, epoch + 1, 0, newer=True)
    with pytest.raises(InvalidProducerEpoch):
        producers.check_marker(producer_id, epoch, 0, newer=True)


# -- the other requests


@pytest.mark.parametrize("version", [4, 5])
def test_a_partition_that_is_merely_verified_is_abortable_in_every_version(machine: Machine, version: int) -> None:
    producer = begin(machine)
    add(machine, producer, 0)
    assert add(machine, producer, 0, 1, version=version, verify=True) == {0: 0, 1: ABORTABLE}
    assert partitions_of(machine) == (("t", 0),)


@pytest.mark.parametrize("verify", [True, False])
def test_of_partitions_that_are_named_together_one_that_is_not_there_stops_all(machine: Machine, verify: bool) -> None:
    assert add(machine, begin(machine), 0, 9, verify=verify) == {0: 55, 9: 3}


@pytest.mark.parametrize("version", [4, 5])
def test_offsets_of_an_old_epoch_are_refused_before_the_coordinator_is_asked(machine: Machine, version: int) -> None:
    producer = begin(machine)
    assert commit(machine, producer) == 0
    end(machine, producer)
    assert commit(machine, producer, name="unknown", version=version) == FENCED


def test_offsets_of_an_open_transaction_need_no_coordinator(machine: Machine) -> None:
    producer = begin(machine)
    assert commit(machine, producer) == 0
    assert commit(machine, producer, name="unknown") == 0
    newest = end(machine, producer)
    assert commit(machine, newest, name="unknown") == MAPPING
    assert machine.core.offsets.of("g")["t", 0].offset == 4


def test_of_offsets_those_hold_that_were_written_last_whichever_became_valid_first(machine: Machine) -> None:
    producer = begin(machine)
    assert commit(machine, producer) == 0
    assert store(machine, 9) == 0
    end(machine, producer)
    assert machine.core.offsets.of("g")["t", 0].offset == 9


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_partition_with_an_error_names_no_aborted_transactions(machine: Machine, version: int) -> None:
    answer = machine.ask(fetching(5, isolation_level=1), version)
    assert answer.responses[0].partitions[0].error_code == 1
    assert answer.responses[0].partitions[0].aborted_transactions is None
