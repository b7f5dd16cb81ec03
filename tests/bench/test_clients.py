"""The benchmark of clients itself: the canned broker answers every client, and the counted work was done."""

import gc
import importlib
import math
import mmap
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

import ottla.sync
from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.records import read_batches
from ottla.errors import FetchSessionIdNotFound, UnsupportedVersion
from ottla.testing import Broker
from tests.bench.clients.canned import ANSWER, ENDLESS, KEYS, CannedBroker, topic_names
from tests.bench.clients.cases import CASES, MODULES, Case, Column
from tests.bench.clients.process import Broken, run
from tests.bench.clients.run import table
from tests.bench.clients.task import Meter, Task
from tests.bench.peer import Peer

CLIENTS = ("ottla", "confluent", "aiokafka", "kafka_python")
BLOCKING = "ottla_sync"


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[CannedBroker]:
    broker = CannedBroker(**getattr(request, "param", {}))
    yield broker
    broker.close()


def done(broker: CannedBroker | Broker, client: str, way: str, **more: Any) -> dict[str, float]:
    task = Task(client=client, way=way, bootstrap=broker.bootstrap, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn at their import and at their close
        figures: dict[str, float] = getattr(importlib.import_module(f"tests.bench.clients.of_{client}"), way)(task)
    return figures


# -- the clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [*CLIENTS, BLOCKING])
def test_each_client_reads_what_the_canned_broker_has(broker: CannedBroker, client: str) -> None:
    figures = done(broker, client, "consume", seconds=0.05)
    assert figures["records"] > 0
    assert figures["rate"] > 0
    assert figures["cpu_us"] > 0


@pytest.mark.parametrize("client", [*CLIENTS, BLOCKING])
@pytest.mark.parametrize("way", ["produce", "receipts"])
def test_each_client_has_every_record_that_it_counts_acknowledged(broker: CannedBroker, client: str, way: str) -> None:
    figures = done(broker, client, way, seconds=0.02)
    warm_up_and_first = 1001
    assert broker.produced >= figures["records"] + warm_up_and_first


@pytest.mark.parametrize(("client", "way"), [*((each, "paced") for each in (*CLIENTS, BLOCKING)), ("ottla", "awaited")])
def test_each_client_keeps_the_pace(broker: CannedBroker, client: str, way: str) -> None:
    figures = done(broker, client, way, seconds=0.1, rate=200.0)
    assert (figures["records"], figures["failed"], broker.produced) == (20, 0, 21)
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]


@pytest.mark.parametrize("client", [*CLIENTS, BLOCKING, "trio"])
def test_each_client_awaits_one_receipt_after_the_other(broker: CannedBroker, client: str) -> None:
    figures = done(broker, client, "lone", seconds=0.05)
    assert 0 <= broker.produced - figures["records"] <= 1 and figures["records"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("broker", [{"topics": 10, "partitions": 3, "end": 1}], indirect=True)
def test_each_client_reads_one_record_from_every_partition_and_waits_for_more(
    broker: CannedBroker, client: str
) -> None:
    figures = done(broker, client, "read_each", topics=10, partitions=3, seconds=0.05)
    assert figures["ready_s"] > 0
    assert figures["idle_cpu"] >= 0


@pytest.mark.parametrize("client", ["ottla", BLOCKING, "confluent"])
def test_lists_are_produced_whole(broker: CannedBroker, client: str) -> None:
    figures = done(broker, client, "produce_many", seconds=0.02)
    assert broker.produced >= figures["records"] + 1001


def test_columns_are_read(broker: CannedBroker) -> None:
    assert done(broker, "ottla", "consume_columns", seconds=0.05)["records"] % len(KEYS) == 0


def test_aiokafka_is_stopped_even_if_it_cannot_start(broker: CannedBroker) -> None:
    """Otherwise its warning fails the test that runs when Python collects it."""
    broker.close()
    with pytest.raises(KafkaConnectionError):
        done(broker, "aiokafka", "lone")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gc.collect()
    assert [text for each in said if "AIOKafka" in (text := str(each.message))] == []


@pytest.mark.deep
@pytest.mark.parametrize("client", ["ottla", BLOCKING, "confluent", "aiokafka"])
def test_each_client_commits_every_record_that_it_counts(ottla_broker: Broker, client: str) -> None:
    [topic] = topic_names(1)
    with ottla.sync.connect(ottla_broker.bootstrap) as connected:
        connected.create_topic(topic, partitions=4)
        figures = done(ottla_broker, client, "transactions", seconds=0.05)
        assert figures["transactions"] > 0 and figures["txn_cpu_us"] > 0
        assert 2 <= figures["txn_requests"] < 20
        figures["records"] += done(ottla_broker, client, "long_transactions", seconds=0.05)["records"]
        committed = 0
        with connected.consumer(topic, isolation="read_committed") as consumer:
            while any(lag != 0 for lag in consumer.lag.values()):
                if batch := consumer.poll(1.0):
                    committed += len(batch)
    assert committed > figures["records"]  # the warm-up is not counted


# -- the canned broker -----------------------------------------------------------------------------------------------


class Reader(Peer):
    """Fetches from the canned broker."""

    def fetch(self, session_id: int, epoch: int, *wanted: tuple[int, int], forget: tuple[int, ...] = ()) -> Any:
        """Send a Fetch request for these partitions and offsets of the first topic."""
        partitions = tuple(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
            for partition, offset in wanted
        )
        [name] = topic_names(1)
        asked = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=(FetchTopic(topic=name, partitions=partitions),) if partitions else (),
            forgotten_topics_data=(ForgottenTopic(topic=name, partitions=forget),) if forget else (),
        )
        return self.ask(asked, 12, FetchResponse)


@pytest.fixture
def peer(broker: CannedBroker) -> Iterator[Reader]:
    peer = Reader(broker.port)
    yield peer
    peer.close()


def offsets(answer: FetchResponse) -> dict[int, list[int]]:
    """Partition -> base offsets of the batches in the response."""
    return {
        each.partition_index: [batch.base_offset for batch in read_batches(each.records or b"")]
        for topic in answer.responses
        for each in topic.partitions
    }


def test_batches_go_on_where_the_last_ones_ended(peer: Reader) -> None:
    for start in (0, ANSWER * len(KEYS), 10**9 * len(KEYS) + 3):
        first = start - start % len(KEYS)
        expected = [first + number * len(KEYS) for number in range(ANSWER)]
        assert offsets(peer.fetch(0, -1, (0, start), (2, 0))) == {0: expected, 2: offsets(peer.fetch(0, -1, (2, 0)))[2]}


@pytest.mark.parametrize("broker", [{"end": 1}], indirect=True)
def test_a_session_tells_only_of_partitions_with_something_new(peer: Reader) -> None:
    opened = peer.fetch(0, 0, (0, 0), (1, 1))
    assert opened.session_id > 0
    assert offsets(opened) == {0: [0], 1: []}
    assert offsets(peer.fetch(opened.session_id, 1, (0, 1))) == {}
    assert offsets(peer.fetch(opened.session_id, 2, (1, 0), (2, 0))) == {1: [0], 2: [0]}
    assert offsets(peer.fetch(opened.session_id, 3, forget=(1,))) == {2: [0]}


def test_a_session_that_there_is_not_is_refused(peer: Reader) -> None:
    assert peer.fetch(99, 5, (0, 0)).error_code == FetchSessionIdNotFound.code


def test_a_closed_broker_accepts_no_connection(broker: CannedBroker) -> None:
    Peer(broker.port).close()
    broker.close()
    with pytest.raises(ConnectionRefusedError):
        Peer(broker.port)


def test_a_version_of_the_first_request_that_is_not_served_is_refused_as_kafka_does(peer: Reader) -> None:
    refused = peer.ask(ApiVersionsRequest(), 5, ApiVersionsResponse, answered=0)
    assert refused.error_code == UnsupportedVersion.code
    assert any(each.api_key == frames.API_VERSIONS and each.max_version == 4 for each in refused.api_keys)


@pytest.mark.parametrize("broker", [{"topics": 3, "partitions": 2}], indirect=True)
def test_all_topics_are_led_by_the_one_node(peer: Reader) -> None:
    answer = peer.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    assert [each.name for each in answer.topics] == topic_names(3)
    [node] = answer.brokers
    assert {each.leader_id for topic in answer.topics for each in topic.partitions} == {node.node_id}


# -- the counters ------------------------------------------------------------------------------------------------------


def task(**more: Any) -> Task:
    return Task(client="", way="", bootstrap="", **more)


def test_a_consumers_clock_starts_with_its_first_records() -> None:
    meter = Meter(task(seconds=0.0))
    meter.count(500)
    assert not meter.over
    meter.count(10)
    assert meter.over
    assert meter.figures()["records"] == 10


def test_records_that_are_asked_for_count_with_the_first() -> None:
    meter = Meter(task(seconds=math.inf, count=600))
    meter.count(500)
    assert not meter.over
    meter.count(100)
    assert meter.over


def test_growth_of_memory_is_that_of_ten_million_records() -> None:
    meter = Meter(task(seconds=math.inf, count=1000, measure_memory=True))
    meter.start()
    kept = []
    while not meter.over:
        kept.append(mmap.mmap(-1, 200_000))  # a bytearray could reuse memory that other tests have freed
        kept[-1].write(b"x" * 200_000)
        meter.count(10)
    figures = meter.figures()
    assert len(kept) == 100
    assert 0.8 * 2e5 < figures["growth_mb"] < 1.2 * 2e5  # 20 kB for each record


def test_a_ratio_is_taken_within_each_round_and_says_how_many_times_better_ours_is() -> None:
    columns = Column("rate", "records/s", 0, "more"), Column("cpu_us", "µs of CPU", 1, "less"), Column("x", "x")
    case = Case(name="work", columns=columns, ours="", theirs={"peer": "", "other": ""})
    found = {
        "ottla": [{"rate": 20.0, "cpu_us": 1.0, "x": 1.0}, {"rate": 40.0, "cpu_us": 2.0, "x": 1.0}],
        "peer": [{"rate": 10.0, "cpu_us": 3.0, "x": 2.0}, {"rate": 20.0, "cpu_us": 6.0, "x": 2.0}],
    }
    head, ours, peer, other = table("work", case, found, {"other": "it broke"})
    assert head.split() == ["work", "records/s", "µs", "of", "CPU", "x", "×", "records/s", "×", "µs", "of", "CPU"]
    assert ours.split() == ["ottla", "30", "1.5", "1"]
    assert peer.split() == ["peer", "15", "4.5", "2", "2.00", "(2.00-2.00)", "3.00", "(3.00-3.00)"]
    assert other.split(maxsplit=1) == ["other", "failed: it broke"]
    assert "2.00" in table("work", case, {name: rounds[:1] for name, rounds in found.items()}, {})[2]


def test_every_client_has_the_ways_of_every_case() -> None:
    for case in CASES:
        assert case.end == ENDLESS or case.topics * case.partitions == 5000
        for client, way in [("ottla", case.ours), *((MODULES[name], way) for name, way in case.theirs.items())]:
            assert callable(getattr(importlib.import_module(f"tests.bench.clients.of_{client}"), way))


def test_a_case_that_there_is_not_is_told(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["clients", "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(case.name in said.err for case in CASES)


@pytest.mark.parametrize("options", [["--release", "3.9"], ["--tls", "--canned"], ["--tls", "--kafka", "host:1"]])
def test_what_is_about_a_kafka_that_is_started_needs_one(
    bench: ModuleType, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["clients", *options]) == 2
    assert "--kafka without an address" in capsys.readouterr().err


@pytest.mark.deep
def test_what_a_clients_process_says_last_is_why_it_broke() -> None:
    with pytest.raises(Broken, match="no_such_way"):
        run(Task(client="ottla", way="no_such_way", bootstrap="127.0.0.1:1"), timeout=60)


@pytest.mark.deep
def test_a_whole_run_prints_the_machine_and_a_table(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--seconds", "0.1", "--rounds", "2", "--clients", "ottla", "aiokafka"]
    assert bench.main(["clients", "read values", "columns", "produce with a receipt", *tiny]) == 0
    said = capsys.readouterr().out
    assert "cores, load" in said
    assert "failed" not in said
    assert said.count("\n  aiokafka") == 3
