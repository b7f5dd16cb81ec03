"""`ottla perf`: measures how many records per second a cluster stores or serves, and their latency.

Rules:
- Only measured figures are reported. The records of a warm-up are sent or read, but not in the figures, and the report
  says so.
- With ``--rate`` a record's latency counts from the time when it was due, not from when it could be sent: otherwise a
  stall would not show in the records that it held up ("coordinated omission").
- A transaction's records count when they are acknowledged. Its commit takes from its last record to the coordinator's
  response, including records that linger or are in flight.
- Latencies are counted in buckets that are one per cent wide, so a percentile is right to one per cent, and memory does
  not grow with the run. The maximum is exact.
"""

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ottla.cli import stdio
from ottla.cli.consume import IDLE, next_batch
from ottla.cli.options import CompressionName, Connect, Isolation, IsolationLevel, Partitioner, at_cluster
from ottla.cli.places import partitions_of

if TYPE_CHECKING:
    from ottla.errors import OttlaError
    from ottla.sdk.client import Client
    from ottla.sdk.consumer import Consumer
    from ottla.sdk.produce.records import Receipt
    from ottla.sdk.producer import Producer, Transaction

app = typer.Typer(no_args_is_help=True, help="Measure throughput and latency.")

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or several topics, used in turn.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON every second, and one for the total.")]
WarmUp = Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Leave the first seconds out of the figures.")]

_WIDTH = math.log(1.01)
_POOL = 8 * 2**20
"""Bytes of the values that are generated before the clock starts, and sent in turn."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Acks(StrEnum):
    ALL = "all"
    ONE = "1"
    NONE = "0"


class Latencies:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count, self.total, self.largest = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        self._buckets[round(math.log(max(seconds, 1e-6)) / _WIDTH)] += 1
        self.count += 1
        self.total += seconds
        self.largest = max(self.largest, seconds)

    def percentile(self, share: float) -> float:
        """The latency in seconds that this share of the records does not exceed; 0 if there are none."""
        left = math.ceil(share * self.count)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(math.exp(bucket * _WIDTH), self.largest)
        return 0.0

    def summary(self) -> dict[str, float | int]:
        """The figures in milliseconds; empty without measurements."""
        if not self.count:
            return {}
        figures = {name: self.percentile(share) for name, share in PERCENTILES.items()}
        figures |= {"max": self.largest, "avg": self.total / self.count}
        return {"measured": self.count, **{f"{name}_ms": round(1000 * each, 3) for name, each in figures.items()}}


@dataclass
class Throughput:
    """Counts since `start`."""

    start: float
    records: int = 0
    size: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    commits: Latencies | None = None
    """Latencies of commits; ``None`` without transactions."""

    def count(self, records: int, size: int) -> None:
        self.records += records
        self.size += size

    def figures(self, now: float) -> dict[str, Any]:
        seconds = max(now - self.start, 1e-9)
        figures: dict[str, Any] = {
            "seconds": round(seconds, 3),
            "records": self.records,
            "records_per_second": round(self.records / seconds, 1),
            "megabytes_per_second": round(self.size / seconds / 1e6, 3),
        }
        if latency := self.latencies.summary():
            figures["latency"] = latency
        if self.commits is not None:
            figures["transactions"] = self.commits.count
            figures["transactions_per_second"] = round(self.commits.count / seconds, 1)
            if latency := self.commits.summary():
                figures["commit_latency"] = latency
        return figures


class ThroughputReporter:
    """Counts, reports once a second, and drops the warm-up.

    Attributes:
        warm_up: whether the warm-up is still running.
        record_size: bytes of each record that is sent.
        failure: the error of the first record that was not stored.
    """

    def __init__(
        self, kind: str, warm_up: float, as_json: bool, record_size: int = 0, *, transactional: bool = False
    ) -> None:
        self.kind, self._seconds, self._as_json, self.record_size = kind, warm_up, as_json, record_size
        self._transactional = transactional
        self.start = time.perf_counter()
        self.warm_up = warm_up > 0
        self.failure: OttlaError | None = None
        self.left_out = 0
        self._whole, self._second = self._window(self.start), self._window(self.start)

    def _window(self, start: float) -> Throughput:
        return Throughput(start, commits=Latencies() if self._transactional else None)

    def count(self, records: int, size: int) -> None:
        for window in (self._whole, self._second):
            window.count(records, size)

    def latency_of(self, seconds: float) -> None:
        self._whole.latencies.add(seconds)
        self._second.latencies.add(seconds)

    def committed(self, seconds: float) -> None:
        """A transaction was committed, which took so many seconds."""
        for window in (self._whole, self._second):
            if window.commits is not None:
                window.commits.add(seconds)

    def stored(self, result: "Receipt | OttlaError") -> None:
        """A record was stored, or failed, which ends the run."""
        if isinstance(result, Exception):
            self.failure = self.failure or result
        else:
            self.count(1, self.record_size)

    def measured(self, since: float) -> "Callable[[Receipt | OttlaError], None]":
        """Like `stored`; the record was sent, or due, at ``since``."""

        def stored(result: "Receipt | OttlaError") -> None:
            self.stored(result)
            if since >= self._whole.start and self.failure is None:
                self.latency_of(time.perf_counter() - since)

        return stored

    async def watch(self) -> None:
        """Report each second, until cancelled."""
        import trio

        while True:
            await trio.sleep(1.0)
            now = time.perf_counter()
            figures = {"event": "warm-up" if self.warm_up else "progress", **self._second.figures(now)}
            self._second = self._window(now)
            if self.warm_up and now - self.start >= self._seconds:
                self.warm_up, self.left_out = False, self._whole.records
                self._whole = self._window(now)
            await self._say(figures, err=True)  # last: it may wait for the reader

    async def end(self, **more: Any) -> None:
        """Report the total."""
        figures = self._whole.figures(time.perf_counter())
        figures["warm_up_records"] = self.left_out
        if self.warm_up:
            figures["ended_in_warm_up"] = True
        await self._say({"event": "result", **figures, **more}, err=False)
        if self.warm_up:
            await stdio.say("the run ended during the warm-up: the figures are those of the warm-up", err=True)

    async def _say(self, figures: dict[str, Any], err: bool) -> None:
        if self._as_json:
            await stdio.say(json.dumps({"kind": self.kind, **figures}))
        else:
            await stdio.say(as_text(figures), err=err)


def as_text(figures: dict[str, Any]) -> str:
    """One line for people."""
    line = (
        f"{figures['event']}: {figures['records']:,} records in {figures['seconds']:.1f} s, "
        f"{figures['records_per_second']:,.0f} a second, {figures['megabytes_per_second']:,.1f} MB/s"
    )
    if latency := figures.get("latency"):
        line += f"; latency in ms of {latency['measured']:,}: {_in_ms(latency)}"
    if "transactions" in figures:
        line += f"; {figures['transactions']:,} transactions, {figures['transactions_per_second']:,.1f} a second"
    if latency := figures.get("commit_latency"):
        line += f", commit in ms: {_in_ms(latency)}"
    if left_out := figures.get("warm_up_records"):
        line += f"; {left_out:,} records of the warm-up are left out"
    return line


def _in_ms(latency: dict[str, Any]) -> str:
    return ", ".join(f"{name} {latency[f'{name}_ms']:,.1f}" for name in (*PERCENTILES, "max"))


# -- produce ----------------------------------------------------------------------------------------------------------


Count = Annotated[int | None, typer.Option(min=1, help="Stop after this number of records.")]
Duration = Annotated[float | None, typer.Option(metavar="SECONDS", min=0.1, help="Stop after this time; default: 10.")]
Size = Annotated[int, typer.Option(min=0, help="Bytes of a value; keys are not counted.")]
Rate = Annotated[
    float | None, typer.Option(metavar="RECORDS", min=0.1, help="Records per second; default: as many as possible.")
]
Keys = Annotated[int, typer.Option(min=0, help="Number of different keys, used in turn; 0: records have no key.")]
Linger = Annotated[float, typer.Option(metavar="MS", min=0.0, help="How long a batch waits for more records.")]
Sample = Annotated[
    int | None,
    typer.Option(min=1, help="Measure the latency of every Nth record; default: 1 with --rate, otherwise 100."),
]
TransactionalId = Annotated[
    str | None, typer.Option(metavar="ID", help="Send in transactions, with this transactional id.")
]
TransactionRecords = Annotated[int | None, typer.Option(min=1, help="Records per transaction.")]
TransactionSeconds = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.001, help="Commit after this time, instead of --transaction-records; default: 1."
    ),
]


@app.command("produce", epilog="Example: ottla perf produce flights --duration 10 --size 200 --rate 5000 --linger 0")
@at_cluster
async def produce(
    connect: Connect,
    topics: Topics,
    count: Count = None,
    duration: Duration = None,
    warm_up: WarmUp = 0.0,
    size: Size = 100,
    rate: Rate = None,
    keys: Keys = 0,
    acks: Annotated[
        Acks, typer.Option(help="How many replicas must have a record before it counts as stored.")
    ] = Acks.ALL,
    compression: Annotated[
        CompressionName, typer.Option(help="The compression of batches; values are half random.")
    ] = CompressionName.NONE,
    linger: Linger = 5.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Bytes of a batch before compression.")] = 512 * 2**10,
    partitioner: Annotated[Partitioner, typer.Option(help="How keys map to partitions.")] = Partitioner.MURMUR2,
    sample: Sample = None,
    transactional_id: TransactionalId = None,
    transaction_records: TransactionRecords = None,
    transaction_seconds: TransactionSeconds = None,
    as_json: AsJson = False,
) -> None:
    """Send records, and measure how many per second are stored and their latency from send to acknowledgement.

    The clock stops when the last record is acknowledged. With --transactional-id also: how many transactions per second
    are committed, and the time of a commit, counted from the last record.

    First an empty record is sent to each topic, to find brokers and leaders before the clock starts.
    """
    import trio

    from ottla.sdk.options import Options

    if size >= (limit := Options().max_request_size):
        message = f"a request, and so a record, has at most {limit} bytes: {size} are too many"
        raise typer.BadParameter(message, param_hint="--size")
    _check_transactions(transactional_id, transaction_records, transaction_seconds, acks)
    load = Load(topics, keys, size, count, (duration or 10.0) if count is None else duration, rate)
    each = Each(transaction_records, transaction_seconds or (math.inf if transaction_records else 1.0))
    nth = sample or (1 if rate else 100)
    async with (
        connect() as client,
        client.producer(
            acks="all" if acks is Acks.ALL else int(acks),
            linger=linger / 1000,
            batch_size=batch_size,
            compression=compression,
            partitioner=partitioner,
            transactional_id=transactional_id,
            transaction_timeout=each.timeout(rate),
        ) as producer,
    ):
        # The measurement should not include connecting, metadata and InitProducerId.
        async with producer.transaction() if transactional_id else nullcontext(producer) as sender:
            for topic in topics:
                await sender.send(topic, b"")
        gauge = ThroughputReporter("produce", warm_up, as_json, size, transactional=transactional_id is not None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gauge.watch)
            if transactional_id:
                await load.transact(producer, gauge, nth, each)
            else:
                await load.send(producer, gauge, nth)
                await producer.flush()
            nursery.cancel_scope.cancel()
        if gauge.failure is not None:
            raise gauge.failure
        await gauge.end(**({"rate_asked_for": rate} if rate else {}))


def _check_transactions(name: str | None, records: int | None, seconds: float | None, acks: Acks) -> None:
    if name is None and (records or seconds):
        raise typer.BadParameter(
            "give the producer a --transactional-id", param_hint=f"--transaction-{'records' if records else 'seconds'}"
        )
    if name == "":
        raise typer.BadParameter("is empty", param_hint="--transactional-id")
    if name is not None and acks is not Acks.ALL:
        raise typer.BadParameter("transactions need all", param_hint="--acks")
    if records and seconds:
        raise typer.BadParameter("limit them by records or by seconds, not by both", param_hint="--transaction-records")


@dataclass(frozen=True)
class Each:
    """The size of one transaction: ``records``, or ``seconds``."""

    records: int | None = None
    seconds: float = math.inf

    def timeout(self, rate: float | None) -> float:
        """Seconds after which the broker may abort one: twice its expected duration, and at least a minute."""
        takes = self.seconds if self.records is None else self.records / rate if rate else 0.0
        return max(60.0, 2 * takes)


@dataclass(frozen=True)
class Load:
    """The load: ``count`` records, or ``duration`` seconds, whichever ends first."""

    topics: list[str]
    keys: int
    size: int
    count: int | None
    duration: float | None
    rate: float | None

    async def send(self, producer: "Producer", gauge: ThroughputReporter, nth: int) -> None:
        """Send all of it, and measure the latency of every ``nth`` record."""
        await Sending(self, gauge, nth).go_on(producer)

    async def transact(self, producer: "Producer", gauge: ThroughputReporter, nth: int, each: Each) -> None:
        """The same, in transactions."""
        sending, more = Sending(self, gauge, nth), True
        while more:
            before = sending.sent
            async with producer.transaction() as txn:
                more = await sending.go_on(txn, each)
                ended = time.perf_counter()
            if sending.sent > before:
                gauge.committed(time.perf_counter() - ended)

    def values(self) -> list[bytes]:
        """Up to a thousand values, each half random and half text, as compressible as typical data."""
        rng = random.Random(1)
        half = self.size // 2
        count = min(1000, _POOL // max(self.size, 1))
        return [rng.randbytes(half) + (b"%08d" % n * (self.size // 8 + 1))[: self.size - half] for n in range(count)]


class Sending:
    """A load in progress: ``sent`` counts its records so far."""

    def __init__(self, load: Load, gauge: ThroughputReporter, nth: int) -> None:
        self._load, self._gauge, self._nth = load, gauge, nth
        self._values = load.values()
        self._start, self.sent = time.perf_counter(), 0

    async def go_on(self, sender: "Producer | Transaction", most: Each = Each()) -> bool:
        """Send records until all are sent, one has failed, or ``most`` are sent; returns whether there are more."""
        import trio

        load, gauge, values, sent, begun = self._load, self._gauge, self._values, self.sent, time.perf_counter()
        topics, count, until = load.topics, load.count or math.inf, self._start + (load.duration or math.inf)
        last, pause = sent + (most.records or math.inf), begun + most.seconds
        try:
            while sent < count and gauge.failure is None:
                due = self._start + sent / load.rate if load.rate else 0.0
                if sent % 64 == 0 or load.rate:  # reading the clock costs about as much as a record
                    now = time.perf_counter()
                    if now >= until:
                        return False
                    if now >= pause:
                        return True
                    if due > now:
                        await trio.sleep(min(due, pause, until) - now)
                        continue
                value, key = values[sent % len(values)], b"%d" % (sent % load.keys) if load.keys else None
                told = gauge.stored if sent % self._nth else gauge.measured(due or time.perf_counter())
                await sender.send_soon(topics[sent % len(topics)], value, key=key, on_delivery=told)
                sent += 1
                if sent >= last:
                    return sent < count
            return False
        finally:
            self.sent = sent


# -- consume ----------------------------------------------------------------------------------------------------------


@app.command("consume", epilog="Example: ottla perf consume flights --warm-up 2")
@at_cluster
async def consume(
    connect: Connect,
    topics: Topics,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="beginning, or end, which also measures the age of records."),
    ] = "beginning",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this number of records.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="Stop after this time; default: at the current end of topics."),
    ] = None,
    warm_up: WarmUp = 0.0,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Read as a member of this group, and commit counted records.")
    ] = None,
    isolation: Isolation = IsolationLevel.READ_UNCOMMITTED,
    as_json: AsJson = False,
) -> None:
    """Read records, and measure how many per second arrive; reads key and value of each.

    The clock starts when the partitions are known, or with a group when they are assigned.
    """
    import trio

    if start not in ("beginning", "end"):
        raise typer.BadParameter(f"{start!r} is neither beginning nor end", param_hint="--from")
    endless, level = count is None and duration is None, isolation.literal
    if endless and (start == "end" or group is not None):
        raise typer.BadParameter("give one of them, so that the run ends", param_hint="--count or --duration")
    async with connect() as client:
        end = await _ends(client, topics, level) if endless else None
        where: Any = start
        async with client.consumer(*topics, group=group, start=where, reset="beginning", isolation=level) as consumer:
            gauge = ThroughputReporter("consume", warm_up, as_json)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(gauge.watch)
                with trio.move_on_after(duration or math.inf):
                    await _read(consumer, gauge, count, end, ages=start == "end", commit=group is not None)
                nursery.cancel_scope.cancel()
            await gauge.end()


async def _ends(
    client: "Client", topics: list[str], isolation: Literal["read_uncommitted", "read_committed"]
) -> dict[tuple[str, int], int]:
    """The current end of each partition that is not empty."""
    places = await partitions_of(client, topics)
    first = await client.offsets(dict.fromkeys(places, "beginning"))
    end = await client.offsets(dict.fromkeys(places, "end"), isolation=isolation)
    return {place: end[place] for place in places if end[place] > first[place]}


async def _read(
    consumer: "Consumer",
    gauge: ThroughputReporter,
    count: int | None,
    end: dict[tuple[str, int], int] | None,
    *,
    ages: bool,
    commit: bool,
) -> None:
    """Read until ``count`` records have arrived, or ``end`` is reached in every partition."""
    read, left = 0, dict(end or {})
    while (end is None or left) and (count is None or read < count):
        batch = await next_batch(consumer, math.inf if end is None else IDLE)
        if batch is None:  # the last offsets may have no record
            left = {place: offset for place, offset in left.items() if consumer.position(*place) < offset}
            continue
        records, size = batch.records, 0
        following = batch.next_offset
        if count is not None and len(records) > count - read:
            records = records[: count - read]
            following = records[-1].offset + 1
        now = time.time()
        for record in records:
            size += len(record.key or b"") + len(record.value or b"")
            if ages:
                gauge.latency_of(max(now - record.timestamp / 1000, 0.0))
        gauge.count(len(records), size)
        read += len(records)
        if commit:
            consumer.commit_soon({(batch.topic, batch.partition): following})
        if batch.next_offset >= left.get((batch.topic, batch.partition), math.inf):
            del left[batch.topic, batch.partition]
