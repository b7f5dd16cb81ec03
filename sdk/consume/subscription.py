"""Determines the topics to read: named topics, or topics that match a pattern, which are listed periodically.

Rules:
- A partition without a committed offset is read from `start`. A partition created while the consumer runs is read from
  its beginning, because no consumer can have read it before.
- Without a group, each matching topic is read as soon as its metadata is known, so that a topic that is just being
  deleted does not delay the others. With a group, the member joins once all are known; otherwise each topic would cost
  the group a rebalance.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import UnknownTopicOrPartition
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.consume.options import ConsumerOptions, TopicFilter
from ottla.sdk.consume.position import Start, Time
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer

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
        self._due: Timer | None = None
        self._looking: Outcome[Any] | None = None
        """The last listing."""
        self._waits: list[Outcome[Topic]] = []
        """Metadata lookups of matching topics."""
        self._unmatched: int | None = None
        """The number of topics in the last listing, if none of them matches."""

    def begin(self, now: float) -> None:
        """Start with the named topics, which are known already, or list topics for the pattern."""
        if self._options.matches is not None:
            self._look(self._options.matches, now)
        else:
            self._known(now)

    def stop(self) -> None:
        """Stop listing topics."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        for wait in (self._looking, *self._waits):
            if wait is not None:
                wait.cancel()

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

    def _look(self, matches: TopicFilter, now: float) -> None:
        """List topics for the pattern, and again every `PATTERN_AGE` seconds."""
        self._due = self._core.later(now + PATTERN_AGE, lambda now: self._look(matches, now))
        if self._looking is not None and not self._looking.done:
            return  # the last request is still in flight
        found = self._looking = calls.list_topics(self._core, now)

        def arrived() -> None:
            if self._due is None:
                return  # stopped meanwhile
            if found.error is not None:
                log.warning("topics could not be listed", extra={"why": str(found.error)})
                return
            self.topics = tuple(name for name in found.result() if matches(name))
            self._report_unmatched(matches, len(found.result()))
            self._core.soon(self._learn)

        found.when_done(arrived)

    def _report_unmatched(self, matches: TopicFilter, topics: int) -> None:
        """Warn once that no topic matches: the pattern may be misspelt, or be written as a shell pattern."""
        reported, self._unmatched = self._unmatched is not None, None if self.topics else topics
        if self._unmatched is not None and not reported:
            log.warning(
                "no topic matches the pattern, a regular expression for the whole name as in 'orders-.*'",
                extra={"pattern": str(matches), "topics": topics},
            )

    def _learn(self, now: float) -> None:
        """Look up the metadata of the topics, and continue once their partitions are known."""
        left = len(self.topics)

        def known(now: float) -> None:
            if self._due is not None:
                self._known(now)

        def arrived() -> None:
            nonlocal left
            left -= 1
            if left == 0 or self._options.member is None:
                self._core.soon(known)

        if not left:
            known(now)
        found = [self._core.metadata.topic(name, now) for name in self.topics]
        self._waits = [each for each in (*self._waits, *found) if not each.done]
        for each in found:
            each.when_done(arrived)


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
            raise UnknownTopicOrPartition(f"{topic.extent}, not {partition!r}")
