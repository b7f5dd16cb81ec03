"""Ends transactions: stores the outcome, writes the markers, and aborts transactions that exceed their timeout.

Rules:
- An outcome is decided once it is stored; then the markers are written. Markers that are missing after a crash are
  written at the next start. The next transaction waits for all markers.
- A transaction that exceeds its timeout is aborted, and its producer is fenced.

Source: TransactionCoordinator.scala (endTransaction, abortTimedOutTransactions), TransactionMarkerChannelManager.scala.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES, LAST_EPOCH, TransactionMetadata
from ottla.brokerlite.machines.transactions.transactional_ids import TransactionalIds
from ottla.errors import BrokerError

log = logging.getLogger("ottla.brokerlite.transactions")

_AGAIN = 1.0
"""Seconds until a write of markers that failed is retried."""


class TransactionEnds:
    """Brings each transaction from its outcome, or its timeout, to the markers in all partitions.

    Args:
        mark: writes the markers of a decided transaction; returns the partitions whose marker could not be written.
        when_written: calls its argument once everything stored so far is on disk; at once if the broker does not sync.
        completed: called with a transactional id when its transaction has its markers, and the next one may begin.
    """

    def __init__(
        self,
        ids: TransactionalIds,
        clock: Clock,
        timers: Timers,
        *,
        mark: Callable[[TransactionMetadata], Iterable[TopicPartition]],
        when_written: Callable[[Callable[[], None]], None],
        completed: Callable[[str], None],
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._timers = timers
        self._mark = mark
        self._when_written = when_written
        self._completed = completed

    def decide(self, known: TransactionMetadata, commit: bool, version: int) -> TransactionMetadata:
        """Store the outcome, then write the markers."""
        used_up = version >= EPOCH_RISES and known.epoch >= LAST_EPOCH
        new_id = self._ids.next_producer_id() if used_up else -1
        decided = known.decided(commit, version, new_id, self._clock.timestamp)
        self._ids.change(decided)
        self.unwatch(decided.transactional_id)
        self._when_written(lambda: self.write_markers(decided.transactional_id, self._clock.now))
        return decided

    def write_markers(self, transactional_id: str, now: float) -> None:
        """Write the missing markers; complete the transaction when every partition has its marker."""
        transaction = self._ids.by_id[transactional_id]
        left = tuple(self._mark(transaction))
        self._ids.adopt(replace(transaction, partitions=left))
        if left:
            self._again(transactional_id, now)
        else:
            self._when_written(lambda: self._complete(transactional_id))

    def _complete(self, transactional_id: str) -> None:
        try:
            self._ids.change(self._ids.by_id[transactional_id].completed(self._clock.timestamp))
        except BrokerError as error:
            log.error("transaction completion not stored yet, retrying: %s", error, extra={"id": transactional_id})
            self._again(transactional_id, self._clock.now)
        else:
            self._completed(transactional_id)

    def _again(self, transactional_id: str, now: float) -> None:
        again = partial(self.write_markers, transactional_id)
        self._timers.set(("transaction", transactional_id), now + _AGAIN, again)

    def fence(self, transaction: TransactionMetadata, why: str) -> None:
        """Abort the open transaction and fence its producer."""
        log.info("transaction aborted: %s", why, extra={"id": transaction.transactional_id})
        self.decide(transaction, False, EPOCH_RISES)

    def watch(self, transaction: TransactionMetadata) -> None:
        """Set the timer that aborts a transaction at its timeout."""
        left = transaction.started + transaction.timeout_ms - self._clock.timestamp
        left = min(max(0, left), transaction.timeout_ms)  # the system's clock may have been set since
        name = transaction.transactional_id
        self._timers.set(("transaction", name), self._clock.now + left / 1000, partial(self._time_out, name))

    def unwatch(self, transactional_id: str) -> None:
        """Cancel the timer that `watch` has set."""
        self._timers.cancel(("transaction", transactional_id))

    def _time_out(self, transactional_id: str, now: float) -> None:
        transaction = self._ids.by_id[transactional_id]
        try:
            self.fence(transaction, f"its timeout of {transaction.timeout_ms} ms has passed")
        except BrokerError as error:
            log.error("aborting a timed-out transaction failed, retrying: %s", error, extra={"id": transactional_id})
            self._timers.set(("transaction", transactional_id), now + _AGAIN, partial(self._time_out, transactional_id))
