"""How the proxy decides over the requests of each API: a screen, and the topic ids that it needs to know by name.

An API of `CARRIED` that is not here is not offered where ACLs apply; `NOT_SCREENED` says why.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.proxy.clients.access import cluster, configs, groups, metadata, offsets, shares, topics, transactions
from ottla.proxy.clients.access.screening import PASS, Asked, Screen, Verdict
from ottla.proxy.clients.carried import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_RECORDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_HEARTBEAT,
    TXN_OFFSET_COMMIT,
)

if TYPE_CHECKING:
    from uuid import UUID

OFFSET_FETCH, DELETE_TOPICS = 9, 20


def _needs_nothing(asked: Asked) -> Verdict:
    """The screen for a request that everyone may send, as with Kafka."""
    return PASS


SCREENS: Mapping[int, Screen] = {
    PRODUCE: transactions.produce,
    LIST_OFFSETS: topics.list_offsets,
    METADATA: metadata.metadata,
    OFFSET_COMMIT: offsets.offset_commit,
    OFFSET_FETCH: offsets.offset_fetch,
    FIND_COORDINATOR: metadata.find_coordinator,
    JOIN_GROUP: groups.join_group,
    12: groups.heartbeat,
    13: groups.leave_group,
    14: groups.sync_group,
    15: groups.describe_groups,
    16: groups.list_groups,
    API_VERSIONS: _needs_nothing,
    19: topics.create_topics,
    DELETE_TOPICS: topics.delete_topics,
    DELETE_RECORDS: topics.delete_records,
    INIT_PRODUCER_ID: transactions.init_producer_id,
    OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
    ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    END_TXN: transactions.end_txn,
    TXN_OFFSET_COMMIT: offsets.txn_offset_commit,
    29: cluster.describe_acls,
    30: cluster.create_acls,
    31: cluster.delete_acls,
    32: configs.describe_configs,
    33: configs.alter_configs,
    34: cluster.alter_replica_log_dirs,
    35: cluster.describe_log_dirs,
    37: topics.create_partitions,
    42: groups.delete_groups,
    43: cluster.elect_leaders,
    44: configs.incremental_alter_configs,
    45: cluster.alter_partition_reassignments,
    46: cluster.list_partition_reassignments,
    47: offsets.offset_delete,
    48: cluster.describe_client_quotas,
    49: cluster.alter_client_quotas,
    50: cluster.describe_user_scram_credentials,
    51: cluster.alter_user_scram_credentials,
    55: cluster.describe_quorum,
    DESCRIBE_CLUSTER: metadata.describe_cluster,
    61: topics.describe_producers,
    65: transactions.describe_transactions,
    66: transactions.list_transactions,
    CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
    69: groups.consumer_group_describe,
    71: _needs_nothing,
    72: _needs_nothing,
    74: cluster.list_config_resources,
    SHARE_GROUP_HEARTBEAT: shares.share_group_heartbeat,
    77: groups.share_group_describe,
    90: offsets.describe_share_group_offsets,
    91: offsets.alter_share_group_offsets,
    92: offsets.delete_share_group_offsets,
}
OF_SESSIONS = (FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE)
"""APIs whose screens need the history of a connection: methods of `ConnectionFetchSessions`, `ConnectionShareSessions`.
"""

NOT_SCREENED: Mapping[int, str] = {
    DESCRIBE_TOPIC_PARTITIONS: "its pages name topics that the client may not describe; clients use Metadata instead",
    STREAMS_GROUP_HEARTBEAT: "it creates topics with the rights of the proxy's user",
    89: "it is of no use without the heartbeat",  # StreamsGroupDescribe
    93: "it is of no use without the heartbeat",  # StreamsGroupTopologyDescriptionUpdate
}
"""The APIs that clients do not get where ACLs apply, and why."""
OLDEST_SCREENED: Mapping[int, int] = {METADATA: 4}
"""The oldest version where ACLs apply: before it, a request creates missing topics, whether it wants that or not."""
NEWEST_SCREENED: Mapping[int, int] = {OFFSET_FETCH: 9}
"""The newest version where ACLs apply: later lists of offsets have ids that the proxy may not know."""


def is_screened(key: int) -> bool:
    """Whether the proxy can check the requests of an API."""
    return key in SCREENS or key in OF_SESSIONS


def _of_topics(message: Any) -> "Iterable[UUID]":
    return (each.topic_id for each in message.topics or ())


IDS: "Mapping[int, Callable[[Any], Iterable[UUID]]]" = {
    FETCH: _of_topics,
    METADATA: _of_topics,
    OFFSET_COMMIT: _of_topics,
    DELETE_TOPICS: _of_topics,
    TXN_OFFSET_COMMIT: _of_topics,
    SHARE_FETCH: _of_topics,
    SHARE_ACKNOWLEDGE: _of_topics,
}
"""API key -> returns the topic ids in a request, `NO_UUID` among them."""
