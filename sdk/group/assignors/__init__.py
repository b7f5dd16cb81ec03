"""Assignors divide a group's partitions between its members. They are pure functions of the members' subscriptions.

The leader of a classic group runs an assignor that all members support, whatever language they are written in. So
names and user data are Kafka's. `range` and `roundrobin` give exactly Kafka's results; the sticky assignors give the
same guarantees.

To write your own assignor, implement the methods of `Assignor`; no base class is needed:

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
"""Kafka's assignors, by the names in JoinGroup."""

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
