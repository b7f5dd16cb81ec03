"""Produce requests without a client: prepared bytes, with sequences and CRCs written into them.

Each connection is an idempotent producer with several requests in flight. So batches have exactly the wanted size, and
the sender takes almost no processor time.
"""

import dataclasses
import itertools
import json
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from ottla.codec import frames
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.compression import Compression
from ottla.codec.partitioners import crc32_partition
from ottla.codec.records import BatchBuilder
from tests.bench.brokers.server import cpu_of
from tests.bench.clients.canned import values
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures

PRODUCE, METADATA, INIT_PRODUCER_ID = 9, 12, 4
"""Versions."""
_NOW = 1_700_000_000_000
_KEYS = 20_000
_VARIETY = 8 * 2**20
"""The bytes of different requests that are prepared."""
_CRC_AT, _CRC_END, _PRODUCER_AT, _SEQUENCE_AT = 17, 21, 43, 53
"""The positions of fields in a batch."""
_TIMEOUT = 30.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """The work of the process, as JSON.

    Attributes:
        port: the port of the proxy, or of the broker itself.
        size: bytes of each value; keys have 16.
        batch: approximate bytes of each batch before compression; 0: a batch has one record.
        together: the number of batches in a request, each for another partition.
        in_flight: requests in flight on each connection.
        connections: the number of producers.
        once: whether each producer only sends one request to each partition.
        process: the process whose processor time is measured, if any.
    """

    port: int
    topic: str
    partitions: int
    size: int
    batch: int
    together: int = 1
    compression: str = "none"
    in_flight: int = 5
    connections: int = 1
    seconds: float = 2.0
    warm_up: float = 0.5
    once: bool = False
    process: int | None = None


def run(load: Load) -> Figures:
    """The figures of a load in a process of its own.

    records; rate: records a second; mb: values a second; p50_ms, p99_ms: latencies of requests; cores: processor time
    of this process; cpu_us: microseconds of processor time that the other process took for each record.

    Raises:
        Broken: a connection was closed, a request refused, or a response did not come.
    """
    command = [sys.executable, "-m", "tests.bench.proxy.load", json.dumps(dataclasses.asdict(load))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=load.seconds + load.warm_up + 4 * _TIMEOUT)
    if done.returncode != 0:
        raise Broken((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    figures: Figures = json.loads(done.stdout)
    return figures


@dataclass
class _Batch:
    """A batch in the bytes of a request: its position, and its number of records."""

    partition: int
    start: int
    end: int
    count: int


@dataclass
class Request:
    """The bytes of a Produce request, which is sent many times."""

    data: bytearray
    batches: list[_Batch]

    @property
    def count(self) -> int:
        return sum(each.count for each in self.batches)

    def number(self, producer_id: int, sequences: dict[int, int]) -> None:
        """Write a producer's id and the next sequences of its partitions into the batches."""
        for each in self.batches:
            batch = memoryview(self.data)[each.start : each.end]
            sequence = sequences[each.partition]
            sequences[each.partition] = (sequence + each.count) & 0x7FFFFFFF
            batch[_PRODUCER_AT : _PRODUCER_AT + 8] = producer_id.to_bytes(8, "big")
            batch[_SEQUENCE_AT : _SEQUENCE_AT + 4] = sequence.to_bytes(4, "big")
            batch[_CRC_AT:_CRC_END] = crc32c(batch[_CRC_END:]).to_bytes(4, "big")


def requests(load: Load) -> list[Request]:
    """Requests for all partitions in turn, still without a producer id. As in librdkafka, a key is in the partition of
    its CRC-32."""
    keys: dict[int, list[bytes]] = {partition: [] for partition in range(load.partitions)}
    for number in range(_KEYS):
        key = b"key-%012d" % number
        keys[crc32_partition(key, load.partitions)].append(key)
    endless = {partition: itertools.cycle(each) for partition, each in keys.items()}
    contents = itertools.cycle(values(load.size))
    made: list[Request] = []
    size = 0
    while size < _VARIETY or len(made) * load.together % load.partitions:
        if len(made) >= load.partitions * 16:
            break
        first = len(made) * load.together
        places = [each % load.partitions for each in range(first, first + load.together)]
        batches = []
        for partition in places:
            builder = BatchBuilder()
            while not builder.count or builder.size < load.batch - load.size // 2:
                builder.append(_NOW + builder.count, next(endless[partition]), next(contents))
            kind = Compression.named(load.compression)
            data = builder.build(compression=kind, producer_id=0, producer_epoch=0, base_sequence=0)
            batches.append((partition, data, builder.count))
        made.append(_request(load, batches))
        size += len(made[-1].data)
    return made


def _request(load: Load, batches: list[tuple[int, bytes, int]]) -> Request:
    data = tuple(PartitionProduceData(index=partition, records=each) for partition, each, _ in batches)
    topic = TopicProduceData(name=load.topic, partition_data=data)
    message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=(topic,))
    frame = bytearray(frames.build_request(message, PRODUCE, 1, "load"))
    found, start = [], 0
    for partition, each, count in batches:
        start = frame.index(each, start)
        found.append(_Batch(partition, start, start + len(each), count))
        start += len(each)
    return Request(frame, found)


class Producer:
    """A connection, and its requests in flight."""

    def __init__(self, load: Load, requests: list[Request]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", load.port), timeout=_TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=load.topic),))
        self._ask(wanted, METADATA, MetadataResponse)
        self._producer_id = self._initialized()
        self._turn = itertools.cycle(requests)
        self.rounds = -(-load.partitions // load.together)
        self._sequences = dict.fromkeys(range(load.partitions), 0)
        self._in_flight: deque[tuple[float, int]] = deque()

    def _initialized(self) -> int:
        """A producer id; a broker that has just started does not give one yet."""
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        end = time.monotonic() + _TIMEOUT
        while (answer := self._ask(asked, INIT_PRODUCER_ID, InitProducerIdResponse)).error_code:
            if time.monotonic() > end:
                raise RuntimeError(f"the broker gives no producer id: {answer.error_code}")
            time.sleep(0.05)
        return int(answer.producer_id)

    def _ask(self, message: Any, version: int, response: type[Any]) -> Any:
        self._socket.sendall(frames.build_request(message, version, 1, "load"))
        return frames.parse_response(response, version, self._read())[1]

    def _read(self) -> bytes:
        size = int.from_bytes(self._stream.read(4), "big")
        data = self._stream.read(size)
        if not size or len(data) < size:
            raise ConnectionResetError("the connection was closed")
        return data

    @property
    def busy(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    def send(self) -> None:
        request = next(self._turn)
        request.number(self._producer_id, self._sequences)
        self._in_flight.append((time.perf_counter(), request.count))
        self._socket.sendall(request.data)

    def receive(self) -> tuple[float, int]:
        """Wait for the next response: its latency, and the number of stored records."""
        frame = self._read()
        sent, count = self._in_flight.popleft()
        taken = time.perf_counter() - sent
        _, answer = frames.parse_response(ProduceResponse, PRODUCE, frame)
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    raise RuntimeError(f"a batch was refused: {each.error_code} {each.error_message or ''}")
        return taken, count

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def measured(load: Load) -> Figures:
    """Do the work, in this process."""
    if load.once:
        return _all_once(load)
    producers = [Producer(load, requests(load)) for _ in range(load.connections)]
    _turn(load, producers, load.warm_up)
    began, cpu, theirs = time.perf_counter(), time.process_time(), cpu_of(load.process)
    latencies, records = _turn(load, producers, load.seconds)
    for each in producers:
        while each.busy:
            records += each.receive()[1]
    taken, cpu, theirs = time.perf_counter() - began, time.process_time() - cpu, cpu_of(load.process) - theirs
    parts = statistics.quantiles(latencies, n=100, method="inclusive")
    return {
        "records": records,
        "rate": records / taken,
        "mb": records * load.size / taken / 1e6,
        "p50_ms": parts[49] * 1e3,
        "p99_ms": parts[98] * 1e3,
        "cores": cpu / taken,
        "cpu_us": theirs / records * 1e6,
    }


def _turn(load: Load, producers: list[Producer], seconds: float) -> tuple[list[float], int]:
    """The latencies of the responses in so many seconds, and the number of stored records."""
    latencies: list[float] = []
    records, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end or len(latencies) < 2:
        for each in producers:
            while each.busy < load.in_flight:
                each.send()
            taken, count = each.receive()
            latencies.append(taken)
            records += count
    return latencies, records


def _all_once(load: Load) -> Figures:
    """Run many producers, one after the other."""
    records, shared = 0, requests(load)
    for _ in range(load.connections):
        producer = Producer(load, shared)
        for _ in range(producer.rounds):
            producer.send()
            records += producer.receive()[1]
        producer.close()
    return {"records": records}


if __name__ == "__main__":
    print(json.dumps(measured(Load(**json.loads(sys.argv[1])))), flush=True)
