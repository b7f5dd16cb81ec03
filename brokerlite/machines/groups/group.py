"""One classic group: its members, the protocols that they support, and its state.

Rules:
- Every state change goes through `TRANSITIONS`. A group that does not exist is called ``Dead``.
- The first member is the leader until it leaves or does not join in time; then the oldest member that has joined is.
- Every member must support the chosen protocol; each member votes for the first such protocol in its list.
- A static member is identified by its instance id: its member id changes when it restarts, and a process that still
  uses the old member id is fenced.
- A pending member has been given its id but has not joined with it yet (KIP-394). It has no vote, but a rebalance waits
  for it.

Timeouts are not here but in `ottla.brokerlite.machines.groups.groups`. The interface for committed offsets is
`ottla.brokerlite.machines.groups.offset_group.OffsetGroup`.

Source: ClassicGroup.java, ClassicGroupMember.java, ClassicGroupState.java.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.codec.consumer_protocol import parse_subscription
from ottla.errors import (
    DecodeError,
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from uuid import UUID

CONSUMER = "consumer"
"""The protocol type of consumers, whose subscriptions the broker can parse."""
DEAD = "Dead"


class GroupState(enum.Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Waiting for all members to join."""
    COMPLETING = "CompletingRebalance"
    """Waiting for the leader's assignment."""
    STABLE = "Stable"


class GroupInput(enum.Enum):
    """An event that changes the state of a group."""

    REBALANCE = "a member joined, left or changed"
    JOINED = "the members of the next generation are known"
    EMPTIED = "the next generation has no members"
    ASSIGNED = "the leader's assignment is stored"


TRANSITIONS: dict[tuple[GroupState, GroupInput], GroupState] = {
    (GroupState.EMPTY, GroupInput.REBALANCE): GroupState.PREPARING,
    (GroupState.STABLE, GroupInput.REBALANCE): GroupState.PREPARING,
    (GroupState.COMPLETING, GroupInput.REBALANCE): GroupState.PREPARING,
    (GroupState.PREPARING, GroupInput.JOINED): GroupState.COMPLETING,
    (GroupState.PREPARING, GroupInput.EMPTIED): GroupState.EMPTY,
    (GroupState.COMPLETING, GroupInput.ASSIGNED): GroupState.STABLE,
}


class Protocol(NamedTuple):
    """A protocol of a member, such as an assignor, with the member's metadata for the leader."""

    name: str
    metadata: bytes


_PROTOCOL = 200
"""Bytes counted for a protocol in addition to its name and metadata, which may be empty. Python keeps 166 bytes for the
tuple and its two objects, and some more to count the votes for its name."""
_CHARACTER = 4
"""The most bytes of memory for a character."""


def size_of(protocols: Iterable[Protocol]) -> int:
    """Return the bytes of memory that ``protocols`` take at most, about."""
    return sum(_PROTOCOL + _CHARACTER * len(name) + len(metadata) for name, metadata in protocols)


def size_of_names(*names: str | None) -> int:
    """Return the bytes of memory that the names of a member take at most, about."""
    return _CHARACTER * sum(len(name) for name in names if name is not None)


class DescribedMember(NamedTuple):
    """A member as described to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a JoinGroup."""

    error: int = 0
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[DescribedMember, ...] = ()
    """All members, in the answer to the leader; empty in the others."""
    skip_assignment: bool = False


class Synced(NamedTuple):
    """The answer to a SyncGroup."""

    error: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class JoinedMember:
    """A member of a group.

    Attributes:
        joining: answers its JoinGroup, if one is waiting.
        syncing: answers its SyncGroup, if one is waiting.
        is_new: its first JoinGroup is still waiting, so it cannot send heartbeats.
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
        """Return the member's metadata for a protocol, which is empty if it does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def set_timeouts(self, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        """Replace the timeouts with those of a later JoinGroup."""
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms

    def set_protocols(self, protocols: tuple[Protocol, ...]) -> None:
        """Replace the protocols; the caller keeps the group's counts (`Group.update`)."""
        self.protocols = protocols

    def rename(self, member_id: str) -> None:
        """Take another member id; the caller keeps the group's tables (`Group.rename`)."""
        self.member_id = member_id

    def set_assignment(self, assignment: bytes) -> None:
        """Replace the assignment, which the member gets with the answer to its SyncGroup."""
        self.assignment = assignment

    def wait_to_join(self, answer: Callable[[Joined], None]) -> None:
        """Keep a JoinGroup until the next generation begins."""
        self.joining = answer

    def wait_to_sync(self, answer: Callable[[Synced], None]) -> None:
        """Keep a SyncGroup until the assignment is stored."""
        self.syncing = answer

    def begin_generation(self, joined: Joined) -> None:
        """Answer the waiting JoinGroup: the member is in the new generation."""
        self.answer_join(joined)
        self.is_new = False

    def answer_join(self, joined: Joined) -> None:
        """Answer the waiting JoinGroup, if any."""
        answer, self.joining = self.joining, None
        if answer is not None:
            answer(joined)

    def answer_sync(self, synced: Synced) -> bool:
        """Answer the waiting SyncGroup; return whether there was one."""
        answer, self.syncing = self.syncing, None
        if answer is not None:
            answer(synced)
        return answer is not None


@dataclass(slots=True, eq=False)
class Group:
    """A classic group.

    Attributes:
        previous: the state before this one.
        since: when it entered its state, in milliseconds since 1970; -1 if unknown.
        protocol_type: ``None`` for a group that only has committed offsets.
        members: by member id, the oldest first.
        pending: ids given out with which no member has joined yet, the oldest first (a dictionary used as a set).
        unsynced: members of this generation that have not sent SyncGroup (likewise).
        size: bytes of memory for the members' protocols, client ids and instance ids, about.
        grown: a member joined during the first rebalance, which extends it.
        rebalance_due: its members must join the next generation, also if the broker is restarted before they have.
        subscribed: the topics that the members of a consumer group subscribe to; ``None`` if the broker cannot know.
        creator: the principal for which it counts; ``None``: it counts for nobody.
    """

    kind: ClassVar[str] = "classic"
    group_id: str
    state: GroupState = GroupState.EMPTY
    previous: GroupState | None = None
    since: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, JoinedMember] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    unsynced: dict[str, None] = field(default_factory=dict)
    size: int = 0
    grown: bool = False
    rebalance_due: bool = False
    subscribed: frozenset[str] | None = None
    creator: str | None = None
    _static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    _supported: Counter[str] = field(default_factory=Counter)
    """Protocol -> how many members support it."""

    def load(self, protocol_type: str | None, leader: str | None) -> None:
        """Take over the state that the group had when it was stored; `add` has added its members.

        Args:
            leader: ``None``: the members must begin with another generation.
        """
        self.protocol_type = protocol_type
        self.rebalance_due = bool(self.members) and leader is None
        self.leader = leader or next(iter(self.members), None)
        if self.members:
            self.state = GroupState.STABLE

    def settle(self) -> None:
        """Choose the protocol of the members, for a group that was one of another kind; `load` made it stable."""
        self.protocol = self.vote()
        self.learn_subscriptions()

    def go(self, change: GroupInput, timestamp: int) -> None:
        """Change the state by `TRANSITIONS`."""
        self.previous, self.state = self.state, TRANSITIONS[self.state, change]
        self.since = timestamp

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def can_rebalance(self) -> bool:
        return (self.state, GroupInput.REBALANCE) in TRANSITIONS

    @property
    def is_simple(self) -> bool:
        """Whether the group never had a member and only has committed offsets."""
        return self.protocol_type is None and not self.pending

    def begin_rebalance(self, timestamp: int) -> None:
        """Leave the current generation, to wait for members to join the next one."""
        self.unsynced.clear()
        self.grown = False
        self.go(GroupInput.REBALANCE, timestamp)

    def take_growth(self) -> bool:
        """Return whether a member joined during the first rebalance since the last call."""
        grown, self.grown = self.grown, False
        return grown

    # -- members

    def add_pending(self, member_id: str) -> None:
        """Remember an id with which a member is going to join."""
        self.pending[member_id] = None

    def add(self, member: JoinedMember, protocol_type: str) -> None:
        """Add a member, which `supports` must allow."""
        if self.state is GroupState.PREPARING and self.previous is GroupState.EMPTY:
            self.grown = True
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.size += size_of_names(member.client_id, member.instance_id)
        self._count(member.protocols)
        self.leader = self.leader or member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id, if it exists."""
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.size -= size_of_names(member.client_id, member.instance_id)
        self._discount(member.protocols)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def update(self, member: JoinedMember, protocols: tuple[Protocol, ...]) -> None:
        """Replace a member's protocols."""
        self._discount(member.protocols)
        member.set_protocols(protocols)
        self._count(protocols)

    def rename(self, member: JoinedMember, member_id: str) -> None:
        """Give a static member that was restarted its new member id."""
        old = member.member_id
        self.members = {member_id if key == old else key: value for key, value in self.members.items()}
        self.unsynced = {member_id if key == old else key: None for key in self.unsynced}
        member.rename(member_id)
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id

    def static_member(self, instance_id: str | None) -> JoinedMember | None:
        """Return the member with this instance id, if any."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def member(self, member_id: str, instance_id: str | None, generation: int | None = None) -> JoinedMember:
        """Return the member that a request comes from.

        Args:
            generation: the generation that the request names; ``None``: not checked.

        Raises:
            UnknownMemberId: the group has no such member.
            FencedInstanceId: another process has its instance id.
            IllegalGeneration: it is not the group's generation.
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
        """The longest rebalance timeout of all members, in seconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    # -- for committed offsets: `OffsetGroup`

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.pending

    def check_commit(self, committer: Committer, places: "Iterable[tuple[UUID, int]]" = ()) -> None:
        anonymous = committer.generation < 0 and not committer.member_id and committer.instance_id is None
        if (committer.generation < 0 and self.is_empty) or (anonymous and committer.transactional):
            return
        if anonymous:
            raise UnknownMemberId(f"group {self.group_id} has members, and only they may commit")
        self.member(committer.member_id, committer.instance_id, committer.generation)
        if self.state is GroupState.COMPLETING and not committer.transactional:
            raise RebalanceInProgress(f"group {self.group_id} waits for its leader's assignment")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        pass  # members of classic groups have no epochs

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
        return commit_timestamp if self.state is GroupState.STABLE and self.subscribed is not None else None

    # -- protocols and leader

    def _count(self, protocols: tuple[Protocol, ...]) -> None:
        self.size += size_of(protocols)
        self._supported.update({name for name, _ in protocols})

    def _discount(self, protocols: tuple[Protocol, ...]) -> None:
        self.size -= size_of(protocols)
        self._supported.subtract({name for name, _ in protocols})
        for name in {name for name, _ in protocols if not self._supported[name]}:
            del self._supported[name]

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Return whether a member with these protocols may join the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def vote(self) -> str:
        """Return the protocol with the most votes; only protocols of all members get votes."""
        votes = Counter(
            next(name for name, _ in member.protocols if self._supported[name] == len(self.members))
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def next_generation(self, timestamp: int) -> None:
        """Begin the next generation with the current members, and choose its protocol."""
        self.generation += 1
        self.rebalance_due = False
        self.protocol = self.vote() if self.members else None
        self.learn_subscriptions()
        self.unsynced = dict.fromkeys(self.members)
        self.go(GroupInput.JOINED if self.members else GroupInput.EMPTIED, timestamp)

    def learn_subscriptions(self) -> None:
        """Parse which topics the members of a consumer group subscribe to."""
        self.subscribed = None
        if self.protocol_type != CONSUMER:
            return
        with suppress(DecodeError):  # members may use a format of their own; then no topic's offsets expire
            self.subscribed = frozenset(
                topic
                for member in self.members.values()
                for topic in parse_subscription(member.metadata(self.protocol))[1].topics
            )

    def elect(self) -> bool:
        """Keep the leader if it has joined, else choose a member that has; return whether there is a leader."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.joining is None:
            leader = next((member for member in self.members.values() if member.joining), None)
            if leader is not None:
                self.leader = leader.member_id
        return leader is not None

    def described_to(self, member: JoinedMember, *, skip_assignment: bool = False) -> Joined:
        """Return the JoinGroup answer for a member; only the leader's lists all members."""
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=tuple(self._subscriptions()) if member.member_id == self.leader else (),
            skip_assignment=skip_assignment,
        )

    def assigned_to(self, member: JoinedMember) -> Synced:
        """Return the SyncGroup answer for a member."""
        return Synced(0, self.protocol_type, self.protocol, member.assignment)

    def _subscriptions(self) -> Iterator[DescribedMember]:
        for member in self.members.values():
            yield DescribedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
