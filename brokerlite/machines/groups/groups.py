"""The coordinator of classic groups: members join, get their assignments, send heartbeats and leave.

    groups.join(joining, now)      # the answer goes to `joining.answer`, at once or when all members have joined
    groups.sync(syncing, now)      # likewise, when the leader has sent the assignment
    groups.heartbeat(...)          # these answer at once, or raise
    groups.leave(...)
    groups.timers                  # sessions time out, and rebalances continue without missing members

Rules:
- This module finds the group of a request; `Joins` decides what a JoinGroup changes, and `Rebalances` leads the group
  from there.
- Disk errors are answered with COORDINATOR_LOAD_IN_PROGRESS, except while an assignment is stored: on NOT_COORDINATOR,
  which Apache Kafka answers, members would look for another broker and lose their membership meanwhile.
- Everything is bounded: groups, their members, their pending ids (the oldest is dropped), and the bytes of both.
- A lost connection changes nothing: a member is removed when its session times out, as in Kafka.

Source: GroupMetadataManager.java (classicGroupSync, classicGroupHeartbeat, classicGroupLeave),
GroupCoordinatorService.java.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.groups.group import Group, GroupState, Joined, Synced
from ottla.brokerlite.machines.groups.group_room import GroupRoom
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.groups.joins import JoinRequest, Joins, refusal
from ottla.brokerlite.machines.groups.rebalances import Rebalances
from ottla.brokerlite.machines.timers import Timers
from ottla.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")


@dataclass(frozen=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request.

    Attributes:
        protocol_type, protocol: ``None``: not compared (before v5).
        assignments: member id -> assignment, from the leader.
        answer: called with the answer, at once or later.
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    answer: Callable[[Synced], None]


class LeavingMember(NamedTuple):
    """A member that leaves, named by its member id or, if that is empty, by its instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Groups:
    """Coordinates all classic groups.

    Args:
        store: stores a group, or removes it if the second argument is true; may raise a `BrokerError`.
        new_id: makes the random part of member ids.

    Attributes:
        by_id: the groups, including groups loaded at the start.
    """

    def __init__(
        self,
        settings: GroupSettings,
        store: Callable[[Group, bool], None],
        new_id: "Callable[[], UUID]",
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.settings = settings
        self.by_id: dict[str, Group] = {}
        self.room = GroupRoom(self.by_id, settings.max_groups, Group.kind, clock, timers)
        self.timers = timers
        self._clock = clock
        self._created: Callable[[float], None] = lambda now: None
        self.new_id = new_id
        self._store = store
        self._rebalances = Rebalances(settings, store, clock, timers)
        self._joins = Joins(settings, self._rebalances, store, new_id)
        self._draining = False

    def when_created(self, call: Callable[[float], None]) -> None:
        """Call ``call`` with the time when a group may have been created."""
        self._created = call

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.timestamp

    def get_or_create(self, group_id: str, now: float, creator: str | None = None) -> Group:
        """Return the group; create it if it does not exist.

        Args:
            creator: the principal for which a new group counts; see `GroupRoom`.

        Raises:
            CoordinatorNotAvailable, PolicyViolation: see `GroupRoom.check`.
        """
        if (group := self.by_id.get(group_id)) is None:
            self.room.check(group_id, creator)
            group = Group(group_id, since=self.timestamp, creator=creator)
            self.room.add(group)
            self._created(now)
        return group

    def remove(self, group: Group) -> None:
        """Forget a group without members, and its offsets.

        Raises:
            KafkaStorageError: the disk refused; the group stays.
        """
        self._store(group, True)
        self.room.remove(group)
        self._rebalances.forget(group)

    def note_created(self, now: float) -> None:
        """Notice that a group of another kind was created."""
        self._created(now)

    # -- groups that change their kind

    def give_up(self, group: Group) -> None:
        """Forget a group that has become one of another kind; waiting members hear that they must join again."""
        self._rebalances.abandon(group)
        self.room.remove(group)

    def adopt(self, group: Group, now: float) -> None:
        """Take over a group that was one of another kind, and is stored."""
        self.room.add(group)
        self._resume(group, now)

    def resume(self, now: float) -> None:
        """After a start, begin a new session for each stored member, and the rebalances that are due."""
        for group in self.by_id.values():
            self._resume(group, now)
        self._created(now)

    def _resume(self, group: Group, now: float) -> None:
        for member in group.members.values():
            self._rebalances.renew(group, member, now)
        if group.rebalance_due:
            self._rebalances.rebalance(group, "the group was downgraded", now)

    def drain(self) -> None:
        """Answer all waiting members with NOT_COORDINATOR; from now on none may wait."""
        self._draining = True
        for group in self.by_id.values():
            for member in group.members.values():
                member.answer_join(Joined(NotCoordinator.code, member.member_id))
                member.answer_sync(Synced(NotCoordinator.code))

    # -- joining

    def join(self, asked: JoinRequest, now: float) -> None:
        """Handle JoinGroup: add the member to the next generation."""
        try:
            self._join(asked, now)
        except BrokerError as error:
            asked.answer(refusal(asked, error))

    def check_join(self, asked: JoinRequest) -> None:
        """Check what every JoinGroup must have.

        Raises:
            CoordinatorNotAvailable, InvalidGroupId, InvalidSessionTimeout.
        """
        if self._draining:
            raise CoordinatorNotAvailable
        if not asked.group_id:
            raise InvalidGroupId("the group id must not be empty")
        settings = self.settings
        if not settings.min_session_timeout <= asked.session_timeout_ms / 1000 <= settings.max_session_timeout:
            raise InvalidSessionTimeout(f"a session timeout of {asked.session_timeout_ms} ms is out of range")

    def check_first_join(self, asked: JoinRequest) -> None:
        """Check a JoinGroup that would create its group, with the errors of `join`: the group is still of another kind.

        Raises:
            BrokerError: `join` would refuse it.
        """
        self.check_join(asked)
        if asked.member_id:
            raise UnknownMemberId(f"group {asked.group_id} has no members")
        self.room.check(asked.group_id, asked.creator)
        self._joins.check(Group(asked.group_id), asked)

    def _join(self, asked: JoinRequest, now: float) -> None:
        self.check_join(asked)
        if asked.member_id and asked.group_id not in self.by_id:
            raise UnknownMemberId(f"there is no group {asked.group_id}")
        group = self.get_or_create(asked.group_id, now, asked.creator)
        self._joins.join(group, asked, now)

    # -- assignments

    def sync(self, asked: SyncRequest, now: float) -> None:
        """Handle SyncGroup: answer with the assignment as soon as the leader has sent it."""
        try:
            self._sync(asked, now)
        except BrokerError as error:
            asked.answer(Synced(error.code))

    def _sync(self, asked: SyncRequest, now: float) -> None:
        group = self._member_group(asked.group_id)
        member = group.member(asked.member_id, asked.instance_id, asked.generation)
        if asked.protocol_type not in (None, group.protocol_type) or asked.protocol not in (None, group.protocol):
            raise InconsistentGroupProtocol(
                f"protocol {asked.protocol_type} {asked.protocol}; group {group.group_id} uses "
                f"{group.protocol_type} {group.protocol}"
            )
        if group.state is GroupState.PREPARING:
            raise RebalanceInProgress(f"group {group.group_id} waits for members to join")
        self._rebalances.note_sync(group, member)
        if group.state is GroupState.STABLE:
            asked.answer(group.assigned_to(member))
            return
        member.answer_sync(Synced(RebalanceInProgress.code))  # a request of an earlier connection
        member.wait_to_sync(asked.answer)
        if member.member_id == group.leader:
            self._rebalances.assign(group, asked.assignments, now)

    # -- heartbeats and leaving

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Renew a member's session.

        Raises:
            RebalanceInProgress: the session is renewed, and the member must rejoin.
            UnknownMemberId, FencedInstanceId, IllegalGeneration: see `Group.member`.
            NotCoordinator, InvalidGroupId.
        """
        group = self._member_group(group_id)
        self._rebalances.renew(group, group.member(member_id, instance_id, generation), now)
        if group.state is GroupState.PREPARING:
            raise RebalanceInProgress(f"group {group_id} waits for members to join")

    def leave(self, group_id: str, leavers: Sequence[LeavingMember], now: float) -> list[int]:
        """Remove members; return an error code for each.

        Raises:
            UnknownMemberId: there is no such group.
            NotCoordinator, InvalidGroupId.
        """
        group = self._member_group(group_id)
        members = len(group.members)
        codes = [self._leave(group, leaver) for leaver in leavers]
        if len(group.members) < members and group.can_rebalance:
            self._rebalances.rebalance(group, "members left", now)
        else:
            self._rebalances.try_complete_join(group, now)
        return codes

    def _leave(self, group: Group, leaver: LeavingMember) -> int:
        if leaver.member_id in group.pending:
            group.remove(leaver.member_id)
            self._rebalances.end_session(group, leaver.member_id)
            return 0
        try:
            if leaver.member_id:
                member = group.member(leaver.member_id, leaver.instance_id)
            elif (holder := group.static_member(leaver.instance_id)) is not None:
                member = holder
            else:
                raise UnknownMemberId
        except BrokerError as error:
            return error.code
        why = f": {leaver.reason}" if leaver.reason else ""
        log.info("member %s left%s", member.member_id, why, extra={"group": group.group_id})
        self._rebalances.drop(group, member)
        return 0

    def renew(self, group: Group, member_id: str, now: float) -> None:
        """Renew the session of a member, if the group has it."""
        if (member := group.members.get(member_id)) is not None:
            self._rebalances.renew(group, member, now)

    def _member_group(self, group_id: str) -> Group:
        """Return the group that a member's request names."""
        if self._draining:
            raise NotCoordinator
        if not group_id:
            raise InvalidGroupId("the group id must not be empty")
        if (group := self.by_id.get(group_id)) is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return group
