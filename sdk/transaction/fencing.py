"""What a producer that was fenced can say of it: another one has its id, or its own transaction has timed out.

Rules:
- The coordinator is asked once, and has `LIMIT` seconds to answer. Where it does not say, may not, or cannot (before
  Kafka 3.0), what is known without it is said.
- A transaction that takes longer than its timeout is aborted by the coordinator, and that fences its producer. So one
  that is late by its own clock was fenced for that, unless another one has been initialized meanwhile.

Source: TransactionCoordinator.scala (abortTimedOutTransactions, handleInitProducerId, handleDescribeTransactions).
"""

from dataclasses import dataclass

from ottla.errors import BrokerError, InvalidProducerEpoch, OttlaError, ProducerFenced, UnsupportedVersion
from ottla.sdk.admin import TransactionDescription
from ottla.sdk.calls.transactions import describe_transactions
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.identity import Identity

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

    @property
    def late(self) -> bool:
        return self.open_for is not None and self.open_for > self.timeout


def find_out(core: ClientCore, fenced: Fenced, now: float) -> Outcome[str]:
    """What has happened, and what to do about it, for people; never fails."""
    found: Outcome[str] = Outcome()
    asked = describe_transactions(core, [fenced.transactional_id], now, LIMIT)
    asked.when_done(lambda: found.succeed(_told(fenced, asked.error or asked.result()[fenced.transactional_id])))
    return found


def explained(error: BrokerError, told: str) -> BrokerError:
    """The same error, with what was found out."""
    return type(error)(error.detail, told=told)


def _told(fenced: Fenced, known: TransactionDescription | OttlaError) -> str:
    id_, identity = fenced.transactional_id, fenced.identity
    state = known.state if isinstance(known, TransactionDescription) else None
    ours = f"producer id {identity.producer_id}, epoch {identity.epoch}"
    if isinstance(known, TransactionDescription):
        node, theirs = known.coordinator, f"producer id {known.producer_id}, epoch {known.producer_epoch}"
        facts = f"this one has {ours}; by its coordinator, node {node.id}, it is {theirs}, {known.state}"
    elif isinstance(known, UnsupportedVersion):
        facts = f"this one has {ours}; what its coordinator knows, brokers say since Kafka 3.0"
    else:
        facts = f"this one has {ours}; its coordinator does not say what it knows: {known}"
    if fenced.late:
        cause = f"it was open for {fenced.open_for:.0f} s, and transaction_timeout is {fenced.timeout:g} s"
        since = (
            ""
            if state is None or state in _ABORTED
            else ", and another producer with its id has been initialized since"
        )
        cause = f"the broker has aborted the transaction of {id_!r}, because {cause}{since}"
        advice = "raise transaction_timeout, or make transactions shorter"
        advice += "; to go on, make another producer" if fenced.version == 1 or since else ""
    else:
        cause = f"another producer with transactional id {id_!r} has been initialized"
        advice = "give each process an id of its own; this producer must end"
    return f"{cause}: {advice} ({facts})"
