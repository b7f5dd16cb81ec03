"""``roundrobin``: deals the partitions of all topics to the members in turn, skipping members without the topic.

If all members have the same topics, their counts differ by one at most. Otherwise the counts may differ widely.

Source: RoundRobinAssignor.java.
"""

from collections.abc import Mapping, Sequence

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors.member import Member, by_instance


class RoundRobinAssignor:
    """Deals the partitions of all topics to the members in turn."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        in_turn = sorted(members, key=by_instance)
        wanted = frozenset().union(*(member.topics for member in members))
        turn = 0
        for topic in sorted(wanted & partitions.keys()):
            for partition in range(partitions[topic]):
                while topic not in in_turn[turn].topics:
                    turn = (turn + 1) % len(in_turn)
                assigned[in_turn[turn].member_id].append((topic, partition))
                turn = (turn + 1) % len(in_turn)
        return assigned
