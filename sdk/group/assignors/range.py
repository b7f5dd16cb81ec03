"""``range``: each member gets a run of consecutive partitions of each topic; the first members may get one more.

Members with the same topics get the same partition numbers of each, so that topics partitioned by the same key are
read together. With many topics, the first members get more than their share.

If racks are known (KIP-881), and not every partition has a replica in all of them, each member first takes partitions
with a replica in its own rack. The rest is divided as before: the shares have the same sizes, but may have gaps. Topics
with the same members and the same number of partitions are still divided alike: a partition number counts as near only
if it is near in all of them. To a member without a rack, all partitions are near.

Source: RangeAssignor.java, AbstractPartitionAssignor.java; KIP-881.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors.member import Member, Partitions, by_instance


class RangeAssignor:
    """Gives each member a run of consecutive partitions of each topic, the same numbers of each.

    A member with a rack (``rack`` of `connect`) gets partitions with a replica there, up to its share.
    """

    name = "range"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        racks = partitions.racks if isinstance(partitions, Partitions) else {}
        subscribers = _subscribers(partitions, sorted(members, key=by_instance))
        topics = [_DividedTopic(name, partitions[name], subscribers[name], racks) for name in sorted(subscribers)]
        if any(topic.has_near_and_far for topic in topics):
            _give_near(topics)
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in topics:
            topic.give_rest()
            for member_id, mine in topic.given.items():
                assigned[member_id] += [(topic.name, partition) for partition in sorted(mine)]
        return assigned


class _DividedTopic:
    """A topic during the division.

    Attributes:
        members: its subscribers, in order.
        given: the partitions of each member, by member id; members without any are left out.
    """

    def __init__(
        self, name: str, count: int, members: Sequence[Member], racks: Mapping[TopicPartition, frozenset[str]]
    ) -> None:
        self.name, self.count, self.members = name, count, members
        self.given: dict[str, list[int]] = {}
        self._left = dict.fromkeys(range(count))
        self._each, self._extra = divmod(count, len(members))
        self._racks = [racks.get((name, partition), frozenset()) for partition in range(count)] if racks else []

    @property
    def has_near_and_far(self) -> bool:
        """Whether some partitions are near to some members, and not to others."""
        anywhere = frozenset().union(*self._racks)
        return any(each != anywhere for each in self._racks) and any(member.rack in anywhere for member in self.members)

    def near(self, rack: str | None, partition: int) -> bool:
        return rack is None or rack in self._racks[partition]

    def room(self, member: Member) -> int:
        """The number of partitions that the member may still get."""
        return max(0, self._each + (self._extra > 0) - len(self.given.get(member.member_id, ())))

    def give(self, member: Member, partitions: Sequence[int]) -> None:
        mine = self.given.setdefault(member.member_id, [])
        mine += partitions
        for partition in partitions:
            del self._left[partition]
        if partitions and len(mine) > self._each:
            self._extra -= 1  # the member got one of the extra partitions, and has no more room

    def give_near(self) -> None:
        left: dict[str | None, Iterator[int]] = {}
        """For each rack, its near partitions that were not visited yet: members of one rack share the iterator."""
        for member in self.members:
            if not self._each and not self._extra:
                break
            rack = member.rack
            if rack not in left:
                left[rack] = iter([partition for partition in self._left if self.near(rack, partition)])
            near = (partition for partition in left[rack] if partition in self._left)
            self.give(member, list(islice(near, self.room(member))))

    def give_rest(self) -> None:
        left = iter(list(self._left))
        for member in self.members:  # of many members, only a few get partitions of a small topic
            if not self._left:
                break
            self.give(member, list(islice(left, self.room(member))))


def _subscribers(partitions: Mapping[str, int], members: Sequence[Member]) -> dict[str, Sequence[Member]]:
    """The subscribers, in order, of each existing topic that has any.

    Topics with the same subscribers share one tuple; in most groups there is only one.
    """
    alike: dict[frozenset[str], list[int]] = {}
    for index, member in enumerate(members):
        alike.setdefault(member.topics, []).append(index)
    wanting: dict[str, list[list[int]]] = {}
    for topics, indices in alike.items():
        for name in topics & partitions.keys():
            wanting.setdefault(name, []).append(indices)
    together: dict[tuple[int, ...], Sequence[Member]] = {}
    subscribers: dict[str, Sequence[Member]] = {}
    for name, each in wanting.items():
        key = tuple(map(id, each))
        if key not in together:
            together[key] = tuple(members[index] for index in sorted(chain.from_iterable(each)))
        subscribers[name] = together[key]
    return subscribers


def _give_near(topics: Sequence[_DividedTopic]) -> None:
    """Give members partitions that are near to them, up to their share."""
    groups: dict[tuple[int, int], list[_DividedTopic]] = {}
    for topic in topics:
        groups.setdefault((topic.count, id(topic.members)), []).append(topic)
    for together in groups.values():
        if len(together) > 1:
            _give_together(together)
        elif together[0].has_near_and_far:
            together[0].give_near()


def _give_together(topics: Sequence[_DividedTopic]) -> None:
    """Like `_DividedTopic.give_near`, for topics divided alike: a member gets numbers near to it in all of them."""
    first, *_ = topics  # members have the same partition numbers of all these topics
    members = list(first.members)
    for partition in range(first.count):
        near: dict[str | None, bool] = {}
        for index, member in enumerate(members):
            rack = member.rack
            if rack not in near:
                near[rack] = all(topic.near(rack, partition) for topic in topics)
            if near[rack] and first.room(member):
                for topic in topics:
                    topic.give(member, [partition])
                if not first.room(member):
                    del members[index]
                break
