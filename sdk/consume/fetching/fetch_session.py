"""Builds a node's Fetch requests: with all partitions, or in a fetch session with the changed ones only (KIP-227).

    epoch 0 ── a full request ──► answered with a session id ──► 1, 2, 3, …: additions, changes, forgotten partitions
      ▲                                   │ no id: the broker has no room, is too old, throttles, or closes the session
      └───────────────────────────────────┴── a session error, a lost response, topic ids instead of names

Rules:
- One request at a time. `known` holds the last request for each partition; responses refer to that.
- A request is built once the version is known: from 13 on topics have ids, below 7 there are no sessions.
- A full request that replaces a session names it, so that the broker can drop it. The last request of all closes a
  session that will not be used any more.
- The broker serves partitions in the order of the request. Within a session it keeps its own order: a partition that
  got records goes to the end.
- From Kafka 0.10.1 on, brokers send whole batches, and the first batch of a response even if it exceeds the limit.
  Other brokers truncate a batch at the partition's limit (before 0.10.1), or at the response's. The client then asks
  for the batch at the head of a full request with room for all of it; only a batch that is truncated even then may be
  damaged (`room_for`).

Source: FetchSessionHandler.java, FetchSession.scala.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import field
from itertools import accumulate
from typing import TYPE_CHECKING

from ottla.codec.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    OttlaError,
    RemoteProtocolError,
    broker_error,
)
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.requests import NO_SESSION
from ottla.sdk.connection.versions import (
    FETCH_BY_ID,
    FETCH_BY_NAME,
    FETCH_LAST_EPOCH,
    FETCH_SESSIONS,
    FETCH_WITHOUT_LIMIT,
)
from ottla.sdk.consume.partitions.position import Position, PositionState
from ottla.sdk.events import Node

if TYPE_CHECKING:
    from uuid import UUID

SESSION_ERRORS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)
_EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """The part of the last request that concerns one partition."""

    position: Position
    seeks: int
    topic_id: "UUID"
    """`NO_UUID` if the request names topics without ids: a recreated topic then replaces the old one by itself. It must
    not be listed as forgotten in the same request: brokers add first and forget second, so they would drop it.
    """
    offset: int
    last_epoch: int
    leader_epoch: int
    max_bytes: int

    @property
    def matters(self) -> bool:
        """Whether the response still matters: the partition is still fetched at the same offset."""
        position = self.position
        fetching = position.state is PositionState.FETCHING
        return fetching and position.seeks == self.seeks and position.fetch_offset == self.offset


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of one request, in bytes and seconds."""

    wait: float
    max_bytes: int
    partition_max_bytes: int
    isolation: int
    rack: str


@dataclass(slots=True, eq=False)
class FetchSession:
    """The Fetch requests of a fetcher to one node, in a fetch session if possible."""

    node: Node
    priority: bool = False
    """For partitions that cannot wait while the broker holds back another Fetch; never a session at the broker."""
    id: int = 0
    epoch: int = 0
    """The session epoch of the next request; 0: a full request."""
    wanted: "OrderedDict[TopicPartition, Position]" = field(default_factory=OrderedDict)
    """The partitions to fetch; a partition that got records moves to the end."""
    known: dict[TopicPartition, RequestedPartition] = field(default_factory=dict)
    under_way: bool = False
    since: float = 0.0
    """When the request in flight was made."""
    reserved: int = 0
    """The maximum bytes of its response."""
    failures: int = 0
    """Consecutive session errors."""
    retry_at: float = 0.0
    """When the next request may go out, after session errors."""
    _changed: dict[TopicPartition, None] = field(default_factory=dict)
    _names: "dict[UUID, str]" = field(default_factory=dict)
    _nameless: dict[TopicPartition, None] = field(default_factory=dict)
    """Wanted partitions of topics whose id is unknown."""
    _troubled: dict[TopicPartition, Position] = field(default_factory=dict)
    """Wanted partitions that had an error and were not requested since."""
    _tried: dict[TopicPartition, Position] = field(default_factory=dict)
    """Wanted partitions that had an error and are in the last request."""
    _torn: dict[TopicPartition, Position] = field(default_factory=dict)
    """Wanted partitions whose next batch arrived truncated."""
    _head: TopicPartition | None = None
    """The partition that the broker served first, if that is certain."""
    _full: bool = True
    """The last request was a full one."""
    _version: int = -1

    def want(self, position: Position, node: Node) -> None:
        """Fetch the partition from its `fetch_offset`; the node's address may be another now."""
        self.node = node
        self.wanted[position.place] = position
        self._changed[position.place] = None
        if position.trouble is not None:
            self._troubled[position.place] = position
        if position.needs:
            self._torn[position.place] = position
        else:
            self._torn.pop(position.place, None)
        if position.topic_id == NO_UUID:
            self._nameless[position.place] = None
        else:
            self._nameless.pop(position.place, None)

    def drop(self, position: Position) -> None:
        """Stop fetching the partition."""
        if self.wanted.get(position.place) is position:
            del self.wanted[position.place]
            self._changed[position.place] = None
            self._nameless.pop(position.place, None)
            self._troubled.pop(position.place, None)
            self._tried.pop(position.place, None)
            self._torn.pop(position.place, None)

    def begin(self, reserved: int, now: float) -> None:
        """Take note that a request goes out; buffers reserve so many bytes for its response."""
        self.under_way, self.since, self.reserved = True, now, reserved

    def end(self) -> None:
        """Take note that the response is processed, or that there is none."""
        self.under_way, self.reserved = False, 0

    @property
    def versions(self) -> tuple[int, int] | None:
        """The versions of Fetch that can be used; ``None``: all."""
        return FETCH_BY_NAME if self._nameless else None

    def most(self, limit: int, partition_max_bytes: int) -> int:
        """The maximum bytes of a response: ``limit``, or less if the wanted partitions cannot fill it."""
        if len(self.wanted) * partition_max_bytes >= limit:
            return limit
        return min(limit, sum(max(each.needs, partition_max_bytes) for each in self.wanted.values()))

    @property
    def needs(self) -> int:
        """The bytes that the next response must have room for, because a batch arrived truncated; else 0."""
        return next((each.needs for each in self._torn.values()), 0)

    def room_for(self, place: TopicPartition) -> int:
        """The bytes that the last response surely had room for in this partition; 0: unknown."""
        asked = self.known[place].max_bytes
        if self._version <= FETCH_WITHOUT_LIMIT:
            return asked
        return min(asked, self.reserved) if place == self._head else 0

    def pause(self, until: float) -> None:
        """Send no request before this time."""
        self.retry_at = until

    def invalidate(self) -> None:
        """Send a full request next, because the broker's state of the session is unknown."""
        self.epoch = 0

    def request(self, limits: FetchLimits, version: int) -> FetchRequest:
        """The next request, in this version."""
        if torn := next(iter(self._torn), None):
            self.wanted.move_to_end(torn, last=False)
            self.invalidate()
        self._begin(version)
        places = list(self.wanted if self._full else self._changed)
        self._head = places[0] if self._full and places else None
        if version <= FETCH_WITHOUT_LIMIT:
            places = self._within(places, limits)
        topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
        forgotten: dict[tuple[str, UUID], list[int]] = {}
        for place in places:
            position, before = self.wanted.get(place), self.known.get(place)
            asked = _asked(position, limits, version) if position else None
            if asked == before:
                continue
            if before and (asked is None or asked.topic_id != before.topic_id):
                forgotten.setdefault((place[0], before.topic_id), []).append(place[1])
                del self.known[place]
            if asked:
                topics.setdefault((place[0], asked.topic_id), []).append(_partition(place[1], asked, version))
                self.known[place] = asked
                self._names[asked.topic_id] = place[0]
        self._changed.clear()
        self._tried, self._troubled = self._troubled, {}
        return requests.fetch(
            (FetchTopic(topic=name, topic_id=id, partitions=tuple(p)) for (name, id), p in topics.items()),
            wait=limits.wait,
            max_bytes=limits.max_bytes,
            isolation=limits.isolation,
            session=(self.id, self.epoch if version >= FETCH_SESSIONS and not self.priority else NO_SESSION),
            forgotten=(
                ForgottenTopic(topic=name, topic_id=id, partitions=tuple(p)) for (name, id), p in forgotten.items()
            ),
            rack=limits.rack,
        )

    def _within(self, places: list[TopicPartition], limits: FetchLimits) -> list[TopicPartition]:
        """The first partitions, at least one, whose limits fit into the response's: the request has no such limit."""
        sizes = (max(self.wanted[place].needs, limits.partition_max_bytes) for place in places)
        fitting = sum(total <= limits.max_bytes for total in accumulate(sizes))
        return places[: max(1, fitting)]

    def closing_request(self) -> FetchRequest | None:
        """The request that closes the session, if there is one; its response is empty."""
        return requests.fetch_nothing(self.id) if self.id else None

    def _begin(self, version: int) -> None:
        if (version >= FETCH_BY_ID) != (self._version >= FETCH_BY_ID) or version < FETCH_SESSIONS:
            self.epoch = 0
        if version < FETCH_SESSIONS:
            self.id = 0
        self._version, self._full = version, self.epoch == 0
        if self._full:
            self.known.clear()
            self._names.clear()

    def answered(self, answer: FetchResponse) -> OttlaError | None:
        """Process a response; return its top-level error, if any."""
        if answer.error_code:
            error = broker_error(answer.error_code, "Fetch", repeatable=True)
            if isinstance(error, FetchSessionIdNotFound):
                self.id = 0
            self.invalidate()
            self.failures += 1
            return error
        self.id = answer.session_id  # 0: there is none, or the broker has closed it
        self.epoch = self.epoch % _EPOCH_MAX + 1 if self.id else 0
        self.failures = 0
        return None

    def results(self, answer: FetchResponse) -> Iterator[tuple[RequestedPartition, PartitionData | OttlaError]]:
        """The response's results for the requested partitions.

        The response to a full request must contain each of them, or none if the client exceeds its quota (KIP-219).
        """
        answered: set[TopicPartition] = set()
        for topic in answer.responses:
            name = self._names.get(topic.topic_id, "") if self._version >= FETCH_BY_ID else topic.topic
            for result in topic.partitions:
                place = (name, result.partition_index)
                if asked := self.known.get(place):
                    answered.add(place)
                    yield asked, result
        if self._full and not answered and answer.throttle_time_ms > 0:
            self._troubled, self._tried = self._tried | self._troubled, {}
        elif self._full and len(answered) < len(self.known):
            for place, asked in list(self.known.items()):
                if place not in answered:
                    yield asked, RemoteProtocolError(f"{place[0]}-{place[1]} was left out of the answer")

    def recovered(self) -> Iterator[Position]:
        """The partitions whose error is gone: within a session, a response leaves out partitions without news."""
        tried, self._tried = self._tried, {}
        yield from tried.values()

    def served(self, place: TopicPartition) -> None:
        """Move a partition that got records to the end."""
        if place in self.wanted:
            self.wanted.move_to_end(place)


def _asked(position: Position, limits: FetchLimits, version: int) -> RequestedPartition:
    return RequestedPartition(
        position,
        position.seeks,
        position.topic_id if version >= FETCH_BY_ID else NO_UUID,
        position.fetch_offset,
        position.fetch_epoch,
        position.leader_epoch,
        max(position.needs, limits.partition_max_bytes),
    )


def _partition(index: int, asked: RequestedPartition, version: int) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=asked.leader_epoch,
        fetch_offset=asked.offset,
        last_fetched_epoch=asked.last_epoch if version >= FETCH_LAST_EPOCH else -1,
        partition_max_bytes=asked.max_bytes,
    )
