"""Answers the requests of the classic protocol to share groups, which refuse all of them.

Source: GroupMetadataManager.java (classicGroupJoin, classicGroupSync, classicGroupHeartbeat, classicGroupLeave).
"""

from collections.abc import Mapping, Sequence

from ottla.brokerlite.machines.groups.group import Joined, Synced
from ottla.brokerlite.machines.groups.groups import LeavingMember, SyncRequest
from ottla.brokerlite.machines.groups.joins import JoinRequest
from ottla.brokerlite.machines.share_groups.share_group import ShareGroup
from ottla.brokerlite.machines.share_groups.share_groups import ShareGroups
from ottla.errors import InconsistentGroupProtocol, UnknownMemberId


class RefusedRequests:
    """Share groups as `GroupDirectory` needs them."""

    def __init__(self, groups: ShareGroups) -> None:
        self._groups = groups

    @property
    def by_id(self) -> Mapping[str, ShareGroup]:
        return self._groups.by_id

    def remove(self, group_id: str) -> None:
        """Forget a group without members, and its progress.

        Raises:
            BrokerError: the disk refused; the group stays.
        """
        self._groups.remove(self._groups.by_id[group_id])

    def join(self, asked: JoinRequest, now: float) -> None:
        asked.answer(Joined(InconsistentGroupProtocol.code))

    def sync(self, asked: SyncRequest, now: float) -> None:
        asked.answer(Synced(UnknownMemberId.code))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        raise UnknownMemberId(f"group {group_id} is a share group")

    def leave(self, group_id: str, leavers: Sequence[LeavingMember], now: float) -> list[int]:
        raise UnknownMemberId(f"group {group_id} is a share group")
