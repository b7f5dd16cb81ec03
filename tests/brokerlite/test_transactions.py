"""Transactions through the whole machine: the records that readers get, restarts, and requests that wait."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS
from ottla.brokerlite.machines.transactions.transaction_metadata import TransactionalIdState
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.list_transactions import ListTransactionsRequest
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.codec.records import read_batches
from ottla.errors import InvalidTopic, KafkaStorageError
from tests.brokerlite.machine import Machine, a_batch, fetching, producing, values_of
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.test_group_log import commit as plain_commit

V1, V2 = 11, 12
"""Versions of Produce: the last before partitions are added implicitly, and the newest."""


class Producing:
    """A transactional producer whose requests the test sends."""

    def __init__(self, machine: Machine, name: str = "t-1", *, version: int = V2, timeout_ms: int = 60_000) -> None:
        self.machine, self.name, self.version = machine, name, version
        self.sequences: dict[int, int] = {}
        self.timeout_ms = timeout_ms
        self.error = self.begin()

    def begin(self) -> int:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        answer = self.machine.ask(request, 4)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return int(answer.error_code)

    def write(self, *values: bytes, partition: int = 0) -> int:
        if self.version < V2:
            self.add(partition)
        sequence = self.sequences.get(partition, 0)
        batch = a_batch(
            *values,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        answer = self.machine.ask(producing(batch, partition=partition, transactional_id=self.name), self.version)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequences[partition] = sequence + len(values)
        return code

    def add(self, partition: int) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=(partition,)),),
        )
        answer = self.machine.ask(request, 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def commit_offset(self, offset: int, group: str = "g") -> int:
        if self.version < V2:
            self.machine.ask(
                AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=group,
                ),
                3,
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=(
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=None
                        ),
                    ),
                ),
            ),
        )
        answer = self.machine.ask(request, 5 if self.version >= V2 else 4)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        answer = self.machine.ask(request, 5 if self.version >= V2 else 4)
        if not answer.error_code and self.version >= V2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def read(machine: Machine, *, committed: bool, offset: int = 0, partition: int = 0) -> Any:
    answer = machine.ask(fetching(offset, partitions=(partition,), wait=0, isolation_level=int(committed)))
    return answer.responses[0].partitions[0]


def seen(machine: Machine, partition: int = 0) -> list[bytes | None]:
    """The values that a read_committed reader gets."""
    answer = read(machine, committed=True, partition=partition)
    begun = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions}
    aborting: set[int] = set()
    values: list[bytes | None] = []
    for batch in read_batches(answer.records):
        if (batch.producer_id, batch.base_offset) in begun:
            aborting.add(batch.producer_id)
        if batch.control:
            aborting.discard(batch.producer_id)
        elif batch.producer_id not in aborting:
            values += [record.value for record in batch.records()]
    return values


def end_offset(machine: Machine, *, committed: bool) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=(ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(partition_index=0, timestamp=LATEST),)),),
    )
    return int(machine.ask(request, 5).topics[0].partitions[0].offset)


def state_of(machine: Machine) -> TransactionalIdState:
    return machine.core.transactions.by_id["t-1"].state


def committed_offset(machine: Machine, *, stable: bool = True) -> tuple[int, int]:
    """Error and offset."""
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id="g", topics=(topic,)),), require_stable=stable
    )
    each = machine.ask(request, 8).groups[0].topics[0].partitions[0]
    return each.error_code, each.committed_offset


# -- readers


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_whole_or_absent_for_a_committed_reader(machine: Machine, version: int, commit: bool) -> None:
    machine.produce(a_batch(b"before"))
    producer = Producing(machine, version=version)
    assert [producer.write(b"a", b"b"), producer.write(b"c", partition=1)] == [0, 0]
    machine.produce(a_batch(b"between"))
    assert seen(machine) == [b"before"] and seen(machine, 1) == []
    assert values_of(read(machine, committed=False).records) == [b"before", b"a", b"b", b"between"]
    assert (end_offset(machine, committed=True), end_offset(machine, committed=False)) == (1, 4)
    assert producer.end(commit=commit) == 0
    assert seen(machine) == [b"before", *([b"a", b"b"] if commit else []), b"between"]
    assert seen(machine, 1) == ([b"c"] if commit else [])
    assert end_offset(machine, committed=True) == end_offset(machine, committed=False) == 5


def test_a_committed_reader_is_told_of_aborted_transactions_among_its_records_only(machine: Machine) -> None:
    producer = Producing(machine)
    for i in range(5):
        assert producer.write(b"%d" % i) == 0 and producer.end(commit=i % 2 == 0) == 0
    assert [each.first_offset for each in read(machine, committed=True).aborted_transactions] == [2, 6]
    assert [each.first_offset for each in read(machine, committed=True, offset=4).aborted_transactions] == [6]
    assert read(machine, committed=True, offset=8).aborted_transactions == ()
    assert read(machine, committed=False).aborted_transactions is None
    assert seen(machine) == [b"0", b"2", b"4"]


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(machine: Machine) -> None:
    one, two = Producing(machine, "one"), Producing(machine, "two")
    for producer, value in ((one, b"1"), (two, b"2"), (one, b"3")):
        assert producer.write(value) == 0
    assert two.end(commit=True) == 0
    assert read(machine, committed=True).last_stable_offset == 0 and seen(machine) == []
    assert one.end(commit=False) == 0
    assert read(machine, committed=True).last_stable_offset == 5 and seen(machine) == [b"2"]


def test_a_waiting_committed_reader_is_woken_by_the_marker_and_not_by_records(machine: Machine) -> None:
    producer = Producing(machine)
    both = [machine.send(fetching(wait=30, isolation_level=level), connection=level + 2) for level in (0, 1)]
    batch = a_batch(b"x", transactional=True, producer_id=producer.producer_id, producer_epoch=0, base_sequence=0)
    produce = machine.send(producing(batch, transactional_id="t-1"), V2)
    assert {action.ticket for action in machine.poll()} == {produce, both[0]}
    end = machine.send(
        EndTxnRequest(transactional_id="t-1", producer_id=producer.producer_id, producer_epoch=0, committed=True), 5
    )
    answers = {action.ticket: action for action in machine.poll()}
    assert set(answers) == {end, both[1]}
    woken = answers[both[1]]
    assert isinstance(woken, Answer) and values_of(woken.message.responses[0].partitions[0].records)[0] == b"x"


def test_bytes_of_an_open_transaction_do_not_count_for_min_bytes_of_a_committed_reader(machine: Machine) -> None:
    producer = Producing(machine)
    assert producer.write(bytes(5000)) == 0
    waiting = machine.send(fetching(wait=30, min_bytes=1000, isolation_level=1), connection=2)
    machine.produce(a_batch(bytes(5000)))
    assert machine.poll() == []
    end = machine.send(
        EndTxnRequest(transactional_id="t-1", producer_id=producer.producer_id, producer_epoch=0, committed=True), 5
    )
    assert {action.ticket for action in machine.poll()} == {waiting, end}


# -- offsets


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("restart", [None, True, False], ids=["", "restarted", "killed"])
def test_offsets_hold_when_their_transaction_commits(
    machine: Machine, version: int, commit: bool, restart: bool | None
) -> None:
    producer = Producing(machine, version=version)
    assert producer.commit_offset(7) == 0 and producer.write(b"out") == 0
    assert committed_offset(machine) == (88, -1) and committed_offset(machine, stable=False) == (0, -1)
    if restart is not None:
        machine = producer.machine = machine.restart(clean=restart)
        assert committed_offset(machine) == (88, -1)
    assert producer.end(commit=commit) == 0
    expected = (0, 7) if commit else (0, -1)
    assert committed_offset(machine) == expected
    machine = machine.restart(clean=False)
    assert committed_offset(machine) == expected and seen(machine) == ([b"out"] if commit else [])
    machine.folder.abandon()


def test_of_two_commits_the_one_that_was_written_later_holds(machine: Machine) -> None:
    one, two = Producing(machine, "one"), Producing(machine, "two")
    assert one.commit_offset(1) == 0
    plain_commit(machine, 5)
    assert one.end(commit=True) == 0 and committed_offset(machine) == (0, 5)
    assert one.commit_offset(6) == two.commit_offset(7) == 0
    assert two.end(commit=True) == 0 and one.end(commit=True) == 0
    assert committed_offset(machine) == (0, 7)
    machine = machine.restart(clean=False)
    assert committed_offset(machine) == (0, 7)
    machine.folder.abandon()


# -- fencing, timeouts, restarts


def test_a_second_producer_fences_the_first_and_aborts_what_it_left_open(machine: Machine, version: int) -> None:
    first = Producing(machine, version=version)
    assert first.write(b"lost") == 0
    second = Producing(machine, version=version)
    assert second.error == 51, "the open transaction is aborted first"
    assert second.begin() == 0 and second.producer_id == first.producer_id and second.epoch == first.epoch + 2
    assert first.write(b"late") == 47 and first.end(commit=True) == 90
    assert second.write(b"new") == 0 and second.end(commit=True) == 0
    assert seen(machine) == [b"new"]


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(machine: Machine, version: int) -> None:
    producer = Producing(machine, version=version, timeout_ms=1000)
    assert producer.write(b"slow") == 0
    machine.now += 0.9
    machine.poll()
    assert state_of(machine) is TransactionalIdState.ONGOING
    machine.now += 0.2
    machine.poll()
    assert state_of(machine) is TransactionalIdState.COMPLETE_ABORT
    assert seen(machine) == [] and read(machine, committed=True).last_stable_offset == 2
    assert producer.write(b"late") == 47


@pytest.mark.parametrize("clean", [True, False], ids=["restarted", "killed"])
def test_an_open_transaction_goes_on_after_a_restart_or_is_aborted_in_time(machine: Machine, clean: bool) -> None:
    goes_on, is_left = Producing(machine, "goes-on"), Producing(machine, "is-left", timeout_ms=30_000)
    assert goes_on.write(b"1") == is_left.write(b"2") == 0
    machine = goes_on.machine = machine.restart(clean=clean)
    assert read(machine, committed=True).last_stable_offset == 0
    assert goes_on.write(b"3") == 0 and goes_on.end(commit=True) == 0
    assert seen(machine) == [b"1"], "the other transaction still holds back the records behind it"
    machine.now += 31
    machine.poll()
    assert seen(machine) == [b"1", b"3"]
    again = machine.restart(clean=False)
    assert seen(again) == [b"1", b"3"], "the index names the aborted transaction"
    again.folder.abandon()


def test_a_transaction_that_was_decided_before_a_kill_is_whole_after_it(machine: Machine) -> None:
    producer = Producing(machine)
    assert producer.write(b"a") == producer.write(b"b", partition=1) == 0
    machine.core.transactions._ends._mark = lambda transaction: transaction.partitions  # as if the kill came here
    assert producer.end(commit=True) == 0
    assert seen(machine) == []
    machine = machine.restart(clean=False)
    assert seen(machine) == [b"a"] and seen(machine, 1) == [b"b"]
    assert machine.core.transactions.by_id["t-1"].state is TransactionalIdState.COMPLETE_COMMIT
    machine.folder.abandon()


def test_a_marker_that_the_disk_refuses_is_written_later_and_meanwhile_the_next_transaction_waits(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producing(machine)
    assert producer.write(b"a") == 0

    def full(*_: Any, **__: Any) -> None:
        raise KafkaStorageError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(machine.log(), "end_transaction", full, raising=False)
        assert producer.end(commit=True) == 0
    assert machine.core.transactions.by_id["t-1"].state is TransactionalIdState.PREPARE_COMMIT
    assert producer.write(b"too soon") == 51 and seen(machine) == []
    machine.now += 1.1
    machine.poll()
    assert seen(machine) == [b"a"] and producer.write(b"b") == 0


def test_a_marker_that_the_disk_lost_is_written_at_the_next_start(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut may cause this: the coordinator's log was on the disk, but the marker was not."""
    committed, aborted = Producing(machine, "committed"), Producing(machine, "aborted")
    assert committed.write(b"a") == aborted.write(b"b", partition=1) == 0
    machine.core.transactions._ends._mark = lambda transaction: ()
    assert committed.end(commit=True) == aborted.end(commit=False) == 0
    machine = machine.restart(clean=False)
    assert seen(machine) == [b"a"] and seen(machine, 1) == []
    assert read(machine, committed=True, partition=1).last_stable_offset == 2
    assert "t-0 has a transaction that is not open at its coordinator: committed" in caplog.text
    machine.folder.abandon()


@pytest.mark.parametrize("knows", [False, True], ids=["of no transaction", "of another partition"])
def test_what_a_coordinator_does_not_know_to_be_open_is_part_of_the_transaction_after_a_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    """A power cut may cause this: the batch was on the disk, but not the coordinator's record from before it."""
    producer = Producing(machine, timeout_ms=1000)
    assert producer.write(b"a") == producer.end(commit=True) == 0
    if knows:
        assert producer.write(b"b", partition=1) == 0
    with monkeypatch.context() as patch:
        patch.setattr(machine.core.transactions, "add", lambda *_: None)
        assert producer.write(b"c") == 0
    machine = machine.restart(clean=False)
    transaction = machine.core.transactions.by_id["t-1"]
    assert transaction.state is TransactionalIdState.ONGOING and ("t", 0) in transaction.partitions
    assert seen(machine) == [b"a"]
    machine.pass_time(2.0)
    assert seen(machine) == [b"a"] and read(machine, committed=True).last_stable_offset == machine.log().end_offset
    machine.folder.abandon()


def test_what_a_coordinator_did_not_know_is_committed_with_the_rest_though_the_disk_was_full_at_the_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producing(machine)
    with monkeypatch.context() as patch:
        patch.setattr(machine.core.transactions, "add", lambda *_: None)
        assert producer.write(b"a") == 0

    def full(*_: Any, **__: Any) -> None:
        raise KafkaStorageError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(KeyedLog, "write", full)
        machine = machine.restart(clean=False)
    producer.machine = machine
    assert producer.write(b"b", partition=1) == producer.end(commit=True) == 0
    assert seen(machine) == [b"a"] and seen(machine, 1) == [b"b"]
    machine.folder.abandon()


def test_transactional_ids_are_forgotten_a_week_after_their_last_use(machine: Machine) -> None:
    producer = Producing(machine)
    assert producer.write(b"a") == 0 and producer.end(commit=True) == 0
    machine.now += 6.9 * 24 * 3600
    machine.poll()
    assert "t-1" in machine.core.transactions.by_id
    machine.now += 0.2 * 24 * 3600
    machine.poll()
    assert not machine.core.transactions.by_id
    machine = machine.restart(clean=False)
    assert not machine.core.transactions.by_id
    machine.folder.abandon()


# -- administrators


def test_what_is_open_is_described_and_can_be_ended(machine: Machine) -> None:
    producer = Producing(machine, timeout_ms=60_000)
    assert producer.write(b"a", b"b") == 0
    (listed,) = machine.ask(ListTransactionsRequest(state_filters=(), producer_id_filters=())).transaction_states
    assert (listed.transactional_id, listed.transaction_state) == ("t-1", "Ongoing")
    filtered = ListTransactionsRequest(state_filters=("Empty", "Nonsense"), producer_id_filters=())
    answer = machine.ask(filtered)
    assert answer.transaction_states == () and answer.unknown_state_filters == ("Nonsense",)
    states = machine.ask(DescribeTransactionsRequest(transactional_ids=("t-1", "no-such", ""))).transaction_states
    assert [each.error_code for each in states] == [0, 105, 42]
    assert [(each.topic, each.partitions) for each in states[0].topics] == [("t", (0,))]
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0, 9)),))
    known, unknown = machine.ask(request).topics[0].partitions
    (state,) = known.active_producers
    assert (state.producer_id, state.last_sequence, state.current_txn_start_offset) == (producer.producer_id, 1, 0)
    assert unknown.error_code == 3
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0, 9)),),
        coordinator_epoch=5,
    )
    (result,) = machine.ask(WriteTxnMarkersRequest(markers=(marker,)), 1).markers
    assert [each.error_code for each in result.topics[0].partitions] == [0, 3]
    assert seen(machine) == [] and read(machine, committed=True).last_stable_offset == 3
    older = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
        coordinator_epoch=4,
    )
    (result,) = machine.ask(WriteTxnMarkersRequest(markers=(older,)), 1).markers
    assert [each.error_code for each in result.topics[0].partitions] == [52]


def test_the_internal_topics_are_the_brokers_own(machine: Machine) -> None:
    producer = Producing(machine)
    assert producer.commit_offset(1) == 0
    request = producing(
        a_batch(transactional=True, producer_id=producer.producer_id, producer_epoch=0, base_sequence=0),
        topic=CONSUMER_OFFSETS,
        transactional_id="t-1",
    )
    assert machine.ask(request, V2).responses[0].partition_responses[0].error_code == 17


# -- combinations


@pytest.mark.parametrize("refused", [".txnindex", ".log"])
def test_an_abort_that_the_disk_refused_once_is_told_to_readers(tmp_path: Path, refused: str) -> None:
    disk = ModelDisk()
    machine = Machine(tmp_path / "data", disk=disk)
    machine.core.create_topic("t", 1, {})
    producer = Producing(machine)
    assert producer.write(b"aborted") == 0
    disk.fails = lambda operation, path: path.parent.name == "t-0" and path.suffix == refused
    assert producer.end(commit=False) == 0
    assert state_of(machine) is TransactionalIdState.PREPARE_ABORT
    disk.fails = lambda operation, path: False
    machine.pass_time(5)
    machine.produce(a_batch(b"after"))
    assert seen(machine) == [b"after"]
    machine = machine.restart()
    assert seen(machine) == [b"after"]


def test_offsets_that_were_deleted_do_not_come_back_with_a_transaction(machine: Machine) -> None:
    producer = Producing(machine)
    assert producer.commit_offset(4711) == 0
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    machine = producer.machine = machine.restart(clean=False)
    assert producer.end(commit=True) == 0
    assert machine.core.offsets.of("g") == {}
    machine.folder.abandon()


def test_the_last_stable_offset_is_not_before_the_log(machine: Machine) -> None:
    producer = Producing(machine)
    assert producer.write(b"a", b"b") == 0
    machine.produce(a_batch(b"c"))
    machine.core.set_start_offsets({("t", 0): 2}, lambda refused: None)
    machine.poll()
    assert end_offset(machine, committed=True) == 2
    assert read(machine, committed=True, offset=2).error_code == 0


def test_a_marker_of_an_administrator_does_not_fence_the_coordinator(machine: Machine) -> None:
    producer = Producing(machine, version=V1)
    assert producer.write(b"a") == 0
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
        coordinator_epoch=1000,
    )
    machine.ask(WriteTxnMarkersRequest(markers=(marker,)), 1)
    assert producer.write(b"b") == 0 and producer.end(commit=True) == 0
    assert seen(machine) == [b"b"]


def test_a_clock_that_was_set_back_leaves_no_transaction_open(machine: Machine) -> None:
    producer = Producing(machine, timeout_ms=60_000)
    assert producer.write(b"a") == 0
    transaction = machine.core.transactions.by_id["t-1"]
    machine.core.transactions.by_id["t-1"] = replace(transaction, started=transaction.started + 24 * 3_600_000)
    machine.core.transactions.resume(machine.now)
    machine.pass_time(61)
    assert state_of(machine) is TransactionalIdState.COMPLETE_ABORT


def test_a_client_cannot_make_a_topic_that_stands_in_the_way_of_the_brokers_own(machine: Machine) -> None:
    for name in ("__consumer.offsets", "__transaction.state"):
        with pytest.raises(InvalidTopic, match="collides"):
            machine.core.create_topic(name, 1, {})
    assert Producing(machine).commit_offset(1) == 0
