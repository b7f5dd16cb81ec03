"""The error of a fenced producer: which instance took its transactional id, or that its own transaction timed out."""

import functools

import pytest

from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.errors import InvalidProducerEpoch, ProducerFenced, TransactionalIdAuthorizationFailed
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.transaction.fencing import LIMIT, Fenced, explained, find_out
from tests.sdk.test_transaction_admin_machine import SILENCE, Cluster, Id, client

ANOTHER = (
    "another producer with transactional id 't-1' has been initialized, or an administrator has fenced it: give each"
)
TIMED_OUT = (
    "the broker has aborted the transaction of 't-1', because it was open for 61 s, and transaction_timeout is 60 s"
)
SINCE = "and another producer with its id has been initialized since"


def said(cluster: Cluster, open_for: float | None = 20.0, version: int = 1) -> str:
    world = client(cluster)
    fenced = Fenced("t-1", Identity(7, 3), 60.0, open_for, version)
    began = world.now
    told = world.call(functools.partial(find_out, world.core, fenced))
    assert world.now - began <= LIMIT
    error = explained(ProducerFenced("t-0"), told)
    assert type(error) is ProducerFenced and str(error) == f"PRODUCER_FENCED (90): {told} [t-0]"
    return str(error)


@pytest.mark.parametrize("open_for", [None, 20.0])
@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_a_producer_that_was_not_late_was_fenced_by_another(state: str, open_for: float | None) -> None:
    text = said(Cluster(ids={"t-1": Id(7, 5, state)}), open_for)
    assert text.startswith(f"PRODUCER_FENCED (90): {ANOTHER} process its own id; this producer must end (")
    facts = "this one has producer id 7, epoch 3; its coordinator, node 1, has producer id 7, epoch 5"
    assert f"({facts}, {state})" in text and text.endswith("[t-0]")


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_that_was_late_is_told_its_timeout(version: int) -> None:
    text = said(Cluster(ids={"t-1": Id(7, 4, "CompleteAbort")}), 61.0, version)
    assert f"{TIMED_OUT}: raise transaction_timeout, or make transactions shorter" in text
    assert SINCE not in text and "epoch 4, CompleteAbort" in text
    assert ("; to continue, make another producer (" in text) is (version == 1)


def test_a_late_producer_whose_id_has_gone_on_is_told_both() -> None:
    assert f"{TIMED_OUT}, {SINCE}: raise" in said(Cluster(ids={"t-1": Id(7, 6, "Ongoing")}), 61.0, 2)


def test_a_producer_that_its_coordinator_has_not_fenced_is_told_so() -> None:
    assert "a partition has seen a later epoch of 't-1' than its coordinator has" in said(
        Cluster(ids={"t-1": Id(7, 3)})
    )


def test_what_the_coordinator_cannot_say_or_may_not_is_left_out() -> None:
    old = Cluster()
    del old.versions[65]
    unknown = "(this one has producer id 7, epoch 3; the coordinator's state is unknown: "
    for open_for, cause in ((20.0, ANOTHER), (61.0, TIMED_OUT)):
        text = said(old, open_for)
        assert cause in text and f"{unknown}brokers before Kafka 3.0 cannot tell)" in text

    def refuse(node: int, message: object) -> DescribeTransactionsResponse | None:
        if not isinstance(message, DescribeTransactionsRequest):
            return None
        state = TransactionState(
            error_code=TransactionalIdAuthorizationFailed.code,
            transactional_id="t-1",
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=-1,
            producer_id=-1,
            producer_epoch=-1,
            topics=(),
        )
        return DescribeTransactionsResponse(transaction_states=(state,))

    text = said(Cluster(script=refuse))
    assert ANOTHER in text and f"{unknown}TRANSACTIONAL_ID_AUTHORIZATION" in text


def test_an_error_does_not_wait_for_a_coordinator_that_is_silent() -> None:
    text = said(Cluster(script=lambda node, m: SILENCE if isinstance(m, DescribeTransactionsRequest) else None))
    assert ANOTHER in text and f"is unknown: no answer within {LIMIT:g} s)" in text


def test_what_is_not_found_out_is_what_the_class_says() -> None:
    assert str(InvalidProducerEpoch("d")) == f"INVALID_PRODUCER_EPOCH (47): {_words(InvalidProducerEpoch)} [d]"
    assert str(InvalidProducerEpoch("d", told="so it is")) == "INVALID_PRODUCER_EPOCH (47): so it is [d]"


def _words(error: type[InvalidProducerEpoch]) -> str:
    return f"{error.__doc__} {error.advice}"
