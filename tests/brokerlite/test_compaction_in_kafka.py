"""Apache Kafka's cleaner and brokerlite's leave the same batches of the same log."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.brokerlite.machines.partitions.compaction import Cleaner, LastBatch, OffsetMap
from ottla.codec.records import RecordBatch, parse_batch, read_batches
from ottla.codec.stored.checkpoints import parse_offsets
from ottla.codec.stored.indexes import AbortedTxn, parse_entries
from tests.interop.peers import create_topic
from tests.kafka import ApacheKafka, start
from tests.patience import HUNG

pytestmark = pytest.mark.deep

DAY = 24 * 3600 * 1000
TOPIC = "compacted"


@pytest.fixture
def eager_kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """A broker whose cleaner checks five times a second."""
    kafka = start(
        tmp_path / "kafka", 1, {"log.cleaner.backoff.ms": "200", "log.cleaner.min.compaction.lag.ms": str(DAY)}
    )
    yield kafka
    kafka.stop()


def fill(bootstrap: str) -> None:
    """Write some megabytes: values and tombstones, batches of every compression, committed and aborted transactions."""
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": compression,
                "batch.num.messages": 20,
            }
        )
        for i in range(1000):
            value = None if i % 9 == 0 else os.urandom(900)
            producer.produce(TOPIC, value, b"key %d" % (i * 7919 % 500), headers=[("h", b"v")] if i % 5 else None)
            producer.poll(0)
        assert producer.flush(HUNG) == 0
        transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": compression, "linger.ms": 5})
        transactional.init_transactions(30)
        for number in range(4):
            transactional.begin_transaction()
            for i in range(50):
                transactional.produce(TOPIC, os.urandom(900), b"key %d" % (i * 31 % 700))
            # An abort drops unsent records. While Kafka still writes the last commit's markers, it may refuse the new
            # partition. Then the transaction is empty there, and its end is a fatal error in librdkafka.
            assert transactional.flush(HUNG) == 0
            (transactional.abort_transaction if number % 2 else transactional.commit_transaction)(30)


def batches_of(folder: Path) -> list[RecordBatch]:
    return [parse_batch(bytes(batch.data)) for path in segments_of(folder) for batch in read_batches(path.read_bytes())]


def segments_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def compacted(folder: Path, now: int) -> list[RecordBatch]:
    """The batches that brokerlite's cleaner leaves of all segments but the active one."""
    segments = segments_of(folder)
    end = int(segments[-1].stem)
    before = [batch for batch in batches_of(folder) if batch.base_offset < end]
    aborted = [
        each for path in sorted(folder.glob("*.txnindex")) for each in parse_entries(AbortedTxn, path.read_bytes())
    ]
    producers: dict[int, LastBatch] = {}
    for batch in batches_of(folder):
        if batch.producer_id >= 0 and not batch.control:
            producers[batch.producer_id] = LastBatch(batch.last_offset, batch.producer_epoch)
    offsets = OffsetMap(0, aborted)
    assert all(offsets.add(batch) for batch in before)
    cleaner = Cleaner(offsets, aborted=aborted, producers=producers, ends=[end], now=now, delete_retention_ms=DAY)
    left = [parse_batch(data) for batch in before if (data := cleaner.clean(batch))]
    assert not cleaner.unreadable
    return left


def facts(batch: RecordBatch) -> dict[str, Any]:
    """The fields that two cleaners must agree on; a batch without a horizon may have any base timestamp."""
    names = ("base_offset", "last_offset", "count", "attributes", "max_timestamp", "producer_id", "producer_epoch",
             "base_sequence", "partition_leader_epoch")  # fmt: skip
    return {name: getattr(batch, name) for name in names} | {"records": list(batch.records())}


def test_kafkas_cleaner_and_ours_leave_the_same_batches(eager_kafka: ApacheKafka, tmp_path: Path) -> None:
    create_topic(
        eager_kafka.bootstrap,
        TOPIC,
        cleanup_policy="compact",
        segment_bytes=str(2**20),
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms=str(DAY),
    )
    fill(eager_kafka.bootstrap)
    folder = eager_kafka.data() / f"{TOPIC}-0"
    shutil.copytree(folder, tmp_path / "before")
    end = int(segments_of(folder)[-1].stem)
    assert len(segments_of(folder)) > 2
    changed = ConfigResource(
        ResourceType.TOPIC,
        TOPIC,
        incremental_configs=[ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)],
    )
    admin = AdminClient({"bootstrap.servers": eager_kafka.bootstrap})
    for future in admin.incremental_alter_configs([changed]).values():
        future.result(HUNG)
    checkpoint, deadline = eager_kafka.data() / "cleaner-offset-checkpoint", time.monotonic() + HUNG
    while (TOPIC, 0, end) not in (parse_offsets(checkpoint.read_bytes()) if checkpoint.exists() else ()):
        assert time.monotonic() < deadline, "Kafka does not clean"
        time.sleep(0.1)  # a process gives the test no other event to wait on

    theirs = [batch for batch in batches_of(folder) if batch.base_offset < end]
    horizon = next(batch.delete_horizon for batch in theirs if batch.delete_horizon is not None)
    ours = compacted(tmp_path / "before", horizon - DAY)
    assert [facts(batch) for batch in ours] == [facts(batch) for batch in theirs]
    assert [batch.delete_horizon for batch in ours] == [batch.delete_horizon for batch in theirs]
    assert sum(batch.count for batch in ours) < 3000
