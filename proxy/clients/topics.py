"""Topics that have a rule: where their keys go, and what waits until upstream has described one."""

import logging
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.wire import NO_UUID
from ottla.proxy.contained import contained
from ottla.proxy.routing import Routes, TopicRules, routes_of
from ottla.proxy.upstream.cluster import Cluster
from ottla.proxy.upstream.control import Control

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

METADATA_WAIT = 15.0
"""Seconds that records wait for the number of their topic's partitions."""
MOST_NAMED = 10
"""Topics in a line of the log."""
MOST_WAITED_FOR = 1000
"""Topics; under a rule for all names a client may name any number of topics that do not exist."""


@dataclass(slots=True)
class _Waiting:
    """What waits until a topic is described."""

    deadline: float
    go_on: Callable[[float], None]
    give_up: Callable[[str, float], None]
    """Called with a message, if it was not within `METADATA_WAIT`."""


class Topics:
    """What is known of the topics that have a rule."""

    def __init__(self, rules: TopicRules, cluster: Cluster, control: Control, journal: "Journal | None") -> None:
        self._rules, self._cluster, self._control, self._journal = rules, cluster, control, journal
        self._routes: dict[str, Routes] = {}
        self._unused: dict[str, Routes] = {}
        """Of topics that no rule rewrites any more; a rule that does so again finds them."""
        self._former: dict[UUID, Routes] = {}
        """Of topics that were replaced by others of their names: a node that lags behind may have said so."""
        self._alerted: set[tuple[str, int]] = set()
        self._waiting: dict[str, deque[_Waiting]] = {}
        """By topic."""

    # -- what waits for them

    def is_described(self, topic: str) -> bool:
        """Nothing has to wait for upstream's description of a topic, nor is anything waiting."""
        return self._cluster.is_described(topic) and topic not in self._waiting

    def is_still(self, topic: str, topic_id: "UUID") -> bool:
        """A topic has not been replaced by another of its name, as far as that is known."""
        known = self._cluster.topics.get(topic)
        return known is None or known.topic_id == topic_id or NO_UUID in (known.topic_id, topic_id)

    def request(self, *topics: str) -> None:
        """Have those that are not described looked up soon, all at once."""
        self._control.request_topics(*(topic for topic in topics if not self._cluster.is_described(topic)))

    def when_described(
        self, topic: str, go_on: Callable[[float], None], give_up: Callable[[str, float], None], now: float
    ) -> None:
        """Call one of the two: ``go_on`` behind whatever waits for this topic already."""
        if self.is_described(topic):
            go_on(now)
            return
        if topic not in self._waiting and len(self._waiting) >= MOST_WAITED_FOR:
            give_up(f"{MOST_WAITED_FOR} other topics are being waited for", now)
            return
        self._control.request_topics(topic)
        self._waiting.setdefault(topic, deque()).append(_Waiting(now + METADATA_WAIT, go_on, give_up))

    def learned(self, metadata: MetadataResponse, now: float) -> None:
        """Metadata has come: go on with what waited for it."""
        for topic in metadata.topics:
            pinned = topic.name in self._routes and self._rules.rewrites(topic.name)
            if pinned and topic.name in self._cluster.topics:  # it may be gone since another's time
                self.routes(topic.name)
        for name in [name for name in self._waiting if self._cluster.is_described(name)]:
            for each in self._waiting.pop(name):
                with contained("a topic is described"):
                    each.go_on(now)

    def expire(self, now: float) -> None:
        """Give up what has waited too long for its topic."""
        for topic, waiting in list(self._waiting.items()):
            while waiting and waiting[0].deadline <= now:
                with contained("a topic is not described"):
                    waiting.popleft().give_up(f"upstream has not described {topic} within {METADATA_WAIT:g} s", now)
            if not waiting:
                del self._waiting[topic]
        self._control.request_topics(*self._waiting)

    @property
    def deadline(self) -> float | None:
        return min((waiting[0].deadline for waiting in self._waiting.values()), default=None)

    # -- where their keys go

    @property
    def pins(self) -> dict[str, Routes]:
        """Where the keys of rewritten topics go, and where those of topics went that are not rewritten any more."""
        return self._unused | {topic: routes for topic, routes in self._routes.items() if self._rules.rewrites(topic)}

    def pin(self, topic: str, routes: Routes) -> None:
        """Have the keys of a topic go where they went, unless its rule has changed."""
        rule = self._rules.of(topic)
        if rule is None or not self._rules.rewrites(topic):
            self._unused[topic] = routes
        elif rule.partitioner == routes.partitioner and rule.partitions in (None, routes.partitions):
            self._routes[topic] = routes
        else:
            log.error(
                "topic rule changed, keys go to other partitions than before",
                extra={"topic": topic, "before": _rule(routes)},
            )

    def tell_of_unused(self, before: TopicRules) -> None:
        """Say which topics were rewritten by the rules ``before``, and are not any more."""
        left = [f"{topic}={_rule(routes)}" for topic, routes in self._unused.items() if before.rewrites(topic)]
        if left:
            more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
            log.error(
                "topics no longer rewritten, keys go to the partitions that clients choose",
                extra={"topics": len(left), "before": ", ".join(left[:MOST_NAMED]) + more},
            )

    def routes(self, topic: str) -> Routes:
        """Where the keys of a rewritten topic go, which is described."""
        known, routes = self._cluster.topics[topic], self._routes.get(topic)
        count = len(known.leaders)
        if routes is not None and routes.topic_id == NO_UUID:
            routes = replace(routes, topic_id=known.topic_id)  # it was learnt without its id
            self._pinned(topic, routes)
        if routes is None or routes.topic_id != known.topic_id:
            rule = self._rules.of(topic)
            assert rule is not None, "only topics with a rule come here"
            if routes is not None:
                self._former[routes.topic_id] = routes
            routes = self._former.pop(known.topic_id, None) or routes_of(rule, known.topic_id, count)
            self._pinned(topic, routes)
            log.info("partitions pinned", extra={"topic": topic, "partitions": routes.partitions})
            if known.topic_id == NO_UUID:  # told by a client's old version of Metadata
                self._control.request_topics(topic)
        if count != routes.partitions and (topic, count) not in self._alerted:
            self._alerted.add((topic, count))
            what = (
                "its keys go to the pinned number of them" if count > routes.partitions else "its records are refused"
            )
            log.error(
                "partition count of a rewritten topic differs from the pinned one; %s",
                what,
                extra={"topic": topic, "pinned": routes.partitions, "partitions": count},
            )
        return routes

    def partitions(self, topic: str) -> Set[int]:
        """Those that a topic has, which is described."""
        return self._cluster.topics[topic].leaders.keys()

    def _pinned(self, topic: str, routes: Routes) -> None:
        self._routes[topic] = routes
        if self._journal is not None:
            self._journal.pinned(topic, routes)

    def observed(self, topic: str) -> Routes | None:
        """Where the keys of an observed topic would go; ``None`` while that is not known."""
        known, rule = self._cluster.topics.get(topic), self._rules.of(topic)
        if known is None or rule is None:
            return None
        routes, count = self._routes.get(topic), len(known.leaders)
        if routes is None or routes.partitions != (rule.partitions or count):
            routes = self._routes[topic] = routes_of(rule, known.topic_id, count)
        return routes


def _rule(routes: Routes) -> str:
    """The one that sends keys there."""
    return f"rewrite:{routes.partitioner}:{routes.partitions}"
