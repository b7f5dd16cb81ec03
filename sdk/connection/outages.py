"""Logs brokers that are needed and not available: one line when an outage has lasted, and one when it ends.

    needed ── in trouble for 5 s ──► reported ── a connection is ready, its requests are answered ──► "available again"
                                         └────── no request to it for a while ───────────────────► "no longer needed"

Rules:
- A broker is in trouble if the client cannot connect to it, or if it leaves a request unanswered. That counts only
  while the broker is needed: requests that any node can answer (metadata), and probes, do not need a particular one.
- If no broker answers with metadata, one line reports all of them, instead of one for each.
- The lines say how much work waits, so each is written when there is some: at the next request.
- There is at most one line in five seconds, and one about outages that are over, however many brokers come and go: the
  next line covers everything that happened since.
"""

import math
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.addresses import format_address
from ottla.late_dataclass import dataclass
from ottla.sdk.events import Node, logged
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer, Timers

log = logger("ottla.sdk.outages")

OUTAGE = 5.0
"""Seconds in trouble after which a needed broker is reported, and seconds between two lines of the same kind."""
_TOGETHER = 1.0
"""Brokers that would be reported within this many seconds are reported in the same line."""
_NEXT_LOOK = 1.0
"""Seconds between two checks whether an outage has ended."""
_NAMED = 10
"""Brokers that a line lists; it always has the number of all."""


class Trouble(NamedTuple):
    """Why one node is not available."""

    node: Node
    since: float
    why: str
    requests: int
    """The number of requests that wait for the node, or for its response."""


class Reach(Protocol):
    """The state of the nodes: `ClientCore`."""

    timers: Timers

    def troubles(self, now: float) -> Mapping[int, Trouble]:
        """The nodes in trouble, by id."""
        ...

    def works(self, node: Node) -> bool:
        """Whether a connection to the node is ready."""
        ...

    @property
    def without_metadata(self) -> tuple[float, bool]:
        """Since when no broker has answered with metadata (NaN if some do), and whether a call waits for them."""
        ...

    def nobody_answers(self) -> str:
        """Each address, and the result of trying it."""
        ...

    def all_reported(self, nodes: Container[int]) -> bool:
        """Whether ``nodes`` has all known nodes."""
        ...

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Work that cannot go on without these nodes (``None``: without any), as counts by unit."""
        ...


@dataclass(slots=True)
class Need:
    """Requests keep needing one node, or any."""

    first: float
    last: float
    trouble: Trouble | None = None
    """The reported trouble; ``None`` if none is reported."""
    began: float = math.nan
    """When the reported trouble began."""

    def renew(self, now: float) -> None:
        """Take note of another request, or again of a request that still waits."""
        self.last = now

    def report(self, trouble: Trouble, began: float) -> None:
        """Take note that the log has a line about this trouble."""
        self.trouble, self.began = trouble, began


class Outages:
    """Watches the brokers of one client.

    Args:
        pause: the longest pause between retries, in seconds: a node that is needed gets requests more often than that.
    """

    def __init__(self, reach: Reach, pause: float) -> None:
        self._reach = reach
        self._kept = 1.0 + 2.0 * pause
        self._needs: dict[int, Need] = {}
        self._any: Need | None = None
        self._over: list[tuple[Node, float]] = []
        """Outages that are over, and their durations."""
        self._next_line = self._next_over = -math.inf
        self._next: Timer | None = None
        self._held = False
        """A line is due, and will be written with the next request."""

    def submitted(self, node_id: int, now: float, *, background: bool) -> None:
        """A request goes to a node."""
        if not background:
            self._needs[node_id] = self._renewed(self._needs.get(node_id), now)
        if not background or self._reach.without_metadata[1]:
            self._any = self._renewed(self._any, now)
        if self._held and self._next is not None:
            self._held = False
            self._look_at(-math.inf)
        elif self._next is None:
            self._look_at(now + OUTAGE)

    def _look_at(self, when: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self._reach.timers.add(when, self._look)

    def _renewed(self, need: Need | None, now: float) -> Need:
        if need is None or (now - need.last > self._kept and need.trouble is None):
            return Need(now, now)
        need.renew(now)
        return need

    # -- looking -----------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        self._next, self._held = None, False
        troubles = self._reach.troubles(now)
        self._end(troubles, now)
        dark_since, blocked = self._without_metadata(now)
        due = {each.node.id: max(each.since, self._needs[each.node.id].first) for each in self._due(troubles)}
        if blocked:
            due[_ANY] = dark_since
        if self._any is not None and self._any.trouble is not None:
            due = {}  # the line about all brokers covers these
        at = min(due.values(), default=math.inf) + OUTAGE
        if at <= now and now >= self._next_line:
            late = [key for key, began in due.items() if began + OUTAGE - _TOGETHER <= now]
            self._held = not self._report(late, due, troubles, now)
        self._report_over(now)
        if self._needs or self._any is not None or self._over:
            reported = self._over or any(each.trouble for each in [*self._needs.values(), self._any] if each)
            latest = now + (_NEXT_LOOK if reported or at <= now else OUTAGE)
            self._look_at(min(latest, at) if at > now else latest)

    def _due(self, troubles: Mapping[int, Trouble]) -> Iterable[Trouble]:
        return [each for each in troubles.values() if (need := self._needs.get(each.node.id)) and need.trouble is None]

    def _without_metadata(self, now: float) -> tuple[float, bool]:
        """Since when the lack of metadata blocks requests, and whether it does."""
        since, _ = self._reach.without_metadata
        if self._any is None or math.isnan(since):
            return math.nan, False
        reported = [key for key, each in self._needs.items() if each.trouble is not None]
        return max(since, self._any.first), not self._reach.all_reported(reported)

    # -- lines -------------------------------------------------------------------------------------------------------

    def _report(self, late: list[int], due: Mapping[int, float], troubles: Mapping[int, Trouble], now: float) -> bool:
        """Write the line that is due; ``False`` if no request waits at the moment."""
        anywhere = _ANY in late and self._any is not None
        some = list(troubles.values()) if anywhere else [troubles[key] for key in late]
        requests = sum(each.requests for each in some)
        waiting = {"requests": requests or None, **self._reach.waiting(None if anywhere else late)}
        if not (requests or (anywhere and self._reach.without_metadata[1])):
            return False
        self._next_line = now + OUTAGE
        took = _took(now - min(due[key] for key in late))
        if anywhere and self._any is not None:
            self._any.report(Trouble(_NOBODY, due[_ANY], "", 0), due[_ANY])
            why = {"tried": self._reach.nobody_answers()}
            log.warning("no broker is available", extra=took | waiting | why)
            return True
        for each in some:
            self._needs[each.node.id].report(each, due[each.node.id])
        who = _named(each.node for each in some)
        log.warning(_NOT_AVAILABLE[len(some) > 1], extra=who | took | waiting | {"why": some[0].why})
        return True

    def _end(self, troubles: Mapping[int, Trouble], now: float) -> None:
        """End outages that are over, or whose brokers are no longer needed."""
        idle_ones: list[Node] = []
        for key, need in list(self._needs.items()):
            trouble = troubles.get(key)
            if trouble is not None and trouble.requests:
                need.renew(now)
            idle = now - need.last > self._kept
            if need.trouble is not None:
                node = need.trouble.node
                if trouble is None and self._reach.works(node):
                    self._over.append((node, now - need.began))
                    self._needs[key] = Need(now, need.last)
                elif idle:
                    idle_ones.append(node)
            if idle:
                del self._needs[key]
        if idle_ones:
            log.warning(_NOT_NEEDED[len(idle_ones) > 1], extra=_named(idle_ones))
        need_any = self._any
        if need_any is None:
            return
        since, waited_for = self._reach.without_metadata
        idle = now - need_any.last > self._kept and not waited_for and not self._needs
        if need_any.trouble is not None and math.isnan(since):
            log.warning("brokers are available again", extra=_took(now - need_any.began))
            self._next_line = self._next_over = now + OUTAGE
            self._any = Need(now, need_any.last)
        elif need_any.trouble is not None and idle:
            log.warning("no broker is available, and none is needed any more")
        if idle:
            self._any = None

    def _report_over(self, now: float) -> None:
        if not self._over or now < self._next_over:
            return
        over, self._over = self._over, []
        self._next_over = now + OUTAGE
        took = _took(max(took for _, took in over))
        log.warning(_AVAILABLE[len(over) > 1], extra=_named(node for node, _ in over) | took)


_ANY = -(2**31)
"""Used in place of a node's id: any node that can answer with metadata."""
_NOBODY = Node(_ANY, "", 0)
_NOT_AVAILABLE = "a broker is not available", "brokers are not available"
_AVAILABLE = "a broker is available again", "brokers are available again"
_NOT_NEEDED = (
    "an unavailable broker is no longer needed",
    "unavailable brokers are no longer needed",
)


def _took(seconds: float) -> dict[str, object]:
    return {"seconds": round(seconds, 1)}


def _named(nodes: Iterable[Node]) -> dict[str, object]:
    """Fields that identify nodes: id and address of a single one, the ids of several."""
    some = sorted(nodes)
    if len(some) == 1:
        return {"node": logged(some[0]), "address": format_address(some[0].host, some[0].port)}
    return {"brokers": len(some), "nodes": [logged(each) for each in some[:_NAMED]]}
