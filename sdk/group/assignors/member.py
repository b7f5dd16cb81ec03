"""What an assignor sees of a member, what it has to offer, and how both travel.

Rules:
- An assignor is pure: the same members and partitions give the same assignment, in whatever order they come.
- Members are distinguished by member id. Kafka's range and round robin order them by instance id first, so that a
  member that restarts under a new member id finds its partitions again.
- Strings are ordered as Java orders them, by UTF-16 units, or two leaders would divide the same group differently.
- A group is cooperative only if all assignors that its members offer are: then a member goes on reading what it owns
  while it joins and says so in its subscription. In an eager group it gives up everything first and claims nothing,
  while user data may still remember what it had.

Source: ConsumerPartitionAssignor.java, AbstractPartitionAssignor.java (MemberInfo), ConsumerCoordinator.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.codec import consumer_protocol as wire
from ottla.codec.wire import Buffer
from ottla.sdk.cluster.cluster import TopicPartition

VERSION = 3
"""Of the subscriptions sent; a leader that knows only older ones reads the part that it knows."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the group, as its subscription describes it.

    Attributes:
        topics: that it wants; those the cluster does not have are passed over.
        owned: what it goes on reading while it joins; empty in an eager group.
        generation: the rebalance that ``owned`` comes from; -1 where it is not known.
        rack: where it is, if it says so.
        user_data: for the assignor.
    """

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


class Partitions(dict[str, int]):
    """How many partitions each topic has, and where these are: what the leader of a group gives to its assignor.

    Attributes:
        racks: of each partition the racks of the nodes that have a replica; empty if no member has a rack.
    """

    def __init__(self, counts: Mapping[str, int], racks: Mapping[TopicPartition, frozenset[str]]) -> None:
        super().__init__(counts)
        self.racks = racks


class Assignor(Protocol):
    """How partitions are divided. ``name`` is what members agree on; all that use it must mean the same by it."""

    @property
    def name(self) -> str:
        """What members agree on."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether it never gives a partition to a new member before the old one has let it go."""
        ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What a member adds to its subscription: about what it had last, and from which generation (-1: none)."""
        ...

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """What each member (by its id, all of them) is to read.

        Args:
            partitions: how many each topic has; topics that the cluster does not have are missing. In a group these are
                `Partitions`, which know their racks, too.
        """
        ...


def utf16(text: str) -> bytes:
    """Sorts as Java's strings do."""
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
    """What a member sends with JoinGroup for one of its assignors.

    Args:
        owned: what it has, or in an eager group had until it joined; ``generation`` is where that comes from.
        cooperative: whether it goes on reading ``owned``, which only a cooperative group may.

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
    """A member as JoinGroup's answer describes it to the leader.

    Raises:
        DecodeError: the bytes are no subscription.
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
    """What the leader sends for a member with SyncGroup."""
    return wire.build_assignment(wire.ConsumerProtocolAssignment(assigned_partitions=by_topic(assigned)), VERSION)


def parse_assigned(assignment: Buffer) -> tuple[TopicPartition, ...]:
    """What SyncGroup's answer gives a member; empty bytes, which a leader may send for nothing, are nothing.

    Raises:
        DecodeError: the bytes are no assignment.
    """
    return places(wire.parse_assignment(assignment)[1].assigned_partitions) if len(assignment) else ()


def places(topics: Iterable[wire.TopicPartition]) -> tuple[TopicPartition, ...]:
    """From the form of the wire, where each topic has its partitions."""
    return tuple((each.topic, partition) for each in topics for partition in each.partitions)


def by_topic(owned: Iterable[TopicPartition]) -> tuple[wire.TopicPartition, ...]:
    """Into the form of the wire, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        topics.setdefault(topic, []).append(partition)
    return tuple(wire.TopicPartition(topic=topic, partitions=tuple(each)) for topic, each in topics.items())
