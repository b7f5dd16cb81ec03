"""The settings of the transaction coordinator."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Kafka's settings of a transaction coordinator; seconds."""

    max_timeout: float = 15 * 60.0
    """The longest timeout that a producer may ask for (`transaction.max.timeout.ms`)."""
    expiration: float = 7 * 24 * 3600.0
    """How long a transactional id is remembered (`transactional.id.expiration.ms`)."""
    expiration_check: float = 3600.0
    """How often expired ids are removed (`transaction.remove.expired.transaction.cleanup.interval.ms`)."""
    max_ids: int = 100_000
    """The most transactional ids that the broker remembers."""
