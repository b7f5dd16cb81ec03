"""A power cut some time after a kill, or after the roll of a segment: by then the disk has the page cache's data."""

import random
import uuid
from pathlib import Path

import pytest

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.storage.data_folder import DataFolder
from tests.brokerlite.machine import a_batch, store, values_of
from tests.brokerlite.model_disk import ModelDisk

DATA = Path("/data")


def opened(disk: ModelDisk) -> tuple[DataFolder, list[Work]]:
    chores: list[Work] = []
    folder = DataFolder(DATA, index_interval_bytes=100, chore=chores.append, disk=disk)
    folder.open(1, "cluster")
    return folder, chores


def log_of(folder: DataFolder) -> PartitionLog:
    (stored,) = (topic for topic in folder.topics() if topic.name == "t")
    settings = LogSettings(segment_bytes=1024)
    return PartitionLog("t", stored.partitions[0].segments, stored.partitions[0].producers, settings)


def work_off(chores: list[Work]) -> None:
    while chores:
        chores.pop(0)()


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_that_a_killed_broker_had_made_is_there_after_a_power_cut(seed: int) -> None:
    disk = ModelDisk(random.Random(seed))
    folder, _ = opened(disk)
    folder.create_topic("t", uuid.UUID(int=7), 1, {"retention.ms": "5"})
    folder.add_partitions("t", 2)
    disk.sync_folder(DATA.parent)  # the parent folder is not the broker's to sync
    disk.crash()
    folder, chores = opened(disk)
    flush = folder.begin_flush()
    work_off(chores)
    flush()
    disk.power_cut()
    folder, _ = opened(disk)
    (topic,) = folder.topics()
    assert (topic.topic_id, len(topic.partitions), topic.configs) == (uuid.UUID(int=7), 2, {"retention.ms": "5"})


@pytest.mark.parametrize("seed", range(20))
def test_the_indexes_of_a_full_segment_are_whole_after_a_power_cut_though_its_log_was_synced_before(seed: int) -> None:
    disk = ModelDisk(random.Random(seed))
    folder, chores = opened(disk)
    folder.create_topic("t", uuid.UUID(int=7), 1, {})
    disk.sync_folder(DATA.parent)
    log = log_of(folder)
    values = [b"%03d" % n + b"." * 100 for n in range(30)]
    for value in values:
        store(log, a_batch(value))
        folder.begin_flush()()
        work_off(chores)
    disk.power_cut()
    folder, _ = opened(disk)
    log = log_of(folder)
    for offset, value in enumerate(values):
        assert values_of(bytes(log.read(offset, 1, at_least_one=True))) == [value]
