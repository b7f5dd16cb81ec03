"""The states of a member of a classic group, as a table.

    OUT ── JOIN ──► PREPARING ── JOIN_SENT ──► JOINING ── JOINED ──► ASSIGNING ── SYNC_SENT ──► SYNCING
                      ▲ ▲ ▲                       │                      │                       │ │ │
                      │ │ └──── RETRY ────────────┴──────────────────────┴───────────────────────┘ │ │
                      │ └────── REBALANCE ─── STABLE ◄─────── ASSIGNED ────────────────────────────┘ │
                      │                         │ REVOKE                                             │
                      │                         ▼                                                    │
                      └──────── GIVEN_UP ─── REVOKING ◄────── ASSIGNED_LESS ─────────────────────────┘

    RETRY       also from PREPARING, which begins again
    EXPELLED    from each state above but OUT, to PREPARING
    FAIL        from each state above but OUT, to FAILED
    LEAVE       from each state above, to OUT
    CLOSE       from each state above, and from FAILED, to CLOSED

`ClassicMember._enter` makes every change through `TRANSITIONS`. An input without an entry there came too late, and is
ignored.

Source: AbstractCoordinator.java, MemberState.
"""

from enum import Enum, auto


class MemberState(Enum):
    OUT = "not in the group, until the user asks for a batch"
    PREPARING = "about to send JoinGroup: looks up the coordinator, or pauses"
    JOINING = "JoinGroup waits at the coordinator for the other members"
    ASSIGNING = "in a new generation; divides the partitions if this member is the leader"
    SYNCING = "SyncGroup waits at the coordinator for the leader"
    STABLE = "has its partitions"
    REVOKING = "waits for the user to give partitions up, then joins again"
    FAILED = "out for good, because of an error"
    CLOSED = "out for good, because the consumer is closed"


class MemberInput(Enum):
    JOIN = auto()
    """The user asks for a batch."""
    JOIN_SENT = auto()
    JOINED = auto()
    SYNC_SENT = auto()
    ASSIGNED = auto()
    """The SyncGroup response keeps all owned partitions."""
    ASSIGNED_LESS = auto()
    """The SyncGroup response revokes some of the owned partitions."""
    REBALANCE = auto()
    """A rebalance begins, without partitions to give up first."""
    REVOKE = auto()
    """A rebalance begins, and all partitions have to be given up first."""
    GIVEN_UP = auto()
    """The user has given partitions up."""
    RETRY = auto()
    """Joining failed with a retriable error."""
    EXPELLED = auto()
    """The group has continued without this member."""
    FAIL = auto()
    """An error is not retriable."""
    LEAVE = auto()
    CLOSE = auto()


S, On = MemberState, MemberInput
IN_GROUP = (S.PREPARING, S.JOINING, S.ASSIGNING, S.SYNCING, S.STABLE, S.REVOKING)
"""States in which the client is a member, or is joining."""
TRANSITIONS: dict[tuple[MemberState, MemberInput], MemberState] = {
    (S.OUT, On.JOIN): S.PREPARING,
    (S.PREPARING, On.JOIN_SENT): S.JOINING,
    (S.JOINING, On.JOINED): S.ASSIGNING,
    (S.ASSIGNING, On.SYNC_SENT): S.SYNCING,
    (S.SYNCING, On.ASSIGNED): S.STABLE,
    (S.SYNCING, On.ASSIGNED_LESS): S.REVOKING,
    (S.STABLE, On.REBALANCE): S.PREPARING,
    (S.STABLE, On.REVOKE): S.REVOKING,
    (S.REVOKING, On.GIVEN_UP): S.PREPARING,
    **{(state, On.RETRY): S.PREPARING for state in (S.PREPARING, S.JOINING, S.ASSIGNING, S.SYNCING)},
    **{(state, On.EXPELLED): S.PREPARING for state in IN_GROUP},
    **{(state, On.FAIL): S.FAILED for state in IN_GROUP},
    **{(state, On.LEAVE): S.OUT for state in (S.OUT, *IN_GROUP)},
    **{(state, On.CLOSE): S.CLOSED for state in (S.OUT, S.FAILED, *IN_GROUP)},
}
