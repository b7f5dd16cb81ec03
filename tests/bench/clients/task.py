"""The task of a client's process, and how it counts what it does: the same for all clients.

A client's module has a function for each way of working, from a `Task` to figures. Each runs in a process of its own,
so that nobody's threads, memory or processor time are counted for another.

Figures, as far as a way has them:
    records         counted ones, behind the warm-up
    rate            of them a second, by the clock on the wall
    cpu_us          microseconds of processor time for each, all threads of the process together
    p50_ms, p99_ms  from send to receipt
    acknowledged    a second, while records were being sent
    silence         the longest time without a receipt, in seconds
    failed          records that the client gave up
    growth_mb       of resident memory in 10⁷ records, 10⁶ bytes each, by the line through the samples
    memory_mb       resident at the end
    ready_s, ready_cpu_s   until every partition was written or read
    idle_cpu        of one core, while nothing comes
    transactions    a second, of `TRANSACTION` records each
    txn_cpu_us      microseconds of processor time for each
    txn_requests    that the client sent for each, whatever they are about
"""

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
"""A line that a process says when its clock starts, for those who plan something meanwhile."""
FLUSH_SECONDS = 60.0
TRANSACTION = 100
"""Records of a short transaction."""
TRANSACTION_SECONDS = 1.0
"""For which a long one takes records."""
TAKEN_AT_ONCE = 10_000
"""Records that a client who must say how many asks for."""
_SAMPLES = 50
_SETTLING = 2
"""One part in so many of the samples is left out: buffers are still being filled."""

__all__ = ["KEYS", "Acknowledgements", "Figures", "Meter", "Task"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a process is to do, as JSON.

    Attributes:
        prefix, topics, partitions: so many topics (`topic_names`), each of so many partitions.
        size: bytes of each value.
        compression: of what is produced.
        ca: the file of the CA that signed the broker's certificate; ``None``: no TLS.
        seconds: how long to work, behind the warm-up.
        warm_up: seconds of work that does not count.
        count: end after so many records, if that comes first.
        rate: records a second, where the pace is given.
        measure_memory: look at resident memory now and then.
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
    rate: float = 1000.0
    measure_memory: bool = False

    @property
    def value(self) -> bytes:
        return values(self.size)[0]

    @property
    def values(self) -> Iterator[list[bytes]]:
        """One for each key, over and over, and others each time, until all were there."""
        return itertools.cycle(self._lists)

    @property
    def _lists(self) -> list[list[bytes]]:
        endless, count = itertools.cycle(values(self.size)), -(-len(values(self.size)) // len(KEYS))
        return [list(itertools.islice(endless, len(KEYS))) for _ in range(count)]

    @property
    def records(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Keys and values, a list for all keys at a time."""
        return itertools.cycle(self._pairs)

    @property
    def _pairs(self) -> list[list[tuple[bytes, bytes]]]:
        return [list(zip(KEYS, each, strict=True)) for each in self._lists]

    @property
    def portions(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """As `records`, a list for each short transaction."""
        return itertools.cycle(
            [each[at : at + TRANSACTION] for each in self._pairs for at in range(0, len(KEYS), TRANSACTION)]
        )

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
    """Bytes of memory that the process occupies now. Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Counts records from a first one on, until the time is over or there are enough.

    A producer says when to `start`; for a consumer the clock starts with the first records behind the warm-up, as
    connecting is not what is measured.
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
        """What it came to, now."""
        taken, cpu = time.perf_counter() - self._start, time.process_time() - self._cpu
        if not self.records:
            raise RuntimeError("the time was over before there was anything to count")
        found = {"records": self.records, "rate": self.records / taken, "cpu_us": cpu / self.records * 1e6}
        if self._every:
            found["memory_mb"] = resident() / 1e6
            steady = self._samples[len(self._samples) // _SETTLING :]
            slope = statistics.linear_regression(*zip(*steady, strict=True)).slope if len(steady) > 2 else math.nan
            found["growth_mb"] = slope * 1e7 / 1e6
        return found


def of_transactions(figures: Figures, requests: float) -> Figures:
    """What short transactions came to: the figures of their records, and how many requests the client has sent."""
    count = figures["records"] / TRANSACTION
    return figures | {
        "transactions": figures["rate"] / TRANSACTION,
        "txn_cpu_us": figures["cpu_us"] * TRANSACTION,
        "txn_requests": requests / count,
    }


class Acknowledgements:
    """Of records sent at a given pace: when they were sent, and when the client told that they are stored."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._latencies: list[float] = []
        self._last = self._silence = 0.0
        self._in_time = self._failed = 0
        self._cpu = math.nan

    def pace(self) -> Iterator[float]:
        """When to send the next record, by `time.perf_counter`. The clock starts with the first."""
        self._begin()
        for number in range(int(self._task.seconds * self._task.rate)):
            yield self._start + number / self._task.rate

    def _begin(self) -> None:
        print(READY, flush=True)
        self._start = self._last = time.perf_counter()
        self._cpu = time.process_time()
        self._end = self._start + self._task.seconds

    def one_by_one(self) -> Iterator[float]:
        """When the next record is sent, by `time.perf_counter`: as soon as it is wanted.

        There are two at least: the first one to a broker that has just been started may take all the time there is.
        """
        self._begin()
        for number in itertools.count():
            if (sent := time.perf_counter()) >= self._end and number >= 2:
                return
            yield sent

    def of(self, sent: float, failed: bool = False) -> None:
        """A record sent at this time is stored, or given up."""
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
    """Of work with thousands of partitions: how long until it is done, and what it costs to do nothing afterwards."""

    def __init__(self) -> None:
        self._start, self._cpu = time.perf_counter(), time.process_time()

    def ready(self) -> Figures:
        return {
            "ready_s": time.perf_counter() - self._start,
            "ready_cpu_s": time.process_time() - self._cpu,
            "memory_mb": resident() / 1e6,
        }

    def idle(self) -> Figures:
        """Of a stopwatch that was started when the idleness was."""
        return {"idle_cpu": (time.process_time() - self._cpu) / (time.perf_counter() - self._start)}


def main(arguments: list[str]) -> None:
    """Do the task that is the only argument, and print its figures."""
    task = Task(**json.loads(arguments[0]))
    module = importlib.import_module(f"tests.bench.clients.of_{task.client}")
    way: Callable[[Task], Figures] = getattr(module, task.way)
    print(json.dumps(way(task)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
