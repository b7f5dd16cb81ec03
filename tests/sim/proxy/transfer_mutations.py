"""The proxy under transactions, broken on purpose; see `tests.sim.mutations`."""

from typing import Any
from uuid import UUID

from ottla.errors import ProducerFenced
from ottla.proxy.clients import windows
from ottla.proxy.clients.transactions import Transactions
from ottla.proxy.clients.windows import Outcome
from ottla.proxy.journal.journal import Journal
from ottla.proxy.upstream import delivery
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.producer import Producer
from ottla.proxy.upstream.streams import Stream
from tests.sim.mutations import Mutations

_OF_TRANSFERS = Mutations(within=1000)
MUTATIONS, SEEDS, _mutation = _OF_TRANSFERS.known, _OF_TRANSFERS.seeds, _OF_TRANSFERS.add


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
_mutation("a doubt fences a transactional producer", (windows, "abortable", _fenced))
_mutation("what a thread has built is not transactional", (delivery, "build_whole", _not_transactional))
_mutation("a transaction is not noted", (Journal, "transaction", _nothing))
