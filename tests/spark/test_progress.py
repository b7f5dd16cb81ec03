"""The progress of a streaming query, in the log and in Prometheus."""

import logging
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.errors import ConfigurationError
from ottla.sdk.metrics import Metric
from ottla.spark.reading.read_options import StreamOptions
from ottla.spark.streaming import progress
from ottla.spark.streaming.progress import MetricsEndpoint, Progress
from ottla.spark.streaming.stream_reader import StreamReader
from ottla.testing import Broker
from tests.kafka import free_ports
from tests.patience import HUNG
from tests.spark.test_stream import Query, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "127.0.0.1"


def values(told: list[Metric]) -> dict[tuple[str, str], float]:
    return {(each.name, f"{each.tags['topic']}-{each.tags['partition']}"): each.value for each in told}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("ottla.spark.streaming.progress.time.monotonic", lambda: now[0])
    return now


def test_lag_and_rate_are_reported_by_partition(clock: list[float]) -> None:
    query = Progress("q", "orders")
    query.reached({("t", 0): 10}, {("t", 0): 15, ("t", 1): 3}, 1000.0)
    assert values(query.metrics())["records-lag", "t-0"] == 5
    assert values(query.metrics())["records-lag", "t-1"] == 3
    clock[0] += 10
    query.reached({("t", 0): 15, ("t", 1): 2}, {("t", 0): 15, ("t", 1): 3}, clock[0])
    told = values(query.metrics())
    assert told["records-lag", "t-0"] == 0
    assert told["records-consumed-total", "t-0"] == 5
    assert told["records-consumed-rate", "t-0"] == pytest.approx(0.5)
    assert told["records-consumed-total", "t-1"] == 0, "the query's earlier position was not known"
    assert {each.tags["client-id"] for each in query.metrics()} == {"q"}


def test_a_deleted_partition_is_no_longer_reported_and_a_recreated_one_lowers_no_counter(
    clock: list[float],
) -> None:
    query = Progress("q", "orders")
    query.reached({("t", 0): 10, ("t", 1): 7}, {("t", 0): 15, ("t", 1): 9}, clock[0])
    query.reached({("t", 0): 0}, {("t", 0): 4}, clock[0])
    told = values(query.metrics())
    assert {place for _, place in told} == {"t-0"}
    assert (told["records-lag", "t-0"], told["records-consumed-total", "t-0"]) == (4, 0)


def test_the_log_names_the_partitions_that_are_furthest_behind(caplog: pytest.LogCaptureFixture) -> None:
    query = Progress("q", "orders")
    starts, ends = {("t", n): 0 for n in range(12)}, {("t", n): 10 + n for n in range(12)}
    with caplog.at_level(logging.INFO, "ottla.spark"):
        query.reached(starts, ends, 0.0)
        query.reached(starts, ends, 1.0)
        assert not caplog.messages
        query.reached(ends | {("t", 3): 10}, ends, progress.REPORT_SECONDS)
        query.reached(starts, ends, progress.REPORT_SECONDS + 1)
    [line] = caplog.messages
    assert line.startswith("orders: 3 records behind, ")
    assert line.endswith("records/s; behind: t-3 3")
    assert "t-2 12 and 2 more" in query.summary(0.0)
    assert query.summary(0.0).index("t-11 21") < query.summary(0.0).index("t-10 20")


def test_metrics_are_served_when_the_port_is_free(caplog: pytest.LogCaptureFixture) -> None:
    with closing(socket.socket()) as taken:
        taken.bind((HERE, 0))
        taken.listen()
        port = taken.getsockname()[1]
        query = Progress("q", "orders")
        query.reached({("t", 0): 1}, {("t", 0): 3}, 0.0)
        served = MetricsEndpoint((HERE, port), query)
        served.start(0.0)
        served.start(1.0)
    assert len(caplog.messages) == 1
    assert f"cannot listen on {HERE}:{port} (Address already in use)" in caplog.text
    served.start(progress.RETRY_SECONDS)
    try:
        text = urlopen(f"http://{HERE}:{port}/metrics", timeout=HUNG).read().decode()
    finally:
        served.stop()
    assert 'ottla_records_lag{client_id="q",partition="0",topic="t"} 2.0' in text


@pytest.mark.parametrize("value", ["9404", "host:", ":9404", "host:0", "host:70000", "host:x"])
def test_an_invalid_address_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"prometheus '.*' (has no|is not|is only a number)"):
        StreamOptions.parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "prometheus": value})


@pytest.fixture
def made(ottla_broker: Broker) -> Iterator[Callable[..., StreamReader]]:
    ottla_broker.create_topic("t", partitions=2)
    readers: list[StreamReader] = []

    def reader(**options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": ottla_broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        readers.append(StreamReader(StreamOptions.parse(given | options)))
        return readers[-1]

    yield reader
    for each in readers:
        each.stop()


def test_records_that_spark_has_read_are_reported_and_no_task_listens(
    made: Callable[..., StreamReader], ottla_broker: Broker
) -> None:
    [port] = free_ports(1)
    write(ottla_broker, "a", "b")
    reader = made(prometheus=f"{HERE}:{port}")
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    text = urlopen(f"http://{HERE}:{port}/metrics", timeout=HUNG).read().decode()
    assert 'ottla_records_lag{client_id="ottla",partition="0",topic="t"} 2.0' in text
    assert pickle.loads(pickle.dumps(reader)).options == reader.options


@pytest.mark.slow
def test_a_query_can_be_watched(spark: "SparkSession", ottla_broker: Broker, tmp_path: Path) -> None:
    ottla_broker.create_topic("t", partitions=2)
    write(ottla_broker, "a", "b", "c")
    [port] = free_ports(1)
    options = {"startingOffsets": "earliest", "prometheus": f"{HERE}:{port}", "maxOffsetsPerTrigger": "1"}
    query = Query(spark, ottla_broker.bootstrap, tmp_path / "checkpoint", **options)
    seen: list[str] = []
    query.look = lambda: seen.append(urlopen(f"http://{HERE}:{port}/metrics", timeout=HUNG).read().decode())
    query.run()
    lag = 'ottla_records_lag{client_id="ottla",partition="0",topic="t"}'
    assert [next(line for line in text.splitlines() if line.startswith(lag)).split()[1] for text in seen] == [
        "3.0",
        "2.0",
        "1.0",
    ]
