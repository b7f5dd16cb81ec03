"""A request's steps continue within the call that ends their wait; a bug closes the client's connection."""

import logging

import pytest

from ottla.proxy.clients.client_connection import ClientConnection
from ottla.proxy.clients.steps import Steps, UpstreamAnswer, run, until
from ottla.proxy.events import Action, CloseClient
from ottla.sdk.outcome import Outcome


def noting(waits: list[Outcome[int]], seen: list[int]) -> Steps[None]:
    for wait in waits:
        seen.append((yield from until(wait)))


def failing(wait: Outcome[int] | UpstreamAnswer) -> Steps[None]:
    yield wait
    raise ZeroDivisionError


def test_the_steps_continue_within_the_call_that_settles_the_outcome() -> None:
    first, second, seen = Outcome[int](), Outcome[int](), list[int]()
    second.succeed(2)
    run(noting([first, second], seen), ClientConnection(1, []))
    assert seen == []
    first.succeed(1)
    assert seen == [1, 2]


def test_any_number_of_waits_may_have_ended_already() -> None:
    waits, seen = [Outcome[int]() for _ in range(5000)], list[int]()
    for number, wait in enumerate(waits):
        wait.succeed(number)
    run(noting(waits, seen), ClientConnection(1, []))
    assert seen == list(range(5000))


def test_the_steps_continue_without_a_client() -> None:
    wait, seen, client = Outcome[int](), list[int](), ClientConnection(1, [])
    run(noting([wait], seen), client)
    client.left(lambda: None)
    client.close("it has left")
    wait.succeed(1)
    assert seen == [1]


def test_a_bug_after_a_wait_closes_the_connection_and_stops_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wait, actions = Outcome[int](), list[Action]()
    run(failing(wait), ClientConnection(1, actions))
    with caplog.at_level(logging.CRITICAL + 1):
        wait.succeed(1)
    assert actions == [CloseClient(1, "internal error")]


def test_an_error_in_a_response_of_upstream_reaches_the_upstream_connection() -> None:
    wait, actions = UpstreamAnswer(), list[Action]()
    run(failing(wait), ClientConnection(1, actions))
    with pytest.raises(ZeroDivisionError):
        wait.succeed((b"", 0.0))
    assert actions == []
