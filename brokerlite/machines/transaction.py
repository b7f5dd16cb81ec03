"""The state of one transactional id: its producer, its state, and the partitions of its transaction.

Rules:
- Every state change goes through `TRANSITIONS`.
- A `Transaction` is immutable: each change makes a new one, which is stored before it takes effect.
- In transactions of version 2 (KIP-890) the epoch rises when the outcome is decided, so a late batch of one transaction
  never gets into the next. When the epochs are used up, the next transaction has another producer id.

Source: TransactionMetadata.java, TransactionState.java.
"""

import enum
from dataclasses import dataclass, replace

from ottla.brokerlite.machines.topics import Place
from ottla.errors import InvalidTxnState, ProducerFenced

NO_EPOCH = -1
LAST_EPOCH = 2**15 - 2
"""A producer id with this epoch is replaced by a new id: the epoch above it is reserved for fencing."""
EPOCH_RISES = 2
"""The version of transactions from which the epoch rises with every transaction."""


class State(enum.Enum):
    """The state of a transactional id; the values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """Decided; the markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """The markers are written."""
    COMPLETE_ABORT = "CompleteAbort"


class Input(enum.Enum):
    """An event that changes the state."""

    INITIALIZED = "a producer gets its id and epoch"
    ADDED = "a partition is added"
    COMMITTED = "the producer commits"
    ABORTED = "the producer, a newer producer or the timeout aborts"
    MARKED = "every partition has its marker"
    LOST = "a partition has records of a later epoch, which the disk has lost for the coordinator"


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
        last_epoch: the epoch before this one, which a producer still has if the answer was lost; -1 for none.
        previous_producer_id: the producer id before the last change; -1 for none.
        next_producer_id: the producer id of the next transaction if epochs are used up; -1: it keeps this one.
        partitions: the partitions that take part and have no marker yet.
        started: when the first partition was added; -1: none was.
        version: the version of transactions that the client uses.
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
        """Whether the last transaction has its markers and no other has begun."""
        return self.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether the outcome is commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def given_out(self, asked: int | None, timeout_ms: int, new_producer_id: int, timestamp: int) -> "Transaction":
        """Return the state after InitProducerId: a producer starts, or continues after an error.

        Args:
            asked: the epoch that the producer has; ``None`` for a new producer.
            new_producer_id: the producer id to use if the epochs are used up.

        Raises:
            ProducerFenced: a newer producer has a higher epoch.
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
        raise ProducerFenced(f"{self.transactional_id} has epoch {self.epoch}, not the producer's {asked}")

    def with_partitions(self, places: tuple[Place, ...], version: int, timestamp: int) -> "Transaction":
        """Return the state with partitions added."""
        return replace(
            self._after(Input.ADDED, timestamp),
            partitions=tuple(dict.fromkeys(self.partitions + places)),
            started=self.started if self.state is State.ONGOING else timestamp,
            version=version,
        )

    def decided(self, commit: bool, version: int, new_producer_id: int, timestamp: int) -> "Transaction":
        """Return the state with the outcome decided: by the producer, by a newer producer or by the timeout.

        Args:
            version: 2 raises the epoch, which fences the producer unless the answer gives it the new epoch.
            new_producer_id: the producer id of the next transaction if the epochs are used up.

        Raises:
            InvalidTxnState: no transaction can end that way now.
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
        """Return the state once every partition has its marker."""
        done = replace(self._after(Input.MARKED, timestamp), partitions=(), next_producer_id=-1)
        return replace(done, producer_id=self.next_producer_id, epoch=0) if self.next_producer_id >= 0 else done

    def gone_on_from(self, epoch: int, timestamp: int) -> "Transaction":
        """Return the state at ``epoch``, of which a partition has records but the coordinator's log has nothing.

        A transaction of an older epoch must have ended before, so the result has no open one.
        """
        lost = self._after(Input.LOST, timestamp)
        return replace(lost, epoch=epoch, last_epoch=NO_EPOCH, partitions=(), started=-1)

    def _after(self, event: Input, timestamp: int) -> "Transaction":
        if (state := TRANSITIONS.get((self.state, event))) is None:
            raise InvalidTxnState(
                f"{self.transactional_id} is in state {self.state.value}, which does not allow that {event.value}"
            )
        return replace(self, state=state, previous_producer_id=self.producer_id, updated=timestamp)
