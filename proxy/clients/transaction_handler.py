"""Handles the requests of transactional producers: InitProducerId, AddPartitionsToTxn and EndTxn.

Each method is a generator of steps (see `ottla.proxy.clients.steps`). `ClientTransactions` knows what they mean for
records.
"""

from dataclasses import replace
from functools import partial
from typing import Protocol

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.frames import build_request, parse_request, parse_response
from ottla.codec.wire import Buffer
from ottla.errors import ConcurrentTransactions, InvalidRequest, TransactionAbortable, UnknownProducerId
from ottla.proxy.clients.acceptance import Acceptance
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.carried import ABORTABLE_SINCE, END_TXN
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.steps import Steps, until
from ottla.proxy.clients.transactions import ClientTransactions, narrowed, refused
from ottla.proxy.routing import TopicRules
from ottla.proxy.upstream.principals import Principal
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timers

CONCURRENT_WAIT = 5.0
"""Seconds that InitProducerId waits until the coordinator has ended the previous transaction."""
CONCURRENT_PAUSE = 0.05
"""Seconds between the attempts meanwhile."""
EPOCH_FOLLOWS_SINCE = 5
"""The first version of EndTxn that returns a new epoch for the next transaction (KIP-890)."""
LONGEST_TRANSACTIONAL_ID = 1000
"""Bytes. The memory and the journal keep 100,000 ids, and a client may use a new one each time."""


class TransactionContext(Protocol):
    """The parts of the proxy that these requests use."""

    timers: Timers
    rules: TopicRules
    rewriter: Rewriter
    acceptance: Acceptance
    transactions: ClientTransactions


class TransactionHandler:
    """Handles one client's requests of transactional producers, and the InitProducerId of idempotent ones.

    Args:
        origin: the client; its producer ids count for its host, and belong to its user.
    """

    def __init__(self, client: ClientConnection, origin: Origin, link: ClientLink, shared: TransactionContext) -> None:
        self._client, self._origin, self._link, self._shared = client, origin, link, shared

    def acts_for(self, principal: Principal) -> None:
        """Notice the client's user at upstream."""
        self._origin = replace(self._origin, principal=principal)

    # -- InitProducerId

    def initialize(self, request: ClientRequest, frame: Buffer, now: float) -> Steps[None]:
        """Forward InitProducerId, and retry it while the coordinator ends the previous transaction.

        Clients can retry themselves, but for franz-go CONCURRENT_TRANSACTIONS is fatal at the start of a transaction.
        """
        asked: InitProducerIdRequest = parse_request(frame).message
        if len((asked.transactional_id or "").encode()) > LONGEST_TRANSACTIONAL_ID:
            self._client.respond(request, InitProducerIdResponse(error_code=InvalidRequest.code, producer_epoch=-1))
            return
        give_up_at = now + CONCURRENT_WAIT
        while True:
            known = self._shared.transactions.newest
            reply, now = yield from self._link.ask(frame, now)
            _, answer = parse_response(InitProducerIdResponse, request.version, reply)
            if answer.error_code != ConcurrentTransactions.code or now >= give_up_at:
                break
            now = yield from self._pause(now)
            if self._client.gone:  # no more retries: upstream has answered, and clients repeat the request themselves
                self._client.answer(request.ticket)
                return
            if self._client.closed:
                return
        if answer.error_code == 0:
            self._initialized(asked, answer, known, now)
        self._client.pass_back(request, (reply,), now)

    def _pause(self, now: float) -> Steps[float]:
        over: Outcome[float] = Outcome()
        self._shared.timers.add(now + CONCURRENT_PAUSE, over.succeed)
        return (yield from until(over))

    def _initialized(
        self, request: InitProducerIdRequest, answer: InitProducerIdResponse, known: int, now: float
    ) -> None:
        if request.transactional_id is None:
            self._shared.rewriter.allocated(answer.producer_id, self._origin, now)
            return
        older = None if request.producer_id >= 0 else known
        self._shared.transactions.initialized(
            request.transactional_id, answer.producer_id, answer.producer_epoch, self._origin, now, older=older
        )

    # -- AddPartitionsToTxn

    def add_partitions(self, request: ClientRequest, frame: Buffer, now: float) -> Steps[None]:
        """Forward AddPartitionsToTxn with all partitions for keys, and answer for those that the client named."""
        parsed = parse_request(frame)
        asked: AddPartitionsToTxnRequest = parsed.message
        if not any(self._shared.rules.rewrites(topic.name) for topic in asked.v3_and_below_topics):
            self._link.forward(frame, partial(self._client.pass_back, request), now)
            return
        del frame  # up to 1 MiB, which would be held during the wait
        unknown, now = yield from self._shared.transactions.described(asked, now)
        if unknown is not None:
            self._client.respond(request, refused(asked, unknown))
            return
        widened = self._shared.transactions.widened(asked)
        if self._client.closed:
            return
        forwarded = build_request(widened, request.version, request.correlation_id, parsed.header.client_id)[4:]
        answered = self._link.ask(forwarded, now)
        del forwarded
        reply, now = yield from answered
        _, answer = parse_response(AddPartitionsToTxnResponse, request.version, reply)
        self._shared.transactions.added(asked, answer)
        self._client.respond(request, narrowed(asked, answer))

    # -- EndTxn

    def end(self, request: ClientRequest, frame: Buffer, now: float) -> Steps[None]:
        """Forward EndTxn once none of the transaction's batches waits or is under way, or refuse it."""
        asked: EndTxnRequest = parse_request(frame).message
        now = yield from self._turn(now)
        refusal, now = yield from self._shared.transactions.end(asked, self._origin, now)
        if refusal:
            self._client.respond(request, EndTxnResponse(error_code=_code_for(request.version, refusal)))
            return
        if self._client.closed:
            return
        reply, now = yield from self._link.ask(frame, now)
        _, answer = parse_response(EndTxnResponse, request.version, reply)
        self._shared.transactions.ended(asked, answer, self._origin, now)
        self._client.pass_back(request, (reply,), now)

    def _turn(self, now: float) -> Steps[float]:
        """Wait until the record sets that came before are handled."""
        turn: Outcome[float] = Outcome()
        self._shared.acceptance.line.in_turn(turn.succeed, now)
        return (yield from until(turn))


def _code_for(version: int, refusal: int) -> int:
    """The error code for a client that uses this version of EndTxn."""
    if refusal == TransactionAbortable.code and version < ABORTABLE_SINCE[END_TXN]:
        return UnknownProducerId.code  # clients then abort and bump the epoch
    if refusal == UnknownProducerId.code and version >= EPOCH_FOLLOWS_SINCE:  # the abort brings a new epoch
        return TransactionAbortable.code
    return refusal
