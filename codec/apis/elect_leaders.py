"""ElectLeaders (key 43): give partitions a leader: the preferred one or, at the price of records, any that lives.

Sent by administrators (Admin.electLeaders, kafka-leader-election.sh) to any broker, which forwards it to the
controller. It takes the right to alter the cluster. Leaders pile up on some brokers as others restart; a preferred
election gives every partition back to its first replica (`auto.leader.rebalance.enable` does so by itself now and
then). An unclean one brings back a partition whose in-sync replicas are all lost, and loses what only they had.

Each partition succeeds or fails by itself. Asked about all partitions, the answer leaves out those where nothing was
to do.

Errors:
    ELECTION_NOT_NEEDED: preferred: it leads already; unclean: there is a leader. As good as 0.
    PREFERRED_LEADER_NOT_AVAILABLE: the first replica is dead or not in sync: wait for it.
    ELIGIBLE_LEADERS_NOT_AVAILABLE: unclean: no replica is alive.
    UNKNOWN_TOPIC_OR_PARTITION: no such partition.
    CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster; for all partitions v0 shows an empty answer.
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. Metadata tells it.

Versions:
    0 (2.2): preferred elections only; the API was called ElectPreferredLeaders (KIP-183).
    1 (2.4): `election_type`, `error_code` at the top (KIP-460).
    2 (2.4): flexible.

Source: ReplicationControlManager.java, electLeaders.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire

PREFERRED = 0
"""The first replica of the partition's list, if it is in sync."""
UNCLEAN = 1
"""Where there is no leader, a live replica even if it is not in sync: records may be lost."""


@struct
class TopicPartitions:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = wire(Int8, "1+", default=PREFERRED)
    """`PREFERRED` or `UNCLEAN`."""
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(Array(TopicPartitions), null="0+")
    """``None``: all partitions of the cluster."""
    timeout_ms: int = wire(Int32, default=60000)
    """How long the answer may take."""


@struct
class PartitionResult:
    partition_id: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@struct
class ReplicaElectionResult:
    topic: str = wire(String)
    partition_result: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16, "1+", default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(Array(ReplicaElectionResult))
