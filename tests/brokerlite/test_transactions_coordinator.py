"""The coordinator of transactions, driven by hand: refusals and their reasons, timeouts, and failures of the disk."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing, TransactionCoordinator
from ottla.brokerlite.machines.transactions.transaction_metadata import (
    LAST_EPOCH,
    TransactionalIdState,
    TransactionMetadata,
)
from ottla.brokerlite.machines.transactions.transaction_settings import TransactionSettings
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaStorageError,
    ProducerFenced,
    TransactionAbortable,
)
from tests.brokerlite.machine import TODAY

PLACE, OTHER = ("t", 0), ("t", 1)
MINUTE = 60.0
DAY = 24 * 3600.0


class Office:
    """A coordinator, and everything that it has stored and marked; its disk and its partitions may refuse."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock.at(0.0, TODAY)
        self.timers = Timers()
        self.stored: list[tuple[TransactionMetadata, bool]] = []
        self.marked: list[TransactionMetadata] = []
        self.refuses: KafkaStorageError | None = None
        self.unmarked: tuple[TopicPartition, ...] = ()
        self.waiting: list[Callable[[], None]] | None = None
        """Callbacks that wait for the disk; ``None``: stores complete at once."""
        self.given = 100
        self.transactions = TransactionCoordinator(
            TransactionSettings(**settings),
            self.clock,
            self.timers,
            store=self._store,
            new_producer_id=self._new_producer_id,
            mark=self._mark,
            when_written=self._when_written,
        )

    def _store(self, transaction: TransactionMetadata, gone: bool) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.stored.append((transaction, gone))

    def _new_producer_id(self) -> int:
        if self.refuses is not None:
            raise self.refuses
        self.given += 1
        return self.given

    def _mark(self, transaction: TransactionMetadata) -> tuple[TopicPartition, ...]:
        self.marked.append(transaction)
        return self.unmarked

    def _when_written(self, then: Callable[[], None]) -> None:
        if self.waiting is None:
            then()
        else:
            self.waiting.append(then)

    def written(self) -> None:
        """The disk now holds everything."""
        while self.waiting:
            self.waiting.pop(0)()

    def tick(self, seconds: float) -> None:
        self.clock.now += seconds
        self.timers.expire(self.clock.now)

    def begin(self, name: str = "x", timeout: float = MINUTE, asked: tuple[int, int] | None = None) -> Producing:
        begun = self.transactions.initialize(name, round(timeout * 1000), asked)
        return Producing(name, begun.producer_id, begun.epoch)

    def open(self, *places: TopicPartition, version: int = 0, timeout: float = MINUTE) -> Producing:
        """A producer with an open transaction."""
        producer = self.begin(timeout=timeout)
        self.transactions.add(producer, places or (PLACE,), version)
        return producer

    def use_up_epochs(self) -> Producing:
        known = self.transactions.by_id["x"]
        self.transactions.by_id["x"] = known = replace(known, epoch=LAST_EPOCH)
        return Producing("x", known.producer_id, known.epoch)

    @property
    def known(self) -> TransactionMetadata:
        return self.transactions.by_id["x"]

    def state(self) -> TransactionalIdState:
        return self.known.state


def refused(error: type[BrokerError], ask: Callable[[], object]) -> str:
    """The text of the error that a request gets."""
    with pytest.raises(error) as caught:
        ask()
    return caught.value.detail


# -- InitProducerId


def test_a_transactional_id_gets_a_producer_id_of_its_own_with_epoch_0() -> None:
    office = Office()
    assert office.begin("x") == ("x", 101, 0) and office.begin("y") == ("y", 102, 0)
    assert office.begin("x") == ("x", 101, 1)
    assert [(each.transactional_id, each.epoch) for each, _ in office.stored] == [("x", 0), ("y", 0), ("x", 1)]


def test_an_empty_transactional_id_is_refused_by_every_request() -> None:
    office, nobody = Office(), Producing("", 101, 0)
    refused(InvalidRequest, lambda: office.begin(""))
    refused(InvalidRequest, lambda: office.transactions.add(nobody, [PLACE], 0))
    refused(InvalidRequest, lambda: office.transactions.verify(nobody, [PLACE]))
    refused(InvalidRequest, lambda: office.transactions.end(nobody, commit=True, version=0))


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 900.001])
def test_a_timeout_must_be_positive_and_no_longer_than_the_broker_allows(timeout: float) -> None:
    assert "the broker allows at most 900 s" in refused(
        InvalidTransactionTimeout, lambda: Office().begin(timeout=timeout)
    )


def test_the_longest_timeout_is_allowed() -> None:
    assert Office().begin(timeout=900.0).epoch == 0


def test_there_are_so_many_transactional_ids_and_no_more() -> None:
    office = Office(max_ids=2)
    office.begin("x")
    office.begin("y")
    assert "has 2 transactional ids" in refused(CoordinatorNotAvailable, lambda: office.begin("z"))
    assert office.begin("x").epoch == 1


def test_a_disk_that_refuses_changes_nothing() -> None:
    office = Office()
    office.refuses = KafkaStorageError("full")
    refused(CoordinatorNotAvailable, office.begin)
    assert not office.transactions.by_id
    office.refuses = None
    producer = office.open()
    office.refuses = KafkaStorageError("full")
    before = office.known
    refused(CoordinatorNotAvailable, office.begin)
    refused(CoordinatorNotAvailable, lambda: office.transactions.add(producer, [OTHER], 0))
    refused(CoordinatorNotAvailable, lambda: office.transactions.end(producer, commit=True, version=0))
    assert office.known == before and not office.marked


def test_a_producer_that_goes_on_must_be_the_last_one() -> None:
    office = Office()
    first = office.begin()
    second = office.begin(asked=first[1:])
    assert second.epoch == 1 and office.begin(asked=first[1:]) == second, "the first response was lost"
    office.begin()
    refused(ProducerFenced, lambda: office.begin(asked=first[1:]))
    assert "has producer id 101, not the producer's 7" in refused(ProducerFenced, lambda: office.begin(asked=(7, 2)))


def test_a_producer_whose_epochs_are_used_up_goes_on_with_its_old_id() -> None:
    office = Office()
    office.begin()
    used_up = office.use_up_epochs()
    assert office.begin(asked=used_up[1:]) == ("x", 102, 0) == office.begin(asked=used_up[1:])
    refused(ProducerFenced, lambda: office.begin(asked=(101, LAST_EPOCH - 1)))


def test_a_new_producer_aborts_what_the_one_before_left_open_and_comes_again() -> None:
    office = Office()
    old = office.open()
    assert "is being aborted" in refused(ConcurrentTransactions, office.begin)
    assert office.state() is TransactionalIdState.COMPLETE_ABORT and office.marked[0].partitions == (PLACE,)
    assert [each.epoch for each in office.marked] == [1], "so that nothing late is taken"
    assert office.begin().epoch == 2
    refused(ProducerFenced, lambda: office.transactions.add(old, [PLACE], 0))


def test_a_producer_that_was_fenced_by_a_new_one_that_never_came_again_may_go_on() -> None:
    office = Office()
    old = office.open()
    refused(ConcurrentTransactions, office.begin)
    assert office.begin(asked=old[1:]).epoch == 1


def test_a_producer_that_is_fenced_with_the_last_epoch_leaves_the_id_behind() -> None:
    office = Office()
    office.begin()
    office.transactions.add(office.use_up_epochs(), [PLACE], 0)
    refused(ConcurrentTransactions, office.begin)
    assert [(each.producer_id, each.epoch) for each in office.marked] == [(101, LAST_EPOCH + 1)]
    assert (office.known.producer_id, office.known.epoch) == (102, 0)


# -- AddPartitionsToTxn


@pytest.mark.parametrize("version", [0, 2])
def test_partitions_join_once_and_are_stored_once(version: int) -> None:
    office = Office()
    producer = office.open(PLACE, version=version)
    office.transactions.add(producer, [PLACE], version)
    assert len(office.stored) == 2, "for its producer, and for the first partition"
    office.transactions.add(producer, [PLACE, OTHER, OTHER], version)
    assert office.known.partitions == (PLACE, OTHER) and len(office.stored) == 3


def asking(office: Office, producer: Producing) -> list[Callable[[], object]]:
    """All requests of a producer about its transaction."""
    transactions = office.transactions
    return [
        lambda: transactions.add(producer, [PLACE], 0),
        lambda: transactions.add(producer, [PLACE], 2),
        lambda: transactions.verify(producer, [PLACE]),
        lambda: transactions.end(producer, commit=True, version=0),
        lambda: transactions.end(producer, commit=False, version=2),
    ]


def test_an_id_that_is_not_known_or_has_another_producer_id_is_no_mapping() -> None:
    office = Office()
    producer = office.open()
    for stranger in (producer._replace(transactional_id="y"), producer._replace(producer_id=7)):
        for ask in asking(office, stranger):
            refused(InvalidProducerIdMapping, ask)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_producer_with_another_epoch_is_fenced(epoch: int) -> None:
    office = Office()
    office.begin()
    producer = office.open()
    for ask in asking(office, producer._replace(epoch=epoch)):
        assert f"has epoch 1, not the producer's {epoch}" in refused(ProducerFenced, ask)


@pytest.mark.parametrize("version", [0, 2])
def test_while_a_transaction_is_being_ended_everybody_waits(version: int) -> None:
    office = Office()
    producer = office.open()
    office.waiting = []
    office.transactions.end(producer, commit=True, version=version)
    assert office.state() is TransactionalIdState.PREPARE_COMMIT
    newest = producer._replace(epoch=office.known.epoch)
    refused(ConcurrentTransactions, office.begin)
    refused(ConcurrentTransactions, lambda: office.transactions.add(newest, [PLACE], version))
    refused(ConcurrentTransactions, lambda: office.transactions.verify(newest, [PLACE]))
    again = "is being ended"
    assert again in refused(
        ConcurrentTransactions, lambda: office.transactions.end(producer, commit=True, version=version)
    )
    refused(ConcurrentTransactions, lambda: office.transactions.end(producer, commit=False, version=version))
    office.written()
    assert office.state() is TransactionalIdState.COMPLETE_COMMIT and office.begin()


def test_a_producer_that_never_had_the_id_is_fenced_also_while_a_transaction_is_being_ended() -> None:
    office = Office()
    producer = office.open()
    office.waiting = []
    office.transactions.end(producer, commit=True, version=0)
    refused(ProducerFenced, lambda: office.begin(asked=(7, 0)))


def test_the_epoch_that_a_producer_gets_with_the_outcome_does_not_end_the_next_transaction_before_that_begins() -> None:
    office = Office()
    producer = office.open(version=2)
    office.waiting = []
    _, epoch = office.transactions.end(producer, commit=True, version=2)
    newest = producer._replace(epoch=epoch)
    refused(ConcurrentTransactions, lambda: office.transactions.end(newest, commit=True, version=2))


def test_a_partition_that_did_not_join_is_not_verified() -> None:
    office = Office()
    producer = office.open(PLACE)
    found = office.transactions.verify(producer, [PLACE, OTHER])
    assert list(found) == [OTHER] and isinstance(found[OTHER], TransactionAbortable)
    assert found[OTHER].detail == "t-1 is not part of the transaction"


# -- EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_in_version_1_an_outcome_may_be_told_again_and_the_other_is_refused(commit: bool) -> None:
    office = Office()
    producer = office.open()
    for _ in range(2):
        assert office.transactions.end(producer, commit=commit, version=0) == producer[1:]
    assert [each.commits for each in office.marked] == [commit]
    refused(InvalidTxnState, lambda: office.transactions.end(producer, commit=not commit, version=0))


@pytest.mark.parametrize("commit", [True, False])
def test_in_version_2_an_outcome_may_be_told_again_and_the_other_is_refused(commit: bool) -> None:
    office = Office()
    producer = office.open(version=2)
    for _ in range(2):
        assert office.transactions.end(producer, commit=commit, version=2) == (101, 1)
    assert [each.commits for each in office.marked] == [commit]
    refused(InvalidTxnState, lambda: office.transactions.end(producer, commit=not commit, version=2))


def test_in_version_2_an_outcome_that_used_up_the_epochs_may_be_told_again() -> None:
    office = Office()
    office.begin()
    producer = office.use_up_epochs()
    office.transactions.add(producer, [PLACE], 2)
    for _ in range(2):
        assert office.transactions.end(producer, commit=True, version=2) == (102, 0)
    office.transactions.add(Producing("x", 102, 0), [PLACE], 2)
    refused(InvalidProducerIdMapping, lambda: office.transactions.end(producer, commit=True, version=2))


def test_the_epoch_before_is_known_again_to_version_2_only() -> None:
    office = Office()
    producer = office.open(version=2)
    office.transactions.end(producer, commit=True, version=2)
    refused(ProducerFenced, lambda: office.transactions.end(producer, commit=True, version=0))


@pytest.mark.parametrize(("commit", "version"), [(True, 0), (False, 0), (True, 2)])
def test_there_is_nothing_to_end_before_the_first_partition(commit: bool, version: int) -> None:
    office = Office()
    producer = office.begin()
    why = refused(InvalidTxnState, lambda: office.transactions.end(producer, commit=commit, version=version))
    assert why.startswith("x is in state Empty")


def test_in_version_2_nothing_may_be_aborted_any_number_of_times_and_gets_a_new_epoch_each() -> None:
    office = Office()
    producer = office.begin()
    for epoch in (1, 2, 3):
        _, new = office.transactions.end(producer, commit=False, version=2)
        assert new == epoch and office.state() is TransactionalIdState.COMPLETE_ABORT
        producer = producer._replace(epoch=new)
    refused(InvalidTxnState, lambda: office.transactions.end(producer, commit=True, version=2))


def test_in_version_2_a_commit_without_partitions_is_refused_and_an_abort_is_not_also_after_a_commit() -> None:
    office = Office()
    producer = office.open(version=2)
    _, epoch = office.transactions.end(producer, commit=True, version=2)
    newest = producer._replace(epoch=epoch)
    refused(InvalidTxnState, lambda: office.transactions.end(newest, commit=True, version=2))
    assert office.transactions.end(newest, commit=False, version=2) == (101, 2)


# -- timeouts


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    office = Office()
    producer = office.open(timeout=10.0)
    office.tick(9.9)
    assert office.state() is TransactionalIdState.ONGOING
    office.tick(0.1)
    assert office.state() is TransactionalIdState.COMPLETE_ABORT and [each.commits for each in office.marked] == [False]
    refused(ProducerFenced, lambda: office.transactions.end(producer, commit=True, version=0))
    refused(InvalidTxnState, lambda: office.transactions.end(producer, commit=True, version=2))


def test_the_time_counts_from_the_first_partition_on_and_ends_with_the_transaction() -> None:
    office = Office()
    producer = office.open(timeout=10.0)
    office.tick(6.0)
    office.transactions.add(producer, [OTHER], 0)
    office.transactions.end(producer, commit=True, version=0)
    office.transactions.add(producer, [PLACE], 0)
    office.tick(6.0)
    assert office.state() is TransactionalIdState.ONGOING
    office.tick(4.0)
    assert office.state() is TransactionalIdState.COMPLETE_ABORT


def test_a_transaction_that_takes_too_long_while_the_disk_refuses_is_aborted_later() -> None:
    office = Office()
    office.open(timeout=10.0)
    office.refuses = KafkaStorageError("full")
    office.tick(10.0)
    assert office.state() is TransactionalIdState.ONGOING
    office.refuses = None
    office.tick(1.0)
    assert office.state() is TransactionalIdState.COMPLETE_ABORT


def test_partitions_that_the_disk_refused_get_their_marker_later_and_the_others_no_second_one() -> None:
    office = Office()
    producer = office.open(PLACE, OTHER)
    office.unmarked = (OTHER,)
    office.transactions.end(producer, commit=True, version=0)
    assert office.state() is TransactionalIdState.PREPARE_COMMIT
    office.unmarked = ()
    office.tick(1.0)
    assert office.state() is TransactionalIdState.COMPLETE_COMMIT
    assert [each.partitions for each in office.marked] == [(PLACE, OTHER), (OTHER,)]


def test_an_end_that_could_not_be_stored_is_stored_later() -> None:
    office = Office()
    producer = office.open()
    office.waiting = []
    office.transactions.end(producer, commit=True, version=0)
    office.refuses = KafkaStorageError("full")
    office.written()
    assert office.state() is TransactionalIdState.PREPARE_COMMIT
    office.refuses, office.waiting = None, None
    office.tick(1.0)
    assert office.state() is TransactionalIdState.COMPLETE_COMMIT


def test_after_a_start_outcomes_get_their_markers_and_open_transactions_their_time() -> None:
    office = Office()
    known = {
        "decided": TransactionalIdState.PREPARE_ABORT,
        "open": TransactionalIdState.ONGOING,
        "overdue": TransactionalIdState.ONGOING,
        "done": TransactionalIdState.COMPLETE_COMMIT,
    }
    for i, (name, state) in enumerate(known.items()):
        office.transactions.by_id[name] = TransactionMetadata(
            transactional_id=name,
            producer_id=i,
            epoch=0,
            timeout_ms=10_000,
            state=state,
            partitions=(PLACE,),
            started=TODAY - (60_000 if name == "overdue" else 4_000),
        )
    office.transactions.resume(0.0)
    assert [each.transactional_id for each in office.marked] == ["decided"]
    office.tick(0.0)
    assert [each.transactional_id for each in office.marked] == ["decided", "overdue"]
    office.tick(5.9)
    assert len(office.marked) == 2
    office.tick(0.1)
    assert [each.transactional_id for each in office.marked] == ["decided", "overdue", "open"]
    assert {each.state for each in office.transactions.by_id.values()} == {
        TransactionalIdState.COMPLETE_ABORT,
        TransactionalIdState.COMPLETE_COMMIT,
    }


def test_an_id_that_nobody_used_for_long_is_forgotten_unless_a_transaction_is_open() -> None:
    office = Office(expiration=7 * DAY, expiration_check=3600.0)
    office.open(timeout=900.0)
    office.transactions.by_id["open"] = replace(office.known, transactional_id="open", timeout_ms=2**31 - 1)
    office.begin("used")
    for _ in range(7 * 24 - 1):
        office.tick(3600.0)
    office.begin("used")
    assert set(office.transactions.by_id) == {"x", "open", "used"}
    office.tick(7200.0)
    assert set(office.transactions.by_id) == {"open", "used"}
    assert [each.transactional_id for each, gone in office.stored if gone] == ["x"]


def test_an_expired_id_stays_while_the_disk_refuses() -> None:
    office = Office(expiration=10.0, expiration_check=60.0)
    office.begin()
    office.refuses = KafkaStorageError("full")
    office.tick(60.0)
    assert office.known.epoch == 0
    office.refuses = None
    office.tick(60.0)
    assert not office.transactions.by_id
