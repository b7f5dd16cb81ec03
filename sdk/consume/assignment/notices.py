"""Calls the user's listener, between two batches, about partitions that are assigned, revoked or lost.

    assigned called ──► assigned returned ──► revoked or lost called
    "known"             "readable"            given up

Rules:
- Every assigned partition is revoked or lost exactly once. Notified means that the listener's method was called: if
  `revoked` or `lost` raises or is cancelled, the user has to finish its work; the method is not called again.
- The listener's methods run one after the other: the normal end of the block waits for a call that another task is
  making, for half of its time at most.
- If `assigned` raised or was cancelled, it is called again before records of its partitions are handed out.
- A `Receive` waits until its positions are known, but at most a second. Later changes do not wait for that, and
  overtake it. If the listener was not notified of a partition's assignment, it is not notified of the end either.
"""

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import AssignmentChange, Lose, Membership, Receive
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Await, Steps


class UserListener(Protocol):
    """The user's listener, see `ottla.sdk.consumer.RebalanceListener`; async, except in the blocking client."""

    @property
    def name(self) -> str:
        """The listener's name in log lines."""
        ...

    def assigned(self, places: Sequence[TopicPartition]) -> Any: ...
    def revoked(self, places: Sequence[TopicPartition]) -> Any: ...
    def lost(self, places: Sequence[TopicPartition]) -> Any: ...


class Notice(NamedTuple):
    """A change of the assignment, and the partitions for which to call the listener."""

    change: AssignmentChange
    places: tuple[TopicPartition, ...]


class Notices:
    """Notifies the listener of one consumer.

    Args:
        ready: returns whether the user may be notified of an assigned partition.
    """

    def __init__(
        self,
        membership: Membership | None,
        commits: Commits | None,
        listener: UserListener | None,
        ready: Callable[[TopicPartition], bool],
    ) -> None:
        self._membership, self._commits, self._listener, self._ready = membership, commits, listener, ready
        self._known: dict[TopicPartition, None] = {}
        self._readable: dict[TopicPartition, None] = {}
        self._going: tuple[TopicPartition, ...] = ()
        """Partitions whose `revoked` or `lost` call is running."""
        self.returned: Outcome[None] = Outcome()
        """Settled when the listener's last call has returned, and before the first."""
        self.returned.succeed(None)

    @property
    def known(self) -> tuple[TopicPartition, ...]:
        """The partitions whose assignment the user knows of, and whose end the user does not."""
        return tuple(self._known)

    @property
    def gone(self) -> bool:
        """Whether the member has lost all `known` partitions, and the user is not notified yet."""
        return self._membership is not None and any(isinstance(change, Lose) for change in self._membership.changes)

    @property
    def readable(self) -> Container[TopicPartition]:
        """The partitions whose batches may be handed out."""
        return self._readable

    def believed(self, place: TopicPartition) -> bool:
        """Whether the user has reason to believe that the partition is assigned to this consumer."""
        return place in self._known or place in self._going

    def next(self) -> Notice | None:
        """The next notice for the user, if one is due."""
        for change in self._membership.changes if self._membership is not None else ():
            if not isinstance(change, Receive):
                return Notice(change, tuple(each for each in change.places if each in self._known))
            new = tuple(each for each in change.places if each not in self._readable and self._owned(each))
            if all(map(self._ready, new)):
                return Notice(change, new)
        return None

    def _owned(self, place: TopicPartition) -> bool:
        return self._commits is not None and self._commits.assignment(place) is not None

    # -- calling the listener ----------------------------------------------------------------------------------------

    def assigned(self, notice: Notice) -> Steps[None]:
        """Call `assigned`; afterwards the partitions are readable, unless they were revoked or lost meanwhile."""
        self._known.update(dict.fromkeys(notice.places))
        if self._listener is not None and notice.places:
            returned = self.returned = Outcome()
            try:
                yield Await(self._listener.assigned, (notice.places,))
            finally:
                returned.succeed(None)
        if self._membership is not None and notice.change in self._membership.changes:
            self._readable.update(dict.fromkeys(notice.places))

    def revoked(self, places: Sequence[TopicPartition], seconds: float | None = None) -> Steps[str]:
        """Call `revoked`; return the method's name if it did not return in time, else an empty string."""
        return (yield from self._gone("revoked", places, seconds))

    def lost(
        self, places: Sequence[TopicPartition], seconds: float | None = None, *, shield: bool = False
    ) -> Steps[str]:
        """Call `lost`; returns as `revoked`."""
        return (yield from self._gone("lost", places, seconds, shield=shield))

    def _gone(
        self, method: str, places: Sequence[TopicPartition], seconds: float | None, *, shield: bool = False
    ) -> Steps[str]:
        for place in places:
            self._known.pop(place, None)
            self._readable.pop(place, None)
        if self._listener is None or not places:
            return ""
        function: Callable[[Sequence[TopicPartition]], Any] = getattr(self._listener, method)
        self._going, over = tuple(places), Outcome[None]()
        self.returned = over
        try:
            returned = yield Await(function, (tuple(places),), seconds, shield)
        finally:
            self._going = ()
            over.succeed(None)
        return "" if returned else f"{self._listener.name}.{method}"
