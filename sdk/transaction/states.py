"""The states of a transactional producer, as a table.

    NONE ── NEEDED ──► ASKING ── GIVEN ──► READY ── BEGUN ──► OPEN ── END ──► ENDING ── COMMIT ──► COMMITTING
      ▲                                                        │                │                     │    │
      │                                                        ▼ DOOMED         ▼ DOOMED      REFUSED ▼  ENDED ──► READY
      │                                                      DOOMED ◄───────────┴─────────────────────┘
      │                                                        │ ABORT (from OPEN and ENDING, too)
      └── RENEW, from COMMITTING and ABORTING               ABORTING ── ENDED ──► READY        any ── FATAL ──► FAILED

Rules:
- Every state change goes through `TRANSITIONS`; an input without a cell in the current state is a bug.
- Records are accepted and sent while the state is OPEN. ENDING sends the accepted records, and refuses new ones, which
  would become part of the next transaction. DOOMED neither accepts nor sends: the transaction can only be aborted.
- A cancellation never leads from COMMITTING to an abort, because the broker may have committed. Only the broker's own
  refusal (TRANSACTION_ABORTABLE, INVALID_TXN_STATE) does.

Source: TransactionManager.java (State); KIP-98, KIP-360, KIP-890.
"""

from enum import Enum, auto

FEATURE = "transaction.version"
"""The broker feature whose level is the version of the transaction protocol."""
IMPLICIT = 2
"""The version from which partitions join a transaction with the first Produce."""


class TransactionalProducerState(Enum):
    NONE = auto()
    """There is no producer id, or its epoch has to be bumped before the next transaction."""
    ASKING = auto()
    """InitProducerId is in flight."""
    READY = auto()
    """A transaction may begin."""
    OPEN = auto()
    ENDING = auto()
    """The block has ended: the accepted records are sent, then committed."""
    DOOMED = auto()
    """There was a failure, and the transaction is not ended yet."""
    COMMITTING = auto()
    """EndTxn is in flight."""
    ABORTING = auto()
    FAILED = auto()
    """The producer can never send again."""


class TransactionalProducerInput(Enum):
    NEEDED = auto()
    GIVEN = auto()
    BEGUN = auto()
    DOOMED = auto()
    END = auto()
    COMMIT = auto()
    ABORT = auto()
    REFUSED = auto()
    """The broker can only abort."""
    ENDED = auto()
    RENEW = auto()
    """The transaction has ended, but one of its requests may still arrive: the epoch is bumped to fence it."""
    FATAL = auto()


S, I = TransactionalProducerState, TransactionalProducerInput  # noqa: E741 # so that the table fits
TRANSITIONS: dict[tuple[TransactionalProducerState, TransactionalProducerInput], TransactionalProducerState] = {
    (S.NONE, I.NEEDED): S.ASKING,
    (S.ASKING, I.GIVEN): S.READY,
    (S.READY, I.BEGUN): S.OPEN,
    (S.OPEN, I.DOOMED): S.DOOMED,
    (S.DOOMED, I.DOOMED): S.DOOMED,
    (S.ENDING, I.DOOMED): S.DOOMED,
    (S.OPEN, I.END): S.ENDING,
    (S.ENDING, I.COMMIT): S.COMMITTING,
    (S.OPEN, I.ABORT): S.ABORTING,
    (S.ENDING, I.ABORT): S.ABORTING,
    (S.DOOMED, I.ABORT): S.ABORTING,
    (S.COMMITTING, I.REFUSED): S.DOOMED,
    (S.COMMITTING, I.ENDED): S.READY,
    (S.COMMITTING, I.RENEW): S.NONE,
    (S.ABORTING, I.ENDED): S.READY,
    (S.ABORTING, I.RENEW): S.NONE,
    (S.READY, I.RENEW): S.NONE,
    **{(state, I.FATAL): S.FAILED for state in S},
}
