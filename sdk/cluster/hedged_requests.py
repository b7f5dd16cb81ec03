"""Asks nodes for metadata: one, and another one as well while it gives no answer.

Rule: a dead address costs a second at most. Each further request in flight doubles the time after which yet another
node is asked.
"""

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from ottla.codec.apis.metadata import MetadataResponse
from ottla.errors import OttlaError
from ottla.sdk.cluster.client_interface import ClientInterface
from ottla.sdk.cluster.questions import Question, Questions
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Node
from ottla.sdk.timers import Timer

HEDGE_DELAY = 1.0
"""Seconds without an answer after which another node is asked as well; doubled for each request in flight."""

Answered = Callable[[Node, MetadataResponse | OttlaError, Question, float], None]


class AskedNode(NamedTuple):
    """A request in flight to a node, and the timer that asks another node as well."""

    question: Question
    hedge: Timer


class HedgedRequests:
    """Sends Metadata requests with the next ``questions``, and hedges them.

    Args:
        failed: the ids of the nodes that are asked last, because they failed in this round.
        answered: called with each answer or error, unless the client is closed.

    Attributes:
        since: the time of the first request since the last `settled`; NaN if there was none.
    """

    def __init__(
        self, client: ClientInterface, questions: Questions, failed: Collection[int], answered: Answered
    ) -> None:
        self._client, self._options, self._questions = client, client.options, questions
        self._failed, self._answered = failed, answered
        self.since = math.nan
        self._asked: dict[int, AskedNode] = {}
        """Requests in flight, by node id."""

    @property
    def nodes(self) -> Collection[int]:
        """The ids of the nodes with a request in flight, in the order of the requests."""
        return self._asked.keys()

    def settled(self) -> None:
        """Take note that a node gave metadata."""
        self.since = math.nan

    def ask(self, now: float) -> None:
        """Send the next question, unless one in flight covers it and its node may still answer soon."""
        # A node whose hedge delay has passed may be down: it does not keep the client from asking others. Nor does a
        # request for some topics, whose answer would leave the refresh of all still due.
        if self._questions.refresh_is_due(now) or not any(each.hedge.call for each in self._asked.values()):
            self._ask_another(now)
        elif self._questions.wait_behind(each.question for each in self._asked.values()):
            self._ask_another(now, waits_alone=True)

    def _hedge(self, node_id: int, now: float) -> None:
        """Ask another node, because this one has not answered; wait for one while all have a request in flight."""
        if self._client.closed:
            return
        asked, question = self._asked[node_id], self._ask_another(now)
        # A request that may create topics names no others, so it cannot replace a refresh of all that is still owed.
        if question is None or (self._questions.settles(asked.question) and not question.about_all):
            hedge = self._client.later(now + self._options.retry_backoff, partial(self._hedge, node_id))
            self._asked[node_id] = asked._replace(hedge=hedge)

    def _ask_another(self, now: float, *, waits_alone: bool = False) -> Question | None:
        """Ask a node without a request in flight; nodes that have not failed in this round come first.

        Returns the question; None if every node has a request in flight.

        Args:
            waits_alone: ask only for topics that callers wait for.
        """
        node = self._client.other_node({*self._asked, *self._failed}) or self._client.other_node(self._asked)
        if self._client.closed or node is None:
            return None
        question = self._questions.next(now, waits_alone=waits_alone)

        def ended(answer: MetadataResponse | OttlaError, now: float) -> None:
            self._asked.pop(node.id).hedge.cancel()
            if not self._client.closed:
                self._answered(node, answer, question, now)

        hedge = self._client.later(now + HEDGE_DELAY * 2 ** len(self._asked), partial(self._hedge, node.id))
        self._asked[node.id] = AskedNode(question, hedge)
        timeout = min(self._options.request_timeout, self._options.connect_timeout)
        request = requests.metadata(question.topics, create=question.create)
        if math.isnan(self.since):
            self.since = now
        self._client.submit(node, Exchange(request, ended, now + timeout, background=True), now)
        return question
