"""A change of a consumer group by one request. The group takes it over once it is stored, or not at all.

Rule: a change is read like the group: it has the group's state where it changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.brokerlite.machines.consumer_groups.member import AssignedMember, Partitions
from ottla.brokerlite.machines.consumer_groups.subscriptions import ResolvedPattern
from ottla.brokerlite.machines.groups.group import Group
from ottla.brokerlite.machines.topics.keyed_log import Pair

if TYPE_CHECKING:
    from ottla.brokerlite.machines.consumer_groups.consumer_group import ConsumerGroup


class Change:
    """A change of a group.

    Attributes:
        group: the group as it is.
        members, target, patterns: the new values; ``None``: removed.
        replaces: the classic group that becomes this group, if any.
        before: records that store the group as it is, if it is not stored yet.
    """

    def __init__(self, group: "ConsumerGroup", replaces: Group | None = None, before: Sequence[Pair] = ()) -> None:
        self.group = group
        self.replaces = replaces
        self.before = before
        self.members: dict[str, AssignedMember | None] = {}
        self.target: dict[str, Partitions | None] = {}
        self.patterns: dict[str, ResolvedPattern | None] = {}
        self.epoch = group.epoch
        self.topics_hash = group.topics_hash
        self.target_epoch = group.target_epoch
        self.target_timestamp = group.target_timestamp
        self.topics_version = group.topics_version

    def put(self, member: AssignedMember) -> None:
        """Add a member, or replace it."""
        known = self.members if member.member_id in self.members else self.group.members
        if member != known.get(member.member_id):
            self.members[member.member_id] = member

    def remove(self, member: AssignedMember) -> None:
        """Remove a member and its target assignment."""
        self.members[member.member_id] = None
        self.target[member.member_id] = None

    def raise_epoch(self, topics_hash: int) -> None:
        """Begin the next epoch of the group, for topics with this hash."""
        self.epoch += 1
        self.topics_hash = topics_hash

    def mark_refreshed(self, topics_version: int) -> None:
        """Notice that the subscribed topics are known as of this `Topics.version`."""
        self.topics_version = topics_version

    def set_target(self, target: Mapping[str, Partitions], timestamp: int) -> None:
        """Set the target assignment of all members; it belongs to the current epoch."""
        self.target_epoch, self.target_timestamp = self.epoch, timestamp
        for member_id, partitions in target.items():
            if self.target_of(member_id) != partitions:
                self.target[member_id] = partitions

    # -- for a group that is loaded, piece by piece

    def restore_epoch(self, epoch: int, topics_hash: int) -> None:
        """Take over the stored epoch of the group."""
        self.epoch, self.topics_hash = epoch, topics_hash

    def restore_target_epoch(self, epoch: int, timestamp: int) -> None:
        """Take over the stored epoch of the target assignment."""
        self.target_epoch, self.target_timestamp = epoch, timestamp

    def describe(self, described: AssignedMember) -> None:
        """Take over the description of a member, and keep its progress, which may have been loaded before."""
        if (known := self.members.get(described.member_id)) is not None:
            described = replace(
                described,
                epoch=known.epoch,
                previous_epoch=known.previous_epoch,
                state=known.state,
                assigned=known.assigned,
                revoking=known.revoking,
            )
        self.put(described)

    def advance(self, member_id: str, **progress: Any) -> None:
        """Take over the progress of a member: fields of `AssignedMember`."""
        self.put(replace(self.members.get(member_id) or AssignedMember(member_id=member_id), **progress))

    # -- the group after the change

    def all_members(self) -> dict[str, AssignedMember]:
        """Return all members, as they will be."""
        if not self.members:
            return self.group.members
        merged: dict[str, AssignedMember | None] = {**self.group.members, **self.members}
        return {member_id: member for member_id, member in merged.items() if member is not None}

    def target_of(self, member_id: str) -> Partitions | None:
        """Return the target assignment of a member, as it will be; ``None``: it has none yet."""
        if member_id in self.target:
            return self.target[member_id]
        return self.group.target.get(member_id)

    def all_patterns(self) -> dict[str, ResolvedPattern]:
        """Return all patterns, as they will be."""
        if not self.patterns:
            return self.group.patterns
        merged: dict[str, ResolvedPattern | None] = {**self.group.patterns, **self.patterns}
        return {pattern: resolved for pattern, resolved in merged.items() if resolved is not None}
