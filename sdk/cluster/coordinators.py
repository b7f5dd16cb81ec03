"""Finds the coordinator of a group or transactional id, and keeps it until a response says that it has moved.

Rules:
- Concurrent lookups of one key share a request.
- After COORDINATOR_NOT_AVAILABLE or a broken connection, the lookup is retried with backoff, on any working node,
  until `api_timeout`; the error then contains the last failure.
- A part of the client whose request to the coordinator fails calls `heard` with the error: after NOT_COORDINATOR,
  COORDINATOR_NOT_AVAILABLE, a broken connection or a timeout, the coordinator is looked up again.
- A coordinator that no part has looked up for `metadata_max_age` is forgotten, as topics are: groups come and go.

Source: AbstractCoordinator.java, FindCoordinatorFuture.
"""

from enum import IntEnum
from functools import partial

from ottla.addresses import format_address
from ottla.codec.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    NotCoordinator,
    OttlaError,
    TimeoutExpired,
    TransactionalIdAuthorizationFailed,
    broker_error,
)
from ottla.sdk.cluster.client_interface import ClientInterface
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import FIND_ONE_COORDINATOR, FIND_TRANSACTION_COORDINATOR
from ottla.sdk.events import Node
from ottla.sdk.missing_rights import coordinator_denied
from ottla.sdk.outcome import Outcome, own, settled_with
from ottla.sdk.timers import Timer

HEDGE_DELAY = 3.0
"""Seconds without an answer after which the lookup asks another node as well."""
_MOVED = (NotCoordinator, CoordinatorNotAvailable, ConnectionLost, TimeoutExpired)


class Kind(IntEnum):
    """The kind of key that is coordinated; the values are `FindCoordinatorRequest.key_type`'s."""

    GROUP = GROUP
    TRANSACTIONAL_ID = TRANSACTION

    def __str__(self) -> str:
        return "group" if self is Kind.GROUP else "transactional id"


class Coordinators:
    """Looks up and caches the coordinators of one kind of key."""

    def __init__(self, core: ClientInterface, kind: Kind = Kind.GROUP) -> None:
        self._core, self.kind = core, kind
        self._known: dict[str, Node] = {}
        self._used: dict[str, float] = {}
        """When each key was last looked up, oldest first."""
        self._asked: dict[str, _CoordinatorLookup] = {}

    def known(self, key: str) -> Node | None:
        """The coordinator if it is known; sends no request."""
        return self._known.get(key)

    def find(self, key: str, now: float) -> Outcome[Node]:
        """The coordinator of ``key``, from the cache or looked up.

        Fails with `TimeoutExpired` after `api_timeout`, or at once with an error that is not retriable, such as
        `GroupAuthorizationFailed`.
        """
        if node := self._known.get(key):
            self._use(key, now)
            return settled_with(node)
        return self.ask(key, now)

    def ask(self, key: str, now: float) -> Outcome[Node]:
        """Like `find`, but bypasses the cache, which may be out of date."""
        self._use(key, now)
        question = self._asked.get(key)
        if question is None:
            question = self._asked[key] = _CoordinatorLookup(self._core, self.kind, key, now)
            question.outcome.when_done(partial(self._end, key, question.outcome))
            question.begin(now)
        return own(question.outcome)

    def _use(self, key: str, now: float) -> None:
        """Record the lookup of ``key``, and forget keys that were not looked up for `metadata_max_age`."""
        self._used.pop(key, None)
        self._used[key] = now
        while self._used[oldest := next(iter(self._used))] < now - self._core.options.metadata_max_age:
            del self._used[oldest]
            self.forget(oldest)

    def _end(self, key: str, outcome: Outcome[Node]) -> None:
        del self._asked[key]
        if outcome.error is None and key in self._used:
            self._known[key] = outcome.result()

    def where(self, key: str) -> str:
        """A text for people: which node coordinates the key, or why it is unknown."""
        if node := self._known.get(key):
            return f"its coordinator is node {node.id} at {format_address(node.host, node.port)}"
        question = self._asked.get(key)
        trouble = f" ({question.trouble})" if question is not None and question.trouble else ""
        return f"looking for its coordinator{trouble}"

    def forget(self, key: str) -> None:
        """Drop the known coordinator: it has moved or cannot be reached."""
        self._known.pop(key, None)

    def heard(self, key: str, error: OttlaError) -> None:
        """Forget the coordinator if ``error``, from it or its connection, means that it may have moved."""
        if isinstance(error, _MOVED):
            self.forget(key)


class _CoordinatorLookup:
    """Repeats FindCoordinator until a node answers."""

    def __init__(self, core: ClientInterface, kind: Kind, key: str, now: float) -> None:
        self._core, self.kind, self._key = core, kind, key
        self.outcome: Outcome[Node] = Outcome()
        self.trouble = ""
        self._failures = 0
        self._until = now + core.options.api_timeout
        self._asked: dict[int, None] = {}
        """Nodes that have not answered yet."""
        self._timer: Timer | None = None

    @property
    def _what(self) -> str:
        return f"coordinator of {self.kind} {self._key!r}"

    def begin(self, now: float) -> None:
        self.outcome.when_done(self._core.later(self._until, lambda now: self._expire()).cancel)
        self.outcome.when_done(lambda: self._timer.cancel() if self._timer else None)
        self._core.fail_on_close(self.outcome)
        self.ask(now)

    def ask(self, now: float) -> None:
        """Send the request to one more node; earlier ones may still be in flight."""
        if self.outcome.done:
            return
        self._again(now + HEDGE_DELAY)
        node = self._core.other_node(self._asked)
        if node is None:
            return
        self._asked[node.id] = None

        def ended(answer: FindCoordinatorResponse | OttlaError, now: float) -> None:
            self._asked.pop(node.id, None)
            self._answered(answer, now)

        request = FindCoordinatorRequest(key=self._key, key_type=self.kind)
        versions = FIND_ONE_COORDINATOR if self.kind is Kind.GROUP else FIND_TRANSACTION_COORDINATOR
        deadline = min(now + self._core.options.request_timeout, self._until)
        self._core.submit(node, Exchange(request, ended, deadline, versions=versions), now)

    def _again(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._core.later(when, self.ask)

    def _answered(self, answer: FindCoordinatorResponse | OttlaError, now: float) -> None:
        if self.outcome.done:
            return
        if isinstance(answer, FindCoordinatorResponse):
            if not answer.error_code:
                self.outcome.succeed(Node(answer.node_id, answer.host, answer.port))
                return
            answer = broker_error(answer.error_code, answer.error_message or self._what, repeatable=True)
            if isinstance(answer, GroupAuthorizationFailed | TransactionalIdAuthorizationFailed):
                answer = coordinator_denied(answer, str(self.kind), self._key)
        if not answer.retriable:
            self.outcome.fail(answer)
            return
        self.trouble = str(answer)
        self._again(now + self._core.backoff(self._failures))
        self._failures += 1

    def _expire(self) -> None:
        waited = f"not found within {self._core.options.api_timeout:g} s"
        trouble = f"last error: {self.trouble}" if self.trouble else "no broker has answered"
        self.outcome.fail(TimeoutExpired(f"{self._what}: {waited}; {trouble}"))
