"""The transactional ids that the broker remembers, each with the state of its transaction.

Rules:
- Every change is stored before it takes effect.
- A transactional id that was not used for `expiration` is forgotten, unless it has a transaction.

Source: TransactionStateManager.scala.
"""

import logging
from collections.abc import Callable

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.transactions.transaction_metadata import TransactionalIdState, TransactionMetadata
from ottla.brokerlite.machines.transactions.transaction_settings import TransactionSettings
from ottla.errors import BrokerError, CoordinatorNotAvailable, KafkaStorageError

log = logging.getLogger("ottla.brokerlite.transactions")


class TransactionalIds:
    """Remembers the transactional ids, and gives them producer ids.

    Args:
        store: stores a transaction's state, or removes it if the second argument is true; may raise a `BrokerError`.

    Attributes:
        by_id: the transactions by transactional id, including those loaded at the start.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timers: Timers,
        store: Callable[[TransactionMetadata, bool], None],
        new_producer_id: Callable[[], int],
    ) -> None:
        self.by_id: dict[str, TransactionMetadata] = {}
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._store = store
        self._new_producer_id = new_producer_id

    def begin(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        """Return the first state of a transactional id; `change` adds it.

        Raises:
            CoordinatorNotAvailable: the disk refused, or there are too many ids.
        """
        if len(self.by_id) >= self._settings.max_ids:
            raise CoordinatorNotAvailable(f"this broker has {len(self.by_id)} transactional ids already")
        return TransactionMetadata(
            transactional_id=transactional_id, producer_id=self.next_producer_id(), timeout_ms=timeout_ms
        )

    def next_producer_id(self) -> int:
        """Return a producer id that was never used.

        Raises:
            CoordinatorNotAvailable: the disk refused.
        """
        try:
            return self._new_producer_id()
        except KafkaStorageError as error:
            raise CoordinatorNotAvailable(error.detail) from error

    def change(self, transaction: TransactionMetadata) -> None:
        """Store the new state of a transaction, then adopt it."""
        try:
            self._store(transaction, False)
        except BrokerError as error:
            raise CoordinatorNotAvailable(f"the transaction could not be stored: {error.detail}") from error
        self.adopt(transaction)

    def adopt(self, transaction: TransactionMetadata) -> None:
        """Adopt a state without storing it: a start would find the change again."""
        self.by_id[transaction.transactional_id] = transaction

    def watch_expiry(self) -> None:
        """Set the timer that looks for ids to forget."""
        if self.by_id and not self._timers.is_set("transactional ids"):
            self._timers.set("transactional ids", self._clock.now + self._settings.expiration_check, self._expire)

    def _expire(self, now: float) -> None:
        """Forget transactional ids that were not used for `expiration`."""
        oldest = self._clock.timestamp - round(self._settings.expiration * 1000)
        for transaction in list(self.by_id.values()):
            if (
                transaction.is_decided
                or transaction.state is TransactionalIdState.ONGOING
                or transaction.updated > oldest
            ):
                continue
            try:
                self._store(transaction, True)
            except BrokerError as error:
                log.error(
                    "removing an expired transactional id failed: %s", error, extra={"id": transaction.transactional_id}
                )
            else:
                del self.by_id[transaction.transactional_id]
        self.watch_expiry()
