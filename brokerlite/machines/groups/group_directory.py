"""All groups of the broker, whatever their kind: each id belongs to one group, which one coordinator has.

Each kind of group has a coordinator of its own; this module finds the coordinator of a group. The first commit of an
unknown group creates it as a classic group.

Source: GroupMetadataManager.java (group, getOrMaybeCreateClassicGroup).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ottla.brokerlite.machines.groups.groups import Groups, LeavingMember, SyncRequest
from ottla.brokerlite.machines.groups.joins import JoinRequest
from ottla.brokerlite.machines.groups.offset_group import OffsetGroup
from ottla.errors import GroupIdNotFound


class AnyGroup(OffsetGroup, Protocol):
    """A group of any kind, as it is listed."""

    @property
    def kind(self) -> str:
        """``classic``, ``consumer`` or ``share``."""

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def state_name(self) -> str:
        """The state, as Kafka names it."""

    @property
    def members(self) -> Mapping[str, object]: ...


class ClassicRequests(Protocol):
    """Takes the requests of the classic protocol, as `Groups` does."""

    def join(self, asked: JoinRequest, now: float) -> None: ...

    def sync(self, asked: SyncRequest, now: float) -> None: ...

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> None: ...

    def leave(self, group_id: str, leavers: Sequence[LeavingMember], now: float) -> list[int]: ...


class OtherGroups(ClassicRequests, Protocol):
    """The groups of another kind, and their members of the classic protocol."""

    @property
    def by_id(self) -> Mapping[str, AnyGroup]: ...

    def remove(self, group_id: str) -> None:
        """Forget a group without members; raises a `BrokerError` if the disk refused."""


class GroupDirectory:
    """Finds groups.

    Args:
        classic: the coordinator of classic groups.
        others: the coordinators of the other kinds.
    """

    def __init__(self, classic: Groups, others: Iterable[OtherGroups] = ()) -> None:
        self.classic = classic
        self._others = tuple(others)

    def get(self, group_id: str) -> AnyGroup | None:
        """Return a group, if it exists."""
        for each in self._others:
            if (group := each.by_id.get(group_id)) is not None:
                return group
        return self.classic.by_id.get(group_id)

    def check_kind(self, group_id: str, *kinds: str) -> None:
        """Check that a group, if it exists, is of one of these kinds.

        Raises:
            GroupIdNotFound: it is of another kind.
        """
        group = self.get(group_id)
        if group is not None and group.kind not in kinds:
            raise GroupIdNotFound(f"Group {group_id} is not a {kinds[0]} group.")

    def get_or_create(self, group_id: str, now: float, creator: str | None) -> AnyGroup:
        """Return a group; create a classic one, which counts for ``creator``, if it does not exist.

        Raises:
            CoordinatorNotAvailable, PolicyViolation: see `GroupRoom.check`.
        """
        return self.get(group_id) or self.classic.get_or_create(group_id, now, creator)

    def all(self) -> Iterator[AnyGroup]:
        """Iterate over all groups; they may change meanwhile."""
        yield from list(self.classic.by_id.values())
        for each in self._others:
            yield from list(each.by_id.values())

    def serving(self, group_id: str) -> ClassicRequests:
        """Return what takes the classic protocol's requests to a group."""
        return next((each for each in self._others if group_id in each.by_id), self.classic)

    def renew(self, group_id: str, member_id: str, now: float) -> None:
        """Renew the session of a member whose commit counts as a heartbeat: one of a classic group."""
        if (group := self.classic.by_id.get(group_id)) is not None:
            self.classic.renew(group, member_id, now)

    def remove(self, group_id: str) -> None:
        """Forget a group without members.

        Raises:
            KafkaStorageError: the disk refused; the group stays.
        """
        for each in self._others:
            if group_id in each.by_id:
                each.remove(group_id)
                return
        self.classic.remove(self.classic.by_id[group_id])
