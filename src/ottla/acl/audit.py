"""Logs and counts denials.

Rules:
- The first denial of a kind has a line; repeated ones are counted, and have one line a minute (`ottla.complaints`).
  Denials of one principal leave the lines about others alone.
- Clients choose the names of resources, so names are in lines only, and are no labels of metrics.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Protocol

from ottla.acl.acls import kafkas_name
from ottla.acl.rights import Right
from ottla.client_info import ANONYMOUS, ClientInfo
from ottla.complaints import Complaints

log = logging.getLogger("ottla.acl")

LONGEST_NAME = 249
"""Characters of a resource's name in a line; the rest is cut off. The name of a topic is not longer."""


class AuditTimers(Protocol):
    """Calls back at a time."""

    def set(self, name: Hashable, deadline: float, action: Callable[[float], None]) -> None: ...

    def is_set(self, name: Hashable) -> bool: ...


class Audit:
    """Notices the denials of a server.

    Attributes:
        denials: the number of denials of each right.

    Args:
        now: returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float], timers: AuditTimers) -> None:
        self.denials: Counter[Right] = Counter()
        self._now = now
        self._timers = timers
        self._complaints = Complaints()

    def denied(self, client: ClientInfo, right: Right, name: str) -> None:
        """Notice that the client did not have a right on the resource ``name``."""
        self.denials[right] += 1
        operation, resource = kafkas_name(right.operation), f"{kafkas_name(right.resource_type)}:{name[:LONGEST_NAME]}"
        text = f"access denied: {client.principal}, {operation} on {resource}"
        source = client.principal if client.principal != ANONYMOUS else ""  # then its host
        if self._complaints.is_new(self._now(), client.peer_host, text, source=source):
            log.warning(
                "access denied",
                extra={
                    "principal": client.principal,
                    "operation": operation,
                    "resource": resource,
                    "host": client.peer_host,
                },
            )
        if not self._timers.is_set(Audit):
            self._wake()

    def _wake(self) -> None:
        if (deadline := self._complaints.deadline) is not None:
            self._timers.set(Audit, deadline, self._log_counted)

    def _log_counted(self, now: float) -> None:
        for line in self._complaints.counted(now):
            log.warning("%s", line)
        self._wake()
