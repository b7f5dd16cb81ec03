"""What a member's user is notified of, between two batches: which partitions come and go.

    assigned called ──► assigned returned ──► revoked or lost called
    "known"             "readable"            given up

Rules:
- Each coming of a partition is followed by exactly one going. Notified means that the listener's method was called:
  what a `revoked` or `lost` that raised, or was cancelled, left undone is the user's, and it is not called again.
- An `assigned` that raised, or was cancelled, is called again before anything of its partitions is handed out.
- A `Receive` waits until its positions are known, but not longer than a second. What comes behind it need not wait for
  that, and overtakes it. A partition whose coming was not notified goes without a notice, too.
"""

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import Lose, Membership, Receive, Step
from ottla.sdk.steps import Await, Steps


class Listener(Protocol):
    """What users are called back with; see `ottla.sdk.consumer.RebalanceListener`. Awaited, but by code that blocks."""

    @property
    def name(self) -> str:
        """What the log calls it."""
        ...

    def assigned(self, places: Sequence[TopicPartition]) -> Any: ...
    def revoked(self, places: Sequence[TopicPartition]) -> Any: ...
    def lost(self, places: Sequence[TopicPartition]) -> Any: ...


class Notice(NamedTuple):
    """A step of the membership, and of which of its partitions the user is to be notified."""

    step: Step
    places: tuple[TopicPartition, ...]


class Notices:
    """Of one consumer.

    Args:
        ready: whether the user may be notified of a partition that came.
    """

    def __init__(
        self,
        membership: Membership | None,
        commits: Commits | None,
        listener: Listener | None,
        ready: Callable[[TopicPartition], bool],
    ) -> None:
        self._membership, self._commits, self._listener, self._ready = membership, commits, listener, ready
        self._known: dict[TopicPartition, None] = {}
        self._readable: dict[TopicPartition, None] = {}
        self._going: tuple[TopicPartition, ...] = ()
        """Partitions of whose going the user is being notified."""

    @property
    def known(self) -> tuple[TopicPartition, ...]:
        """The partitions whose coming was notified, and whose going was not."""
        return tuple(self._known)

    @property
    def gone(self) -> bool:
        """The member has lost all of them, of which the user is to be notified. What came since is not known yet."""
        return self._membership is not None and any(isinstance(step, Lose) for step in self._membership.steps)

    @property
    def readable(self) -> Container[TopicPartition]:
        """Those of which batches may be handed out."""
        return self._readable

    def believed(self, place: TopicPartition) -> bool:
        """The user has reason to think that the partition is this consumer's."""
        return place in self._known or place in self._going

    def next(self) -> Notice | None:
        """What the user is to be notified of next."""
        for step in self._membership.steps if self._membership is not None else ():
            if not isinstance(step, Receive):
                return Notice(step, tuple(each for each in step.places if each in self._known))
            new = tuple(each for each in step.places if each not in self._readable and self._owned(each))
            if all(map(self._ready, new)):
                return Notice(step, new)
        return None

    def _owned(self, place: TopicPartition) -> bool:
        return self._commits is not None and self._commits.assignment(place) is not None

    # -- calling the listener ----------------------------------------------------------------------------------------

    def assigned(self, notice: Notice) -> Steps[None]:
        """Notify of partitions that came; they are readable afterwards, unless they have gone meanwhile."""
        self._known.update(dict.fromkeys(notice.places))
        if self._listener is not None and notice.places:
            yield Await(self._listener.assigned, (notice.places,))
        if self._membership is not None and notice.step in self._membership.steps:
            self._readable.update(dict.fromkeys(notice.places))

    def revoked(self, places: Sequence[TopicPartition], seconds: float | None = None) -> Steps[str]:
        """Notify of partitions that are about to go; the method's name if it did not return in time, else empty."""
        return (yield from self._gone("revoked", places, seconds))

    def lost(
        self, places: Sequence[TopicPartition], seconds: float | None = None, *, shield: bool = False
    ) -> Steps[str]:
        """Notify of partitions that are gone; returns as `revoked`."""
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
        self._going = tuple(places)
        try:
            returned = yield Await(function, (tuple(places),), seconds, shield)
        finally:
            self._going = ()
        return "" if returned else f"{self._listener.name}.{method}"
