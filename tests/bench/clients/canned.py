"""A broker that costs next to nothing, so that a benchmark measures the client.

It acknowledges every Produce and keeps nothing; its partitions hold the same prepared batches over and over. Every
connection has a thread, and responses of megabytes go out straight from memory, with only the offsets written into
them. It serves the APIs of producers and of consumers without a group, in all versions that the codec knows.

Rules:
- A partition with records gets `ANSWER` batches at once, whatever the limits of the request. Without any records, the
  response waits for `max_wait_ms`.
- Fetch sessions (KIP-227) are kept: otherwise thousands of partitions would cost a client more than with Kafka.
- It ends with the process that started it: when its standard input ends.
"""

import argparse
import contextlib
import functools
import itertools
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.codec import frames, wire
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.codec.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_offsets import (
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
from ottla.codec.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.codec.compression import Compression
from ottla.codec.records import BatchBuilder
from ottla.codec.wire import Buffer
from ottla.errors import FetchSessionIdNotFound, OttlaError, UnknownTopicOrPartition, UnsupportedVersion

Place = tuple[str, int]

HOST, NODE = "127.0.0.1", 1
PREFIX = "bench"
"""The prefix of topics' names."""
KEYS = [b"key-%012d" % number for number in range(500)]
SIZE = 100
"""Bytes of a value."""
_WORDS = 1000
_VARIETY = 4 * 2**20
"""Bytes of different values: more than a client's batch has, or compression would find repeats in it."""
_BATCH = 60_000
"""Approximate bytes of a batch."""
ANSWER = 16
"""Batches for one partition in one response: just below 1 MB, the default limit of clients."""
ENDLESS = 1 << 40
_NOW = 1_700_000_000_000
_COUNT_AT = 57
"""The position of the record count in a batch."""
_OFFSET = struct.Struct(">q")
_SHAPES = 256
"""The maximum number of cached outlines of responses."""
_PIECES = 1000
"""The maximum number of buffers that systems take in one call."""
SERVED = {
    ProduceRequest: (3, 13),
    FetchRequest: (4, 18),
    ListOffsetsRequest: (1, 11),
    MetadataRequest: (0, 13),
    FindCoordinatorRequest: (0, 6),
    ApiVersionsRequest: (0, 4),
    InitProducerIdRequest: (0, 5),
}
_VERSIONS = {wire.api(request).key: versions for request, versions in SERVED.items()}
_API_KEYS = tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in _VERSIONS.items())


def topic_names(count: int, prefix: str = PREFIX) -> list[str]:
    return [f"{prefix}-{number:04}" for number in range(count)]


@functools.cache
def values(size: int) -> list[bytes]:
    """Values of so many bytes: words by chance, which compress to a half or a third; the same in every process."""
    chance = random.Random(size)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 12))) for _ in range(_WORDS)]
    return [b" ".join(chance.choices(words, k=size // 3 + 1))[:size] for _ in range(max(_VARIETY // max(size, 1), 1))]


@dataclass(frozen=True)
class Answer:
    """Pieces of a response frame, to be sent one after the other, with the correlation id in the first."""

    parts: list[Buffer]


@dataclass
class Session:
    """A fetch session, with the fetch offset of each partition."""

    id: int
    offsets: dict[Place, int] = field(default_factory=dict)


class CannedBroker:
    """Listens at once, on a free port; `close` stops listening, and connections end with their clients.

    Args:
        topics, partitions: so many topics, each with so many partitions.
        end: the number of records in each partition, from 1 to `ENDLESS`.
        size: bytes of each value.
        compression: the compression of batches.
    """

    def __init__(
        self, topics: int = 1, partitions: int = 4, end: int = ENDLESS, size: int = SIZE, compression: str = "none"
    ) -> None:
        keys = KEYS[: min(end, max(_BATCH // (size + len(KEYS[0])), 1))]
        rows = [(_NOW, key, value) for key, value in zip(keys, itertools.cycle(values(size)), strict=False)]
        builder = BatchBuilder()
        builder.extend(rows)
        self._batch, self._count = builder.build(compression=Compression.named(compression)), len(rows)
        self._blob = self._batch * (ANSWER if end == ENDLESS else 1)
        self._end = end
        self._partitions = partitions
        self._ids = {name: uuid.UUID(int=(number + 1) << 64) for number, name in enumerate(topic_names(topics))}
        self._names = {each: name for name, each in self._ids.items()}
        self._described = {name: self._describe(name) for name in self._ids}
        self._sessions: dict[int, Session] = {}
        self._numbers = itertools.count(1)
        self._outlines: dict[Any, list[bytes]] = {}
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"{HOST}:{self.port}"
        self.produced = 0
        """The number of acknowledged records."""
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which close() does not do
        # When a paused process goes on, the system calls accept() again with the same descriptor. The thread would then
        # take connections of whichever listener has got that descriptor since.
        self._accepting.join()
        self._listener.close()

    # -- connections -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        blobs: list[bytearray] = []
        with contextlib.suppress(OSError), connection, connection.makefile("rb", buffering=2**20) as stream:
            while len(size := stream.read(4)) == 4:
                try:
                    answer, correlation_id = self._answer(stream.read(int.from_bytes(size, "big")), blobs)
                except OttlaError as error:
                    print(f"the canned broker closes a connection: {error}", file=sys.stderr)
                    return
                if answer is not None:
                    first = bytes(answer.parts[0])
                    head = first[:4] + correlation_id.to_bytes(4, "big", signed=True) + first[8:]
                    _send(connection, [head, *answer.parts[1:]])

    def _answer(self, frame: bytes, blobs: list[bytearray]) -> tuple[Answer | None, int]:
        """The response, if the request gets one, and the correlation id.

        Raises:
            OttlaError: the request cannot be answered, so the connection must end.
        """
        try:
            request = frames.parse_request(frame, _serves)
        except frames.UnknownApi as unknown:
            header = unknown.header
            if header.api_key != frames.API_VERSIONS:
                raise
            refusal = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=_API_KEYS)
            return _whole(refusal, 0), header.correlation_id
        version, message = request.header.api_version, request.message
        match message:
            case FetchRequest():
                return self._fetch(message, version, blobs), request.header.correlation_id
            case ProduceRequest(acks=0):
                self._produce(message)
                return None, 0
        handlers: dict[type[Any], Callable[[Any], Any]] = {
            ProduceRequest: self._produce,
            ListOffsetsRequest: self._list_offsets,
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._find_coordinator,
            ApiVersionsRequest: lambda asked: ApiVersionsResponse(error_code=0, api_keys=_API_KEYS),
            InitProducerIdRequest: lambda asked: InitProducerIdResponse(
                error_code=0, producer_id=next(self._numbers), producer_epoch=0
            ),
        }
        return _whole(handlers[type(message)](message), version), request.header.correlation_id

    # -- other APIs --------------------------------------------------------------------------------------------------

    def _describe(self, name: str) -> MetadataResponseTopic:
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=NODE,
                leader_epoch=0,
                replica_nodes=(NODE,),
                isr_nodes=(NODE,),
            )
            for number in range(self._partitions)
        )
        return MetadataResponseTopic(error_code=0, name=name, topic_id=self._ids[name], partitions=partitions)

    def _metadata(self, asked: MetadataRequest) -> MetadataResponse:
        wanted = [each.name or self._names.get(each.topic_id, "") for each in asked.topics or ()]
        unknown = UnknownTopicOrPartition.code
        topics = [
            self._described.get(name) or MetadataResponseTopic(error_code=unknown, name=name, partitions=())
            for name in (self._described if asked.topics is None else wanted)
        ]
        node = MetadataResponseBroker(node_id=NODE, host=HOST, port=self.port)
        return MetadataResponse(brokers=(node,), cluster_id="canned", controller_id=NODE, topics=tuple(topics))

    def _find_coordinator(self, asked: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if not asked.coordinator_keys:
            return FindCoordinatorResponse(node_id=NODE, host=HOST, port=self.port)
        found = tuple(
            Coordinator(key=key, node_id=NODE, host=HOST, port=self.port, error_code=0, error_message=None)
            for key in asked.coordinator_keys
        )
        return FindCoordinatorResponse(coordinators=found)

    def _list_offsets(self, asked: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=0,
                        offset=self._end if each.timestamp == LATEST else 0,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in asked.topics
        ]
        return ListOffsetsResponse(topics=tuple(topics))

    def _produce(self, asked: ProduceRequest) -> ProduceResponse:
        topics = []
        for topic in asked.topic_data:
            stored = []
            for each in topic.partition_data:
                stored.append(PartitionProduceResponse(index=each.index, error_code=0, base_offset=self.produced))
                self.produced += int.from_bytes(memoryview(each.records or b"")[_COUNT_AT : _COUNT_AT + 4], "big")
            partitions = tuple(stored)
            topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
            )
        return ProduceResponse(responses=tuple(topics))

    # -- fetch -------------------------------------------------------------------------------------------------------

    def _fetch(self, asked: FetchRequest, version: int, blobs: list[bytearray]) -> Answer:
        session = self._session(asked)
        if session is None:
            return _whole(FetchResponse(error_code=FetchSessionIdNotFound.code, responses=()), version)
        self._update(session, asked)
        listed = list(session.offsets.items())
        ready = [offset for _, offset in listed if offset < self._end]
        if not ready:
            time.sleep(asked.max_wait_ms / 1000)
        if asked.session_epoch > 0:  # full fetches get every partition
            listed = [each for each in listed if each[1] < self._end]
        while len(blobs) < len(ready):
            blobs.append(bytearray(self._blob))
        step = len(self._batch)
        for blob, offset in zip(blobs, ready, strict=False):
            base = offset - offset % self._count
            for number in range(len(self._blob) // step):
                _OFFSET.pack_into(blob, number * step, base + number * self._count)
        outline = self._outline(version, session.id, listed)
        parts: list[Buffer] = [outline[0]]
        for blob, behind in zip(blobs, outline[1:], strict=False):
            parts += blob, behind
        return Answer(parts)

    def _session(self, asked: FetchRequest) -> Session | None:
        """The requested session, a new one, or one for this request only; ``None``: there is no session of this id."""
        if asked.session_epoch > 0:
            return self._sessions.get(asked.session_id)
        self._sessions.pop(asked.session_id, None)
        if asked.session_epoch < 0:
            return Session(0)
        session = Session(next(self._numbers))
        self._sessions[session.id] = session
        return session

    def _update(self, session: Session, asked: FetchRequest) -> None:
        for forgotten in asked.forgotten_topics_data:
            for partition in forgotten.partitions:
                session.offsets.pop((forgotten.topic or self._names[forgotten.topic_id], partition), None)
        for topic in asked.topics:
            name = topic.topic or self._names[topic.topic_id]
            for each in topic.partitions:
                session.offsets[name, each.partition] = each.fetch_offset

    def _outline(self, version: int, session_id: int, listed: list[tuple[Place, int]]) -> list[bytes]:
        """The frame of a response, cut at each place where the batches of a partition belong."""
        shape = version, session_id, tuple((place, offset < self._end) for place, offset in listed)
        if shape in self._outlines:
            return self._outlines[shape]
        topics: dict[str, list[PartitionData]] = {}
        for (name, partition), offset in listed:
            data = PartitionData(
                partition_index=partition,
                error_code=0,
                high_watermark=self._end,
                last_stable_offset=self._end,
                log_start_offset=0,
                aborted_transactions=None,
                records=self._blob if offset < self._end else b"",
            )
            topics.setdefault(name, []).append(data)
        responses = tuple(
            FetchableTopicResponse(topic=name, topic_id=self._ids[name], partitions=tuple(each))
            for name, each in topics.items()
        )
        frame = frames.build_response(FetchResponse(session_id=session_id, responses=responses), version, 0)
        if len(self._outlines) >= _SHAPES:
            self._outlines.clear()
        self._outlines[shape] = outline = frame.split(self._blob)
        return outline


def _serves(api_key: int, api_version: int) -> bool:
    low, high = _VERSIONS.get(api_key, (0, -1))
    return low <= api_version <= high


def _whole(message: Any, version: int) -> Answer:
    return Answer([frames.build_response(message, version, 0)])


def _send(connection: socket.socket, parts: list[Buffer]) -> None:
    if len(parts) == 1 or len(parts) > _PIECES:
        connection.sendall(b"".join(parts))
        return
    left = [memoryview(each) for each in parts if len(each)]
    while left:
        sent = connection.sendmsg(left)
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if left:
            left[0] = left[0][sent:]


@contextlib.contextmanager
def running(**given: Any) -> Iterator[str]:
    """A canned broker in a process of its own, with the arguments of `CannedBroker`; gives its ``host:port``."""
    command = [sys.executable, "-m", "tests.bench.clients.canned"]
    command += [f"--{name}={value}" for name, value in given.items()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # ends the process
            process.wait(10)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clients.canned", description=__doc__)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--end", type=int, default=ENDLESS)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--compression", default="none")
    broker = CannedBroker(**vars(parser.parse_args(arguments)))
    print(broker.bootstrap, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
