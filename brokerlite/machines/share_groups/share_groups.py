"""The coordinator of share groups: takes the heartbeats of their members, and answers with their partitions.

    groups.heartbeat(asked, now)   # joins a member, keeps it, or lets it leave; answers at once, or raises

Rules:
- A change is stored before the group takes it over. If the disk refuses, the group stays as it is, and the member gets
  COORDINATOR_LOAD_IN_PROGRESS; a member whose session has timed out is removed a little later.
- The state of a share partition is initialized before the partition is assigned. Apache Kafka does that between two
  heartbeats, so its members get their partitions with the second one, in a later epoch.
- A group keeps its state when its last member leaves, until it is deleted.
- Everything is bounded: groups, their members, the bytes of the members' own data, and all share partitions.

Source: GroupMetadataManager.java (shareGroupHeartbeat, shareGroupLeave), GroupCoordinatorService.java
(throwIfShareGroupHeartbeatRequestIsInvalid, alterShareGroupOffsets, deleteShareGroupOffsets).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.consumer_groups.member import Partitions
from ottla.brokerlite.machines.consumer_groups.subscriptions import hash_of, ids_of
from ottla.brokerlite.machines.groups.group_room import GroupRoom
from ottla.brokerlite.machines.groups.rebalances import as_coordinator_error
from ottla.brokerlite.machines.share_groups import share_assignor
from ottla.brokerlite.machines.share_groups.share_group import (
    AssignedShareMember,
    InitializedTopic,
    ShareChange,
    ShareGroup,
)
from ottla.brokerlite.machines.share_groups.share_group_log import records_of, tombstones
from ottla.brokerlite.machines.share_partitions.share_group_configs import ShareGroupConfigs
from ottla.brokerlite.machines.share_partitions.share_partitions import SharePartitions
from ottla.brokerlite.machines.share_partitions.stored_state import UNDECIDED, ShareKey
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, Pair
from ottla.brokerlite.machines.topics.topics import TopicLogs, Topics
from ottla.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    NotCoordinator,
)

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")

JOIN, LEAVE = 0, -1
"""Epochs that a heartbeat may name, besides the member's own."""
_AGAIN = 1.0
"""Seconds until a member is removed whose removal the disk refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat request; ``None`` stands for unchanged values.

    Attributes:
        creator: the principal for which a new group counts; see `GroupRoom`.
    """

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    creator: str | None = None


class ShareBeaten(NamedTuple):
    """The answer to a heartbeat.

    Attributes:
        assigned: all partitions of the member; ``None``: as before.
    """

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


class ShareGroups:
    """Takes the heartbeats of the members of all share groups.

    Args:
        log: the log of all groups.
        partitions: the share partitions, whose states this coordinator initializes and deletes.

    Attributes:
        by_id: the groups, including groups loaded at the start.
    """

    def __init__(
        self,
        configs: ShareGroupConfigs,
        topics: Topics,
        log: KeyedLog,
        partitions: SharePartitions,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.by_id: dict[str, ShareGroup] = {}
        self._configs = configs
        self._settings = configs.settings
        self._room = GroupRoom(self.by_id, configs.settings.max_groups, ShareGroup.kind, clock, timers)
        self._topics = topics
        self._log = log
        self._partitions = partitions
        self._states = partitions.states
        self._clock = clock
        self._timers = timers
        self._draining = False

    def drain(self) -> None:
        """From now on, answer NOT_COORDINATOR."""
        self._draining = True

    def find(self, group_id: str) -> ShareGroup:
        """Return a group.

        Raises:
            GroupIdNotFound: there is no such share group.
        """
        if (group := self.by_id.get(group_id)) is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    # -- heartbeats

    def heartbeat(self, asked: ShareHeartbeat, now: float) -> ShareBeaten:
        """Add a member, keep it, or let it leave; return its epoch and its partitions.

        Raises:
            InvalidRequest: the request is incomplete.
            UnknownMemberId, FencedMemberEpoch: the member must join again.
            GroupIdNotFound, GroupMaxSizeReached: there is no such group, or no room for a member.
            CoordinatorNotAvailable, PolicyViolation: there is no room for a group.
            CoordinatorLoadInProgress, NotCoordinator: the member must ask again.
        """
        if self._draining:
            raise NotCoordinator
        _check(asked)
        if asked.epoch == LEAVE:
            return self._leave(asked, now)
        if asked.epoch != JOIN and asked.group_id not in self.by_id:
            raise GroupIdNotFound(f"Share group {asked.group_id} not found.")
        group = self.open(asked.group_id, asked.creator)
        member = self._find(group, asked)
        told = replace(
            member,
            rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
            topics=member.topics if asked.topics is None else asked.topics,
            client_id=asked.client_id,
            client_host=asked.client_host,
        )
        self._check_size(group, told)
        change = ShareChange(group)
        change.put(told)
        self._bring_up_to_date(change, needed=told.topics != member.topics)
        led = told.follow(
            change.target_epoch,
            change.target_of(told.member_id) or {},
            ids_of(told.topics, self._topics),
        )
        change.put(led)
        self._commit(change)
        self._renew(asked.group_id, told.member_id, now)
        # A member that did not get the last answer repeats the heartbeat with its topics.
        tells = asked.epoch == JOIN or asked.topics is not None or led.assigned != member.assigned
        interval = self._configs.heartbeat_interval(asked.group_id)
        return ShareBeaten(
            led.member_id,
            led.epoch,
            round(interval * 1000),
            led.assigned if tells else None,
        )

    def open(self, group_id: str, creator: str | None) -> ShareGroup:
        """Return a group, or a new one, which exists once it is stored, and counts for ``creator``.

        Raises:
            CoordinatorNotAvailable, PolicyViolation: see `GroupRoom.check`.
        """
        if (group := self.by_id.get(group_id)) is not None:
            return group
        self._room.check(group_id, creator)
        return ShareGroup(group_id, creator)

    def _find(self, group: ShareGroup, asked: ShareHeartbeat) -> AssignedShareMember:
        """Return the member of a request, or a new one if it joins."""
        most = self._settings.max_members
        if asked.member_id not in group.members and len(group.members) >= most:
            raise GroupMaxSizeReached(f"The share group has reached its maximum capacity of {most} members.")
        if asked.epoch == JOIN:
            return group.members.get(asked.member_id) or AssignedShareMember(member_id=asked.member_id)
        member = group.member(asked.member_id)
        member.check_epoch(asked.epoch)
        return member

    def _check_size(self, group: ShareGroup, told: AssignedShareMember) -> None:
        known = group.members.get(told.member_id)
        if group.size - (known.size if known else 0) + told.size > self._settings.max_group_bytes:
            raise GroupMaxSizeReached(f"the members of group {group.group_id} take more memory than this broker allows")

    def _bring_up_to_date(self, change: ShareChange, *, needed: bool) -> None:
        """Initialize share partitions, raise the epoch and compute the target assignment, as far as it is needed."""
        if not needed and change.topics_version == self._topics.version and change.target_epoch == change.epoch:
            return
        names = change.subscribed()
        topics = [self._topics.by_name[name] for name in sorted(names) if name in self._topics.by_name]
        initialized = self._initialize(change.group, topics)
        change.initialize(initialized)
        topics_hash = hash_of(names, self._topics)
        if needed or topics_hash != change.topics_hash:
            change.raise_epoch(topics_hash)
        change.mark_refreshed(self._topics.version)
        if change.target_epoch == change.epoch:
            return
        members = change.all_members()
        target = share_assignor.assign(
            {member_id: ids_of(member.topics, self._topics) for member_id, member in members.items()},
            {member_id: change.target_of(member_id) or {} for member_id in members},
            {topic.topic_id: range(len(topic.partitions)) for topic in topics},
        )
        change.set_target(target, self._clock.timestamp)
        extra = {"group": change.group.group_id, "members": len(members)}
        log.info("target assignment of epoch %d computed", change.epoch, extra=extra)

    def _initialize(self, group: ShareGroup, topics: Iterable[TopicLogs]) -> "dict[UUID, InitializedTopic]":
        """Store a state for the share partitions that have none; return the topics that have changed by that."""
        found: dict[UUID, InitializedTopic] = {}
        new: dict[ShareKey, int] = {}
        for topic in topics:
            all_partitions = frozenset(range(len(topic.partitions)))
            known = group.initialized.get(topic.topic_id)
            if known is None or known.partitions != all_partitions:
                found[topic.topic_id] = InitializedTopic(topic.name, all_partitions)
                keys = (ShareKey(group.group_id, topic.topic_id, partition) for partition in sorted(all_partitions))
                new.update((key, UNDECIDED) for key in keys if self._states.get(key) is None)
        if len(self._states) + len(new) > self._settings.max_share_partitions:
            log.warning(
                "subscription refused: the broker has %d share partitions, and may have %d",
                len(self._states),
                self._settings.max_share_partitions,
                extra={"group": group.group_id},
            )
            raise CoordinatorNotAvailable(f"this broker has {len(self._states)} share partitions already")
        self._initialize_states(new, group.epoch)
        return found

    def _initialize_states(self, starts: Mapping[ShareKey, int], epoch: int) -> None:
        try:
            self._states.initialize(starts, epoch)
        except BrokerError as error:
            raise as_coordinator_error(error) from error

    def _commit(self, change: ShareChange) -> None:
        """Store a change, and let its group take it over.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: it could not be stored.
        """
        group = change.group
        self._write(list(records_of(change)))
        if change.epoch != group.epoch:
            extra = {"group": group.group_id, "members": len(change.all_members())}
            log.info("epoch %d begins", change.epoch, extra=extra)
        group.apply(change)
        if group.group_id not in self.by_id:
            self._room.add(group)

    def _write(self, pairs: list[Pair]) -> None:
        try:
            if pairs:
                self._log.write(pairs)
        except BrokerError as error:
            raise as_coordinator_error(error) from error

    # -- leaving

    def _leave(self, asked: ShareHeartbeat, now: float) -> ShareBeaten:
        group = self.by_id.get(asked.group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {asked.group_id} not found.")
        group.member(asked.member_id)
        log.info("member %s left", asked.member_id, extra={"group": asked.group_id})
        self._remove_member(group, asked.member_id)
        return ShareBeaten(asked.member_id, LEAVE)

    def _remove_member(self, group: ShareGroup, member_id: str) -> None:
        change = ShareChange(group)
        change.remove(member_id)
        change.raise_epoch(hash_of(change.subscribed(), self._topics))
        self._commit(change)
        self._timers.cancel(_timer(group.group_id, member_id))

    def _renew(self, group_id: str, member_id: str, now: float) -> None:
        deadline = now + self._configs.session_timeout(group_id)
        self._timers.set(_timer(group_id, member_id), deadline, partial(self._time_out, group_id, member_id))

    def _time_out(self, group_id: str, member_id: str, now: float) -> None:
        group = self.by_id.get(group_id)
        if group is None or member_id not in group.members:
            return
        log.info("member %s removed: its session timed out", member_id, extra={"group": group_id})
        try:
            self._remove_member(group, member_id)
        except BrokerError as error:
            log.warning("member not removed yet, retrying: %s", error.detail, extra={"group": group_id})
            self._timers.set(_timer(group_id, member_id), now + _AGAIN, partial(self._time_out, group_id, member_id))

    def resume(self, now: float) -> None:
        """After a start, begin a new session for each stored member, and finish deletions that a kill interrupted."""
        for group in self.by_id.values():
            for member_id in group.members:
                self._renew(group.group_id, member_id, now)
        for topic_id in dict.fromkeys(topic_id for group in self.by_id.values() for topic_id in group.initialized):
            if self._is_deleted(topic_id):
                self.topic_deleted(topic_id)
        for group in self.by_id.values():
            # The states go first, and the group's record of them afterwards: otherwise the group got no new ones.
            lost = [key for key in group.share_keys() if self._states.get(key) is None]
            if lost:
                self._forget(group, lost)
        self._delete_unused_states()

    def _is_deleted(self, topic_id: "UUID") -> bool:
        unserved = self._topics.unserved.values()
        return topic_id not in self._topics.by_id and all(each.topic_id != topic_id for each in unserved)

    def _forget_progress(self, group: ShareGroup, topic_ids: "Iterable[UUID]") -> None:
        try:
            self.delete_offsets(group, topic_ids)
        except BrokerError as error:
            log.error(
                "removing the progress of a share group failed: %s", error.detail, extra={"group": group.group_id}
            )

    def _forget(self, group: ShareGroup, lost: Iterable[ShareKey]) -> None:
        """Note that share partitions have no state, so that the next heartbeat initializes them."""
        change = ShareChange(group)
        for key in lost:
            known = change.initialized[key.topic_id]
            change.initialize({key.topic_id: known._replace(partitions=known.partitions - {key.partition})})
        try:
            self._commit(change)
        except BrokerError as error:
            extra = {"group": group.group_id}
            log.error("removing the progress of a share group failed: %s", error.detail, extra=extra)

    def _delete_unused_states(self) -> None:
        """Delete states that were initialized before a kill, without the record of their group.

        States with progress stay: if the group's records are damaged, the group goes on there once a member joins.
        """
        known = {key for group in self.by_id.values() for key in group.share_keys()}
        states = [(key, self._states.get(key)) for key in self._states if key not in known]
        unused = [key for key, state in states if state is not None and state.start_offset == UNDECIDED]
        try:
            self._delete_states(unused)
        except BrokerError as error:
            log.error("deleting %d unused states of share partitions failed: %s", len(unused), error.detail)

    # -- the progress of a group

    def set_offsets(self, group: ShareGroup, topics: Sequence[tuple[TopicLogs, Mapping[int, int]]]) -> None:
        """Let a group without members start at these offsets.

        Args:
            topics: each topic with its partitions, which exist, and their start offsets.

        Raises:
            CoordinatorNotAvailable: there are too many share partitions.
            CoordinatorLoadInProgress, UnknownServerError: the disk refused.
        """
        starts = {
            ShareKey(group.group_id, topic.topic_id, partition): offset
            for topic, offsets in topics
            for partition, offset in offsets.items()
        }
        new = sum(self._states.get(key) is None for key in starts)
        if len(self._states) + new > self._settings.max_share_partitions:
            raise CoordinatorNotAvailable(f"this broker has {len(self._states)} share partitions already")
        change = ShareChange(group)
        change.raise_epoch(change.topics_hash)
        self._initialize_states(starts, change.epoch)
        self._partitions.forget(starts)
        known = change.initialized
        change.initialize(
            {
                topic.topic_id: InitializedTopic(
                    topic.name,
                    frozenset(offsets) | (known[topic.topic_id].partitions if topic.topic_id in known else frozenset()),
                )
                for topic, offsets in topics
            }
        )
        self._commit(change)

    def delete_offsets(self, group: ShareGroup, topic_ids: "Iterable[UUID]") -> None:
        """Delete the state of a group without members for whole topics.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: the disk refused.
        """
        gone = list(topic_ids)
        self._delete_states(group.share_keys(gone))
        change = ShareChange(group)
        change.forget_topics(gone)
        self._commit(change)

    def _delete_states(self, keys: list[ShareKey]) -> None:
        try:
            self._states.delete(keys)
        except BrokerError as error:
            raise as_coordinator_error(error) from error
        self._partitions.forget(keys)

    def remove(self, group: ShareGroup) -> None:
        """Forget a group without members, and its progress.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: the disk refused; the group stays.
        """
        self._delete_states(group.share_keys())
        self._write(list(tombstones(group)))
        self._room.remove(group)

    def topic_deleted(self, topic_id: "UUID") -> None:
        """Forget the progress of all groups in a deleted topic."""
        for group in self.by_id.values():
            if topic_id in group.initialized:
                self._forget_progress(group, (topic_id,))


def _timer(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "share group", group_id, member_id


def _check(asked: ShareHeartbeat) -> None:
    """Check the fields that are required whatever the state of the group."""
    _check_text("MemberId", asked.member_id)
    _check_text("GroupId", asked.group_id)
    _check_text("RackId", asked.rack_id)
    if asked.epoch == JOIN and not asked.topics:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    if asked.epoch < LEAVE:
        raise InvalidRequest("MemberEpoch is invalid.")


def _check_text(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise InvalidRequest(f"{name} can't be empty.")
