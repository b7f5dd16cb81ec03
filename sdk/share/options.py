"""The options of a share consumer."""

from typing import Literal

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk import kafka_values as kafka
from ottla.sdk.arguments import integer
from ottla.sdk.options import option, within_bounds

_MODES = ("explicit", "implicit")
_LIMITS = ("record_limit", "batch_optimized")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions:
    """The options of `ottla.sdk.client.Client.share_consumer`."""

    group: str
    """The share group, whose members, in any language, share the records."""
    acknowledge: Literal["explicit", "implicit"] = option(
        "explicit", {"share.acknowledgement.mode": kafka.acknowledgement_mode}
    )
    """``"explicit"``: you acknowledge each record, and several callers may ask for records at the same time.
    ``"implicit"``: asking for the next record accepts the previous one; one caller asks at a time."""
    max_records: int = 500
    """The most records that this consumer holds, in your hands and fetched ahead. Each is locked from its fetch on, so
    choose few if a record takes long."""
    acquire_mode: Literal["record_limit", "batch_optimized"] = option(
        "record_limit", {"share.acquire.mode": kafka.acquire_mode}
    )
    """``"record_limit"``: ``max_records`` is exact (Kafka 4.2 or newer). ``"batch_optimized"``: brokers hand out whole
    batches of the log, which costs less and may be more records."""
    max_poll_interval: float = 300.0
    """Seconds without a request for a record, an acknowledgement or a renewal after which this member leaves the group,
    so that others get its partitions; the next request for a record joins again."""

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group:
            raise ConfigurationError(f"a share consumer needs a group, as in group='workers', not {self.group!r}")
        if self.acknowledge not in _MODES:
            raise ConfigurationError(f"acknowledge must be 'explicit' or 'implicit', not {self.acknowledge!r}")
        if self.acquire_mode not in _LIMITS:
            raise ConfigurationError(
                f"acquire_mode must be 'record_limit' or 'batch_optimized', not {self.acquire_mode!r}"
            )
        if integer("max_records", self.max_records) < 1:
            raise ConfigurationError(f"max_records must be 1 or more, not {self.max_records}")
        within_bounds(self)
