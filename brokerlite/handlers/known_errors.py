"""Errors that older clients do not know, or not in answers to some API, and what they are told instead.

Source: KafkaApis.scala, ReplicaManager.scala (handleProduceAppend).
"""

from collections.abc import Mapping

from ottla.brokerlite.machines.core import Call
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)

_NEVER = 2**15
"""No version: clients never know it from this API."""
_Since = Mapping[type[BrokerError], tuple[int, type[BrokerError]]]
_FENCED_SINCE_2: _Since = {ProducerFenced: (2, InvalidProducerEpoch)}

_SINCE: Mapping[int, _Since] = {
    0: {  # Produce; where it is to be tried again, older clients know no other
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
    },
}
"""API key -> error -> the first version whose clients know it, and what others are told."""


def known(error: BrokerError, call: Call) -> BrokerError:
    """The error, as a client of that version knows it."""
    since, instead = _SINCE.get(call.header.api_key, {}).get(type(error), (0, type(error)))
    return error if call.header.api_version >= since else instead(error.detail)
