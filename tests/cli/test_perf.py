"""perf: its figures count every record and transaction, and nothing else."""

import inspect
import json
import random
import tracemalloc
from typing import Any

import pytest

import ottla
from ottla.cli import perf
from ottla.cli.perf import Each, Latencies, Load, ThroughputReporter, as_text
from ottla.sdk.produce.options import ProducerOptions
from ottla.testing import Broker
from tests.cli import program
from tests.cli.test_commands import ottla as run


def test_percentiles_are_right_to_a_hundredth_and_the_largest_exact() -> None:
    rng = random.Random(1)
    seconds = sorted(rng.lognormvariate(-5, 1) for _ in range(10_000))
    latencies = Latencies()
    for each in rng.sample(seconds, len(seconds)):
        latencies.add(each)
    for share in (0.5, 0.9, 0.99, 0.999):
        exact = seconds[round(share * len(seconds)) - 1]
        assert latencies.percentile(share) == pytest.approx(exact, rel=0.011)
    assert latencies.percentile(1.0) <= latencies.largest == seconds[-1]
    assert latencies.summary()["measured"] == 10_000


def test_the_defaults_of_perf_produce_are_those_of_a_producer() -> None:
    given = {name: each.default for name, each in inspect.signature(perf.produce).parameters.items()}
    assert given["linger"] / 1000 == ProducerOptions().linger
    names = ("acks", "batch_size", "compression", "partitioner")
    assert {name: given[name] for name in names} == {name: getattr(ProducerOptions(), name) for name in names}


def test_nothing_is_told_of_what_was_not_measured() -> None:
    assert Latencies().summary() == {} and Latencies().percentile(0.5) == 0.0
    figures = {"event": "result", "records": 0, "seconds": 1.0, "records_per_second": 0.0, "megabytes_per_second": 0.0}
    assert as_text(figures) == "result: 0 records in 1.0 s, 0 a second, 0.0 MB/s"


class Sink:
    """A producer that only records sizes and keys."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.keys: list[bytes | None] = []

    async def send_soon(self, topic: str, value: bytes, key: bytes | None, **options: Any) -> None:
        self.sizes.append(len(value))
        self.keys.append(key)


@pytest.mark.parametrize("size", [0, 100, 1_000_000])
async def test_the_values_that_are_sent_take_some_megabytes_however_large_each_is(size: int) -> None:
    sink: Any = Sink()
    tracemalloc.start()
    try:
        await Load(["t"], 0, size, 20, None, None).send(sink, ThroughputReporter("produce", 0.0, True, size), 1)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert sink.sizes == [size] * 20


@pytest.mark.parametrize(
    ("keys", "sent"), [(0, [None] * 4), (3, [b"0", b"1", b"2", b"0"]), (10**18, [b"0", b"1", b"2", b"3"])]
)
async def test_keys_take_turns_and_no_memory_however_many_there_are(keys: int, sent: list[bytes | None]) -> None:
    sink: Any = Sink()
    await Load(["t"], keys, 1, 4, None, None).send(sink, ThroughputReporter("produce", 0.0, True, 1), 1)
    assert sink.keys == sent


async def transacted(broker: Broker, load: Load, each: Each, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The report on a load that is sent in transactions."""
    broker.create_topic("t")
    gauge = ThroughputReporter("produce", 0.0, True, load.size, transactional=True)
    async with ottla.connect(broker.bootstrap) as client, client.producer(transactional_id="p", linger=0) as producer:
        await load.transact(producer, gauge, 1, each)
        await gauge.end()
        states = (await client.describe_producers([("t", 0)]))["t", 0]
        assert [each.transaction_start for each in states] == [None]
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


async def test_transactions_have_so_many_records_and_their_commits_are_measured(
    ottla_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load(["t"], 0, 8, 25, None, None)
    figures = await transacted(ottla_broker, load, Each(records=10), capsys)
    assert (figures["records"], figures["transactions"]) == (25, 3)
    assert figures["transactions_per_second"] > 0 and figures["commit_latency"]["measured"] == 3
    assert 0 < figures["commit_latency"]["max_ms"] < 1000 * figures["seconds"]
    line = as_text(figures)
    assert "; 3 transactions, " in line and " a second, commit in ms: p50 " in line


async def test_a_transaction_may_end_by_the_clock(ottla_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    # The last record is due after half a second, so on any machine a transaction of 0.1 s cannot contain all of them.
    load = Load(["t"], 0, 8, 100, None, 200.0)
    figures = await transacted(ottla_broker, load, Each(seconds=0.1), capsys)
    assert figures["records"] == 100 and figures["transactions"] >= 2


def test_a_transaction_that_takes_long_has_the_time_that_it_takes() -> None:
    assert [Each(seconds=1.0).timeout(None), Each(seconds=100.0).timeout(None)] == [60.0, 200.0]
    assert [Each(records=100).timeout(None), Each(records=100).timeout(0.5)] == [60.0, 400.0]


@pytest.mark.slow
def test_records_that_no_request_holds_are_refused_before_anything_is_made_or_anybody_is_asked() -> None:
    done = program.run("perf", "produce", "t", "--size", "5000000000", "--bootstrap", "127.0.0.1:1")
    assert (done.returncode, b"at most 1048576 bytes" in b" ".join(done.stderr.split())) == (2, True), done.stderr


@pytest.mark.slow
def test_what_is_produced_is_counted_and_consumed_again(ottla_broker: Broker) -> None:
    for topic in ("t", "u"):
        ottla_broker.create_topic(topic, partitions=2)
    options = ("--count", "3000", "--size", "50", "--keys", "7", "--sample", "1", "--compression", "zstd")
    code, out, err = run(ottla_broker, "perf", "produce", "t", "u", *options, "--json")
    produced = json.loads(out.splitlines()[-1])
    assert (code, err, produced["event"], produced["records"], produced["warm_up_records"]) == (
        0,
        "",
        "result",
        3000,
        0,
    )
    latency = produced["latency"]
    assert latency["measured"] == 3000
    assert 0 < latency["p50_ms"] <= latency["p90_ms"] <= latency["p99_ms"] <= latency["p99.9_ms"] <= latency["max_ms"]
    code, out, _ = run(ottla_broker, "perf", "consume", "t", "u", "--json")
    # One record to each topic is sent before the clock starts.
    assert (code, json.loads(out.splitlines()[-1])["records"]) == (0, 3002)
    code, out, _ = run(ottla_broker, "perf", "consume", "t", "--group", "g", "--count", "1000")
    assert (code, out.startswith("result: 1,")) == (0, True), out
    committed = json.loads(run(ottla_broker, "offsets", "--group", "g", "--json")[1])
    assert sum(each["offset"] for each in committed) >= 1000


@pytest.mark.slow
def test_a_rate_is_kept_and_a_warm_up_is_left_out(ottla_broker: Broker) -> None:
    # So long that a pause of some seconds leaves time for records before and after the warm-up.
    options = ("--rate", "200", "--duration", "8", "--warm-up", "1", "--linger", "0", "--json")
    code, out, _ = run(ottla_broker, "perf", "produce", "t", *options)
    result = json.loads(out.splitlines()[-1])
    assert (code, result["rate_asked_for"]) == (0, 200)
    # A busy machine may send fewer, but never more than are due by the end.
    assert 0 < result["records"] + result["warm_up_records"] <= 1601
    assert result["warm_up_records"] > 0 and result["latency"]["measured"] <= result["records"]


@pytest.mark.slow
def test_a_record_that_is_refused_ends_the_run_with_the_reason(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", configs={"max.message.bytes": "1000"})
    code, out, err = run(ottla_broker, "perf", "produce", "t", "--size", "5000", "--count", "100")
    assert (code, out, err.splitlines()[-1].startswith("ottla: MESSAGE_TOO_LARGE")) == (1, "", True), err


@pytest.mark.slow
def test_transactions_are_measured_beside_the_records(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", configs={"max.message.bytes": "1000"})
    options = ("--transactional-id", "perf", "--transaction-records", "100", "--count", "1000", "--json")
    code, out, err = run(ottla_broker, "perf", "produce", "t", *options)
    result = json.loads(out.splitlines()[-1])
    assert (code, err, result["records"], result["transactions"]) == (0, "", 1000, 10)
    code, out, err = run(ottla_broker, "perf", "produce", "t", "--transactional-id", "perf", "--size", "5000")
    assert (code, out, "MESSAGE_TOO_LARGE" in err.splitlines()[-1]) == (1, "", True), err


@pytest.mark.slow
def test_a_run_that_would_never_end_is_refused(ottla_broker: Broker) -> None:
    assert run(ottla_broker, "perf", "consume", "t", "--from", "end")[0] == 2
    assert run(ottla_broker, "perf", "consume", "t", "--group", "g")[0] == 2
    assert run(ottla_broker, "perf", "consume", "nowhere")[0] == 1
