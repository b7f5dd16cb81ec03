"""A broker whose acknowledgements survive a power cut: clients see a record only once the disk holds it."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.machines.core import Answer, CloseConnection
from ottla.brokerlite.machines.transactions import transaction_coordinator, transaction_ends, transaction_metadata
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing
from ottla.brokerlite.machines.transactions.transaction_metadata import TransactionalIdState
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.errors import ConcurrentTransactions
from ottla.testing import Broker
from tests.brokerlite.machine import Machine, a_batch, fetching, producing, values_of
from tests.brokerlite.peer import Peer


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "data", sync=True)
    machine.core.create_topic("t", 3, {})
    yield machine
    machine.folder.abandon()


@contextmanager
def always(path: Path) -> Iterator[Broker]:
    broker = Broker(BrokerConfig(port=0, data=path / "data", sync=Sync.ALWAYS))
    try:
        yield broker
    finally:
        broker.stop()


def hold(machine: Machine) -> None:
    writes = machine.core.unsynced
    assert writes is not None
    machine.folder.begin_flush()()
    machine.core.synced(writes, machine.now)


def test_an_acknowledgement_waits_for_the_disk_and_so_does_everything_behind_it(machine: Machine) -> None:
    produced = machine.send(producing(a_batch(b"a")))
    fetched = machine.send(fetching(wait=0), connection=2)
    assert machine.poll() == [] and machine.core.unsynced is not None
    hold(machine)
    answers = machine.poll()
    assert [each.ticket for each in answers] == [produced, fetched]
    assert isinstance(answers[1], Answer) and values_of(answers[1].message.responses[0].partitions[0].records) == [b"a"]
    assert machine.core.unsynced is None
    machine.send(fetching(wait=0))
    assert len(machine.poll()) == 1, "no record was written since"


def test_what_is_written_while_the_disk_is_busy_waits_for_the_next_time(machine: Machine) -> None:
    first = machine.send(producing(a_batch(b"a")))
    writes, flush = machine.core.unsynced, machine.folder.begin_flush()
    second = machine.send(producing(a_batch(b"b")))
    flush()
    assert writes is not None
    machine.core.synced(writes, machine.now)
    assert [each.ticket for each in machine.poll()] == [first]
    hold(machine)
    assert [each.ticket for each in machine.poll()] == [second]


def test_a_disk_that_does_not_hold_it_ends_the_connections_that_wait(machine: Machine) -> None:
    machine.send(producing(a_batch(b"a")))
    writes = machine.core.unsynced
    assert writes is not None
    machine.core.synced(writes, machine.now, failed=True)
    (action,) = machine.poll()
    assert isinstance(action, CloseConnection) and "the disk refused" in action.why


@pytest.mark.parametrize(
    "again", [producing(a_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)), fetching()]
)
def test_once_the_disk_has_failed_neither_a_repeat_nor_a_reader_is_told_of_what_it_may_not_hold(
    machine: Machine, again: Any
) -> None:
    machine.send(producing(a_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)))
    writes = machine.core.unsynced
    assert writes is not None
    machine.core.synced(writes, machine.now, failed=True)
    machine.poll()
    machine.send(again)
    (action,) = machine.poll()
    assert isinstance(action, CloseConnection) and "the disk refused" in action.why
    assert machine.core.unsynced is None, "there is nothing left to wait for"


def test_the_markers_of_a_transaction_wait_for_its_outcome_to_be_on_the_disk(machine: Machine) -> None:
    transactions = machine.core.transactions
    begun = transactions.initialize("t-1", 60_000, None)
    batch = a_batch(b"x", transactional=True, producer_id=begun.producer_id, producer_epoch=0, base_sequence=0)
    machine.send(producing(batch, transactional_id="t-1"), 12)
    transactions.end(Producing("t-1", begun.producer_id, 0), commit=True, version=2)
    states = []
    for _ in range(3):
        states.append((transactions.by_id["t-1"].state, machine.log().last_stable_offset))
        if machine.core.unsynced is not None:
            hold(machine)
    assert states == [
        (TransactionalIdState.PREPARE_COMMIT, 0),
        (TransactionalIdState.PREPARE_COMMIT, 2),
        (TransactionalIdState.COMPLETE_COMMIT, 2),
    ]
    machine.poll()
    machine.send(fetching(wait=0, isolation_level=1))
    hold(machine)  # the last record of the transaction; no request waits for it
    (answer,) = machine.poll()
    assert isinstance(answer, Answer)
    assert values_of(answer.message.responses[0].partitions[0].records)[:1] == [b"x"]


def test_a_broker_that_always_syncs_has_each_record_on_the_disk_before_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    fsync: Callable[[Any], None] = os.fsync

    def counted(descriptor: int) -> None:
        calls.append(threading.current_thread().name)
        fsync(descriptor)

    with always(tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        monkeypatch.setattr(os, "fsync", counted)
        with Peer(broker.port) as peer:
            for i in range(20):
                answer = peer.ask(producing(a_batch(b"%d" % i)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
        assert len(calls) >= 20, "each was on the disk before the next was sent"
        assert threading.main_thread().name not in calls
    with always(tmp_path) as broker, Peer(broker.port) as peer:
        answer = peer.ask(fetching(wait=0), 11)
        assert len(values_of(answer.responses[0].partitions[0].records)) == 20


def test_deleted_records_are_noted_on_the_disk_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "data/log-start-offset-checkpoint"
    synced = list[bytes]()
    fsync: Callable[[Any], None] = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(noted.read_bytes() if noted.exists() else b"")
        fsync(descriptor)

    with always(tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        with Peer(broker.port) as peer:
            peer.ask(producing(a_batch(b"a", b"b", b"c")), 9)
            monkeypatch.setattr(os, "fsync", watched)
            asked = DeleteRecordsPartition(partition_index=0, offset=2)
            topics = (DeleteRecordsTopic(name="t", partitions=(asked,)),)
            answer = peer.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
            assert answer.topics[0].partitions[0].low_watermark == 2
            assert b"\nt 0 2\n" in synced[-1], "the topic's name as well"


def test_a_topic_that_is_made_waits_for_the_disk(machine: Machine) -> None:
    machine.send(fetching(wait=0))
    hold(machine)
    machine.poll()
    machine.core.create_topic("u", 1, {})
    machine.send(fetching(topic="u", wait=0))
    assert machine.poll() == []
    hold(machine)
    assert len(machine.poll()) == 1


def test_what_a_start_has_found_waits_for_the_disk_before_anybody_is_told_of_it(machine: Machine) -> None:
    machine.send(fetching(wait=0))
    assert machine.poll() == []
    hold(machine)
    assert len(machine.poll()) == 1


def test_a_producer_that_has_its_next_id_while_its_transaction_is_being_ended_is_asked_to_try_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (transaction_metadata, transaction_coordinator, transaction_ends):
        monkeypatch.setattr(module, "LAST_EPOCH", 0)
    known = machine.core.transactions
    begun = known.initialize("t-1", 60_000, None)
    known.add(Producing("t-1", begun.producer_id, 0), [("t", 0)], 2)
    next_id, epoch = known.end(Producing("t-1", begun.producer_id, 0), commit=True, version=2)
    assert next_id != begun.producer_id
    with pytest.raises(ConcurrentTransactions):
        known.add(Producing("t-1", next_id, epoch), [("t", 0)], 2)
    while machine.core.unsynced is not None:
        hold(machine)
    known.add(Producing("t-1", next_id, epoch), [("t", 0)], 2)
