"""The times within which members of consumer groups must do something; otherwise they are removed.

``session``: send a heartbeat. ``rebalance``: give up partitions. ``join`` and ``sync``: a member of the classic
protocol has heard that it must join again, or has joined and must send SyncGroup.

Source: GroupMetadataManager.java (scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout,
scheduleConsumerGroupJoinTimeoutIfAbsent, scheduleConsumerGroupSyncTimeout).
"""

from collections.abc import Callable
from functools import partial

from ottla.brokerlite.machines.consumer_groups.member import AssignedMember
from ottla.brokerlite.machines.timers import Timers

_KINDS = ("session", "rebalance", "join", "sync")
_WHY = {
    "session": "its session timed out",
    "rebalance": "it did not give up its partitions in time",
    "join": "it did not join again in time",
    "sync": "it did not send SyncGroup in time",
}


class Sessions:
    """Sets the timers of members.

    Args:
        over: called with the group, the member's id, the reason and the time when a timer goes off.
    """

    def __init__(self, timers: Timers, over: Callable[[str, str, str, float], None]) -> None:
        self._timers = timers
        self._over = over

    def renew(self, group_id: str, member_id: str, deadline: float) -> None:
        """The member has sent a heartbeat, and must send the next until ``deadline``."""
        self._set("session", group_id, member_id, deadline)

    def await_revocation(self, group_id: str, member: AssignedMember, now: float) -> None:
        """The member must give up partitions within its rebalance timeout."""
        self._set("rebalance", group_id, member.member_id, now + member.rebalance_timeout_ms / 1000)

    def revoked(self, group_id: str, member_id: str) -> None:
        """The member has given up the partitions."""
        self._timers.cancel(_name("rebalance", group_id, member_id))

    def await_join(self, group_id: str, member: AssignedMember, now: float) -> None:
        """The member must join again within its rebalance timeout, counted from the first time that it heard so."""
        if not self._timers.is_set(_name("join", group_id, member.member_id)):
            self._set("join", group_id, member.member_id, now + member.rebalance_timeout_ms / 1000)

    def joined(self, group_id: str, member: AssignedMember, now: float) -> None:
        """The member has joined, and must send SyncGroup within its rebalance timeout."""
        self._timers.cancel(_name("join", group_id, member.member_id))
        self._set("sync", group_id, member.member_id, now + member.rebalance_timeout_ms / 1000)

    def synced(self, group_id: str, member_id: str) -> None:
        """The member has sent SyncGroup."""
        self._timers.cancel(_name("sync", group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Forget the timers of a member that is no longer in the group."""
        for kind in _KINDS:
            self._timers.cancel(_name(kind, group_id, member_id))

    def _set(self, kind: str, group_id: str, member_id: str, deadline: float) -> None:
        self._timers.set(
            _name(kind, group_id, member_id), deadline, partial(self._over, group_id, member_id, _WHY[kind])
        )


def _name(kind: str, group_id: str, member_id: str) -> tuple[str, str, str, str]:
    return "consumer group", kind, group_id, member_id
