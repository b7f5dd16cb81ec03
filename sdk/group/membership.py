"""What a consumer needs of a member of its group, whatever protocol that speaks.

Rules:
- The user is notified of each `Step`: `Revoke`, `Lose` or `Receive`. The membership goes on when the user is `done`
  with a `Revoke`; the others are news.
- `ClassicMember` (JoinGroup, SyncGroup, Heartbeat) is the one kind that there is; that of KIP-848 is to be another.

Source: ConsumerRebalanceListener.java, AbstractMembershipManager.java.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors import Assignor
from ottla.sdk.group.commits import Identity
from ottla.sdk.outcome import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Revoke:
    """These partitions are to be given up, in order: finish, commit, then say `done`."""

    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lose:
    """These partitions are gone already; somebody else may have them."""

    places: tuple[TopicPartition, ...]
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Receive:
    """These partitions came."""

    places: tuple[TopicPartition, ...]


Step = Revoke | Lose | Receive


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """See `ottla.sdk.client.Client.consumer`; durations in seconds."""

    assignors: tuple[Assignor, ...]
    instance_id: str | None = None
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0


class Membership(Protocol):
    """A consumer's place in its group."""

    @property
    def identity(self) -> Identity | None:
        """The member that commits now; ``None`` while the group is between two generations."""
        ...

    @property
    def member_id(self) -> str: ...

    @property
    def generation(self) -> int:
        """-1: none."""
        ...

    @property
    def owned(self) -> tuple[TopicPartition, ...]: ...

    @property
    def steps(self) -> deque[Step]:
        """What the user is to be notified of, in this order."""
        ...

    @property
    def failed(self) -> OttlaError | None:
        """What has ended the membership for good."""
        ...

    def subscribe(self, topics: Sequence[str], now: float) -> None:
        """Want these topics from now on."""
        ...

    def join(self, now: float) -> None:
        """Become a member, if it is none."""
        ...

    def done(self, step: Step, now: float) -> None:
        """The user has dealt with a step; one that was overtaken by worse news is no matter."""
        ...

    def refused(self, error: OttlaError, identity: Identity, now: float) -> bool:
        """A commit was refused with what concerns the member; whether that is dealt with here."""
        ...

    def leave(self, why: str, now: float) -> None:
        """Leave the group, until `join`; everything owned is lost."""
        ...

    def close(self, why: str, now: float, until: float | None = None) -> Outcome[None]:
        """As `leave`, and never come back. Settled when the coordinator knows, or ``until`` is over."""
        ...

    def explain(self, now: float) -> Iterator[str]:
        """What is not as it should be, in lines for people."""
        ...
