"""``sticky`` and ``cooperative-sticky``: divide as evenly as possible, and move as few partitions as that allows.

Each member claims its last partitions, and keeps as many as an even division allows (`division`). If two members claim
the same partition, the one with the newer generation keeps it; if the generations are equal, both lose it.

``cooperative-sticky`` then holds back partitions that another member still claims. A member that has to give up
partitions does so and joins again, and the second rebalance assigns them. An even division in which all members keep
their remaining partitions exists, so the second rebalance finds it and revokes nothing more.

If racks are known (KIP-881), partitions go to members with a replica in their rack if the division stays as even. For
that, no member has to give up a partition that is near to it (`ottla.sdk.group.assignors.nearness`).

Source: AbstractStickyAssignor.java, StickyAssignor.java, CooperativeStickyAssignor.java; KIP-54, KIP-341, KIP-429.
"""

from collections.abc import Mapping, Sequence

from ottla.codec import consumer_protocol as wire
from ottla.codec import messages
from ottla.errors import DecodeError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors.division import NOBODY, divide
from ottla.sdk.group.assignors.member import Member, by_id, by_topic, places

Claims = tuple[Sequence[TopicPartition], int]
"""The partitions that a member claims, and the generation in which they were assigned."""


class StickyAssignor:
    """Divides evenly with few moves; members give up all partitions before they join (eager)."""

    name = "sticky"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        if generation < 0 and not owned:
            return None
        memory = wire.StickyAssignorUserData(previous_assignment=by_topic(owned), generation=generation)
        return messages.build(memory, 1)

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        members = sorted(members, key=by_id)
        owners = _winners([_remembered(member) for member in members])
        racks = [member.rack for member in members]
        assigned = divide(partitions, [member.topics for member in members], owners, racks)
        return {member.member_id: mine for member, mine in zip(members, assigned, strict=True)}


class CooperativeStickyAssignor:
    """Divides evenly with few moves; members continue to read their partitions while they join (cooperative)."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return messages.build(wire.CooperativeStickyAssignorUserData(generation=generation), 0)

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        members = sorted(members, key=by_id)
        owners = _winners([(member.owned, _generation(member)) for member in members])
        racks = [member.rack for member in members]
        assigned = divide(partitions, [member.topics for member in members], owners, racks)
        return {
            member.member_id: [place for place in mine if owners.get(place, index) == index]
            for index, (member, mine) in enumerate(zip(members, assigned, strict=True))
        }


def _remembered(member: Member) -> Claims:
    """The claims in the user data of a member of an eager group; none if it cannot be parsed."""
    if not member.user_data:
        return (), -1
    try:
        _, memory = wire.parse_sticky(member.user_data)
    except DecodeError:
        return (), -1
    return places(memory.previous_assignment), memory.generation


def _generation(member: Member) -> int:
    """The member's generation; before version 2 of the subscription it is in the user data."""
    if member.generation >= 0 or not member.user_data:
        return member.generation
    try:
        return messages.parse(wire.CooperativeStickyAssignorUserData, 0, member.user_data)[0].generation
    except DecodeError:
        return -1


def _winners(claims: Sequence[Claims]) -> dict[TopicPartition, int]:
    """For each claimed partition, the index of the member that may keep it, or `NOBODY`."""
    owners: dict[TopicPartition, int] = {}
    generations: dict[TopicPartition, int] = {}
    for index, (claimed, generation) in enumerate(claims):
        for place in dict.fromkeys(claimed):
            newest = generations.get(place)
            if newest is None or generation > newest:
                owners[place], generations[place] = index, generation
            elif generation == newest:
                owners[place] = NOBODY
    return owners
