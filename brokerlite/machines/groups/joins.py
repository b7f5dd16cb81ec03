"""Handles JoinGroup: adds members to the next generation of their group.

Rules:
- A new dynamic member gets only its id, and must join again with it (KIP-394, JoinGroup v4+).
- A static member that restarts takes over its old membership. If the group is stable and its protocol stays the same,
  the others notice nothing, and a restarted leader need not assign again (KIP-814, JoinGroup v9+).

Source: GroupMetadataManager.java (classicGroupJoin).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.groups.group import (
    Group,
    GroupState,
    Joined,
    JoinedMember,
    Protocol,
    Synced,
    size_of,
    size_of_names,
)
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.groups.rebalances import Rebalances, as_coordinator_error
from ottla.errors import (
    BrokerError,
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
)

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")

_LONGEST_NAME = 250
"""Characters of an instance id or client id that go into a member id, whose length has 15 bits on the wire."""


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request.

    Attributes:
        client_host: the client's address.
        creator: the principal for which a new group counts; see `GroupRoom`.
        requires_id: a new dynamic member must join again with its id (v4+).
        skips_assignment: the client understands `skip_assignment` in the answer (v9+).
        answer: called with the answer, at once or later.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    requires_id: bool
    skips_assignment: bool
    reason: str
    answer: Callable[[Joined], None]
    creator: str | None = None


class Joins:
    """Decides what the JoinGroup requests of members change in their groups.

    Args:
        store: stores a group; may raise a `BrokerError`.
        new_id: makes the random part of member ids.
    """

    def __init__(
        self,
        settings: GroupSettings,
        rebalances: Rebalances,
        store: Callable[[Group, bool], None],
        new_id: "Callable[[], UUID]",
    ) -> None:
        self._settings = settings
        self._rebalances = rebalances
        self._store = store
        self._new_id = new_id

    def join(self, group: Group, asked: JoinRequest, now: float) -> None:
        """Add the member to the next generation of ``group``, or answer the request at once.

        Raises:
            GroupMaxSizeReached, InconsistentGroupProtocol: the group cannot take the member.
            UnknownMemberId, FencedInstanceId: see `Group.member`.
            CoordinatorLoadInProgress, UnknownServerError: the restart of a static member could not be stored.
        """
        try:
            self.check(group, asked)
        except GroupMaxSizeReached:
            if (member := group.members.get(asked.member_id)) is not None:
                self._rebalances.drop(group, member)
                self._rebalances.rebalance(group, f"the group has no room for member {asked.member_id}", now)
            raise
        if not asked.member_id:
            self._begin(group, asked, now)
        elif asked.member_id in group.pending and asked.instance_id is None:
            self._add(group, asked.member_id, asked, now)
        else:
            self._rejoin(group, group.member(asked.member_id, asked.instance_id), asked, now)

    def check(self, group: Group, asked: JoinRequest) -> None:
        """Check whether a group can take a member.

        Raises:
            GroupMaxSizeReached, InconsistentGroupProtocol: it cannot.
        """
        if not self._has_room(group, asked):
            raise GroupMaxSizeReached(f"group {group.group_id} is full")
        if not group.supports(asked.protocol_type, asked.protocols):
            raise InconsistentGroupProtocol(f"group {group.group_id} has no protocol in common with this member")

    def _has_room(self, group: Group, asked: JoinRequest) -> bool:
        member = group.members.get(asked.member_id)
        new = size_of_names(asked.client_id, asked.instance_id) if member is None else -size_of(member.protocols)
        if group.size + new + size_of(asked.protocols) > self._settings.max_group_bytes:
            return False
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING:  # only members that have joined count, so the last to join are refused
            return bool(member and member.joining) or group.waiting < self._settings.max_members
        return member is not None or len(group.members) < self._settings.max_members

    def _begin(self, group: Group, asked: JoinRequest, now: float) -> None:
        """Handle a JoinGroup without a member id."""
        member_id = member_id_for(asked, self._new_id)
        if (holder := group.static_member(asked.instance_id)) is not None:
            self._replace(group, holder, member_id, asked, now)
        elif asked.instance_id is not None or not asked.requires_id:
            self._add(group, member_id, asked, now)
        else:
            if len(group.pending) >= self._settings.max_members:
                group.remove(next(iter(group.pending)))
            group.add_pending(member_id)
            deadline = now + asked.session_timeout_ms / 1000
            self._rebalances.expect(group, member_id, deadline)
            asked.answer(Joined(MemberIdRequired.code, member_id))

    def _add(self, group: Group, member_id: str, asked: JoinRequest, now: float) -> None:
        member = JoinedMember(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.client_host,
            asked.session_timeout_ms,
            asked.rebalance_timeout_ms,
            asked.protocols,
            joining=asked.answer,
            is_new=True,
        )
        group.add(member, asked.protocol_type)
        self._rebalances.renew(group, member, now, self._settings.new_member_timeout)
        self._rebalances.rebalance(group, _with_reason(f"member {member_id} joined", asked.reason), now)

    def _rejoin(self, group: Group, member: JoinedMember, asked: JoinRequest, now: float) -> None:
        """Handle the JoinGroup of a member of the group."""
        follows = group.state is GroupState.STABLE and member.member_id != group.leader
        if member.protocols == asked.protocols and (follows or group.state is GroupState.COMPLETING):
            asked.answer(group.described_to(member))  # the answer may have been lost
        else:
            self._update(group, member, asked)
            member.wait_to_join(asked.answer)
            self._rebalances.rebalance(group, _with_reason(f"member {member.member_id} rejoined", asked.reason), now)

    def _replace(self, group: Group, member: JoinedMember, member_id: str, asked: JoinRequest, now: float) -> None:
        """Handle the JoinGroup of a static member that was restarted."""
        log.info("static member %s restarted as %s", asked.instance_id, member_id, extra={"group": group.group_id})
        old_id, old_protocols, old_leader = member.member_id, member.protocols, group.leader or ""
        member.answer_join(Joined(FencedInstanceId.code, old_id))
        member.answer_sync(Synced(FencedInstanceId.code))
        self._rebalances.end_session(group, old_id)
        group.rename(member, member_id)
        self._update(group, member, asked)
        if group.state is not GroupState.STABLE or group.vote() != group.protocol:
            member.wait_to_join(asked.answer)
            self._rebalances.renew(group, member, now)
            self._rebalances.rebalance(group, _with_reason(f"static member {member_id} restarted", asked.reason), now)
            return
        try:
            self._store(group, False)
        except BrokerError as error:
            group.update(member, old_protocols)
            group.rename(member, old_id)
            self._rebalances.renew(group, member, now)
            raise as_coordinator_error(error) from None
        self._rebalances.renew(group, member, now)
        group.learn_subscriptions()
        if asked.skips_assignment:
            asked.answer(group.described_to(member, skip_assignment=member_id == group.leader))
        else:  # a restarted leader must take itself for a follower and not assign: the others do not rejoin
            asked.answer(group.described_to(member)._replace(leader=old_leader, members=()))

    def _update(self, group: Group, member: JoinedMember, asked: JoinRequest) -> None:
        """Take over timeouts and protocols of a member that rejoins."""
        member.answer_join(Joined(RebalanceInProgress.code, member.member_id))  # a request of an earlier connection
        group.update(member, asked.protocols)
        member.set_timeouts(asked.session_timeout_ms, asked.rebalance_timeout_ms)


def refusal(asked: JoinRequest, error: BrokerError) -> Joined:
    """Return the answer to a JoinGroup that a group cannot follow."""
    return Joined(error.code, "" if isinstance(error, GroupMaxSizeReached) else asked.member_id)


def member_id_for(asked: JoinRequest, new_id: "Callable[[], UUID]") -> str:
    """Make the id of a member that joins without one."""
    name = asked.instance_id or asked.client_id or "member"
    return f"{name[:_LONGEST_NAME]}-{new_id()}"


def _with_reason(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
