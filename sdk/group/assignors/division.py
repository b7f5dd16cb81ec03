"""Divides partitions evenly with few moves; the basis of the sticky assignors.

Theory of operation. At first, each member keeps the partitions that it has and still subscribes to. Then:

1. Partitions without an owner go to the member with the fewest partitions. Topics with few subscribers come first
   (`_Division.fill`).
2. A member gives a partition to one that has at least two fewer, directly or along a chain in which each member passes
   a partition to the next. The shortest chain is used, until there is no chain any more (`_Division.even_out`). The
   first pass moves only partitions given in step 1; the second also moves partitions that members had before.

Members with the most partitions come first. If no member that such a member can reach has at least two fewer, none of
these members can ever give or take in a later chain, so they are all settled and not visited again. The result is the
most even division possible, by any measure; Kafka's assignor considers direct moves only, and may stop earlier. A
division that is even already does not change, whichever assignor made it. If an even division is possible without
taking partitions from members, the first pass of step 2 finds it. If racks are known, members then exchange partitions,
one for one (`ottla.sdk.group.assignors.nearness`).

Source: KIP-54; Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing (2006).
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors.member import Partitions
from ottla.sdk.group.assignors.nearness import bring_near

NOBODY = -1
"""Stands for a member: no member may keep the partition."""


def divide(
    partitions: Mapping[str, int],
    wanted: Sequence[frozenset[str]],
    owners: Mapping[TopicPartition, int],
    near_to: Sequence[str | None] = (),
) -> list[list[TopicPartition]]:
    """The partitions of each member, in the order of ``wanted``.

    Args:
        partitions: the number of partitions of each topic.
        wanted: the topics of each member; the index in this sequence identifies a member.
        owners: the current owner of each partition, or `NOBODY`.
        near_to: the rack of each member; used if ``partitions`` has the racks of partitions.
    """
    division = _Division(partitions, wanted, owners)
    division.fill()
    division.even_out(division.given)
    division.even_out(division.given, division.kept)
    racks = partitions.racks if isinstance(partitions, Partitions) else {}
    if racks and any(near_to):
        bring_near(division.kept, division.given, division.subscribers, racks, near_to)
    return [division.of(member) for member in range(len(wanted))]


_Holding = dict[str, list[int]]
"""The partitions of one member by topic; topics without any are left out."""

_Link = tuple[int, str, int]
"""The giving member, the topic of the partition, and the taking member."""


class _Division:
    """Holds the partitions of each member during the division.

    Members are indices, and sets of members are integers with these bits set: the search for a chain subtracts the
    visited members from the subscribers of a topic, thousands of times.

    Attributes:
        kept: for each member, the partitions that it had before and still has.
        given: for each member, its other partitions.
        subscribers: the subscribers of each topic.
    """

    def __init__(
        self, partitions: Mapping[str, int], wanted: Sequence[frozenset[str]], owners: Mapping[TopicPartition, int]
    ) -> None:
        self._partitions = partitions
        self.subscribers = _subscribers(partitions, wanted)
        self.kept: list[_Holding] = [{} for _ in wanted]
        self.given: list[_Holding] = [{} for _ in wanted]
        self._held: set[TopicPartition] = set()
        self._loads = [0] * len(wanted)
        self._by_load = {0: (1 << len(wanted)) - 1}
        for place, owner in sorted(owners.items()):
            topic, partition = place
            if owner != NOBODY and topic in wanted[owner] and partition in range(partitions.get(topic, 0)):
                self._put(self.kept, owner, topic, partition)
                self._held.add(place)

    def of(self, member: int) -> list[TopicPartition]:
        """All partitions of the member, sorted."""
        holdings = (self.kept[member], self.given[member])
        return sorted((topic, each) for holding in holdings for topic, mine in holding.items() for each in mine)

    def fill(self) -> None:
        """Give partitions without an owner to the members with the fewest; topics with few subscribers come first."""
        heaps: dict[int, list[tuple[int, int]]] = {}
        for topic in sorted(self.subscribers, key=lambda topic: (self.subscribers[topic].bit_count(), topic)):
            subscribers = self.subscribers[topic]
            heap = heaps.setdefault(subscribers, [])
            if not heap:
                heap += sorted((self._loads[each], each) for each in _members(subscribers))
            for partition in range(self._partitions[topic]):
                if (topic, partition) in self._held:
                    continue
                # The heap's entry is outdated if the member got partitions of topics with other subscribers.
                while heap[0][0] != self._loads[heap[0][1]]:
                    heapreplace(heap, (self._loads[heap[0][1]], heap[0][1]))
                load, member = heap[0]
                self._put(self.given, member, topic, partition)
                heapreplace(heap, (load + 1, member))

    def even_out(self, *movable: list[_Holding]) -> None:
        """Move ``movable`` partitions along chains until no member reaches another that has at least two fewer."""
        settled = 0
        fullest = [(-load, member) for member, load in enumerate(self._loads)]
        heapify(fullest)
        while fullest:
            load, member = heappop(fullest)
            if settled >> member & 1 or -load != self._loads[member]:
                continue  # settled, or this entry is outdated and the member has a newer one
            chain, settled = self._chain(member, movable, settled)
            for giver, topic, taker in chain:
                self._move(giver, topic, taker, movable)
            if chain:
                for each in (member, chain[0][2]):
                    heappush(fullest, (-self._loads[each], each))

    def _chain(self, start: int, movable: Sequence[list[_Holding]], settled: int) -> tuple[list[_Link], int]:
        """The shortest chain by which ``start`` gives a partition away, last link first, and the settled members.

        If there is no chain, all members that it can reach are settled as well.
        """
        links: list[tuple[int, str, int]] = []
        level = 1 << start
        seen = settled | level
        while level:
            reached = 0
            for giver in _members(level):
                for topic in self._topics(giver, movable, in_order=giver == start):
                    if fresh := self.subscribers[topic] & ~seen:
                        seen |= fresh
                        reached |= fresh
                        links.append((giver, topic, fresh))
            taker = self._emptiest(reached, self._loads[start] - 2)
            if taker is not None:
                chain: list[_Link] = []
                while taker != start:
                    giver, topic = next((giver, topic) for giver, topic, fresh in links if fresh >> taker & 1)
                    chain.append((giver, topic, taker))
                    taker = giver
                return chain, settled
            level = reached
        return [], seen

    def _emptiest(self, members: int, most: int) -> int | None:
        """The member in ``members`` with the fewest partitions, if it has at most ``most``."""
        for load in sorted(self._by_load):
            if load > most:
                break
            if found := members & self._by_load[load]:
                return _lowest(found)
        return None

    @staticmethod
    def _topics(giver: int, movable: Sequence[list[_Holding]], *, in_order: bool) -> Iterator[str]:
        """The topics of which the member can give a partition; ``in_order``: those with most partitions first.

        The order avoids that a member loses all partitions of one topic.
        """
        for holdings in movable:
            holding = holdings[giver]
            yield from sorted(holding, key=lambda topic: -len(holding[topic])) if in_order else holding

    def _move(self, giver: int, topic: str, taker: int, movable: Sequence[list[_Holding]]) -> None:
        """Move one partition of the topic; partitions that the giver did not have before come first."""
        holding = next(holdings[giver] for holdings in movable if topic in holdings[giver])
        partition = holding[topic].pop()
        if not holding[topic]:
            del holding[topic]
        self._count(giver, -1)
        self._put(self.given, taker, topic, partition)

    def _put(self, holdings: list[_Holding], member: int, topic: str, partition: int) -> None:
        holdings[member].setdefault(topic, []).append(partition)
        self._count(member, 1)

    def _count(self, member: int, change: int) -> None:
        load, bit = self._loads[member], 1 << member
        self._by_load[load] ^= bit
        if not self._by_load[load]:
            del self._by_load[load]
        self._loads[member] = load + change
        self._by_load[load + change] = self._by_load.get(load + change, 0) | bit


def _subscribers(partitions: Mapping[str, int], wanted: Sequence[frozenset[str]]) -> dict[str, int]:
    """The subscribers of each existing topic that has any."""
    alike: dict[frozenset[str], int] = {}
    for member, topics in enumerate(wanted):
        alike[topics] = alike.get(topics, 0) | 1 << member
    subscribers: dict[str, int] = {}
    for topics, each in alike.items():
        for topic in topics:
            if topic in partitions:
                subscribers[topic] = subscribers.get(topic, 0) | each
    return subscribers


def _lowest(members: int) -> int:
    return (members & -members).bit_length() - 1


def _members(members: int) -> Iterator[int]:
    while members:
        yield _lowest(members)
        members &= members - 1
