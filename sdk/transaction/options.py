"""The options of a transform; its consumer and its producer have their own."""

from typing import Literal

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk.arguments import integer
from ottla.sdk.options import FROM_ZERO, option, within_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOptions:
    """Options of `ottla.sdk.client.Client.transform` that only a transform has, or that mean something else there."""

    group: str
    """Shares the topics among all its members, and stores their committed offsets."""
    transactional_id: str
    """The transactional id of this member; the same after a restart, and used by no other."""
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    """``"read_committed"`` hides records of transactions that may still be aborted."""
    max_records: int | None = None
    """The most records of a transaction; by default all that are available."""
    max_bytes: int = 8 * 2**20
    """The most bytes of a transaction, as fetched; available batches of all partitions are combined up to this size. A
    single batch may be larger."""
    max_wait: float = option(0.0, bounds=FROM_ZERO)
    """Seconds to wait for more records, up to one of these limits, before a transaction begins: fewer, larger
    transactions, at the cost of latency."""
    attempts: int = 5
    """The most attempts in a row, after errors that may pass and after lost partitions (a handler that is slower than
    ``max_poll_interval`` loses them); then the last error is raised."""

    def __post_init__(self) -> None:
        if integer("attempts", self.attempts) < 1:
            raise ConfigurationError(f"attempts must be 1 or more, not {self.attempts}")
        within_bounds(self)
        for name, given in (("group", self.group), ("transactional_id", self.transactional_id)):
            if not isinstance(given, str) or not given:
                raise ConfigurationError(f"a transform's {name} must be a non-empty str, not {given!r}")
