"""Limits the number of groups of one kind, and how many of them one principal may create.

Rules:
- A principal may create a group while it has created fewer of the present ones than may still come. So one alone takes
  half of the room at most, the next one half of the rest, and a newcomer finds room.
- A group keeps its creator when its kind changes, and then takes room among the groups of its new kind. Otherwise a
  principal could fill that kind with groups that it creates as another one.
- A group that was loaded at the start counts for nobody: Kafka's records of groups have no field for a principal.
- Who has every right has no share: without ACLs, everyone.
- The log gets the first refusal of a principal, and then one line a minute with their number (`ottla.complaints`):
  clients retry.
"""

import logging
from collections import Counter
from typing import Generic, Protocol, TypeVar

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.timers import Timers
from ottla.complaints import Complaints
from ottla.errors import CoordinatorNotAvailable, PolicyViolation

log = logging.getLogger("ottla.brokerlite.groups")


class CreatedGroup(Protocol):
    """A group, as far as it matters here."""

    @property
    def group_id(self) -> str: ...

    @property
    def creator(self) -> str | None:
        """The principal that has created it; ``None``: it counts for nobody."""


G = TypeVar("G", bound=CreatedGroup)


class GroupRoom(Generic[G]):
    """The room for the groups of one kind.

    Args:
        groups: the present ones, by id. Only groups without a creator may come or go without `add` and `remove`.
        most: how many there may be.
        kind: names them in the log.
    """

    def __init__(self, groups: dict[str, G], most: int, kind: str, clock: Clock, timers: Timers) -> None:
        self._groups, self._most, self._kind = groups, most, kind
        self._created: Counter[str] = Counter()
        """Principal -> the number of present groups that it has created; no principal is without one."""
        self._clock, self._timers = clock, timers
        self._complaints = Complaints()

    @property
    def free(self) -> int:
        """How many groups may still come."""
        return self._most - len(self._groups)

    def has_room(self, creator: str | None) -> bool:
        """Whether there is room for a group of this creator."""
        return self.free > 0 and (creator is None or self._created[creator] < self.free)

    def add(self, group: G) -> None:
        """Take in a group that was not there."""
        self._groups[group.group_id] = group
        if group.creator is not None:
            self._created[group.creator] += 1

    def remove(self, group: G) -> None:
        """Forget a group."""
        del self._groups[group.group_id]
        if group.creator is not None:
            self._created[group.creator] -= 1
            if not self._created[group.creator]:
                del self._created[group.creator]

    def check(self, group_id: str, creator: str | None) -> None:
        """Check that there is room for a group of this creator.

        Raises:
            CoordinatorNotAvailable: the broker is full for everyone. Clients try again.
            PolicyViolation: the creator has its share.
        """
        if self.has_room(creator):
            return
        count, extra = len(self._groups), {"group": group_id}
        if creator is None or self.free <= 0:
            if self._is_new(f"group refused: the broker has {count} {self._kind} groups, its maximum"):
                log.warning("group refused: the broker has %d %s groups, its maximum", count, self._kind, extra=extra)
            raise CoordinatorNotAvailable(f"this broker has {count} {self._kind} groups already")
        own = self._created[creator]
        if self._is_new(f"group refused: {creator} has created too many {self._kind} groups", creator):
            told = extra | {"principal": creator, "has": own, "left": self.free}
            log.warning("group refused: its principal has created too many %s groups", self._kind, extra=told)
        # No client expects this error here, so none retries quietly: the application gets its name, and from heartbeats
        # the message, too. GROUP_MAX_SIZE_REACHED and GROUP_AUTHORIZATION_FAILED do the same, but send the reader to
        # the members and to the ACLs. TxnOffsetCommit replaces it: see `known_errors`. (AbstractCoordinator.java,
        # AbstractHeartbeatRequestManager.java; rdkafka_cgrp.c, rd_kafka_cgrp_handle_JoinGroup)
        raise PolicyViolation(
            f"{creator} has created {own} {self._kind} groups, its share of this broker: others need the room for "
            f"{self.free} more. Delete groups that it no longer needs"
        )

    def _is_new(self, text: str, principal: str = "") -> bool:
        """Whether a refusal has a line of its own; otherwise it is counted."""
        is_new = self._complaints.is_new(self._clock.now, "", text, source=principal)
        if not self._timers.is_set((GroupRoom, self._kind)):
            self._wake()
        return is_new

    def _wake(self) -> None:
        if (deadline := self._complaints.deadline) is not None:
            self._timers.set((GroupRoom, self._kind), deadline, self._log_counted)

    def _log_counted(self, now: float) -> None:
        for line in self._complaints.counted(now):
            log.warning("%s", line)
        self._wake()
