"""A world for `ClientCore` without sockets or a clock: time jumps, and connections break, as drawn from a seed.

`ModelBroker` is the shortest broker that keeps Kafka's promises to a producer and a consumer. It is written for these
tests alone and shares no code with brokerlite, so that a mistake in our broker cannot hide one in our client.
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
from ottla.codec.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_offsets import (
    EARLIEST,
    ListOffsetsPartition,
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
from ottla.codec.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.codec.records import Record, RecordBatch, parse_batch, rebased
from ottla.codec.wire import Buffer
from ottla.errors import (
    InvalidProducerEpoch,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownTopicOrPartition,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Close, Connect, Connected, Event, Key, Lost, Received, Run, Send, Written
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome

SERVED = {0: (3, 9), 1: (4, 12), 2: (1, 7), 3: (1, 9), 18: (0, 3), 22: (0, 4)}
TOPIC_ID = uuid.UUID(int=7)


@dataclass
class Partition:
    """A log, and per producer id the next sequence and the last five batches as {(first, last): offset}.

    Like Kafka's, it accepts any sequence of a producer id without state.
    """

    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    next_sequence: dict[int, int] = field(default_factory=dict)
    recent: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def append(self, data: Buffer) -> tuple[int, int]:
        """(error code, base offset)."""
        batch = parse_batch(data)
        pid = batch.producer_id
        if pid >= 0:
            if batch.producer_epoch < self.epochs.get(pid, 0):
                return InvalidProducerEpoch.code, -1
            if batch.producer_epoch > self.epochs.get(pid, 0):
                self.epochs[pid], self.recent[pid], self.next_sequence[pid] = batch.producer_epoch, {}, 0
            recent = self.recent.setdefault(pid, {})
            span = (batch.base_sequence, batch.last_sequence)
            if span in recent:
                return 0, recent[span]
            if batch.base_sequence != self.next_sequence.get(pid, batch.base_sequence):
                return OutOfOrderSequenceNumber.code, -1
            self.next_sequence[pid] = (batch.last_sequence + 1) % 2**31
            recent[span] = self.end
            while len(recent) > 5:
                del recent[next(iter(recent))]
        base = self.end
        self.batches.append(rebased(data, base, 0))
        self.end += batch.count
        return 0, base

    def records(self) -> list[Record]:
        return [record for data in self.batches for record in parse_batch(data).records()]

    def read(self, offset: int) -> bytes:
        for index, data in enumerate(self.batches):
            batch: RecordBatch = parse_batch(data)
            if batch.next_offset > offset:
                return b"".join(self.batches[index : index + 5])
        return b""


class ModelBroker:
    """One cluster whose nodes share the logs; ``refuse`` may return an error code for a partition of Produce."""

    def __init__(self, topics: dict[str, int], nodes: int = 1) -> None:
        self.nodes = list(range(1, nodes + 1))
        self.logs = {(name, index): Partition() for name, count in topics.items() for index in range(count)}
        self.leader = {place: self.nodes[i % nodes] for i, place in enumerate(self.logs)}
        self.producer_ids = itertools.count(1000)
        self.refuse: Callable[[tuple[str, int], RecordBatch], int] = lambda place, batch: 0
        self.requests: list[tuple[int, Any]] = []
        self.host, self.port = "sim", 9001
        """The address of the first node."""

    def handle(self, node: int, frame: bytes) -> bytes | None:
        request = frames.parse_request(frame)
        self.requests.append((node, request.message))
        answer = self._answer(node, request.message)
        if answer is None:
            return None
        return frames.build_response(answer, request.header.api_version, request.header.correlation_id)

    def _answer(self, node: int, message: Any) -> Any:
        match message:
            case ApiVersionsRequest():
                keys = tuple(ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in SERVED.items())
                return ApiVersionsResponse(error_code=0, api_keys=keys)
            case MetadataRequest():
                return self._metadata(message)
            case InitProducerIdRequest():
                return InitProducerIdResponse(error_code=0, producer_id=next(self.producer_ids), producer_epoch=0)
            case ProduceRequest():
                return self._produce(node, message)
            case ListOffsetsRequest():
                return self._offsets(message)
            case FetchRequest():
                return self._fetch(node, message)
        raise AssertionError(f"the model does not serve {message}")

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        names = {name for name, _ in self.logs}
        asked = names if message.topics is None else {each.name or "" for each in message.topics}
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=node, host=self.host, port=self.port + index)
                for index, node in enumerate(self.nodes)
            ),
            controller_id=1,
            topics=tuple(
                MetadataResponseTopic(
                    error_code=0 if name in names else UnknownTopicOrPartition.code,
                    name=name,
                    topic_id=TOPIC_ID,
                    partitions=tuple(
                        MetadataResponsePartition(
                            error_code=0,
                            partition_index=index,
                            leader_id=self.leader[of, index],
                            replica_nodes=(),
                            isr_nodes=(),
                        )
                        for of, index in self.logs
                        if of == name
                    ),
                )
                for name in sorted(asked)
            ),
        )

    def _produce(self, node: int, message: ProduceRequest) -> ProduceResponse | None:
        topics = []
        for topic in message.topic_data:
            results = []
            for data in topic.partition_data:
                place = (topic.name, data.index)
                code, offset = NotLeaderOrFollower.code, -1
                if self.leader.get(place) == node and data.records is not None:
                    code = self.refuse(place, parse_batch(data.records))
                    if not code:
                        code, offset = self.logs[place].append(data.records)
                results.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=tuple(results)))
        return ProduceResponse(responses=tuple(topics)) if message.acks else None

    def _offsets(self, message: ListOffsetsRequest) -> ListOffsetsResponse:
        def answer(topic: str, each: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
            log = self.logs.get((topic, each.partition_index))
            return ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=0 if log else UnknownTopicOrPartition.code,
                offset=-1 if log is None else 0 if each.timestamp == EARLIEST else log.end,
            )

        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=tuple(answer(topic.name, each) for each in topic.partitions)
                )
                for topic in message.topics
            )
        )

    def _fetch(self, node: int, message: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=tuple(
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=tuple(
                        PartitionData(
                            partition_index=each.partition,
                            error_code=0
                            if self.leader[topic.topic, each.partition] == node
                            else NotLeaderOrFollower.code,
                            high_watermark=self.logs[topic.topic, each.partition].end,
                            records=self.logs[topic.topic, each.partition].read(each.fetch_offset),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )


class World:
    """Time, connections and chance around one core.

    Args:
        breaks: chance that a request breaks its connection: half of the times before the broker sees it, half after.
    """

    def __init__(
        self, broker: ModelBroker, *, seed: int = 0, breaks: float = 0.0, options: Options | None = None
    ) -> None:
        self.broker, self.breaks = broker, breaks
        self.rng = random.Random(seed)
        self.core = ClientCore([("sim", 9001)], options or Options(), random.Random(seed + 1))
        self.now = 0.0
        self.breaks_seen = 0
        self._links: dict[Key, int] = {}
        """Open connections, with a number that distinguishes those with the same key."""
        self._numbers = itertools.count()
        self._future: list[tuple[float, int, Key, int, Event | bytes]] = []
        self._inbox: dict[Key, bytes] = {}
        self._clear_at: dict[Key, float] = {}

    def run(self, until: Outcome[Any] | Callable[[], bool], limit: float = 600.0) -> None:
        """Let time pass until the outcome is settled or the condition holds; fail after ``limit`` virtual seconds."""

        def done() -> bool:
            return until.done if isinstance(until, Outcome) else until()

        end = self.now + limit
        while True:
            self._act()
            if done():
                return
            times = [t for t in (self.core.deadline, self._future[0][0] if self._future else None) if t is not None]
            assert times, f"no event is left at {self.now:.3f} s"
            self.now = max(self.now, min(times))
            assert self.now <= end, f"not done after {limit} s"
            while self._future and self._future[0][0] <= self.now:
                _, _, key, link, what = heapq.heappop(self._future)
                if self._links.get(key) == link:
                    self._happen(key, what)
                    self._act()

    def call(self, start: Callable[[float], Outcome[Any]], limit: float = 600.0) -> Any:
        outcome = start(self.now)
        self.run(outcome, limit)
        return outcome.result()

    def _act(self) -> None:
        runs = []
        while actions := self.core.poll(self.now):
            for action in actions:
                match action:
                    case Run(call=call):
                        runs.append(call)
                    case Connect(key=key):
                        self._links[key] = next(self._numbers)
                        self._inbox[key] = b""
                        self._later(key, Connected(key))
                    case Send(key=key, parts=parts):
                        if key in self._links:
                            self._later(key, b"".join(parts))
                            self.core.handle(Written(key), self.now)
                    case Close(key=key):
                        self._links.pop(key, None)
        for call in runs:
            call()

    def _later(self, key: Key, what: Event | bytes) -> None:
        # TCP keeps the order of a connection's bytes.
        at = max(self.now + self.rng.uniform(0.0001, 0.002), self._clear_at.get(key, 0.0))
        self._clear_at[key] = at
        heapq.heappush(self._future, (at, next(self._numbers), key, self._links[key], what))

    def _happen(self, key: Key, what: Event | bytes) -> None:
        if isinstance(what, bytes):
            self._arrive(key, what)
        else:
            self.core.handle(what, self.now)

    def _arrive(self, key: Key, data: bytes) -> None:
        buffer = self._inbox[key] + data
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            frame, buffer = buffer[4 : 4 + size], buffer[4 + size :]
            fate = self.rng.random()
            if fate < self.breaks / 2:
                self._break(key)
                return
            answer = self.broker.handle(max(key[0], 1), frame)
            if fate < self.breaks:
                self._break(key)
                return
            if answer is not None:
                self._later(key, Received(key, answer))
        self._inbox[key] = buffer

    def _break(self, key: Key) -> None:
        self.breaks_seen += 1
        del self._links[key]
        self.core.handle(Lost(key, "the wire broke"), self.now)
