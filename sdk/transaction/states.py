"""The states of a transactional producer, as a table.

    NONE ── NEEDED ──► ASKING ── GIVEN ──► READY ── BEGUN ──► OPEN ── END ──► ENDING ── COMMIT ──► COMMITTING
      ▲                                                        │                │                     │    │
      │                                                        ▼ DOOMED         ▼ DOOMED      REFUSED ▼  ENDED ──► READY
      │                                                      DOOMED ◄───────────┴─────────────────────┘
      │                                                        │ ABORT (from OPEN and ENDING, too)
      └── RENEW, from COMMITTING and ABORTING               ABORTING ── ENDED ──► READY        any ── FATAL ──► FAILED

Rules:
- Every state is changed through `TRANSITIONS`; an input that a state has no cell for is a bug.
- Records are taken and sent while it is OPEN. ENDING sends what was taken; what comes now is refused, or it would go
  with the next transaction. DOOMED takes and sends nothing more: the transaction can only be aborted.
- COMMITTING is never left for an abort, whatever is cancelled: the broker may have committed. Only its own word that
  it cannot (TRANSACTION_ABORTABLE, INVALID_TXN_STATE) leads back.

Source: TransactionManager.java (State); KIP-98, KIP-360, KIP-890.
"""

from enum import Enum, auto

FEATURE = "transaction.version"
"""The feature of brokers whose level is the protocol."""
IMPLICIT = 2
"""The protocol in which partitions join by themselves."""


class State(Enum):
    NONE = auto()
    """There is no producer id, or its epoch has to rise before the next transaction."""
    ASKING = auto()
    """InitProducerId is under way."""
    READY = auto()
    """A transaction may begin."""
    OPEN = auto()
    ENDING = auto()
    """Its block has ended: what was taken is sent, and then committed."""
    DOOMED = auto()
    """Something has failed, and the transaction was not ended yet."""
    COMMITTING = auto()
    """EndTxn is under way."""
    ABORTING = auto()
    FAILED = auto()
    """The producer can never send again."""


class Input(Enum):
    NEEDED = auto()
    GIVEN = auto()
    BEGUN = auto()
    DOOMED = auto()
    END = auto()
    COMMIT = auto()
    ABORT = auto()
    REFUSED = auto()
    """The broker cannot commit, but abort."""
    ENDED = auto()
    RENEW = auto()
    """It has ended, and something of it may yet reach a broker: a later epoch has to fence that."""
    FATAL = auto()


S, I = State, Input  # noqa: E741 # so that the table fits
TRANSITIONS: dict[tuple[State, Input], State] = {
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
