"""One classic group: who is in it, what all of them can do, and in which state it is.

Rules:
- The state changes by `TRANSITIONS` and nowhere else. A group that does not exist is called ``Dead``.
- The first member is the leader, until it goes or does not join in time; then it is the oldest that is there.
- The protocol is one that every member has; each votes for the first of its own that qualifies.
- A static member (with an instance id) has its place by that name: its member id may change, and whoever comes with
  the old one is fenced.
- A pending member was only told its id (KIP-394). It has no say, but the others wait for it.

Nothing here knows of time or of who waits until when; that is `ottla.brokerlite.machines.groups`. What committed
offsets ask of a group is `ottla.brokerlite.machines.offset_group.OffsetGroup`.

Source: ClassicGroup.java, ClassicGroupMember.java, ClassicGroupState.java.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.brokerlite.machines.offset_group import Committer
from ottla.codec.consumer_protocol import parse_subscription
from ottla.errors import (
    DecodeError,
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)

CONSUMER = "consumer"
"""The protocol type of consumers, whose subscriptions the broker can read."""
DEAD = "Dead"


class State(enum.Enum):
    """Of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Waiting for everybody to join."""
    COMPLETING = "CompletingRebalance"
    """Waiting for the leader's assignment."""
    STABLE = "Stable"


class Input(enum.Enum):
    """What changes the state of a group."""

    REBALANCE = "a member joined, left or changed"
    JOINED = "the members of the next generation are known"
    EMPTIED = "the next generation has no members"
    ASSIGNED = "the leader's assignment is stored"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.EMPTY, Input.REBALANCE): State.PREPARING,
    (State.STABLE, Input.REBALANCE): State.PREPARING,
    (State.COMPLETING, Input.REBALANCE): State.PREPARING,
    (State.PREPARING, Input.JOINED): State.COMPLETING,
    (State.PREPARING, Input.EMPTIED): State.EMPTY,
    (State.COMPLETING, Input.ASSIGNED): State.STABLE,
}


class Protocol(NamedTuple):
    """Something that a member can do, such as an assignor, and what the leader needs to know for it."""

    name: str
    metadata: bytes


def size_of(protocols: Iterable[Protocol]) -> int:
    """Bytes of them."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Subscription(NamedTuple):
    """What the leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a member that joins."""

    error: int = 0
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[Subscription, ...] = ()
    """For the leader."""
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The answer to a member that asks for its assignment."""

    error: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class Member:
    """A member.

    Attributes:
        joining: gives the answer to its JoinGroup, if that waits.
        syncing: gives the answer to its SyncGroup, if that waits.
        is_new: its first JoinGroup still waits, so it cannot send heartbeats.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    joining: Callable[[Joined], None] | None = None
    syncing: Callable[[Synced], None] | None = None
    is_new: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_join(self, joined: Joined) -> None:
        """Answer the JoinGroup that waits, if one does."""
        answer, self.joining = self.joining, None
        if answer is not None:
            answer(joined)

    def answer_sync(self, synced: Synced) -> bool:
        """Answer the SyncGroup that waits; whether one did."""
        answer, self.syncing = self.syncing, None
        if answer is not None:
            answer(synced)
        return answer is not None


@dataclass(slots=True, eq=False)
class Group:
    """A group.

    Attributes:
        previous: the state before this one.
        since: when it came into its state, in milliseconds since 1970; -1 where that is unknown.
        protocol_type: ``None`` for a group that only keeps offsets.
        members: by member id, the oldest first.
        pending: ids that were given out and did not come back yet, the oldest first (a dictionary used as a set).
        unsynced: members of this generation that have not asked for their assignment (likewise).
        size: bytes of what the members said about themselves.
        grown: a member came during the first rebalance, which then may take longer.
        subscribed: the topics that the members of a consumer group want; ``None`` where the broker cannot know.
    """

    group_id: str
    state: State = State.EMPTY
    previous: State | None = None
    since: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    unsynced: dict[str, None] = field(default_factory=dict)
    size: int = 0
    grown: bool = False
    subscribed: frozenset[str] | None = None
    _static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    _supported: Counter[str] = field(default_factory=Counter)
    """Protocol -> how many members have it."""

    def go(self, change: Input, timestamp: int) -> None:
        """Change the state."""
        self.previous, self.state = self.state, TRANSITIONS[self.state, change]
        self.since = timestamp

    @property
    def can_rebalance(self) -> bool:
        return (self.state, Input.REBALANCE) in TRANSITIONS

    @property
    def is_simple(self) -> bool:
        """Whether it never had a member, and only keeps offsets."""
        return self.protocol_type is None and not self.pending

    # -- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Let a member in that `supports` allows."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols)
        self.leader = self.leader or member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member or a pending id; an unknown one is no matter."""
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._discount(member.protocols)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def update(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """A member can do other things now."""
        self._discount(member.protocols)
        member.protocols = protocols
        self._count(protocols)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member was started again, under another member id."""
        old = member.member_id
        self.members = {member_id if key == old else key: value for key, value in self.members.items()}
        self.unsynced = {member_id if key == old else key: None for key in self.unsynced}
        member.member_id = member_id
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id

    def static_member(self, instance_id: str | None) -> Member | None:
        """Who has this name."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def member(self, member_id: str, instance_id: str | None, generation: int | None = None) -> Member:
        """The member that a request comes from.

        Args:
            generation: the one it must be in; ``None``: any.

        Raises:
            UnknownMemberId: there is none.
            FencedInstanceId: another process has its instance id.
            IllegalGeneration: it is not in the group's generation.
        """
        if instance_id is not None and (holder := self._static.get(instance_id)) != member_id:
            if holder is None:
                raise UnknownMemberId(f"group {self.group_id} has no instance {instance_id}")
            raise FencedInstanceId(f"instance {instance_id} of group {self.group_id} has member id {holder} now")
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id}")
        if generation not in (None, self.generation):
            raise IllegalGeneration(f"generation {generation}; group {self.group_id} is at {self.generation}")
        return member

    @property
    def waiting(self) -> int:
        """How many members have joined the next generation."""
        return sum(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.joining for member in self.members.values())

    @property
    def rebalance_timeout(self) -> float:
        """The longest of all members, in seconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    # -- what committed offsets ask

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.pending

    def check_commit(self, committer: Committer) -> None:
        anonymous = committer.generation < 0 and not committer.member_id and committer.instance_id is None
        if (committer.generation < 0 and self.is_empty) or (anonymous and committer.transactional):
            return
        if anonymous:
            raise UnknownMemberId(f"group {self.group_id} has members, and only they may commit")
        self.member(committer.member_id, committer.instance_id, committer.generation)
        if self.state is State.COMPLETING and not committer.transactional:
            raise RebalanceInProgress(f"group {self.group_id} waits for its leader's assignment")

    def check_offset_delete(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise NonEmptyGroup(f"group {self.group_id} has members and is not a consumer group")

    def subscribes_to(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER if self.subscribed is None else topic in self.subscribed

    def retention_begins(self, commit_timestamp: int) -> int | None:
        if self.is_empty and self.protocol_type is not None and self.since >= 0:
            return self.since
        if self.is_empty or self.protocol_type is None:
            return commit_timestamp
        return commit_timestamp if self.state is State.STABLE and self.subscribed is not None else None

    # -- what they agree on

    def _count(self, protocols: tuple[Protocol, ...]) -> None:
        self.size += size_of(protocols)
        self._supported.update({name for name, _ in protocols})

    def _discount(self, protocols: tuple[Protocol, ...]) -> None:
        self.size -= size_of(protocols)
        self._supported.subtract({name for name, _ in protocols})
        for name in {name for name, _ in protocols if not self._supported[name]}:
            del self._supported[name]

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a member that can do this may be in the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def vote(self) -> str:
        """The protocol that most members want of those that all have."""
        votes = Counter(
            next(name for name, _ in member.protocols if self._supported[name] == len(self.members))
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def next_generation(self, timestamp: int) -> None:
        """The members are known: count up, choose the protocol."""
        self.generation += 1
        self.protocol = self.vote() if self.members else None
        self.learn_subscriptions()
        self.unsynced.clear()
        self.go(Input.JOINED if self.members else Input.EMPTIED, timestamp)

    def learn_subscriptions(self) -> None:
        """Find out which topics the members of a consumer group want."""
        self.subscribed = None
        if self.protocol_type != CONSUMER:
            return
        with suppress(DecodeError):  # what members tell each other is theirs; then no topic's offsets expire
            self.subscribed = frozenset(
                topic
                for member in self.members.values()
                for topic in parse_subscription(member.metadata(self.protocol))[1].topics
            )

    def elect(self) -> bool:
        """Take a leader among those that have joined; whether there is one."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.joining is None:
            leader = next((member for member in self.members.values() if member.joining), None)
            if leader is not None:
                self.leader = leader.member_id
        return leader is not None

    def described_to(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        """The generation, as a member of it is told; only the leader is told of the others."""
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple(self._subscriptions()) if member.member_id == self.leader else (),
            skip_assignment=skip_assignment,
        )

    def _subscriptions(self) -> Iterator[Subscription]:
        for member in self.members.values():
            yield Subscription(member.member_id, member.instance_id, member.metadata(self.protocol))
