"""Which topics brokers are asked about next.

Rules:
- What a caller waits for is asked for alone (KIP-526), unless it is time for all topics that are held: with a thousand
  of them, each new one would cost a question about a thousand. An answer about some puts off no question about all.
- One request creates all of its topics or none, so one that may create asks only for those that may be created; where
  more is due, the next one asks for all of it.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.sdk.cluster.cluster import Cluster, Topic
from ottla.sdk.cluster.held import HeldTopics
from ottla.sdk.outcome import Outcome


@dataclass(slots=True, eq=False)
class TopicWait:
    """A caller waits for a topic to be known."""

    name: str
    create: bool
    outcome: Outcome[Topic]
    grace: float
    """Seconds for which an unknown topic is taken for one that is being created."""
    since: float
    """Only answers to later questions count. It may lie ahead."""
    unknown_since: float = math.nan


class Question(NamedTuple):
    """What a node is asked for."""

    topics: Collection[str]
    create: bool
    """Those that do not exist are created, where the broker allows it."""
    at: float
    about_all: bool
    """No topic that is held was left out."""

    def concerns(self, wait: TopicWait) -> bool:
        """Whether the answer is one that ``wait`` waits for."""
        return wait.name in self.topics and self.at >= wait.since


class Questions:
    """About topics of ``cluster``: those that are ``held``, and what callers wait for.

    Attributes:
        waits: of callers, perhaps of some that have gone: see `forget_gone`.
        all_at: when all topics that are held are to be asked for; inf where they have been, and nobody has wanted them
            newer since.
    """

    def __init__(self, cluster: Cluster, held: HeldTopics) -> None:
        self._cluster, self._held = cluster, held
        self.waits: list[TopicWait] = []
        self.all_at = -math.inf
        self._all_asked: Question | None = None
        """The first about all that was asked since they were last wanted, if it, or another node's, is under way."""
        self._created = False
        """The last one was one that may create topics."""

    @property
    def waited_for(self) -> bool:
        """Somebody waits for a topic."""
        return any(not each.outcome.done for each in self.waits)

    def forget_gone(self) -> None:
        """Of callers who wait no more nothing is kept."""
        self.waits = [each for each in self.waits if not each.outcome.done]

    def want_all(self, when: float) -> None:
        """All topics that are held are wanted as they are ``when`` that is, at the latest."""
        self.all_at = min(self.all_at, when)

    def wait_behind(self, under_way: Iterable[Question]) -> bool:
        """Whether a caller waits for a new topic, while these questions are about all others."""
        asked = list(under_way)
        known = self._cluster.topics
        new = (each for each in self.waits if each.name not in known and not each.outcome.done)
        return all(each.about_all for each in asked) and any(
            not any(question.concerns(wait) for question in asked) for wait in new
        )

    def next(self, now: float, *, waits_alone: bool = False) -> Question:
        """What to ask now.

        Args:
            waits_alone: only the topics of waiting callers, though all may be due.
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
        if about_all and self._all_asked is None:  # else another node is asked the same, and more may be due since
            self.all_at, self._all_asked = math.inf, question
        return question

    def failed(self, question: Question) -> None:
        """Nothing was learned by it."""
        if self._settles(question):
            self.all_at, self._all_asked = -math.inf, None

    def answered(self, question: Question, now: float, pause: float, max_age: float) -> float:
        """When to ask again: at once for what was left out or is wanted newer, else after a ``pause`` at the earliest.

        Soon for what is being made; for all that are held when somebody wants them, or when they are ``max_age`` old.
        """
        self.want_all(now + max_age)
        if self._settles(question):
            self.all_at, self._all_asked = max(self.all_at, now + pause), None
        if left := [each.since for each in self.waits if not question.concerns(each)]:
            return max(now, min(left))
        return now + pause if self.waits else max(self.all_at, now + pause)

    def _settles(self, question: Question) -> bool:
        """Whether it is the one about all, or as new: a node that was slow may answer an older one."""
        return question.about_all and self._all_asked is not None and question.at >= self._all_asked.at
