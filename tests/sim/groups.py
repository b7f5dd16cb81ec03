"""Coordinators of classic groups, with Kafka's rules; those of KIP-848 are in `tests.sim.modern_groups`.

    EMPTY ── join ──► PREPARING ── all have joined, or time is up ──► COMPLETING ── the leader's SyncGroup ──► STABLE
      ▲                 ▲  │ no member is left                            │                                    │
      └─────────────────│──┘                                              │                                    │
                        └────── a member joins, leaves, times out ────────┴────────────────────────────────────┘

Rules:
- A new coordinator knows the stored state: the offsets, and the group as of its last SyncGroup.
- Sessions and rebalances expire in virtual time; while the coordinator sleeps, no member expires.
- Only members of the current generation may commit. Others may while the group is empty, or within a transaction.
  A transaction's offsets are pending until its marker is written; of two commits for a partition the later one wins.

Source: GroupMetadataManager.java, ClassicGroup.java, OffsetMetadataManager.java.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.codec.apis import describe_groups
from ottla.codec.apis import leave_group as leave
from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.codec.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.codec.consumer_protocol import parse_assignment, parse_subscription
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    CoordinatorLoadInProgress,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidSessionTimeout,
    InvalidTxnState,
    MemberIdRequired,
    NotCoordinator,
    ProducerFenced,
    RebalanceInProgress,
    TransactionAbortable,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ottla.sdk.group.assignors import build_assigned
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.modern_groups import ModernCoordinator, ModernGroup, ModernMember, invalid_heartbeat, refused_heartbeat
from tests.sim.network import Reply
from tests.sim.transactions import Asking

if TYPE_CHECKING:
    from tests.sim.cluster import ModelCluster

PARTITIONS = 2
"""The number of partitions of `__consumer_offsets`."""
SESSIONS = (1.0, 1800.0)
"""`group.min.session.timeout.ms` (here lower than Kafka's 6 s, so that runs are short) and the maximum."""
INITIAL_DELAY = 0.2
"""`group.initial.rebalance.delay.ms` in seconds."""


class State(Enum):
    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance: str | None
    session: float
    rebalance: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    heard: float = 0.0
    join: Reply | None = None
    """Waits until the others have joined."""
    sync: Reply | None = None
    """Waits for the leader's SyncGroup."""


@dataclass(slots=True, eq=False)
class Group:
    name: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids that the coordinator gave out (KIP-394), and that no client has joined with yet."""
    offsets: dict[Place, tuple[int, int, str | None]] = field(default_factory=dict)
    """(offset, leader epoch, metadata)."""
    since: dict[Place, int] = field(default_factory=dict)
    """Per partition, the number of the commit that set the offset."""
    uncommitted: dict[int, dict[Place, tuple[int, tuple[int, int, str | None]]]] = field(default_factory=dict)
    """By producer id, the offsets of open transactions, each with the number of its commit."""
    stored: "Group | None" = None
    """The group as of its last SyncGroup, or as it became empty."""
    exists: bool = False
    """There was a commit, of a member or not."""
    initial: bool = False
    """The group was empty, and its rebalance waits a while for more members."""
    phase: int = 0
    """Counts rebalances, so that timers of earlier ones are ignored."""
    load_ends: float = 0.0
    revoking: bool = False
    """A member that keeps its partitions during a rebalance has to give some up, and then joins again."""
    modern: ModernGroup | None = None
    """The group's members, if it is one of KIP-848."""

    def store(self) -> None:
        members = {each.id: replace(each, join=None, sync=None) for each in self.members.values()}
        self.stored = replace(self, members=members, pending={}, stored=None)


Commit = Callable[[Group, str, Place, int], None]


class Coordinators:
    def __init__(self, cluster: "ModelCluster", chance: Random, history: History) -> None:
        self._cluster, self._chance, self._history = cluster, chance, history
        self._clock: Clock = cluster.clock
        self.groups: dict[str, Group] = {}
        self._withheld: dict[int, list[tuple[Place, Callable[[], None]]]] = {}
        """Per node that does not know that it no longer coordinates, the refusals that it sends once it knows."""
        self.modern = ModernCoordinator(cluster, chance, history)
        self.modern.removed, self.modern.expelled = self._removed, lambda member: self.expelled(member)
        self._ids = 0
        self._commits = 0
        self.refusals: dict[Place, tuple[int, float]] = {}
        """Per partition, the error code with which its offsets are refused, and until when."""
        self.expelled: Callable[[str], None] = lambda member: None
        """Called with every member that is removed because its session expired."""
        self.committed: Commit = lambda group, member, place, offset: None
        """Called with every offset that is accepted."""
        self.superseded: Commit = lambda group, member, place, offset: None
        """Called with every offset of a transaction that does not count: its marker came after a later commit."""

    def place(self, group: str) -> Place:
        """The partition of `__consumer_offsets` that has the group."""
        return ("__consumer_offsets", sum(group.encode()) % PARTITIONS)

    def slow_down(self, group: str, until: float) -> None:
        """Let the group's coordinator answer late until then."""
        node, slow = self._cluster.leaders[self.place(group)].node, self._cluster.network.slow

        def end() -> None:
            slow.pop(node, None)

        if node not in slow:
            slow[node] = (1, 50)
            self._clock.at(until, end)

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None:
        group_id = group_of(message)
        place = self.place(group_id)
        view = self._cluster.nodes[node].leaders.get(place)
        if view is None or view.node != node:
            reply(refusal(message, version, NotCoordinator.code))
        elif self._cluster.leaders[place].node != node:
            refuse = partial(reply, refusal(message, version, NotCoordinator.code))
            self._withheld.setdefault(node, []).append((place, refuse))
        elif (group := self.group(group_id)).load_ends > self._clock.now:
            code = 0 if isinstance(message, HeartbeatRequest) else CoordinatorLoadInProgress.code
            reply(refusal(message, version, code))
        else:
            self.act(group, client, version, message, reply)

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(name))

    def act(self, group: Group, client: str, version: int, message: Any, reply: Reply) -> None:
        """Carry out a request as the group's coordinator."""
        if group.modern is not None and not group.modern.members and isinstance(message, JoinGroupRequest):
            group.generation, group.modern = 0, None  # the empty group is deleted, and the member makes another one
        if (modern := group.modern) is not None and self._act_modern(group, modern, client, version, message, reply):
            return
        match message:
            case ConsumerGroupHeartbeatRequest():
                reply(self._first_heartbeat(group, message))
            case DescribeGroupsRequest():
                reply(self._described(group))
            case JoinGroupRequest():
                self._join(group, client, version, message, reply)
            case SyncGroupRequest():
                self._sync(group, version, message, reply)
            case HeartbeatRequest():
                reply(HeartbeatResponse(error_code=self._heartbeat(group, message)))
            case LeaveGroupRequest():
                reply(self._leave(group, version, message))
            case OffsetCommitRequest():
                reply(self._commit(group, version, message))
            case TxnOffsetCommitRequest():
                self._commit_in_transaction(group, version, message, reply)
            case OffsetFetchRequest():
                reply(self._fetch(version, message))
            case _:
                raise AssertionError(f"the model does not serve {message}")

    # -- groups of KIP-848 -------------------------------------------------------------------------------------------

    def _act_modern(
        self, group: Group, modern: ModernGroup, client: str, version: int, message: Any, reply: Reply
    ) -> bool:
        """Carry out a request about members of such a group; return whether it is one."""
        later = partial(self._later, group)
        match message:
            case ConsumerGroupHeartbeatRequest():
                reply(self.modern.heartbeat(modern, message, later))
            case JoinGroupRequest():
                reply(self.modern.join(modern, client, version, message, later))
                if modern.only_classic:  # the member has replaced a static one, which was the last of the new protocol
                    self._downgrade(group, modern)
            case SyncGroupRequest():
                reply(self.modern.sync(modern, message))
            case HeartbeatRequest():
                reply(HeartbeatResponse(error_code=self.modern.classic_heartbeat(modern, message)))
            case LeaveGroupRequest():
                reply(self.modern.classic_leave(modern, message))
            case DescribeGroupsRequest():
                described = replace(self._described(group).groups[0], error_code=GroupIdNotFound.code)
                reply(DescribeGroupsResponse(groups=(described,)))
            case _:
                return False
        return True

    def _first_heartbeat(self, group: Group, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat to a group that is not one of KIP-848; it becomes one if a member joins."""
        if invalid_heartbeat(message):
            return refused_heartbeat(InvalidRequest.code)
        if message.member_epoch != JOIN or (
            group.members and (group.protocol_type != "consumer" or not self.modern.upgrades)
        ):
            return refused_heartbeat(GroupIdNotFound.code)
        if group.revoking:
            # Kafka would give these partitions to others at once, though their owner has not given them up.
            return refused_heartbeat(CoordinatorLoadInProgress.code)
        epoch = group.generation if group.members else 0  # an empty group is deleted
        # A new group begins in epoch 1, so the first member joins in epoch 2.
        modern = ModernGroup(group.name, epoch=max(epoch, 1), target_epoch=epoch)
        for member in list(group.members.values()):
            for reply, answer in ((member.join, _NOT_JOINED), (member.sync, _NOT_SYNCED)):
                if reply:
                    reply(replace(answer, error_code=RebalanceInProgress.code))
            modern.members[member.id] = self._upgraded(group, member)
            modern.targets[member.id] = modern.members[member.id].assigned
        if modern.members:
            self._cluster.data.features["a classic group is upgraded"] += 1
        group.members, group.pending, group.state, group.leader = {}, {}, State.EMPTY, ""
        group.phase += 1
        group.modern = modern
        later = partial(self._later, group)
        self.modern.watch(modern, later)
        return self.modern.heartbeat(modern, message, later)

    def _upgraded(self, group: Group, member: Member) -> ModernMember:
        ids = self._cluster.ids
        parts = {(ids[topic], index) for topic, index in _partitions(member.assignment) if topic in ids}
        return ModernMember(
            member.id,
            member.instance,
            rebalance=member.rebalance,
            topics=tuple(sorted(parse_subscription(next(iter(member.protocols.values())))[1].topics)),
            epoch=group.generation,
            previous=group.generation,
            assigned=frozenset(parts),
            heard=self._clock.now,
            protocols=member.protocols,
            session=member.session,
        )

    def _removed(self, modern: ModernGroup) -> None:
        """The last member of the new protocol is gone: if there are classic ones, the group is classic again."""
        group = self.groups[modern.name]
        if group.modern is modern and modern.only_classic:
            self._downgrade(group, modern)
            self._prepare(group)

    def _downgrade(self, group: Group, modern: ModernGroup) -> None:
        self._cluster.data.features["a group is downgraded"] += 1
        modern.phase += 1
        group.modern, group.generation, group.protocol_type = None, modern.epoch, "consumer"
        for each in modern.members.values():
            places = self.modern.places(modern.targets.get(each.id, frozenset()))
            member = Member(each.id, each.instance, each.session, each.rebalance, dict(each.protocols or {}))
            member.assignment = build_assigned(sorted(places))
            group.members[each.id] = member
        group.leader = next(iter(group.members))
        group.protocol = _elected(group)  # a SyncGroup may name it
        group.state = State.STABLE
        group.store()
        self._watch(group, list(group.members.values()))

    def _described(self, group: Group) -> DescribeGroupsResponse:
        state = "Empty" if group.exists or group.stored is not None else "Dead"
        return DescribeGroupsResponse(
            groups=(
                describe_groups.DescribedGroup(
                    error_code=0,
                    group_id=group.name,
                    group_state="Stable" if group.members else state,
                    protocol_type=group.protocol_type or "",
                    protocol_data="",
                    members=(),
                ),
            )
        )

    def moved(self, place: Place) -> None:
        """Another node coordinates the groups of a partition, or the same one again, from their stored state."""
        for name, group in self.groups.items():
            if self.place(name) != place:
                continue
            for member in group.members.values():
                for reply, answer in ((member.join, _NOT_JOINED), (member.sync, _NOT_SYNCED)):
                    if reply:
                        reply(replace(answer, error_code=NotCoordinator.code))
            new = replace(group.stored) if group.stored else Group(name)
            new.members = {each.id: replace(each, heard=self._clock.now) for each in new.members.values()}
            new.stored, new.offsets, new.phase = group.stored, group.offsets, group.phase + 1
            new.since, new.uncommitted, new.exists = group.since, group.uncommitted, group.exists
            new.load_ends = self._clock.now + self._chance.uniform(0.0, 0.3)
            new.modern = group.modern
            if new.modern is not None:
                new.members, new.state = {}, State.EMPTY
            group.phase = -1
            self.groups[name] = new
            if new.modern is not None:
                self.modern.moved(new.modern, partial(self._later, new))
            self._watch(new, list(new.members.values()))

    def learned(self, node: int) -> None:
        for _, refuse in self._withheld.pop(node, []):
            refuse()

    def crashed(self, node: int) -> None:
        self._withheld.pop(node, None)

    # -- joining -----------------------------------------------------------------------------------------------------

    def _join(self, group: Group, client: str, version: int, message: JoinGroupRequest, reply: Reply) -> None:
        protocols = {each.name: each.metadata for each in message.protocols}
        code = 0
        if not message.group_id:
            code = InvalidGroupId.code
        elif not SESSIONS[0] <= message.session_timeout_ms / 1000 <= SESSIONS[1]:
            code = InvalidSessionTimeout.code
        elif group.members and not self._fits(group, message.protocol_type, protocols):
            code = InconsistentGroupProtocol.code
        if code:
            reply(_refused_join(code, version, message.member_id))
            return
        known = self._member_for(group, client, version, message, protocols, reply)
        if known is None:
            return
        member, fresh = known
        changed = fresh or member.protocols != protocols
        member.protocols = protocols
        session = message.session_timeout_ms / 1000
        if session != member.session:  # the timer of an earlier, longer session would come too late
            member.session = session
            self._watch(group, [member])
        member.rebalance = (
            message.rebalance_timeout_ms if message.rebalance_timeout_ms > 0 else message.session_timeout_ms
        ) / 1000
        self._touch(member)
        current = group.state in (State.COMPLETING, State.STABLE) and not changed
        skips = version >= 9 and not message.member_id
        if current and (group.state is State.COMPLETING or member.id != group.leader or skips):
            reply(self._joined(group, member, version))
            return
        member.join = lambda answer: reply(answer if answer.error_code else self._joined(group, member, version))
        if group.state is not State.PREPARING:
            self._prepare(group)
        self._try_complete(group)

    def _fits(self, group: Group, protocol_type: str, protocols: Iterable[str]) -> bool:
        common = set.intersection(*(set(each.protocols) for each in group.members.values()))
        return group.protocol_type in (None, protocol_type) and bool(common & set(protocols))

    def _member_for(
        self,
        group: Group,
        client: str,
        version: int,
        message: JoinGroupRequest,
        protocols: dict[str, bytes],
        reply: Reply,
    ) -> tuple[Member, bool] | None:
        """The member that joins, and whether it is new; ``None`` if the join was answered."""
        instance = message.group_instance_id
        if message.member_id:
            member = group.members.get(message.member_id)
            if instance and any(
                each.instance == instance and each.id != message.member_id for each in group.members.values()
            ):
                reply(_refused_join(FencedInstanceId.code, version, message.member_id))
                return None
            if member:
                return member, False
            if message.member_id not in group.pending:
                reply(_refused_join(UnknownMemberId.code, version, message.member_id))
                return None
            del group.pending[message.member_id]
            return self._add(group, message.member_id, message, protocols), True
        self._ids += 1
        new = f"{instance or client}-{self._ids}"
        if instance:
            old = next((each for each in group.members.values() if each.instance == instance), None)
            return self._replaced(group, old, new) if old else (self._add(group, new, message, protocols), True)
        if version >= 4:
            group.pending[new] = None
            self._later(group, message.session_timeout_ms / 1000, lambda: self._lapse(group, new))
            reply(_refused_join(MemberIdRequired.code, version, new))
            return None
        return self._add(group, new, message, protocols), True

    def _add(self, group: Group, member_id: str, message: JoinGroupRequest, protocols: dict[str, bytes]) -> Member:
        group.protocol_type = message.protocol_type
        member = Member(member_id, message.group_instance_id, 0.0, 0.0, protocols)
        group.members[member_id] = member
        return member

    def _replaced(self, group: Group, old: Member, new: str) -> tuple[Member, bool]:
        """A static member has come back with another member id; the old id is fenced."""
        for reply, answer in ((old.join, _NOT_JOINED), (old.sync, _NOT_SYNCED)):
            if reply:
                reply(replace(answer, error_code=FencedInstanceId.code))
        member = replace(old, id=new, join=None, sync=None)
        group.members = {new if key == old.id else key: each for key, each in group.members.items()}
        group.members[new] = member
        if group.leader == old.id:
            group.leader = new
        if group.state is State.STABLE:  # a stored rebalance would never complete
            group.store()
        self._watch(group, [member])
        # The leader may have got the old id already, and would assign to that: so rebalance again.
        return member, group.state is State.COMPLETING

    def _prepare(self, group: Group) -> None:
        for member in group.members.values():
            if member.sync:
                sync, member.sync = member.sync, None
                sync(replace(_NOT_SYNCED, error_code=RebalanceInProgress.code))
        first = group.initial = group.state is State.EMPTY
        group.state = State.PREPARING
        group.phase += 1
        phase = group.phase
        self._history.add("#", group.name, f"rebalances after generation {group.generation}")
        wait = INITIAL_DELAY if first else max((each.rebalance for each in group.members.values()), default=0.0)
        self._later(group, wait, lambda: self._complete(group) if group.phase == phase else None)

    def _try_complete(self, group: Group) -> None:
        ready = group.state is State.PREPARING and not group.initial and not group.pending
        if ready and all(each.join for each in group.members.values()):
            self._complete(group)

    def _complete(self, group: Group) -> None:
        """Begin the next generation, with the members that have joined."""
        if group.state is not State.PREPARING:
            return
        for member in [each for each in group.members.values() if not each.join and not each.instance]:
            self._history.add("#", group.name, f"{member.id} did not join in time")
            del group.members[member.id]
        group.phase += 1
        group.generation += 1
        group.initial = False
        if not group.members:
            group.state, group.protocol, group.leader = State.EMPTY, None, ""
            group.store()
            return
        if group.leader not in group.members or not group.members[group.leader].join:
            group.leader = next((each.id for each in group.members.values() if each.join), next(iter(group.members)))
        group.protocol = _elected(group)
        group.state = State.COMPLETING
        phase = group.phase
        self._history.add("#", group.name, f"generation {group.generation} of {', '.join(group.members)}")
        for member in list(group.members.values()):
            if member.join:
                join, member.join = member.join, None
                self._touch(member)
                join(_NOT_JOINED)
        wait = max(each.rebalance for each in group.members.values())
        self._later(group, wait, lambda: self._unsynced(group) if group.phase == phase else None)

    def _unsynced(self, group: Group) -> None:
        """Remove members that did not send SyncGroup in time."""
        if group.state is State.COMPLETING:
            for member in [each for each in group.members.values() if not each.sync]:
                del group.members[member.id]
            self._prepare(group)
            self._try_complete(group)

    def _joined(self, group: Group, member: Member, version: int) -> JoinGroupResponse:
        leads = member.id == group.leader
        return JoinGroupResponse(
            error_code=0,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader,
            skip_assignment=version >= 9 and leads and group.state is State.STABLE,
            member_id=member.id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=each.id,
                    group_instance_id=each.instance,
                    metadata=each.protocols.get(group.protocol or "", b""),
                )
                for each in group.members.values()
            )
            if leads
            else (),
        )

    # -- members -----------------------------------------------------------------------------------------------------

    def _known(self, group: Group, member_id: str, instance: str | None, generation: int) -> int:
        """The error code for a client that claims to be this member in this generation."""
        if instance and any(each.instance == instance and each.id != member_id for each in group.members.values()):
            return FencedInstanceId.code
        if member_id not in group.members or instance not in (None, group.members[member_id].instance):
            return UnknownMemberId.code
        return 0 if generation == group.generation else IllegalGeneration.code

    def _sync(self, group: Group, version: int, message: SyncGroupRequest, reply: Reply) -> None:
        code = self._known(group, message.member_id, message.group_instance_id, message.generation_id)
        if (
            not code
            and version >= 5
            and (message.protocol_type, message.protocol_name)
            != (
                group.protocol_type,
                group.protocol,
            )
        ):
            code = InconsistentGroupProtocol.code
        if not code and group.state is State.PREPARING:
            code = RebalanceInProgress.code
        if code:
            reply(replace(_NOT_SYNCED, error_code=code))
            return
        member = group.members[message.member_id]
        self._touch(member)
        if group.state is State.STABLE:
            reply(self._synced(group, member))
            return
        member.sync = reply
        if member.id == group.leader:
            given = {each.member_id: each.assignment for each in message.assignments}
            cooperative = group.protocol == "cooperative-sticky"
            group.revoking = cooperative and any(
                _partitions(each.assignment) - _partitions(given.get(each.id, b"")) for each in group.members.values()
            )
            for each in group.members.values():
                each.assignment = given.get(each.id, b"")
            group.state = State.STABLE
            group.phase += 1
            group.store()
            for each in group.members.values():
                if each.sync:
                    sync, each.sync = each.sync, None
                    self._touch(each)
                    sync(self._synced(group, each))

    def _synced(self, group: Group, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )

    def _heartbeat(self, group: Group, message: HeartbeatRequest) -> int:
        code = self._known(group, message.member_id, message.group_instance_id, message.generation_id)
        if code:
            return code
        self._touch(group.members[message.member_id])
        return RebalanceInProgress.code if group.state is State.PREPARING else 0

    def _leave(self, group: Group, version: int, message: LeaveGroupRequest) -> LeaveGroupResponse:
        leaving = [(each.member_id, each.group_instance_id) for each in message.members]
        codes = [self._remove(group, *each) for each in (leaving if version >= 3 else [(message.member_id, None)])]
        if version < 3:
            return LeaveGroupResponse(error_code=codes[0])
        return LeaveGroupResponse(
            error_code=0,
            members=tuple(
                leave.MemberResponse(member_id=member_id, group_instance_id=instance, error_code=code)
                for (member_id, instance), code in zip(leaving, codes, strict=True)
            ),
        )

    def _remove(self, group: Group, member_id: str, instance: str | None) -> int:
        if member_id in group.pending:
            del group.pending[member_id]
            self._try_complete(group)
            return 0
        found = next((each for each in group.members.values() if instance and each.instance == instance), None)
        if found and member_id and found.id != member_id:
            return FencedInstanceId.code
        found = found or group.members.get(member_id)
        if found is None:
            return UnknownMemberId.code
        self._gone(group, found, "left")
        return 0

    def _gone(self, group: Group, member: Member, how: str) -> None:
        self._history.add("#", group.name, f"{member.id} {how}")
        del group.members[member.id]
        if member.join:
            member.join(replace(_NOT_JOINED, error_code=UnknownMemberId.code))
        if member.sync:
            member.sync(replace(_NOT_SYNCED, error_code=UnknownMemberId.code))
        if group.state in (State.STABLE, State.COMPLETING):
            self._prepare(group)
        self._try_complete(group)

    def expel(self, name: str, member_id: str) -> bool:
        """Remove a member as an administrator does; return whether the group had it."""
        group, how = self.group(name), "was removed by an administrator"
        if group.modern is not None and member_id in group.modern.members:
            self.modern.remove(group.modern, how, group.modern.members[member_id])
        elif member_id in group.members:
            self._gone(group, group.members[member_id], how)
        else:
            return False
        return True

    # -- time --------------------------------------------------------------------------------------------------------

    def _later(self, group: Group, delay: float, call: Callable[[], None]) -> None:
        """Run on the coordinator's timer: not while that node sleeps."""

        def ring() -> None:
            leader = self._cluster.leaders[self.place(group.name)].node
            if self.groups.get(group.name) is not group:
                return
            if leader == -1 or not self._cluster.nodes[leader].healthy:
                self._clock.later(0.1, ring)
            else:
                call()

        self._clock.later(delay, ring)

    def _touch(self, member: Member) -> None:
        member.heard = self._clock.now

    def _watch(self, group: Group, members: list[Member]) -> None:
        """Remove members whose session expires."""

        def look(member: Member) -> None:
            if group.members.get(member.id) is not member:
                return
            left = member.heard + member.session - self._clock.now
            if member.join or member.sync:
                left = max(left, member.session)
            if left <= 0:
                self.expelled(member.id)
                self._gone(group, member, "was silent for its session")
            else:
                self._later(group, left, lambda: look(member))

        for each in members:
            each.heard = self._clock.now
            self._later(group, each.session, partial(look, each))

    def _lapse(self, group: Group, member_id: str) -> None:
        """A member id that was given out expires after a session."""
        if member_id in group.pending:
            del group.pending[member_id]
            self._try_complete(group)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def _commit(self, group: Group, version: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self._may_commit(group, version, message)
        topics = []
        for topic in message.topics:
            name = self._cluster.name(topic)
            told = []
            for each in topic.partitions:
                place = (name, each.partition_index)
                refused = code or self._refused([place]).get(place, 0)
                if place not in self._cluster.logs:
                    refused = refused or UnknownTopicOrPartition.code
                told.append(OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=refused))
                if not refused:
                    held = (each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
                    self.committed(group, message.member_id, place, each.committed_offset)
                    group.offsets[place] = held
                    group.since[place] = self._number()
                    group.exists = True
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=tuple(told)))
        return OffsetCommitResponse(topics=tuple(topics))

    def _may_commit(self, group: Group, version: int, message: OffsetCommitRequest) -> int:
        generation = message.generation_id_or_member_epoch
        if group.modern is not None:
            return self.modern.may_commit(group.modern, version, message)
        if generation < 0 and (not message.member_id or group.state is State.EMPTY):
            return 0 if group.state is State.EMPTY else UnknownMemberId.code
        if group.stored is None and not group.members:
            return GroupIdNotFound.code if version >= 9 else IllegalGeneration.code
        code = self._known(group, message.member_id, message.group_instance_id, generation)
        if code:
            return code
        self._touch(group.members[message.member_id])
        return RebalanceInProgress.code if group.state is State.COMPLETING else 0

    def _commit_in_transaction(self, group: Group, version: int, message: TxnOffsetCommitRequest, reply: Reply) -> None:
        wanted = {
            (topic.name, each.partition_index): (
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for topic in message.topics
            for each in topic.partitions
        }
        known = {place: held for place, held in wanted.items() if place in self._cluster.logs}
        asking = Asking(message.transactional_id, message.producer_id, message.producer_epoch)
        log_place = self.place(group.name)

        def told(code: int, refused: dict[Place, int] | None = None) -> None:
            codes = {place: code if place in known else UnknownTopicOrPartition.code for place in wanted}
            codes |= refused or {}
            reply(
                TxnOffsetCommitResponse(
                    topics=tuple(
                        TxnOffsetCommitResponseTopic(
                            name=topic.name,
                            partitions=tuple(
                                TxnOffsetCommitResponsePartition(
                                    partition_index=each.partition_index,
                                    error_code=codes[topic.name, each.partition_index],
                                )
                                for each in topic.partitions
                            ),
                        )
                        for topic in message.topics
                    )
                )
            )

        def verified(answers: dict[Place, int]) -> None:
            code = _known(answers.get(log_place, 0), version) or self._may_commit_in_transaction(group, message)
            if not code and (state := self._cluster.logs[log_place].producers.get(asking.producer_id)) is not None:
                code = InvalidProducerEpoch.code if asking.epoch < state.epoch else 0
            if not code and self.groups.get(group.name) is not group:
                code = NotCoordinator.code
            if not code:
                group.exists = True
                self._cluster.note_transaction(log_place, asking.producer_id, asking.epoch)
                number, refused = self._number(), self._refused(known)
                pending = group.uncommitted.setdefault(asking.producer_id, {})
                pending |= {place: (number, held) for place, held in known.items() if place not in refused}
                told(0, refused)
            else:
                told(code)

        if not known:
            told(0)
            return
        if not self._cluster.verifies:
            verified({})
            return
        state, minds = self._cluster.logs[log_place].producers.get(asking.producer_id), self._cluster.epochs_rise
        if minds and state is not None and asking.epoch < state.epoch:
            told(InvalidProducerEpoch.code)
        elif state is None or state.ongoing is None or (minds and state.epoch != asking.epoch):
            self._cluster.transactions.ask(asking, [log_place], verified, rises=version >= 5)
        else:
            verified({})

    def _refused(self, places: Iterable[Place]) -> dict[Place, int]:
        """The partitions whose offsets are refused now, with their error codes."""
        refusals = {place: self.refusals.get(place, (0, 0.0)) for place in places}
        return {place: code for place, (code, until) in refusals.items() if self._clock.now < until}

    def _may_commit_in_transaction(self, group: Group, message: TxnOffsetCommitRequest) -> int:
        generation = message.generation_id_or_member_epoch
        if group.modern is not None:
            return self.modern.may_commit(group.modern, 0, message)
        nobody = generation < 0 and not message.member_id and message.group_instance_id is None
        if nobody or (generation < 0 and group.state is State.EMPTY):
            return 0
        if group.stored is None and not group.members and not group.exists:
            return (IllegalGeneration if self._cluster.epochs_rise else UnknownMemberId).code
        code = self._known(group, message.member_id, message.group_instance_id, generation)
        if not code:
            self._touch(group.members[message.member_id])
        return code

    def transaction_ended(self, place: Place, producer_id: int, *, commits: bool) -> None:
        """A marker was written to a partition of `__consumer_offsets`."""
        for group in self.groups.values():
            if self.place(group.name) != place:
                continue
            for at, (number, held) in group.uncommitted.pop(producer_id, {}).items():
                if commits and number > group.since.get(at, 0):
                    group.offsets[at], group.since[at] = held, number
                    self.committed(group, "", at, held[0])
                elif commits:
                    self.superseded(group, "", at, held[0])

    def forget(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for group in self.groups.values():
            kept: list[dict[Place, Any]] = [group.offsets, group.since, *group.uncommitted.values()]
            for offsets in kept:
                for place in [place for place in offsets if place[0] == topic]:
                    del offsets[place]

    def _number(self) -> int:
        self._commits += 1
        return self._commits

    def _fetch(self, version: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        if version >= 8:
            return OffsetFetchResponse(
                groups=tuple(self._fetched(asked, message.require_stable) for asked in message.groups)
            )
        return OffsetFetchResponse(
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=name, partitions=tuple(OffsetFetchResponsePartition(**each) for each in found)
                )
                for name, found in self._found(message.group_id, message.topics, message.require_stable).items()
            )
        )

    def _fetched(self, asked: Any, stable: bool) -> OffsetFetchResponseGroup:
        if code := self._may_fetch(asked):
            return OffsetFetchResponseGroup(group_id=asked.group_id, topics=(), error_code=code)
        return OffsetFetchResponseGroup(
            group_id=asked.group_id,
            topics=tuple(
                OffsetFetchResponseTopics(
                    name=name,
                    topic_id=self._cluster.ids.get(name, NO_UUID),
                    partitions=tuple(OffsetFetchResponsePartitions(**each) for each in found),
                )
                for name, found in self._found(asked.group_id, asked.topics, stable).items()
            ),
        )

    def _may_fetch(self, asked: Any) -> int:
        modern = self.group(asked.group_id).modern
        return self.modern.may_fetch(modern, asked.member_id, asked.member_epoch) if modern is not None else 0

    def _found(self, name: str, topics: Iterable[Any] | None, stable: bool) -> dict[str, list[dict[str, Any]]]:
        """Topic -> fields of each partition's answer."""
        offsets = self.group(name).offsets
        pending = {place for each in self.group(name).uncommitted.values() for place in each} if stable else set()
        wanted = (
            list(offsets)
            if topics is None
            else [(self._cluster.name(topic), index) for topic in topics for index in topic.partition_indexes]
        )
        found: dict[str, list[dict[str, Any]]] = {}
        for place in wanted:
            unstable = place in pending
            offset, epoch, metadata = (-1, -1, "") if unstable else offsets.get(place, (-1, -1, ""))
            found.setdefault(place[0], []).append(
                {
                    "partition_index": place[1],
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "metadata": metadata,
                    "error_code": UnstableOffsetCommit.code if unstable else 0,
                }
            )
        return found


_NOT_JOINED = JoinGroupResponse(error_code=0, protocol_name="", leader="", member_id="", members=())
_NOT_SYNCED = SyncGroupResponse(error_code=0, assignment=b"")


def _refused_join(code: int, version: int, member_id: str) -> JoinGroupResponse:
    return replace(_NOT_JOINED, error_code=code, member_id=member_id)


def _elected(group: Group) -> str:
    """The protocol that all members have and the leader likes best."""
    common = set.intersection(*(set(each.protocols) for each in group.members.values()))
    return next(name for name in group.members[group.leader].protocols if name in common)


def _partitions(assignment: bytes) -> set[Place]:
    if not assignment:
        return set()
    found = parse_assignment(assignment)[1].assigned_partitions
    return {(each.topic, index) for each in found for index in each.partitions}


def group_of(message: Any) -> str:
    if isinstance(message, DescribeGroupsRequest):
        return message.groups[0]
    if isinstance(message, OffsetFetchRequest) and message.groups:
        return message.groups[0].group_id
    return str(message.group_id)


def refusal(message: Any, version: int, code: int) -> Any:
    """An answer that has only an error."""
    match message:
        case JoinGroupRequest():
            return _refused_join(code, version, message.member_id)
        case SyncGroupRequest():
            return replace(_NOT_SYNCED, error_code=code)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case ConsumerGroupHeartbeatRequest():
            return refused_heartbeat(code)
        case DescribeGroupsRequest():
            group = describe_groups.DescribedGroup(
                error_code=code,
                group_id=message.groups[0],
                group_state="",
                protocol_type="",
                protocol_data="",
                members=(),
            )
            return DescribeGroupsResponse(groups=(group,))
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=tuple(
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                            for each in topic.partitions
                        ),
                    )
                    for topic in message.topics
                )
            )
        case OffsetFetchRequest():
            groups = tuple(
                OffsetFetchResponseGroup(group_id=each.group_id, topics=(), error_code=code) for each in message.groups
            )
            return OffsetFetchResponse(error_code=code, groups=groups)
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
    )


def _known(code: int, version: int) -> int:
    """Map an error of the transaction coordinator to an error that this ``version`` of TxnOffsetCommit has."""
    if code == NotCoordinator.code:
        return CoordinatorLoadInProgress.code
    if code == ProducerFenced.code:
        return InvalidProducerEpoch.code
    return InvalidTxnState.code if code == TransactionAbortable.code and version < 4 else code
