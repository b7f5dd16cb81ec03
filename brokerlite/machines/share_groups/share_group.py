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

from ottla.brokerlite.machines.consumer_groups.epoch_group import EpochGroup, GroupChange
from ottla.brokerlite.machines.consumer_groups.member import Partitions
from ottla.brokerlite.machines.groups.group import size_of_names
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey
from ottla.errors import FencedMemberEpoch, GroupIdNotFound

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


class ShareChange(GroupChange["ShareGroup", AssignedShareMember]):
    """A change of a share group.

    Attributes:
        initialized: the topics whose share partitions have a state, as they will be.
    """

    def __init__(self, group: "ShareGroup") -> None:
        super().__init__(group)
        self.initialized: dict[UUID, InitializedTopic] = dict(group.initialized)

    def initialize(self, topics: "Mapping[UUID, InitializedTopic]") -> None:
        """Notice that all share partitions of these topics have a state."""
        self.initialized.update(topics)

    def forget_topics(self, topic_ids: "Iterable[UUID]") -> None:
        """Notice that the share partitions of these topics have no state any more."""
        for topic_id in topic_ids:
            self.initialized.pop(topic_id, None)

    def subscribed(self) -> frozenset[str]:
        """Return the names of all topics to which members subscribe."""
        return frozenset(name for member in self.all_members().values() for name in member.topics)

    def restore_member(self, member_id: str, **values: object) -> None:
        """Take over a part of a member: fields of `AssignedShareMember`."""
        member = self.members.get(member_id) or AssignedShareMember(member_id=member_id)
        self.members[member_id] = replace(member, **values)  # type: ignore[arg-type] # fields of a stored record


class ShareGroup(EpochGroup[ShareChange, AssignedShareMember]):
    """A share group.

    Attributes:
        initialized: topic id -> the topic, if its share partitions have a state.
    """

    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, creator: str | None = None) -> None:
        super().__init__(group_id, creator, epoch=0)
        self.initialized: dict[UUID, InitializedTopic] = {}

    def apply(self, change: ShareChange) -> None:
        super().apply(change)
        self.initialized = change.initialized

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

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
