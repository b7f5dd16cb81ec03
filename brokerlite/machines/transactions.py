"""The transaction coordinator: producer ids and epochs, which partitions take part, and how it ends.

    transactions.initialize(...)     # InitProducerId of a transactional producer
    transactions.add(...)            # partitions join
    transactions.end(...)            # the outcome; the markers follow
    transactions.resume(now)         # after a start: go on with what was left

Rules:
- Each change is stored before it counts. The outcome is decided when it is stored; then the markers are written, and
  what is left of them after a kill is written at the next start. Until they are written the next transaction waits.
- A newer producer with the same transactional id fences the one before, and aborts what that left open.
- A transaction that takes longer than its producer allowed is aborted, and its producer fenced.
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
from ottla.brokerlite.machines.topics import Place
from ottla.brokerlite.machines.transaction import EPOCH_RISES, LAST_EPOCH, NO_EPOCH, State, Transaction
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
"""Seconds until markers that the disk refused are tried again."""


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Kafka's settings of a transaction coordinator; seconds."""

    max_timeout: float = 15 * 60.0
    """The longest that a producer may ask for (`transaction.max.timeout.ms`)."""
    expiration: float = 7 * 24 * 3600.0
    """How long a transactional id is remembered (`transactional.id.expiration.ms`)."""
    expiration_check: float = 3600.0
    """How often this is looked at (`transaction.remove.expired.transaction.cleanup.interval.ms`)."""
    max_ids: int = 100_000
    """Transactional ids at once."""


class Producing(NamedTuple):
    """Who asks, as the request says."""

    transactional_id: str
    producer_id: int
    epoch: int


class Transactions:
    """All transactional ids.

    Args:
        store: keeps a transaction as it is, or (second argument) forgets it; may raise a `BrokerError`.
        mark: writes the markers of a decided transaction; returns the partitions that did not get theirs.
        when_written: calls its argument when the disk holds what was stored; at once where nobody waits for disks.
        completed: called with a transactional id when its transaction has its markers, and the next one may begin.

    Attributes:
        by_id: the transactional ids; those that are in it at the start were stored.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timers: Timers,
        *,
        store: Callable[[Transaction, bool], None],
        new_producer_id: Callable[[], int],
        mark: Callable[[Transaction], Iterable[Place]],
        when_written: Callable[[Callable[[], None]], None] = lambda then: then(),
        completed: Callable[[str], None] = lambda transactional_id: None,
    ) -> None:
        self.settings = settings
        self.by_id: dict[str, Transaction] = {}
        self._clock = clock
        self._timers = timers
        self._store = store
        self._new_producer_id = new_producer_id
        self._mark = mark
        self._when_written = when_written
        self._completed = completed

    def resume(self, now: float) -> None:
        """Go on with what was left at the last end: outcomes without markers, transactions that are open."""
        for transaction in list(self.by_id.values()):
            if transaction.is_decided:
                self._write_markers(transaction.transactional_id, now)
            elif transaction.state is State.ONGOING:
                self._watch(transaction)
        self._watch_expiry()

    def catch_up(self, epochs: Mapping[int, int]) -> None:
        """After a start: go on from the epochs of which partitions have records, where the disk has lost what was
        stored of them. An epoch that was given out twice would have the batches of one producer taken for those of the
        other.

        Args:
            epochs: producer id -> the highest.
        """
        for known in list(self.by_id.values()):
            epoch = epochs.get(known.producer_id, NO_EPOCH)
            if epoch > known.epoch and not known.is_decided:
                name = known.transactional_id
                log.warning("%s has epoch %d, and a partition has records of epoch %d", name, known.epoch, epoch)
                self._timers.cancel(("transaction", name))
                self.by_id[name] = known.gone_on_from(epoch, self._clock.timestamp)  # the partitions have it stored

    def joined(self, transactional_id: str, place: Place, version: int) -> None:
        """After a start: a partition has records of the open transaction, where the disk has lost that it joined.

        That counts though it is not stored again yet, which the disk might refuse: the partition has it stored, and the
        outcome is stored together with all that take part.
        """
        known = self.by_id[transactional_id]
        self.by_id[transactional_id] = known.with_partitions((place,), version, self._clock.timestamp)
        if known.state is not State.ONGOING:
            self._watch(self.by_id[transactional_id])

    # -- what producers ask

    def initialize(self, transactional_id: str, timeout_ms: int, asked: tuple[int, int] | None) -> Transaction:
        """Give a producer its id and epoch.

        Args:
            asked: the id and epoch that it has; ``None``: it is a new one.

        Raises:
            InvalidRequest: the transactional id is empty.
            InvalidTransactionTimeout: not positive, or too long.
            ConcurrentTransactions: an earlier transaction is being ended; from now on, if need be.
            ProducerFenced: it is not the last one.
            CoordinatorNotAvailable: the disk refused, or there are too many ids.
        """
        if not transactional_id:
            raise InvalidRequest("a transactional id is not empty")
        if not 0 < timeout_ms <= self.settings.max_timeout * 1000:
            raise InvalidTransactionTimeout(f"{timeout_ms} ms; the broker allows {self.settings.max_timeout:g} s")
        known = self.by_id.get(transactional_id) or self._new(transactional_id, timeout_ms)
        if asked is not None and not _may_go_on(known, *asked):
            raise ProducerFenced(f"{transactional_id} has producer id {known.producer_id}, and the producer {asked[0]}")
        if known.is_decided:
            raise ConcurrentTransactions(f"the last transaction of {transactional_id} is being ended")
        if known.state is State.ONGOING:
            self._fence(known, "a producer with the same transactional id has come")
            raise ConcurrentTransactions(f"the open transaction of {transactional_id} is being aborted")
        epoch = None if asked is None else asked[1]
        used_up = known.epoch >= LAST_EPOCH and epoch in (None, known.epoch)
        begun = known.given_out(epoch, timeout_ms, self._next_producer_id() if used_up else -1, self._clock.timestamp)
        self._change(begun)
        log.info("producer %d has epoch %d", begun.producer_id, begun.epoch, extra={"id": transactional_id})
        self._watch_expiry()
        return begun

    def add(self, asked: Producing, places: Iterable[Place], version: int) -> None:
        """Have partitions join the producer's transaction, which may thereby begin.

        Args:
            version: of transactions, as the client knows them.

        Raises:
            InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, CoordinatorNotAvailable.
        """
        transaction = self._of(asked)
        there = set(transaction.partitions)
        new = tuple(place for place in dict.fromkeys(places) if place not in there)
        if transaction.state is State.ONGOING and not new:
            return
        begins = transaction.state is not State.ONGOING
        self._change(transaction.with_partitions(new, version, self._clock.timestamp))
        if begins:
            self._watch(self.by_id[asked.transactional_id])

    def verify(self, asked: Producing, places: Iterable[Place]) -> dict[Place, BrokerError]:
        """The partitions that do not belong to the producer's transaction, each with a `TransactionAbortable`.

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

        A repeated request is answered as the first one was.

        Args:
            version: of transactions, as the client knows them.

        Raises:
            InvalidProducerIdMapping, ProducerFenced, CoordinatorNotAvailable.
            ConcurrentTransactions: the markers are being written.
            InvalidTxnState: there is nothing to end, or it has ended the other way.
        """
        known, repeated = self._to_end(asked, version)
        if known.is_decided:
            raise ConcurrentTransactions(f"the transaction of {known.transactional_id} is being ended")
        if known.state is not State.ONGOING:
            told_again = repeated or version < EPOCH_RISES
            if told_again and known.state is not State.EMPTY and known.commits == commit:
                return known.producer_id, known.epoch
            if told_again:
                raise InvalidTxnState(f"{known.transactional_id} is {known.state.value}")
        decided = self._decide(known, commit, version)
        next_one = decided.completed(self._clock.timestamp)
        return next_one.producer_id, next_one.epoch

    # -- ending

    def _decide(self, known: Transaction, commit: bool, version: int) -> Transaction:
        """Store an outcome, and write its markers."""
        used_up = version >= EPOCH_RISES and known.epoch >= LAST_EPOCH
        new_id = self._next_producer_id() if used_up else -1
        decided = known.decided(commit, version, new_id, self._clock.timestamp)
        self._change(decided)
        self._timers.cancel(("transaction", decided.transactional_id))
        self._when_written(lambda: self._write_markers(decided.transactional_id, self._clock.now))
        return decided

    def _write_markers(self, transactional_id: str, now: float) -> None:
        """Tell the partitions how it has ended, and be done when all know."""
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
            log.error("the end of a transaction is not stored yet: %s", error, extra={"id": transactional_id})
            self._again(transactional_id, self._clock.now)
        else:
            self._completed(transactional_id)

    def _again(self, transactional_id: str, now: float) -> None:
        again = partial(self._write_markers, transactional_id)
        self._timers.set(("transaction", transactional_id), now + _AGAIN, again)

    def _fence(self, transaction: Transaction, why: str) -> None:
        """Abort what a producer left open, and let it write no more."""
        log.info("transaction aborted: %s", why, extra={"id": transaction.transactional_id})
        self._decide(transaction, False, EPOCH_RISES)

    def _watch(self, transaction: Transaction) -> None:
        """Abort a transaction when it has taken too long."""
        left = transaction.started + transaction.timeout_ms - self._clock.timestamp
        left = min(max(0, left), transaction.timeout_ms)  # the system's clock may have been set since
        name = transaction.transactional_id
        self._timers.set(("transaction", name), self._clock.now + left / 1000, partial(self._time_out, name))

    def _time_out(self, transactional_id: str, now: float) -> None:
        transaction = self.by_id[transactional_id]
        try:
            self._fence(transaction, f"it has taken longer than its {transaction.timeout_ms} ms")
        except BrokerError as error:
            log.error("a transaction that takes too long goes on: %s", error, extra={"id": transactional_id})
            self._timers.set(("transaction", transactional_id), now + _AGAIN, partial(self._time_out, transactional_id))

    # -- remembering

    def _new(self, transactional_id: str, timeout_ms: int) -> Transaction:
        if len(self.by_id) >= self.settings.max_ids:
            raise CoordinatorNotAvailable(f"this broker has {len(self.by_id)} transactional ids already")
        return Transaction(
            transactional_id=transactional_id, producer_id=self._next_producer_id(), timeout_ms=timeout_ms
        )

    def _next_producer_id(self) -> int:
        try:
            return self._new_producer_id()
        except KafkaStorageError as error:
            raise CoordinatorNotAvailable(error.detail) from error

    def _of(self, asked: Producing) -> Transaction:
        """The transaction of the producer that asks, if nothing is being ended."""
        if self._known(asked).is_decided:  # before all else: the producer may have its next id or epoch already
            raise ConcurrentTransactions(f"the last transaction of {asked.transactional_id} is being ended")
        return self._verified(asked)

    def _verified(self, asked: Producing) -> Transaction:
        """The same, where nothing is to be changed."""
        known = self._known(asked)
        if known.producer_id != asked.producer_id:
            raise InvalidProducerIdMapping(f"{asked.transactional_id} does not have producer id {asked.producer_id}")
        if known.epoch != asked.epoch:
            raise ProducerFenced(f"{asked.transactional_id} has epoch {known.epoch}, and the producer {asked.epoch}")
        if known.is_decided:
            raise ConcurrentTransactions(f"the last transaction of {asked.transactional_id} is being ended")
        return known

    def _known(self, asked: Producing) -> Transaction:
        if not asked.transactional_id:
            raise InvalidRequest("a transactional id is not empty")
        if (known := self.by_id.get(asked.transactional_id)) is None:
            raise InvalidProducerIdMapping(f"{asked.transactional_id} is not known")
        return known

    def _to_end(self, asked: Producing, version: int) -> tuple[Transaction, bool]:
        """The transaction that a producer wants to end, and whether it was told to before: in version 2 the epoch has
        risen since, or the producer id has changed."""
        known = self._known(asked)
        repeated = version >= EPOCH_RISES and _is_repeated(known, asked)
        if known.producer_id != asked.producer_id and not repeated:
            raise InvalidProducerIdMapping(f"{known.transactional_id} has producer id {known.producer_id}")
        if not repeated and known.epoch != asked.epoch:
            raise ProducerFenced(f"{known.transactional_id} has epoch {known.epoch}, and the producer {asked.epoch}")
        return known, repeated

    def _change(self, transaction: Transaction) -> None:
        """Store what a transaction becomes, then believe it."""
        try:
            self._store(transaction, False)
        except BrokerError as error:
            raise CoordinatorNotAvailable(f"the transaction could not be stored: {error.detail}") from error
        self.by_id[transaction.transactional_id] = transaction

    def _watch_expiry(self) -> None:
        if self.by_id and not self._timers.is_set("transactional ids"):
            self._timers.set("transactional ids", self._clock.now + self.settings.expiration_check, self._expire)

    def _expire(self, now: float) -> None:
        """Forget ids that nobody has used for long."""
        oldest = self._clock.timestamp - round(self.settings.expiration * 1000)
        for transaction in list(self.by_id.values()):
            if transaction.is_decided or transaction.state is State.ONGOING or transaction.updated > oldest:
                continue
            try:
                self._store(transaction, True)
            except BrokerError as error:
                log.error("an expired id stays: %s", error, extra={"id": transaction.transactional_id})
            else:
                del self.by_id[transaction.transactional_id]
        self._watch_expiry()


def _may_go_on(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether a producer that has this id and epoch may be the id's."""
    return (
        known.epoch < 0
        or producer_id == known.producer_id
        or (producer_id == known.previous_producer_id and epoch >= LAST_EPOCH)
    )


def _is_repeated(known: Transaction, asked: Producing) -> bool:
    if known.state in (State.EMPTY, State.ONGOING):
        return False
    if known.producer_id == asked.producer_id:
        return known.epoch == asked.epoch + 1
    return known.previous_producer_id == asked.producer_id and asked.epoch == LAST_EPOCH and known.epoch == 0
