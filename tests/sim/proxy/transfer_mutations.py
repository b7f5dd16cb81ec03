"""Mutations of the proxy under transactions; see `tests.sim.mutations`."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.errors import ProducerFenced
from ottla.proxy.clients import windows
from ottla.proxy.clients.address_handler import AddressHandler
from ottla.proxy.clients.producers import KnownProducer
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.transactions import ClientTransactions
from ottla.proxy.clients.windows import ClientResult
from ottla.proxy.journal.journal import Journal
from ottla.proxy.routing import Destination, RuleHistory
from ottla.proxy.upstream import stream_sender
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.streams import Stream
from tests.sim.mutations import Mutations

OF_TRANSFERS = Mutations("proxied-transactions", within=1000)
MUTATIONS, SEEDS, _mutation = OF_TRANSFERS.known, OF_TRANSFERS.seeds, OF_TRANSFERS.add


def _nothing(original: Any) -> Any:
    return lambda *given, **named: None


def _as_they_came(widened: Any) -> Any:
    return lambda self, request: request


def _as_upstream_gave_it(here: Any) -> Any:
    return lambda self, found: found


def _in_an_epoch_of_its_own(stream: Any) -> Any:
    def broken(self: UpstreamProducer, destination: Destination, topic_id: UUID) -> Stream:
        made: Stream = stream(self, destination, topic_id)
        made.transactional = False
        return made

    return broken


def _outside_of_it(stream: Any) -> Any:
    def broken(self: UpstreamProducer, destination: Destination, topic_id: UUID) -> Stream:
        made: Stream = stream(self, destination, topic_id)
        made.transactional = made.transactional and destination.topic != "c"
        return made

    return broken


def _without_copies(widened: Any) -> Any:
    def broken(self: ClientTransactions, request: Any) -> Any:
        named = {topic.name for topic in request.v3_and_below_topics}
        added = widened(self, request)
        own = tuple(topic for topic in added.v3_and_below_topics if topic.name in named)
        return replace(added, v3_and_below_topics=own)

    return broken


def _not_transactional(build_whole: Any) -> Any:
    return lambda part, *, transactional: build_whole(part, transactional=False)


def _fenced(abortable: Any) -> Any:
    return lambda result: ClientResult(ProducerFenced.code)


def _at_once(settled: Any) -> Any:
    return property(lambda self: True)


def _without_what_is_parked(settled: Any) -> Any:
    return property(lambda self: not any(window.under_way for window in self.windows.values()))


def _never(changed: Any) -> Any:
    return lambda self, topic, since: False


def _yes(may_go: Any) -> Any:
    return lambda self, batch: True


_mutation("AddPartitionsToTxn passes as it came", (ClientTransactions, "widened", _as_they_came))
_mutation("another epoch changes nothing", (Delivery, "renew", _nothing))
_mutation("the numbers go on behind a doubt", (Stream, "_lose_count", _nothing))
_mutation(
    "behind a refused batch of a transaction is another epoch", (UpstreamProducer, "stream", _in_an_epoch_of_its_own)
)
_mutation("a doubt fences a transactional producer", (windows, "abortable", _fenced))
_mutation("what a thread has built is not transactional", (stream_sender, "build_whole", _not_transactional))
_mutation("FindCoordinator names the addresses of upstream", (AddressHandler, "_here", _as_upstream_gave_it))
_mutation("EndTxn does not wait", (KnownProducer, "settled", _at_once))
_mutation("what is parked is not waited for", (KnownProducer, "settled", _without_what_is_parked))
_mutation("a transaction is committed with a part of a batch", (Rewriter, "_fail_transaction", _nothing))
_mutation("records go to partitions that were not added", (Rewriter, "_may_go", _yes))
_mutation("copies are outside of the transaction", (UpstreamProducer, "stream", _outside_of_it))
_mutation(
    "the partitions of copies are not added to the transaction",
    (ClientTransactions, "widened", _without_copies),
    (Rewriter, "_may_go", _yes),
)
_mutation("a transaction is not noted", (Journal, "transaction", _nothing))
_mutation("a producer goes on under another rule", (RuleHistory, "changed", _never))
_mutation("a changed rule counts from the next start on", (RuleHistory, "change", _nothing))
_mutation("a changed rule is not noted", (Journal, "rules_changed", _nothing))
