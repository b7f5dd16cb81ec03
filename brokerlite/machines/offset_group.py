"""What committed offsets ask of a group: another kind of groups is another class that answers it.

Source: Group.java (validateOffsetCommit, validateOffsetDelete, isSubscribedToTopic, offsetExpirationCondition).
"""

from typing import NamedTuple, Protocol


class Committer(NamedTuple):
    """Who commits, as the request says.

    Attributes:
        generation: -1: no member.
        transactional: the offsets are part of a transaction (TxnOffsetCommit).
    """

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    transactional: bool = False


class OffsetGroup(Protocol):
    """What a group of any kind is asked."""

    @property
    def group_id(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    @property
    def is_unused(self) -> bool:
        """It has no members, and expects none."""

    def check_commit(self, committer: Committer) -> None:
        """Whether offsets may be committed.

        Raises:
            IllegalGeneration, UnknownMemberId, FencedInstanceId, RebalanceInProgress.
        """

    def check_offset_delete(self) -> None:
        """Whether single offsets may be deleted; raises `NonEmptyGroup`."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member wants the topic, as far as the broker knows."""

    def retention_begins(self, commit_timestamp: int) -> int | None:
        """From when (milliseconds since 1970) the retention of an offset counts; ``None``: not yet."""
