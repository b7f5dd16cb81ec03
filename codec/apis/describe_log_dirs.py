"""DescribeLogDirs (key 35): the contents of one broker's disks, and their sizes.

Sent by administrators (Admin.describeLogDirs, kafka-log-dirs.sh) to each broker of interest; a broker answers only for
its own `log.dirs`. Requires the right to describe the cluster.

The response has every directory, even those without any of the requested partitions. A partition appears twice while it
moves between two directories (AlterReplicaLogDirs), and not at all if the broker has no replica of it. Tiered data in
remote storage is not counted.

Errors:
    CLUSTER_AUTHORIZATION_FAILED: the principal may not describe the cluster; before v3 the response then has no
        directories, which happens in no other case.
    KAFKA_STORAGE_ERROR: for a directory: it is offline, after a failure of its disk.

Versions:
    0 (1.0)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.6): flexible.
    3 (3.2): `error_code` at the top (KIP-784).
    4 (3.3): `total_bytes`, `usable_bytes` (KIP-827).
    5 (4.3): `is_cordoned` (KIP-1066).

Source: KafkaApis.scala, handleDescribeLogDirsRequest; ReplicaManager.scala, describeLogDirs; KIP-113.
"""

from ottla.codec.wire import Array, Boolean, Int16, Int32, Int64, String, message, struct, wire


@struct
class DescribableLogDirTopic:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None = wire(Array(DescribableLogDirTopic), null="0+")
    """``None``: every partition on the broker."""


@struct
class DescribeLogDirsPartition:
    partition_index: int = wire(Int32)
    partition_size: int = wire(Int64)
    """Bytes in its segments, without indexes."""
    offset_lag: int = wire(Int64)
    """Number of offsets that the log is behind the high watermark; a future log, behind the current log. -1: unknown,
    the replica is offline."""
    is_future_key: bool = wire(Boolean)
    """This is a copy under way into this directory, which will replace the current log."""


@struct
class DescribeLogDirsTopic:
    name: str = wire(String)
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(Array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = wire(Int16)
    log_dir: str = wire(String)
    """Absolute path on the broker."""
    topics: tuple[DescribeLogDirsTopic, ...] = wire(Array(DescribeLogDirsTopic))
    """The requested topics that have a partition here."""
    total_bytes: int = wire(Int64, "4+", default=-1, ignorable=True)
    """Size of the volume with the directory; -1: unknown, 2**63 - 1: that or more."""
    usable_bytes: int = wire(Int64, "4+", default=-1, ignorable=True)
    """Bytes that the broker could still write to the volume; -1 and 2**63 - 1 as above."""
    is_cordoned: bool = wire(Boolean, "5+", default=False, ignorable=True)
    """No new partitions are placed here (`cordoned.log.dirs`)."""


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16, "3+", default=0, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(Array(DescribeLogDirsResult))
