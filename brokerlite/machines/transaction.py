"""One transactional id: whose it is, what its transaction has touched, and in which state it is.

Rules:
- The state changes by `TRANSITIONS` and nowhere else.
- A `Transaction` never changes; what comes next is another one, which is stored before it counts.
- In transactions of version 2 (KIP-890) the epoch rises when the outcome is decided, so that a batch of one transaction
  that arrives late can never slip into the next. When epochs are used up, the next transaction has another producer id.

Source: TransactionMetadata.java, TransactionState.java.
"""

import enum
from dataclasses import dataclass, replace

from ottla.brokerlite.machines.topics import Place
from ottla.errors import InvalidTxnState, ProducerFenced

NO_EPOCH = -1
LAST_EPOCH = 2**15 - 2
"""A producer id with this epoch gets a successor: the one above is for fencing it."""
EPOCH_RISES = 2
"""The version of transactions from which each has an epoch of its own."""


class State(enum.Enum):
    """Of a transactional id; the values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """Decided; the markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """The markers are written."""
    COMPLETE_ABORT = "CompleteAbort"


class Input(enum.Enum):
    """What changes the state."""

    INITIALIZED = "a producer was given its id and epoch"
    ADDED = "a partition has joined"
    COMMITTED = "the producer has decided to commit"
    ABORTED = "the producer, a newer one or the time has decided to abort"
    MARKED = "every partition has its marker"
    LOST = "a partition has records of a later epoch, of which the disk has lost what was stored"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.EMPTY, Input.INITIALIZED): State.EMPTY,
    (State.COMPLETE_COMMIT, Input.INITIALIZED): State.EMPTY,
    (State.COMPLETE_ABORT, Input.INITIALIZED): State.EMPTY,
    (State.EMPTY, Input.ADDED): State.ONGOING,
    (State.ONGOING, Input.ADDED): State.ONGOING,
    (State.COMPLETE_COMMIT, Input.ADDED): State.ONGOING,
    (State.COMPLETE_ABORT, Input.ADDED): State.ONGOING,
    (State.ONGOING, Input.COMMITTED): State.PREPARE_COMMIT,
    (State.ONGOING, Input.ABORTED): State.PREPARE_ABORT,
    (State.EMPTY, Input.ABORTED): State.PREPARE_ABORT,  # version 2 may abort a transaction without partitions
    (State.COMPLETE_COMMIT, Input.ABORTED): State.PREPARE_ABORT,
    (State.COMPLETE_ABORT, Input.ABORTED): State.PREPARE_ABORT,
    (State.PREPARE_COMMIT, Input.MARKED): State.COMPLETE_COMMIT,
    (State.PREPARE_ABORT, Input.MARKED): State.COMPLETE_ABORT,
    (State.EMPTY, Input.LOST): State.EMPTY,
    (State.ONGOING, Input.LOST): State.EMPTY,
    (State.COMPLETE_COMMIT, Input.LOST): State.EMPTY,
    (State.COMPLETE_ABORT, Input.LOST): State.EMPTY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id and its transaction; times are milliseconds since 1970.

    Attributes:
        last_epoch: the epoch before this one, for a producer that did not get the answer; -1: none.
        previous_producer_id: before the last change; -1: there was none.
        next_producer_id: of the transaction after this one, where epochs are used up; -1: this one's.
        partitions: those that took part and still need a marker.
        started: when the first partition joined; -1: none has.
        version: of transactions, as the client knows them.
    """

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = -1
    next_producer_id: int = -1
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[Place, ...] = ()
    started: int = -1
    updated: int = -1
    version: int = 0

    @property
    def is_decided(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def has_ended(self) -> bool:
        """The last transaction has its markers, and no other has begun."""
        return self.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether it was decided to commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def given_out(self, asked: int | None, timeout_ms: int, new_producer_id: int, timestamp: int) -> "Transaction":
        """Its producer begins, or goes on after an error.

        Args:
            asked: the epoch that the producer has; ``None``: it is a new one.
            new_producer_id: where epochs are used up.

        Raises:
            ProducerFenced: its epoch is not the last.
        """
        begun = self._after(Input.INITIALIZED, timestamp)
        begun = replace(begun, timeout_ms=timeout_ms, partitions=(), started=-1)
        if self.epoch >= LAST_EPOCH and asked in (None, self.epoch):
            last = NO_EPOCH if asked is None else self.epoch
            return replace(begun, producer_id=new_producer_id, epoch=0, last_epoch=last)
        if asked is None:
            return replace(begun, epoch=self.epoch + 1, last_epoch=NO_EPOCH)
        if self.epoch in (NO_EPOCH, asked):
            return replace(begun, epoch=self.epoch + 1, last_epoch=self.epoch)
        if asked == self.last_epoch:  # the answer was lost
            return begun
        raise ProducerFenced(f"{self.transactional_id} has epoch {self.epoch}, and the producer {asked}")

    def with_partitions(self, places: tuple[Place, ...], version: int, timestamp: int) -> "Transaction":
        """Partitions have joined."""
        return replace(
            self._after(Input.ADDED, timestamp),
            partitions=tuple(dict.fromkeys(self.partitions + places)),
            started=self.started if self.state is State.ONGOING else timestamp,
            version=version,
        )

    def decided(self, commit: bool, version: int, new_producer_id: int, timestamp: int) -> "Transaction":
        """The outcome is known: from its producer, or because a newer one or the time has aborted it.

        Args:
            version: 2 also fences the producer, unless that learns its next epoch.
            new_producer_id: for the next transaction, where epochs are used up.

        Raises:
            InvalidTxnState: there is nothing to end that way.
        """
        decided = self._after(Input.COMMITTED if commit else Input.ABORTED, timestamp)
        decided = replace(decided, version=version)
        if self.state is not State.ONGOING:
            decided = replace(decided, started=timestamp)
        if version < EPOCH_RISES:
            return decided
        next_id = new_producer_id if self.epoch >= LAST_EPOCH else -1
        return replace(decided, epoch=self.epoch + 1, last_epoch=self.epoch, next_producer_id=next_id)

    def completed(self, timestamp: int) -> "Transaction":
        """Every partition has its marker."""
        done = replace(self._after(Input.MARKED, timestamp), partitions=(), next_producer_id=-1)
        return replace(done, producer_id=self.next_producer_id, epoch=0) if self.next_producer_id >= 0 else done

    def gone_on_from(self, epoch: int, timestamp: int) -> "Transaction":
        """A partition has records of ``epoch``, and nothing is known of it; an older transaction was ended before."""
        lost = self._after(Input.LOST, timestamp)
        return replace(lost, epoch=epoch, last_epoch=NO_EPOCH, partitions=(), started=-1)

    def _after(self, event: Input, timestamp: int) -> "Transaction":
        if (state := TRANSITIONS.get((self.state, event))) is None:
            raise InvalidTxnState(f"{self.transactional_id} is {self.state.value}, and {event.value}")
        return replace(self, state=state, previous_producer_id=self.producer_id, updated=timestamp)
