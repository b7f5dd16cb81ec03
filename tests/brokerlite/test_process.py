"""The broker as a process of its own: killed, terminated, and checked by Kafka's own tools."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.testing import Broker
from tests.brokerlite.machine import TODAY, Flushes, fetching, idempotent, producing, values_of
from tests.brokerlite.peer import Peer
from tests.interop.peers import create_topic
from tests.kafka import ApacheKafka, free_ports, java
from tests.patience import FAR, HUNG
from tests.scraping import scrape

pytestmark = pytest.mark.slow


@contextmanager
def process(data: Path, port: int, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`ottla broker`, once it listens."""
    where = ["--listen", f"127.0.0.1:{port}", "--data", str(data)]
    command = [sys.executable, "-m", "ottla", "broker", *where, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as broker:
        try:
            deadline = time.monotonic() + HUNG
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert broker.poll() is None and time.monotonic() < deadline, "the broker does not start"
                    time.sleep(0.02)  # a process gives the test no other event to wait on
            yield broker
        finally:
            broker.kill()
            broker.wait()


def test_after_kill_9_a_retry_is_stored_once_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    acknowledged = 0
    for _ in range(3):
        with process(tmp_path / "data", port) as broker, Peer(port) as peer:
            if acknowledged == 0:
                create_topic(f"127.0.0.1:{port}", "t", internal_segment_bytes="20000")
            for sequence in range(max(0, acknowledged - 10), acknowledged, 2):  # the client saw no response to these
                answer = peer.ask(producing(idempotent(sequence, 2)))
                assert answer.responses[0].partition_responses[0].base_offset == sequence
            for _ in range(300):
                answer = peer.ask(producing(idempotent(acknowledged, 2)))
                assert answer.responses[0].partition_responses[0].base_offset == acknowledged
                acknowledged += 2
            for sequence in range(acknowledged, acknowledged + 10, 2):
                peer.send(producing(idempotent(sequence, 2)))  # only some of these arrive
            broker.send_signal(signal.SIGKILL)
            broker.wait()
        acknowledged += 10  # the next round begins by sending these again
    with process(tmp_path / "data", port), Peer(port) as peer:
        values: list[bytes | None] = []
        for sequence in range(acknowledged - 10, acknowledged, 2):
            peer.ask(producing(idempotent(sequence, 2)))
        while len(values) < acknowledged:
            more = values_of(peer.ask(fetching(len(values))).responses[0].partitions[0].records)
            assert more
            values += more
    assert values == [b"%d" % i for i in range(acknowledged)]


def test_under_sigterm_it_ends_in_good_order_and_what_was_stored_stays(tmp_path: Path) -> None:
    port, health = free_ports(2)
    with process(tmp_path / "data", port, "--health", f"127.0.0.1:{health}") as broker, Peer(port) as peer:
        create_topic(f"127.0.0.1:{port}", "t")
        peer.ask(producing(idempotent(0, 5)))
        peer.send(fetching(5, wait=FAR))
        _await_request(f"127.0.0.1:{health}", "Fetch")  # otherwise the signal may arrive before it
        broker.send_signal(signal.SIGTERM)
        said = broker.communicate(timeout=HUNG)[1].decode()
        assert "Traceback" not in said
        assert len(peer.frame()) > 20, "the waiting request is answered"
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with process(tmp_path / "data", port), Peer(port) as peer:
        assert values_of(peer.ask(fetching()).responses[0].partitions[0].records) == [b"%d" % i for i in range(5)]


def _await_request(health: str, request: str) -> None:
    """Return as soon as a broker has begun to handle a request of this kind."""
    deadline = time.monotonic() + HUNG
    while not scrape(health).values("kafka_network_requestmetrics_requests_total").get((request,)):
        assert time.monotonic() < deadline, f"the broker got no {request} request"
        time.sleep(0.02)  # a process gives the test no other event to wait on


def dumped_by_kafka(files: str, *options: str, gaps: bool = False) -> str:
    """The output of DumpLogSegments, which must report no problem except ``gaps`` between offsets."""
    command = java("org.apache.kafka.tools.DumpLogSegments", "--files", files, *options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG)
    # 4.3.1 starts to compare offsets at -1, so it complains of the first record of each segment but the first.
    first = r"\d+" if gaps else "-1"
    start = re.compile(rf"Non-consecutive offsets in .*\n(  (-1|{first}) is followed by \d+\n)+")
    assert (done.returncode, start.sub("", done.stderr)) == (0, "")
    return done.stdout


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafkas_own_tool_finds_nothing_wrong_with_the_folders(tmp_path: Path, end: str) -> None:
    broker = Broker(BrokerConfig(port=0, data=tmp_path / "data", segment_bytes=200_000, sync=Sync.NEVER))
    for topic, compression, stamps in (("plain", "none", "CreateTime"), ("packed", "zstd", "LogAppendTime")):
        broker.create_topic(topic, configs={"message.timestamp.type": stamps})
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 7,
                "compression.type": compression,
            }
        )
        for i in range(6000):
            stamp = TODAY + i * 7919 % 100_000
            producer.produce(topic, os.urandom(100), b"%d" % i, timestamp=stamp, headers=[("h", b"v")])
            producer.poll(0)
        assert producer.flush(HUNG) == 0
    getattr(broker, end)()
    if end == "kill":
        broker.start()
        broker.stop()
    for topic in ("plain", "packed"):
        files = sorted((tmp_path / "data" / f"{topic}-0").iterdir())
        assert len([path for path in files if path.suffix == ".log"]) >= 3
        indexes = ",".join(str(path) for path in files if path.suffix in (".index", ".timeindex"))
        sound = dumped_by_kafka(indexes, "--index-sanity-check")
        assert sound.count("passed sanity check") == indexes.count(",") + 1
        names = ",".join(str(path) for path in files if path.suffix in (".log", ".index", ".timeindex", ".snapshot"))
        dumped = dumped_by_kafka(names, "--deep-iteration")
        assert dumped.count("| offset: ") == 6000
        assert "isvalid: false" not in dumped
        assert dumped.count("producerId: ") > 6000 / 7, "batches, and the producers in the snapshots"


@pytest.mark.deep
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafkas_own_tool_finds_nothing_wrong_with_a_compacted_log(tmp_path: Path, end: str) -> None:
    data = tmp_path / "data"
    broker = Broker(BrokerConfig(port=0, data=data, segment_bytes=50_000, log_cleaner_backoff=0.05))
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
    broker.create_topic("t", configs=configs)
    common = {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 7}
    expected: dict[bytes, bytes] = {}
    for number, compression in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(common | {"enable.idempotence": True, "compression.type": compression})
        for i in range(600):
            key, value = b"key %d" % (i * 7919 % 100), None if i % 9 == 0 else os.urandom(100)
            producer.produce("t", value, key, headers=[("h", b"v")])
            producer.poll(0)
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        assert producer.flush(HUNG) == 0
        producer = Producer(common | {"transactional.id": compression, "compression.type": compression})
        producer.init_transactions(30)
        producer.begin_transaction()
        written = {b"key %d" % i: os.urandom(100) for i in range(0, 150, 10)}
        for key, value in written.items():
            producer.produce("t", value, key)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected |= written
    checkpoint, deadline = data / "cleaner-offset-checkpoint", time.monotonic() + HUNG
    folder = data / "t-0"
    while True:
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        if checkpoint.exists() and f"t 0 {bases[-1]}" in checkpoint.read_text().splitlines():
            break
        assert time.monotonic() < deadline, "the broker does not compact"
        time.sleep(0.05)  # a thread gives the test no other event to wait on
    getattr(broker, end)()
    if end == "kill":
        broker.start()
        broker.stop()
    files = sorted(folder.iterdir())
    indexed = [path for path in files if path.with_suffix(".index").exists()]  # small segments have no index
    indexed = [path for path in indexed if path.suffix in (".index", ".timeindex") and path.stat().st_size]
    sound = dumped_by_kafka(",".join(map(str, indexed)), "--index-sanity-check")
    assert sound.count("passed sanity check") == len(indexed)
    names = ",".join(str(path) for path in files if path.suffix in (".log", ".index", ".snapshot", ".txnindex"))
    dumped = dumped_by_kafka(names, "--deep-iteration", gaps=True)
    assert "isvalid: false" not in dumped and dumped.count("| offset: ") < 1500
    broker.start()
    try:
        assert consumed(broker.bootstrap) == expected
    finally:
        broker.stop()


def consumed(bootstrap: str) -> dict[bytes, bytes]:
    """The table that a read_committed reader builds from the topic ``t``."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    table: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(HUNG)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return table
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        table.pop(key, None)
        if isinstance(value, bytes):
            table[key] = value


def test_a_partition_that_apache_kafka_wrote_is_read_with_all_its_records(kafka: ApacheKafka, tmp_path: Path) -> None:
    create_topic(kafka.bootstrap, "theirs", segment_bytes=str(2**20))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    values = [os.urandom(1500) for _ in range(2000)]
    for value in values:
        producer.produce("theirs", value)
        producer.poll(0)
    assert producer.flush(HUNG) == 0
    shutil.copytree(kafka.data() / "theirs-0", tmp_path / "theirs-0")

    segments = PartitionSegments(tmp_path / "theirs-0", 4096, Flushes())
    producers = segments.open(clean=False, recovery_point=0)
    assert (segments.end_offset, segments.truncated) == (2000, 0)
    (known,) = producers.entries.values()
    assert known.batches[-1].last_offset == 1999
    seen: list[bytes | None] = []
    while len(seen) < 2000:
        seen += values_of(segments.read(len(seen), 2**20, True))
    assert seen == values
    assert len(list((tmp_path / "theirs-0").glob("*.log"))) > 1
