"""``range``: of each topic a run of consecutive partitions, the first members one more where it does not divide.

Members that want the same topics get the same numbers of each, so that what is partitioned alike is read by one member.
With many topics the first members get more than their share.

Where racks are known (KIP-881), and not every partition has a replica in all of them, each member first takes what has
one in its own rack, and what is left is given as before: the shares are as large as ever, and may have gaps. Topics
with the same members and as many partitions go together then, too: a number is near only if it is in all of them. A
member without a rack takes anything.

Source: RangeAssignor.java, AbstractPartitionAssignor.java; KIP-881.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors.member import Member, Partitions, by_instance


class RangeAssignor:
    """Of each topic a run of consecutive partitions, so that equal numbers of several topics stay together.

    Members that have a rack (``rack`` of `connect`) get what has a replica there, as far as their share allows.
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
        topics = [_Topic(name, partitions[name], subscribers[name], racks) for name in sorted(subscribers)]
        if any(topic.has_near_and_far for topic in topics):
            _give_near(topics)
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in topics:
            topic.give_rest()
            for member_id, mine in topic.given.items():
                assigned[member_id] += [(topic.name, partition) for partition in sorted(mine)]
        return assigned


class _Topic:
    """A topic while it is being divided.

    Attributes:
        members: those that want it, in order.
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
        """Some partitions are nearer to some members than others."""
        anywhere = frozenset().union(*self._racks)
        return any(each != anywhere for each in self._racks) and any(member.rack in anywhere for member in self.members)

    def near(self, rack: str | None, partition: int) -> bool:
        return rack is None or rack in self._racks[partition]

    def room(self, member: Member) -> int:
        """How many more it may have."""
        return max(0, self._each + (self._extra > 0) - len(self.given.get(member.member_id, ())))

    def give(self, member: Member, partitions: Sequence[int]) -> None:
        mine = self.given.setdefault(member.member_id, [])
        mine += partitions
        for partition in partitions:
            del self._left[partition]
        if partitions and len(mine) > self._each:
            self._extra -= 1  # and it has no more room

    def give_near(self) -> None:
        left: dict[str | None, Iterator[int]] = {}
        """By rack the partitions near to it, up to the last that was given: members of one rack go on with them."""
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
        for member in self.members:  # of many members few get anything of a small topic
            if not self._left:
                break
            self.give(member, list(islice(left, self.room(member))))


def _subscribers(partitions: Mapping[str, int], members: Sequence[Member]) -> dict[str, Sequence[Member]]:
    """The members that want a topic, in order, of each that anybody wants and the cluster has.

    Topics with the same members share one tuple of them, as most groups have only one.
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


def _give_near(topics: Sequence[_Topic]) -> None:
    """Give every member what is near to it, as far as it has room."""
    groups: dict[tuple[int, int], list[_Topic]] = {}
    for topic in topics:
        groups.setdefault((topic.count, id(topic.members)), []).append(topic)
    for together in groups.values():
        if len(together) > 1:
            _give_together(together)
        elif together[0].has_near_and_far:
            together[0].give_near()


def _give_together(topics: Sequence[_Topic]) -> None:
    """The same for topics that are divided alike: each number to the first member that has it near in all of them."""
    first, *_ = topics  # what members have of it, they have of all
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
