"""The partitions of a group's member, and the changes of which its user has to be notified.

Rules:
- A member owns a partition from its `Receive` until the user has given it up after a `Revoke`, or until it is lost.
- After a loss, changes that were still to be reported are void, except earlier losses.

Source: ConsumerCoordinator.java; AbstractMembershipManager.java.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.membership import AssignmentChange, Lose, Receive, Revoke
from ottla.sdk.logs import logger, named

log = logger("ottla.sdk.consumer")


class OwnedPartitions:
    """Holds the partitions of one member of ``group``, whatever the group protocol.

    Args:
        notify: called, inside the core, with each new change.
        unreported: losses of which a member before this one has not notified the user yet.

    Attributes:
        places: the partitions, in the order in which they were received.
        changes: the changes of which the user has to be notified, in order.
    """

    def __init__(
        self, group: str, notify: Callable[[AssignmentChange | None, float], None], unreported: Iterable[Lose] = ()
    ) -> None:
        self._group, self._notify = group, notify
        self.places: tuple[TopicPartition, ...] = ()
        self.changes: deque[AssignmentChange] = deque(unreported)

    def revoke(self, places: Sequence[TopicPartition], now: float, timeout: float) -> None:
        """Ask the user to give up partitions within ``timeout`` seconds; the member owns them until then."""
        self._add(Revoke(tuple(places), now + timeout), now)

    def receive(self, places: Sequence[TopicPartition], now: float) -> None:
        self.places = (*self.places, *places)
        self._add(Receive(tuple(places)), now)

    def lose(self, why: str, now: float) -> None:
        """Lose all partitions."""
        self.changes = deque(each for each in self.changes if isinstance(each, Lose))
        lost, self.places = self.places, ()
        if lost:
            self._add(Lose(lost, why), now)

    def done(self, change: AssignmentChange) -> bool:
        """Take note that the user has finished a change; return whether the member has given up partitions by it."""
        if change not in self.changes:
            return False
        self.changes.remove(change)
        if not isinstance(change, Revoke):
            return False
        given_up = set(change.places)
        self.places = tuple(each for each in self.places if each not in given_up)
        log.info("partitions revoked", extra={"group": self._group, "partitions": named(change.places)})
        return True

    @property
    def revoking(self) -> bool:
        """Whether the user still has to give up partitions."""
        return any(isinstance(each, Revoke) for each in self.changes)

    def _add(self, change: AssignmentChange, now: float) -> None:
        self.changes.append(change)
        self._notify(change, now)
