"""The identity of an idempotent producer: its producer id and epoch, as a table of states.

    NONE ── NEEDED ──► ASKING ── GIVEN ──► READY ── BUMPED ──► READY (the next epoch)
                        │  ▲                 └── USED_UP ──► NONE (after the last epoch another id is asked for)
                 FAILED ▼  │ PAUSE_OVER
                      PAUSED                        ASKING ── UNSUPPORTED ──► WITHOUT   (no idempotence)
                                                    any ── FATAL ──► FAILED             (for good)

Rules:
- Every state is changed by `_change`, through `TRANSITIONS`; an input that a state has no cell for is a bug.
- Any broker can give a producer id: if there is no answer within a few seconds another is asked as well, and the first
  answer counts. An id that nobody uses does no harm.
- The next epoch needs no request (KIP-360): sequences begin at 0 in it, and it fences what was sent in the one before.
- A broker before Kafka 0.11 knows no producer ids, so a producer that did not insist on idempotence goes on without.

A transactional producer has `ottla.sdk.transaction.transactions.Transactions` in its place.

Source: TransactionManager.java (bumpIdempotentProducerEpoch), KIP-98, KIP-360.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import OttlaError, UnsupportedVersion, broker_error
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import PRODUCE_IDEMPOTENT
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.producer")

HEDGE_DELAY = 3.0
"""Seconds without an answer after which another node is asked as well."""
_LAST_EPOCH = 2**15 - 2


class Identity(NamedTuple):
    """A producer id and epoch, as InitProducerId gave them, or of a later epoch."""

    producer_id: int
    epoch: int

    @property
    def successor(self) -> "Identity | None":
        """The next epoch, under which sequences begin at 0 and which fences this one; ``None`` after the last."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < _LAST_EPOCH else None


class State(Enum):
    NONE = auto()
    """There is no producer id, and none was asked for since it was last needed."""
    ASKING = auto()
    """InitProducerId is under way."""
    PAUSED = auto()
    """It failed, and is asked again in a moment."""
    READY = auto()
    WITHOUT = auto()
    """The producer is not idempotent."""
    FAILED = auto()
    """It can never send again."""


class Input(Enum):
    NEEDED = auto()
    GIVEN = auto()
    FAILED = auto()
    PAUSE_OVER = auto()
    UNSUPPORTED = auto()
    BUMPED = auto()
    USED_UP = auto()
    """There is no epoch left after this one."""
    FATAL = auto()


S, I = State, Input  # noqa: E741 # so that the table fits
TRANSITIONS: dict[tuple[State, Input], State] = {
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
    """Asks for a producer id when it is `needed`.

    Args:
        required: idempotence was asked for, so there is no going on without.
        changed: called with ``now`` when batches may be sent that could not be before.
        fail: called with what makes the producer useless.
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
        self.state = State.NONE if idempotent else State.WITHOUT
        self.current: Identity | None = None
        """What batches are sent under; while `READY`."""
        self.trouble = ""
        """Why the last request failed, or what is waited for, for people."""
        self._failures = 0
        self._asked: dict[int, Exchange] = {}
        """Nodes that have not answered yet."""
        self._due: Timer | None = None
        """Asks another node, or ends the pause."""

    transactional_id: str | None = None
    versions = PRODUCE_IDEMPOTENT
    may_forget = True

    @property
    def idempotent(self) -> bool:
        return self.state is not State.WITHOUT

    def admits(self, queue: object) -> bool:
        """Whether batches of a partition can be sent now, as far as their producer is concerned."""
        return True

    def answered(self, places: Iterable[TopicPartition], now: float) -> None:
        """A Produce was."""

    def needed(self, now: float) -> bool:
        """Whether batches can be sent now; asks for a producer id if that is what they lack."""
        before = self.state
        self._change(Input.NEEDED)
        if before is State.NONE:
            self._ask(now)
        return self.state in (State.READY, State.WITHOUT)

    def bump(self, now: float) -> None:
        """Go on in the next epoch, or under another producer id after the last."""
        assert self.current is not None
        self.current = self.current.successor
        self._change(Input.USED_UP if self.current is None else Input.BUMPED)
        self.needed(now)

    def failed(self) -> None:
        """The producer is of no more use."""
        self.current = None
        self._stop()
        self._change(Input.FATAL)

    def _change(self, what: Input) -> None:
        self.state = TRANSITIONS[self.state, what]

    def _stop(self) -> None:
        """Nothing more is waited for."""
        if self._due is not None:
            self._due.cancel()
        asked, self._asked = self._asked, {}
        for exchange in asked.values():
            exchange.cancel()

    def _ask(self, now: float) -> None:
        """Ask a node that is not being asked already, and another if none has answered soon."""
        self._due = self._core.later(now + HEDGE_DELAY, self._ask)
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
            self._change(Input.GIVEN)
            self.current = Identity(answer.producer_id, answer.producer_epoch)
            self._failures, self.trouble = 0, ""
            self._changed(now)
        elif isinstance(answer, UnsupportedVersion) and not self._required:
            self._change(Input.UNSUPPORTED)
            log.warning(
                "no idempotence: %s; a retry after a lost answer may store records twice, and one batch per partition "
                "is in flight",
                answer.detail,
            )
            self._changed(now)
        elif isinstance(answer, UnsupportedVersion):
            advice = "leave out idempotent=True to go on without"
            self._fail(UnsupportedVersion(f"idempotence was asked for, but {answer.detail}; {advice}"))
        else:
            self._fail(answer)

    def _try_again(self, error: OttlaError, now: float) -> None:
        """After a pause, unless others may answer still."""
        self.trouble = str(error)
        if not self._asked:
            self._stop()
            self._change(Input.FAILED)
            self._due = self._core.later(now + self._core.backoff(self._failures), self._pause_over)
            self._failures += 1

    def _pause_over(self, now: float) -> None:
        self._change(Input.PAUSE_OVER)
        self._changed(now)
