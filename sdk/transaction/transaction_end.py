"""Ends a transaction: sends EndTxn until its outcome is known, and interprets the coordinator's errors.

Rules:
- EndTxn is retried until its outcome is known. After `api_timeout` the caller gets an error, and the retries continue.
- INVALID_TXN_STATE as the response to a commit may come from a node that was paused, and does not know yet that it is
  no longer the coordinator: the coordinator is looked up again. If the error stays, the transaction was aborted by its
  timeout: the client then sends EndTxn to abort, which in version 2 also returns the next epoch.
- If the epoch has to be bumped instead, InitProducerId ends the transaction.

Source: TransactionManager.java (EndTxnHandler); KIP-360, KIP-890.
"""

from dataclasses import dataclass

from ottla.codec.apis.end_txn import EndTxnResponse
from ottla.errors import (
    InvalidTxnState,
    OttlaError,
    ProducerFenced,
    TimeoutExpired,
    TransactionAbortable,
    TransactionOutcomeUnknown,
    UnknownProducerId,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import sleep
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.fencing import is_replaced
from ottla.sdk.transaction.markers import Markers
from ottla.sdk.transaction.states import IMPLICIT
from ottla.sdk.transaction.transaction_requests import RequestWatch, TransactionRequests

_MOVED_LIMIT = 3.0
"""Seconds for which the coordinator is looked up again if it says that there is nothing to commit."""
_PAUSE = 0.2
"""Seconds between two such attempts."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The transaction has ended; without a response if there was nothing to end."""

    answer: EndTxnResponse | None = None


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The coordinator can only abort the transaction."""

    error: OttlaError


@dataclass(frozen=True, slots=True)
class EpochBumpNeeded:
    """InitProducerId ends the transaction, and bumps the epoch."""


@dataclass(frozen=True, slots=True)
class ProducerEnded:
    """The producer can never send again."""

    error: OttlaError


Ending = Ended | CommitRefused | EpochBumpNeeded | ProducerEnded


class TransactionEnd:
    """Commits or aborts one transaction.

    Args:
        ours: the identity of the transaction.
        version: its protocol version.
        ended: the caller's outcome: it fails when EndTxn was not answered in time, while the retries continue.

    Attributes:
        watch: waits for its requests.
        unsure: an EndTxn may still arrive after the end.
    """

    def __init__(
        self,
        core: ClientCore,
        requests: TransactionRequests,
        markers: Markers,
        ours: Identity,
        version: int,
        ended: Outcome[None],
    ) -> None:
        self._core, self._requests, self._markers = core, requests, markers
        self._ours, self._version, self._ended = ours, version, ended
        self.watch = RequestWatch()
        self.unsure = False
        self._repeated = False
        """An earlier EndTxn may have been carried out, or may still be."""
        self._look_until: float | None = None
        """Until when the coordinator is looked up again if it says that there is nothing to commit."""

    def commit(self) -> Steps[Ending]:
        """Send EndTxn until the transaction is committed, or the coordinator can only abort it."""
        while True:
            match answer := (yield from self._send(committed=True)):
                case EndTxnResponse():
                    return Ended(answer)
                case TimeoutExpired():
                    why = f"it is not known whether the transaction is committed: {answer}"
                    self._ended.fail(TransactionOutcomeUnknown(why))
                case InvalidTxnState() if self._may_have_moved():
                    self._requests.forget_coordinator()
                    yield from sleep(self._core, _PAUSE)
                case InvalidTxnState() | TransactionAbortable() | UnknownProducerId():  # the last as in Java's client
                    self.unsure |= isinstance(answer, UnknownProducerId)  # the next transaction needs a new epoch
                    if not self._repeated:
                        return CommitRefused(answer)
                    self._leave_unknown(answer)
                    known = yield from self._requests.describe()
                    if known is not None and is_replaced(self._ours, known):
                        return ProducerEnded(answer)
                    return EpochBumpNeeded()
                case ProducerFenced():
                    self._requests.forget_coordinator()
                    known = yield from self._requests.describe()
                    # Another producer has the id: InitProducerId would abort a transaction of that one, because Kafka
                    # does not check the epoch of the requesting producer while a transaction is open.
                    if known is None or is_replaced(self._ours, known):
                        return ProducerEnded(answer)
                    if known.producer_epoch != self._ours.epoch and self._version >= IMPLICIT:
                        return CommitRefused(answer)  # it has aborted the transaction after its timeout
                    if known.producer_epoch != self._ours.epoch or not self._may_have_moved():
                        return ProducerEnded(answer)
                    yield from sleep(self._core, _PAUSE)  # a former coordinator has answered, which knows less
                case _:
                    if self._repeated:
                        self._leave_unknown(answer)
                    return ProducerEnded(answer)

    def abort(self, *, joined: bool) -> Steps[Ending]:
        """Send EndTxn until the transaction is aborted; ``joined``: a partition or group is known to be in it."""
        while True:
            match answer := (yield from self._send(committed=False)):
                case EndTxnResponse():
                    return Ended(answer)
                case TimeoutExpired():
                    self._ended.fail(answer)
                case InvalidTxnState() if not joined:
                    self.unsure = True  # the coordinator knows of nothing that has joined
                    return Ended()
                case ProducerFenced() if self._version >= IMPLICIT:
                    # The coordinator has aborted the transaction after its timeout; or it still writes the markers of
                    # the previous one, and no request of this one has reached it: InitProducerId waits for them.
                    self._requests.forget_coordinator()
                    known = yield from self._requests.describe()
                    if known is not None and is_replaced(self._ours, known):
                        return ProducerEnded(answer)
                    return EpochBumpNeeded()
                case _:
                    return ProducerEnded(answer)

    def _send(self, *, committed: bool) -> Steps[EndTxnResponse | OttlaError]:
        """Send EndTxn until its outcome is definite, at most for `api_timeout`."""
        self._markers.ending(self._core.now)
        task = self._requests.end(self._ours, committed=committed, version=self._version)
        try:
            answer = yield from self.watch.wait(task)
        except OttlaError as error:
            self.unsure |= isinstance(error, TimeoutExpired)
            return error
        else:
            self._markers.ended(self._core.now)
            return answer
        finally:
            self.unsure |= task.repeated
            self._repeated |= task.repeated

    def _leave_unknown(self, error: OttlaError) -> None:
        """Tell the caller that the outcome of the transaction stays unknown."""
        why = "an EndTxn without an answer may have committed the transaction, and another one is refused"
        self._ended.fail(TransactionOutcomeUnknown(f"{why}: {error}"))

    def _may_have_moved(self) -> bool:
        """Whether an impossible response may have come from a former coordinator, which does not know its successor."""
        if self._look_until is None:
            self._look_until = self._core.now + _MOVED_LIMIT
        return self._core.now < self._look_until
