"""The interface between committed offsets and a group; each kind of group has a class that implements it.

Source: Group.java (validateOffsetCommit, validateOffsetDelete, isSubscribedToTopic, offsetExpirationCondition).
"""

from typing import NamedTuple, Protocol


class Committer(NamedTuple):
    """The client that commits, as the request says.

    Attributes:
        generation: -1 if the client is not a member.
        transactional: the offsets are part of a transaction (TxnOffsetCommit).
    """

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    transactional: bool = False


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

    def check_commit(self, committer: Committer) -> None:
        """Check that the client may commit offsets.

        Raises:
            IllegalGeneration, UnknownMemberId, FencedInstanceId, RebalanceInProgress.
        """

    def check_offset_delete(self) -> None:
        """Check that single offsets may be deleted; raises `NonEmptyGroup` if not."""

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, as far as the broker knows."""

    def retention_begins(self, commit_timestamp: int) -> int | None:
        """Return when the retention of an offset begins, in milliseconds since 1970; ``None``: not yet."""
