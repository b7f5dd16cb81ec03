"""AlterReplicaLogDirs (key 34): move replicas between the disks of one broker.

Sent by administrators (Admin.alterReplicaLogDirs, kafka-reassign-partitions.sh with `log_dirs`) to the broker that has
the replicas: each broker manages its own directories (`log.dirs`). Requires the right to alter the cluster. To move
replicas between brokers, use AlterPartitionReassignments.

The response only says that the move began. The broker copies the log into a future log in the new directory, and swaps
the two when it has caught up; watch it with DescribeLogDirs (`is_future_key`). To stop a move, name the current
directory of the replica; to redirect it, name another one. If the broker does not have the replica yet, it answers
REPLICA_NOT_AVAILABLE, but remembers the directory until the replica is created or the broker restarts.

Errors:
    LOG_DIR_NOT_FOUND: not one of the broker's `log.dirs`, or not an absolute path.
    KAFKA_STORAGE_ERROR: that directory, or the one of the replica, is offline.
    REPLICA_NOT_AVAILABLE: the broker has no such replica.
    INVALID_TOPIC_EXCEPTION: the topic's name is too long for the directory of a future log.

Versions:
    0 (1.0)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.8): flexible.

Source: ReplicaManager.scala, alterReplicaLogDirs; KIP-113.
"""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class AlterReplicaLogDirTopic:
    name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class AlterReplicaLogDir:
    path: str = wire(String)
    """The directory for the partitions: an absolute path on the broker."""
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
