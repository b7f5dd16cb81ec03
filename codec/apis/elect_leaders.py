"""ElectLeaders (key 43): elect the preferred leader of partitions or, at the cost of lost records, any live replica.

Sent by administrators (Admin.electLeaders, kafka-leader-election.sh) to any broker, which forwards it to the
controller. Requires the right to alter the cluster. When brokers restart, leaders accumulate on the others; a preferred
election moves every partition back to its first replica (`auto.leader.rebalance.enable` does that periodically). An
unclean election revives a partition whose in-sync replicas are all lost, and loses the records that only they had.

Each partition succeeds or fails independently. If all partitions are asked for, the response leaves out those without
a change.

Errors:
    ELECTION_NOT_NEEDED: preferred: it already leads; unclean: there is a leader. Counts as success.
    PREFERRED_LEADER_NOT_AVAILABLE: the first replica is dead or not in sync: wait for it.
    ELIGIBLE_LEADERS_NOT_AVAILABLE: unclean: no replica is alive.
    UNKNOWN_TOPIC_OR_PARTITION: no such partition.
    CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster; v0 returns no results for all partitions.
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. See Metadata.

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
"""If there is no leader, a live replica even if it is not in sync: records may be lost."""


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
    """How long the response may take."""


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
