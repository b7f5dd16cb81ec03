"""One transactional id: every cell of its table, and the changes of its producer id and epochs."""

import pytest

from ottla.brokerlite.machines.transactions.transaction_metadata import (
    LAST_EPOCH,
    NO_EPOCH,
    TRANSITIONS,
    TransactionalIdState,
    TransactionInput,
    TransactionMetadata,
)
from ottla.errors import InvalidTxnState, ProducerFenced

THEN, NOW = 1_000, 2_000
PLACE = ("t", 0)
OTHER = ("t", 1)
NEW_ID = 88


def a_transaction(state: TransactionalIdState = TransactionalIdState.EMPTY, **changes: object) -> TransactionMetadata:
    """Producer 7 with epoch 3."""
    open_ = state in (
        TransactionalIdState.ONGOING,
        TransactionalIdState.PREPARE_COMMIT,
        TransactionalIdState.PREPARE_ABORT,
    )
    known: dict[str, object] = {
        "producer_id": 7,
        "epoch": 3,
        "state": state,
        "partitions": (PLACE,) if open_ else (),
        "started": -1 if state is TransactionalIdState.EMPTY else THEN,
        "updated": THEN,
    }
    return TransactionMetadata(transactional_id="x", timeout_ms=60_000, **known | changes)  # type: ignore[arg-type]


def after(known: TransactionMetadata, event: TransactionInput, version: int = 0) -> TransactionMetadata:
    match event:
        case TransactionInput.INITIALIZED:
            return known.given_out(None, 60_000, NEW_ID, NOW)
        case TransactionInput.ADDED:
            return known.with_partitions((OTHER,), version, NOW)
        case TransactionInput.MARKED:
            return known.completed(NOW)
        case TransactionInput.LOST:
            return known.gone_on_from(9, NOW)
    return known.decided(event is TransactionInput.COMMITTED, version, NEW_ID, NOW)


@pytest.mark.parametrize("event", TransactionInput)
@pytest.mark.parametrize("state", TransactionalIdState)
def test_a_state_changes_as_the_table_says_and_in_no_other_way(
    state: TransactionalIdState, event: TransactionInput
) -> None:
    known = a_transaction(state)
    if (state, event) in TRANSITIONS:
        changed = after(known, event)
        assert (changed.state, changed.updated) == (TRANSITIONS[state, event], NOW)
        assert changed.previous_producer_id == 7
    else:
        with pytest.raises(InvalidTxnState, match=f"x is in state {state.value}, which"):
            after(known, event)


def test_the_table_leads_from_every_state_to_every_other() -> None:
    reached = {TransactionalIdState.EMPTY}
    for _ in TransactionalIdState:
        reached |= {then for (state, _), then in TRANSITIONS.items() if state in reached}
    assert reached == set(TransactionalIdState)
    for state in TransactionalIdState:
        assert {then for (since, _), then in TRANSITIONS.items() if since is state}, state


# -- a producer begins


def test_a_new_producer_gets_the_next_epoch_and_nobody_can_ask_for_it_again() -> None:
    begun = a_transaction(TransactionalIdState.COMPLETE_COMMIT).given_out(None, 5_000, NEW_ID, NOW)
    assert (begun.producer_id, begun.epoch, begun.last_epoch, begun.timeout_ms) == (7, 4, NO_EPOCH, 5_000)
    assert (begun.partitions, begun.started) == ((), -1)


def test_a_producer_that_goes_on_gets_the_next_epoch_once_also_if_the_answer_is_lost() -> None:
    begun = a_transaction().given_out(3, 60_000, NEW_ID, NOW)
    assert (begun.epoch, begun.last_epoch) == (4, 3)
    again = begun.given_out(3, 60_000, NEW_ID, NOW)
    assert (again.epoch, again.last_epoch) == (4, 3)


def test_the_first_epoch_of_an_id_is_0_whatever_the_producer_has() -> None:
    for asked in (None, 0, 9):
        assert a_transaction(epoch=NO_EPOCH).given_out(asked, 60_000, NEW_ID, NOW).epoch == 0


@pytest.mark.parametrize("asked", [0, 1, 4])
def test_a_producer_with_another_epoch_than_the_last_two_is_fenced(asked: int) -> None:
    with pytest.raises(ProducerFenced, match=f"x has epoch 3, not the producer's {asked}"):
        a_transaction(last_epoch=2).given_out(asked, 60_000, NEW_ID, NOW)


@pytest.mark.parametrize(("asked", "last"), [(None, NO_EPOCH), (LAST_EPOCH, LAST_EPOCH)])
def test_when_epochs_are_used_up_the_producer_id_changes(asked: int | None, last: int) -> None:
    begun = a_transaction(epoch=LAST_EPOCH).given_out(asked, 60_000, NEW_ID, NOW)
    assert (begun.producer_id, begun.epoch, begun.last_epoch) == (NEW_ID, 0, last)
    assert begun.previous_producer_id == 7


# -- a transaction


def test_a_transaction_starts_with_its_first_partition() -> None:
    open_ = a_transaction(TransactionalIdState.COMPLETE_ABORT).with_partitions((PLACE,), 0, NOW)
    assert (open_.started, open_.partitions) == (NOW, (PLACE,))
    more = open_.with_partitions((PLACE, OTHER), 0, NOW + 5)
    assert (more.started, more.updated, more.partitions) == (NOW, NOW + 5, (PLACE, OTHER))


@pytest.mark.parametrize("commit", [True, False])
def test_in_version_1_the_epoch_stays(commit: bool) -> None:
    decided = a_transaction(TransactionalIdState.ONGOING, last_epoch=2).decided(commit, 1, NEW_ID, NOW)
    done = decided.completed(NOW)
    for each in (decided, done):
        assert (each.producer_id, each.epoch, each.last_epoch, each.started) == (7, 3, 2, THEN)
    assert (decided.is_decided, decided.commits, done.is_decided, done.commits) == (True, commit, False, commit)


def test_in_version_2_the_epoch_rises_with_the_outcome() -> None:
    decided = a_transaction(TransactionalIdState.ONGOING).decided(True, 2, NEW_ID, NOW)
    assert (decided.epoch, decided.last_epoch, decided.next_producer_id, decided.partitions) == (4, 3, -1, (PLACE,))
    done = decided.completed(NOW)
    assert (done.producer_id, done.epoch, done.last_epoch, done.partitions) == (7, 4, 3, ())


def test_a_producer_that_did_not_learn_of_the_outcome_gets_its_epoch_by_asking() -> None:
    done = a_transaction(TransactionalIdState.ONGOING).decided(False, 2, NEW_ID, NOW).completed(NOW)
    assert done.given_out(3, 60_000, NEW_ID, NOW).epoch == 4


def test_in_version_2_the_last_epoch_is_for_the_markers_and_the_next_transaction_has_another_id() -> None:
    decided = a_transaction(TransactionalIdState.ONGOING, epoch=LAST_EPOCH).decided(True, 2, NEW_ID, NOW)
    assert (decided.producer_id, decided.epoch, decided.next_producer_id) == (7, LAST_EPOCH + 1, NEW_ID)
    done = decided.completed(NOW)
    assert (done.producer_id, done.epoch, done.last_epoch) == (NEW_ID, 0, LAST_EPOCH)
    assert (done.previous_producer_id, done.next_producer_id) == (7, -1)


def test_the_abort_of_nothing_starts_when_it_is_decided() -> None:
    decided = a_transaction(TransactionalIdState.COMPLETE_COMMIT).decided(False, 2, NEW_ID, NOW)
    assert (decided.started, decided.partitions) == (NOW, ())
