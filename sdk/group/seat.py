"""What the requests of a classic member say of it."""

from dataclasses import dataclass

from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.membership import MemberOptions


@dataclass(slots=True)
class Seat:
    """One place in a group.

    Attributes:
        channel: of the member's own connection, since JoinGroup and SyncGroup wait at the coordinator.
        member_id: as the coordinator calls the member; empty: it does not know it.
        generation: of the member's last assignment; -1: none.
    """

    group: str
    channel: str
    options: MemberOptions
    metrics: MemberMetrics
    member_id: str = ""
    generation: int = -1
