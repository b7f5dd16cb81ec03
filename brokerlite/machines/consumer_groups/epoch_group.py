"""A group with epochs, and a change of it: the common part of consumer groups and share groups.

Rules:
- The group's epoch rises with each change of members, subscriptions and subscribed topics. The target assignment is
  computed for an epoch.
- A group changes only by `EpochGroup.apply`, once the change is stored.
- A change is read like the group: it has the group's state where it changes nothing.

Source: ModernGroup.java.
"""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from ottla.brokerlite.machines.consumer_groups.member import Partitions
from ottla.errors import UnknownMemberId


class AnyMember(Protocol):
    """A member, which never changes: a request replaces it by another one."""

    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of memory that the member's own data takes at most, about."""


M = TypeVar("M", bound=AnyMember)
G = TypeVar("G", bound="EpochGroup[Any, Any]")
C = TypeVar("C", bound="GroupChange[Any, Any]")


class GroupChange(Generic[G, M]):
    """A change of a group by one request. The group takes it over once it is stored, or not at all.

    Attributes:
        group: the group as it is.
        members, target: the new values; ``None``: removed.
    """

    def __init__(self, group: G) -> None:
        self.group = group
        self.members: dict[str, M | None] = {}
        self.target: dict[str, Partitions | None] = {}
        self.epoch: int = group.epoch
        self.topics_hash: int = group.topics_hash
        self.target_epoch: int = group.target_epoch
        self.target_timestamp: int = group.target_timestamp
        self.topics_version: int = group.topics_version

    def put(self, member: M) -> None:
        """Add a member, or replace it."""
        known = self.members if member.member_id in self.members else self.group.members
        if member != known.get(member.member_id):
            self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Remove a member and its target assignment."""
        self.members[member_id] = None
        self.target[member_id] = None

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

    # -- the group after the change

    def all_members(self) -> dict[str, M]:
        """Return all members, as they will be."""
        known: dict[str, M] = self.group.members
        if not self.members:
            return known
        merged: dict[str, M | None] = {**known, **self.members}
        return {member_id: member for member_id, member in merged.items() if member is not None}

    def target_of(self, member_id: str) -> Partitions | None:
        """Return the target assignment of a member, as it will be; ``None``: it has none yet."""
        if member_id in self.target:
            return self.target[member_id]
        known: Partitions | None = self.group.target.get(member_id)
        return known


class EpochGroup(Generic[C, M]):
    """A group with epochs.

    Attributes:
        creator: the principal for which it counts; ``None``: it counts for nobody.
        epoch: the group's epoch.
        target_epoch: the epoch for which the target assignment was computed.
        target_timestamp: when it was computed, in milliseconds since 1970; 0: never.
        topics_hash: the subscribed topics as they were when the epoch last rose.
        target: member id -> the partitions that the member will have.
        topics_version: the `Topics.version` for which `topics_hash` is right; -1: none.
        size: bytes of memory that the members' own data takes at most, about.
    """

    def __init__(self, group_id: str, creator: str | None, epoch: int) -> None:
        self.group_id, self.creator = group_id, creator
        self.epoch = epoch
        self.target_epoch = 0
        self.target_timestamp = 0
        self.topics_hash = 0
        self.members: dict[str, M] = {}
        self.target: dict[str, Partitions] = {}
        self.topics_version = -1
        self.size = 0

    def apply(self, change: C) -> None:
        """Take over a change that is stored."""
        self.epoch, self.topics_hash = change.epoch, change.topics_hash
        self.target_epoch, self.target_timestamp = change.target_epoch, change.target_timestamp
        for member_id in change.members:
            if (known := self.members.pop(member_id, None)) is not None:
                self._forget(known)
        for member in change.members.values():
            if member is not None:
                self._remember(member)
        for member_id, target in change.target.items():
            if target is None:
                self.target.pop(member_id, None)
            else:
                self.target[member_id] = target
        self.topics_version = change.topics_version

    def _forget(self, member: M) -> None:
        """Notice that a member was taken out of `members`."""
        self.size -= member.size

    def _remember(self, member: M) -> None:
        """Add a member."""
        self.members[member.member_id] = member
        self.size += member.size

    def member(self, member_id: str) -> M:
        """Return a member.

        Raises:
            UnknownMemberId: the group has no such member.
        """
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member
