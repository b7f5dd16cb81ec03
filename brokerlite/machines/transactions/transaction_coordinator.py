"""The transaction coordinator: assigns producer ids and epochs, adds partitions, and commits or aborts transactions.

    transactions.initialize(...)     # InitProducerId of a transactional producer
    transactions.add(...)            # add partitions
    transactions.end(...)            # decide the outcome; the markers follow
    transactions.resume(now)         # after a start: continue unfinished transactions

Rules:
- Every change is stored before it takes effect. An outcome is decided once it is stored; then the markers are written.
  Markers that are missing after a crash are written at the next start. The next transaction waits for all markers.
- A newer producer with the same transactional id fences the previous one and aborts its open transaction.
- A transaction that exceeds its timeout is aborted, and its producer is fenced.
- A transactional id that was not used for `expiration` is forgotten.

Source: TransactionCoordinator.scala, TransactionStateManager.scala; KIP-98, KIP-360, KIP-890.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_metadata import (
    EPOCH_RISES,
    LAST_EPOCH,
    NO_EPOCH,
    TransactionalIdState,
    TransactionMetadata,
)
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaStorageError,
    ProducerFenced,
    TransactionAbortable,
)

log = logging.getLogger("ottla.brokerlite.transactions")

_AGAIN = 1.0
"""Seconds until a write of markers that failed is retried."""


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Kafka's settings of a transaction coordinator; seconds."""

    max_timeout: float = 15 * 60.0
    """The longest timeout that a producer may ask for (`transaction.max.timeout.ms`)."""
    expiration: float = 7 * 24 * 3600.0
    """How long a transactional id is remembered (`transactional.id.expiration.ms`)."""
    expiration_check: float = 3600.0
    """How often expired ids are removed (`transaction.remove.expired.transaction.cleanup.interval.ms`)."""
    max_ids: int = 100_000
    """The most transactional ids that the broker remembers."""


class Producing(NamedTuple):
    """The producer that a request comes from, as the request says."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionCoordinator:
    """Coordinates the transactions of all transactional ids.

    Args:
        store: stores a transaction's state, or removes it if the second argument is true; may raise a `BrokerError`.
        mark: writes the markers of a decided transaction; returns the partitions whose marker could not be written.
        when_written: calls its argument once everything stored so far is on disk; at once if the broker does not sync.
        completed: called with a transactional id when its transaction has its markers, and the next one may begin.

    Attributes:
        by_id: the transactional ids, including ids loaded at the start.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timers: Timers,
        *,
        store: Callable[[TransactionMetadata, bool], None],
        new_producer_id: Callable[[], int],
        mark: Callable[[TransactionMetadata], Iterable[TopicPartition]],
        when_written: Callable[[Callable[[], None]], None] = lambda then: then(),
        completed: Callable[[str], None] = lambda transactional_id: None,
    ) -> None:
        self.settings = settings
        self.by_id: dict[str, TransactionMetadata] = {}
        self._clock = clock
        self._timers = timers
        self._store = store
        self._new_producer_id = new_producer_id
        self._mark = mark
        self._when_written = when_written
        self._completed = completed

    def resume(self, now: float) -> None:
        """After a start, write missing markers and set the timeouts of open transactions."""
        for transaction in list(self.by_id.values()):
            if transaction.is_decided:
                self._write_markers(transaction.transactional_id, now)
            elif transaction.state is TransactionalIdState.ONGOING:
                self._watch(transaction)
        self._watch_expiry()

    def catch_up(self, epochs: Mapping[int, int]) -> None:
        """After a start, raise the epochs that the coordinator's log lost to the highest epochs in the partitions.

        If an epoch were given out twice, batches of one producer would pass for duplicates of the other's.

        Args:
            epochs: producer id -> the highest epoch in any partition.
        """
        for known in list(self.by_id.values()):
            epoch = epochs.get(known.producer_id, NO_EPOCH)
            if epoch > known.epoch and not known.is_decided:
                name = known.transactional_id
                log.warning(
                    "%s has epoch %d, but a partition has records of epoch %d: continuing from there",
                    name,
                    known.epoch,
                    epoch,
                )
                self._timers.cancel(("transaction", name))
                self.by_id[name] = known.gone_on_from(epoch, self._clock.timestamp)  # the partitions store it

    def joined(self, transactional_id: str, place: TopicPartition, version: int) -> None:
        """After a start, add a partition that has records of the transaction but is missing in the coordinator's log.

        This is not stored now, since the disk might refuse it. It need not be: the partition's own log shows it, and
        the outcome will be stored with all partitions.
        """
        known = self.by_id[transactional_id]
        self.by_id[transactional_id] = known.with_partitions((place,), version, self._clock.timestamp)
        if known.state is not TransactionalIdState.ONGOING:
            self._watch(self.by_id[transactional_id])

    # -- requests of producers

    def initialize(self, transactional_id: str, timeout_ms: int, asked: tuple[int, int] | None) -> TransactionMetadata:
        """Give a producer its id and epoch.

        Args:
            asked: the id and epoch that the producer has; ``None`` for a new producer.

        Raises:
            InvalidRequest: the transactional id is empty.
            InvalidTransactionTimeout: not positive, or too long.
            ConcurrentTransactions: the last transaction is still being ended; if it was open, this call aborts it.
            ProducerFenced: a newer producer has the transactional id.
            CoordinatorNotAvailable: the disk refused, or there are too many ids.
        """
        if not transactional_id:
            raise InvalidRequest("the transactional id must not be empty")
        if not 0 < timeout_ms <= self.settings.max_timeout * 1000:
            raise InvalidTransactionTimeout(
                f"a timeout of {timeout_ms} ms; the broker allows at most {self.settings.max_timeout:g} s"
            )
        known = self.by_id.get(transactional_id) or self._new(transactional_id, timeout_ms)
        if asked is not None and not _may_go_on(known, *asked):
            raise ProducerFenced(
                f"{transactional_id} has producer id {known.producer_id}, not the producer's {asked[0]}"
            )
        if known.is_decided:
            raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
        if known.state is TransactionalIdState.ONGOING:
            self._fence(known, "a producer with the same transactional id was started")
            raise ConcurrentTransactions(f"the open transaction of {transactional_id} is being aborted")
        epoch = None if asked is None else asked[1]
        used_up = known.epoch >= LAST_EPOCH and epoch in (None, known.epoch)
        begun = known.given_out(epoch, timeout_ms, self._next_producer_id() if used_up else -1, self._clock.timestamp)
        self._change(begun)
        log.info("producer %d has epoch %d", begun.producer_id, begun.epoch, extra={"id": transactional_id})
        self._watch_expiry()
        return begun

    def add(self, asked: Producing, places: Iterable[TopicPartition], version: int) -> None:
        """Add partitions to the producer's transaction; begin it if none is open.

        Args:
            version: the version of transactions that the client uses.

        Raises:
            InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, CoordinatorNotAvailable.
        """
        transaction = self._of(asked)
        there = set(transaction.partitions)
        new = tuple(place for place in dict.fromkeys(places) if place not in there)
        if transaction.state is TransactionalIdState.ONGOING and not new:
            return
        begins = transaction.state is not TransactionalIdState.ONGOING
        self._change(transaction.with_partitions(new, version, self._clock.timestamp))
        if begins:
            self._watch(self.by_id[asked.transactional_id])

    def verify(self, asked: Producing, places: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerError]:
        """Return the partitions that are not part of the producer's transaction, each with a `TransactionAbortable`.

        Raises:
            InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions.
        """
        known = set(self._verified(asked).partitions)
        return {
            place: TransactionAbortable(f"{place[0]}-{place[1]} is not part of the transaction")
            for place in places
            if place not in known
        }

    def end(self, asked: Producing, *, commit: bool, version: int) -> tuple[int, int]:
        """Decide the outcome; return the producer's id and epoch for its next transaction.

        A repeated request gets the answer of the first.

        Args:
            version: the version of transactions that the client uses.

        Raises:
            InvalidProducerIdMapping, ProducerFenced, CoordinatorNotAvailable.
            ConcurrentTransactions: the markers are being written.
            InvalidTxnState: no transaction is open, or the last one ended with the other outcome.
        """
        known, repeated = self._to_end(asked, version)
        if known.is_decided:
            raise ConcurrentTransactions(f"the transaction of {known.transactional_id} is being ended")
        if known.state is not TransactionalIdState.ONGOING:
            told_again = repeated or version < EPOCH_RISES
            if told_again and known.state is not TransactionalIdState.EMPTY and known.commits == commit:
                return known.producer_id, known.epoch
            if told_again:
                raise InvalidTxnState(f"{known.transactional_id} is in state {known.state.value}")
        decided = self._decide(known, commit, version)
        next_one = decided.completed(self._clock.timestamp)
        return next_one.producer_id, next_one.epoch

    # -- ending

    def _decide(self, known: TransactionMetadata, commit: bool, version: int) -> TransactionMetadata:
        """Store the outcome, then write the markers."""
        used_up = version >= EPOCH_RISES and known.epoch >= LAST_EPOCH
        new_id = self._next_producer_id() if used_up else -1
        decided = known.decided(commit, version, new_id, self._clock.timestamp)
        self._change(decided)
        self._timers.cancel(("transaction", decided.transactional_id))
        self._when_written(lambda: self._write_markers(decided.transactional_id, self._clock.now))
        return decided

    def _write_markers(self, transactional_id: str, now: float) -> None:
        """Write the missing markers; complete the transaction when every partition has its marker."""
        transaction = self.by_id[transactional_id]
        left = tuple(self._mark(transaction))
        self.by_id[transactional_id] = transaction = replace(transaction, partitions=left)
        if left:
            self._again(transactional_id, now)
        else:
            self._when_written(lambda: self._complete(transactional_id))

    def _complete(self, transactional_id: str) -> None:
        try:
            self._change(self.by_id[transactional_id].completed(self._clock.timestamp))
        except BrokerError as error:
            log.error("transaction completion not stored yet, retrying: %s", error, extra={"id": transactional_id})
            self._again(transactional_id, self._clock.now)
        else:
            self._completed(transactional_id)

    def _again(self, transactional_id: str, now: float) -> None:
        again = partial(self._write_markers, transactional_id)
        self._timers.set(("transaction", transactional_id), now + _AGAIN, again)

    def _fence(self, transaction: TransactionMetadata, why: str) -> None:
        """Abort the open transaction and fence its producer."""
        log.info("transaction aborted: %s", why, extra={"id": transaction.transactional_id})
        self._decide(transaction, False, EPOCH_RISES)

    def _watch(self, transaction: TransactionMetadata) -> None:
        """Set the timer that aborts a transaction at its timeout."""
        left = transaction.started + transaction.timeout_ms - self._clock.timestamp
        left = min(max(0, left), transaction.timeout_ms)  # the system's clock may have been set since
        name = transaction.transactional_id
        self._timers.set(("transaction", name), self._clock.now + left / 1000, partial(self._time_out, name))

    def _time_out(self, transactional_id: str, now: float) -> None:
        transaction = self.by_id[transactional_id]
        try:
            self._fence(transaction, f"its timeout of {transaction.timeout_ms} ms has passed")
        except BrokerError as error:
            log.error("aborting a timed-out transaction failed, retrying: %s", error, extra={"id": transactional_id})
            self._timers.set(("transaction", transactional_id), now + _AGAIN, partial(self._time_out, transactional_id))

    # -- state

    def _new(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        if len(self.by_id) >= self.settings.max_ids:
            raise CoordinatorNotAvailable(f"this broker has {len(self.by_id)} transactional ids already")
        return TransactionMetadata(
            transactional_id=transactional_id, producer_id=self._next_producer_id(), timeout_ms=timeout_ms
        )

    def _next_producer_id(self) -> int:
        try:
            return self._new_producer_id()
        except KafkaStorageError as error:
            raise CoordinatorNotAvailable(error.detail) from error

    def _of(self, asked: Producing) -> TransactionMetadata:
        """Return the transaction that the producer may add to.

        Raises:
            ConcurrentTransactions: the last transaction is being ended.
        """
        # Checked before id and epoch: the producer may already have the id and epoch of its next transaction.
        if self._known(asked).is_decided:
            raise ConcurrentTransactions(f"the last transaction of {asked.transactional_id} is being ended")
        return self._verified(asked)

    def _verified(self, asked: Producing) -> TransactionMetadata:
        """Return the producer's transaction if its id and epoch match and it is not being ended."""
        known = self._known(asked)
        if known.producer_id != asked.producer_id:
            raise InvalidProducerIdMapping(f"{asked.transactional_id} does not have producer id {asked.producer_id}")
        if known.epoch != asked.epoch:
            raise ProducerFenced(f"{asked.transactional_id} has epoch {known.epoch}, not the producer's {asked.epoch}")
        if known.is_decided:
            raise ConcurrentTransactions(f"the last transaction of {asked.transactional_id} is being ended")
        return known

    def _known(self, asked: Producing) -> TransactionMetadata:
        if not asked.transactional_id:
            raise InvalidRequest("the transactional id must not be empty")
        if (known := self.by_id.get(asked.transactional_id)) is None:
            raise InvalidProducerIdMapping(f"transactional id {asked.transactional_id} is unknown")
        return known

    def _to_end(self, asked: Producing, version: int) -> tuple[TransactionMetadata, bool]:
        """Return the transaction that a producer wants to end, and whether the request repeats an earlier one.

        In version 2 the first request raised the epoch or changed the producer id, so a repeat has the old ones.
        """
        known = self._known(asked)
        repeated = version >= EPOCH_RISES and _is_repeated(known, asked)
        if known.producer_id != asked.producer_id and not repeated:
            raise InvalidProducerIdMapping(f"{known.transactional_id} has producer id {known.producer_id}")
        if not repeated and known.epoch != asked.epoch:
            raise ProducerFenced(f"{known.transactional_id} has epoch {known.epoch}, not the producer's {asked.epoch}")
        return known, repeated

    def _change(self, transaction: TransactionMetadata) -> None:
        """Store the new state of a transaction, then adopt it."""
        try:
            self._store(transaction, False)
        except BrokerError as error:
            raise CoordinatorNotAvailable(f"the transaction could not be stored: {error.detail}") from error
        self.by_id[transaction.transactional_id] = transaction

    def _watch_expiry(self) -> None:
        if self.by_id and not self._timers.is_set("transactional ids"):
            self._timers.set("transactional ids", self._clock.now + self.settings.expiration_check, self._expire)

    def _expire(self, now: float) -> None:
        """Forget transactional ids that were not used for `expiration`."""
        oldest = self._clock.timestamp - round(self.settings.expiration * 1000)
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
        self._watch_expiry()


def _may_go_on(known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Return whether a producer with this id and epoch may be the current one of the transactional id."""
    return (
        known.epoch < 0
        or producer_id == known.producer_id
        or (producer_id == known.previous_producer_id and epoch >= LAST_EPOCH)
    )


def _is_repeated(known: TransactionMetadata, asked: Producing) -> bool:
    if known.state in (TransactionalIdState.EMPTY, TransactionalIdState.ONGOING):
        return False
    if known.producer_id == asked.producer_id:
        return known.epoch == asked.epoch + 1
    return known.previous_producer_id == asked.producer_id and asked.epoch == LAST_EPOCH and known.epoch == 0
