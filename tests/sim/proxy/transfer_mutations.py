"""The proxy under transactions, broken on purpose; see `tests.sim.mutations`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from ottla.errors import ProducerFenced
from ottla.proxy import delivery, producers
from ottla.proxy.delivery import Delivery
from ottla.proxy.journal.journal import Journal
from ottla.proxy.lent import Producer
from ottla.proxy.producers import Outcome
from ottla.proxy.streams import Stream
from ottla.proxy.transactions import Transactions
from tests.sim.mutations import Change, changed

MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
"""By their names, which say what the proxy does wrong."""
WITHIN = 1000
"""Seeds, within which each is caught; most within some ten."""
SEEDS: dict[str, list[int]] = {}
"""By the same names, those to be tried."""


def _mutation(name: str, *changes: tuple[Any, str, Change], seed: int | None = None) -> None:
    """Args: seed: one that catches it, and is tried first."""
    MUTATIONS[name] = lambda: changed(*changes)
    SEEDS[name] = [*([seed] if seed is not None else []), *range(WITHIN)]


def _nothing(original: Any) -> Any:
    return lambda *given, **named: None


def _as_they_came(widened: Any) -> Any:
    return lambda self, request: request


def _in_an_epoch_of_its_own(stream: Any) -> Any:
    def broken(self: Producer, topic: str, partition: int, topic_id: UUID) -> Stream:
        made: Stream = stream(self, topic, partition, topic_id)
        made.transactional = False
        return made

    return broken


def _not_transactional(build_whole: Any) -> Any:
    return lambda part, *, transactional: build_whole(part, transactional=False)


def _fenced(abortable: Any) -> Any:
    return lambda result: Outcome(ProducerFenced.code)


_mutation("AddPartitionsToTxn passes as it came", (Transactions, "_widened", _as_they_came))
_mutation("another epoch changes nothing", (Delivery, "renew", _nothing))
_mutation("the numbers go on behind a doubt", (Stream, "_lose_count", _nothing), seed=150)
_mutation("behind a refused batch of a transaction is another epoch", (Producer, "stream", _in_an_epoch_of_its_own))
_mutation("a doubt fences a transactional producer", (producers, "abortable", _fenced))
_mutation("what a thread has built is not transactional", (delivery, "build_whole", _not_transactional))
_mutation("a transaction is not noted", (Journal, "transaction", _nothing))
