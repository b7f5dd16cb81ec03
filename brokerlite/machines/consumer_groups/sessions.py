"""The times within which members of consumer groups must do something; otherwise they are removed.

``session``: send a heartbeat. ``rebalance``: give up partitions. ``join`` and ``sync``: a member of the classic
protocol has heard that it must join again, or has joined and must send SyncGroup.

Rules:
- If the disk refuses a removal, the same timer is set again, so the member can still meet its duty. A heartbeat
  postpones the end of the session, but gives up no partitions.
- The time to give up partitions belongs to an epoch. A member that has left the epoch by then is not removed, for
  example a static member that left for a while.

Source: GroupMetadataManager.java (scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout,
scheduleConsumerGroupJoinTimeoutIfAbsent, scheduleConsumerGroupSyncTimeout).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.brokerlite.machines.consumer_groups.member import AssignedMember
from ottla.brokerlite.machines.timers import Timers

_WHY = {
    "session": "its session timed out",
    "rebalance": "it did not give up its partitions in time",
    "join": "it did not join again in time",
    "sync": "it did not send SyncGroup in time",
}


class Due(NamedTuple):
    """A duty of a member, which it must meet in time.

    Attributes:
        epoch: the member's epoch in which it must; ``None``: in any.
    """

    kind: str
    group_id: str
    member_id: str
    epoch: int | None = None

    @property
    def why(self) -> str:
        """Why the member is removed."""
        return _WHY[self.kind]


class Sessions:
    """Sets the timers of members.

    Args:
        over: called with the duty and the time when a timer goes off.
    """

    def __init__(self, timers: Timers, over: Callable[[Due, float], None]) -> None:
        self._timers = timers
        self._over = over

    def renew(self, group_id: str, member_id: str, deadline: float) -> None:
        """The member has sent a heartbeat, and must send the next until ``deadline``."""
        self._set(Due("session", group_id, member_id), deadline)

    def await_revocation(self, group_id: str, member: AssignedMember, now: float) -> None:
        """The member must give up partitions within its rebalance timeout."""
        due = Due("rebalance", group_id, member.member_id, member.epoch)
        self._set(due, now + member.rebalance_timeout_ms / 1000)

    def revoked(self, group_id: str, member_id: str) -> None:
        """The member has given up the partitions."""
        self._timers.cancel(_name("rebalance", group_id, member_id))

    def await_join(self, group_id: str, member: AssignedMember, now: float) -> None:
        """The member must join again within its rebalance timeout, counted from the first time that it heard so."""
        if not self._timers.is_set(_name("join", group_id, member.member_id)):
            self._set(Due("join", group_id, member.member_id), now + member.rebalance_timeout_ms / 1000)

    def joined(self, group_id: str, member: AssignedMember, now: float) -> None:
        """The member has joined, and must send SyncGroup within its rebalance timeout."""
        self._timers.cancel(_name("join", group_id, member.member_id))
        self._set(Due("sync", group_id, member.member_id), now + member.rebalance_timeout_ms / 1000)

    def synced(self, group_id: str, member_id: str) -> None:
        """The member has sent SyncGroup."""
        self._timers.cancel(_name("sync", group_id, member_id))

    def again(self, due: Due, deadline: float) -> None:
        """Remove the member at ``deadline``, unless it meets its duty: the disk has refused the removal now."""
        self._set(due, deadline)

    def end(self, group_id: str, member_id: str) -> None:
        """Forget the timers of a member that is no longer in the group."""
        for kind in _WHY:
            self._timers.cancel(_name(kind, group_id, member_id))

    def _set(self, due: Due, deadline: float) -> None:
        self._timers.set(_name(due.kind, due.group_id, due.member_id), deadline, partial(self._over, due))


def _name(kind: str, group_id: str, member_id: str) -> tuple[str, str, str, str]:
    return "consumer group", kind, group_id, member_id
