"""The state of one transactional id: its producer, its state, and the partitions of its transaction.

Rules:
- Every state change goes through `TRANSITIONS`.
- A `TransactionMetadata` is immutable: each change makes a new one, which is stored before it takes effect.
- In transactions of version 2 (KIP-890) the epoch rises when the outcome is decided, so a late batch of one transaction
  never gets into the next. When the epochs are used up, the next transaction has another producer id.

Source: TransactionMetadata.java, TransactionalIdState.java.
"""

import enum
from dataclasses import dataclass, replace

from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.errors import InvalidTxnState, ProducerFenced

NO_EPOCH = -1
LAST_EPOCH = 2**15 - 2
"""A producer id with this epoch is replaced by a new id: the epoch above it is reserved for fencing."""
EPOCH_RISES = 2
"""The version of transactions from which the epoch rises with every transaction."""


class TransactionalIdState(enum.Enum):
    """The state of a transactional id; the values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """Decided; the markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """The markers are written."""
    COMPLETE_ABORT = "CompleteAbort"


class TransactionInput(enum.Enum):
    """An event that changes the state."""

    INITIALIZED = "a producer gets its id and epoch"
    ADDED = "a partition is added"
    COMMITTED = "the producer commits"
    ABORTED = "the producer, a newer producer or the timeout aborts"
    MARKED = "every partition has its marker"
    LOST = "a partition has records of a later epoch, which the disk has lost for the coordinator"


TRANSITIONS: dict[tuple[TransactionalIdState, TransactionInput], TransactionalIdState] = {
    (TransactionalIdState.EMPTY, TransactionInput.INITIALIZED): TransactionalIdState.EMPTY,
    (TransactionalIdState.COMPLETE_COMMIT, TransactionInput.INITIALIZED): TransactionalIdState.EMPTY,
    (TransactionalIdState.COMPLETE_ABORT, TransactionInput.INITIALIZED): TransactionalIdState.EMPTY,
    (TransactionalIdState.EMPTY, TransactionInput.ADDED): TransactionalIdState.ONGOING,
    (TransactionalIdState.ONGOING, TransactionInput.ADDED): TransactionalIdState.ONGOING,
    (TransactionalIdState.COMPLETE_COMMIT, TransactionInput.ADDED): TransactionalIdState.ONGOING,
    (TransactionalIdState.COMPLETE_ABORT, TransactionInput.ADDED): TransactionalIdState.ONGOING,
    (TransactionalIdState.ONGOING, TransactionInput.COMMITTED): TransactionalIdState.PREPARE_COMMIT,
    (TransactionalIdState.ONGOING, TransactionInput.ABORTED): TransactionalIdState.PREPARE_ABORT,
    (
        TransactionalIdState.EMPTY,
        TransactionInput.ABORTED,
    ): TransactionalIdState.PREPARE_ABORT,  # version 2 may abort a transaction without partitions
    (TransactionalIdState.COMPLETE_COMMIT, TransactionInput.ABORTED): TransactionalIdState.PREPARE_ABORT,
    (TransactionalIdState.COMPLETE_ABORT, TransactionInput.ABORTED): TransactionalIdState.PREPARE_ABORT,
    (TransactionalIdState.PREPARE_COMMIT, TransactionInput.MARKED): TransactionalIdState.COMPLETE_COMMIT,
    (TransactionalIdState.PREPARE_ABORT, TransactionInput.MARKED): TransactionalIdState.COMPLETE_ABORT,
    (TransactionalIdState.EMPTY, TransactionInput.LOST): TransactionalIdState.EMPTY,
    (TransactionalIdState.ONGOING, TransactionInput.LOST): TransactionalIdState.EMPTY,
    (TransactionalIdState.COMPLETE_COMMIT, TransactionInput.LOST): TransactionalIdState.EMPTY,
    (TransactionalIdState.COMPLETE_ABORT, TransactionInput.LOST): TransactionalIdState.EMPTY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
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
    state: TransactionalIdState = TransactionalIdState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    started: int = -1
    updated: int = -1
    version: int = 0

    @property
    def is_decided(self) -> bool:
        return self.state in (TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.PREPARE_ABORT)

    @property
    def has_ended(self) -> bool:
        """Whether the last transaction has its markers and no other has begun."""
        return self.state in (TransactionalIdState.COMPLETE_COMMIT, TransactionalIdState.COMPLETE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether the outcome is commit."""
        return self.state in (TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.COMPLETE_COMMIT)

    def given_out(
        self, asked: int | None, timeout_ms: int, new_producer_id: int, timestamp: int
    ) -> "TransactionMetadata":
        """Return the state after InitProducerId: a producer starts, or continues after an error.

        Args:
            asked: the epoch that the producer has; ``None`` for a new producer.
            new_producer_id: the producer id to use if the epochs are used up.

        Raises:
            ProducerFenced: a newer producer has a higher epoch.
        """
        begun = self._after(TransactionInput.INITIALIZED, timestamp)
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

    def with_partitions(
        self, places: tuple[TopicPartition, ...], version: int, timestamp: int
    ) -> "TransactionMetadata":
        """Return the state with partitions added."""
        return replace(
            self._after(TransactionInput.ADDED, timestamp),
            partitions=tuple(dict.fromkeys(self.partitions + places)),
            started=self.started if self.state is TransactionalIdState.ONGOING else timestamp,
            version=version,
        )

    def decided(self, commit: bool, version: int, new_producer_id: int, timestamp: int) -> "TransactionMetadata":
        """Return the state with the outcome decided: by the producer, by a newer producer or by the timeout.

        Args:
            version: 2 raises the epoch, which fences the producer unless the answer gives it the new epoch.
            new_producer_id: the producer id of the next transaction if the epochs are used up.

        Raises:
            InvalidTxnState: no transaction can end that way now.
        """
        decided = self._after(TransactionInput.COMMITTED if commit else TransactionInput.ABORTED, timestamp)
        decided = replace(decided, version=version)
        if self.state is not TransactionalIdState.ONGOING:
            decided = replace(decided, started=timestamp)
        if version < EPOCH_RISES:
            return decided
        next_id = new_producer_id if self.epoch >= LAST_EPOCH else -1
        return replace(decided, epoch=self.epoch + 1, last_epoch=self.epoch, next_producer_id=next_id)

    def completed(self, timestamp: int) -> "TransactionMetadata":
        """Return the state once every partition has its marker."""
        done = replace(self._after(TransactionInput.MARKED, timestamp), partitions=(), next_producer_id=-1)
        return replace(done, producer_id=self.next_producer_id, epoch=0) if self.next_producer_id >= 0 else done

    def gone_on_from(self, epoch: int, timestamp: int) -> "TransactionMetadata":
        """Return the state at ``epoch``, of which a partition has records but the coordinator's log has nothing.

        A transaction of an older epoch must have ended before, so the result has no open one.
        """
        lost = self._after(TransactionInput.LOST, timestamp)
        return replace(lost, epoch=epoch, last_epoch=NO_EPOCH, partitions=(), started=-1)

    def _after(self, event: TransactionInput, timestamp: int) -> "TransactionMetadata":
        if (state := TRANSITIONS.get((self.state, event))) is None:
            raise InvalidTxnState(
                f"{self.transactional_id} is in state {self.state.value}, which does not allow that {event.value}"
            )
        return replace(self, state=state, previous_producer_id=self.producer_id, updated=timestamp)
