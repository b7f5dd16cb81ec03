"""``range``: of each topic a run of consecutive partitions, the first members one more where it does not divide.

Members that want the same topics get the same numbers of each, so that what is partitioned alike is read by one member.
With many topics the first members get more than their share.

Racks (KIP-881) are not looked at: with members that name one, the same counts go to the same members as in Kafka, but
the partitions may be others.

Source: RangeAssignor.java.
"""

from collections.abc import Mapping, Sequence

from ottla.sdk.assignors.member import Member, by_instance
from ottla.sdk.machines.cluster import TopicPartition


class RangeAssignor:
    """Of each topic a run of consecutive partitions, so that equal numbers of several topics stay together."""

    name = "range"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(
        self, partitions: Mapping[str, int], members: Sequence[Member]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        subscribers: dict[str, list[str]] = {}
        for member in sorted(members, key=by_instance):
            for topic in member.topics:
                subscribers.setdefault(topic, []).append(member.member_id)
        for topic in sorted(subscribers.keys() & partitions.keys()):
            each, extra = divmod(partitions[topic], len(subscribers[topic]))
            start = 0
            for index, member_id in enumerate(subscribers[topic] if each else subscribers[topic][:extra]):
                end = start + each + (index < extra)
                assigned[member_id] += [(topic, partition) for partition in range(start, end)]
                start = end
        return assigned
