"""Keeps the routes of topics with a rule, and has calls wait for a topic's description: metadata and configuration."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, NotLeaderOrFollower, PolicyViolation, UnknownTopicOrPartition
from ottla.proxy.contained import contained
from ottla.proxy.routing import Routes, TopicRules, routes_of
from ottla.proxy.topic_rule import Mode, TopicRule
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.topic_configs import TopicConfigs

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

METADATA_WAIT = 15.0
"""Seconds that records wait for their topic's metadata."""
UNKNOWN_WAIT = 1.0
"""Seconds that records wait if upstream says that there is no such topic: it may have just been created."""
MOST_NAMED = 10
"""The most topics in a log line."""
MOST_WAITED_FOR = 1000
"""The most topics that records wait for: with a rule for all names a client may send any number of unknown names. A
client within its equal share may have a few more."""


def rule_has_changed(topic: str) -> NotLeaderOrFollower:
    """The error for records whose topic has another rule than when they arrived.

    Clients send them again at once. Some would give up an unknown topic early.
    """
    return NotLeaderOrFollower(f"the proxy's rule for {topic} has just changed: send the records again")


@dataclass(slots=True)
class _Waiting:
    """A call that waits for a topic's metadata."""

    deadline: float
    go_on: Callable[[float], None]
    give_up: Callable[[BrokerError, float], None]
    """Called with the reason: no metadata within `METADATA_WAIT`, no such topic, or another rule for it."""


class RoutedTopics:
    """Knows the routes of topics with a rule, and which of these topics are described.

    Attributes:
        configs: the configuration of the topics.
    """

    def __init__(
        self, rules: TopicRules, cluster: UpstreamCluster, control: Control, journal: "Journal | None"
    ) -> None:
        self._rules, self._cluster, self._control, self._journal = rules, cluster, control, journal
        self.configs = TopicConfigs(control)
        self._routes: dict[str, Routes] = {}
        self._unused: dict[str, Routes] = {}
        """Routes of topics that are no longer rewritten; used if a rule rewrites them again."""
        self._misfits: dict[str, list[Routes]] = {}
        """Routes that a changed rule does not fit; used if a later rule does, for example when a mistake is undone."""
        self._former: dict[UUID, Routes] = {}
        """Routes of replaced topic ids: a broker's metadata may be old, and the id then comes back."""
        self._alerted: set[tuple[str, int]] = set()
        self._waiting: dict[str, deque[_Waiting]] = {}
        """Topic -> the calls that wait for its metadata."""
        self._askers: dict[str, Hashable] = {}
        """Topic with waiting calls -> who waited for it first."""
        self._waited_for: Counter[Hashable] = Counter()
        """Who waited first for a topic -> for how many."""
        self._unknown: dict[str, float] = {}
        """Topic with waiting calls -> since when upstream says that there is no such topic."""

    # -- waiting for metadata

    def is_described(self, topic: str) -> bool:
        """Whether a topic has complete metadata and its configuration, and no earlier call waits for it."""
        return self._is_complete(topic) and topic not in self._waiting

    def _is_complete(self, topic: str) -> bool:
        return self._cluster.is_described(topic) and self.configs.is_known(topic, self._cluster.topics[topic].topic_id)

    def is_still(self, topic: str, topic_id: "UUID") -> bool:
        """Whether a topic was not recreated since it had this id, as far as is known."""
        known = self._cluster.topics.get(topic)
        return known is None or known.topic_id == topic_id or NO_UUID in (known.topic_id, topic_id)

    def request(self, topics: Iterable[str], asker: Hashable) -> None:
        """Request the metadata of those topics that lack it, all at once."""
        unknown = (topic for topic in topics if not self._cluster.is_described(topic))
        self._control.request_topics(*unknown, asker=asker)

    def when_described(
        self,
        topic: str,
        go_on: Callable[[float], None],
        give_up: Callable[[BrokerError, float], None],
        now: float,
        *,
        asker: Hashable,
    ) -> None:
        """Call ``go_on`` once the topic has metadata, after earlier calls for it; ``give_up`` if it does not come.

        ``give_up`` gets `NotLeaderOrFollower` if the rule of the topic changes, else `UnknownTopicOrPartition`.

        Args:
            asker: who waits: a client's number, or another name that only its client has.
        """
        if self.is_described(topic):
            go_on(now)
            return
        if topic not in self._waiting:
            if not self._has_room(asker):
                give_up(UnknownTopicOrPartition(f"{MOST_WAITED_FOR} other topics are waiting for metadata"), now)
                return
            self._waited_for[asker] += 1
            self._askers[topic] = asker
            self._waiting[topic] = deque()
        self._waiting[topic].append(_Waiting(now + METADATA_WAIT, go_on, give_up))
        if self._cluster.is_described(topic):
            self._request_config(topic)
        else:
            self._control.request_topics(topic, asker=asker)

    def _has_room(self, asker: Hashable) -> bool:
        """Whether somebody may wait for one more topic: above the bound, only within its equal share."""
        share = MOST_WAITED_FOR // (len(self._waited_for) + 1)
        return len(self._waiting) < MOST_WAITED_FOR or self._waited_for[asker] < share

    def _end_wait(self, topic: str) -> deque[_Waiting]:
        """Remove the calls that wait for a topic."""
        self._unknown.pop(topic, None)
        first = self._askers.pop(topic)
        self._waited_for[first] -= 1
        if not self._waited_for[first]:
            del self._waited_for[first]
        return self._waiting.pop(topic)

    def _request_config(self, topic: str) -> None:
        self.configs.request(topic, self._cluster.topics[topic].topic_id, self._go_on)

    def learned(self, metadata: MetadataResponse, now: float) -> None:
        """Take a Metadata response: update pins, and make the calls that waited for it."""
        for topic in metadata.topics:
            pinned = topic.name in self._routes and self._rules.rewrites(topic.name)
            if pinned and topic.name in self._cluster.topics:  # a pin from the journal may have no metadata yet
                self.routes(topic.name)
            if topic.error_code == UnknownTopicOrPartition.code and topic.name in self._waiting:
                self._found_unknown(topic.name, now)
        for name in [name for name in self._waiting if self._cluster.is_described(name)]:
            if not self._is_complete(name):
                with contained("a configuration is requested"):
                    self._request_config(name)
        self._go_on(now)

    def _found_unknown(self, topic: str, now: float) -> None:
        """Give up the calls for a topic that upstream does not know, unless it may have just been created."""
        if now >= self._unknown.setdefault(topic, now) + UNKNOWN_WAIT:
            self._give_up(topic, UnknownTopicOrPartition(f"upstream has no topic {topic}"), now)

    def _go_on(self, now: float) -> None:
        """Make the calls whose topics are described."""
        for name in [name for name in self._waiting if self._is_complete(name)]:
            for each in self._end_wait(name):
                with contained("a topic is described"):
                    each.go_on(now)

    def expire(self, now: float) -> None:
        """Give up calls that have waited too long for their topic's metadata."""
        for topic, waiting in list(self._waiting.items()):
            while waiting and waiting[0].deadline <= now:
                why = f"upstream has not described {topic} within {METADATA_WAIT:g} s"
                with contained("a topic is not described"):
                    waiting.popleft().give_up(UnknownTopicOrPartition(why), now)
            if not waiting and topic in self._waiting:
                self._end_wait(topic)
        for topic, asker in self._askers.items():
            self._control.request_topics(topic, asker=asker)

    @property
    def deadline(self) -> float | None:
        return min((waiting[0].deadline for waiting in self._waiting.values()), default=None)

    # -- routes

    def change_rules(self, rules: Sequence[TopicRule], now: float) -> None:
        """Replace the rules, keep the pins of topics that are rewritten as before, and give up calls for the others."""
        pins, before = self.pins, TopicRules(self._rules.all)
        self._rules.change(rules)
        self._routes.clear()
        self._unused.clear()
        self._former.clear()  # they may have another partitioner
        known = {topic: {routes: None} for topic, routes in pins.items()}
        for topic, earlier in self._misfits.items():
            known.setdefault(topic, {}).update(dict.fromkeys(earlier))
        self._misfits.clear()
        for topic, several in known.items():
            chosen = next((each for each in several if self._fits(topic, each)), next(iter(several)))
            self._misfits[topic] = [each for each in several if each != chosen]
            self.pin(topic, chosen)
        self.tell_of_unused(before)
        gone = [each for each in self._waiting if before.of(each) != self._rules.of(each)]
        for topic in [each for each in gone if not self._rules.rewrites(each)]:
            self._give_up(topic, rule_has_changed(topic), now)

    def _give_up(self, topic: str, why: BrokerError, now: float) -> None:
        """Give up the calls that wait for a topic."""
        for call in self._end_wait(topic):
            with contained("a topic is not described"):
                call.give_up(why, now)

    def leaving_fan_out(self, rules: Sequence[TopicRule]) -> list[str]:
        """The known topics in mode `fan-out` whose records would pass unchanged under these rules.

        Clients know one partition of such a topic: for a while they would send all records to upstream's partition 0.
        """
        after = TopicRules(rules)
        return sorted(
            topic for topic in self._cluster.topics if self._rules.fans_out(topic) and not after.rewrites(topic)
        )

    def rewrites(self, topic: str) -> bool:
        return self._rules.rewrites(topic)

    def copies(self, topic: str) -> tuple[str, ...]:
        """The topics that get copies of a topic's records."""
        return self._rules.copies(topic)

    def with_copies(self, topic: str) -> tuple[str, ...]:
        """A topic, and the topics that get copies of its records."""
        return (topic, *self._rules.copies(topic))

    def undescribed(self, topic: str) -> str | None:
        """The first of these topics that is not described: a topic, and its copies; ``None``: all are."""
        return next((each for each in self.with_copies(topic) if not self.is_described(each)), None)

    def rule(self, topic: str) -> TopicRule | None:
        """The rule of a topic; ``None``: there is none."""
        return self._rules.of(topic)

    @property
    def pins(self) -> dict[str, Routes]:
        """The routes of rewritten topics, and of topics that were rewritten before."""
        return self._unused | {topic: routes for topic, routes in self._routes.items() if self._rules.rewrites(topic)}

    def pin(self, topic: str, routes: Routes) -> None:
        """Restore the routes of a topic, unless its rule has changed."""
        rule = self._rules.of(topic)
        if rule is None or not self._rules.rewrites(topic):
            self._unused[topic] = routes
        elif self._fits(topic, routes):
            self._routes[topic] = replace(routes, fans_out=rule.mode is Mode.FAN_OUT)
        else:
            self._misfits.setdefault(topic, []).insert(0, routes)
            log.error(
                "topic rule changed, keys go to other partitions than before",
                extra={"topic": topic, "before": _rule(routes)},
            )

    def _fits(self, topic: str, routes: Routes) -> bool:
        """Whether the rule of a topic leads keys where these routes do."""
        rule = self._rules.of(topic)
        if rule is None or not self._rules.rewrites(topic):
            return False
        return rule.partitioner == routes.partitioner and rule.partitions in (None, routes.partitions)

    def tell_of_unused(self, before: TopicRules) -> None:
        """Log the topics that the rules ``before`` rewrote, and the current ones do not."""
        left = [(topic, routes) for topic, routes in self._unused.items() if before.rewrites(topic)]
        if left:
            more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
            rules = [f"{topic}={_rule(routes)}" for topic, routes in left[:MOST_NAMED]]
            modes = [(topic, self._rules.mode(topic)) for topic, _ in left[:MOST_NAMED]]
            now = [f"{topic}: no rule" if mode is None else f"{topic}={mode.value}" for topic, mode in modes]
            facts = {"topics": len(left), "before": ", ".join(rules) + more, "now": ", ".join(now) + more}
            log.warning("topics no longer rewritten", extra=facts)

    def routes(self, topic: str) -> Routes:
        """The routes of a rewritten topic that has metadata."""
        known, routes = self._cluster.topics[topic], self._routes.get(topic)
        count = len(known.leaders)
        if routes is not None and routes.topic_id == NO_UUID:
            routes = replace(routes, topic_id=known.topic_id)  # the first metadata had no topic id
            self._pinned(topic, routes)
        if routes is None or known.topic_id not in (NO_UUID, routes.topic_id):
            rule = self._rules.of(topic)
            assert rule is not None, "only topics with a rule have routes"
            if routes is not None:
                self._former[routes.topic_id] = routes
            routes = self._former.pop(known.topic_id, None) or routes_of(rule, known.topic_id, count)
            self._pinned(topic, routes)
            log.info("partitions pinned", extra={"topic": topic, "partitions": routes.partitions})
            if known.topic_id == NO_UUID:  # from a Metadata version without topic ids, which a client used
                self._control.request_topics(topic)
        elif known.topic_id == NO_UUID != routes.topic_id:  # the same, after a restart: it may be another topic
            self._control.request_topics(topic)
        if count != routes.partitions and (topic, count) not in self._alerted:
            self._alerted.add((topic, count))
            pinned = routes.partitions
            facts = {"topic": topic, "pinned": pinned, "partitions": count}
            if count > pinned:
                log.error("topic has %d partitions, but keys still go to the pinned %d", count, pinned, extra=facts)
            else:
                log.error(
                    "topic has %d partitions, its records need %d and are refused",
                    count,
                    routes.partitions,
                    extra=facts,
                )
        return routes

    def are_current(self, topic: str, routes: Routes) -> bool:
        """Whether these are still the routes of a topic: its rule may have changed since they were chosen."""
        return self._routes.get(topic) == routes

    def partitions(self, topic: str) -> Set[int]:
        """The partitions of a topic that has metadata."""
        return self._cluster.topics[topic].leaders.keys()

    def check_partition(self, topic: str, routes: Routes, partition: int) -> None:
        """Check that a topic with metadata has the partition, and all partitions of its keys.

        Raises:
            BrokerError: it does not.
        """
        self.check_count(topic, routes)
        if partition not in self.partitions(topic):
            self._control.request_topics(topic)
            raise UnknownTopicOrPartition(f"{topic} has no partition {partition}")

    def check_count(self, topic: str, routes: Routes) -> None:
        """Check that a topic with metadata has all partitions of its keys.

        Raises:
            PolicyViolation: it does not.
        """
        partitions = self.partitions(topic)
        if len(partitions) < routes.partitions:
            self._control.request_topics(topic)  # it may have more partitions by now, or be recreated
            raise PolicyViolation(
                f"{topic} has {len(partitions)} partitions, but the proxy's topic rule divides its keys among "
                f"{routes.partitions}: give the topic that many, or state another number in the rule"
            )

    def _pinned(self, topic: str, routes: Routes) -> None:
        self._routes[topic] = routes
        if self._journal is not None:
            self._journal.pinned(topic, routes)

    def observed(self, topic: str) -> Routes | None:
        """The routes of a topic whose records stay where clients put them; ``None`` until it has metadata.

        They follow the partition count, because clients do.
        """
        known, rule = self._cluster.topics.get(topic), self._rules.of(topic)
        if known is None or rule is None or rule.mode.moves:  # its number of partitions is pinned
            return None
        routes, count = self._routes.get(topic), len(known.leaders)
        if routes is None or routes.partitions != (rule.partitions or count):
            routes = self._routes[topic] = routes_of(rule, known.topic_id, count)
        return routes


def _rule(routes: Routes) -> str:
    """The topic rule that gives these routes."""
    mode = Mode.FAN_OUT if routes.fans_out else Mode.REWRITE
    return f"{mode.value}:{routes.partitioner}:{routes.partitions}"
