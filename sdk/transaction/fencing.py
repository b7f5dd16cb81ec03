"""What a producer that was fenced can say of it: another one has its id, or its own transaction has timed out.

Rules:
- The coordinator is asked once, and has `LIMIT` seconds to answer. Where it does not say, may not, or cannot (before
  Kafka 3.0), what is known without it is said.
- A transaction that takes longer than its timeout is aborted by the coordinator, and that fences its producer. So one
  that is late by its own clock was fenced for that, unless another one has been initialized meanwhile.

Source: TransactionCoordinator.scala (abortTimedOutTransactions, handleInitProducerId, handleDescribeTransactions).
"""

from dataclasses import dataclass

from ottla.errors import (
    BrokerError,
    InvalidProducerEpoch,
    OttlaError,
    ProducerFenced,
    TimeoutExpired,
    UnsupportedVersion,
)
from ottla.sdk.admin import TransactionDescription
from ottla.sdk.calls.transactions import describe_transactions
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.identity import Identity
from ottla.sdk.transaction.states import IMPLICIT

FENCING = (ProducerFenced, InvalidProducerEpoch)
LIMIT = 1.0
"""Seconds that the coordinator has to say what it knows: the error waits for that."""
_ABORTED = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
"""States after a transaction has timed out, as long as no other producer has been initialized."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A producer that was fenced.

    Attributes:
        timeout: seconds that the coordinator lets a transaction take.
        open_for: seconds for which one has been open; ``None``: none was.
        version: the protocol of that; in version 2 a producer may go on after its timeout.
    """

    transactional_id: str
    identity: Identity
    timeout: float
    open_for: float | None
    version: int = 1


def find_out(core: ClientCore, fenced: Fenced, now: float) -> Outcome[str]:
    """What has happened, and what to do about it, for people; never fails."""
    found: Outcome[str] = Outcome()
    asked = describe_transactions(core, [fenced.transactional_id], now, LIMIT)
    asked.when_done(lambda: found.succeed(_told(fenced, asked.error or asked.result()[fenced.transactional_id])))
    return found


def explained(error: BrokerError, told: str) -> BrokerError:
    """The same error, with what was found out."""
    return type(error)(error.detail, told=told)


def is_replaced(ours: Identity, known: TransactionDescription) -> bool:
    """Whether the coordinator has a newer producer, and not only the epoch in which it has aborted our transaction."""
    aborted = known.state in _ABORTED and known.producer_epoch == ours.epoch + 1
    return known.producer_id != ours.producer_id or not (known.producer_epoch == ours.epoch or aborted)


def _told(fenced: Fenced, known: TransactionDescription | OttlaError) -> str:
    ours = fenced.identity
    facts = f"this one has producer id {ours.producer_id}, epoch {ours.epoch}"
    if isinstance(known, TransactionDescription):
        theirs = f"producer id {known.producer_id}, epoch {known.producer_epoch}, {known.state}"
        facts += f"; its coordinator, node {known.coordinator.id}, has {theirs}"
        return f"{_cause(fenced, known)} ({facts})"
    why = str(known)
    if isinstance(known, UnsupportedVersion):
        why = "brokers tell it since Kafka 3.0"
    elif isinstance(known, TimeoutExpired):
        why = f"no answer within {LIMIT:g} s"
    return f"{_cause(fenced, None)} ({facts}; what its coordinator has is not known: {why})"


def _cause(fenced: Fenced, known: TransactionDescription | None) -> str:
    """What has happened, and what to do about it; ``known`` is what the coordinator has of the id."""
    name, ours = fenced.transactional_id, fenced.identity
    if fenced.open_for is not None and fenced.open_for > fenced.timeout:
        late = f"was open for {fenced.open_for:.0f} s, and transaction_timeout is {fenced.timeout:g} s"
        cause = f"the broker has aborted the transaction of {name!r}, because it {late}"
        advice = "raise transaction_timeout, or make transactions shorter"
        if known is not None and known.state not in _ABORTED:
            cause += ", and another producer with its id has been initialized since"
        elif fenced.version >= IMPLICIT:
            return f"{cause}: {advice}"
        return f"{cause}: {advice}; to go on, make another producer"
    if known is not None and (known.producer_id, known.producer_epoch) == (ours.producer_id, ours.epoch):
        return f"a partition has seen a later epoch of {name!r} than its coordinator has given: repeat the transaction"
    cause = f"another producer with transactional id {name!r} has been initialized, or an administrator has fenced it"
    return f"{cause}: give each process an id of its own; this producer must end"
