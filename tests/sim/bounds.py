"""Bounds on a client: on its memory, on its requests, and on the time for which it delays other calls.

Rules:
- `buffer_memory` counts every batch of a producer that is still referenced, with its overhead. So an acknowledged batch
  must be freed.
- A client pauses once before it retries the batches that a node refused with one error, and asks for metadata at most
  once in each `retry_backoff`, however many partitions the node refuses.
- The timeout in a Produce request is shorter than the client's own timeout for the answer.
- A callback for the end of the client is removed once its caller no longer waits.
- A throttled answer is no error of the broker or of its partitions.
- A broker serves the requests of a connection one by one, and acks=all waits for replicas. So no other request may wait
  behind a Produce.
"""

import gc
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest, ProduceResponse
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.codec.records import HEADER_SIZE
from ottla.errors import MessageTooLarge, OttlaError, RemoteProtocolError
from ottla.sdk.cluster.hedged_requests import HEDGE_DELAY
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.batches import ProducerBatch
from tests.sim.clock import Clock
from tests.sim.network import Link
from tests.sim.users import Process, Violation

MEMORY = "a producer takes more memory than it counts"
STORM = "a client retries what a node refuses too often"
CURIOUS = "a client asks for metadata too often"
HASTY = "a client asks for metadata again without a pause, though no caller waits for them"
LATE = "a broker gets as long for a request as the client waits for its answer"
SLOTH = "a client does not refresh the metadata of all its topics, though the refresh is due"
GREEDY = "a client refreshes the metadata of all its topics before that is due"
KEPT = "a client keeps callbacks of callers that no longer wait"
BLAME = "a client blames a broker that keeps to the protocol"
HASTE = "a client over its quota does not wait for the throttle time"
BEHIND = "a request waits behind Produce"

SLACK = 4600
"""Bytes that may be referenced without being counted: a callback's error keeps its batch until a call raises it."""
OVERHEAD = 2048
"""Bytes that a batch takes in addition to its records."""
MOST_AGAIN = 20
"""Most Produce requests in a second with which a client retries one error at a node."""
MOST_CLOSERS = 30
"""Most callbacks for the end of a client at a time: of consumers, producers and calls."""
ROUNDING = 1e-9
"""Seconds by which two sums of times may differ."""
MOST_METADATA = 40
"""Most requests for metadata that a client makes in a second."""


class Watched(ProducerBatch):
    """A batch that weak references can follow, to see whether it is still referenced."""

    __slots__ = ("__weakref__",)


def check_blame(core: ClientCore, who: str) -> None:
    for fetcher in [each for each in core.parts if isinstance(each, Fetcher)]:
        for position in fetcher._positions.assigned.values():
            if isinstance(position.trouble, RemoteProtocolError):
                raise Violation(BLAME, f"{who}: {position.trouble}")


def check_closers(core: ClientCore, who: str) -> None:
    if len(core._closers) > MOST_CLOSERS:
        raise Violation(KEPT, f"{who} has {len(core._closers)} calls to make when it closes")


class Haste:
    """Checks that metadata requests for which no caller waits follow a pause, however many errors there are."""

    def __init__(self, process: Process) -> None:
        self._process, self._wrong = process, ""
        process.checks.append(self._check)

    def asks(self) -> None:
        """The client is about to ask for metadata, and not because a node is slow to answer."""
        metadata, now = self._process.core.metadata, self._process.clock.now
        awaited = self._process.connecting or metadata._questions.waited_for
        if now < metadata._paused_until - ROUNDING and not metadata._requests.nodes:
            self._wrong = f"{self._process.name} asks within the pause that follows a round without any answer"
        if awaited or metadata._failures or metadata._requests.nodes:
            return
        if (age := now - metadata.updated_at) < self._process.core.options.retry_backoff - ROUNDING:
            self._wrong = f"{self._process.name} has metadata that are {age * 1000:.1f} ms old"

    def _check(self) -> None:
        if self._wrong:
            raise Violation(HASTY, self._wrong)


class Sloth:
    """Checks that the client refreshes the metadata of all its topics when that is due, and only then.

    Any other question may delay the refresh by one question at most, to a node that may not answer. A caller who waits
    for one topic has that topic asked for alone, even while the refresh is in flight. If the refresh stays unanswered,
    the client asks another node as well (a hedge), if one is free.
    """

    def __init__(self, process: Process) -> None:
        self._process, self._due, self._asked_at, self._greedy = process, math.inf, -math.inf, ""
        self._failed = False
        """A question failed since the last refresh was sent: it may have been the refresh."""
        self._others = 0
        """Answers to other questions that were asked since the refresh is due."""
        self._under_way = math.inf
        """When the oldest refresh in flight was sent; infinite if there is none, or if a later one is answered."""
        self._hedged_by = math.inf
        """When the client has to ask another node, unless an answer comes first."""
        process.checks.append(self._check)
        metadata = process.core.metadata
        self._refresh, self._suspect = metadata.refresh, metadata.suspect
        metadata.refresh = self._asked_for  # type: ignore[method-assign] # to know when a refresh is requested
        process.core.connections._suspect = self._suspected

    def _asked_for(self, now: float, delay: float = 0.0) -> None:
        pause = self._process.core.options.retry_backoff
        self._due = min(self._due, max(now + delay, self._process.core.metadata.updated_at + pause))
        self._refresh(now, delay)

    def _suspected(self, now: float, delay: float) -> None:
        self._due = min(self._due, now + delay)
        self._suspect(now, delay)

    def submitted(self, exchange: Exchange, now: float) -> None:
        if exchange.kind is not MetadataRequest or not exchange.background:  # a user's call asks for itself
            return
        core = self._process.core
        names, held = {each.name for each in exchange.message.topics or ()}, core.metadata._topics.held.keys()
        if held <= names:
            self._check()
            due = min(self._due, self._asked_at + core.options.metadata_max_age)
            more = names - {each.name for each in core.metadata._questions.waits}
            early = now < due - ROUNDING and not (self._failed or self._process.connecting)
            if more and early and len(core.metadata._requests.nodes) == 1:
                self._greedy = f"{self._process.name} asks for {sorted(more)}, due at {due:.3f}"
            if self._under_way == math.inf:  # else a refresh that became due since is still owed
                self._due, self._under_way = math.inf, now
            self._asked_at, self._failed, self._others, asked_at = now, False, 0, now
            self._hedged_by = now + HEDGE_DELAY * 2 ** (len(core.metadata._requests.nodes) - 1)
            ended = exchange.ended

            def told(answer: Any, now: float) -> None:
                if asked_at >= self._under_way:  # else a later refresh is in flight, or answered
                    failed = isinstance(answer, OttlaError)
                    pause = core.options.retry_backoff
                    self._due = min(self._due, now) if failed else max(self._due, now + pause)
                    self._under_way = self._hedged_by = math.inf
                ended(answer, now)

            exchange.ended = told
        elif now >= self._due and self._under_way == math.inf:
            self._count(exchange)

    def _count(self, exchange: Exchange) -> None:
        """Count the answer to a question that was asked instead of the refresh that is due."""
        ended, asked_at = exchange.ended, self._asked_at

        def told(answer: Any, now: float) -> None:
            same = asked_at == self._asked_at  # no refresh was asked for in between, which failed
            self._others += same and not isinstance(answer, OttlaError)
            ended(answer, now)

        exchange.ended = told

    def _check(self) -> None:
        core, now = self._process.core, self._process.clock.now
        if self._greedy:
            raise Violation(GREEDY, self._greedy)
        if core.closed or core.metadata._failures:
            self._due, self._failed, self._others = max(self._due, now), True, 0
            self._hedged_by = math.inf
        if now >= self._hedged_by and core.metadata._nodes.ids.issubset(core.metadata._requests.nodes):
            self._hedged_by = now  # every node is being asked already
        if now > max(self._hedged_by, self._process.thawed) + 2 * core.options.retry_backoff:
            raise Violation(SLOTH, f"{self._process.name}: waits for one node since {self._asked_at:.3f}")
        due = max(self._due, self._process.thawed, core.metadata.updated_at)
        if self._others > 2 or (now > due + 2 * core.options.retry_backoff and not core.metadata._requests.nodes):
            raise Violation(SLOTH, f"{self._process.name}: due at {self._due:.3f}, {self._others} other answers since")


@dataclass(slots=True)
class Memory:
    """The batches of one producer; ``used`` returns the bytes that the producer counts."""

    producer: str
    used: Callable[[], int]
    _batches: "list[ref[Watched]]" = field(default_factory=list)
    _grown: bool = False

    def added(self, batch: ProducerBatch) -> None:
        assert isinstance(batch, Watched)
        self._batches.append(ref(batch))
        self._grown = True

    def check(self) -> None:
        if not self._grown:
            return
        self._grown = False
        if self._held() > self.used() + SLACK:
            gc.collect()  # a batch that only reference cycles keep counts as freed
            if (held := self._held()) > self.used() + SLACK:
                raise Violation(MEMORY, f"{self.producer} holds {held} bytes, and counts {self.used()}")

    def _held(self) -> int:
        self._batches = [each for each in self._batches if each() is not None]
        alive = [batch for each in self._batches if (batch := each()) is not None]
        return sum(OVERHEAD + each.size - HEADER_SIZE for each in alive)


@dataclass(slots=True)
class Requests:
    """The requests of all clients, and how often they come."""

    clock: Clock
    features: Counter[str]
    _refused: dict[tuple[str, int], dict[tuple[str, int], int]] = field(default_factory=lambda: defaultdict(dict))
    """(client, node) -> the node's last error code for each partition."""
    _again: dict[tuple[str, int, int], deque[float]] = field(default_factory=lambda: defaultdict(deque))
    _metadata: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    _muted: dict[Link, float] = field(default_factory=dict)
    """Per connection, the end of its throttle time."""
    most_again: int = 0
    most_metadata: int = 0

    def sent(self, link: Link, message: Any) -> None:
        going_on = isinstance(message, SaslAuthenticateRequest)  # the broker waits for it within the handshake
        if self.clock.now < self._muted.get(link, 0.0) and not (link.writing or going_on):
            raise Violation(HASTE, f"{link.label}: {type(message).__name__}")
        if isinstance(message, ProduceRequest):
            link.produces = True
            self._produced(link, message)
        elif not isinstance(message, ApiVersionsRequest | SaslHandshakeRequest | SaslAuthenticateRequest):
            if link.produces:
                raise Violation(BEHIND, f"{link.label}: {type(message).__name__}")
            if isinstance(message, MetadataRequest):
                times = self._within(self._metadata[link.client.name])
                self.most_metadata = max(self.most_metadata, len(times))
                if len(times) > MOST_METADATA:
                    raise Violation(CURIOUS, f"{link.client.name} asks {len(times)} times within a second")

    def _produced(self, link: Link, message: ProduceRequest) -> None:
        assert isinstance(link.client, Process)
        timeout = link.client.core.options.request_timeout
        if message.timeout_ms >= timeout * 1000:
            raise Violation(LATE, f"{link.label}: {message.timeout_ms} ms, and waits {timeout:g} s itself")
        refused = self._refused[link.client.name, link.node]
        places = [
            (topic.name or str(topic.topic_id), each.index)
            for topic in message.topic_data
            for each in topic.partition_data
        ]
        for code in {refused.pop(place) for place in places if place in refused}:
            times = self._within(self._again[link.client.name, link.node, code])
            self.most_again = max(self.most_again, len(times))
            if len(times) > MOST_AGAIN:
                raise Violation(STORM, f"{link.label} retries error {code} in {len(times)} requests within a second")

    def delivered(self, link: Link, answer: Any) -> None:
        if throttled := getattr(answer, "throttle_time_ms", 0):
            self._muted[link] = self.clock.now + throttled / 1000
        if isinstance(answer, ProduceResponse):
            refused = self._refused[link.client.name, link.node]
            for topic in answer.responses:
                for each in topic.partition_responses:
                    if each.error_code not in (0, MessageTooLarge.code):  # a batch that is split needs no pause
                        refused[topic.name or str(topic.topic_id), each.index] = each.error_code

    def _within(self, times: deque[float]) -> deque[float]:
        """Add the current time, and return the times of the last second."""
        times.append(self.clock.now)
        while times[0] <= self.clock.now - 1.0:
            times.popleft()
        return times
