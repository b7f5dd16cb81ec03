"""The committed offsets of groups of any kind.

Rules:
- The group decides who may commit, which topics are subscribed, and when retention begins (`OffsetGroup`). A first
  commit without a generation creates the group if it does not exist.
- The last commit counts, even if it is a lower offset. Offsets of a transaction are pending until its marker is
  written; then the offset that was written last is valid, even if another was committed later.
- Offsets expire `offsets_retention` after the group lets their retention begin. Offsets of subscribed topics never
  expire, and no offset of a group does while the group has pending ones. An empty group without offsets is removed.
- Deleting a topic removes its offsets. If the disk refuses that, `Committed.topic_id` distinguishes them from offsets
  of a later topic with the same name.
- Everything is stored before it is answered.

Source: OffsetMetadataManager.java; ClassicGroup.java (validateOffsetCommit, validateOffsetDelete,
offsetExpirationCondition).
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.groups.group_directory import GroupDirectory
from ottla.brokerlite.machines.groups.offset_group import Committer, OffsetGroup
from ottla.brokerlite.machines.topics.keyed_log import Transactional
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.errors import BrokerError, CoordinatorLoadInProgress, GroupIdNotFound, IllegalGeneration, NonEmptyGroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")

GROUP_ID_NOT_FOUND_SINCE = 9
"""The first version of OffsetCommit with GROUP_ID_NOT_FOUND; before, an unknown group is an illegal generation."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset; times are milliseconds since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    """-1: the broker's retention decides."""
    topic_id: "UUID | None" = None
    record_offset: int = field(default=-1, compare=False)
    """The offset of its own record in `__consumer_offsets`."""


class Offsets:
    """Keeps the committed offsets of all groups.

    Args:
        write: stores offsets of a group, with ``None`` for an offset to remove; returns the offset of the first record.
            May raise a `BrokerError`.
    """

    def __init__(
        self,
        groups: GroupDirectory,
        write: "Callable[[str, Mapping[TopicPartition, Committed | None], Transactional | None], int]",
    ) -> None:
        self._groups = groups
        self._write_log = write
        self._offsets: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[str, dict[TopicPartition, dict[int, Committed]]] = {}
        """Group -> topic-partition -> producer id -> the offset that its open transaction commits."""
        self._producers: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        """Producer id -> the groups and topic-partitions for which its open transaction commits."""
        self._settings = groups.classic.settings
        self._timers = groups.classic.timers
        groups.classic.when_created(self.watch)

    def of(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """Return the committed offsets of the group."""
        return self._offsets.get(group_id, {})

    def pending(self, group_id: str) -> Set[TopicPartition]:
        """Return the topic-partitions for which open transactions commit offsets of the group."""
        return self._pending.get(group_id, {}).keys()

    def restore(
        self, group_id: str, place: TopicPartition, committed: Committed, producer_id: int | None = None
    ) -> None:
        """Take over an offset that is stored: valid, or pending in the transaction of ``producer_id``."""
        if producer_id is None:
            self._offsets.setdefault(group_id, {})[place] = committed
        else:
            self._pending.setdefault(group_id, {}).setdefault(place, {})[producer_id] = committed
            self._producers.setdefault(producer_id, {})[group_id, place] = None

    # -- committing

    def begin_commit(
        self,
        group_id: str,
        committer: Committer,
        now: float,
        places: "Iterable[tuple[UUID, int]]" = (),
        *,
        names_groups: bool = True,
    ) -> OffsetGroup:
        """Check that ``committer`` may commit, and return the group; a member's commit counts as a heartbeat.

        Args:
            places: the topics, by id, and partitions for which it commits.
            names_groups: the client knows the error GROUP_ID_NOT_FOUND.

        Raises:
            GroupIdNotFound, CoordinatorNotAvailable, PolicyViolation, and the errors of `OffsetGroup.check_commit`.
        """
        group = self._groups.get(group_id)
        if group is None:
            if committer.generation >= 0:
                raise (GroupIdNotFound if names_groups else IllegalGeneration)(f"there is no group {group_id}")
            return self._groups.get_or_create(group_id, now, committer.creator)
        group.check_commit(committer, places)
        self._groups.renew(group_id, committer.member_id, now)
        return group

    def commit(
        self,
        group: OffsetGroup,
        offsets: Mapping[TopicPartition, Committed],
        transactional: Transactional | None = None,
    ) -> None:
        """Store offsets of a group that `begin_commit` returned.

        Raises:
            CoordinatorLoadInProgress: they could not be stored.
        """
        self._write(group.group_id, offsets, transactional)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Make the pending offsets of a transaction valid, or drop them; its marker is written."""
        for group_id, place in self._producers.pop(producer_id, {}):
            committed = self._pending[group_id][place].pop(producer_id)
            if not self._pending[group_id][place]:
                self._drop_pending(group_id, place)
            if commit:
                known = self._offsets.setdefault(group_id, {})
                if place not in known or known[place].record_offset < committed.record_offset:
                    known[place] = committed

    # -- removing

    def delete(self, group_id: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
        """Remove offsets; return for each topic-partition whether it was allowed: no member may subscribe to its topic.

        Raises:
            GroupIdNotFound: there is no such group.
            NonEmptyGroup: the group has members whose subscriptions the broker cannot know.
            CoordinatorLoadInProgress: the disk refused.
        """
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        group.check_offset_delete()
        free = {place: not group.subscribes_to(place[0]) for place in places}
        self._forget(group_id, [place for place, may in free.items() if may])
        return free

    def delete_group(self, group_id: str) -> None:
        """Remove a group without members.

        Raises:
            GroupIdNotFound, NonEmptyGroup, CoordinatorLoadInProgress.
        """
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        if not group.is_empty:
            raise NonEmptyGroup(f"group {group_id} has members: stop them first")
        self._remove(group_id)

    def topic_deleted(self, name: str) -> None:
        """Remove the offsets of a deleted topic."""
        refused, last = 0, ""
        for group_id in {*self._offsets, *self._pending}:
            places = [place for place in {*self.of(group_id), *self.pending(group_id)} if place[0] == name]
            try:
                self._forget(group_id, sorted(places))
            except BrokerError as error:
                refused, last = refused + 1, str(error)
                for place in places:
                    self._drop(group_id, place)
        if refused:
            log.error("removing the offsets of %d groups for the deleted topic %s failed: %s", refused, name, last)

    def watch(self, now: float) -> None:
        """Set the timer for the next removal of expired offsets, if there are groups."""
        if any(self._groups.all()) and not self._timers.is_set("retention"):
            self._timers.set("retention", now + self._settings.offsets_retention_check, self.expire)

    def expire(self, now: float) -> None:
        """Remove expired offsets, and empty groups without offsets."""
        for group in self._groups.all():
            if self.pending(group.group_id):
                continue
            try:
                self._forget(group.group_id, list(self._expired(group)))
                if group.is_unused and not self.of(group.group_id):
                    self._remove(group.group_id)
            except BrokerError as error:
                log.error("removing expired offsets failed: %s", error, extra={"group": group.group_id})
        self.watch(now)

    def _expired(self, group: OffsetGroup) -> Iterator[TopicPartition]:
        retention = round(self._settings.offsets_retention * 1000)
        for place, each in self.of(group.group_id).items():
            begins = group.retention_begins(each.commit_timestamp)
            if begins is None or group.subscribes_to(place[0]):
                continue
            expires = each.expire_timestamp if each.expire_timestamp >= 0 else begins + retention
            if self._groups.classic.timestamp >= expires:
                yield place

    def _remove(self, group_id: str) -> None:
        self._forget(group_id, sorted({*self.of(group_id), *self.pending(group_id)}))
        self._offsets.pop(group_id, None)
        self._groups.remove(group_id)

    def _forget(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        pending = self.pending(group_id)
        known = self.of(group_id)
        self._write(group_id, {place: None for place in places if place in known or place in pending})

    def _write(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed | None],
        transactional: Transactional | None = None,
    ) -> None:
        if not offsets:
            return
        try:
            first = self._write_log(group_id, offsets, transactional)
        except BrokerError as error:
            raise CoordinatorLoadInProgress(f"the offsets could not be stored: {error.detail}") from error
        for record_offset, (place, committed) in enumerate(offsets.items(), first):
            if committed is None:
                self._drop(group_id, place)
            else:
                producer_id = transactional.producer_id if transactional else None
                self.restore(group_id, place, replace(committed, record_offset=record_offset), producer_id)

    def _drop(self, group_id: str, place: TopicPartition) -> None:
        self._offsets.get(group_id, {}).pop(place, None)
        self._drop_pending(group_id, place)

    def _drop_pending(self, group_id: str, place: TopicPartition) -> None:
        places = self._pending.get(group_id, {})
        for producer_id in places.pop(place, {}):
            del self._producers[producer_id][group_id, place]
        if not places:
            self._pending.pop(group_id, None)
