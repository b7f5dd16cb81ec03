"""``range``: of each topic a run of consecutive partitions, the first members one more where it does not divide.

Members that want the same topics get the same numbers of each, so that what is partitioned alike is read by one member.
With many topics the first members get more than their share.

Where racks are known (KIP-881), and not every partition has a replica in all of them, each member first takes what has
one in its own rack, and what is left is given as before: the shares are as large as ever, and may have gaps. Topics
with the same members and as many partitions go together then, too: a number is near only if it is in all of them. A
member without a rack takes anything.

Source: RangeAssignor.java, AbstractPartitionAssignor.java; KIP-881.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

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
        subscribers: dict[str, list[Member]] = {}
        for member in sorted(members, key=by_instance):
            for name in member.topics & partitions.keys():
                subscribers.setdefault(name, []).append(member)
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
        given: what each of them has, by member id.
    """

    def __init__(
        self, name: str, count: int, members: list[Member], racks: Mapping[TopicPartition, frozenset[str]]
    ) -> None:
        self.name, self.count, self.members = name, count, members
        self.given: dict[str, list[int]] = {member.member_id: [] for member in members}
        self._left = dict.fromkeys(range(count))
        self._each, self._extra = divmod(count, len(members))
        self._racks = [racks.get((name, partition), frozenset()) for partition in range(count)] if racks else []

    @property
    def has_near_and_far(self) -> bool:
        """Some partitions are nearer to some members than others."""
        anywhere = frozenset().union(*self._racks)
        return any(member.rack in anywhere for member in self.members) and any(each != anywhere for each in self._racks)

    def near(self, member: Member, partition: int) -> bool:
        return member.rack is None or member.rack in self._racks[partition]

    def room(self, member: Member) -> int:
        """How many more it may have."""
        return max(0, self._each + (self._extra > 0) - len(self.given[member.member_id]))

    def give(self, member: Member, partitions: Sequence[int]) -> None:
        mine = self.given[member.member_id]
        mine += partitions
        for partition in partitions:
            del self._left[partition]
        if partitions and len(mine) > self._each:
            self._extra -= 1  # and it has no more room

    def give_near(self) -> None:
        for member in self.members:
            near = (partition for partition in self._left if self.near(member, partition))
            self.give(member, list(islice(near, self.room(member))))

    def give_rest(self) -> None:
        left = iter(list(self._left))
        for member in self.members:
            self.give(member, list(islice(left, self.room(member))))


def _give_near(topics: Sequence[_Topic]) -> None:
    """Give every member what is near to it, as far as it has room."""
    groups: dict[tuple[int, tuple[str, ...]], list[_Topic]] = {}
    for topic in topics:
        groups.setdefault((topic.count, tuple(topic.given)), []).append(topic)
    for together in groups.values():
        if len(together) > 1:
            _give_together(together)
        elif together[0].has_near_and_far:
            together[0].give_near()


def _give_together(topics: Sequence[_Topic]) -> None:
    """The same for topics that are divided alike: each number to the first member that has it near in all of them."""
    members = list(topics[0].members)
    for partition in range(topics[0].count):
        for member in members:
            if all(topic.near(member, partition) and topic.room(member) for topic in topics):
                for topic in topics:
                    topic.give(member, [partition])
                if not any(topic.room(member) for topic in topics):
                    members.remove(member)
                break
