"""Ends a producer's block: sends what was accepted, and reports what was not stored.

    normally                  flush, also records that callbacks send meanwhile        within `delivery_timeout`
    by an error,              flush; what is left fails, and is reported               within CLOSE_TIMEOUT, shielded
    or a cancellation

Rules:
- An open transaction is aborted first: otherwise readers would wait for its timeout.
- A request for the next epoch is answered before the end: if it reached the coordinator late, it would abort the open
  transaction of the next producer with this transactional id. Kafka compares epochs only if no transaction is open.
- An error that ends the block is raised unchanged; undelivered records are added to it as notes, and logged: no record
  is lost silently.

Source: KafkaProducer.java (close); TransactionCoordinator.scala (handleInitProducerId).
"""

from typing import Any, Protocol

from ottla.errors import Closed, DeliveryFailed, OttlaError
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.steps import Shielded, Steps, settled
from ottla.sdk.transaction.producer_transactions import ProducerTransactions

log = logger("ottla.sdk.producer")

CLOSE_TIMEOUT = 1.5
"""Seconds for unacknowledged records when the block ends by an error or a cancellation."""
_CHAIN = 100
"""The longest chain of records, each sent by the callback of the one before, that the end of a block waits for."""


class EndingProducer(Protocol):
    """A producer, as the end of its block sees it; the methods are those of `ProducerCore`."""

    @property
    def pending(self) -> int: ...

    def start_flush(self, now: float) -> Outcome[None]: ...
    def shut(self, now: float) -> Outcome[None]: ...
    def finish(self) -> Outcome[None]: ...
    def withdraw(self, error: OttlaError) -> Outcome[None]: ...
    def close(self, error: OttlaError) -> None: ...


class ProducerLeaving:
    """Runs the end of one producer's block."""

    def __init__(
        self,
        core: ClientCore,
        producer: EndingProducer,
        deliveries: Deliveries,
        transactions: ProducerTransactions | None,
        delivery_timeout: float,
    ) -> None:
        self._core, self._producer, self._deliveries = core, producer, deliveries
        self._transactions, self._delivery_timeout = transactions, delivery_timeout

    def leave(self, error: BaseException | None) -> Steps[None]:
        """End the user's block, with the ``error`` that ended it."""
        try:
            yield from self._end_transactions()
            if error is None:
                yield from self._normally()
            else:
                yield from self._hurry(error)
        except GeneratorExit:  # the call is being freed
            raise
        except BaseException as failed:  # a cancellation included
            if error is None:
                yield from self._hurry(failed)
            raise
        finally:
            self._producer.close(Closed("the producer is closed"))

    def _end_transactions(self) -> Steps[None]:
        transactions, until = self._transactions, self._core.now + CLOSE_TIMEOUT
        if transactions is not None and transactions.is_open:
            extra = {"transactional_id": transactions.transactional_id}
            log.warning("transaction aborted: its producer was closed", extra=extra)
            transactions.stop()
            self._producer.withdraw(Closed("the producer was closed before the transaction had ended"))
            yield from wait_shielded(self._core, transactions.abort(self._core.now), until)
        if transactions is not None and transactions.renews:
            yield from wait_shielded(self._core, transactions.ready(self._core.now), until)

    def _normally(self) -> Steps[None]:
        """Flush all records, also records that callbacks send meanwhile, then refuse records."""
        until = self._core.now + self._delivery_timeout
        for _ in range(_CHAIN):
            self._deliveries.take_chained()  # of earlier callbacks
            yield from settled(self._producer.start_flush(self._core.now))
            if not self._deliveries.take_chained() or self._core.now >= until:
                break
        yield from settled(self._producer.shut(self._core.now))
        yield from settled(self._producer.finish())
        self._deliveries.raise_failures()

    def _hurry(self, error: BaseException) -> Steps[None]:
        """Give unacknowledged records a moment, and report undelivered ones."""
        flushed = self._producer.shut(self._core.now)
        late = self._core.later(self._core.now + CLOSE_TIMEOUT, lambda now: flushed.cancel())
        flushed.when_done(late.cancel)
        if not flushed.done:
            yield Shielded(flushed)
        if left := self._producer.pending:
            log.error("records abandoned: the producer was closed", extra={"records": left})
            error.add_note(f"{left} record(s) of the closed producer may not have been stored")
        for _ in range(2):  # failed records, and an error of a callback
            try:
                self._deliveries.raise_failures()
            except Exception as failed:  # of any kind: it must not hide the error that ended the block
                log.error("records were not delivered", extra={"why": str(failed)})
                error.add_note(str(failed) if isinstance(failed, DeliveryFailed) else repr(failed))


def wait_shielded(core: ClientCore, outcome: Outcome[Any], until: float) -> Steps[None]:
    """Wait for ``outcome``, despite cancellation, but only until the time ``until``."""
    if not outcome.done:
        yield Shielded(core.bounded(outcome, until))
