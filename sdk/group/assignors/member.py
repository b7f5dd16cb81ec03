"""The interface of assignors, the members that they see, and the encoding of subscriptions and assignments.

Rules:
- An assignor is pure: the same members and partitions give the same assignment, in any order.
- Members are identified by member id. Kafka's range and round robin sort static members first, by instance id, so that
  a member that restarts under a new member id gets its partitions back.
- Strings are sorted as Java sorts them, by UTF-16 units; otherwise two leaders would divide the same group differently.
- A group is cooperative only if all assignors that its members offer are. Then a member continues to read its
  partitions while it joins, and lists them in its subscription. In an eager group it gives up all partitions first and
  lists none, but its user data may still contain them.

Source: ConsumerPartitionAssignor.java, AbstractPartitionAssignor.java (MemberInfo), ConsumerCoordinator.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ottla.codec import consumer_protocol as wire
from ottla.codec.wire import Buffer
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition

VERSION = 3
"""The version of the subscriptions sent; a leader that knows only older ones reads the part that it knows."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the group, as its subscription describes it.

    Attributes:
        topics: the topics to which it subscribes; topics that the cluster does not have are ignored.
        owned: the partitions that it continues to read while it joins; empty in an eager group.
        generation: the generation in which ``owned`` was assigned; -1: unknown.
        rack: its rack, if it has one.
        user_data: the assignor's own data.
    """

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


class Partitions(dict[str, int]):
    """The number of partitions of each topic, and their racks; the leader of a group passes it to its assignor.

    Attributes:
        racks: for each partition, the racks of its replicas; empty if no member has a rack.
    """

    def __init__(self, counts: Mapping[str, int], racks: Mapping[TopicPartition, frozenset[str]]) -> None:
        super().__init__(counts)
        self.racks = racks


class Assignor(Protocol):
    """Divides the partitions of a group between its members. Assignors with the same ``name`` must be compatible."""

    @property
    def name(self) -> str:
        """The name by which the members of a group agree on an assignor."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether it never gives a partition to a new owner before the previous one has given it up."""
        ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """The data that a member adds to its subscription.

        Args:
            owned: the member's last assignment.
            generation: the generation of ``owned``; -1: none.
        """
        ...

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """The partitions of each member, by member id; contains all members.

        Args:
            partitions: the number of partitions of each topic; topics that the cluster does not have are missing. The
                leader of a group passes `Partitions`, which also has the racks.
        """
        ...


def utf16(text: str) -> bytes:
    """A key that sorts strings as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def by_id(member: Member) -> bytes:
    """A key that orders members by member id."""
    return utf16(member.member_id)


def by_instance(member: Member) -> tuple[bool, bytes]:
    """A key that orders static members first, by instance id, then the others by member id."""
    return member.instance_id is None, utf16(member.member_id if member.instance_id is None else member.instance_id)


def build_subscription(
    assignor: Assignor,
    topics: Iterable[str],
    *,
    owned: Sequence[TopicPartition] = (),
    generation: int = -1,
    cooperative: bool = False,
    rack: str | None = None,
) -> bytes:
    """The subscription that a member sends in JoinGroup for one of its assignors.

    Args:
        owned: the member's partitions; in an eager group, its partitions before it joined.
        generation: the generation in which ``owned`` was assigned.
        cooperative: whether the member continues to read ``owned``; only in a cooperative group.

    Raises:
        EncodeError: a topic's name does not fit.
    """
    subscription = wire.ConsumerProtocolSubscription(
        topics=tuple(sorted(topics)),
        user_data=assignor.user_data(owned, generation),
        owned_partitions=by_topic(owned) if cooperative else (),
        generation_id=generation,
        rack_id=rack,
    )
    return wire.build_subscription(subscription, VERSION)


def parse_member(member_id: str, instance_id: str | None, subscription: Buffer) -> Member:
    """A member as the JoinGroup response describes it to the leader.

    Raises:
        DecodeError: the bytes are not a subscription.
    """
    _, told = wire.parse_subscription(subscription)
    return Member(
        member_id,
        frozenset(told.topics),
        instance_id,
        places(told.owned_partitions),
        told.generation_id,
        told.rack_id or None,
        told.user_data,
    )


def build_assigned(assigned: Iterable[TopicPartition]) -> bytes:
    """A member's assignment, as the leader sends it in SyncGroup."""
    return wire.build_assignment(wire.ConsumerProtocolAssignment(assigned_partitions=by_topic(assigned)), VERSION)


def parse_assigned(assignment: Buffer) -> tuple[TopicPartition, ...]:
    """The assignment in a SyncGroup response, each partition once; empty bytes are an empty assignment.

    Leaders of other clients send empty bytes; one with a faulty assignor may name a partition twice.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    if not len(assignment):
        return ()
    return tuple(dict.fromkeys(places(wire.parse_assignment(assignment)[1].assigned_partitions)))


def places(topics: Iterable[wire.TopicPartition]) -> tuple[TopicPartition, ...]:
    """Convert from the wire's form, in which each topic has a list of partitions."""
    return tuple((each.topic, partition) for each in topics for partition in each.partitions)


def by_topic(owned: Iterable[TopicPartition]) -> tuple[wire.TopicPartition, ...]:
    """Convert to the wire's form, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        topics.setdefault(topic, []).append(partition)
    return tuple(wire.TopicPartition(topic=topic, partitions=tuple(each)) for topic, each in topics.items())
