"""The states of a member of a share group, as a table.

    OUT ── JOIN ──► JOINING ── JOINED ──► STABLE
                       ▲                     │
                       └────── EXPELLED ─────┘

    FAIL        from JOINING and STABLE, to FAILED
    LEAVE       from JOINING and STABLE, to OUT
    CLOSE       from each other state, to CLOSED

`ShareMember._enter` makes every change through `TRANSITIONS`. An input without an entry there came too late, and is
ignored. A share group has no reconciliation: a new assignment is valid as soon as the member receives it.

Source: MemberState.java, ShareMembershipManager.java.
"""

from enum import Enum, auto


class ShareMemberState(Enum):
    OUT = "not in the group"
    JOINING = "sends heartbeats with epoch 0 until the coordinator answers"
    STABLE = "has the partitions that the coordinator assigned last"
    FAILED = "out for good, because of an error"
    CLOSED = "out for good, because the consumer is closed"


class ShareMemberInput(Enum):
    JOIN = auto()
    JOINED = auto()
    """The coordinator has answered a heartbeat with epoch 0."""
    EXPELLED = auto()
    """The coordinator does not have the member any more, or not in its epoch."""
    FAIL = auto()
    """An error is not retriable."""
    LEAVE = auto()
    """The user's code is not active."""
    CLOSE = auto()


S, On = ShareMemberState, ShareMemberInput
TRANSITIONS: dict[tuple[ShareMemberState, ShareMemberInput], ShareMemberState] = {
    (S.OUT, On.JOIN): S.JOINING,
    (S.JOINING, On.JOINED): S.STABLE,
    (S.JOINING, On.EXPELLED): S.JOINING,
    (S.STABLE, On.EXPELLED): S.JOINING,
    (S.JOINING, On.FAIL): S.FAILED,
    (S.STABLE, On.FAIL): S.FAILED,
    (S.JOINING, On.LEAVE): S.OUT,
    (S.STABLE, On.LEAVE): S.OUT,
    **{(state, On.CLOSE): S.CLOSED for state in (S.OUT, S.JOINING, S.STABLE, S.FAILED)},
}
