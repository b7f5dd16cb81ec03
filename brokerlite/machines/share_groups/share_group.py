"""One share group: its members, its epochs, its target assignment, and the partitions whose state is initialized.

Rules:
- A partition may be assigned to several members. So a member gets its new assignment at once: no other must give up
  anything first.
- The group's epoch rises with each change of members, subscriptions and subscribed topics.
- A group changes only by `apply`, once the change is stored.
- A share group has no committed offsets: it keeps its progress in the state of its partitions.

Source: ShareGroup.java, ShareGroupMember.java, ShareGroupAssignmentBuilder.java.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.brokerlite.machines.consumer_groups.member import Partitions
from ottla.brokerlite.machines.groups.group import size_of_names
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey
from ottla.errors import FencedMemberEpoch, GroupIdNotFound, UnknownMemberId

if TYPE_CHECKING:
    from uuid import UUID

EMPTY, STABLE = "Empty", "Stable"
STATES = (EMPTY, STABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedShareMember:
    """A member of a share group; a request replaces it by another one.

    Attributes:
        topics: the names that it subscribes to; the topics need not exist.
        previous_epoch: also accepted, because the answer with the newer one may have been lost.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)

    @property
    def described(self) -> tuple[object, ...]:
        """Everything that the member has told about itself."""
        return self.rack_id, self.client_id, self.client_host, self.topics

    @property
    def progress(self) -> tuple[object, ...]:
        """Everything that the coordinator has decided about the member."""
        return self.epoch, self.previous_epoch, self.assigned

    @property
    def size(self) -> int:
        """Bytes of memory that the member's own data takes at most, about."""
        return size_of_names(self.member_id, self.client_id, self.rack_id, *self.topics)

    def check_epoch(self, epoch: int) -> None:
        """Check the epoch that a heartbeat of the member names.

        Raises:
            FencedMemberEpoch: it is neither the member's epoch nor the one before.
        """
        if epoch in (self.epoch, self.previous_epoch):
            return
        than = "greater" if epoch > self.epoch else "smaller"
        raise FencedMemberEpoch(
            f"The share group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
            f"({self.epoch}). The member must abandon all its partitions and rejoin."
        )

    def follow(self, epoch: int, target: Partitions, subscribed: "frozenset[UUID]") -> "AssignedShareMember":
        """Return the member with the target assignment of ``epoch``."""
        if self.epoch != epoch:
            return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=dict(target))
        assigned = {topic_id: indexes for topic_id, indexes in self.assigned.items() if topic_id in subscribed}
        return self if assigned == self.assigned else replace(self, assigned=assigned)


class InitializedTopic(NamedTuple):
    """A topic whose share partitions have a state."""

    name: str
    partitions: frozenset[int]


class ShareChange:
    """A change of a group by one request. The group takes it over once it is stored, or not at all.

    Attributes:
        group: the group as it is.
        members, target: the new values; ``None``: removed.
        initialized: the topics whose share partitions have a state, as they will be.
    """

    def __init__(self, group: "ShareGroup") -> None:
        self.group = group
        self.members: dict[str, AssignedShareMember | None] = {}
        self.target: dict[str, Partitions | None] = {}
        self.epoch = group.epoch
        self.topics_hash = group.topics_hash
        self.target_epoch = group.target_epoch
        self.target_timestamp = group.target_timestamp
        self.topics_version = group.topics_version
        self.initialized: dict[UUID, InitializedTopic] = dict(group.initialized)

    def put(self, member: AssignedShareMember) -> None:
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

    def initialize(self, topics: "Mapping[UUID, InitializedTopic]") -> None:
        """Notice that all share partitions of these topics have a state."""
        self.initialized.update(topics)

    def forget_topics(self, topic_ids: "Iterable[UUID]") -> None:
        """Notice that the share partitions of these topics have no state any more."""
        for topic_id in topic_ids:
            self.initialized.pop(topic_id, None)

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

    def restore_member(self, member_id: str, **values: object) -> None:
        """Take over a part of a member: fields of `AssignedShareMember`."""
        member = self.members.get(member_id) or AssignedShareMember(member_id=member_id)
        self.members[member_id] = replace(member, **values)  # type: ignore[arg-type] # fields of a stored record

    # -- the group after the change

    def all_members(self) -> dict[str, AssignedShareMember]:
        """Return all members, as they will be."""
        merged: dict[str, AssignedShareMember | None] = {**self.group.members, **self.members}
        return {member_id: member for member_id, member in merged.items() if member is not None}

    def subscribed(self) -> frozenset[str]:
        """Return the names of all topics to which members subscribe."""
        return frozenset(name for member in self.all_members().values() for name in member.topics)

    def target_of(self, member_id: str) -> Partitions | None:
        """Return the target assignment of a member, as it will be; ``None``: it has none yet."""
        if member_id in self.target:
            return self.target[member_id]
        return self.group.target.get(member_id)


class ShareGroup:
    """A share group.

    Attributes:
        epoch: the group's epoch.
        target_epoch: the epoch for which the target assignment was computed.
        target_timestamp: when it was computed, in milliseconds since 1970; 0: never.
        topics_hash: the subscribed topics as they were when the epoch last rose.
        target: member id -> the partitions that the member will have.
        topics_version: the `Topics.version` for which `topics_hash` is right; -1: none.
        initialized: topic id -> the topic, if its share partitions have a state.
        size: bytes of memory that the members' own data takes at most, about.
        creator: the principal for which it counts; ``None``: it counts for nobody.
    """

    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, creator: str | None = None) -> None:
        self.group_id, self.creator = group_id, creator
        self.epoch = 0
        self.target_epoch = 0
        self.target_timestamp = 0
        self.topics_hash = 0
        self.members: dict[str, AssignedShareMember] = {}
        self.target: dict[str, Partitions] = {}
        self.topics_version = -1
        self.initialized: dict[UUID, InitializedTopic] = {}
        self.size = 0

    def apply(self, change: ShareChange) -> None:
        """Take over a change that is stored."""
        self.epoch, self.topics_hash = change.epoch, change.topics_hash
        self.target_epoch, self.target_timestamp = change.target_epoch, change.target_timestamp
        for member_id, member in change.members.items():
            if (known := self.members.pop(member_id, None)) is not None:
                self.size -= known.size
            if member is not None:
                self.members[member_id] = member
                self.size += member.size
        for member_id, target in change.target.items():
            if target is None:
                self.target.pop(member_id, None)
            else:
                self.target[member_id] = target
        self.topics_version = change.topics_version
        self.initialized = change.initialized

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    def member(self, member_id: str) -> AssignedShareMember:
        """Return a member.

        Raises:
            UnknownMemberId: the group has no such member.
        """
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def share_keys(self, topic_ids: "Iterable[UUID] | None" = None) -> list[ShareKey]:
        """Return the share partitions with a state: of these topics, or all."""
        wanted = self.initialized if topic_ids is None else topic_ids
        return [
            ShareKey(self.group_id, topic_id, partition)
            for topic_id in wanted
            if topic_id in self.initialized
            for partition in sorted(self.initialized[topic_id].partitions)
        ]

    # -- for committed offsets: `OffsetGroup`

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether the group may be removed by itself: never, because it has the state of partitions."""
        return False

    def _refuse_offsets(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.group_id} is not a consumer group.")

    def check_commit(self, committer: Committer, places: "Iterable[tuple[UUID, int]]") -> None:
        raise self._refuse_offsets()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is not None or epoch >= 0:
            raise self._refuse_offsets()

    def check_offset_delete(self) -> None:
        raise self._refuse_offsets()

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def retention_begins(self, commit_timestamp: int) -> int | None:
        return None
