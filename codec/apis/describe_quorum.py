"""DescribeQuorum (key 55): the state of a KRaft cluster's controllers.

Sent by administrators (Admin.describeMetadataQuorum, kafka-metadata-quorum.sh describe) to any broker, which forwards
it to the active controller; from 3.7 on also directly to a controller. Requires the right to describe the cluster. The
response is the view of the leader of `__cluster_metadata`: the voters, the observers (brokers, and controllers that are
not voters), and how far each has copied the metadata log. A replica that stays far behind the high watermark has a
problem; the quorum works as long as more than half of the voters keep up.

Errors:
    NOT_LEADER_OR_FOLLOWER: for the partition: this controller is not the leader: retry.
    UNKNOWN_TOPIC_OR_PARTITION: for the partition: the request must name partition 0 of `__cluster_metadata`, and
        nothing else.
    UNSUPPORTED_VERSION: the cluster runs with ZooKeeper.

Versions:
    0 (2.7): KIP-595; Java's Admin sends it from 3.3 on.
    1 (3.3): timestamps of replicas (KIP-836).
    2 (3.9): directories of replicas, listeners of voters, messages (KIP-853).

Source: KafkaRaftClient.java, handleDescribeQuorumRequest; LeaderState.java.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, Int64, String, UInt16, Uuid, message, struct, wire


@struct
class PartitionDataRequest:
    partition_index: int = wire(Int32)
    """Always 0."""


@struct
class TopicDataRequest:
    topic_name: str = wire(String)
    """Always ``__cluster_metadata``."""
    partitions: tuple[PartitionDataRequest, ...] = wire(Array(PartitionDataRequest))


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: tuple[TopicDataRequest, ...] = wire(Array(TopicDataRequest))
    """One topic with one partition: there is only one quorum."""


@struct
class ReplicaState:
    replica_id: int = wire(Int32)
    """Node id."""
    replica_directory_id: uuid.UUID = wire(Uuid, "2+", default=NO_UUID)
    """Id of its metadata log directory: a controller with a new disk is another replica. `NO_UUID`: unknown."""
    log_end_offset: int = wire(Int64)
    """Next offset of its log, as far as the leader knows; -1: it has not fetched yet."""
    last_fetch_timestamp: int = wire(Int64, "1+", default=-1, ignorable=True)
    """Time of its last fetch: milliseconds since 1970 by the leader's clock. For the leader itself: now. -1: never."""
    last_caught_up_timestamp: int = wire(Int64, "1+", default=-1, ignorable=True)
    """Last time when it had everything that the leader had, likewise. For the leader itself: now. -1: never."""


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "2+", null="2+", default="", ignorable=True)
    leader_id: int = wire(Int32)
    """Node id of the active controller; -1: not known."""
    leader_epoch: int = wire(Int32)
    high_watermark: int = wire(Int64)
    """One past the last record that more than half of the voters have; -1: unknown yet."""
    current_voters: tuple[ReplicaState, ...] = wire(Array(ReplicaState))
    """The voters, including the leader."""
    observers: tuple[ReplicaState, ...] = wire(Array(ReplicaState))
    """Observers that fetched within the last five minutes."""


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
    """Addresses of the voters."""
