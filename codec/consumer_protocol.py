"""The consumer protocol: what members of a classic group tell each other through the coordinator.

A member that joins sends a subscription for each assignor that it would accept (JoinGroup, `metadata`). The leader gets
them all, runs the assignor that the coordinator chose, and gives each member an assignment (SyncGroup, `assignment`).
The coordinator does not look inside, but stores both (`ottla.codec.stored.classic_groups`), and DescribeGroups shows
them.

Both stand behind their version and grow only at their end, so that members of different ages understand each other: a
newer version is read as the newest known, and what it adds is left unread.

Within `user_data` each assignor may say what it likes. Kafka's sticky assignor sends what the member had
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
    """Those that the member wants."""
    user_data: bytes | None = wire(Bytes, null="0+", default=None)
    """For the assignor, ``None`` from most."""
    owned_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition), "1+", default=(), ignorable=True)
    """Those that the member has and goes on reading; nobody else may have one before it was given back."""
    generation_id: int = wire(Int32, "2+", default=-1, ignorable=True)
    """The rebalance that `owned_partitions` come from, so that stale claims are told; -1 for none."""
    rack_id: str | None = wire(String, "3+", null="3+", default=None, ignorable=True)
    """Where the member is, to be given partitions that have a replica there."""


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The same bytes in every version."""

    assigned_partitions: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    user_data: bytes | None = wire(Bytes, null="0+", default=None)


@message(versions="0-1")
class StickyAssignorUserData:
    """`user_data` of the assignor ``sticky``. No version stands before it: whoever reads it tries them."""

    previous_assignment: tuple[TopicPartition, ...] = wire(Array(TopicPartition))
    generation: int = wire(Int32, "1+", default=-1, ignorable=True)
    """The rebalance that it comes from; -1 for none."""


@message(versions="0")
class CooperativeStickyAssignorUserData:
    """`user_data` of the assignor ``cooperative-sticky``; the rest is in `owned_partitions`."""

    generation: int = wire(Int32)


def parse_subscription(data: Buffer) -> tuple[int, ConsumerProtocolSubscription]:
    """The version, and the subscription as the newest version known that is not newer.

    kafka-go says version 1 and stops where version 0 ends; that is taken for what it is, version 0.

    Raises:
        DecodeError: the bytes are no subscription.
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
    """The opposite.

    Raises:
        EncodeError: a field does not fit.
    """
    return build_prefixed(subscription, version)


def parse_assignment(data: Buffer) -> tuple[int, ConsumerProtocolAssignment]:
    """The version, and the assignment as the newest version known that is not newer.

    Raises:
        DecodeError: the bytes are no assignment.
    """
    version, assignment, _ = parse_prefixed(ConsumerProtocolAssignment, data, newer=True)
    return version, assignment


def build_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """The opposite.

    Raises:
        EncodeError: a field does not fit.
    """
    return build_prefixed(assignment, version)


def parse_sticky(data: Buffer) -> tuple[int, StickyAssignorUserData]:
    """The version and the sticky assignor's data: version 1 if all bytes are that, else version 0.

    Raises:
        DecodeError: they are neither.
    """
    try:
        user_data, end = messages.parse(StickyAssignorUserData, 1, data)
        if end == len(data):
            return 1, user_data
    except DecodeError:
        pass  # then it is version 0, or nothing of the kind
    user_data, end = messages.parse(StickyAssignorUserData, 0, data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes left over", "StickyAssignorUserData", end)
    return 0, user_data
