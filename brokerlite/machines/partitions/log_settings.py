"""The settings of a partition's log, which come from the configurations of its topic.

Source: LogConfig.java.
"""

from dataclasses import dataclass

from ottla.codec.compression import Compression

LONGEST = 2**63 - 1
WEEK_MS = 7 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """The settings of a topic's partitions; bytes and milliseconds, as in Kafka's configurations."""

    compacted: bool = False
    delete: bool = True
    """`cleanup.policy` has ``compact``, ``delete``, or both."""
    max_message_bytes: int = 2**20 + 12
    log_append_time: bool = False
    timestamp_before_max_ms: int = LONGEST
    timestamp_after_max_ms: int = 3600 * 1000
    compression: Compression | None = None
    """``None``: batches keep the producer's compression."""
    compression_level: int | None = None
    """A level of `ottla.codec.compression.LEVELS`; ``None``: the default."""
    segment_bytes: int = 2**30
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    """-1: no limit."""
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONGEST
    flush_messages: int = LONGEST
    flush_ms: int = LONGEST
