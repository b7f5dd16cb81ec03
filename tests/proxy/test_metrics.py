"""The proxy's ``/metrics``: exact values after real traffic, and series that clients cannot add to."""

import zlib
from pathlib import Path

import pytest
import trio

import ottla
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.compression import Compression
from ottla.codec.partitioners import murmur2_partition
from ottla.proxy.clients.observer import Tallies
from ottla.proxy.events import RulesChanged
from ottla.proxy.metrics import (
    FAILED,
    MOVED,
    PROXY_METRICS,
    RECORDS,
    UPSTREAM_IN_FLIGHT,
    UPSTREAM_UNANSWERED,
    collect,
)
from ottla.proxy.topic_rule import Mode, parse_rule
from ottla.serve import Listener
from ottla.serve.traffic import TRAFFIC_METRICS
from ottla.server_metrics import MOST_SERIES, OTHER, MetricKind, ServerMetric
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.patience import HUNG
from tests.proxy.running import proxied
from tests.proxy.simulated import Upstream, World, batch
from tests.proxy.test_rewriting import world_of
from tests.scraping import Scraped, scrape
from tests.steps import no_step_holds_the_loop  # noqa: F401 # it watches each test here

SIX = 6
DECLARED = {each.name for each in (*TRAFFIC_METRICS, *PROXY_METRICS)}
"""`ottla_proxy_journal_works` among them, so the proxy needs a state directory."""
KEYS = [b"N%d" % n for n in range(20)]
MISPLACED = sum(murmur2_partition(key, SIX) != 0 for key in KEYS)
"""The keys that do not belong to partition 0."""


async def produce(bootstrap: str, topics: list[str], client_id: str) -> None:
    """Send one record for each key to partition 0 of each topic."""
    with trio.fail_after(HUNG):
        async with ottla.connect(bootstrap, client_id=client_id) as client, client.producer() as producer:
            for topic in topics:
                for key in KEYS:
                    await producer.send(topic, b"value", key=key, partition=0)


def test_records_by_rule_and_misplaced_keys_by_client_are_counted(ottla_broker: Broker, tmp_path: Path) -> None:
    for topic in ("flights", "audit", "plain", "boats", "archive"):
        ottla_broker.create_topic(topic, SIX)
    rules = ("flights=rewrite", "audit=observe", "boats=copy:archive", "archive=rewrite")
    with proxied(ottla_broker.bootstrap, *rules, health="127.0.0.1:0", state=str(tmp_path)) as proxy:
        trio.run(produce, proxy.bootstrap, ["flights", "audit", "plain"], "shop")
        trio.run(produce, proxy.bootstrap, ["flights"], "billing")
        trio.run(produce, proxy.bootstrap, ["boats"], "harbour")
        page = scrape(proxy.running.health)
    count = len(KEYS)
    assert page.values("ottla_proxy_records_total") == {
        ("rewrite", "flights"): 2 * count,
        ("observe", "audit"): count,
        ("copy", "boats"): count,
    }
    assert page.values("ottla_proxy_moved_records_total") == {("flights",): 2 * MISPLACED, ("boats",): MISPLACED}
    assert page.values("ottla_proxy_copied_records_total") == {("archive", "boats"): count}
    assert page.values("ottla_proxy_misplaced_records_total") == {
        ("shop", "flights"): MISPLACED,
        ("billing", "flights"): MISPLACED,
        ("shop", "audit"): MISPLACED,
        ("harbour", "boats"): MISPLACED,
    }
    assert page.values("ottla_proxy_keyless_records_total") == {("flights",): 0, ("audit",): 0, ("boats",): 0}
    assert page.value("ottla_proxy_passed_records_total") == 2 * count
    assert page.value("ottla_proxy_passed_bytes_total") > 2 * count * len(b"value")
    assert page.value("ottla_proxy_held_bytes") == page.value("ottla_proxy_held_records") == 0
    assert page.value("ottla_proxy_held_bytes_limit") == 64 * 2**20
    assert page.value("ottla_proxy_unsettled_batches") == 0
    assert page.value("ottla_proxy_journal_works") == 1
    assert page.value("ottla_proxy_upstream_available") == 1
    assert page.value("ottla_proxy_upstream_connections", node="1") >= 1
    of_clients = page.value("kafka_network_requestmetrics_requests_total", request="Produce")
    assert page.value("kafka_network_requestmetrics_totaltimems_count", request="Produce") == of_clients > 0
    to_upstream = page.values("ottla_proxy_upstream_request_milliseconds_count")
    assert to_upstream["1", "Produce"] > 0 and {node for node, _ in to_upstream} <= {"1", OTHER}
    exported = {each for each in page.names if not each.startswith("process_")}
    assert exported == DECLARED - {"kafka_network_requestmetrics_errors_total", "ottla_proxy_failed_batches_total"}


def test_held_records_and_requests_in_flight_are_counted_while_upstream_is_silent(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)

    async def held() -> Scraped:
        async with ottla.connect(proxy.bootstrap) as client, client.producer() as producer:
            await producer.send("flights", b"first", key=b"k")
            ottla_broker.kill()
            producer.send_nowait("flights", b"second", key=b"k")
            try:
                with trio.fail_after(HUNG):
                    while True:
                        page = await trio.to_thread.run_sync(scrape, proxy.running.health)
                        if page.value("ottla_proxy_unsettled_batches") and not page.value(
                            "ottla_proxy_upstream_available"
                        ):
                            return page
                        await trio.lowlevel.checkpoint()
            finally:
                await trio.to_thread.run_sync(ottla_broker.start)

    with proxied(ottla_broker.bootstrap, "flights=rewrite", health="127.0.0.1:0") as proxy:
        page = trio.run(held)
    assert page.value("ottla_proxy_unsettled_batches") == 1
    assert page.value("ottla_proxy_held_records") == 1
    assert page.value("ottla_proxy_held_bytes") > len(b"second")
    assert "ottla_proxy_journal_works" not in page.names


def test_errors_that_the_proxy_reads_are_counted() -> None:
    config = BrokerConfig(port=0, sync=Sync.NEVER, auto_create=False)
    with Broker(config) as broker, proxied(broker.bootstrap, health="127.0.0.1:0") as proxy:
        with Peer(int(proxy.bootstrap.rpartition(":")[2])) as peer:
            peer.ask(MetadataRequest(topics=(MetadataRequestTopic(name="missing"),)), 8)
            peer.ask(MetadataRequest(topics=()), 8)
        page = scrape(proxy.running.health)
    assert page.values("kafka_network_requestmetrics_errors_total") == {("UNKNOWN_TOPIC_OR_PARTITION", "Metadata"): 1}
    assert page.values("kafka_network_requestmetrics_requests_total") == {("Metadata",): 2}


def samples_of(world: World, metric: ServerMetric) -> dict[tuple[str, ...], float]:
    found = collect(world.core, Listener())
    return {each.labels: each.value for each in found if each is not None and each.metric is metric}


def test_batches_that_failed_are_counted_by_their_outcome() -> None:
    world = world_of()
    tally = world.core.tallies["flights"]
    tally.refused, tally.outcome_unknown, tally.dropped = 3, 2, 1
    assert samples_of(world, FAILED) == {
        ("flights", "refused"): 3,
        ("flights", "unknown"): 2,
        ("flights", "dropped"): 1,
    }
    tally.outcome_unknown = tally.dropped = 0
    assert samples_of(world, FAILED) == {("flights", "refused"): 3}


def counters_of(world: World) -> dict[tuple[str, tuple[str, ...]], float]:
    found = collect(world.core, Listener())
    counted = (each for each in found if each is not None and each.metric.kind is MetricKind.COUNTER)
    return {(each.metric.name, each.labels): each.value for each in counted if isinstance(each.value, int | float)}


def test_records_are_counted_under_the_mode_of_their_time_and_no_counter_falls_when_it_changes() -> None:
    world = World(Upstream({"flights": SIX}), "flights=observe")
    misplaced = batch([(key, b"v") for key in KEYS])
    world.produce(1, {("flights", 0): batch([(b"k", b"learn")])})
    world.settle(1)
    before = counters_of(world)
    sent = 0
    for number, mode in enumerate(("observe", "rewrite", "reject", "rewrite", "observe")):
        world.core.handle(RulesChanged((parse_rule(f"flights={mode}"),)), world.now)
        world.settle(1)
        found = counters_of(world)
        assert found == before, f"no record was sent since the rule is {mode}"
        assert world.produce(2 + number, {("flights", 0): misplaced}).frame is not None
        world.settle(1)
        sent += mode != "reject"
        before = counters_of(world)
        assert all(before.get(series, -1) >= value for series, value in found.items())
    by_mode = {labels[1]: value for labels, value in samples_of(world, RECORDS).items()}
    once = len(KEYS)
    assert by_mode == {"observe": 2 * once, "rewrite": 2 * once, "reject": 0} and sent == 4
    assert samples_of(world, MOVED) == {("flights",): 2 * MISPLACED}
    told = world.core.tallies["flights"].facts()
    assert (told["records_in_observe"], told["moved"], told["refused_batches"]) == (2 * once, 2 * MISPLACED, 1)


def test_requests_that_upstream_never_answers_are_counted() -> None:
    world = world_of()
    world.produce(1, {("flights", 0): batch([(b"k", b"learn")])})
    assert set(samples_of(world, UPSTREAM_UNANSWERED).values()) <= {0}
    world.slow = True
    world.produce(1, {("flights", 0): batch([(b"k", b"v")])})
    in_flight = sum(samples_of(world, UPSTREAM_IN_FLIGHT).values())
    world.kill(0)
    assert samples_of(world, UPSTREAM_UNANSWERED) == {("0",): in_flight}
    assert in_flight == 1


def old_message_set(value: bytes) -> bytes:
    """A message set of a client before Kafka 0.11, whose bytes 57 to 61 belong to a value."""
    message = b"\1\0" + bytes(8) + (-1).to_bytes(4, "big", signed=True) + len(value).to_bytes(4, "big") + value
    entry = zlib.crc32(message).to_bytes(4, "big") + message
    return bytes(8) + len(entry).to_bytes(4, "big") + entry


@pytest.mark.parametrize("compression", list(Compression))
def test_passed_records_are_counted_as_their_header_says(compression: Compression) -> None:
    tallies, data = Tallies(), batch([(b"k", b"v")] * 1000, compression=compression)
    tallies.passed(memoryview(data))
    assert (tallies.passed_records, tallies.passed_bytes) == (1000, len(data))


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("compression", list(Compression))
def test_a_header_cannot_claim_more_records_than_its_bytes_may_hold(compression: Compression, count: int) -> None:
    tallies, data = Tallies(), batch([(b"k", b"v")] * 10, compression=compression)
    tallies.passed(data[:57] + count.to_bytes(4, "big", signed=True) + data[61:])
    assert 0 <= tallies.passed_records <= (10_000 if count > 0 else 0)
    assert tallies.passed_bytes == len(data)


@pytest.mark.parametrize(
    "data",
    [old_message_set(b"x" * 100), b"\xff" * 100, b"", b"short", None],
    ids=["a message set", "no magic", "empty", "short", "null"],
)
def test_record_sets_of_other_formats_count_as_bytes_only(data: bytes | None) -> None:
    tallies = Tallies()
    tallies.passed(data)
    assert (tallies.passed_records, tallies.passed_bytes) == (0, len(data or b""))


def test_clients_with_ever_new_ids_add_a_bounded_number_of_series() -> None:
    tallies = Tallies()
    for n in range(3 * MOST_SERIES):
        tallies.count("flights", Mode.OBSERVE, f"client-{n}" + "x" * 30_000, records=1, keyless=0, misplaced=1)
    assert len(tallies.misplaced) == MOST_SERIES + 1
    assert tallies.misplaced[OTHER, OTHER] == 2 * MOST_SERIES
    assert sum(tallies.misplaced.values()) == tallies["flights"].misplaced == 3 * MOST_SERIES


@pytest.mark.parametrize("mode", ["rewrite", "fan-out", "observe", "reject"])
@pytest.mark.parametrize("acks", [-1, 0])
def test_names_of_topics_that_do_not_exist_get_no_series(mode: str, acks: int) -> None:
    world = World(Upstream({"flights": 2}), f"*={mode}")
    for n in range(20):
        world.produce(n, {(f"made-up-{n}", 0): batch([(b"k", b"v")])}, acks=acks)
    world.settle(20)
    assert not world.core.tallies and not world.core.tallies.misplaced
    assert samples_of(world, RECORDS) == samples_of(world, FAILED) == {}
