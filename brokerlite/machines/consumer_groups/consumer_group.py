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

from ottla.brokerlite.machines.consumer_groups.epoch_group import EpochGroup, GroupChange
from ottla.brokerlite.machines.consumer_groups.member import AssignedMember
from ottla.brokerlite.machines.consumer_groups.subscriptions import ResolvedPattern
from ottla.brokerlite.machines.groups.group import CONSUMER, Group
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.topics.keyed_log import Pair
from ottla.errors import IllegalGeneration, StaleMemberEpoch, UnsupportedVersion

if TYPE_CHECKING:
    from uuid import UUID

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
STATES = (EMPTY, ASSIGNING, RECONCILING, STABLE)
"""The states of a group, as Kafka names them."""


class Change(GroupChange["ConsumerGroup", AssignedMember]):
    """A change of a consumer group.

    Attributes:
        patterns: the new values; ``None``: removed.
        replaces: the classic group that becomes this group, if any.
        before: records that store the group as it is, if it is not stored yet.
    """

    def __init__(self, group: "ConsumerGroup", replaces: Group | None = None, before: Sequence[Pair] = ()) -> None:
        super().__init__(group)
        self.replaces = replaces
        self.before = before
        self.patterns: dict[str, ResolvedPattern | None] = {}

    # -- for a group that is loaded, piece by piece

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

    def all_patterns(self) -> dict[str, ResolvedPattern]:
        """Return all patterns, as they will be."""
        if not self.patterns:
            return self.group.patterns
        merged: dict[str, ResolvedPattern | None] = {**self.group.patterns, **self.patterns}
        return {pattern: resolved for pattern, resolved in merged.items() if resolved is not None}


class ConsumerGroup(EpochGroup[Change, AssignedMember]):
    """A consumer group.

    Attributes:
        patterns: pattern -> the topics that it matched; right as of `topics_version`.
    """

    kind = "consumer"
    protocol_type = CONSUMER

    def __init__(self, group_id: str, creator: str | None = None) -> None:
        super().__init__(group_id, creator, epoch=1)
        self.patterns: dict[str, ResolvedPattern] = {}
        self._static: dict[str, str] = {}
        """Instance id -> member id."""
        self._owners: dict[tuple[UUID, int], str] = {}
        self._topics: frozenset[str] | None = None

    def apply(self, change: Change) -> None:
        super().apply(change)
        for pattern, resolved in change.patterns.items():
            if resolved is None:
                self.patterns.pop(pattern, None)
            else:
                self.patterns[pattern] = resolved
        self._topics = None

    def _forget(self, member: AssignedMember) -> None:
        super()._forget(member)
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        for place in member.places():
            self._owners.pop(place, None)

    def _remember(self, member: AssignedMember) -> None:
        super()._remember(member)
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
