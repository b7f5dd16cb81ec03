"""The table of APIs that the proxy forwards, with the newest version and how each is handled.

Clients are offered the versions that both upstream and this table have. Of most requests the proxy reads only the
header, because each client connection has its own upstream connection, to the broker that the client connected to.

Not in the table, so never offered:
- SaslHandshake, SaslAuthenticate, delegation tokens: the proxy does not authenticate clients yet.
- DescribeCluster, DescribeQuorum, UpdateFeatures, UnregisterBroker, Add- and RemoveRaftVoter: they carry addresses
  that would lead clients past the proxy, or administer the cluster. Clients fall back to Metadata.
- ShareFetch and its family, streams groups: a ShareFetch response has addresses of leaders.
- GetTelemetrySubscriptions, PushTelemetry: the broker would attribute the client's metrics to the proxy.
- WriteTxnMarkers and other APIs that only brokers call.

Source: the message definitions of Apache Kafka 4.3.1.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Way(Enum):
    """How the proxy handles a request."""

    OPAQUE = "bytes unread"
    HERE = "answered by the proxy"
    DECODED = "request or answer read, and changed where needed"


class Carried(NamedTuple):
    """One API: the newest version that the proxy offers, and how it is handled."""

    name: str
    newest: int
    way: Way = Way.OPAQUE


PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 18, 22
ADD_PARTITIONS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 26, 28

ABORTABLE_SINCE = {PRODUCE: 11, END_TXN: 4}
"""The versions that know TRANSACTION_ABORTABLE (KIP-890)."""

CARRIED: dict[int, Carried] = {
    PRODUCE: Carried("Produce", 12, Way.DECODED),  # 13 has topic ids instead of names, and rules match names
    FETCH: Carried("Fetch", 15),  # from 16 on the response has addresses of leaders (KIP-951)
    2: Carried("ListOffsets", 11),
    METADATA: Carried("Metadata", 13, Way.DECODED),  # addresses
    8: Carried("OffsetCommit", 10),
    9: Carried("OffsetFetch", 10),
    FIND_COORDINATOR: Carried("FindCoordinator", 6, Way.DECODED),  # addresses
    11: Carried("JoinGroup", 9),
    12: Carried("Heartbeat", 4),
    13: Carried("LeaveGroup", 5),
    14: Carried("SyncGroup", 5),
    15: Carried("DescribeGroups", 6),
    16: Carried("ListGroups", 5),
    API_VERSIONS: Carried("ApiVersions", 4, Way.HERE),
    19: Carried("CreateTopics", 7),
    20: Carried("DeleteTopics", 6),
    21: Carried("DeleteRecords", 2),
    INIT_PRODUCER_ID: Carried("InitProducerId", 5, Way.DECODED),  # the producer ids of clients are remembered
    23: Carried("OffsetForLeaderEpoch", 4),
    ADD_PARTITIONS_TO_TXN: Carried("AddPartitionsToTxn", 3, Way.DECODED),  # later versions are for brokers
    25: Carried("AddOffsetsToTxn", 4),
    END_TXN: Carried("EndTxn", 5, Way.DECODED),  # waits until the transaction's records are settled
    TXN_OFFSET_COMMIT: Carried("TxnOffsetCommit", 5),
    29: Carried("DescribeAcls", 3),
    30: Carried("CreateAcls", 3),
    31: Carried("DeleteAcls", 3),
    32: Carried("DescribeConfigs", 4),
    33: Carried("AlterConfigs", 2),
    34: Carried("AlterReplicaLogDirs", 2),
    35: Carried("DescribeLogDirs", 5),
    37: Carried("CreatePartitions", 3),
    42: Carried("DeleteGroups", 3),
    43: Carried("ElectLeaders", 2),
    44: Carried("IncrementalAlterConfigs", 1),
    45: Carried("AlterPartitionReassignments", 1),
    46: Carried("ListPartitionReassignments", 0),
    47: Carried("OffsetDelete", 0),
    48: Carried("DescribeClientQuotas", 1),
    49: Carried("AlterClientQuotas", 1),
    50: Carried("DescribeUserScramCredentials", 0),
    51: Carried("AlterUserScramCredentials", 0),
    61: Carried("DescribeProducers", 0),
    65: Carried("DescribeTransactions", 0),
    66: Carried("ListTransactions", 2),
    68: Carried("ConsumerGroupHeartbeat", 1),
    69: Carried("ConsumerGroupDescribe", 1),
    74: Carried("ListConfigResources", 1),
    75: Carried("DescribeTopicPartitions", 0),
}

Versions = Mapping[int, tuple[int, int]]
"""API key -> the oldest and the newest version."""
TRANSACTION_VERSION = "transaction.version"
_OF_TRANSACTIONS = {PRODUCE: 12, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
"""The API versions that transactions of version 2 need."""


def offered(upstream: Versions) -> Versions:
    """The versions that clients are offered if ``upstream`` serves these; ApiVersions is the proxy's own."""
    both = {
        key: (oldest, min(newest, CARRIED[key].newest))
        for key, (oldest, newest) in sorted(upstream.items())
        if key in CARRIED and oldest <= CARRIED[key].newest
    }
    return both | {API_VERSIONS: (0, CARRIED[API_VERSIONS].newest)}


def offers_feature(name: str, versions: Versions) -> bool:
    """Whether clients are offered one of upstream's features.

    Args:
        versions: the API versions offered to clients.
    """
    return name != TRANSACTION_VERSION or all(
        versions.get(key, (0, -1))[1] >= version for key, version in _OF_TRANSACTIONS.items()
    )
