"""Determines the topics to read: named topics, or topics that match a pattern, which are listed periodically. Topics
that match a pattern of the broker's (`pattern_re2`) are known with the assignment only.

Rules:
- A partition without a committed offset is read from `start`. A partition created while the consumer runs is read from
  its beginning, because no consumer can have read it before. So are all partitions of a topic that is recreated while
  the consumer runs: it is another topic, whatever its name.
- Only a topic id tells a recreated topic from the one before. A listing without the topic proves nothing: a broker that
  has just started lists no topics. Without ids the client takes it as a proof, because reading records twice is
  better than skipping some.
- Without a group, each matching topic is read as soon as its metadata is known, so that a topic that is just being
  deleted does not delay the others. With a group, the member joins once all are known; otherwise each topic would cost
  the group a rebalance.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.wire import NO_UUID
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import TopicPartition, is_another
from ottla.sdk.connection import requests
from ottla.sdk.consume.options import ConsumerPlan, TopicFilter
from ottla.sdk.consume.partitions.position import Start, Time
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, sleep
from ottla.sdk.logs import logger
from ottla.sdk.outcome import all_of, any_of
from ottla.sdk.steps import Steps, settled

if TYPE_CHECKING:
    from uuid import UUID

log = logger("ottla.sdk.consumer")

PATTERN_AGE = 30.0
"""Seconds between two listings of topics for the pattern."""


class FirstTopic(NamedTuple):
    """A topic that existed when the consumer started."""

    topic_id: "UUID"
    """Zero: brokers have no ids."""
    partitions: int
    """The number of its partitions at that time."""


class Subscription:
    """Keeps the topics of one consumer.

    Args:
        changed: called, inside the core, when the topics are known, for the first time and after each listing.
    """

    def __init__(self, core: ClientCore, plan: ConsumerPlan, changed: Callable[[float], None]) -> None:
        self._core, self._plan, self._changed = core, plan, changed
        self.topics: tuple[str, ...] = plan.topics
        self._first: dict[str, FirstTopic] | None = None
        """The topics of the first listing, except recreated ones."""
        self._started: set[TopicPartition] = set()
        self._following: LoneFlow | None = None
        """Lists the topics for the pattern."""
        self._learning: list[LoneFlow] = []
        """Metadata lookups of matching topics, by listing."""
        self._unmatched: int | None = None
        """The number of topics in the last listing, if none of them matches."""

    def begin(self, now: float) -> None:
        """Start with the named topics, which are known already, or list topics for the pattern."""
        if self._plan.matches is not None:
            self._following = LoneFlow(self._core, self._follow(self._plan.matches))
        elif self._plan.options.pattern_re2 is not None:
            self._following = LoneFlow(self._core, self._list_once())
        else:
            self._known(now)

    def stop(self) -> None:
        """Stop listing topics."""
        for each in (self._following, *self._learning):
            if each is not None:
                each.cancel()

    def start(self, place: TopicPartition) -> Start:
        """Where to begin in a partition without a committed offset."""
        if self._first is None:
            return self._plan.start
        topic, partition = place
        first, topic_id = self._first.get(topic), self._core.cluster.topic_id(topic)
        if first is not None and is_another(first.topic_id, topic_id):
            log.warning("the topic was deleted and recreated: it is read from its beginning", extra={"topic": topic})
            del self._first[topic]
            first = None
        return self._plan.start if first is not None and partition < first.partitions else Time(EARLIEST)

    def topic_id(self, topic: str) -> "UUID":
        """The id of the topic that `start` is for; zero: unknown. If the topic proves to have another, `start` is void.

        The client may have forgotten the topic, so that `start` cannot compare its id.
        """
        first = self._first.get(topic) if self._first is not None else None
        return NO_UUID if first is None else first.topic_id

    def start_again(self, place: TopicPartition) -> Start:
        """Like `start`, without a group. A partition that was read before, and then gone, was recreated: read all."""
        known = place in self._started
        self._started.add(place)
        return Time(EARLIEST) if known else self.start(place)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the topics that the metadata contains."""
        topics = self._core.cluster.topics
        return [(name, each) for name in self.topics if name in topics for each in topics[name].partitions]

    def explain(self, now: float) -> Iterator[str]:
        if self._unmatched is not None:
            pattern = f"{self._plan.matches}, a regular expression for the whole name"
            yield f"none of {self._unmatched} topic(s) matches the pattern {pattern}"

    def _known(self, now: float) -> None:
        topics = self._core.cluster.topics
        if self._first is None:  # named topics: their metadata is known
            named = [topics[name] for name in self.topics if name in topics]
            self._first = {each.name: FirstTopic(each.topic_id, len(each.partitions)) for each in named}
        self._changed(now)

    def _list_once(self) -> Steps[None]:
        """List the topics that exist now, because `start` is for those; the broker matches the pattern."""
        failures = 0
        while self._first is None:
            try:
                topics = yield from settled(calls.listed_topics(self._core, self._core.now))
            except OttlaError as error:
                log.warning(
                    "topics for the pattern could not be listed, retrying",
                    extra={"pattern": self._plan.options.pattern_re2, "why": str(error)},
                )
                yield from sleep(self._core, self._core.backoff(failures))
                failures += 1
            else:
                self._first = {name: FirstTopic(*each) for name, each in topics.items()}
        self._changed(self._core.now)

    def _follow(self, matches: TopicFilter) -> Steps[None]:
        """List topics for the pattern, and again every `PATTERN_AGE` seconds."""
        while True:
            listed = self._core.now
            try:
                topics = yield from settled(calls.listed_topics(self._core, listed))
            except OttlaError as error:
                log.warning(
                    "topics for the pattern could not be listed, retrying",
                    extra={"pattern": str(matches), "why": str(error)},
                )
            else:
                before, self.topics = self.topics, tuple(name for name in topics if matches(name))
                if self._first is None:
                    self._first = {name: FirstTopic(*topics[name]) for name in self.topics}
                self._miss([name for name in before if name not in topics])
                self._report_unmatched(matches, len(topics))
                self._learning.append(LoneFlow(self._core, self._learn(self.topics)))
            self._learning = [each for each in self._learning if not each.outcome.done]
            yield from sleep(self._core, max(0.0, listed + PATTERN_AGE - self._core.now))

    def _miss(self, gone: Sequence[str]) -> None:
        """Act on topics that a listing lacks, and the one before had."""
        for name in gone:
            if self._first is not None and name in self._first and self._first[name].topic_id == NO_UUID:
                del self._first[name]
        # Without a group, the fetcher reports a deleted topic, once it is sure.
        if gone and self._plan.member is not None:
            log.warning("topics that match the pattern are no longer listed or read", extra={"topics": list(gone)})

    def _report_unmatched(self, matches: TopicFilter, topics: int) -> None:
        """Warn once that no topic matches: the pattern may be misspelt, or be written as a shell pattern."""
        reported, self._unmatched = self._unmatched is not None, None if self.topics else topics
        if self._unmatched is not None and not reported:
            log.warning(
                "no topic matches the pattern: it is a regular expression for the whole name, as in 'orders-.*'",
                extra={"pattern": str(matches), "topic_count": topics},
            )

    def _learn(self, topics: Sequence[str]) -> Steps[None]:
        """Look up the metadata of ``topics``, and continue with those whose partitions are known."""
        lookups = [self._core.metadata.topic(name, self._core.now) for name in topics]
        waits = [each for each in lookups if not each.done]
        try:
            while waits:
                # Without a group, a topic is read as soon as it is known; with one, the member joins when all are.
                if self._plan.member is None and len(waits) < len(lookups):
                    self._known(self._core.now)
                yield any_of(waits) if self._plan.member is None else all_of(waits)
                waits = [each for each in waits if not each.done]
        finally:
            for each in lookups:
                each.cancel()
        self._known(self._core.now)


def know_topics(core: ClientCore, names: Sequence[str], places: Iterable[TopicPartition]) -> Steps[None]:
    """Wait until the named topics, and the partitions in ``places``, are known.

    The metadata of named topics is requested even if it is known, so that no new partition is missed.

    Raises:
        UnknownTopicOrPartition, InvalidTopic, TopicAuthorizationFailed: a topic or partition cannot be read.
    """
    named = requests.by_topic(places)
    # All lookups start at once, because there may be thousands of topics.
    topics = {name: core.metadata.topic(name, core.now, fresh=True) for name in names}
    topics |= {
        name: core.metadata.topic(name, core.now, partitions=each) for name, each in named.items() if name not in topics
    }
    try:
        for each in topics.values():
            yield from settled(each)
    finally:
        for each in topics.values():
            each.cancel()
    for name, partition in places:
        topic = topics[name].result()
        if partition not in topic.partitions:
            raise UnknownTopicOrPartition(told=f"{topic.extent}, not {partition!r}")
