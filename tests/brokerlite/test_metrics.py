"""The broker's ``/metrics``: exact values after real traffic, and a bounded page with thousands of topics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.metrics import (
    BROKER_METRICS,
    BYTES_IN,
    BYTES_OUT,
    LOCKS_EXPIRED,
    LOG_END_OFFSET,
    LOG_SIZE,
    MESSAGES_IN,
    RECORDS_IN_FLIGHT,
    collect,
)
from ottla.brokerlite.serve import RunningBroker, run_broker
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.share_fetch import ACCEPT
from ottla.serve import Listener
from ottla.serve.traffic import TRAFFIC_METRICS
from ottla.server_metrics import MOST_SERIES, OTHER, Histogram
from tests.brokerlite.machine import Machine, a_batch, fetching, producing
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.peer import Peer
from tests.brokerlite.sharing import acknowledge, beat, configure, fetch
from tests.patience import FAR
from tests.scraping import Scraped, scrape
from tests.sdk.shared_topics import share_from_the_beginning

DECLARED = {each.name for each in (*TRAFFIC_METRICS, *BROKER_METRICS)}
OF_SHARES = {LOCKS_EXPIRED.name, RECORDS_IN_FLIGHT.name}
"""These metrics have values only if a share group exists."""
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@asynccontextmanager
async def a_broker(**config: Any) -> AsyncIterator[RunningBroker]:
    async with trio.open_nursery() as nursery:
        given: dict[str, Any] = {"port": 0, "health": "127.0.0.1:0", "group_initial_rebalance_delay": 0.0} | config
        yield await nursery.start(run_broker, BrokerConfig(**given))
        nursery.cancel_scope.cancel()


async def scraped(running: RunningBroker) -> Scraped:
    return await trio.to_thread.run_sync(scrape, running.health)


async def test_topics_groups_and_transactions_of_real_clients_are_counted() -> None:
    async with a_broker() as running:
        running.create_topic("orders", 3, {})
        running.create_topic("idle", 1, {})
        async with ottla.connect(running.bootstrap) as client:
            async with client.producer() as producer:
                for n in range(30):
                    await producer.send("orders", b"%d" % n, partition=n % 3)
            async with client.consumer(
                "orders", group="billing", group_protocol="classic", reset="beginning"
            ) as consumer:
                count = 0
                async for batch in consumer:
                    count += len(batch)
                    if count == 30:
                        await consumer.commit()
                        break
                async with client.producer(transactional_id="booking") as producer:
                    async with producer.transaction() as transaction:
                        for n in range(12):
                            await transaction.send("orders", b"%d" % n, partition=0)
                        during = await scraped(running)
                    after = await scraped(running)

    assert during.value("ottla_broker_open_transactions") == 1
    assert during.value("ottla_broker_transactional_ids", state="Ongoing") == 1
    assert during.value("ottla_broker_group_members", group="billing") == 1
    assert during.values("ottla_broker_group_state") == {("billing", "Stable"): 1}
    assert during.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert during.value("kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    assert during.value("kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 0
    assert during.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 42
    assert during.value("kafka_log_log_logendoffset", topic="orders") == 42
    assert during.value("ottla_broker_group_lag", group="billing", topic="orders") == 12

    assert after.value("ottla_broker_open_transactions") == 0
    assert after.value("ottla_broker_transactional_ids", state="CompleteCommit") == 1
    assert after.value("kafka_log_log_logendoffset", topic="orders") == 43, "with the marker"
    assert after.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 43
    assert after.value("ottla_broker_group_lag", group="billing", topic="orders") == 13
    size = after.value("kafka_log_log_size", topic="orders")
    assert size == after.value("kafka_server_brokertopicmetrics_bytesin_total", topic="orders") > 0
    assert after.value("kafka_server_brokertopicmetrics_bytesout_total", topic="orders") > 0
    assert after.value("kafka_log_log_size", topic="idle") == 0
    assert after.value("kafka_controller_kafkacontroller_globaltopiccount") == 4, "with the two internal ones"
    assert {each for each in after.names if not each.startswith("process_")} == DECLARED - OF_SHARES


async def test_a_live_consumer_group_is_counted_with_its_state_members_and_lag() -> None:
    async with a_broker() as running:
        running.create_topic("orders", 3, {})
        async with ottla.connect(running.bootstrap) as client, client.producer() as producer:
            for n in range(30):
                await producer.send("orders", b"%d" % n, partition=n % 3)
            async with client.consumer(
                "orders", group="billing", group_protocol="consumer", reset="beginning"
            ) as consumer:
                count = 0
                while count < 30:
                    count += len(await anext(consumer))
                await consumer.commit()
                for n in range(12):
                    await producer.send("orders", b"%d" % n, partition=0)
                during = await scraped(running)
            after = await scraped(running)

    place = {"group": "billing", "topic": "orders"}
    in_state = "kafka_server_group_coordinator_metrics_consumer_group_count"
    nothing = {("Empty",): 0, ("Assigning",): 0, ("Reconciling",): 0, ("Stable",): 0}
    for page, state, members in ((during, "Stable", 1), (after, "Empty", 0)):
        assert page.values("ottla_broker_group_state") == {("billing", state): 1}
        assert page.value("ottla_broker_group_members", group="billing") == members
        assert page.value("ottla_broker_group_lag", **place) == 12
        assert page.values(in_state) == nothing | {(state,): 1}
        assert page.value("kafka_server_group_coordinator_metrics_group_count", protocol="consumer") == 1
        assert page.value("kafka_server_group_coordinator_metrics_group_count", protocol="classic") == 0


async def test_share_groups_of_real_clients_are_counted() -> None:
    async with a_broker() as running:
        running.create_topic("jobs", 2, {})
        async with ottla.connect(running.bootstrap) as client:
            await share_from_the_beginning(client, "workers")
            async with client.producer() as producer:
                for n in range(10):
                    await producer.send("jobs", b"%d" % n, partition=0)
            async with client.share_consumer("jobs", group="workers", max_records=6) as jobs:
                for settle in ("accept", "accept", "accept", "reject", "renew"):
                    record = await anext(jobs)
                    await getattr(record, settle)()
                during = await scraped(running)
                await record.release()
            after = await scraped(running)

    assert during.values("kafka_server_group_coordinator_metrics_group_count") == {
        ("classic",): 0,
        ("consumer",): 0,
        ("share",): 1,
    }
    share_groups = "kafka_server_group_coordinator_metrics_share_group_count"
    assert during.values(share_groups) == {("Empty",): 0, ("Stable",): 1}
    assert after.values(share_groups) == {("Empty",): 1, ("Stable",): 0}
    assert during.values("kafka_server_group_coordinator_metrics_consumer_group_count").keys() == {
        *(("Empty",), ("Assigning",), ("Reconciling",), ("Stable",))
    }
    acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert during.values(acknowledged) == {("Accept",): 3, ("Release",): 0, ("Reject",): 1, ("Renew",): 1}
    assert after.value(acknowledged, acktype="Release") == 1
    place = {"group": "workers", "topic": "jobs"}
    assert 1 <= during.value("kafka_server_sharepartitionmetrics_inflightmessagecount", **place) <= 6
    assert during.value("kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", **place) == 0
    assert during.value("ottla_broker_group_lag", **place) == after.value("ottla_broker_group_lag", **place) == 6
    assert during.value("ottla_broker_group_members", group="workers") == 1
    assert during.names >= OF_SHARES
    assert during.value("kafka_server_sharesessioncache_sharesessionscount") == 1
    assert during.value("kafka_server_sharesessioncache_sharepartitionscount") == 2
    assert after.value("kafka_server_sharesessioncache_sharesessionscount") == 0
    assert after.value("kafka_server_sharesessioncache_sharepartitionscount") == 0


def test_expired_locks_are_counted_until_the_progress_of_the_group_is_deleted(tmp_path: Path) -> None:
    machine = Machine(tmp_path, disk=ModelDisk())
    machine.core.create_topic("t", 1, {})
    topic_id = machine.core.topics.by_name["t"].topic_id
    machine.produce(a_batch(b"a", b"b", b"c"))
    machine.ask(configure(auto_offset_reset="earliest"))
    machine.ask(beat())
    machine.ask(fetch(topic_id))
    machine.ask(acknowledge(topic_id, 1, {0: [(0, 0, [ACCEPT])]}))

    def expired() -> list[float]:
        steps = collect(machine.core, Listener(), Histogram(), Histogram())
        return [each.value for each in steps if each is not None and each.metric is LOCKS_EXPIRED]

    assert expired() == [0]
    machine.pass_time(31.0)
    assert expired() == [2]
    machine.ask(beat(epoch=-1))
    machine.core.share_groups.remove(machine.core.share_groups.by_id["g"])
    assert expired() == []


async def test_requests_errors_and_bytes_are_counted_exactly(tmp_path: Path) -> None:
    batch = a_batch(b"a", b"b")

    def traffic(port: int) -> None:
        with Peer(port) as peer:
            peer.ask(HELLO)
            peer.ask(producing(batch))
            peer.ask(producing(batch))
            peer.ask(producing(batch[:-1]))
            peer.ask(producing(batch, partition=7))
            peer.send(fetching(0))
            peer.frame()
            peer.send(fetching(5))
            peer.frame()

    async with a_broker(data=tmp_path / "data", sync=Sync.ALWAYS) as running:
        running.create_topic("t", 1, {})
        await trio.to_thread.run_sync(traffic, running.port)
        page = await scraped(running)
    requests = page.values("kafka_network_requestmetrics_requests_total")
    assert requests == {("ApiVersions",): 1, ("Produce",): 4, ("Fetch",): 2}
    assert page.values("kafka_network_requestmetrics_totaltimems_count") == requests
    assert page.values("kafka_network_requestmetrics_errors_total") == {
        ("INVALID_RECORD", "Produce"): 1,
        ("UNKNOWN_TOPIC_OR_PARTITION", "Produce"): 1,
        ("OFFSET_OUT_OF_RANGE", "Fetch"): 1,
    }
    assert page.value("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 4
    assert page.value("kafka_server_brokertopicmetrics_bytesin_total", topic="t") == 2 * len(batch)
    assert page.value("kafka_server_brokertopicmetrics_bytesout_total", topic="t") == 2 * len(batch)
    assert page.value("kafka_log_log_size", topic="t") == 2 * len(batch)
    assert page.value("kafka_log_logflushstats_logflushrateandtimems_count", waited="true") == 3, (
        "for the new topic, which the first response waits for, and for the two batches"
    )


async def test_a_fetch_that_waits_counts_its_bytes_once_and_its_wait() -> None:
    batch = a_batch(b"a")

    def traffic(port: int) -> None:
        with Peer(port) as consumer, Peer(port) as producer:
            consumer.send(fetching(0, wait=FAR))
            producer.ask(producing(batch))
            consumer.frame()

    async with a_broker() as running:
        running.create_topic("t", 1, {})
        await trio.to_thread.run_sync(traffic, running.port)
        page = await scraped(running)
    assert page.value("kafka_server_brokertopicmetrics_bytesout_total", topic="t") == len(batch)
    assert page.value("kafka_network_requestmetrics_totaltimems_count", request="Fetch") == 1


async def test_a_damaged_topic_is_counted_as_unserved(tmp_path: Path) -> None:
    async with a_broker(data=tmp_path / "data") as running:
        running.create_topic("kept", 2, {})
    (tmp_path / "data" / "kept-0" / "topic-0.json").write_bytes(b"")
    async with a_broker(data=tmp_path / "data") as running:
        page = await scraped(running)
    assert page.value("ottla_broker_unserved_topics") == 1
    assert page.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 2
    assert page.value("kafka_controller_kafkacontroller_globaltopiccount") == 0


def test_the_series_of_all_topics_does_not_fall_when_a_topic_is_deleted(tmp_path: Path) -> None:
    def totals() -> list[float]:
        steps = collect(machine.core, Listener(), Histogram(), Histogram())
        return [each.value for each in steps if each is not None and each.metric in of_all_topics and not each.labels]

    of_all_topics = (MESSAGES_IN, BYTES_IN, BYTES_OUT)
    machine = Machine(tmp_path, disk=ModelDisk())
    data = a_batch(b"a", b"b")
    for name in ("kept", "deleted"):
        machine.core.create_topic(name, 1, {})
        machine.produce(data, topic=name)
        log = machine.core.topics.partition(name, 0)
        assert log is not None
        log.count_read(10)
    assert totals() == [4, 2 * len(data), 20]
    machine.core.topics.delete(machine.core.topics.by_name["deleted"])
    assert totals() == [4, 2 * len(data), 20]


@pytest.mark.slow
def test_ten_thousand_topics_have_a_bounded_number_of_series(tmp_path: Path) -> None:
    machine = Machine(tmp_path, disk=ModelDisk())
    for n in range(10_000):
        machine.core.create_topic(f"topic-{n}", 1, {})
    for n in (0, 9_998, 9_999):
        machine.produce(a_batch(b"a"), topic=f"topic-{n}")
    steps = list(collect(machine.core, Listener(), Histogram(), Histogram()))
    offsets = {each.labels: each.value for each in steps if each is not None and each.metric is LOG_END_OFFSET}
    assert len(offsets) == MOST_SERIES + 1
    assert offsets["topic-0",] == 1 and offsets[OTHER,] == 2 and sum(offsets.values()) == 3
    sizes = {each.labels: each.value for each in steps if each is not None and each.metric is LOG_SIZE}
    assert sizes[OTHER,] == 2 * len(a_batch(b"a"))
    assert steps.count(None) >= 10_000, "others may run after each partition"
