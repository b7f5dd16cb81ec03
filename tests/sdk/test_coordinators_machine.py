"""`Coordinators` alone: one request per group, sent to another node if one does not answer."""

import pytest

from ottla.codec.apis.find_coordinator import FindCoordinatorResponse
from ottla.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    NotCoordinator,
    TimeoutExpired,
    UnknownServerError,
)
from ottla.sdk.cluster.coordinators import HEDGE_DELAY, Coordinators
from ottla.sdk.events import Node
from tests.sdk.client_of_parts import Client


def found(code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, error_message=None, node_id=7, host="n", port=1)


def test_those_who_look_at_the_same_time_share_one_request_and_the_answer_is_kept() -> None:
    client = Client()
    coordinators = Coordinators(client)
    first, second = coordinators.find("g", 0.0), coordinators.find("g", 0.0)
    assert len(client.asked) == 1
    client.answer(found())
    assert (
        first.result() == second.result() == Node(7, "n", 1) == coordinators.find("g", 1.0).result()
        and not client.asked
    )


def test_a_look_that_is_given_up_takes_the_answer_from_nobody_else() -> None:
    client = Client()
    coordinators = Coordinators(client)
    first, second = coordinators.find("g", 0.0), coordinators.find("g", 0.0)
    first.cancel()
    client.answer(found())
    assert first.error is not None and second.result() == Node(7, "n", 1)


def test_another_node_is_asked_where_the_first_does_not_answer() -> None:
    client = Client(seeds=2)
    Coordinators(client).find("g", 0.0)
    client.passes(HEDGE_DELAY)
    assert len({node.id for node, _ in client.asked}) == 2


def test_it_is_looked_up_again_after_an_error_that_means_another_and_only_then() -> None:
    client = Client()
    coordinators = Coordinators(client)
    coordinators.find("g", 0.0)
    client.answer(found())
    coordinators.heard("g", GroupAuthorizationFailed("g"))
    assert coordinators.known("g")
    coordinators.heard("g", NotCoordinator("g"))
    assert coordinators.known("g") is None


@pytest.mark.parametrize("error", [CoordinatorNotAvailable, UnknownServerError])
def test_an_error_that_passes_is_repeated_after_a_pause_and_named_at_the_end(error: type[BrokerError]) -> None:
    client = Client()
    coordinators = Coordinators(client)
    outcome = coordinators.find("g", 0.0)
    client.answer(found(error.code))
    assert not client.asked and "coordinator of group" in coordinators.where("g")
    client.passes(0.5)
    assert len(client.asked) == 1
    client.passes(client.options.api_timeout)
    assert isinstance(outcome.error, TimeoutExpired) and "last error" in str(outcome.error)


def test_where_nobody_answered_that_is_said() -> None:
    client = Client()
    outcome = Coordinators(client).find("g", 0.0)
    client.passes(client.options.api_timeout)
    assert str(outcome.error).endswith("not found within 60 s; no broker has answered")
