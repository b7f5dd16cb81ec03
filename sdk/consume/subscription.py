"""Determines the topics to read: named topics, or topics that match a pattern, which are listed periodically.

Rules:
- A partition without a committed offset is read from `start`. A partition created while the consumer runs is read from
  its beginning, because no consumer can have read it before.
- Without a group, each matching topic is read as soon as its metadata is known, so that a topic that is just being
  deleted does not delay the others. With a group, the member joins once all are known; otherwise each topic would cost
  the group a rebalance.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.consume.options import ConsumerOptions, TopicFilter
from ottla.sdk.consume.position import Start, Time
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import Flow, sleep
from ottla.sdk.logs import logger
from ottla.sdk.outcome import all_of, any_of
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")

PATTERN_AGE = 30.0
"""Seconds between two listings of topics for the pattern."""


class Subscription:
    """Keeps the topics of one consumer.

    Args:
        changed: called, inside the core, when the topics are known, for the first time and after each listing.
    """

    def __init__(self, core: ClientCore, options: ConsumerOptions, changed: Callable[[float], None]) -> None:
        self._core, self._options, self._changed = core, options, changed
        self.topics: tuple[str, ...] = options.topics
        self._first: dict[str, int] | None = None
        """The topics of the first listing, with the number of their partitions at that time; -1: not known yet."""
        self._started: set[TopicPartition] = set()
        self._following: Flow[None] | None = None
        """Lists the topics for the pattern."""
        self._learning: list[Flow[None]] = []
        """Metadata lookups of matching topics, by listing."""
        self._unmatched: int | None = None
        """The number of topics in the last listing, if none of them matches."""

    def begin(self, now: float) -> None:
        """Start with the named topics, which are known already, or list topics for the pattern."""
        if self._options.matches is not None:
            self._following = Flow(self._core, self._follow(self._options.matches))
        else:
            self._known(now)

    def stop(self) -> None:
        """Stop listing topics."""
        for each in (self._following, *self._learning):
            if each is not None:
                each.cancel()

    def start(self, place: TopicPartition) -> Start:
        """Where to begin in a partition without a committed offset."""
        topic, partition = place
        there = self._first is None or partition < self._first.get(topic, 0)
        return self._options.start if there else Time(EARLIEST)

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
            pattern = f"{self._options.matches}, a regular expression for the whole name"
            yield f"none of {self._unmatched} topic(s) matches the pattern {pattern}"

    def _known(self, now: float) -> None:
        topics = self._core.cluster.topics
        if self._first is None:
            self._first = dict.fromkeys(self.topics, -1)
        for name, count in self._first.items():
            if count < 0 and name in topics:
                self._first[name] = len(topics[name].partitions)
        self._changed(now)

    def _follow(self, matches: TopicFilter) -> Steps[None]:
        """List topics for the pattern, and again every `PATTERN_AGE` seconds."""
        while True:
            listed = self._core.now
            try:
                topics = yield from settled(calls.list_topics(self._core, listed))
            except OttlaError as error:
                log.warning("topics could not be listed", extra={"why": str(error)})
            else:
                self.topics = tuple(name for name in topics if matches(name))
                self._report_unmatched(matches, len(topics))
                self._learning.append(Flow(self._core, self._learn(self.topics)))
            self._learning = [each for each in self._learning if not each.outcome.done]
            yield from sleep(self._core, max(0.0, listed + PATTERN_AGE - self._core.now))

    def _report_unmatched(self, matches: TopicFilter, topics: int) -> None:
        """Warn once that no topic matches: the pattern may be misspelt, or be written as a shell pattern."""
        reported, self._unmatched = self._unmatched is not None, None if self.topics else topics
        if self._unmatched is not None and not reported:
            log.warning(
                "no topic matches the pattern, a regular expression for the whole name as in 'orders-.*'",
                extra={"pattern": str(matches), "topics": topics},
            )

    def _learn(self, topics: Sequence[str]) -> Steps[None]:
        """Look up the metadata of ``topics``, and continue with those whose partitions are known."""
        lookups = [self._core.metadata.topic(name, self._core.now) for name in topics]
        waits = [each for each in lookups if not each.done]
        try:
            while waits:
                # Without a group, a topic is read as soon as it is known; with one, the member joins when all are.
                if self._options.member is None and len(waits) < len(lookups):
                    self._known(self._core.now)
                yield any_of(waits) if self._options.member is None else all_of(waits)
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
