"""The identity of an idempotent producer, its producer id and epoch, as a table of states.

    NONE ── NEEDED ──► ASKING ── GIVEN ──► READY ── BUMPED ──► READY (the next epoch)
                        │  ▲                 └── USED_UP ──► NONE (after the last epoch it asks for another id)
                 FAILED ▼  │ PAUSE_OVER
                      PAUSED                        ASKING ── UNSUPPORTED ──► WITHOUT   (no idempotence)
                                                    any ── FATAL ──► FAILED             (for good)

Rules:
- The state changes only in `_change`, by `TRANSITIONS`; an input without an entry for the current state is a bug.
- Any broker can give a producer id: without a response within a few seconds another broker is asked as well, and the
  first response counts. An unused id does no harm.
- The next epoch needs no request (KIP-360): its sequences begin at 0, and it fences requests of the previous one.
- A broker before Kafka 0.11 has no producer ids, so a producer that does not insist on idempotence goes on without it.

A transactional producer uses `ottla.sdk.transaction.producer_transactions.ProducerTransactions` instead.

Source: TransactionManager.java (bumpIdempotentProducerEpoch), KIP-98, KIP-360.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import OttlaError, UnsupportedVersion, broker_error
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import PRODUCE_IDEMPOTENT, Range
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.producer")

HEDGE_DELAY = 3.0
"""Seconds without a response after which another node is asked as well."""
_LAST_EPOCH = 2**15 - 2


class Identity(NamedTuple):
    """A producer id and epoch, from InitProducerId or bumped since."""

    producer_id: int
    epoch: int

    @property
    def successor(self) -> "Identity | None":
        """The next epoch, whose sequences begin at 0 and which fences this one; ``None`` after the last epoch."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < _LAST_EPOCH else None


class ProducerIdState(Enum):
    NONE = auto()
    """There is no producer id, and none has been requested since it was last needed."""
    ASKING = auto()
    """InitProducerId is in flight."""
    PAUSED = auto()
    """InitProducerId failed, and is retried after a pause."""
    READY = auto()
    WITHOUT = auto()
    """The producer is not idempotent."""
    FAILED = auto()
    """The producer can never send again."""


class ProducerIdInput(Enum):
    NEEDED = auto()
    GIVEN = auto()
    FAILED = auto()
    PAUSE_OVER = auto()
    UNSUPPORTED = auto()
    BUMPED = auto()
    USED_UP = auto()
    """There is no epoch left after this one."""
    FATAL = auto()


S, I = ProducerIdState, ProducerIdInput  # noqa: E741 # short, so that the table fits
TRANSITIONS: dict[tuple[ProducerIdState, ProducerIdInput], ProducerIdState] = {
    (S.NONE, I.NEEDED): S.ASKING,
    (S.ASKING, I.NEEDED): S.ASKING,
    (S.PAUSED, I.NEEDED): S.PAUSED,
    (S.READY, I.NEEDED): S.READY,
    (S.WITHOUT, I.NEEDED): S.WITHOUT,
    (S.FAILED, I.NEEDED): S.FAILED,
    (S.ASKING, I.GIVEN): S.READY,
    (S.ASKING, I.FAILED): S.PAUSED,
    (S.PAUSED, I.PAUSE_OVER): S.NONE,
    (S.ASKING, I.UNSUPPORTED): S.WITHOUT,
    (S.READY, I.BUMPED): S.READY,
    (S.READY, I.USED_UP): S.NONE,
    **{(state, I.FATAL): S.FAILED for state in S},
}


class ProducerIdentity:
    """Requests a producer id with the first `obtain`.

    Args:
        required: the user asked for idempotence, so the producer cannot go on without it.
        changed: called with ``now`` when batches may be sent that could not be before.
        fail: called with a fatal error of the producer.
    """

    def __init__(
        self,
        core: ClientCore,
        *,
        idempotent: bool,
        required: bool,
        changed: Callable[[float], None],
        fail: Callable[[OttlaError], None],
    ) -> None:
        self._core, self._required, self._changed, self._fail = core, required, changed, fail
        self.state = ProducerIdState.NONE if idempotent else ProducerIdState.WITHOUT
        self.current: Identity | None = None
        """The identity for new batches; set while `READY`."""
        self.trouble = ""
        """Why the last request failed, or why it waits, for people."""
        self._failures = 0
        self._asked: dict[int, Exchange] = {}
        """Nodes that have not answered yet."""
        self._timer: Timer | None = None
        """The timer that asks another node, or ends the pause."""

    transactional_id: str | None = None
    may_forget = True

    @property
    def idempotent(self) -> bool:
        return self.state is not ProducerIdState.WITHOUT

    @property
    def versions(self) -> Range | None:
        """The versions of Produce that the producer needs; ``None``: any."""
        return PRODUCE_IDEMPOTENT if self.idempotent else None

    def admits(self, queue: object) -> bool:
        """Whether the producer allows batches of a partition to be sent now."""
        return True

    def answered(self, places: Iterable[TopicPartition], now: float) -> None:
        """A Produce request was answered; only transactions use this."""

    def obtain(self, now: float) -> bool:
        """Request a producer id if one is missing; return whether batches can be sent now."""
        before = self.state
        self._change(ProducerIdInput.NEEDED)
        if before is ProducerIdState.NONE:
            self._ask(now)
        return self.state in (ProducerIdState.READY, ProducerIdState.WITHOUT)

    def bump(self, now: float) -> None:
        """Continue in the next epoch, or under another producer id after the last."""
        assert self.current is not None
        self.current = self.current.successor
        self._change(ProducerIdInput.USED_UP if self.current is None else ProducerIdInput.BUMPED)
        self.obtain(now)

    def give_up(self, error: OttlaError) -> None:
        """End the producer with an error."""
        self._fail(error)

    def failed(self) -> None:
        """End for good: the producer has failed."""
        self.current = None
        self._stop()
        self._change(ProducerIdInput.FATAL)

    def _change(self, what: ProducerIdInput) -> None:
        self.state = TRANSITIONS[self.state, what]

    def _stop(self) -> None:
        """Cancel the timer and all requests."""
        if self._timer is not None:
            self._timer.cancel()
        asked, self._asked = self._asked, {}
        for exchange in asked.values():
            exchange.cancel()

    def _ask(self, now: float) -> None:
        """Ask a node that has not been asked yet, and another one later if there is no response."""
        self._timer = self._core.later(now + HEDGE_DELAY, self._ask)
        if self._asked:
            self.trouble = f"{len(self._asked)} asked, no answer yet"
        node = self._core.other_node(self._asked)
        if node is None:
            return

        def ended(answer: InitProducerIdResponse | OttlaError, now: float) -> None:
            del self._asked[node.id]
            self._answered(answer, now)

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        exchange = self._asked[node.id] = Exchange(request, ended, now + self._core.options.request_timeout)
        self._core.submit(node, exchange, now)

    def _answered(self, answer: InitProducerIdResponse | OttlaError, now: float) -> None:
        if isinstance(answer, InitProducerIdResponse) and answer.error_code:
            answer = broker_error(answer.error_code, "InitProducerId", repeatable=True)
        if isinstance(answer, OttlaError) and answer.retriable:
            self._try_again(answer, now)
            return
        self._stop()
        if isinstance(answer, InitProducerIdResponse):
            self._change(ProducerIdInput.GIVEN)
            self.current = Identity(answer.producer_id, answer.producer_epoch)
            self._failures, self.trouble = 0, ""
            self._changed(now)
        elif isinstance(answer, UnsupportedVersion) and not self._required:
            self._change(ProducerIdInput.UNSUPPORTED)
            log.warning(
                "no idempotence: a retry after a lost response may store records twice, and only one batch per "
                "partition is in flight",
                extra={"why": answer.detail},
            )
            self._changed(now)
        elif isinstance(answer, UnsupportedVersion):
            advice = "leave out idempotent=True to continue without it"
            self._fail(UnsupportedVersion(f"idempotence was requested, but {answer.detail}; {advice}"))
        else:
            self._fail(answer)

    def _try_again(self, error: OttlaError, now: float) -> None:
        """Retry after a pause, unless other nodes may still answer."""
        self.trouble = str(error)
        if not self._asked:
            self._stop()
            self._change(ProducerIdInput.FAILED)
            self._timer = self._core.later(now + self._core.backoff(self._failures), self._pause_over)
            self._failures += 1

    def _pause_over(self, now: float) -> None:
        self._change(ProducerIdInput.PAUSE_OVER)
        self._changed(now)
