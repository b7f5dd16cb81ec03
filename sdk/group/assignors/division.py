"""The even division that moves little: what the sticky assignors stand on.

Theory of operation. What a member has and still wants, it keeps for now. Then:

1. What nobody has goes to the member with the fewest, topics that few want first (`_Division.fill`).
2. While some member can be relieved by one that has at least two fewer, directly or along a chain in which each passes
   a partition on to the next, the shortest such chain is carried out (`_Division.even_out`): at first with what was
   given in step 1 only, then with what members had before, too.

Members with the most are looked at first. If nobody within their reach has two fewer, then nobody there can ever be
better off, neither as a giver nor as a taker, so all of them are settled and not looked at again. What ends so is the
most even division there is, by whatever measure; Kafka's own looks at direct moves only, and may stop earlier. A
division that is even already stays as it is, whichever assignor made it. And where one can be had without touching what
members have, the first pass of step 2 finds it. Where racks are known, members then exchange partitions, one for one
(`ottla.sdk.group.assignors.nearness`).

Source: KIP-54; Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing (2006).
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors.member import Partitions
from ottla.sdk.group.assignors.nearness import bring_near

NOBODY = -1
"""In place of a member: nobody may keep the partition."""


def divide(
    partitions: Mapping[str, int],
    wanted: Sequence[frozenset[str]],
    owners: Mapping[TopicPartition, int],
    near_to: Sequence[str | None] = (),
) -> list[list[TopicPartition]]:
    """What each member gets, in order.

    Args:
        partitions: how many each topic has.
        wanted: the topics of each member; what follows names members by their place in it.
        owners: the member that has a partition now, or `NOBODY`.
        near_to: the rack of each member, where ``partitions`` know theirs.
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
"""Topic -> partitions of one member; no topic without any."""

_Link = tuple[int, str, int]
"""Which member could give one partition of which topic to which other."""


class _Division:
    """Which member has what while it is being divided.

    Members are named by their index, and sets of members are numbers with these bits set: to look for a chain means to
    subtract those who were seen from the subscribers of a topic, thousands of times.

    Attributes:
        kept: per member what it claimed and still has.
        given: per member what it has besides.
        subscribers: of each topic.
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
        """All that it has, in order."""
        holdings = (self.kept[member], self.given[member])
        return sorted((topic, each) for holding in holdings for topic, mine in holding.items() for each in mine)

    def fill(self) -> None:
        """Give what nobody has to the member with the fewest, topics with the fewest subscribers first."""
        heaps: dict[int, list[tuple[int, int]]] = {}
        for topic in sorted(self.subscribers, key=lambda topic: (self.subscribers[topic].bit_count(), topic)):
            subscribers = self.subscribers[topic]
            heap = heaps.setdefault(subscribers, [])
            if not heap:
                heap += sorted((self._loads[each], each) for each in _members(subscribers))
            for partition in range(self._partitions[topic]):
                if (topic, partition) in self._held:
                    continue
                while heap[0][0] != self._loads[heap[0][1]]:  # it got partitions of topics with other subscribers
                    heapreplace(heap, (self._loads[heap[0][1]], heap[0][1]))
                load, member = heap[0]
                self._put(self.given, member, topic, partition)
                heapreplace(heap, (load + 1, member))

    def even_out(self, *movable: list[_Holding]) -> None:
        """Move until no member can be relieved by one that has at least two fewer; only what is ``movable``."""
        settled = 0
        fullest = [(-load, member) for member, load in enumerate(self._loads)]
        heapify(fullest)
        while fullest:
            load, member = heappop(fullest)
            if settled >> member & 1 or -load != self._loads[member]:
                continue  # the second: it has another entry by now
            chain, settled = self._chain(member, movable, settled)
            for giver, topic, taker in chain:
                self._move(giver, topic, taker, movable)
            if chain:
                for each in (member, chain[0][2]):
                    heappush(fullest, (-self._loads[each], each))

    def _chain(self, start: int, movable: Sequence[list[_Holding]], settled: int) -> tuple[list[_Link], int]:
        """The shortest chain that relieves ``start``, its last link first, and who is settled.

        If there is none, all whom it can reach are settled, too.
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
        """The one of them that has the least, if that is at most ``most``."""
        for load in sorted(self._by_load):
            if load > most:
                break
            if found := members & self._by_load[load]:
                return _lowest(found)
        return None

    @staticmethod
    def _topics(giver: int, movable: Sequence[list[_Holding]], *, in_order: bool) -> Iterator[str]:
        """Of what it could give: those first of which it has many, so that no topic is taken from it whole."""
        for holdings in movable:
            holding = holdings[giver]
            yield from sorted(holding, key=lambda topic: -len(holding[topic])) if in_order else holding

    def _move(self, giver: int, topic: str, taker: int, movable: Sequence[list[_Holding]]) -> None:
        """One partition of the topic, if possible one that the giver did not have before."""
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
    """Of each topic that anybody wants and the cluster has."""
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
