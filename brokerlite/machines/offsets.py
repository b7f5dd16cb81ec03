"""Committed offsets: who may commit and ask, and when they expire.

Rules:
- A member commits in its generation, which counts as a heartbeat; while the leader assigns nobody may. Who is no member
  (generation -1, no member id) may commit while the group has no members; such a group may be made by its first commit.
- The last commit counts, also if it goes back.
- Offsets expire `offsets_retention` after their group became empty. While a consumer group is stable, those of topics
  that nobody in it subscribes to expire that long after their commit, as do those of groups that never had members.
  An empty group without offsets goes with them.
- With a topic go its offsets.
- Everything is stored before it is answered.

Source: OffsetMetadataManager.java; ClassicGroup.java (validateOffsetCommit, validateOffsetDelete,
offsetExpirationCondition).
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from ottla.brokerlite.machines.group import CONSUMER, Committed, Group, State
from ottla.brokerlite.machines.groups import Groups
from ottla.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)

log = logging.getLogger("ottla.brokerlite.groups")

Place = tuple[str, int]
"""A topic's name and a partition."""

GROUP_ID_NOT_FOUND_SINCE = 9
"""The version of OffsetCommit that says so; before, an unknown group is an illegal generation."""


class Offsets:
    """The committed offsets of all groups; they lie in `Group.offsets`.

    Args:
        store: keeps offsets of a group; ``None`` forgets one. May raise a `BrokerError`.
    """

    def __init__(self, groups: Groups, store: Callable[[Group, Mapping[Place, Committed | None]], None]) -> None:
        self._groups = groups
        self._store = store
        groups.created = self.watch

    def may_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int, now: float
    ) -> Group:
        """The group, for somebody who may commit to it.

        Args:
            version: of OffsetCommit.

        Raises:
            GroupIdNotFound, IllegalGeneration, UnknownMemberId, FencedInstanceId, RebalanceInProgress,
            CoordinatorNotAvailable: as the rules say.
        """
        group = self._groups.by_id.get(group_id)
        if group is None:
            if generation >= 0:
                error = GroupIdNotFound if version >= GROUP_ID_NOT_FOUND_SINCE else IllegalGeneration
                raise error(f"there is no group {group_id}")
            return self._groups.get_or_create(group_id, now)
        if generation < 0 and group.state is State.EMPTY:
            return group
        if generation < 0 and not member_id and instance_id is None:
            raise UnknownMemberId(f"group {group_id} has members, and only they may commit")
        group.member(member_id, instance_id, generation)
        if group.state is State.COMPLETING:
            raise RebalanceInProgress(f"group {group_id} waits for its leader")
        self._groups.renew(group, member_id, now)
        return group

    def commit(self, group: Group, offsets: Mapping[Place, Committed]) -> None:
        """Keep offsets of a group that `may_commit` gave.

        Raises:
            CoordinatorNotAvailable: they could not be stored.
        """
        self._write(group, offsets)

    def delete(self, group_id: str, places: Iterable[Place]) -> dict[Place, bool]:
        """Forget offsets; the places, and whether each could be forgotten (no member subscribes to its topic).

        Raises:
            GroupIdNotFound: there is no such group.
            NonEmptyGroup: it has members, and nobody knows what they read.
            CoordinatorNotAvailable: the disk refused.
        """
        group = self._groups.by_id.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            raise NonEmptyGroup(f"group {group_id} has members, and is no consumer group")
        free = {place: not group.subscribes_to(place[0]) for place in places}
        self._write(group, {place: None for place, may in free.items() if may and place in group.offsets})
        return free

    def delete_group(self, group_id: str) -> None:
        """Forget a group without members.

        Raises:
            GroupIdNotFound, NonEmptyGroup, CoordinatorNotAvailable.
        """
        group = self._groups.by_id.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        if group.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has members: stop them first")
        self._remove(group)

    def topic_deleted(self, name: str) -> None:
        """Forget the offsets of a topic."""
        for group in self._groups.by_id.values():
            if places := [place for place in group.offsets if place[0] == name]:
                try:
                    self._write(group, dict.fromkeys(places))
                except BrokerError as error:
                    log.error("offsets of a deleted topic stay: %s", error, extra={"group": group.group_id})

    def watch(self, now: float) -> None:
        """Look for expired offsets from time to time, as long as there are groups."""
        if self._groups.by_id and not self._groups.timers.is_set("retention"):
            deadline = now + self._groups.settings.offsets_retention_check
            self._groups.timers.set("retention", deadline, self.expire)

    def expire(self, now: float) -> None:
        """Forget what has expired, and empty groups without offsets."""
        for group in list(self._groups.by_id.values()):
            try:
                self._write(group, dict.fromkeys(self._expired(group, self._groups.timestamp)))
                if group.state is State.EMPTY and not group.offsets and not group.pending:
                    self._remove(group)
            except BrokerError as error:
                log.error("expired offsets stay: %s", error, extra={"group": group.group_id})
        self.watch(now)

    def _expired(self, group: Group, timestamp: int) -> list[Place]:
        emptied = group.protocol_type is not None and group.state is State.EMPTY and group.since >= 0
        known = group.protocol_type is None or group.state is State.EMPTY
        if not known and (group.state is not State.STABLE or group.subscribed is None):
            return []
        retention = round(self._groups.settings.offsets_retention * 1000)
        return [
            place
            for place, each in group.offsets.items()
            if not group.subscribes_to(place[0])
            and timestamp
            >= (
                each.expire_timestamp
                if each.expire_timestamp >= 0
                else (group.since if emptied else each.commit_timestamp) + retention
            )
        ]

    def _remove(self, group: Group) -> None:
        self._write(group, dict.fromkeys(group.offsets))
        self._groups.remove(group)

    def _write(self, group: Group, offsets: Mapping[Place, Committed | None]) -> None:
        if not offsets:
            return
        try:
            self._store(group, offsets)
        except BrokerError as error:
            raise CoordinatorNotAvailable(f"the offsets could not be stored: {error.detail}") from error
        for place, committed in offsets.items():
            if committed is None:
                group.offsets.pop(place, None)
            else:
                group.offsets[place] = committed
