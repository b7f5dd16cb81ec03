"""Divides the partitions of a share group among its members, as Kafka's assignor ``simple`` does.

Rules:
- If there are more members than partitions, several members share a partition, about as many for each one.
- Two members have nearly equal numbers of partitions: they differ by one at most. Members keep their partitions if
  possible.
- If the members subscribe to different topics, this holds for each topic by itself.

Source: SimpleAssignor.java, SimpleHomogeneousAssignmentBuilder.java, SimpleHeterogeneousAssignmentBuilder.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.consumer_groups.member import Partitions, grouped

if TYPE_CHECKING:
    from uuid import UUID

NAME = "simple"
Place = tuple["UUID", int]


def assign(
    subscriptions: "Mapping[str, frozenset[UUID]]",
    present: Mapping[str, Partitions],
    assignable: "Mapping[UUID, Iterable[int]]",
) -> dict[str, Partitions]:
    """Return the partitions of each member.

    Args:
        subscriptions: member id -> the topics to which it subscribes.
        present: member id -> its partitions until now.
        assignable: topic id -> the partitions that may be assigned.
    """
    places = {topic_id: [(topic_id, index) for index in sorted(indexes)] for topic_id, indexes in assignable.items()}
    given: dict[str, list[Place]] = {member: [] for member in subscriptions}
    if len(set(subscriptions.values())) == 1:
        topics = sorted(next(iter(subscriptions.values())), key=str)
        had = {
            member: [(topic_id, index) for topic_id, indexes in present.get(member, {}).items() for index in indexes]
            for member in subscriptions
        }
        _divide([place for topic_id in topics for place in places.get(topic_id, ())], sorted(subscriptions), had, given)
    else:
        for topic_id in sorted({topic_id for each in subscriptions.values() for topic_id in each}, key=str):
            members = [member for member in sorted(subscriptions) if topic_id in subscriptions[member]]
            had = {
                member: [(topic_id, index) for index in present.get(member, {}).get(topic_id, ())] for member in members
            }
            _divide(places.get(topic_id, ()), members, had, given)
    return {member: grouped((topic_id, (index,)) for topic_id, index in each) for member, each in given.items()}


def _divide(
    places: Sequence[Place],
    members: Sequence[str],
    had: Mapping[str, Iterable[Place]],
    given: Mapping[str, list[Place]],
) -> None:
    """Give each member its share of the partitions."""
    if not places or not members:
        return
    sharing = -(-len(members) // len(places))  # how many members each partition should have
    each = sharing * len(places) / len(members)
    room = {member: ceil(each * (i + 1)) - ceil(each * i) for i, member in enumerate(members)}
    wanted = dict.fromkeys(places, sharing)
    holders: dict[Place, set[str]] = {place: set() for place in places}

    def give(member: str, place: Place) -> None:
        given[member].append(place)
        holders[place].add(member)
        room[member] -= 1
        wanted[place] -= 1

    rank = {place: i for i, place in enumerate(places)}
    for member in members:
        for place in sorted((place for place in had[member] if place in rank), key=rank.__getitem__):
            if room[member] > 0 and wanted[place] > 0:
                give(member, place)
    waiting = [member for member in members if room[member] > 0]
    for place in places:
        while wanted[place] > 0:
            # The member that has waited longest; a member cannot take a partition twice.
            taker = next((member for member in waiting if member not in holders[place]), None)
            if taker is None:
                break
            give(taker, place)
            waiting.remove(taker)
            if room[taker] > 0:
                waiting.append(taker)
