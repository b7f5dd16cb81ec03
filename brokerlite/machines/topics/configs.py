"""The configurations of a topic: the known keys, their valid values, and the settings that partitions get from them.

Rules:
- Every topic configuration that Kafka knows is accepted, stored and described.
- Some promise something that this broker does not do. If the promise is about data (tiering), only the default is
  accepted (`fixed`). Otherwise the configuration is `unheeded`: it has no effect, and the log says so.

Source: TopicConfig.java, LogConfig.java, CompressionType.java (levels), Lz4BlockOutputStream.java.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.brokerlite.machines.partitions.log_settings import DAY_MS, LONGEST, WEEK_MS, LogSettings
from ottla.codec.compression import LEVELS, Compression
from ottla.errors import InvalidConfig
from ottla.unknown_options import nearest

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Types of configurations, as DescribeConfigs numbers them."""
_SHOWN = 100
"""The most characters of a client's text in a message."""
_REPLICA = re.compile("[0-9]+:[0-9]+")
_HIGHEST = {INT: 2**31 - 1, LONG: LONGEST}
_LZ4_DEFAULT = 9
"""The default of Kafka's `compression.lz4.level`, which selects the fast compressor; other levels select the slow one.
"""


class ConfigKey(NamedTuple):
    """One configuration that a topic may have."""

    type: int
    default: str
    least: float = -float("inf")
    most: float = float("inf")
    choices: tuple[str, ...] = ()
    fixed: bool = False
    """Only the default is accepted: other values are not implemented."""
    unheeded: bool = False
    """It is stored but has no effect."""
    internal: bool = False
    """It is described only if it is set."""
    replicas: bool = False
    """Each entry is a partition and a broker, ``0:1``, or ``*`` is the only entry."""


_COMPRESSIONS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

CONFIGS: dict[str, ConfigKey] = {
    "cleanup.policy": ConfigKey(LIST, "delete", choices=("delete", "compact")),
    "compression.gzip.level": ConfigKey(INT, "-1", choices=("-1", *map(str, range(1, 10)))),
    "compression.lz4.level": ConfigKey(INT, str(_LZ4_DEFAULT), 1, 17),
    "compression.type": ConfigKey(STRING, "producer", choices=_COMPRESSIONS),
    "compression.zstd.level": ConfigKey(INT, "3", *LEVELS[Compression.ZSTD]),
    "delete.retention.ms": ConfigKey(LONG, str(DAY_MS), 0),
    "file.delete.delay.ms": ConfigKey(LONG, "60000", 0, unheeded=True),
    "flush.messages": ConfigKey(LONG, str(LONGEST), 1),
    "flush.ms": ConfigKey(LONG, str(LONGEST), 0),
    "follower.replication.throttled.replicas": ConfigKey(LIST, "", unheeded=True, replicas=True),
    "index.interval.bytes": ConfigKey(INT, "4096", 0),
    "internal.segment.bytes": ConfigKey(INT, "", 1, internal=True),
    "leader.replication.throttled.replicas": ConfigKey(LIST, "", unheeded=True, replicas=True),
    "local.retention.bytes": ConfigKey(LONG, "-2", -2, unheeded=True),
    "local.retention.ms": ConfigKey(LONG, "-2", -2, unheeded=True),
    "max.compaction.lag.ms": ConfigKey(LONG, str(LONGEST), 1),
    "max.message.bytes": ConfigKey(INT, str(2**20 + 12), 0),
    "message.timestamp.after.max.ms": ConfigKey(LONG, "3600000", 0),
    "message.timestamp.before.max.ms": ConfigKey(LONG, str(LONGEST), 0),
    "message.timestamp.type": ConfigKey(STRING, "CreateTime", choices=("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ConfigKey(DOUBLE, "0.5", 0, 1),
    "min.compaction.lag.ms": ConfigKey(LONG, "0", 0),
    "min.insync.replicas": ConfigKey(INT, "1", 1, unheeded=True),
    "preallocate": ConfigKey(BOOLEAN, "false", unheeded=True),
    "remote.log.copy.disable": ConfigKey(BOOLEAN, "false", unheeded=True),
    "remote.log.delete.on.disable": ConfigKey(BOOLEAN, "false", unheeded=True),
    "remote.storage.enable": ConfigKey(BOOLEAN, "false", fixed=True),
    "retention.bytes": ConfigKey(LONG, "-1"),
    "retention.ms": ConfigKey(LONG, str(WEEK_MS), -1),
    "segment.bytes": ConfigKey(INT, str(2**30), 1024),
    "segment.index.bytes": ConfigKey(INT, str(10 * 2**20), 4),
    "segment.jitter.ms": ConfigKey(LONG, "0", 0),
    "segment.ms": ConfigKey(LONG, str(WEEK_MS), 1),
    "unclean.leader.election.enable": ConfigKey(BOOLEAN, "false", unheeded=True),
}

OF_BROKER: dict[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Topic configuration -> the broker configuration with its default. Configurations that are missing here have none."""
LEAST_SEGMENT = 2**20
"""The least `segment.bytes` that clients may set (KIP-1030). `internal.segment.bytes`, for tests, may be less."""


def log_settings(value: Callable[[str], str]) -> LogSettings:
    """Return the settings for the configurations that ``value`` returns for the keys of `CONFIGS`."""
    policies = value("cleanup.policy").split(",")
    compacted, max_compaction_lag_ms = "compact" in policies, int(value("max.compaction.lag.ms"))
    segment_ms = int(value("segment.ms"))
    compression, level = _compression(value)
    return LogSettings(
        compacted=compacted,
        delete="delete" in policies,
        max_message_bytes=int(value("max.message.bytes")),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
        compression=compression,
        compression_level=level,
        segment_bytes=int(value("internal.segment.bytes") or value("segment.bytes")),
        # Only a segment that is rolled can be compacted.
        segment_ms=min(segment_ms, max_compaction_lag_ms) if compacted else segment_ms,
        segment_jitter_ms=int(value("segment.jitter.ms")),
        segment_index_bytes=int(value("segment.index.bytes")),
        retention_ms=int(value("retention.ms")),
        retention_bytes=int(value("retention.bytes")),
        delete_retention_ms=int(value("delete.retention.ms")),
        min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
        max_compaction_lag_ms=max_compaction_lag_ms,
        flush_messages=int(value("flush.messages")),
        flush_ms=int(value("flush.ms")),
    )


def _compression(value: Callable[[str], str]) -> tuple[Compression | None, int | None]:
    """Return the compression and its level, on the scale of our compression libraries."""
    match value("compression.type"):
        case "producer":
            return None, None
        case "uncompressed":
            return Compression.NONE, None
        case "snappy":
            return Compression.SNAPPY, None
        case "gzip":
            level = int(value("compression.gzip.level"))
            return Compression.GZIP, None if level == -1 else level
        case "lz4":
            level = int(value("compression.lz4.level"))
            return Compression.LZ4, None if level == _LZ4_DEFAULT else min(level, LEVELS[Compression.LZ4][1])
        case _:
            return Compression.ZSTD, int(value("compression.zstd.level"))


def shown(value: str) -> str:
    """Return a text as a message shows it: shorter than a string of the protocol may be."""
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def check_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Check configurations; return them in the form in which they are stored.

    Raises:
        InvalidConfig: a key is unknown or a value is invalid.
    """
    kept = {key: _checked(key, value) for key, value in configs.items()}
    lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    least, most = (int(kept.get(key, CONFIGS[key].default)) for key in lags)
    if least > most:
        raise InvalidConfig(f"min.compaction.lag.ms is {least}; it must not be more than max.compaction.lag.ms, {most}")
    return kept


def check_asked(configs: Mapping[str, str]) -> None:
    """Check limits that apply to clients only, for configurations that `check_configs` accepts.

    Raises:
        InvalidConfig: `segment.bytes` is less than `LEAST_SEGMENT`.
    """
    size = int(configs.get("segment.bytes", LEAST_SEGMENT))
    if size < LEAST_SEGMENT:
        raise _out_of_range("segment.bytes", CONFIGS["segment.bytes"], str(size))


def _checked(key: str, value: str) -> str:
    if (known := CONFIGS.get(key)) is None:
        near = nearest(key[:_SHOWN], CONFIGS)
        advice = f": do you mean {near}?" if near else ""
        raise InvalidConfig(f"{shown(key)} is not a topic's configuration{advice}")
    value = value.strip()
    if known.type in (INT, LONG, DOUBLE):
        value = _number(key, known, value)
    elif known.type == LIST:
        value = _list(key, known, value)
    else:
        choices = ("true", "false") if known.type == BOOLEAN else known.choices
        value = value.lower() if known.type == BOOLEAN else value
        if value not in choices:
            raise InvalidConfig(f"{key} is {shown(value)}; it must be {' or '.join(choices)}")
    if known.fixed and value != known.default:
        raise InvalidConfig(f"{key} can only be {known.default} on this broker")
    return value


def _list(key: str, known: ConfigKey, value: str) -> str:
    entries = [each.strip() for each in value.split(",")] if value else []
    if known.choices and not set(entries) <= set(known.choices):
        both = f"{' or '.join(known.choices)}, or both: {','.join(known.choices)}"
        raise InvalidConfig(f"{key} is {shown(value)}; it must be {both}")
    if known.replicas and entries != ["*"] and not all(_REPLICA.fullmatch(each) for each in entries):
        raise InvalidConfig(f"{key} is {shown(value)}; it must be '*' or a list like 0:1,1:1 of partitions and brokers")
    return ",".join(dict.fromkeys(entries))


def _number(key: str, known: ConfigKey, value: str) -> str:
    """Check a number and return it; as in Java, doubles may end in ``f`` or ``d``."""
    try:
        if "_" in value:
            raise ValueError
        number = float(value.rstrip("fdFD")) if known.type == DOUBLE else int(value)
    except ValueError:
        raise InvalidConfig(f"{key} is {shown(value)}, which is not a number") from None
    if known.choices and str(number) not in known.choices:
        raise InvalidConfig(f"{key} is {value}; it must be {' or '.join(known.choices)}")
    if not known.least <= number <= _highest(known):
        raise _out_of_range(key, known, value)
    return str(number)


def _highest(known: ConfigKey) -> float:
    return min(known.most, _HIGHEST.get(known.type, known.most))


def _out_of_range(key: str, known: ConfigKey, value: str) -> InvalidConfig:
    """Return the error with the limits for clients, even if internal topics may have less."""
    least = LEAST_SEGMENT if key == "segment.bytes" else known.least
    return InvalidConfig(f"{key} is {value}; it must be {least:.15g} to {_highest(known)}")


def unheeded(configs: Mapping[str, str]) -> list[str]:
    """Return the keys of these configurations that are stored, but have no effect."""
    return [key for key, value in configs.items() if CONFIGS[key].unheeded and value != CONFIGS[key].default]
