"""AlterReplicaLogDirs (key 34)."""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class AlterReplicaLogDirTopic:
    name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class AlterReplicaLogDir:
    path: str = wire(String)
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire(Array(AlterReplicaLogDirTopic))


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: tuple[AlterReplicaLogDir, ...] = wire(Array(AlterReplicaLogDir))


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire(String)
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire(Array(AlterReplicaLogDirPartitionResult))


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire(Array(AlterReplicaLogDirTopicResult))
