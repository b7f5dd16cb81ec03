"""DescribeQuorum (key 55)."""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, Int64, String, UInt16, Uuid, message, struct, wire


@struct
class PartitionDataRequest:
    partition_index: int = wire(Int32)


@struct
class TopicDataRequest:
    topic_name: str = wire(String)
    partitions: tuple[PartitionDataRequest, ...] = wire(Array(PartitionDataRequest))


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: tuple[TopicDataRequest, ...] = wire(Array(TopicDataRequest))


@struct
class ReplicaState:
    replica_id: int = wire(Int32)
    replica_directory_id: uuid.UUID = wire(Uuid, "2+", default=NO_UUID)
    log_end_offset: int = wire(Int64)
    last_fetch_timestamp: int = wire(Int64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire(Int64, "1+", default=-1, ignorable=True)


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "2+", null="2+", default="", ignorable=True)
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    high_watermark: int = wire(Int64)
    current_voters: tuple[ReplicaState, ...] = wire(Array(ReplicaState))
    observers: tuple[ReplicaState, ...] = wire(Array(ReplicaState))


@struct
class TopicData:
    topic_name: str = wire(String)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class Listener:
    name: str = wire(String)
    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class Node:
    node_id: int = wire(Int32)
    listeners: tuple[Listener, ...] = wire(Array(Listener))


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "2+", null="2+", default="", ignorable=True)
    topics: tuple[TopicData, ...] = wire(Array(TopicData))
    nodes: tuple[Node, ...] = wire(Array(Node), "2+", default=())
