"""The tables of APIs: `CARRIED` says up to which version and how the proxy forwards an API, `NOT_CARRIED` why not.

Clients are offered the versions that both upstream and `CARRIED` have. Of most requests the proxy reads only the
header, because each client connection has its own upstream connection, to the broker that the client connected to. So
an API for a coordinator, a leader or a certain node reaches the node that the client chose, if the client learns every
address from the proxy: from Metadata, FindCoordinator (of groups, transactions and share groups) and DescribeCluster,
and from the hints about new leaders in the responses to Produce, ShareFetch and ShareAcknowledge.

Source: the message definitions of Apache Kafka 4.3.1 and 4.4.0.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Way(Enum):
    """How the proxy handles a request."""

    OPAQUE = "bytes unread"
    HERE = "answered by the proxy"
    ADDRESSED = "addresses of brokers in the response replaced by the proxy's"
    DECODED = "request or answer read, and changed where needed"


class Carried(NamedTuple):
    """One API: the newest version that the proxy offers, and how it is handled.

    Attributes:
        limit: why the proxy offers no newer version, if Kafka has one.
    """

    name: str
    newest: int
    way: Way = Way.OPAQUE
    limit: str = ""


PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 18, 22
ADD_PARTITIONS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 26, 28
LIST_OFFSETS, OFFSET_COMMIT, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 2, 8, 21, 23
JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT = 11, 68, 76, 88
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, SHARE_FETCH, SHARE_ACKNOWLEDGE = 60, 75, 78, 79

ABORTABLE_SINCE = {PRODUCE: 11, END_TXN: 4, TXN_OFFSET_COMMIT: 4}
"""The versions that know TRANSACTION_ABORTABLE (KIP-890)."""

CARRIED: dict[int, Carried] = {
    PRODUCE: Carried("Produce", 12, Way.DECODED, "later ones have topic ids instead of names, and rules match names"),
    FETCH: Carried("Fetch", 15, limit="later ones have addresses of leaders behind the records (KIP-951)"),
    LIST_OFFSETS: Carried("ListOffsets", 11),
    METADATA: Carried("Metadata", 13, Way.ADDRESSED),
    OFFSET_COMMIT: Carried("OffsetCommit", 10),
    9: Carried("OffsetFetch", 10),
    FIND_COORDINATOR: Carried("FindCoordinator", 6, Way.ADDRESSED),
    JOIN_GROUP: Carried("JoinGroup", 9),
    12: Carried("Heartbeat", 4),
    13: Carried("LeaveGroup", 5),
    14: Carried("SyncGroup", 5),
    15: Carried("DescribeGroups", 6),
    16: Carried("ListGroups", 5),
    API_VERSIONS: Carried("ApiVersions", 4, Way.HERE, "later ones name the node that the client expects (KIP-1242)"),
    19: Carried("CreateTopics", 7),
    20: Carried("DeleteTopics", 6),
    DELETE_RECORDS: Carried("DeleteRecords", 2),
    # The proxy remembers the producer ids of clients.
    INIT_PRODUCER_ID: Carried("InitProducerId", 5, Way.DECODED, "later ones prepare transactions (KIP-939)"),
    OFFSET_FOR_LEADER_EPOCH: Carried("OffsetForLeaderEpoch", 4),
    ADD_PARTITIONS_TO_TXN: Carried("AddPartitionsToTxn", 3, Way.DECODED, "later ones are for brokers"),
    25: Carried("AddOffsetsToTxn", 4),
    END_TXN: Carried("EndTxn", 5, Way.DECODED),  # waits until the transaction's records are settled
    TXN_OFFSET_COMMIT: Carried("TxnOffsetCommit", 6),
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
    55: Carried("DescribeQuorum", 1, limit="later ones have addresses of controllers, which clients cannot reach here"),
    DESCRIBE_CLUSTER: Carried("DescribeCluster", 2, Way.ADDRESSED),
    61: Carried("DescribeProducers", 0),
    65: Carried("DescribeTransactions", 0),
    66: Carried("ListTransactions", 2),
    CONSUMER_GROUP_HEARTBEAT: Carried("ConsumerGroupHeartbeat", 1),
    69: Carried("ConsumerGroupDescribe", 1),
    # Upstream matches a client with subscriptions by its ids and its software, which pass with its requests and its
    # connection, and by its address, which is the proxy's. Any node answers.
    71: Carried("GetTelemetrySubscriptions", 0),
    72: Carried("PushTelemetry", 0),
    74: Carried("ListConfigResources", 1),
    DESCRIBE_TOPIC_PARTITIONS: Carried("DescribeTopicPartitions", 0),
    SHARE_GROUP_HEARTBEAT: Carried("ShareGroupHeartbeat", 1),
    77: Carried("ShareGroupDescribe", 1),
    SHARE_FETCH: Carried("ShareFetch", 2, Way.ADDRESSED),
    SHARE_ACKNOWLEDGE: Carried("ShareAcknowledge", 2, Way.ADDRESSED),
    # Endpoints in these responses belong to the application's own instances (`application.server`, KIP-1071).
    STREAMS_GROUP_HEARTBEAT: Carried("StreamsGroupHeartbeat", 1),
    89: Carried("StreamsGroupDescribe", 1),
    90: Carried("DescribeShareGroupOffsets", 1),
    91: Carried("AlterShareGroupOffsets", 0),
    92: Carried("DeleteShareGroupOffsets", 0),
    93: Carried("StreamsGroupTopologyDescriptionUpdate", 0),
}

_LOGIN = "clients log in to upstream through the proxy's own user"
_TOKENS = "a token would give the client the rights of the proxy's user"
_NODES = "nodes are administered at the cluster itself"
_BROKERS = "only brokers send it"
NOT_CARRIED: dict[int, str] = {
    17: _LOGIN,  # SaslHandshake
    27: _BROKERS,  # WriteTxnMarkers
    36: _LOGIN,  # SaslAuthenticate
    38: _TOKENS,  # CreateDelegationToken
    39: _TOKENS,  # RenewDelegationToken
    40: _TOKENS,  # ExpireDelegationToken
    41: _TOKENS,  # DescribeDelegationToken
    # The proxy may not know a new feature.
    57: "features are switched on at the cluster itself",  # UpdateFeatures
    64: _NODES,  # UnregisterBroker
    80: _NODES,  # AddRaftVoter
    81: _NODES,  # RemoveRaftVoter
    83: _BROKERS,  # InitializeShareGroupState
    84: _BROKERS,  # ReadShareGroupState
    85: _BROKERS,  # WriteShareGroupState
    86: _BROKERS,  # DeleteShareGroupState
    87: _BROKERS,  # ReadShareGroupStateSummary
    94: _NODES,  # UnregisterController
}
"""The other APIs of `ottla.codec.apis`, and why the proxy does not offer them."""

NEWEST_WITH_NAMES = {FETCH: 12, OFFSET_COMMIT: 9, TXN_OFFSET_COMMIT: 5}
"""The newest versions that have names of topics, as rules do; later ones have ids."""

Versions = Mapping[int, tuple[int, int]]
"""API key -> the oldest and the newest version."""
TRANSACTION_VERSION = "transaction.version"
_OF_TRANSACTIONS = {PRODUCE: 12, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
"""The API versions that transactions of version 2 need."""


def newest(key: int, *, with_names: bool) -> int:
    """The newest version of an API that the proxy carries; ``with_names``: only those with names of topics."""
    carried = CARRIED[key].newest
    return min(carried, NEWEST_WITH_NAMES.get(key, carried)) if with_names else carried


def offered(upstream: Versions, *, with_names: bool = False) -> Versions:
    """The versions that clients are offered if ``upstream`` serves these; ApiVersions is the proxy's own."""
    both = {
        key: (oldest, min(last, newest(key, with_names=with_names)))
        for key, (oldest, last) in sorted(upstream.items())
        if key in CARRIED and oldest <= newest(key, with_names=with_names)
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


def why_not(key: int, version: int, *, with_names: bool = False) -> str | None:
    """Why a request of an API in a version is not carried; ``None``: it is.

    Args:
        with_names: a rule has mode `fan-out`.
    """
    if key in NOT_CARRIED:
        return NOT_CARRIED[key]
    if key not in CARRIED:
        return "the proxy does not know it"
    known = CARRIED[key]
    if with_names and newest(key, with_names=True) < version <= known.newest:
        return "it has topic ids instead of names, and rules in mode fan-out match names"
    if 0 <= version <= known.newest:
        return None
    return known.limit or f"the proxy knows versions up to {known.newest}"
