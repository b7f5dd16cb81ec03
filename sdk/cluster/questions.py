"""Decides which topics the next Metadata request names, and settles callers that wait for a topic.

Rules:
- Topics that callers wait for are requested alone (KIP-526), unless a refresh of all held topics is due. Otherwise,
  with a thousand held topics, each new topic would cost a request for a thousand. A response about some topics does not
  delay the refresh of all.
- A request either allows creation for all of its topics or for none. So a request that may create topics names only
  topics that may be created; if more is due, the next request names all of that.
"""

import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from ottla.errors import OttlaError, UnknownTopicOrPartition, broker_error
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import Cluster, Topic
from ottla.sdk.cluster.held_topics import HeldTopics
from ottla.sdk.outcome import Outcome


@dataclass(slots=True, eq=False)
class TopicWait:
    """A caller that waits until a topic is known."""

    name: str
    create: bool
    outcome: Outcome[Topic]
    grace: float
    """For so many seconds an unknown topic may be in creation."""
    since: float
    """Only responses to requests sent at this time or later count. It may lie in the future."""
    unknown_since: float = math.nan
    """Since when brokers answer that they do not know the topic."""

    def unknown(self, now: float) -> float:
        """Take note that a broker does not know the topic; return since when that is so."""
        if math.isnan(self.unknown_since):
            self.unknown_since = now
        return self.unknown_since


class Question(NamedTuple):
    """The content of a Metadata request."""

    topics: Collection[str]
    create: bool
    """The broker creates missing topics if its configuration allows it."""
    at: float
    about_all: bool
    """All held topics are included."""

    def concerns(self, wait: TopicWait) -> bool:
        """Whether the response can settle ``wait``."""
        return wait.name in self.topics and self.at >= wait.since


class Questions:
    """Builds Metadata requests from the ``held`` topics and the topics that callers wait for.

    Attributes:
        waits: the waiting callers; `forget_gone` removes callers that have given up.
        all_at: when a refresh of all held topics is due; inf if it was requested and no newer one was asked for since.
    """

    def __init__(self, cluster: Cluster, held: HeldTopics) -> None:
        self._cluster, self._held = cluster, held
        self.waits: list[TopicWait] = []
        self.all_at = -math.inf
        self._all_asked: Question | None = None
        """The first request for all topics since a refresh was last wanted, while it, or its hedge to another node, is
        in flight."""
        self._created = False
        """The last request allowed the creation of topics."""

    @property
    def waited_for(self) -> bool:
        """Whether a caller waits for a topic."""
        return any(not each.outcome.done for each in self.waits)

    def add(self, wait: TopicWait) -> None:
        """Have the next request name a topic for which a caller waits."""
        self.waits.append(wait)

    def refuse(self, error: OttlaError) -> None:
        """Fail all waiting callers: no node gives the client metadata."""
        for each in self.waits:
            each.outcome.fail(error)

    def forget_gone(self) -> None:
        """Remove callers that no longer wait."""
        self.waits = [each for each in self.waits if not each.outcome.done]

    def want_all(self, when: float) -> None:
        """Have all held topics refreshed at ``when`` at the latest."""
        self.all_at = min(self.all_at, when)

    def wait_behind(self, under_way: Iterable[Question]) -> bool:
        """Whether a caller waits for a new topic while all requests in flight are full refreshes without it."""
        asked = list(under_way)
        known = self._cluster.topics
        new = (each for each in self.waits if each.name not in known and not each.outcome.done)
        return all(each.about_all for each in asked) and any(
            not any(question.concerns(wait) for question in asked) for wait in new
        )

    def refresh_is_due(self, now: float) -> bool:
        """Whether a refresh of all held topics is due, and no request for one is in flight."""
        return self._all_asked is None and now >= self.all_at

    def next(self, now: float, *, waits_alone: bool = False) -> Question:
        """The content of the next request.

        Args:
            waits_alone: name only the topics that callers wait for, even if a refresh of all is due.
        """
        self.forget_gone()
        waits = self.waits
        all_due = not waits_alone and (self._all_asked is not None or now >= self.all_at)
        create = any(each.create and each.name not in self._cluster.topics for each in waits)
        if self._created and (all_due or not all(each.create for each in waits)):
            create = False
        self._created = create
        wanted = [each.name for each in waits if each.create or not create]
        held = self._held.held if all_due and not create else ()
        topics = dict.fromkeys([*held, *wanted]).keys()
        about_all = self._held.held.keys() <= topics
        question = Question(topics, create, now, about_all)
        # Otherwise this is a hedge to another node, and a newer refresh may have become due since the first.
        if about_all and self._all_asked is None:
            self.all_at, self._all_asked = math.inf, question
        return question

    def settle(self, question: Question, now: float, heard_for: Callable[[float, float], float]) -> None:
        """Settle the callers whose topics are in the response to ``question``, which the cluster has adopted.

        Args:
            heard_for: `Metadata.heard_for`.
        """
        self.waits = [each for each in self.waits if not self._judge(each, question, now, heard_for)]

    def _judge(
        self, wait: TopicWait, question: Question, now: float, heard_for: Callable[[float, float], float]
    ) -> bool:
        """Settle ``wait`` if the response to ``question`` allows it; return whether it is settled."""
        name, outcome = wait.name, wait.outcome
        if outcome.done or not question.concerns(wait):
            return outcome.done
        if topic := self._cluster.topics.get(name):
            outcome.succeed(topic)
            return True
        code = self._cluster.errors.get(name, UnknownTopicOrPartition.code)
        error = broker_error(code, f"topic {name!r}", repeatable=True)
        since = wait.unknown(now)
        unknown = isinstance(error, UnknownTopicOrPartition)
        passing = error.retriable and not (unknown and heard_for(since, now) >= wait.grace)
        if not passing:
            outcome.fail(error)
        return not passing

    def failed(self, question: Question) -> None:
        """Take note that the request failed."""
        if self.settles(question):
            self.all_at, self._all_asked = -math.inf, None

    def answered(self, question: Question, now: float, pause: float, max_age: float) -> float:
        """Take note of a response; return when to ask next.

        The time is ``now`` for topics that the request left out, or that must be newer; after ``pause`` for topics in
        creation; otherwise when a refresh of all is wanted or they are ``max_age`` old, but not before ``pause``.
        """
        self.want_all(now + max_age)
        if self.settles(question):
            self.all_at, self._all_asked = max(self.all_at, now + pause), None
        if left := [each.since for each in self.waits if not question.concerns(each)]:
            return max(now, min(left))
        return now + pause if self.waits else max(self.all_at, now + pause)

    def settles(self, question: Question) -> bool:
        """Whether this is the current request for all topics, or one as new: a slow node may answer an older one."""
        return question.about_all and self._all_asked is not None and question.at >= self._all_asked.at
