"""Leads groups from one generation to the next, and ends the sessions of members that are silent.

Rules:
- A rebalance waits until every member has joined, at most for the longest rebalance timeout; members that are still
  missing are removed, except static ones. The first rebalance of an empty group waits for `initial_rebalance_delay`,
  and for another delay whenever a member joined meanwhile. After the join all members must send SyncGroup within the
  longest rebalance timeout.
- A member whose session times out is removed, unless its JoinGroup or SyncGroup is waiting here.
- An assignment is stored before any member gets it. While the disk refuses, the members wait, because a rebalance would
  end no better.

Source: GroupMetadataManager.java (prepareRebalance, completeClassicGroupJoin, expirePendingSync,
removeMemberAndUpdateClassicGroup).
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.groups.group import Group, GroupInput, GroupState, Joined, JoinedMember, Synced
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.timers import Timers
from ottla.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    KafkaStorageError,
    MessageTooLarge,
    RebalanceInProgress,
    RecordListTooLarge,
    UnknownMemberId,
    UnknownServerError,
)

log = logging.getLogger("ottla.brokerlite.groups")

_STORE_AGAIN = 1.0
"""Seconds until an assignment that the disk refused is stored again."""
_LEAST_PATIENCE = 1.0
"""The least seconds between two checks of a group of absent static members, if their rebalance timeout is shorter."""


class Rebalances:
    """Changes the states of groups: members join and leave a generation, get its assignment, and time out.

    Args:
        store: stores a group; may raise a `BrokerError`.
    """

    def __init__(
        self, settings: GroupSettings, store: Callable[[Group, bool], None], clock: Clock, timers: Timers
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._timers = timers

    # -- rebalances

    def rebalance(self, group: Group, reason: str, now: float) -> None:
        """Begin a rebalance, or complete the current one if all members have joined."""
        if not group.can_rebalance:
            self.try_complete_join(group, now)
            return
        log.info("rebalance: %s", reason, extra={"group": group.group_id, "generation": group.generation})
        if group.state is GroupState.COMPLETING:
            self._answer_syncs(group, RebalanceInProgress.code, now)
        self._timers.cancel(("sync", group.group_id))
        self._timers.cancel(("assign", group.group_id))
        first = group.state is GroupState.EMPTY
        group.begin_rebalance(self._clock.timestamp)
        if first:
            delay = self._settings.initial_rebalance_delay
            self._wait_for_others(group, delay, max(group.rebalance_timeout - delay, 0.0), now)
        elif group.all_joined:
            self._complete_join(group, now)
        else:
            self._timers.set(
                ("join", group.group_id), now + group.rebalance_timeout, partial(self._complete_join, group)
            )

    def _wait_for_others(self, group: Group, delay: float, remaining: float, now: float) -> None:
        """Wait ``delay`` seconds in the first rebalance of an empty group, and up to ``remaining`` if members join."""

        def over(now: float) -> None:
            if group.take_growth() and remaining > 0:
                more = min(self._settings.initial_rebalance_delay, remaining)
                self._wait_for_others(group, more, max(remaining - more, 0.0), now)
            else:
                self._complete_join(group, now)

        self._timers.set(("join", group.group_id), now + delay, over)

    def try_complete_join(self, group: Group, now: float) -> None:
        """Complete the join if all members have joined, unless the first rebalance waits for more members."""
        if group.state is GroupState.PREPARING and group.previous is not GroupState.EMPTY and group.all_joined:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: float) -> None:
        """Begin the next generation with the members that have joined."""
        self._timers.cancel(("join", group.group_id))
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                log.info("member %s did not rejoin in time", member.member_id, extra={"group": group.group_id})
                self.drop(group, member)
        if not group.elect() and group.members:  # only absent static members: they rejoin, or their sessions time out
            patience = max(group.rebalance_timeout, _LEAST_PATIENCE)
            self._timers.set(("join", group.group_id), now + patience, partial(self._complete_join, group))
            return
        group.next_generation(self._clock.timestamp)
        extra = {"group": group.group_id, "members": len(group.members)}
        log.info("generation %d begins", group.generation, extra=extra)
        if group.state is GroupState.EMPTY:
            try:
                self._store(group, False)
            except BrokerError as error:  # after a restart the last generation is back, until its sessions time out
                log.warning("storing an empty group failed: %s", error, extra={"group": group.group_id})
            return
        for member in group.members.values():
            member.begin_generation(group.described_to(member))
            self.renew(group, member, now)
        self._timers.set(
            ("sync", group.group_id),
            now + group.rebalance_timeout,
            partial(self._end_sync, group, group.generation),
        )

    def _end_sync(self, group: Group, generation: int, now: float) -> None:
        """Remove the members that have not sent SyncGroup in time."""
        if generation != group.generation or not group.unsynced:
            return
        late = list(group.unsynced)
        for member_id in late:
            self.drop(group, group.members[member_id])
        self.rebalance(group, f"members did not sync in time: {', '.join(late)}", now)

    # -- assignments

    def note_sync(self, group: Group, member: JoinedMember) -> None:
        """Notice that a member has sent SyncGroup."""
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self._timers.cancel(("sync", group.group_id))

    def assign(self, group: Group, assignments: Mapping[str, bytes], now: float) -> None:
        """Store the leader's assignment, then answer all members."""
        for member in group.members.values():
            member.set_assignment(assignments.get(member.member_id, b""))
        self._store_assignment(group, now)

    def _store_assignment(self, group: Group, now: float, *, waited: bool = False) -> None:
        again = ("assign", group.group_id)
        try:
            if sum(len(member.assignment) for member in group.members.values()) > self._settings.max_group_bytes:
                raise UnknownServerError("the assignment is larger than this broker allows")
            self._store(group, False)
        except KafkaStorageError as error:
            if not waited:
                log.warning("assignment not stored yet, retrying: %s", error.detail, extra={"group": group.group_id})
            self._timers.set(again, now + _STORE_AGAIN, partial(self._store_assignment, group, waited=True))
            return
        except BrokerError as error:
            log.error("storing an assignment failed: %s", error, extra={"group": group.group_id})
            self._answer_syncs(group, as_coordinator_error(error).code, now)
            self.rebalance(group, "the assignment could not be stored", now)
            return
        self._timers.cancel(again)
        group.go(GroupInput.ASSIGNED, self._clock.timestamp)
        for member in group.members.values():
            if member.answer_sync(group.assigned_to(member)):
                self.renew(group, member, now)

    def _answer_syncs(self, group: Group, error: int, now: float) -> None:
        """Answer waiting SyncGroups with an error: this generation gets no assignment."""
        for member in group.members.values():
            member.set_assignment(b"")
            if member.answer_sync(Synced(error)):
                self.renew(group, member, now)

    # -- sessions

    def renew(self, group: Group, member: JoinedMember, now: float, timeout: float | None = None) -> None:
        """Begin a member's session, or prolong it.

        Args:
            timeout: seconds; by default the member's session timeout.
        """
        deadline = now + (member.session_timeout_ms / 1000 if timeout is None else timeout)
        self.expect(group, member.member_id, deadline)

    def expect(self, group: Group, member_id: str, deadline: float) -> None:
        """Remove a member or a pending id at ``deadline``, unless `renew` prolongs its session."""
        self._timers.set(("session", group.group_id, member_id), deadline, partial(self._time_out, group, member_id))

    def end_session(self, group: Group, member_id: str) -> None:
        """Forget the session of a member id that is no longer used."""
        self._timers.cancel(("session", group.group_id, member_id))

    def abandon(self, group: Group) -> None:
        """Forget a group's timers; waiting members hear that they must join again, elsewhere."""
        for kind in ("join", "sync", "assign"):
            self._timers.cancel((kind, group.group_id))
        for member in group.members.values():
            member.answer_join(Joined(RebalanceInProgress.code, member.member_id))
            member.answer_sync(Synced(RebalanceInProgress.code))
            self.end_session(group, member.member_id)
        for member_id in group.pending:
            self.end_session(group, member_id)

    def forget(self, group: Group) -> None:
        """Forget the timers of a group without members."""
        self._timers.cancel(("join", group.group_id))
        for member_id in group.pending:
            self.end_session(group, member_id)

    def _time_out(self, group: Group, member_id: str, now: float) -> None:
        """Remove a member whose session timed out."""
        if member_id in group.pending:
            group.remove(member_id)
        elif (member := group.members.get(member_id)) is not None:
            if not member.is_new and (member.joining or member.syncing):
                return  # it waits for the broker's answer, so it cannot send heartbeats
            log.info("member %s timed out", member_id, extra={"group": group.group_id})
            self.drop(group, member)
            if group.can_rebalance:
                self.rebalance(group, f"member {member_id} timed out", now)
        if group.state is GroupState.PREPARING and group.all_joined:
            self._complete_join(group, now)

    def drop(self, group: Group, member: JoinedMember) -> None:
        """Remove a member, and answer its waiting requests with UNKNOWN_MEMBER_ID."""
        self.end_session(group, member.member_id)
        member.answer_join(Joined(UnknownMemberId.code))
        member.answer_sync(Synced(UnknownMemberId.code))
        group.remove(member.member_id)


def as_coordinator_error(error: BrokerError) -> BrokerError:
    """Return the error that members get for an error of the log."""
    if isinstance(error, KafkaStorageError):
        return CoordinatorLoadInProgress(error.detail)
    return UnknownServerError(error.detail) if isinstance(error, MessageTooLarge | RecordListTooLarge) else error
