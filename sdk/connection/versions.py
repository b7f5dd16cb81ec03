"""The versions of each API that the client speaks, and why not others. Everything about versions is here.

Rules:
- A request goes out in the highest version that both sides speak: within `SPOKEN`, or all that the codec declares.
- Some requests need a narrower range; each such range has a name and a reason below, and is given to `Exchange`.
- The builder of a request adapts it to older versions, with the constants below.

Source: the ``validVersions`` of Kafka's JSON schemas, and ApiKeys.java.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.codec import wire
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import UnsupportedVersion

Range = tuple[int, int]
"""The lowest and the highest version."""


class Spoken(NamedTuple):
    """The versions of an API that the client speaks, and why the codec knows more."""

    low: int
    high: int
    why: str


SPOKEN: dict[type, Spoken] = {
    DeleteTopicsRequest: Spoken(0, 5, "6 has topics in another field, which may hold ids"),
    ProduceRequest: Spoken(2, 12, "below 2 come message sets of magic 0; 13 identifies topics by id"),
    MetadataRequest: Spoken(1, 13, "0 cannot ask for no topic"),
}
"""APIs of which the client handles fewer versions than the codec."""

# -- narrower ranges, each for some requests of an API -----------------------------------------------------------------

PRODUCE_IDEMPOTENT: Range = (3, 12)
"""Producer ids and sequences exist only in record batches, which came with 3."""
PRODUCE_TRANSACTIONAL: Range = (3, 11)
"""From 12 on a batch adds its partition to the transaction implicitly, which the whole cluster must support."""
PRODUCE_TRANSACTIONAL_2: Range = (12, 12)
"""For transactions of version 2 (KIP-890)."""
INITIALIZE: Range = (0, 5)
INITIALIZE_AGAIN: Range = (3, 5)
"""Has the producer's current id and epoch (KIP-360)."""
ADD_PARTITIONS: Range = (0, 3)
"""From 4 on it is for brokers."""
ADD_OFFSETS: Range = (0, 4)
COMMIT_IN_TRANSACTION: Range = (3, 4)
"""Below 3 it has no member, so the group could not refuse an expelled one (KIP-447)."""
COMMIT_IN_TRANSACTION_2: Range = (5, 5)
"""Adds the group to the transaction implicitly; 6 identifies topics by id."""
END_TRANSACTION: Range = (0, 4)
END_TRANSACTION_2: Range = (5, 5)
"""Its response has the epoch of the next transaction."""
FETCH_BY_NAME: Range = (0, 12)
"""For topics with an unknown id: from 13 on topics have ids only."""
FIND_ONE_COORDINATOR: Range = (0, 3)
"""From 4 on a request has several keys, in another field."""
FIND_TRANSACTION_COORDINATOR: Range = (1, 3)
"""0 knows groups only."""
COMMIT_BY_NAME: Range = (2, 9)
"""Below 2 the broker ignores the member, and the offset never expires.

10 (Kafka 4.2) identifies topics by id, so the coordinator would refuse an offset of a deleted topic. It is not used:
each assignment would need the id of the log that it reads, and older brokers would still get names."""
COMMITTED_BY_NAME: Range = (1, 9)
"""For OffsetFetch, and OffsetCommit of groups without members: 0 is ZooKeeper's, 10 identifies topics by id."""
EPOCH_ENDS_FOR_CONSUMERS: Range = (3, 4)
"""Below 3 OffsetForLeaderEpoch is for followers only (it needs their authorization)."""
CLIENT_MADE_MEMBER_ID: Range = (1, 1)
"""ConsumerGroupHeartbeat as of Kafka 4.0: the client makes the member's id (KIP-1082). 0 was early access."""
STATIC_MEMBERS: Range = (5, 9)
"""JoinGroup with a member's `group_instance_id`, which brokers before 2.3 do not know: a version error says so."""

# -- the first, or last, version with a feature ------------------------------------------------------------------------

PRODUCE_RECORD_BATCHES = 3
"""Record batches (Kafka 0.11); before that, message sets of magic 1."""
FETCH_WITHOUT_LIMIT = 2
"""The last version without `max_bytes` for the whole response."""
FETCH_SESSIONS = 7
FETCH_LAST_EPOCH = 12
"""Has the epoch of the last fetched record, so that the broker can detect truncation (KIP-320)."""
FETCH_BY_ID = 13
LIST_OFFSETS_ISOLATION = 2
LIST_OFFSETS_MAX_TIMESTAMP = 7
"""Can look up the record with the largest timestamp (Kafka 3.0)."""
COMMITTED_OF_ALL_TOPICS = 2
COMMITTED_STABLE = 7
"""Can ask for offsets that no open transaction is about to change."""
COMMITTED_OF_MANY_GROUPS = 8
LEAVE_AS_MEMBERS = 3
"""The leaving members are a list."""
LEAVE_WITH_REASON = 5
CREATE_TOPIC_DEFAULTS = 4
"""Leaves the numbers of partitions and replicas to the broker (KIP-464)."""
LIST_TRANSACTIONS_BY_DURATION = 1
SHARE_RENEWALS = 2
"""ShareAcknowledge can renew the lock of a record (KIP-1222)."""
METADATA_DECIDES_ABOUT_CREATION = 4
"""Below it, only the broker's own settings decide whether a topic is created."""
FETCH_THROTTLED_BY_CLIENT = 8
"""Brokers with this version (Kafka 2.0) answer at once and expect the client to pause (KIP-219)."""

FITTED: dict[type, Callable[[Any, int], Any]] = {
    MetadataRequest: lambda message, version: (
        message if version >= METADATA_DECIDES_ABOUT_CREATION else replace(message, allow_auto_topic_creation=True)
    ),
}
"""How to change a message for a version that lacks some of its fields."""

# -- what both sides speak ---------------------------------------------------------------------------------------------


def speakable(request: type, wanted: Range | None = None) -> Range:
    """The lowest and the highest version of a request that the client speaks, within the ``wanted`` range if given."""
    declared = wire.api(request).versions
    spoken = SPOKEN.get(request)
    low, high = (spoken.low, spoken.high) if spoken else (declared.low, declared.high)
    return (max(low, wanted[0]), min(high, wanted[1])) if wanted else (low, high)


def common(request: type, wanted: Range | None, theirs: Mapping[int, Range]) -> range:
    """The versions of a request that both sides speak; empty if there are none."""
    low, high = speakable(request, wanted)
    offered = theirs.get(wire.api(request).key, (0, -1))
    return range(max(low, offered[0]), min(high, offered[1]) + 1)


def agreed(request: type, wanted: Range | None, theirs: Mapping[int, Range], where: str) -> int:
    """The highest version that both sides speak.

    Raises:
        UnsupportedVersion: there is none; names the API, the versions of both sides, and the Kafka release needed.
    """
    if both := common(request, wanted, theirs):
        return both[-1]
    low, high = speakable(request, wanted)
    name = request.__name__.removesuffix("Request")
    offered = theirs.get(wire.api(request).key)
    has = f"has versions {offered[0]} to {offered[1]}" if offered else "does not offer it"
    what = f"{name}: ottla speaks versions {low} to {high}, {where} {has}"
    if offered and offered[0] > high:
        raise UnsupportedVersion(f"{what}; use a newer ottla")
    release = since(request, low)
    raise UnsupportedVersion(f"{what}; you need Kafka {release} or newer" if release else what)


def since(request: type, version: int) -> str:
    """The release of Kafka that first had a version of a request; empty if unknown.

    It is taken from the docstring of the API's module, the only place that has it.
    """
    text = sys.modules[request.__module__].__doc__ or ""
    found = re.search(rf"^    {version}(?:-\d+)? \(([\d.]+)\)", text, re.MULTILINE)
    return found[1] if found else ""


def throttles_clients(theirs: Mapping[int, Range]) -> bool:
    """Whether a broker with these versions expects a client that is over its quota to pause (KIP-219)."""
    offered = theirs.get(wire.api(FetchRequest).key)
    return offered is not None and offered[1] >= FETCH_THROTTLED_BY_CLIENT
