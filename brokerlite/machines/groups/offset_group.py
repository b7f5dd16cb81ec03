"""The interface between committed offsets and a group; each kind of group has a class that implements it.

Source: Group.java (validateOffsetCommit, validateOffsetDelete, isSubscribedToTopic, offsetExpirationCondition).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from uuid import UUID


class Committer(NamedTuple):
    """The client that commits, as the request says.

    Attributes:
        generation: -1 if the client is not a member.
        transactional: the offsets are part of a transaction (TxnOffsetCommit).
        knows_epochs: the version of the request has member epochs (OffsetCommit v9+).
        creator: the principal for which a new group counts; see `GroupRoom`.
    """

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    transactional: bool = False
    knows_epochs: bool = True
    creator: str | None = None


class OffsetGroup(Protocol):
    """A group of any kind, as committed offsets need it."""

    @property
    def group_id(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members and no pending ids."""

    def check_commit(self, committer: Committer, places: "Iterable[tuple[UUID, int]]") -> None:
        """Check that the client may commit offsets.

        Args:
            places: the topics, by id, and partitions for which it commits.

        Raises:
            IllegalGeneration, UnknownMemberId, FencedInstanceId, RebalanceInProgress, StaleMemberEpoch,
            UnsupportedVersion.
        """

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that the client may fetch offsets.

        Args:
            member_id: ``None``, with epoch -1: the client is not a member.

        Raises:
            UnknownMemberId, StaleMemberEpoch, IllegalGeneration.
        """

    def check_offset_delete(self) -> None:
        """Check that single offsets may be deleted; raises `NonEmptyGroup` if not."""

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, as far as the broker knows."""

    def retention_begins(self, commit_timestamp: int) -> int | None:
        """Return when the retention of an offset begins, in milliseconds since 1970; ``None``: not yet."""
