"""Member id, generation and channel of a classic member, for its requests."""

from dataclasses import dataclass

from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.options import MemberOptions


@dataclass(slots=True)
class Seat:
    """Identifies one member in its requests.

    Attributes:
        channel: the member's own connection, because JoinGroup and SyncGroup wait at the coordinator.
        member_id: the id from the coordinator; empty: none yet.
        generation: the generation of the member's last assignment; -1: none.
    """

    group: str
    channel: str
    options: MemberOptions
    metrics: MemberMetrics
    member_id: str = ""
    generation: int = -1
