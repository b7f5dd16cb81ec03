"""Share consumers of others with brokerlite: they share partitions, give records back, and die; brokers are killed."""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.brokerlite.running import BrokerProcess
from tests.brokerlite.sharing import configure, describe, progress
from tests.brokerlite.test_process import dumped_by_kafka
from tests.interop.peers import Running, create_topic
from tests.interop.programs import java_classes
from tests.kafka import java, run
from tests.patience import HUNG

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = BrokerConfig(
        port=0,
        data=tmp_path / "data",
        sync=Sync.NEVER,
        group_initial_rebalance_delay=0,
        group_share_heartbeat_interval=0.3,
    )
    with Broker(config) as running:
        yield running


def ask(bootstrap: str, request: Any) -> Any:
    host, _, port = bootstrap.rpartition(":")
    with Peer(int(port), host) as peer:
        return peer.ask(request)


def filled(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    """Create a topic with records 0 to ``count`` - 1, and a group ``g`` that reads it from the beginning."""
    create_topic(bootstrap, topic, partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, key=b"%d" % number, value=b"%d" % number)
    assert producer.flush(HUNG) == 0
    assert ask(bootstrap, configure(auto_offset_reset="earliest")).responses[0].error_code == 0


def joined(bootstrap: str, topic: str, **settings: str) -> confluent_kafka.ShareConsumer:
    consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "g", **settings})
    consumer.subscribe([topic])
    return consumer


EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def share(
    consumers: Iterable[confluent_kafka.ShareConsumer],
    decide: Callable[[int, int, int], AcknowledgeType],
    done: Callable[[], bool],
) -> None:
    """Let consumers take turns until ``done``; ``decide`` gets a consumer's number, an offset and a delivery count."""
    deadline = time.monotonic() + HUNG
    while not done():
        assert time.monotonic() < deadline, "the records do not come"
        for number, consumer in enumerate(consumers):
            messages = consumer.poll(0.2)
            for message in messages:
                assert message.error() is None, message.error()
                offset, count = message.offset(), message.delivery_count()
                assert offset is not None and count is not None
                consumer.acknowledge(message, decide(number, offset, count))
            if messages:
                failed = {str(place): each for place, each in (consumer.commit_sync() or {}).items() if each}
                assert not failed, failed


def test_two_consumers_share_a_partition_and_every_record_ends_once(broker: Broker) -> None:
    filled(broker.bootstrap, "t", 400)
    consumers = [joined(broker.bootstrap, "t", **EXPLICIT) for _ in range(2)]
    ended: Counter[int] = Counter()
    readers: dict[int, set[int]] = {0: set(), 1: set()}

    def decide(number: int, offset: int, count: int) -> AcknowledgeType:
        readers[number].add(offset)
        if offset % 4 == 0 and count == 1:
            return AcknowledgeType.RELEASE
        ended[offset] += 1
        return AcknowledgeType.REJECT if offset % 5 == 0 else AcknowledgeType.ACCEPT

    share(consumers, decide, lambda: len(ended) == 400)
    for consumer in consumers:
        consumer.close()
    assert set(ended.values()) == {1} and readers[0] and len(ended) == 400
    assert progress(ask(broker.bootstrap, describe())) == {("t", 0): (400, 0)}


def test_a_record_that_everyone_gives_back_is_archived_after_the_limit(broker: Broker) -> None:
    filled(broker.bootstrap, "t", 3)
    consumer = joined(broker.bootstrap, "t", **EXPLICIT)
    counts: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def decide(_: int, offset: int, count: int) -> AcknowledgeType:
        counts[offset].append(count)
        return AcknowledgeType.RELEASE

    share([consumer], decide, lambda: all(each and each[-1] == 5 for each in counts.values()))
    consumer.close()
    assert all(each == [1, 2, 3, 4, 5] for each in counts.values())
    assert progress(ask(broker.bootstrap, describe())) == {("t", 0): (3, 0)}


class Hoarder(Running):
    """A share consumer that acquires records and keeps them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.taken: list[int] = []
        super().__init__([sys.executable, "-m", "tests.interop.librdkafka_share", bootstrap, topic, "g"])

    def heard(self, line: str) -> None:
        self.taken.append(int(line.split()[0]))


def test_the_records_of_a_killed_member_come_again_to_others(broker: Broker) -> None:
    filled(broker.bootstrap, "t", 100)
    with Hoarder(broker.bootstrap, "t") as hoarder:
        deadline = time.monotonic() + HUNG
        while not hoarder.taken:
            assert time.monotonic() < deadline, hoarder.said()
            time.sleep(0.05)
        hoarder.kill()
    consumer = joined(broker.bootstrap, "t", **EXPLICIT)
    seen: dict[int, int] = {}

    def decide(_: int, offset: int, count: int) -> AcknowledgeType:
        seen[offset] = count
        return AcknowledgeType.ACCEPT

    share([consumer], decide, lambda: len(seen) == 100)
    consumer.close()
    assert {seen[offset] for offset in hoarder.taken} == {2}, "its lock lasts 30 seconds, but its connection is gone"


class Sharing(Running):
    """Java's share consumer, which releases each record at its first delivery, and accepts it at the second."""

    def __init__(self, *arguments: str) -> None:
        self.values: list[bytes] = []
        super().__init__(java("Share", *arguments, classes=java_classes()))

    def heard(self, line: str) -> None:
        kind, _, rest = line.partition("\t")
        if kind == "accepted":
            self.values.append(bytes.fromhex(rest))


def test_javas_share_consumer_releases_and_accepts_every_record(broker: Broker) -> None:
    filled(broker.bootstrap, "t", 60, partitions=3)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", **EXPLICIT}
    with Sharing("t", "60", *(f"{key}={value}" for key, value in settings.items())) as consumer:
        consumer.close()
    assert sorted(map(int, consumer.values)) == list(range(60))
    assert {lag for _, lag in progress(ask(broker.bootstrap, describe())).values()} == {0}


def test_a_broker_that_is_killed_delivers_nothing_again_that_was_accepted_and_everything_else(tmp_path: Path) -> None:
    settings = tmp_path / "broker.properties"
    settings.write_text("group.share.heartbeat.interval.ms=300\n")
    broker = BrokerProcess(tmp_path / "data", "--config", str(settings))
    try:
        filled(broker.bootstrap, "t", 300)
        consumer = joined(broker.bootstrap, "t", **EXPLICIT, **{"max.poll.records": "40"})
        accepted: Counter[int] = Counter()

        def decide(_: int, offset: int, count: int) -> AcknowledgeType:
            accepted[offset] += 1
            return AcknowledgeType.ACCEPT

        share([consumer], decide, lambda: len(accepted) >= 100)
        before = len(accepted)
        broker.kill()
        broker.revive()
        again = joined(broker.bootstrap, "t", **EXPLICIT)
        share([again], decide, lambda: len(accepted) == 300)
        consumer.close()
        again.close()
        assert before >= 100 and set(accepted.values()) == {1}
        assert progress(ask(broker.bootstrap, describe())) == {("t", 0): (300, 0)}
    finally:
        broker.stop()


def test_kafkas_own_tools_configure_describe_reset_and_delete_a_group(broker: Broker) -> None:
    filled(broker.bootstrap, "t", 10)
    at = ("--bootstrap-server", broker.bootstrap)
    group = ("--group", "g")
    tool = partial(run, "org.apache.kafka.tools.consumer.group.ShareGroupCommand", *at)
    configs = partial(run, "kafka.admin.ConfigCommand", *at)
    configs("--alter", "--entity-type", "groups", "--entity-name", "g", "--add-config", "share.delivery.count.limit=3")
    assert "share.delivery.count.limit=3" in configs("--describe", "--entity-type", "groups", "--entity-name", "g")
    consumer = joined(broker.bootstrap, "t", **EXPLICIT)
    accepted: set[int] = set()

    def decide(_: int, offset: int, count: int) -> AcknowledgeType:
        accepted.add(offset)
        return AcknowledgeType.ACCEPT

    share([consumer], decide, lambda: len(accepted) == 10)
    assert "g" in tool("--list") and "Stable" in tool("--describe", *group, "--state")
    assert "t:0" in tool("--describe", *group, "--members", "--verbose")
    consumer.close()
    assert re.search(r"^g +t +0 +10 +0", tool("--describe", *group, "--offsets"), re.MULTILINE)
    reset = ("--reset-offsets", *group, "--topic", "t", "--to-earliest", "--execute")
    assert re.search(r"^g? *t +0 +0", tool(*reset), re.MULTILINE)
    assert re.search(r"^g +t +0 +0 +10", tool("--describe", *group, "--offsets"), re.MULTILINE)
    assert "success" in tool("--delete-offsets", *group, "--topic", "t").lower()
    assert "success" in tool("--delete", *group).lower()


def test_kafkas_own_tool_reads_the_stored_state(tmp_path: Path) -> None:
    config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, group_share_heartbeat_interval=0.3)
    with Broker(config) as broker:
        filled(broker.bootstrap, "t", 20)
        consumer = joined(broker.bootstrap, "t", **EXPLICIT)
        accepted: set[int] = set()

        def decide(_: int, offset: int, count: int) -> AcknowledgeType:
            if offset % 2 and count == 1:
                return AcknowledgeType.RELEASE
            accepted.add(offset)
            return AcknowledgeType.ACCEPT

        share([consumer], decide, lambda: len(accepted) == 20)
        consumer.close()
    (state,) = (tmp_path / "data").glob("**/__share_group_state-0/*.log")
    dumped = dumped_by_kafka(str(state), "--share-group-state-decoder")
    assert '"snapshotEpoch":0' in dumped and '"startOffset":20,"deliveryCompleteCount":0' in dumped
    (groups,) = (tmp_path / "data").glob("**/__consumer_offsets-0/*.log")
    assert '"g"' in dumped_by_kafka(str(groups), "--offsets-decoder")
