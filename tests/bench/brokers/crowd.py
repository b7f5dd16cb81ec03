"""Many connections in one process, without a client: hundreds that produce and fetch, beside more that are idle.

Each busy connection has one request in flight: it produces a record, fetches it, and begins again. An epoll loop sends
prepared bytes, with only the offset written into them, so it costs little compared with the broker.
"""

import dataclasses
import json
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

from ottla.codec import frames
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.records import Record, build_batch
from ottla.codec.wire import Buffer
from tests.bench.brokers.server import cpu_of
from tests.bench.clients.canned import values
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures

PRODUCE, FETCH = 9, 12
"""Versions: the first flexible one of Produce, the last one of Fetch that names topics."""
_MARK = 0x0102030405060708
_OFFSET = struct.Struct(">q")
_CHUNK = 65536
_TIMEOUT = 120.0
_WAIT = 10.0
"""Seconds without any response after which the crowd gives up."""


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The work of the process, as JSON.

    Attributes:
        partitions: partitions of the topic; busy connections are spread over them.
        size: bytes of a record's value.
        warm_up: seconds that do not count.
        process: the process of the broker, to measure its processor time.
    """

    port: int
    topic: str
    partitions: int
    idle: int
    busy: int
    size: int
    seconds: float
    warm_up: float
    process: int | None = None


def run(crowd: Crowd) -> Figures:
    """The figures of a crowd in a process of its own.

    rate: responses a second; p50_ms, p99_ms: their latencies; client_cores: the process's own processor time; answers:
    the number of responses, the warm-up included; broker_us: the broker's processor time for each response, without the
    time for connecting.

    Raises:
        Broken: a connection was closed, a request refused, or a response did not come.
    """
    command = [sys.executable, "-m", "tests.bench.brokers.crowd", json.dumps(dataclasses.asdict(crowd))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=crowd.seconds + crowd.warm_up + _TIMEOUT)
    if done.returncode != 0:
        raise Broken((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    figures: Figures = json.loads(done.stdout)
    return figures


class Busy:
    """A connection that produces a record and fetches it, over and over."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.socket = _connected(crowd)
        self._produce = _produce(crowd, number % crowd.partitions)
        self._fetch = _fetch(crowd, number % crowd.partitions)
        self._offset_at = self._fetch.index(_OFFSET.pack(_MARK))
        self._frames = frames.FrameReader()
        self._fetches = False
        self._sent = 0.0

    def ask(self) -> None:
        self.socket.sendall(self._fetch if self._fetches else self._produce)
        self._sent = time.perf_counter()

    def take(self) -> float | None:
        """Receive bytes; the seconds since the request, if its response is now complete."""
        data = self.socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the broker closed a connection")
        for frame in self._frames.feed(data):
            taken = time.perf_counter() - self._sent
            self._look(frame)
            self._fetches = not self._fetches
            return taken
        return None

    def _look(self, frame: Buffer) -> None:
        if self._fetches:
            _, fetched = frames.parse_response(FetchResponse, FETCH, frame)
            [part] = fetched.responses[0].partitions
            if part.error_code or not part.records:
                raise RuntimeError(f"a Fetch was answered with error {part.error_code}, or without the record")
            return
        _, produced = frames.parse_response(ProduceResponse, PRODUCE, frame)
        [stored] = produced.responses[0].partition_responses
        if stored.error_code:
            raise RuntimeError(f"a Produce was answered with error {stored.error_code}")
        _OFFSET.pack_into(self._fetch, self._offset_at, stored.base_offset)


def _connected(crowd: Crowd) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", crowd.port), timeout=_WAIT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _is_silent(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    return False


def _produce(crowd: Crowd, partition: int) -> bytes:
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=values(crowd.size)[0])])
    data = PartitionProduceData(index=partition, records=batch)
    topic = TopicProduceData(name=crowd.topic, partition_data=(data,))
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=(topic,))
    return frames.build_request(request, PRODUCE, 1, "crowd")


def _fetch(crowd: Crowd, partition: int) -> bytearray:
    """A request with room for one batch: brokers return the first whole, whatever the limit, and no more."""
    data = FetchPartition(partition=partition, fetch_offset=_MARK, partition_max_bytes=1)
    topic = FetchTopic(topic=crowd.topic, partitions=(data,))
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1, topics=(topic,))
    return bytearray(frames.build_request(request, FETCH, 1, "crowd"))


def measured(crowd: Crowd) -> Figures:
    """Do the work, in this process."""
    idle = [_connected(crowd) for _ in range(crowd.idle)]
    busy = {each.socket.fileno(): each for each in (Busy(crowd, number) for number in range(crowd.busy))}
    poll = select.epoll()
    for fileno, each in busy.items():
        poll.register(fileno, select.EPOLLIN)
        each.ask()
    warm = _turn(poll, busy, crowd.warm_up)
    began, cpu, theirs = time.perf_counter(), time.process_time(), cpu_of(crowd.process)
    latencies = _turn(poll, busy, crowd.seconds)
    taken, cpu, theirs = time.perf_counter() - began, time.process_time() - cpu, cpu_of(crowd.process) - theirs
    if not all(map(_is_silent, idle)):
        raise RuntimeError("the broker closed an idle connection, or said something there")
    parts = statistics.quantiles(latencies, n=100, method="inclusive")
    return {
        "answers": len(warm) + len(latencies),
        "rate": len(latencies) / taken,
        "p50_ms": parts[49] * 1e3,
        "p99_ms": parts[98] * 1e3,
        "client_cores": cpu / taken,
        "broker_us": theirs / len(latencies) * 1e6,
    }


def _turn(poll: select.epoll, busy: dict[int, Busy], seconds: float) -> list[float]:
    """The latencies of the responses in so many seconds."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ready = poll.poll(_WAIT)
        if not ready:
            raise TimeoutError(f"no answer came for {_WAIT:.0f} s")
        for fileno, _ in ready:
            each = busy[fileno]
            if (taken := each.take()) is not None:
                latencies.append(taken)
                each.ask()
    return latencies


if __name__ == "__main__":
    print(json.dumps(measured(Crowd(**json.loads(sys.argv[1])))), flush=True)
