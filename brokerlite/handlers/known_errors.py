"""Replaces errors that older clients do not know, or do not expect from an API, with errors that they handle.

Source: KafkaApis.scala, ReplicaManager.scala (handleProduceAppend).
"""

from collections.abc import Mapping

from ottla.brokerlite.machines.core import Call
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotEnoughReplicas,
    PolicyViolation,
    ProducerFenced,
    StaleMemberEpoch,
    TransactionAbortable,
)

_NEVER = 2**15
"""No version: clients never expect the error from this API."""
_Since = Mapping[type[BrokerError], tuple[int, type[BrokerError]]]
_FENCED_SINCE_2: _Since = {ProducerFenced: (2, InvalidProducerEpoch)}

_SINCE: Mapping[int, _Since] = {
    0: {  # Produce; NotEnoughReplicas is the retriable error that older clients know
        ProducerFenced: (_NEVER, InvalidProducerEpoch),
        TransactionAbortable: (11, InvalidTxnState),
        CoordinatorNotAvailable: (_NEVER, NotEnoughReplicas),
        ConcurrentTransactions: (12, NotEnoughReplicas),
    },
    22: {ProducerFenced: (4, InvalidProducerEpoch)},  # InitProducerId
    24: _FENCED_SINCE_2,  # AddPartitionsToTxn
    25: _FENCED_SINCE_2,  # AddOffsetsToTxn
    26: _FENCED_SINCE_2,  # EndTxn
    28: {  # TxnOffsetCommit
        ProducerFenced: (_NEVER, InvalidProducerEpoch),
        TransactionAbortable: (4, InvalidTxnState),
        # Producers know no member epochs. (OffsetMetadataManager.java, validateTransactionalOffsetCommit)
        StaleMemberEpoch: (_NEVER, IllegalGeneration),
        # An unknown error ends the Java client's producer. After this one it can abort the transaction and go on.
        # (TransactionManager.java, TxnOffsetCommitHandler)
        PolicyViolation: (_NEVER, GroupAuthorizationFailed),
    },
}
"""API key -> error -> the first version whose clients know it, and the error for older versions."""


def known(error: BrokerError, call: Call) -> BrokerError:
    """Return the error, or its replacement for clients of that version."""
    since, instead = _SINCE.get(call.header.api_key, {}).get(type(error), (0, type(error)))
    return error if call.header.api_version >= since else instead(error.detail)
