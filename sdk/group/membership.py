"""The interface between a consumer and the member of its group, independent of the group protocol.

Rules:
- The user is notified of each `AssignmentChange`: `Revoke`, `Lose` or `Receive`. After a `Revoke`, the membership waits
  until the user is `done` with it; the other changes are only reported.
- `ClassicMember` (JoinGroup, SyncGroup, Heartbeat) and `ConsumerGroupMember` (KIP-848) implement it, and
  `ChoosingMember`, which delegates to one of the two.

Source: ConsumerRebalanceListener.java, AbstractMembershipManager.java.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from ottla.errors import OttlaError
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.outcome import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Revoke:
    """These partitions have to be given up in an orderly way: finish, commit, then call `done`.

    Attributes:
        until: in an eager rebalance, and with the new protocol, the coordinator removes a member that has not given up
            its partitions by then. After a cooperative assignment it sets no limit, but the next owners wait.
    """

    places: tuple[TopicPartition, ...]
    until: float

    def commit_timeout(self, now: float) -> float:
        """Seconds that a wait for commits may take, if it begins now; inf after `until`: haste is of no use then.

        Half of the time that is left. The rest is for a listener or a loop that works on after its wait was cancelled,
        and for JoinGroup; and a classic coordinator counts from the first JoinGroup of the rebalance, of which this
        member learns up to a heartbeat interval later. (Java takes the whole rebalance timeout.)
        """
        return (self.until - now) / 2 if now < self.until else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Lose:
    """These partitions are lost; another member may have them already."""

    places: tuple[TopicPartition, ...]
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Receive:
    """These partitions are assigned."""

    places: tuple[TopicPartition, ...]


AssignmentChange = Revoke | Lose | Receive


class Membership(Protocol):
    """A consumer's membership in its group."""

    @property
    def identity(self) -> CommittingMember | None:
        """The member that commits now.

        ``None`` without a generation and, in a classic group, from the JoinGroup response to the SyncGroup response.
        """
        ...

    @property
    def member_id(self) -> str: ...

    @property
    def generation(self) -> int:
        """The generation, or the member epoch (KIP-848); -1: none."""
        ...

    @property
    def owned(self) -> tuple[TopicPartition, ...]: ...

    @property
    def changes(self) -> deque[AssignmentChange]:
        """The changes of which the user has to be notified, in order."""
        ...

    @property
    def failed(self) -> OttlaError | None:
        """The error that has ended the membership for good."""
        ...

    def subscribe(self, topics: Sequence[str], now: float) -> None:
        """Subscribe to these topics."""
        ...

    def join(self, now: float) -> None:
        """Join the group, unless this client is a member or is joining already."""
        ...

    def done(self, change: AssignmentChange, now: float) -> None:
        """Take note that the user has finished a change; a change that a loss has overtaken is ignored."""
        ...

    def refused(self, error: OttlaError, identity: CommittingMember, now: float) -> bool:
        """Handle a commit's error that concerns the member; return whether to retry the commit."""
        ...

    def leave(self, why: str, now: float) -> None:
        """Leave the group until `join`; all owned partitions are lost."""
        ...

    def close(self, why: str, now: float, until: float | None = None) -> Outcome[None]:
        """Leave the group for good. Settled when the coordinator has answered, or at the deadline ``until``.

        An earlier goodbye may still be under way. The outcome waits for that, too; it has a deadline of its own.
        """
        ...

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about problems."""
        ...
