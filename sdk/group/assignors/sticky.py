"""``sticky`` and ``cooperative-sticky``: as even as can be, and of what members had as little is moved as that allows.

Each member claims what it had, and keeps it as far as an even division allows (`division`). Where two
claim the same partition, the one of the newer generation has it, and of equals neither.

``cooperative-sticky`` then holds back what somebody else still claims. A member that lost something lets it go and
joins again, and the second round gives it away: there is an even division that leaves to all what they have kept, so it
is found, and nothing more has to be let go.

Where racks are known (KIP-881), what is given goes to members that have a replica in their rack, as far as the
division stays as even, and what is near is never taken away for that (`ottla.sdk.group.assignors.nearness`).

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
"""What a member says it had, and the generation that this comes from."""


class StickyAssignor:
    """Members give up everything before they join; what they had is in their user data."""

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
    """Members go on reading what they own, and nothing changes hands within one generation."""

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
    """What a member of an eager group says it had; nothing if that cannot be read."""
    if not member.user_data:
        return (), -1
    try:
        _, memory = wire.parse_sticky(member.user_data)
    except DecodeError:
        return (), -1
    return places(memory.previous_assignment), memory.generation


def _generation(member: Member) -> int:
    """Since version 2 the subscription has it; before, the user data did."""
    if member.generation >= 0 or not member.user_data:
        return member.generation
    try:
        return messages.parse(wire.CooperativeStickyAssignorUserData, 0, member.user_data)[0].generation
    except DecodeError:
        return -1


def _winners(claims: Sequence[Claims]) -> dict[TopicPartition, int]:
    """Of each partition that anybody claims the index of the member that has it, or `NOBODY`."""
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
