"""Member id, generation and channel of a classic member, for its requests."""

from ottla.codec.apis.join_group import JoinGroupResponse
from ottla.late_dataclass import dataclass
from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.options import MemberOptions


@dataclass(slots=True)
class Seat:
    """Identifies one member in its requests.

    Attributes:
        channel: the member's own connection, because JoinGroup and SyncGroup wait at the coordinator.
        member_id: the id from the coordinator; empty: none yet.
        generation: the generation of the last JoinGroup response; -1: none.
    """

    group: str
    channel: str
    options: MemberOptions
    metrics: MemberMetrics
    member_id: str = ""
    generation: int = -1

    def take(self, answer: JoinGroupResponse) -> None:
        """Take the member id that the coordinator has given, and the generation if the member has joined."""
        self.member_id = answer.member_id
        if not answer.error_code:
            self.generation = answer.generation_id

    def vacate(self, *, keep_id: bool = False) -> None:
        """Leave the generation; a new member takes the seat, or the same one if it keeps its id."""
        self.generation = -1
        if not keep_id:
            self.member_id = ""
