"""DescribeLogDirs (key 35)."""

from ottla.codec.wire import Array, Boolean, Int16, Int32, Int64, String, message, struct, wire


@struct
class DescribableLogDirTopic:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None = wire(Array(DescribableLogDirTopic), null="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = wire(Int32)
    partition_size: int = wire(Int64)
    offset_lag: int = wire(Int64)
    is_future_key: bool = wire(Boolean)


@struct
class DescribeLogDirsTopic:
    name: str = wire(String)
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(Array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    error_code: int = wire(Int16)
    log_dir: str = wire(String)
    topics: tuple[DescribeLogDirsTopic, ...] = wire(Array(DescribeLogDirsTopic))
    total_bytes: int = wire(Int64, "4+", default=-1, ignorable=True)
    usable_bytes: int = wire(Int64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = wire(Boolean, "5+", default=False, ignorable=True)


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16, "3+", default=0, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(Array(DescribeLogDirsResult))
