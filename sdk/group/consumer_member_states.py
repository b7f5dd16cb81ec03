"""The states of a member whose coordinator assigns the partitions (KIP-848), as a table.

    OUT ── JOIN ──► JOINING ── JOINED ──► STABLE ── ASSIGNED ──► RECONCILING
                      ▲                     ▲                        │
                      │                     └────── RECONCILED ──────┘
                      └── EXPELLED, from the three states above

    FAIL        from each state above but OUT, to FAILED
    LEAVE       from each state above, to OUT
    CLOSE       from each state above, and from FAILED, to CLOSED

`ConsumerGroupMember._enter` makes every change through `TRANSITIONS`. An input without an entry there came too late,
and is ignored.

Source: MemberState.java.
"""

from enum import Enum, auto


class ConsumerMemberState(Enum):
    OUT = "not in the group, until the user asks for a batch"
    JOINING = "sends heartbeats with epoch 0 until the coordinator answers"
    STABLE = "has the partitions that the coordinator assigned last"
    RECONCILING = "gives up partitions, or looks up the names of topics"
    FAILED = "out for good, because of an error"
    CLOSED = "out for good, because the consumer is closed"


class ConsumerMemberInput(Enum):
    JOIN = auto()
    """The user asks for a batch."""
    JOINED = auto()
    """The coordinator has answered a heartbeat with epoch 0."""
    ASSIGNED = auto()
    """The coordinator has assigned other partitions than before."""
    RECONCILED = auto()
    """The member owns the assigned partitions, and no others."""
    EXPELLED = auto()
    """The coordinator does not have the member any more, or not in its epoch."""
    FAIL = auto()
    """An error is not retriable."""
    LEAVE = auto()
    CLOSE = auto()


S, On = ConsumerMemberState, ConsumerMemberInput
IN_GROUP = (S.JOINING, S.STABLE, S.RECONCILING)
"""States in which the client is a member, or is joining."""
TRANSITIONS: dict[tuple[ConsumerMemberState, ConsumerMemberInput], ConsumerMemberState] = {
    (S.OUT, On.JOIN): S.JOINING,
    (S.JOINING, On.JOINED): S.STABLE,
    (S.STABLE, On.ASSIGNED): S.RECONCILING,
    (S.RECONCILING, On.RECONCILED): S.STABLE,
    **{(state, On.EXPELLED): S.JOINING for state in IN_GROUP},
    **{(state, On.FAIL): S.FAILED for state in IN_GROUP},
    **{(state, On.LEAVE): S.OUT for state in (S.OUT, *IN_GROUP)},
    **{(state, On.CLOSE): S.CLOSED for state in (S.OUT, S.FAILED, *IN_GROUP)},
}
