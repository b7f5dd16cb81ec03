"""The consumer protocol: the data that members of a classic group exchange through the coordinator.

A joining member sends a subscription for each assignor that it supports (JoinGroup, `metadata`). The leader receives
all of them, runs the assignor that the coordinator chose, and gives each member an assignment (SyncGroup,
`assignment`). The coordinator does not parse them, but stores both (`ottla.codec.stored.classic_groups`), and
DescribeGroups shows them.

Both have their version in front, and only grow at the end, so that members of different releases understand each other:
a newer version is parsed as the newest known one, and its additions are ignored.

The assignor defines `user_data`. Kafka's sticky assignor sends the member's previous assignment
(`StickyAssignorUserData`), its cooperative one only the generation (`CooperativeStickyAssignorUserData`); ``range`` and
``roundrobin`` send nothing.

Versions:
    0 (0.9.0)
    1 (2.4): `owned_partitions`, for cooperative rebalances (KIP-429).
    2 (3.4): `generation_id` (KIP-792).
    3 (3.5): `rack_id` (KIP-881).

Source: ConsumerProtocol.java, StickyAssignor.java, CooperativeStickyAssignor.java.
"""

from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed, version_of
from ottla.codec.wire import Array, Buffer, Bytes, Int32, String, message, struct, wire
from ottla.errors import DecodeError


@struct
class TopicPartition:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: tuple[str, ...] = wire(Array(String))
    """The topics that the member subscribes to."""
    user_data: bytes | None = wire(Bytes, null="0+", default=None)
    """Data for the assignor; most send ``None``."""
    owned_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition), "1+", default=(), ignorable=True)
    """The partitions that the member owns and keeps reading. No other member may get one before it is revoked."""
    generation_id: int = wire(Int32, "2+", default=-1, ignorable=True)
    """Generation in which `owned_partitions` were assigned, to detect stale claims; -1 for none."""
    rack_id: str | None = wire(String, "3+", null="3+", default=None, ignorable=True)
    """The member's rack, to prefer partitions with a replica there."""


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The assignment of one member. Its bytes are the same in every version."""

    assigned_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    user_data: bytes | None = wire(Bytes, null="0+", default=None)


@message(versions="0-1")
class StickyAssignorUserData:
    """`user_data` of the assignor ``sticky``. It has no version in front, so readers try both versions."""

    previous_assignment: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    generation: int = wire(Int32, "1+", default=-1, ignorable=True)
    """Generation of `previous_assignment`; -1 for none."""


@message(versions="0")
class CooperativeStickyAssignorUserData:
    """`user_data` of the assignor ``cooperative-sticky``; the partitions are in `owned_partitions`."""

    generation: int = wire(Int32)


def parse_subscription(data: Buffer) -> tuple[int, ConsumerProtocolSubscription]:
    """Return the version, and the subscription, parsed with the newest known version up to that.

    kafka-go writes version 1 but ends where version 0 ends; that is parsed as version 0.

    Raises:
        DecodeError: the bytes are not a subscription.
    """
    try:
        version, subscription, _ = parse_prefixed(ConsumerProtocolSubscription, data, newer=True)
    except DecodeError:
        if len(data) > SIZE and version_of(data) == 1:
            subscription, end = messages.parse(ConsumerProtocolSubscription, 0, data, SIZE)
            if end == len(data):
                return 0, subscription
        raise
    return version, subscription


def build_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Build the version and the subscription.

    Raises:
        EncodeError: a field does not fit.
    """
    return build_prefixed(subscription, version)


def parse_assignment(data: Buffer) -> tuple[int, ConsumerProtocolAssignment]:
    """Return the version, and the assignment, parsed with the newest known version up to that.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    version, assignment, _ = parse_prefixed(ConsumerProtocolAssignment, data, newer=True)
    return version, assignment


def build_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Build the version and the assignment.

    Raises:
        EncodeError: a field does not fit.
    """
    return build_prefixed(assignment, version)


def parse_sticky(data: Buffer) -> tuple[int, StickyAssignorUserData]:
    """Return the version and the sticky assignor's data: version 1 if it uses up all bytes, else version 0.

    Raises:
        DecodeError: the bytes are neither.
    """
    try:
        user_data, end = messages.parse(StickyAssignorUserData, 1, data)
        if end == len(data):
            return 1, user_data
    except DecodeError:
        pass  # try version 0
    user_data, end = messages.parse(StickyAssignorUserData, 0, data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes left over", "StickyAssignorUserData", end)
    return 0, user_data
