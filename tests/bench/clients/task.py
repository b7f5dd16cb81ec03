"""The task of a client's process, and its counters, which are the same for all clients.

A client's module has a function for each way of working, from a `Task` to figures. Each runs in a process of its own,
so that threads, memory and processor time of one client are never counted for another.
Figures, as far as a way has them:
    records         counted ones, after the warm-up
    rate            of them a second, in elapsed time
    cpu_us          microseconds of processor time for each, all threads of the process together
    p50_ms, p99_ms  from send to receipt
    acknowledged    a second, while records were being sent
    silence         the longest time without a receipt, in seconds
    failed          records that the client gave up
    seen            all records, the warm-up included
    read_p50_ms, read_p99_ms   from send to the arrival at a consumer
    growth_mb       of resident memory in 10⁷ records, 10⁶ bytes each, by a line fitted to the samples
    memory_mb       resident at the end
    ready_s, ready_cpu_s   until every partition was written or read
    idle_cpu        of one core, while no records arrive
    transactions    a second, of `TRANSACTION` records each
    txn_cpu_us      microseconds of processor time for each
    txn_requests    requests for each transaction, of all APIs
"""

import dataclasses
import importlib
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.clients.canned import PREFIX, SIZE, topic_names, values

Figures = dict[str, float]
KEYS = [b"key-%012d" % number for number in range(1000)]
READY = "ready"
"""The line that a process prints when its clock starts, for faults that are timed by it."""
FLUSH_SECONDS = 60.0
TRANSACTION = 100
"""Records of a short transaction."""
TRANSACTION_SECONDS = 1.0
"""Seconds for which a long transaction takes records."""
TAKEN_AT_ONCE = 10_000
"""The maximum number of records in each request of a client that must name a number."""
_CHUNK = 10**6
_AT_MOST = 4
_SAMPLES = 50
_SETTLING = 2
"""The first part of the samples, one in so many, does not count: buffers still fill up."""

__all__ = ["KEYS", "Acknowledgements", "Figures", "Meter", "Task"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The work of a process, as JSON.

    Attributes:
        prefix, topics, partitions: so many topics (`topic_names`), each with so many partitions.
        size: bytes of each value.
        compression: the compression of produced records.
        ca: the file of the CA that signed the broker's certificate; ``None``: no TLS.
        seconds: the duration of the work, after the warm-up.
        warm_up: seconds of work that does not count.
        count: end after so many records, if that comes first.
        passes: read the ``count`` records over and over, until the counted time of all passes makes ``seconds``.
        rate: records a second, for ways with a fixed pace.
        tuned: with the settings that the client's documentation advises for throughput, instead of its defaults.
        together: the number of tasks, threads or members, for ways with several.
        loop: the event loop, for clients with a choice.
        idempotent: whether the producer is idempotent, for clients with a choice.
        measure_memory: sample resident memory.
    """

    client: str
    way: str
    bootstrap: str
    prefix: str = PREFIX
    topics: int = 1
    partitions: int = 4
    size: int = SIZE
    compression: str = "none"
    ca: str | None = None
    seconds: float = 2.0
    warm_up: float = 0.0
    count: int | None = None
    passes: bool = False
    rate: float = 1000.0
    tuned: bool = True
    together: int = 1
    loop: str = "asyncio"
    idempotent: bool = True
    measure_memory: bool = False

    @property
    def value(self) -> bytes:
        return values(self.size)[0]

    @property
    def values(self) -> Iterator[list[bytes]]:
        """A value for each key, over and over, with other values each time, until all have been used."""
        return itertools.cycle(self._lists)

    @property
    def _lists(self) -> list[list[bytes]]:
        endless, count = itertools.cycle(values(self.size)), -(-len(values(self.size)) // len(KEYS))
        return [list(itertools.islice(endless, len(KEYS))) for _ in range(count)]

    @property
    def records(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Keys and values, in lists with all keys."""
        return itertools.cycle(self._pairs)

    @property
    def _pairs(self) -> list[list[tuple[bytes, bytes]]]:
        return [list(zip(KEYS, each, strict=True)) for each in self._lists]

    @property
    def portions(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Like `records`, with a list for each short transaction."""
        return itertools.cycle(
            [each[at : at + TRANSACTION] for each in self._pairs for at in range(0, len(KEYS), TRANSACTION)]
        )

    @property
    def at_once(self) -> int:
        """Records to take at once, for clients that wait until a call has so many: about a megabyte of values."""
        return min(max(_CHUNK // max(self.size, 1), 1), TAKEN_AT_ONCE)

    @property
    def transactional_id(self) -> str:
        return f"{self.prefix}-{self.client}"

    @property
    def names(self) -> list[str]:
        return topic_names(self.topics, self.prefix)

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(name, partition) for name in self.names for partition in range(self.partitions)]


def resident() -> int:
    """Bytes of resident memory now. Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Counts records from the first counted one on, until its time has passed or its count is reached.

    A producer calls `start`. For a consumer the clock starts with the first records after the warm-up, so that
    connecting does not count.
    """

    def __init__(self, task: Task, *, warm_up: float = 0.0, seconds: float | None = None) -> None:
        self.over = False
        self.records = 0
        self._seconds = task.seconds if seconds is None else seconds
        self._limit = task.count or math.inf
        self._warm_up, self._begun = warm_up, math.inf
        self._start = self._cpu = math.nan
        self._seen = 0
        self._samples: list[tuple[int, int]] = []
        self._every = max(int(self._limit) // _SAMPLES, 1) if task.measure_memory and task.count else 0

    def start(self) -> None:
        self._start, self._cpu = time.perf_counter(), time.process_time()

    def count(self, records: int) -> None:
        now = time.perf_counter()
        self._seen += records
        if math.isnan(self._start):
            self._begun = min(self._begun, now)
            if now - self._begun >= self._warm_up:
                self.start()
        else:
            self.records += records
            self.over = now - self._start >= self._seconds
            if self._every and self.records >= self._every * (len(self._samples) + 1):
                self._samples.append((self.records, resident()))
        self.over = self.over or self._seen >= self._limit

    def figures(self) -> Figures:
        """The figures so far."""
        taken, cpu = time.perf_counter() - self._start, time.process_time() - self._cpu
        if not self.records:
            raise RuntimeError("the time ended before the first counted record")
        found = {
            "records": self.records,
            "rate": self.records / taken,
            "cpu_us": cpu / self.records * 1e6,
            "seen": self._seen,
        }
        if self._every:
            found["memory_mb"] = resident() / 1e6
            steady = self._samples[len(self._samples) // _SETTLING :]
            slope = statistics.linear_regression(*zip(*steady, strict=True)).slope if len(steady) > 2 else math.nan
            found["growth_mb"] = slope * 1e7 / 1e6
        return found


def of_passes(task: Task, way: Callable[[Task], Figures]) -> Figures:
    """The figures of several passes together; another one before them warms up.

    The time between two passes does not count. If most of the time goes there, the work ends after `_AT_MOST` times its
    seconds.
    """
    end = time.perf_counter() + _AT_MOST * task.seconds
    first = way(dataclasses.replace(task, seconds=task.warm_up, warm_up=0.0))
    task, counted = dataclasses.replace(task, warm_up=0.0), list[Figures]()
    while not counted or (
        sum(each["records"] / each["rate"] for each in counted) < task.seconds and time.perf_counter() < end
    ):
        counted.append(way(task))
    records = sum(each["records"] for each in counted)
    return {
        "records": records,
        "rate": records / sum(each["records"] / each["rate"] for each in counted),
        "cpu_us": sum(each["cpu_us"] * each["records"] for each in counted) / records,
        "seen": first["seen"] + sum(each["seen"] for each in counted),
    }


def of_transactions(figures: Figures, requests: float) -> Figures:
    """The figures of short transactions, from the figures of their records and the client's number of requests."""
    count = figures["records"] / TRANSACTION
    return figures | {
        "transactions": figures["rate"] / TRANSACTION,
        "txn_cpu_us": figures["cpu_us"] * TRANSACTION,
        "txn_requests": requests / count,
    }


class Acknowledgements:
    """Records sent at a given pace: when each was sent, and when its receipt came."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._latencies: list[float] = []
        self._last = self._silence = 0.0
        self._in_time = self._failed = 0
        self._cpu = math.nan

    def pace(self) -> Iterator[float]:
        """When to send each record, by `time.perf_counter`. The clock starts with the first one."""
        self._begin()
        for number in range(int(self._task.seconds * self._task.rate)):
            yield self._start + number / self._task.rate

    def _begin(self) -> None:
        print(READY, flush=True)
        self._start = self._last = time.perf_counter()
        self._cpu = time.process_time()
        self._end = self._start + self._task.seconds

    def one_by_one(self) -> Iterator[float]:
        """When each record is sent, by `time.perf_counter`: as soon as it is requested.

        At least two records are sent: with a new broker the first one may take all the time.
        """
        self._begin()
        for number in itertools.count():
            if (sent := time.perf_counter()) >= self._end and number >= 2:
                return
            yield sent

    def of(self, sent: float, failed: bool = False) -> None:
        """Count a record sent at this time as stored, or as failed."""
        now = time.perf_counter()
        if failed:
            self._failed += 1
            return
        self._latencies.append(now - sent)
        self._silence, self._last = max(self._silence, now - self._last), now
        self._in_time += now <= self._end

    def figures(self) -> Figures:
        cpu = time.process_time() - self._cpu
        if len(self._latencies) < 2:
            raise RuntimeError(f"{len(self._latencies)} receipts came, {self._failed} records failed")
        parts = statistics.quantiles(self._latencies, n=100, method="inclusive")
        return {
            "records": len(self._latencies),
            "acknowledged": self._in_time / self._task.seconds,
            "silence": self._silence,
            "failed": self._failed,
            "p50_ms": parts[49] * 1e3,
            "p99_ms": parts[98] * 1e3,
            "max_ms": max(self._latencies) * 1e3,
            "cpu_us": cpu / len(self._latencies) * 1e6,
        }


class Stopwatch:
    """Measures work with thousands of partitions: the time until it is done, and the cost of idling afterwards."""

    def __init__(self) -> None:
        self._start, self._cpu = time.perf_counter(), time.process_time()

    def ready(self) -> Figures:
        return {
            "ready_s": time.perf_counter() - self._start,
            "ready_cpu_s": time.process_time() - self._cpu,
            "memory_mb": resident() / 1e6,
        }

    def idle(self) -> Figures:
        """The figures of an idle period; the stopwatch must have been started at its beginning."""
        return {"idle_cpu": (time.process_time() - self._cpu) / (time.perf_counter() - self._start)}


def main(arguments: list[str]) -> None:
    """Carry out the task in the only argument, and print its figures."""
    task = Task(**json.loads(arguments[0]))
    module = importlib.import_module(f"tests.bench.clients.of_{task.client}")
    way: Callable[[Task], Figures] = getattr(module, task.way)
    print(json.dumps(of_passes(task, way) if task.passes else way(task)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
