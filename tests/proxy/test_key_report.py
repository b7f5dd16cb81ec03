"""The report names the clients that put keys where a topic's partitioner would not, in bounded memory."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import trio

from ottla.cli.report import lines
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.compression import Compression
from ottla.codec.partitioners import crc32_partition, murmur2_partition
from ottla.errors import ConfigurationError
from ottla.proxy import threads
from ottla.proxy.clients import key_report
from ottla.proxy.clients.key_report import HeavyHitters
from ottla.proxy.clients.key_scan import LONGEST_KEY
from ottla.proxy.config import ProxyConfig
from ottla.proxy.events import RulesChanged
from ottla.proxy.report_page import report
from ottla.proxy.topic_rule import parse_rule
from ottla.server_metrics import OTHER
from ottla.testing import Broker
from tests.patience import HUNG
from tests.proxy.running import proxied
from tests.proxy.simulated import Pair, Upstream, World, batch
from tests.proxy.test_metrics import KEYS as SENT
from tests.proxy.test_metrics import produce

TWELVE = 12
KEYS = [b"key-%d" % number for number in range(100)]
TIMES = 4
"""How often a client sends: the report looks at one batch of each request."""


def world_of(*rules: str, **options: Any) -> World:
    topics = {"flights": TWELVE, "audit": TWELVE, "strict": TWELVE}
    world = World(Upstream(topics), *(rules or ("*=observe",)), report="127.0.0.1:0", **options)
    world.request(0, MetadataRequest(topics=None), 9)
    world.settle(1)
    return world


def reported(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(report(world.core, 1.0)))
    return found


def topic_of(world: World, name: str) -> dict[str, Any]:
    [found] = [each for each in reported(world)["topics"] if each["topic"] == name]
    return found  # type: ignore[no-any-return] # from JSON


def send(world: World, topic: str, keys: list[bytes], client: int, client_id: str, place: Any, **options: Any) -> None:
    by_partition: dict[tuple[str, int], list[Pair]] = {}
    for key in keys:
        by_partition.setdefault((topic, place(key, TWELVE)), []).append((key, b"value"))
    world.produce(client, {each: batch(pairs, **options) for each, pairs in by_partition.items()}, client_id=client_id)
    world.settle(1)


@pytest.mark.parametrize("mode", ["observe", "rewrite", "reject"])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_client_with_another_partitioner_is_named(mode: str, compression: Compression) -> None:
    world = world_of(f"flights={mode}")
    software = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.5.0")
    world.request(1, software, 3)
    for _ in range(TIMES):
        send(world, "flights", KEYS, 1, "shop", crc32_partition, compression=compression)
        send(world, "flights", KEYS, 2, "billing", murmur2_partition, compression=compression)
    found = topic_of(world, "flights")
    elsewhere = TIMES * sum(murmur2_partition(key, TWELVE) != crc32_partition(key, TWELVE) for key in KEYS)
    shop, billing = found["clients"]
    assert (shop["client_id"], shop["software"]) == ("shop", "librdkafka 2.5.0")
    assert (shop["records"], shop["misplaced"], shop["partitioner"]) == (100 * TIMES, elsewhere, "crc32")
    assert (billing["client_id"], billing["misplaced"], billing["partitioner"]) == ("billing", 0, "murmur2")
    assert len(shop["samples"]) == key_report.SAMPLES and not billing["samples"]
    assert (found["mode"], found["partitioner"], found["partitions"]) == (mode, "murmur2", TWELVE)


def test_keys_are_hashed_alike_within_a_process_and_shown_only_on_demand() -> None:
    hidden, shown = world_of(), world_of(report_keys=True)
    here = murmur2_partition(b"classified", TWELVE)
    there = (here + 1) % TWELVE
    for world in (hidden, shown):
        for client in (1, 2):
            send(world, "flights", [b"classified"], client, f"c{client}", lambda key, count: there)
    assert b"classified" not in json.dumps(reported(hidden)).encode()
    first, second = topic_of(hidden, "flights")["clients"]
    assert first["samples"] == second["samples"] != []
    [sample] = topic_of(shown, "flights")["clients"][0]["samples"]
    assert sample == {"key": "classified", "partition": there, "partition_of_key": here}


@pytest.mark.parametrize("mode", ["observe", "rewrite", "reject"])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_long_keys_are_counted_and_not_looked_at(mode: str, compression: Compression) -> None:
    world = world_of(f"flights={mode}", report_keys=True)
    keys = [b"short" * (LONGEST_KEY // 5), b"long" * (LONGEST_KEY // 4 + 1)]
    for partition in (0, 1) * TIMES:
        send(world, "flights", keys, 1, "shop", lambda key, count, at=partition: at, compression=compression)
    found = topic_of(world, "flights")
    assert found["clients"][0]["records"] == 2 * len(keys) * TIMES
    assert "short" in json.dumps(found) and "long" not in json.dumps(found)


@pytest.mark.parametrize("mode", ["observe", "rewrite"])
def test_records_that_were_read_under_a_former_rule_do_not_bring_its_report_back(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    world = world_of(f"flights={mode}:murmur2")
    send(world, "flights", KEYS, 1, "shop", murmur2_partition)
    world.busy = True
    world.produce(1, {("flights", 0): batch([(b"k", bytes(5000))] * 2)}, client_id="shop")
    world.core.handle(RulesChanged((parse_rule(f"flights={mode}:crc32"),)), world.now)
    world.produce(2, {("flights", 0): batch([(b"k", b"v")])}, client_id="billing")
    while world.work:
        world.finish(world.work[0])
    world.settle(1)
    found = topic_of(world, "flights")
    assert found["partitioner"] == "crc32"
    assert [(each["client_id"], each["records"]) for each in found["clients"]] == [("billing", 1)]


def test_a_client_that_puts_a_key_into_several_partitions_is_told_apart() -> None:
    world, spread = world_of(), iter(range(1000))
    for _ in range(12):
        send(world, "flights", [b"a", b"b"], 1, "on purpose", lambda key, count: next(spread) % count)
        send(world, "flights", [b"a", b"b"], 2, "hashes", crc32_partition)
    by_name = {each["client_id"]: each["keys_in_several_partitions"] for each in topic_of(world, "flights")["clients"]}
    assert by_name["on purpose"]["keys"] == 2 and len(by_name["on purpose"]["samples"]) == 2
    assert by_name["hashes"]["keys"] == 0


def test_hot_keys_are_found() -> None:
    world = world_of(report_keys=True)
    for turn in range(20):
        send(world, "flights", [b"hot"] * 5 + [b"cold-%d" % turn], 1, "shop", lambda key, count: 1)
    [hot] = topic_of(world, "flights")["hot_keys"]
    assert hot["key"] == "hot" and hot["share"] > 0.7


@pytest.mark.parametrize("keys", [2, 10, 50, 64, 100, 5000])
@pytest.mark.parametrize("looks", [50, 500, 20_000])
def test_no_key_is_hot_where_all_are_equally_frequent(keys: int, looks: int) -> None:
    chance, sketch = Random(keys), HeavyHitters(64)
    for _ in range(looks):
        sketch.add(f"{chance.randrange(keys)}")
    assert sketch.hot(10) == []


@pytest.mark.parametrize("others", [1, 10, 5000])
def test_a_key_far_more_frequent_than_the_others_is_hot(others: int) -> None:
    chance, sketch = Random(others), HeavyHitters(64)
    for _ in range(2000):
        sketch.add("hot" if chance.random() < (0.9 if others == 1 else 0.4) else f"{chance.randrange(others)}")
    assert [key for key, _ in sketch.hot(10)] == ["hot"]


def test_the_report_tells_the_number_of_partitions_of_a_grown_topic_and_the_modes_of_its_clients() -> None:
    world = world_of("flights=rewrite::6")
    send(world, "flights", KEYS, 1, "shop", crc32_partition)
    world.core.handle(RulesChanged((parse_rule("flights=observe::6"),)), world.now)
    send(world, "flights", KEYS, 2, "shop", crc32_partition)
    found = topic_of(world, "flights")
    assert (found["partitions"], found["partitions_of_topic"]) == (6, TWELVE)
    assert found["clients"][0]["modes"] == ["rewrite", "observe"]
    [heading] = [line for line in lines(reported(world)) if line.startswith("flights")]
    assert heading == "flights: observe, murmur2 over 6 of its 12 partitions"


def test_the_sketch_keeps_what_is_frequent() -> None:
    chance, sketch = Random(1), HeavyHitters(10)
    stream = ["hot"] * 300 + ["warm"] * 150 + [f"{number}" for number in range(500)]
    chance.shuffle(stream)
    for key in stream:
        sketch.add(key)
    top = sketch.top(2)
    assert [key for key, _ in top] == ["hot", "warm"]
    assert all(count <= stream.count(key) for key, count in top), "counts are reached for certain"


def test_topics_and_clients_beyond_the_bounds_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_report, "MOST_TOPICS", 1)
    monkeypatch.setattr(key_report, "MOST_CLIENTS", 2)
    world = world_of()
    for client in range(1, 6):
        send(world, "flights", KEYS[:2], client, f"c{client}", murmur2_partition)
    send(world, "audit", KEYS[:2], 1, "c1", murmur2_partition)
    assert {each["client_id"]: each["records"] for each in topic_of(world, "flights")["clients"]} == {
        "c1": 2,
        "c2": 2,
        OTHER: 6,
    }
    assert [each["client_id"] for each in topic_of(world, OTHER)["clients"]] == [OTHER]


def test_few_keys_are_looked_at_however_many_batches_come() -> None:
    world = world_of()
    for _ in range(3):
        for _ in range(200):
            world.produce(1, {("flights", 0): batch([(b"k", b"")])})
    assert topic_of(world, "flights")["looked_at"] <= 200
    assert topic_of(world, "flights")["clients"][0]["records"] == 600, "all are counted"


def test_counts_of_a_sample_are_scaled() -> None:
    world = world_of(observe_sample=4)
    for _ in range(400):
        world.produce(1, {("flights", 0): batch([(KEYS[0], b"")] * 10)})
    tally = world.core.tallies["flights"]
    assert tally.records % 40 == 0
    assert 0.6 * 4000 < tally.records < 1.4 * 4000
    assert tally.misplaced == tally.records
    assert reported(world)["observe_sample"] == 4


def test_nothing_is_collected_without_a_report() -> None:
    world = World(Upstream({"flights": TWELVE}), "flights=observe")
    assert world.core.key_report is None


@pytest.fixture(params=[{"report_keys": True}, {"report": "localhost"}, {"report": "h:1", "health": "h:1"}], ids=str)
def mistake(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    yield request.param


def test_settings_of_the_report_are_checked(mistake: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="report"):
        ProxyConfig(upstream="kafka:9092", **mistake)


def test_the_report_has_an_address_of_its_own(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", TWELVE)
    with proxied(ottla_broker.bootstrap, "flights=observe", report="127.0.0.1:0", health="127.0.0.1:0") as proxy:
        trio.run(produce, proxy.bootstrap, ["flights"], "shop")
        told = json.loads(asked(proxy.running.report, "/report"))
        for address, path in ((proxy.running.report, "/metrics"), (proxy.running.health, "/report")):
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                asked(address, path)
            refused.value.close()
    [client] = told["topics"][0]["clients"]
    assert client["client_id"] == "shop" and client["software"].startswith("ottla ")
    assert client["misplaced"] == sum(murmur2_partition(key, TWELVE) != 0 for key in SENT)


def asked(address: str | None, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=HUNG) as page:
        found: bytes = page.read()
    return found
