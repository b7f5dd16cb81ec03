"""Explains why a producer was fenced: another producer has its transactional id, or its transaction has timed out.

Rules:
- The coordinator is asked once, and has `LIMIT` seconds to answer. If there is no answer, or the client is not
  authorized, or the broker is older than Kafka 3.0, the explanation contains only the client's own knowledge.
- The coordinator aborts a transaction that takes longer than its timeout, and that fences its producer. So if the
  transaction has been open for longer than its timeout by the client's clock, that is the reason, unless another
  producer has been initialized meanwhile.

Source: TransactionCoordinator.scala (abortTimedOutTransactions, handleInitProducerId, handleDescribeTransactions).
"""

from ottla.errors import (
    BrokerError,
    InvalidProducerEpoch,
    OttlaError,
    ProducerFenced,
    TimeoutExpired,
    UnsupportedVersion,
)
from ottla.late_dataclass import dataclass
from ottla.sdk.admin import TransactionDescription
from ottla.sdk.calls.transactions import describe_transactions
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.transaction.states import IMPLICIT

FENCING = (ProducerFenced, InvalidProducerEpoch)
LIMIT = 1.0
"""Seconds for the coordinator to answer; the error is raised after that."""
_ABORTED = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
"""States after a transaction has timed out, until another producer is initialized."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A producer that was fenced.

    Attributes:
        timeout: the transaction timeout in seconds.
        open_for: seconds for which its transaction has been open; ``None``: none was open.
        version: the protocol version of that transaction; in version 2 a producer may continue after a timeout.
    """

    transactional_id: str
    identity: Identity
    timeout: float
    open_for: float | None
    version: int = 1


def find_out(core: ClientCore, fenced: Fenced, now: float) -> Outcome[str]:
    """A text for people: why the producer was fenced, and what to do about it; never fails."""
    found: Outcome[str] = Outcome()
    asked = describe_transactions(core, [fenced.transactional_id], now, LIMIT)
    asked.when_done(lambda: found.succeed(_told(fenced, asked.error or asked.result()[fenced.transactional_id])))
    return found


def explained(error: BrokerError, told: str) -> BrokerError:
    """The same error, with the explanation."""
    return type(error)(error.detail, told=told)


def is_replaced(ours: Identity, known: TransactionDescription) -> bool:
    """Whether the coordinator has a newer producer, and not only the epoch in which it aborted our transaction."""
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
        why = "brokers before Kafka 3.0 cannot tell"
    elif isinstance(known, TimeoutExpired):
        why = f"no answer within {LIMIT:g} s"
    return f"{_cause(fenced, None)} ({facts}; the coordinator's state is unknown: {why})"


def _cause(fenced: Fenced, known: TransactionDescription | None) -> str:
    """Why the producer was fenced, and what to do; ``known`` is the coordinator's state of the transactional id."""
    name, ours = fenced.transactional_id, fenced.identity
    if fenced.open_for is not None and fenced.open_for > fenced.timeout:
        late = f"was open for {fenced.open_for:.0f} s, and transaction_timeout is {fenced.timeout:g} s"
        cause = f"the broker has aborted the transaction of {name!r}, because it {late}"
        advice = "raise transaction_timeout, or make transactions shorter"
        if known is not None and known.state not in _ABORTED:
            cause += ", and another producer with its id has been initialized since"
        elif fenced.version >= IMPLICIT:
            return f"{cause}: {advice}"
        return f"{cause}: {advice}; to continue, make another producer"
    if known is not None and (known.producer_id, known.producer_epoch) == (ours.producer_id, ours.epoch):
        return f"a partition has seen a later epoch of {name!r} than its coordinator has: repeat the transaction"
    cause = f"another producer with transactional id {name!r} has been initialized, or an administrator has fenced it"
    return f"{cause}: give each process its own id; this producer must end"
