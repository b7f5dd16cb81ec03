"""Limits the number of groups of one kind, and how many of them one principal may create.

Rules:
- A principal may create a group while it has created fewer of the present ones than may still come. So one alone takes
  half of the room at most, the next one half of the rest, and a newcomer finds room.
- A group that was loaded at the start counts for nobody: Kafka's records of groups have no field for a principal.
- Who has every right has no share: without ACLs, everyone.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from ottla.errors import CoordinatorNotAvailable

log = logging.getLogger("ottla.brokerlite.groups")


class CreatedGroup(Protocol):
    """A group, as far as it matters here."""

    @property
    def creator(self) -> str | None:
        """The principal that has created it; ``None``: it counts for nobody."""


class GroupRoom:
    """The room for the groups of one kind.

    Args:
        groups: the present ones, by id.
        most: how many there may be.
        kind: names them in the log.
    """

    def __init__(self, groups: Mapping[str, CreatedGroup], most: int, kind: str) -> None:
        self._groups, self._most, self._kind = groups, most, kind

    @property
    def free(self) -> int:
        """How many groups may still come."""
        return self._most - len(self._groups)

    def check(self, group_id: str, creator: str | None) -> None:
        """Check that there is room for a group of this creator.

        Raises:
            CoordinatorNotAvailable: there is not.
        """
        count, extra = len(self._groups), {"group": group_id}
        if self.free <= 0:
            log.warning("group refused: the broker has %d %s groups, its maximum", count, self._kind, extra=extra)
            raise CoordinatorNotAvailable(f"this broker has {count} {self._kind} groups already")
        if creator is None or count < self.free:  # no principal can have as many as may still come
            return
        own = sum(each.creator == creator for each in self._groups.values())
        if own >= self.free:
            told = extra | {"principal": creator, "has": own, "left": self.free}
            log.warning("group refused: its principal has created too many %s groups", self._kind, extra=told)
            raise CoordinatorNotAvailable(
                f"{creator} has created {own} {self._kind} groups, and there is room for {self.free} more: the others "
                "need it"
            )
