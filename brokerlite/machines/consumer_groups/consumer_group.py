"""One consumer group: its members, its epochs, and the target assignment.

Rules:
- The group's epoch rises with each change of members, subscriptions and subscribed topics. The target assignment is
  computed for an epoch, and members follow one by one.
- A partition has one member at a time, also while it is being revoked.
- A group changes only by `apply`, once the change is stored.

Source: ConsumerGroup.java, ModernGroup.java.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.brokerlite.machines.consumer_groups.member import AssignedMember, Partitions
from ottla.brokerlite.machines.consumer_groups.subscriptions import ResolvedPattern
from ottla.brokerlite.machines.groups.group import CONSUMER, Group
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.topics.keyed_log import Pair
from ottla.errors import IllegalGeneration, StaleMemberEpoch, UnknownMemberId, UnsupportedVersion

if TYPE_CHECKING:
    from uuid import UUID

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
STATES = (EMPTY, ASSIGNING, RECONCILING, STABLE)
"""The states of a group, as Kafka names them."""


class Change:
    """A change of a group by one request. The group takes it over once it is stored, or not at all.

    Rule: a change is read like the group: it has the group's state where it changes nothing.

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


class ConsumerGroup:
    """A consumer group.

    Attributes:
        epoch: the group's epoch.
        target_epoch: the epoch for which the target assignment was computed.
        target_timestamp: when it was computed, in milliseconds since 1970; 0: never.
        topics_hash: the subscribed topics as they were when the epoch last rose.
        target: member id -> the partitions that the member will have.
        patterns: pattern -> the topics that it matched.
        topics_version: the `Topics.version` for which `topics_hash` and `patterns` are right; -1: none.
        size: bytes of memory that the members' own data takes at most, about.
        creator: the principal for which it counts; ``None``: it counts for nobody.
    """

    kind = "consumer"
    protocol_type = CONSUMER

    def __init__(self, group_id: str, creator: str | None = None) -> None:
        self.group_id, self.creator = group_id, creator
        self.epoch = 1
        self.target_epoch = 0
        self.target_timestamp = 0
        self.topics_hash = 0
        self.members: dict[str, AssignedMember] = {}
        self.target: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.topics_version = -1
        self.size = 0
        self._static: dict[str, str] = {}
        """Instance id -> member id."""
        self._owners: dict[tuple[UUID, int], str] = {}
        self._topics: frozenset[str] | None = None

    def apply(self, change: Change) -> None:
        """Take over a change that is stored."""
        self.epoch, self.topics_hash = change.epoch, change.topics_hash
        self.target_epoch, self.target_timestamp = change.target_epoch, change.target_timestamp
        for member_id in change.members:
            self._forget(self.members.pop(member_id, None))
        for member in change.members.values():
            if member is not None:
                self._remember(member)
        for member_id, target in change.target.items():
            if target is None:
                self.target.pop(member_id, None)
            else:
                self.target[member_id] = target
        for pattern, resolved in change.patterns.items():
            if resolved is None:
                self.patterns.pop(pattern, None)
            else:
                self.patterns[pattern] = resolved
        self.topics_version = change.topics_version
        self._topics = None

    def _forget(self, member: AssignedMember | None) -> None:
        if member is None:
            return
        self.size -= member.size
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        for place in member.places():
            self._owners.pop(place, None)

    def _remember(self, member: AssignedMember) -> None:
        self.members[member.member_id] = member
        self.size += member.size
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._owners.update(dict.fromkeys(member.places(), member.member_id))

    def refresh(self) -> None:
        """Notice that topics have changed."""
        self.topics_version = -1

    # -- state and members

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return STABLE
        return RECONCILING

    def member(self, member_id: str) -> AssignedMember:
        """Return a member.

        Raises:
            UnknownMemberId: the group has no such member.
        """
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> AssignedMember | None:
        """Return the member with this instance id, if any."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_owned(self, topic_id: "UUID", partition: int) -> bool:
        """Whether a member has the partition, or has not given it up yet."""
        return (topic_id, partition) in self._owners

    @property
    def topics(self) -> frozenset[str]:
        """The names of all topics to which members subscribe."""
        if self._topics is None:
            self._topics = subscribed(self.members.values(), self.patterns)
        return self._topics

    def assignor(self, default: str) -> str:
        """Return the assignor that most members want."""
        return preferred(self.members.values(), default)

    def waits_for_others(self, member: AssignedMember) -> bool:
        """Whether other members still have partitions of the member's target."""
        return any(
            index not in member.assigned.get(topic_id, {}) and self.is_owned(topic_id, index)
            for topic_id, indexes in self.target.get(member.member_id, {}).items()
            for index in indexes
        )

    # -- for committed offsets: `OffsetGroup`

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_unused(self) -> bool:
        return not self.members

    def check_commit(self, committer: Committer, places: "Iterable[tuple[UUID, int]]") -> None:
        if committer.generation < 0 and self.is_empty:
            return
        anonymous = committer.generation == -1 and not committer.member_id and committer.instance_id is None
        if committer.transactional and anonymous:
            return
        member = self.member(committer.member_id)
        if not committer.transactional and member.classic is None and not committer.knows_epochs:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if committer.generation == member.epoch:
            return
        if committer.generation > member.epoch or any(
            (since := member.epoch_of(*place)) is None or committer.generation < since for place in places
        ):
            raise self._stale(member, committer.generation)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, epoch)

    def _stale(self, member: AssignedMember, epoch: int) -> IllegalGeneration | StaleMemberEpoch:
        kind = StaleMemberEpoch if member.classic is None else IllegalGeneration
        return kind(
            f"member {member.member_id} of group {self.group_id} is in epoch {member.epoch}, and names epoch {epoch}"
        )

    def check_offset_delete(self) -> None:
        pass

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topics

    def retention_begins(self, commit_timestamp: int) -> int | None:
        return commit_timestamp


def subscribed(members: Iterable[AssignedMember], patterns: Mapping[str, ResolvedPattern]) -> frozenset[str]:
    """Return the names of all topics to which the members subscribe."""
    names: set[str] = set()
    for member in members:
        names |= topics_of(member, patterns)
    return frozenset(names)


def topics_of(member: AssignedMember, patterns: Mapping[str, ResolvedPattern]) -> frozenset[str]:
    """Return the names of the topics to which a member subscribes, by name and by pattern."""
    resolved = patterns.get(member.pattern) if member.pattern else None
    return member.topics if resolved is None else member.topics | resolved.topics


def preferred(members: Iterable[AssignedMember], default: str) -> str:
    """Return the assignor that most members want, or ``default`` if none wants any or it is one of several."""
    wanted = Counter(member.assignor for member in members if member.assignor is not None)
    # In Apache Kafka the hash tables of Java decide between several, differently from broker to broker.
    return min(wanted, key=lambda name: (-wanted[name], name != default, name)) if wanted else default
