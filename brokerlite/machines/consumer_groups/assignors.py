"""The assignors of the broker: they divide the partitions of topics among the members that subscribe to them.

``uniform`` gives all members the same number of partitions, up to one, and moves as few as it can. ``range`` gives each
member consecutive partitions of each topic, so that members join topics with the same number of partitions.

Rules:
- Members are taken in the order of Java's hash table of their ids. That order decides who gets the odd partition; in
  any other order a group that moves here from Apache Kafka, or back, would rebalance for nothing.
- Each step costs about as much as there are partitions and members, not their product.

Source: UniformHomogeneousAssignmentBuilder.java, UniformHeterogeneousAssignmentBuilder.java, RangeAssignor.java,
java.util.HashMap.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.consumer_groups.member import Partitions

if TYPE_CHECKING:
    from uuid import UUID

UNIFORM, RANGE = "uniform", "range"
_ROUNDS = 16
"""The most rounds in which ``uniform`` balances members with different subscriptions."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member as an assignor sees it.

    Attributes:
        topics: the ids of the topics that exist and that it subscribes to.
        partitions: its present target assignment.
        subscription: its subscription as it sent it; ``uniform`` treats members with equal ones alike.
    """

    topics: "frozenset[UUID]"
    partitions: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    subscription: Hashable = None


Candidates = Mapping[str, Candidate]
"""AssignedMember id -> member."""
Counts = Mapping["UUID", int]
"""Topic id -> number of partitions."""
Assignment = dict[str, Partitions]
Assignor = Callable[[Candidates, Counts], Assignment]


def java_order(names: Iterable[str]) -> list[str]:
    """Return the names in the order of a `java.util.HashMap` with these keys; the names of a bucket in their order."""
    names = list(names)
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(_java_hash(name)) & (buckets - 1))


def _java_hash(text: str) -> int:
    """Return the hash of a `java.lang.String`, as 32 bits without a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _spread(value: int) -> int:
    return value ^ value >> 16


def range_(members: Candidates, counts: Counts) -> Assignment:
    """Give each member consecutive partitions of each of its topics; the first members get one more."""
    subscribers: dict[UUID, int] = {}
    for each in members.values():
        for topic_id in each.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    ranges = {topic_id: _Ranges(counts[topic_id], number) for topic_id, number in subscribers.items()}
    assignment: Assignment = {}
    for member_id in sorted(members, key=lambda each: _range_order(each, members[each])):
        taken = {topic_id: ranges[topic_id].take() for topic_id in sorted(members[member_id].topics, key=str)}
        assignment[member_id] = {topic_id: each for topic_id, each in taken.items() if each}
    return assignment


def _range_order(member_id: str, member: Candidate) -> tuple[bool, str]:
    """Static members come first, in the order of their instances, so that a restart moves nothing."""
    return member.instance_id is None, member_id if member.instance_id is None else member.instance_id


class _Ranges:
    """The consecutive parts of a topic's partitions, for its subscribers one after the other."""

    def __init__(self, partitions: int, subscribers: int) -> None:
        self._partitions = partitions
        self._least, self._more = divmod(partitions, subscribers)
        self._next = 0

    def take(self) -> frozenset[int]:
        start = self._next
        self._next = min(start + self._least + (self._more > 0), self._partitions)
        self._more -= self._more > 0
        return frozenset(range(start, self._next))


def uniform(members: Candidates, counts: Counts) -> Assignment:
    """Give all members about the same number of partitions, and move as few as possible."""
    if len({(each.topics, each.subscription) for each in members.values()}) <= 1:
        return _uniform_for_all(members, counts)
    return _Balance(members, counts).assignment()


def _uniform_for_all(members: Candidates, counts: Counts) -> Assignment:
    """Divide the partitions among members with the same subscription."""
    topics = sorted(next(iter(members.values())).topics, key=str) if members else []
    if not topics:
        return {}
    taken = {
        (topic_id, index)
        for each in members.values()
        for topic_id in each.partitions
        for index in each.partitions[topic_id]
    }
    left = [
        (topic_id, index) for topic_id in topics for index in range(counts[topic_id]) if (topic_id, index) not in taken
    ]
    least, more = divmod(sum(counts[topic_id] for topic_id in topics), len(members))
    kept: dict[str, dict[UUID, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for number, member_id in enumerate(java_order(members)):
        quota = least + (more > 0)
        kept[member_id] = {}
        for topic_id, indexes in members[member_id].partitions.items():
            if topic_id not in counts or topic_id not in members[member_id].topics:
                continue
            stays = sorted(indexes)[:quota]
            left += [(topic_id, index) for index in sorted(indexes)[quota:]]
            quota -= len(stays)
            if stays:
                kept[member_id][topic_id] = set(stays)
        # A later member may have one more already, and keep it; so this one gets one more only if it has it, too.
        if more and quota and len(members) - number > more:
            quota -= 1
        elif more:
            more -= 1
        if quota:
            unfilled.append((member_id, quota))
    free = iter(left)
    for member_id, quota in unfilled:
        for _, (topic_id, index) in zip(range(quota), free, strict=False):
            kept[member_id].setdefault(topic_id, set()).add(index)
    return {member_id: _frozen(each) for member_id, each in kept.items()}


def _frozen(partitions: "Mapping[UUID, Iterable[int]]") -> Partitions:
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}


class _Balance:
    """Divides partitions among members with different subscriptions: first the free ones, then it moves some."""

    def __init__(self, members: Candidates, counts: Counts) -> None:
        self._ids = java_order(members)
        self._counts = counts
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member_id in enumerate(self._ids):
            for topic_id in members[member_id].topics:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners = {topic_id: [-1] * counts[topic_id] for topic_id in self._subscribers}
        self._sizes = [0] * len(self._ids)
        for number, member_id in enumerate(self._ids):
            for topic_id, indexes in members[member_id].partitions.items():
                if topic_id in members[member_id].topics:
                    for index in indexes:
                        self._give(topic_id, index, number)

    def assignment(self) -> Assignment:
        self._assign_free()
        self._move()
        result: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in self._ids}
        for topic_id, owners in self._owners.items():
            for index, owner in enumerate(owners):
                if owner >= 0:
                    result[self._ids[owner]].setdefault(topic_id, set()).add(index)
        return {member_id: _frozen(each) for member_id, each in result.items()}

    def _give(self, topic_id: "UUID", index: int, number: int) -> None:
        before = self._owners[topic_id][index]
        if before >= 0:
            self._sizes[before] -= 1
        self._owners[topic_id][index] = number
        self._sizes[number] += 1

    def _in_order(self, topics: "Iterable[UUID]") -> "list[UUID]":
        """The topics with the most partitions for each subscriber first."""

        def key(topic_id: "UUID") -> tuple[float, int, str]:
            subscribers = len(self._subscribers[topic_id])
            return -self._counts[topic_id] / subscribers, subscribers, str(topic_id)

        return sorted(topics, key=key)

    def _ranked(self, topic_id: "UUID") -> list[int]:
        """The subscribers of a topic, those with the fewest partitions first."""
        return sorted(self._subscribers[topic_id], key=lambda number: (self._sizes[number], number))

    def _assign_free(self) -> None:
        for topic_id in self._in_order(self._owners):
            ranked = self._ranked(topic_id)
            heap = [(self._sizes[number], rank) for rank, number in enumerate(ranked)]  # sorted, so it is a heap
            for index, owner in enumerate(self._owners[topic_id]):
                if owner < 0:
                    rank = heap[0][1]
                    self._give(topic_id, index, ranked[rank])
                    heapq.heapreplace(heap, (self._sizes[ranked[rank]], rank))

    def _move(self) -> None:
        """Move partitions from the members with the most to those with the least, topic by topic."""
        topics = self._in_order(topic_id for topic_id, each in self._subscribers.items() if len(each) > 1)
        last = None
        for _ in range(_ROUNDS):
            for topic_id in topics:
                if topic_id == last:
                    return  # a whole round has moved nothing
                if self._move_of(topic_id) or last is None:
                    last = topic_id

    def _move_of(self, topic_id: "UUID") -> bool:
        """Move partitions of one topic until its subscribers differ by one partition at most, or cannot."""
        ranked = self._ranked(topic_id)
        owned: dict[int, list[int]] = {number: [] for number in ranked}
        for index, owner in enumerate(self._owners[topic_id]):
            owned[owner].append(index)
        least = [(self._sizes[number], rank) for rank, number in enumerate(ranked)]
        most = [(-self._sizes[number], -rank) for rank, number in enumerate(ranked) if owned[number]]
        heapq.heapify(most)
        moved = False
        while most:
            size, giver = -most[0][0], ranked[-most[0][1]]
            if not owned[giver]:
                heapq.heappop(most)
            elif size != self._sizes[giver]:  # the entry is older than a move
                heapq.heapreplace(most, (-self._sizes[giver], most[0][1]))
            else:
                level, rank = least[0]
                receiver = ranked[rank]
                if level != self._sizes[receiver]:
                    heapq.heapreplace(least, (self._sizes[receiver], rank))
                    continue
                if size - level <= 1:
                    break
                self._give(topic_id, owned[giver].pop(), receiver)
                moved = True
        return moved


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: uniform, RANGE: range_}
"""In the order of Kafka's `group.consumer.assignors`: the first is the default."""
