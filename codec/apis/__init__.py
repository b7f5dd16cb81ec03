"""One file per API, each with its request and response; `APIS` finds them by key.

A module is imported when its API is first used: hardly any program needs all of them, and declaring them takes a while.

Conventions of these files, and rules that all APIs share:

- A field that a version lacks reads as its default. If a field may be null, ``()`` and ``None`` mean different things.
- ``throttle_time_ms``: by how many milliseconds the client exceeds a quota, nearly always 0. A broker before 2.0 waits
  that long and then answers; a later one answers at once and stops reading from the connection for that long. From the
  version marked KIP-219 on, a client that follows the rules sends nothing in that time.
- ``error_code``: 0, or a code of `ottla.errors`, which says what each means and whether to retry; the files list the
  codes that matter for their API. ``error_message`` is text for people; ``None`` or empty if there is nothing to add.
  If a request fails as a whole and its response has no code at the top, every element has the code.
- Any response may contain UNSUPPORTED_VERSION, INVALID_REQUEST, UNKNOWN_SERVER_ERROR, or say that the principal lacks a
  right (…_AUTHORIZATION_FAILED). If a topic may not even be described, brokers say that it does not exist.
- ``topic_id`` identifies a topic for its lifetime: a recreated topic has another id. `NO_UUID` means none.
- ``…_authorized_operations`` is a set of bits, sent only if asked for (-2**31: not asked for). Bit n stands for the
  ACL operation n: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs,
  11 alter configs, 12 idempotent write, 13 create tokens, 14 describe tokens, 15 two-phase commit.
- "Versions" lists the release of Kafka that introduced each version, and its changes. Kafka 4.0 dropped most
  versions from before 2.1 (KIP-896); they are declared here because old clients and brokers are still in use.
"""

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    55: "DescribeQuorum",
    57: "UpdateFeatures",
    60: "DescribeCluster",
    61: "DescribeProducers",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}
"""Kafka's name of each API that clients may use, by key."""


class ApiMessages(NamedTuple):
    """The request and response classes of one API."""

    name: str
    request: type[Any]
    response: type[Any]


@functools.cache
def _load(key: int) -> ApiMessages:
    name = NAMES[key]
    module = importlib.import_module(f"{__name__}.{re.sub('(?<=.)(?=[A-Z])', '_', name).lower()}")
    return ApiMessages(name, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))


class _Apis(Mapping[int, ApiMessages]):
    def __getitem__(self, key: int) -> ApiMessages:
        return _load(key)

    def __contains__(self, key: object) -> bool:
        return key in NAMES

    def __iter__(self) -> Iterator[int]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


APIS: Mapping[int, ApiMessages] = _Apis()
