"""The transaction coordinator: assigns producer ids and epochs, adds partitions, and commits or aborts transactions.

    transactions.initialize(...)     # InitProducerId of a transactional producer
    transactions.add(...)            # add partitions
    transactions.end(...)            # decide the outcome; the markers follow
    transactions.resume(now)         # after a start: continue unfinished transactions

Rules:
- Every change is stored before it takes effect (`TransactionalIds`). The next transaction waits for all markers of the
  last one (`TransactionEnds`).
- A newer producer with the same transactional id fences the previous one and aborts its open transaction.

Source: TransactionCoordinator.scala; KIP-98, KIP-360, KIP-890.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_ends import TransactionEnds
from ottla.brokerlite.machines.transactions.transaction_metadata import (
    EPOCH_RISES,
    LAST_EPOCH,
    NO_EPOCH,
    TransactionalIdState,
    TransactionMetadata,
)
from ottla.brokerlite.machines.transactions.transaction_settings import TransactionSettings
from ottla.brokerlite.machines.transactions.transactional_ids import TransactionalIds
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)

log = logging.getLogger("ottla.brokerlite.transactions")


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
        self._clock = clock
        self._ids = TransactionalIds(settings, clock, timers, store, new_producer_id)
        self._ends = TransactionEnds(
            self._ids, clock, timers, mark=mark, when_written=when_written, completed=completed
        )

    @property
    def by_id(self) -> dict[str, TransactionMetadata]:
        """The transactions by transactional id, including those loaded at the start."""
        return self._ids.by_id

    def resume(self, now: float) -> None:
        """After a start, write missing markers and set the timeouts of open transactions."""
        for transaction in list(self.by_id.values()):
            if transaction.is_decided:
                self._ends.write_markers(transaction.transactional_id, now)
            elif transaction.state is TransactionalIdState.ONGOING:
                self._ends.watch(transaction)
        self._ids.watch_expiry()

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
                self._ends.unwatch(name)
                self._ids.adopt(known.gone_on_from(epoch, self._clock.timestamp))

    def joined(self, transactional_id: str, place: TopicPartition, version: int) -> None:
        """After a start, add a partition that has records of the transaction but is missing in the coordinator's log.

        This is not stored now, since the disk might refuse it. It need not be: the partition's own log shows it, and
        the outcome will be stored with all partitions.
        """
        known = self.by_id[transactional_id]
        self._ids.adopt(known.with_partitions((place,), version, self._clock.timestamp))
        if known.state is not TransactionalIdState.ONGOING:
            self._ends.watch(self.by_id[transactional_id])

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
        known = self.by_id.get(transactional_id) or self._ids.begin(transactional_id, timeout_ms)
        if asked is not None and not _may_go_on(known, *asked):
            raise ProducerFenced(
                f"{transactional_id} has producer id {known.producer_id}, not the producer's {asked[0]}"
            )
        if known.is_decided:
            raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
        if known.state is TransactionalIdState.ONGOING:
            self._ends.fence(known, "a producer with the same transactional id was started")
            raise ConcurrentTransactions(f"the open transaction of {transactional_id} is being aborted")
        epoch = None if asked is None else asked[1]
        used_up = known.epoch >= LAST_EPOCH and epoch in (None, known.epoch)
        new_id = self._ids.next_producer_id() if used_up else -1
        begun = known.given_out(epoch, timeout_ms, new_id, self._clock.timestamp)
        self._ids.change(begun)
        log.info("producer %d has epoch %d", begun.producer_id, begun.epoch, extra={"id": transactional_id})
        self._ids.watch_expiry()
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
        self._ids.change(transaction.with_partitions(new, version, self._clock.timestamp))
        if begins:
            self._ends.watch(self.by_id[asked.transactional_id])

    def check_producer_id(self, transactional_id: str, producer_id: int) -> None:
        """Make sure that a producer id belongs to a transactional id.

        Raises:
            InvalidProducerIdMapping: it does not.
        """
        known = self.by_id.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise InvalidProducerIdMapping(f"{transactional_id} does not have producer id {producer_id}")

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
        decided = self._ends.decide(known, commit, version)
        next_one = decided.completed(self._clock.timestamp)
        return next_one.producer_id, next_one.epoch

    # -- state

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
