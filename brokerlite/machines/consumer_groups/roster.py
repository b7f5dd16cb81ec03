"""Keeps all consumer groups, stores their changes, and removes members.

Rules:
- A change is stored before the group takes it over. If the disk refuses, the group stays as it is, and the member gets
  COORDINATOR_LOAD_IN_PROGRESS; a member whose time is up is removed a little later, unless it is back by then.
- A group id belongs to one group, classic or not. A classic group without members makes room for a consumer group; one
  with members becomes a consumer group, if the migration policy allows it.

Source: GroupMetadataManager.java (getOrMaybeCreateConsumerGroup, validateOnlineUpgrade,
validateOnlineDowngradeWithFencedMembers, consumerGroupFenceMembers).
"""

import logging
from collections.abc import Collection, Iterable

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.consumer_group_log import ConsumerGroupLog, records_of, tombstones
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.consumer_groups.conversions import downgraded, upgraded
from ottla.brokerlite.machines.consumer_groups.member import (
    LEFT_FOR_A_WHILE,
    AssignedMember,
    MemberProgress,
    Partitions,
)
from ottla.brokerlite.machines.consumer_groups.reconciliation import Goal
from ottla.brokerlite.machines.consumer_groups.sessions import Due, Sessions
from ottla.brokerlite.machines.consumer_groups.target import Targets
from ottla.brokerlite.machines.groups.group import CONSUMER, Group
from ottla.brokerlite.machines.groups.group_room import GroupRoom
from ottla.brokerlite.machines.groups.groups import Groups
from ottla.brokerlite.machines.groups.rebalances import as_coordinator_error
from ottla.brokerlite.machines.topics.topics import Topics
from ottla.errors import (
    BrokerError,
    DecodeError,
    GroupIdNotFound,
    GroupMaxSizeReached,
)

log = logging.getLogger("ottla.brokerlite.groups")

_AGAIN = 1.0
"""Seconds until a member is removed whose removal the disk refused."""


class Roster:
    """All consumer groups.

    Args:
        classic: the coordinator of classic groups, which hands over groups and takes them back.

    Attributes:
        by_id: the groups, including groups loaded at the start.
        sessions: the timers of the members.
    """

    def __init__(
        self, settings: ConsumerGroupSettings, topics: Topics, stored: ConsumerGroupLog, classic: Groups, clock: Clock
    ) -> None:
        self.settings = settings
        self.by_id: dict[str, ConsumerGroup] = {}
        self._room = GroupRoom(self.by_id, settings.max_groups, ConsumerGroup.kind, clock, classic.timers)
        self.topics = topics
        self.targets = Targets(settings, topics)
        self.sessions = Sessions(classic.timers, self._time_out)
        self._stored = stored
        self._classic = classic
        self._clock = clock

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.timestamp

    # -- finding groups

    def find(self, group_id: str) -> ConsumerGroup:
        """Return a group.

        Raises:
            GroupIdNotFound: there is no such group, or it is a classic one.
        """
        if (group := self.by_id.get(group_id)) is not None:
            return group
        if group_id in self._classic.by_id:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        raise GroupIdNotFound(f"Group {group_id} not found.")

    def open(self, group_id: str, *, joining: bool, creator: str | None) -> Change:
        """Return an empty change of a group; a member that joins creates it, or converts a classic one.

        Args:
            creator: the principal for which a new group counts; one that was classic keeps its own.

        Raises:
            GroupIdNotFound: there is no such group, or it is a classic group and stays classic.
            CoordinatorNotAvailable, PolicyViolation: see `GroupRoom.check`.
        """
        if (group := self.by_id.get(group_id)) is not None:
            return Change(group)
        classic = self._classic.by_id.get(group_id)
        if not joining:
            kind = f"Group {group_id} is not a consumer group." if classic else f"Consumer group {group_id} not found."
            raise GroupIdNotFound(kind)
        if classic is not None:
            creator = classic.creator
        self._room.check(group_id, creator)
        if classic is None or classic.is_empty:
            return Change(ConsumerGroup(group_id, creator), classic)
        self._check_upgrade(classic)
        made = upgraded(classic, self.topics)
        before = list(records_of(made))
        made.group.apply(made)
        return Change(made.group, classic, before)

    def _check_upgrade(self, classic: Group) -> None:
        why = f"Cannot upgrade classic group {classic.group_id} to consumer group because"
        if not self.settings.migration_policy.upgrades:
            raise GroupIdNotFound(f"{why} online upgrade is disabled.")
        if classic.protocol_type != CONSUMER:
            raise GroupIdNotFound(f"{why} the group does not use the consumer embedded protocol.")
        if len(classic.members) > self.settings.max_members:
            raise GroupIdNotFound(f"{why} the group size exceeds the consumer group maximum size.")

    def check_room(self, change: Change, member_id: str, member: AssignedMember | None = None) -> None:
        """Check that a group has room for a member.

        Raises:
            GroupMaxSizeReached: it has not.
        """
        group, most = change.group, self.settings.max_members
        known = group.members.get(member_id)
        if len(group.members) >= most and known is None:
            raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {most} members.")
        size = group.size - (known.size if known else 0) + (member.size if member else 0)
        if member is not None and size > self.settings.max_group_bytes:
            raise GroupMaxSizeReached(f"the members of group {group.group_id} take more memory than this broker allows")

    def goal(
        self, change: Change, member: AssignedMember, has: Partitions | None, *, subscription_changed: bool
    ) -> Goal:
        """Return where a member is to be led."""
        return Goal(
            epoch=change.target_epoch,
            target=change.target_of(member.member_id) or {},
            subscribed=self.targets.topic_ids(change, member),
            subscription_changed=subscription_changed,
            has=has,
            is_owned=change.group.is_owned,
        )

    # -- changing groups

    def commit(self, change: Change, now: float) -> None:
        """Store a change, and let its group take it over.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: it could not be stored.
        """
        group = change.group
        self._write([*change.before, *records_of(change)], ends=change.replaces)
        if change.replaces is not None:
            self._classic.give_up(change.replaces)
            log.info("classic group became a consumer group", extra={"group": group.group_id})
            self._begin_sessions(group.members.values(), group.group_id, now)
        for member_id, member in change.members.items():
            if member is None:
                self.sessions.end(group.group_id, member_id)
        if change.epoch != group.epoch:
            extra = {"group": group.group_id, "members": len(change.all_members())}
            log.info("epoch %d begins", change.epoch, extra=extra)
        group.apply(change)
        if group.group_id not in self.by_id:
            self._room.add(group)
            self._classic.note_created(now)

    def _write(
        self, pairs: Iterable[tuple[bytes, bytes | None]], *, ends: Group | None = None, begins: Group | None = None
    ) -> None:
        try:
            self._stored.write(pairs, ends=ends, begins=begins)
        except BrokerError as error:
            raise as_coordinator_error(error) from error

    def remove(self, group: ConsumerGroup) -> None:
        """Forget a group without members.

        Raises:
            BrokerError: the disk refused; the group stays.
        """
        self._stored.write(tombstones(group))
        self._room.remove(group)

    def make_way(self, group: ConsumerGroup) -> None:
        """Forget a group without members, because a member makes it a classic one.

        Raises:
            CoordinatorLoadInProgress: the disk refused; the group stays.
        """
        try:
            self.remove(group)
        except BrokerError as error:
            raise as_coordinator_error(error) from error

    def fence(self, group: ConsumerGroup, leaving: Collection[AssignedMember], now: float) -> None:
        """Remove members. If only members of the classic protocol stay, the group becomes a classic one.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: the disk refused; they stay.
        """
        gone = {member.member_id for member in leaving}
        if self._becomes_classic(group, gone) and self.downgrade(Change(group), gone, now, rebalance=True):
            return
        change = Change(group)
        for member in leaving:
            change.remove(member.member_id)
        self.targets.drop_patterns(change)
        self.targets.raise_epoch(change, needed=True)
        self.commit(change, now)

    def _becomes_classic(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        staying = [member for member_id, member in group.members.items() if member_id not in leaving]
        if not staying or any(member.classic is None for member in staying):
            return False
        # One of the leaving members used the new protocol; else the group would have been a classic one before.
        if all(group.members[member_id].classic is not None for member_id in leaving):
            return False
        return self.may_downgrade(group, len(staying))

    def may_downgrade(self, group: ConsumerGroup, members: int) -> bool:
        """Whether a group may become one of so many classic members; otherwise it stays as it is."""
        classic = self._classic
        has_room = members <= classic.settings.max_members and classic.room.has_room(group.creator)
        return self.settings.migration_policy.downgrades and has_room

    def downgrade(self, change: Change, leaving: Collection[str], now: float, *, rebalance: bool) -> bool:
        """Make a classic group of the members that stay; return whether that was possible.

        Args:
            rebalance: they must join again, for example because no one has the partitions of a member that leaves.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: the disk refused; the group stays as it is.
        """
        group = change.group
        try:
            classic = downgraded(change, self.topics, set(leaving), self.timestamp, rebalance=rebalance)
        except DecodeError:
            log.warning(
                "group not downgraded: its members' subscriptions are malformed", extra={"group": group.group_id}
            )
            return False
        self._write(tombstones(group), begins=classic)
        for member_id in group.members:
            self.sessions.end(group.group_id, member_id)
        self._room.remove(group)
        log.info("consumer group became a classic group", extra={"group": group.group_id})
        self._classic.adopt(classic, now)
        return True

    # -- time

    def resume(self, now: float) -> None:
        """After a start, begin a new session for each stored member."""
        for group in self.by_id.values():
            self._begin_sessions(group.members.values(), group.group_id, now)
            for member in group.members.values():
                revokes = member.state is MemberProgress.UNREVOKED and member.classic is None
                if revokes and member.epoch != LEFT_FOR_A_WHILE:
                    self.sessions.await_revocation(group.group_id, member, now)

    def _begin_sessions(self, members: Iterable[AssignedMember], group_id: str, now: float) -> None:
        for member in members:
            self.renew(group_id, member, now)

    def renew(self, group_id: str, member: AssignedMember, now: float) -> None:
        """Begin or prolong the session of a member."""
        timeout = member.classic.session_timeout_ms / 1000 if member.classic else self.settings.session_timeout
        self.sessions.renew(group_id, member.member_id, now + timeout)

    def _time_out(self, due: Due, now: float) -> None:
        group = self.by_id.get(due.group_id)
        member = None if group is None else group.members.get(due.member_id)
        if group is None or member is None or due.epoch not in (None, member.epoch):
            return
        log.info("member %s removed: %s", due.member_id, due.why, extra={"group": due.group_id})
        try:
            self.fence(group, [member], now)
        except BrokerError as error:
            log.warning("member not removed yet, retrying: %s", error.detail, extra={"group": due.group_id})
            self.sessions.again(due, now + _AGAIN)
