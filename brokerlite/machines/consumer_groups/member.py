"""One member of a consumer group: its subscription, its epoch, and its partitions.

A member never changes: a request replaces it by another one, which the group takes over once it is stored.

Source: ConsumerGroupMember.java, MemberProgress.java.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.groups.group import Protocol, size_of, size_of_names

if TYPE_CHECKING:
    from uuid import UUID

Partitions = Mapping["UUID", frozenset[int]]
"""Topic id -> partitions."""
Owned = Mapping["UUID", Mapping[int, int]]
"""Topic id -> partition -> the epoch in which the member got it. Commits with an older epoch are refused."""

LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that has left, and may come back until its session times out."""


class MemberProgress(enum.IntEnum):
    """How far a member is on its way to the target assignment; the values are as in the stored records."""

    STABLE = 0
    UNREVOKED = 1
    """The member must give up partitions first."""
    UNRELEASED = 2
    """The member waits for partitions that other members must give up."""
    UNKNOWN = 127
    """A state that a newer broker has stored."""


@dataclass(frozen=True, slots=True)
class ClassicPart:
    """The settings of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member of a consumer group.

    Attributes:
        topics: the names that it subscribes to; the topics need not exist.
        pattern: the regular expression that it subscribes to, or ``""``.
        assignor: ``None``: the broker's choice.
        classic: ``None`` unless the member uses the classic protocol.
        previous_epoch: also accepted, because the answer with the newer one may have been lost.
        assigned: the partitions that it may have.
        revoking: the partitions that it must give up before it gets others.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    assignor: str | None = None
    classic: ClassicPart | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberProgress = MemberProgress.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)

    @property
    def described(self) -> tuple[object, ...]:
        """Everything that the member has told about itself."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topics,
            self.pattern,
            self.assignor,
            self.classic,
        )

    @property
    def progress(self) -> tuple[object, ...]:
        """Everything that the coordinator has decided about the member."""
        return self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking

    @property
    def size(self) -> int:
        """Bytes of memory that the member's own data takes at most, about."""
        names = size_of_names(
            self.member_id,
            self.client_id,
            self.instance_id,
            self.rack_id,
            self.pattern,
            self.assignor,
            *self.topics,
        )
        return names + (size_of(self.classic.protocols) if self.classic else 0)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target assignment of ``epoch``."""
        return self.state is MemberProgress.STABLE and self.epoch == epoch

    def places(self) -> "Iterator[tuple[UUID, int]]":
        """Iterate over the partitions that no other member may have."""
        for owned in (self.assigned, self.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    yield topic_id, partition

    def epoch_of(self, topic_id: "UUID", partition: int) -> int | None:
        """Return the epoch in which the member got a partition; ``None`` if it does not have it."""
        for owned in (self.assigned, self.revoking):
            if (epoch := owned.get(topic_id, {}).get(partition)) is not None:
                return epoch
        return None


def without_epochs(owned: Owned) -> dict["UUID", frozenset[int]]:
    """Return the partitions alone."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def is_within(partitions: Partitions | None, owned: Owned) -> bool:
    """Whether a member names its partitions, and owns all of them."""
    if partitions is None:
        return False
    return all(index in owned.get(topic_id, {}) for topic_id, indexes in partitions.items() for index in indexes)


def grouped(places: "Iterable[tuple[UUID, Iterable[int]]]") -> "dict[UUID, frozenset[int]]":
    """Merge the partitions of a request by topic."""
    merged: dict[UUID, set[int]] = {}
    for topic_id, indexes in places:
        merged.setdefault(topic_id, set()).update(indexes)
    return {topic_id: frozenset(indexes) for topic_id, indexes in merged.items()}
