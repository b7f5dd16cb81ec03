"""Assignors: which member of a group reads which partitions. Pure functions of the members' subscriptions.

The leader of a classic group runs the assignor that all its members know, whatever language they are written in, so
names, user data and results are Kafka's: `range` and `roundrobin` to the partition, the sticky ones in their promises.

An assignor of your own is any object with what `Assignor` asks for; no base class is needed:

    class FirstTakesAll:
        name = "first-takes-all"
        cooperative = False

        def user_data(self, owned, generation):
            return None

        def assign(self, partitions, members):
            taken = {member.member_id: [] for member in members}
            first = min(members, key=by_instance)
            taken[first.member_id] = [(t, p) for t in sorted(first.topics) for p in range(partitions.get(t, 0))]
            return taken
"""

from ottla.sdk.group.assignors.member import (
    Assignor,
    Member,
    Partitions,
    build_assigned,
    build_subscription,
    by_id,
    by_instance,
    parse_assigned,
    parse_member,
)
from ottla.sdk.group.assignors.range import RangeAssignor
from ottla.sdk.group.assignors.round_robin import RoundRobinAssignor
from ottla.sdk.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

ASSIGNORS: dict[str, Assignor] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""Kafka's own, by the names that members announce."""

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "Member",
    "Partitions",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "build_assigned",
    "build_subscription",
    "by_id",
    "by_instance",
    "parse_assigned",
    "parse_member",
]
