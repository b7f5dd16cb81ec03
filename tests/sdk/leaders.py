"""Leaders of partitions, for tests of a fetcher on the real `ClientCore`, in virtual time.

They are small, and strict where Kafka is: about sessions (KIP-227), epochs (KIP-320), topic ids (KIP-516) and limits
(KIP-74). ``versions`` says which APIs the nodes serve; `bend` may change or drop any answer.

Source: KafkaApis.scala, handleFetchRequest; FetchSession.scala; Partition.scala.
"""

import heapq
import itertools
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.codec.apis.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.offset_for_leader_epoch import EpochEndOffset as EndOfEpoch
from ottla.codec.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.codec.message_sets import read_record_set
from ottla.codec.records import Record, build_batch, rebased
from ottla.errors import (
    BrokerError,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Close, Connect, Connected, Key, Lost, Received, Run, Send, Written
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome

Place = tuple[str, int]
PIECE = 40
"""Bytes."""

NEW = {1: (4, 18), 2: (1, 11), 3: (1, 13), 18: (0, 3), 23: (2, 4)}
"""The versions that Kafka 4.3 serves of the APIs that a fetcher uses."""


@dataclass
class Log:
    """``batches`` as ``(base offset, next offset, leader epoch, bytes)``."""

    leader: int = 1
    leader_epoch: int = 0
    followers: tuple[int, ...] = ()
    prefer: int = -1
    """The replica that the leader recommends."""
    by_rack: bool = True
    """Whether it recommends one only to readers with a rack, and not to others by their address."""
    start: int = 0
    end: int = 0
    batches: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def append(self, *values: bytes, timestamp: int = 0) -> None:
        """Append one batch."""
        data = build_batch([Record(0, timestamp, None, value) for value in values])
        self.append_batch(rebased(data, self.end, self.leader_epoch), len(values))

    def append_batch(self, data: bytes, count: int) -> None:
        self.batches.append((self.end, self.end + count, self.leader_epoch, data))
        self.end += count

    def truncate(self, end: int) -> None:
        """Lose the end of the log, as in an unclean election, and begin a new epoch."""
        self.batches = [each for each in self.batches if each[1] <= end]
        self.end = end
        self.leader_epoch += 1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and its end offset."""
        known = [each for each in self.batches if each[2] <= epoch]
        later = [each[0] for each in self.batches if each[2] > epoch]
        if epoch > self.leader_epoch or not known:
            return -1, -1
        return known[-1][2], min(later, default=self.end)

    def read(self, offset: int, limit: int, whole: bool, cut: bool) -> bytes:
        """``whole``: return a first batch that exceeds the limit; ``cut``: fill the limit with part of a batch."""
        out = b""
        for _, following, _, data in self.batches:
            if following <= offset:
                continue
            if len(out) + len(data) > limit and not (whole and not out):
                return out + data[: limit - len(out)] if cut else out
            out += data
        return out


@dataclass
class Session:
    epoch: int
    by_id: bool
    wanted: dict[Place, FetchPartition]
    told: dict[Place, int] = field(default_factory=dict)


class Leaders:
    """A cluster and one client of it. The nodes are 1 to ``nodes``; a connection needs 1 ms in each direction."""

    def __init__(
        self,
        topics: dict[str, int],
        *,
        nodes: int = 1,
        versions: dict[int, tuple[int, int]] | None = None,
        options: Options | None = None,
    ) -> None:
        self.nodes, self.versions = list(range(1, nodes + 1)), dict(versions or NEW)
        self.ids = {name: uuid.UUID(int=100 + index) for index, name in enumerate(topics)}
        self._once = dict(self.ids)
        """The ids of all topics that ever existed, including deleted ones."""
        places = [(name, index) for name, count in topics.items() for index in range(count)]
        self.logs: dict[Place, Log] = {place: Log(leader=self.nodes[i % nodes]) for i, place in enumerate(places)}
        self.sessions: dict[tuple[int, int], Session] = {}
        self.room_for_sessions = True
        self.cuts = False
        """Fill limits with part of a batch, as before 0.10.1; only the first batch of an answer is always whole."""
        self.requests: list[tuple[int, int, Any]] = []
        self.bend: Callable[[int, Any, Any], Any] = lambda node, request, answer: answer
        self.hide: Callable[[int], bool] = lambda node: False
        """Nodes that refuse connections."""
        self.mute: Callable[[int], bool] = lambda node: False
        """Nodes that neither accept nor refuse connections."""
        self.drip = 0.0
        """Seconds between two pieces of an answer, if it is sent in pieces."""
        self.core = ClientCore([("leaders", 9001)], options or Options(), random.Random(1))
        self.now = 0.0
        self._numbers = itertools.count(1)
        self._links: dict[Key, int] = {}
        self._inbox: dict[Key, bytes] = {}
        self._clear_at: dict[Key, float] = {}
        self._events: list[tuple[float, int, Key, int, Any]] = []

    # -- time and wires ----------------------------------------------------------------------------------------------

    def run(self, until: Outcome[Any] | Callable[[], bool] | float, limit: float = 600.0) -> None:
        """Let time pass until a condition holds, or for so many seconds."""
        if isinstance(until, float):
            end = self.now + until
            self.core.later(end, lambda now: None)
            self.run(lambda: self.now >= end, limit)
            return
        end = self.now + limit
        while True:
            self._act()
            if until.done if isinstance(until, Outcome) else until():
                return
            due = [t for t in (self.core.deadline, self._events[0][0] if self._events else None) if t is not None]
            assert due, "no event is left"
            self.now = max(self.now, min(due))
            assert self.now <= end, f"not done after {limit} s: {list(self.core.explain(self.now))}"
            while self._events and self._events[0][0] <= self.now:
                _, _, key, link, what = heapq.heappop(self._events)
                if self._links.get(key) == link:
                    self._happen(key, what)
                    self._act()

    def cut(self) -> None:
        """Break every connection."""
        for key in list(self._links):
            del self._links[key]
            self.core.handle(Lost(key, "the wire broke"), self.now)

    def asked(self, kind: type) -> list[Any]:
        """The requests of this kind so far."""
        return [message for _, _, message in self.requests if isinstance(message, kind)]

    def _act(self) -> None:
        while actions := self.core.poll(self.now):
            for action in actions:
                match action:
                    case Connect(key=key):
                        self._links[key], self._inbox[key] = next(self._numbers), b""
                        node = max(key[0], 1)
                        if not self.mute(node):
                            self._later(key, Lost(key, "refused") if self.hide(node) else Connected(key), 0.001)
                    case Send(key=key, parts=parts) if key in self._links:
                        self._later(key, b"".join(parts), 0.001)
                        self.core.handle(Written(key), self.now)
                    case Run(call=call):
                        call()
                    case Close(key=key):
                        self._links.pop(key, None)

    def _later(self, key: Key, what: Any, delay: float) -> None:
        at = max(self.now + delay, self._clear_at.get(key, 0.0))
        self._clear_at[key] = at
        heapq.heappush(self._events, (at, next(self._numbers), key, self._links[key], what))

    def _happen(self, key: Key, what: Any) -> None:
        if not isinstance(what, bytes):
            if isinstance(what, Lost):
                del self._links[key]
            self.core.handle(what, self.now)
            return
        buffer = self._inbox[key] + what
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            frame, buffer = buffer[4 : 4 + size], buffer[4 + size :]
            request = frames.parse_request(frame)
            version, node = request.header.api_version, max(key[0], 1)
            self.requests.append((node, version, request.message))
            answer, wait = self._answer(node, version, request.message)
            answer = self.bend(node, request.message, answer)
            if answer is not None:
                data = frames.build_response(answer, version, request.header.correlation_id)
                size = PIECE if self.drip else len(data)
                for at in range(0, len(data), size):
                    self._later(key, Received(key, data[at : at + size]), 0.001 + wait + at // size * self.drip)
        self._inbox[key] = buffer

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, node: int, version: int, message: Any) -> tuple[Any, float]:
        match message:
            case ApiVersionsRequest():
                keys = tuple(ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.versions.items())
                return ApiVersionsResponse(error_code=0, api_keys=keys), 0.0
            case MetadataRequest():
                return self._metadata(message), 0.0
            case ListOffsetsRequest():
                return self._offsets(message, version), 0.0
            case OffsetForLeaderEpochRequest():
                return self._epochs(message), 0.0
            case FetchRequest():
                return self._fetch(node, version, message)
        raise AssertionError(f"no handler for {message}")

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        asked = list(self.ids) if message.topics is None else [each.name or "" for each in message.topics]
        return MetadataResponse(
            brokers=tuple(MetadataResponseBroker(node_id=n, host="leaders", port=9000 + n) for n in self.nodes),
            controller_id=1,
            topics=tuple(self._topic(name) for name in asked),
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        known = {index: log for (topic, index), log in self.logs.items() if topic == name}
        return MetadataResponseTopic(
            error_code=0 if known else UnknownTopicOrPartition.code,
            name=name,
            topic_id=self.ids.get(name, uuid.UUID(int=0)),
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=log.leader,
                    leader_epoch=log.leader_epoch,
                    replica_nodes=(),
                    isr_nodes=(),
                )
                for index, log in known.items()
            ),
        )

    def _offsets(self, message: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = []
        for topic in message.topics:
            found = []
            for each in topic.partitions:
                log = self.logs[topic.name, each.partition_index]
                offset = {EARLIEST: log.start, LATEST: log.end}.get(each.timestamp, -1)
                for base, _, _, data in log.batches if each.timestamp >= 0 else []:
                    if offset < 0 and any(
                        r.timestamp >= each.timestamp for b in read_record_set(data) for r in b.records()
                    ):
                        offset = base
                old = (offset,) if version == 0 and offset >= 0 else ()
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=0,
                        offset=offset if version else -1,
                        old_style_offsets=old,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
        return ListOffsetsResponse(topics=tuple(topics))

    def _epochs(self, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in message.topics:
            found = []
            for each in topic.partitions:
                epoch, end = self.logs[topic.topic, each.partition].end_of(each.leader_epoch)
                found.append(EndOfEpoch(error_code=0, partition=each.partition, leader_epoch=epoch, end_offset=end))
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found)))
        return OffsetForLeaderEpochResponse(topics=tuple(topics))

    def _fetch(self, node: int, version: int, message: FetchRequest) -> tuple[FetchResponse, float]:
        names = {id: name for name, id in self.ids.items()}
        self._once |= self.ids
        asked: dict[Place, FetchPartition] = {}
        gone: dict[Place, uuid.UUID] = {}
        for topic in message.topics:
            name = names.get(topic.topic_id, "") if version >= 13 else topic.topic
            for each in topic.partitions:
                asked[name or str(topic.topic_id), each.partition] = each
                if not name:
                    gone[str(topic.topic_id), each.partition] = topic.topic_id
        forgotten = [
            (names.get(topic.topic_id, str(topic.topic_id)) if version >= 13 else topic.topic, index)
            for topic in message.forgotten_topics_data
            for index in topic.partitions
        ]
        session, error = self._session(node, version, message, asked, forgotten)
        if error is not None:
            return FetchResponse(error_code=error.code, responses=()), 0.0
        left, results = message.max_bytes if version >= 3 else 2**31, dict[Place, PartitionData]()
        for place, each in (session.wanted if session else asked).items():
            result = self._read(
                node, version, place, each, message, left, first=not any(r.records for r in results.values())
            )
            left -= len(result.records or b"")
            if place in gone or (version >= 13 and place[0] not in self.ids):
                result.error_code = UnknownTopicId.code
            news = result.records or result.error_code or result.preferred_read_replica >= 0
            news = news or result.diverging_epoch.end_offset >= 0
            if session is None or news or session.told.get(place) != result.high_watermark:
                results[place] = result
            if session is not None:
                session.told[place] = result.high_watermark
        for place in [place for place, result in results.items() if session and result.records]:
            session.wanted[place] = session.wanted.pop(place)  # type: ignore[union-attr] # there is one
        topics = tuple(
            FetchableTopicResponse(
                topic=name,
                topic_id=next(
                    (id for place, id in gone.items() if place[0] == name), self._once.get(name, uuid.UUID(int=0))
                ),
                partitions=tuple(result for place, result in results.items() if place[0] == name),
            )
            for name in dict.fromkeys(name for name, _ in results)
        )
        hints = {result.current_leader.leader_id for result in results.values()} - {-1}
        endpoints = tuple(NodeEndpoint(node_id=n, host="leaders", port=9000 + n) for n in sorted(hints))
        id = next((id for (n, id), each in self.sessions.items() if each is session and n == node), 0)
        wait = 0.0 if any(r.records or r.error_code or r.preferred_read_replica >= 0 for r in results.values()) else 1.0
        return (
            FetchResponse(responses=topics, session_id=id, node_endpoints=endpoints if version >= 16 else ()),
            wait * message.max_wait_ms / 1000,
        )

    def _session(
        self, node: int, version: int, message: FetchRequest, asked: dict[Place, FetchPartition], forgotten: list[Place]
    ) -> tuple[Session | None, type[BrokerError] | None]:
        if version < 7 or message.session_epoch == -1:
            self.sessions.pop((node, message.session_id), None)
            return None, None
        if message.session_epoch == 0:
            self.sessions.pop((node, message.session_id), None)
            if not self.room_for_sessions:
                return None, None
            session = self.sessions[node, next(self._numbers)] = Session(1, version >= 13, dict(asked))
            return session, None
        found = self.sessions.get((node, message.session_id))
        if found is None:
            return None, FetchSessionIdNotFound
        if found.epoch != message.session_epoch:
            return None, InvalidFetchSessionEpoch
        found.epoch += 1
        found.wanted |= asked
        for place in asked:
            found.told.pop(place, None)
        for place in forgotten:
            unknown = place[0] not in self.ids
            assert place in found.wanted or unknown, f"{place} is in forgotten_topics, but was never in the session"
            found.wanted.pop(place, None)
        return found, None

    def _read(
        self,
        node: int,
        version: int,
        place: Place,
        asked: FetchPartition,
        message: FetchRequest,
        left: int,
        first: bool,
    ) -> PartitionData:
        log = self.logs.get(place)
        result = PartitionData(partition_index=place[1], error_code=0, high_watermark=-1, records=b"")
        if log is None:
            result.error_code = UnknownTopicOrPartition.code
        elif node != log.leader and node not in log.followers:
            result.error_code = NotLeaderOrFollower.code
            if version >= 12:
                result.current_leader = LeaderIdAndEpoch(leader_id=log.leader, leader_epoch=log.leader_epoch)
        elif 0 <= asked.current_leader_epoch < log.leader_epoch:
            result.error_code = FencedLeaderEpoch.code
        elif asked.current_leader_epoch > log.leader_epoch:
            result.error_code = UnknownLeaderEpoch.code
        elif (
            asked.last_fetched_epoch >= 0 and 0 <= (end := log.end_of(asked.last_fetched_epoch))[1] < asked.fetch_offset
        ):
            result.diverging_epoch = EpochEndOffset(epoch=end[0], end_offset=end[1])
        elif not log.start <= asked.fetch_offset <= log.end:
            result.error_code, result.log_start_offset = OffsetOutOfRange.code, log.start
        else:
            result.high_watermark = result.last_stable_offset = log.end
            result.log_start_offset = log.start
            recommends = version >= 11 and (message.rack_id or not log.by_rack)
            if node == log.leader and recommends and log.prefer >= 0:
                result.preferred_read_replica = log.prefer
            else:
                limit = min(asked.partition_max_bytes, max(left, 0))
                result.records = log.read(
                    asked.fetch_offset, limit, whole=first and version >= 3, cut=version < 3 or self.cuts
                )
        return result
