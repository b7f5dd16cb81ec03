"""A kill or a power cut at every single operation on the disk of a broker's folder, which is then opened again."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.storage.data_folder import DataFolder
from tests.brokerlite.machine import a_batch, records_of, store, work_off
from tests.brokerlite.model_disk import Killed, ModelDisk

DATA = Path("/data")
SMALL = LogSettings(segment_bytes=800)
CONFIGS = {"retention.ms": "5"}

Place = tuple[str, int]


class Known(NamedTuple):
    """A topic at the time when its creation was acknowledged."""

    topic_id: uuid.UUID
    partitions: int
    configs: dict[str, str]


class World:
    """A folder, and the state that its users know.

    Attributes:
        topics: the acknowledged topics; `doubtful`: topics whose creation, growth or deletion has an unknown outcome.
        possible: the configurations that a topic may have, besides the acknowledged ones.
        written: the batches given to each partition; the last may not have been acknowledged.
        acknowledged, synced: how many of them were acknowledged and synced.
        starts: the highest possible start offset of each partition; `deleted`: the lowest.
        ids: the producer ids given out.
    """

    def __init__(self, disk: ModelDisk) -> None:
        self.disk = disk
        self.chores: list[Work] = []
        self.topics: dict[str, Known] = {}
        self.synced_topics: dict[str, Known] = {}
        self.doubtful: set[str] = set()
        self.possible: dict[str, list[dict[str, str]]] = {}
        self.written: dict[tuple[uuid.UUID, int], list[bytes]] = {}
        self.acknowledged: dict[tuple[uuid.UUID, int], int] = {}
        self.synced: dict[tuple[uuid.UUID, int], int] = {}
        self.ids: set[int] = set()
        self.starts: dict[tuple[uuid.UUID, int], int] = {}
        self.deleted: dict[tuple[uuid.UUID, int], int] = {}
        self.holed: set[tuple[uuid.UUID, int]] = set()
        self.epoch = -1

    def open(self) -> None:
        self.chores.clear()
        self.folder = DataFolder(DATA, index_interval_bytes=200, chore=self.chores.append, disk=self.disk)
        self.folder.open(1, "cluster")
        self.logs: dict[Place, PartitionLog] = {}
        for topic in self.folder.topics():
            for i, each in enumerate(topic.partitions):
                self.logs[topic.name, i] = PartitionLog(f"{topic.name}-{i}", each.segments, each.producers, SMALL)

    # -- operations of a broker

    def create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        self.doubtful.add(name)
        known = Known(uuid.uuid4(), partitions, configs)
        self.topics.setdefault(name, known)  # for the checks after a kill
        for i in range(partitions):
            self.written[known.topic_id, i] = []
        stored = self.folder.create_topic(name, known.topic_id, partitions, configs)
        for i, each in enumerate(stored.partitions):
            self.logs[name, i] = PartitionLog(f"{name}-{i}", each.segments, each.producers, SMALL)
        self.topics[name] = known
        self.doubtful.discard(name)

    def grow(self, name: str, partitions: int) -> None:
        self.doubtful.add(name)
        known = self.topics[name]
        for i in range(known.partitions, partitions):
            self.written[known.topic_id, i] = []
        for i, each in enumerate(self.folder.add_partitions(name, partitions), known.partitions):
            self.logs[name, i] = PartitionLog(f"{name}-{i}", each.segments, each.producers, SMALL)
        self.topics[name] = known._replace(partitions=partitions)
        self.doubtful.discard(name)

    def configure(self, name: str, configs: dict[str, str]) -> None:
        self.possible.setdefault(name, []).append(configs)
        self.folder.configure_topic(name, configs)
        self.topics[name] = self.topics[name]._replace(configs=configs)

    def delete(self, name: str) -> None:
        self.doubtful.add(name)
        self.folder.delete_topic(name)
        del self.topics[name]
        for place in [place for place in self.logs if place[0] == name]:
            del self.logs[place]

    def append(self, name: str, partition: int, *sizes: int) -> None:
        place = self.topics[name].topic_id, partition
        for size in sizes:
            value = random.Random(len(self.written[place])).randbytes(size)
            self.written[place].append(value)
            store(self.logs[name, partition], a_batch(value))
            self.acknowledged[place] = len(self.written[place])

    def trim(self, name: str, partition: int, offset: int) -> None:
        place = self.topics[name].topic_id, partition
        self.starts[place] = offset
        work_off(self.folder.set_start_offsets({(name, partition): offset}, lambda refused: None))
        self.deleted[place] = offset

    def flush(self, *places: Place) -> None:
        taken = {place: self.logs[place].end_offset for place in places or self.logs}
        topics = dict(self.topics)
        self.folder.begin_flush([self.logs[place].segments for place in places] if places else None)()
        for (name, partition), end in taken.items():
            self.synced[self.topics[name].topic_id, partition] = end
        self.synced_topics = topics
        self.doubtful.clear()
        self.possible.clear()

    def work(self) -> None:
        while self.chores:
            self.chores.pop(0)()

    def reserve(self) -> None:
        first = self.folder.assign_producer_ids(600_000)
        self.ids.update((first, first + 599_999))

    def close(self) -> None:
        self.work()
        self.folder.close()
        self.synced = dict(self.acknowledged)
        self.synced_topics = dict(self.topics)
        self.doubtful.clear()
        self.possible.clear()

    # -- the state that must be there afterwards

    def check(self, synced_only: bool) -> None:
        found = {topic.name: topic for topic in self.folder.topics()}
        sure = self.synced_topics if synced_only else self.topics
        for name, known in sure.items():
            if name in self.doubtful or self.topics.get(name, known).topic_id != known.topic_id:
                continue
            topic = found[name]
            assert topic.topic_id == known.topic_id
            assert topic.configs in [known.configs, *self.possible.get(name, [])]
            assert len(topic.partitions) >= known.partitions
        assert set(found) <= {*self.topics, *self.doubtful}
        for place, log in self.logs.items():
            self.check_log((found[place[0]].topic_id, place[1]), log, synced_only)
        assert self.folder.assign_producer_ids() not in range(max(self.ids, default=-1) + 1)

    def check_log(self, place: tuple[uuid.UUID, int], log: PartitionLog, synced_only: bool) -> None:
        records = [record for batch in log.batches() for record in batch.records() if record.offset >= log.start_offset]
        assert [record.value for record in records] == [self.written[place][record.offset] for record in records]
        if synced_only and all(known.topic_id != place[0] for known in self.synced_topics.values()):
            self.holed.add(place)  # the disk lacked even the topic's name, so it may have lost anything
        if place in self.holed:
            return
        assert [record.offset for record in records] == list(range(log.start_offset, log.end_offset))
        kept = (self.synced if synced_only else self.acknowledged).get(place, 0)
        assert log.end_offset >= kept and log.start_offset <= self.starts.get(place, 0 if kept else log.start_offset)
        assert log.start_offset >= self.deleted.get(place, 0)
        self.starts[place] = log.start_offset
        for offset in range(log.start_offset, log.end_offset):
            first = records_of(log.read(offset, 1, at_least_one=True))[0]
            assert (first.offset, first.value) == (offset, self.written[place][offset])


def history(world: World) -> Iterator[Callable[[], None]]:
    """The operations of a broker, step by step: each kind, next to every other kind."""
    w = world
    yield lambda: w.open()
    yield lambda: w.create("a", 2, {})
    yield lambda: w.append("a", 0, 50, 50, 600, 10, 300, 10)
    yield lambda: w.append("a", 1, 10, 600)
    yield lambda: w.flush(("a", 1))
    yield lambda: w.work()
    yield lambda: w.create("b", 1, CONFIGS)
    yield lambda: w.append("b", 0, 20, 20)
    yield lambda: w.reserve()
    yield lambda: w.flush()
    yield lambda: w.append("a", 0, 10, 200, 200, 200)
    yield lambda: w.append("b", 0, 20)
    yield lambda: w.flush(("a", 0))
    yield lambda: w.trim("a", 0, 5)
    yield lambda: w.work()
    yield lambda: w.trim("a", 1, 1)
    yield lambda: w.grow("a", 4)
    yield lambda: w.configure("a", {"retention.ms": "7"})
    yield lambda: w.append("a", 3, 30)
    yield lambda: w.flush(("a", 3))
    yield lambda: w.delete("b")
    yield lambda: w.append("a", 2, 30)
    yield lambda: w.configure("a", {})
    yield lambda: w.configure("a", {"index.interval.bytes": "100"})
    yield lambda: w.work()
    yield lambda: w.create("b", 2, {})
    yield lambda: w.append("b", 1, 20)
    yield lambda: w.reserve()
    yield lambda: w.flush()
    yield lambda: w.append("b", 1, 20)
    yield lambda: w.close()
    yield lambda: w.open()
    yield lambda: w.configure("b", CONFIGS)
    yield lambda: w.append("a", 0, 5, 500)
    yield lambda: w.work()
    yield lambda: w.delete("a")
    yield lambda: w.work()
    yield lambda: w.append("b", 0, 10)


def run(disk: ModelDisk) -> World:
    world = World(disk)
    with suppress(Killed):
        for step in history(world):
            step()
    return world


@pytest.fixture(autouse=True)
def checkpoints_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.brokerlite.storage.folder_flushes.CHECKPOINT_BYTES", 1000)
    monkeypatch.setattr("ottla.brokerlite.storage.partition_segments._LEAST_CHECKPOINT", 100)


def operations() -> int:
    return run(ModelDisk()).disk.operations


def reopened(world: World, rng: random.Random, end: str) -> None:
    """Open the folder again, which a kill may interrupt, too; write, close, and open it one more time."""
    getattr(world.disk, end)()
    if rng.random() < 0.5:
        world.disk.kill_at = world.disk.operations + rng.randint(1, 40)
        with suppress(Killed):
            world.open()
            world.work()
        getattr(world.disk, end)()
    world.open()
    world.check(end == "power_cut")
    for (name, partition), log in world.logs.items():
        topic_id = next(topic.topic_id for topic in world.folder.topics() if topic.name == name)
        world.topics[name] = Known(topic_id, 0, {})
        del world.written[topic_id, partition][log.end_offset :]
        world.append(name, partition, 70)
    world.folder.close()
    world.open()
    world.synced = dict(world.acknowledged)
    for (name, partition), log in world.logs.items():
        world.check_log((world.topics[name].topic_id, partition), log, False)


def killed_at(at: int, seed: int, end: str, ordered: bool) -> None:
    rng = random.Random(seed * 10_000 + at)
    disk = ModelDisk(rng, ordered=ordered)
    disk.kill_at = at
    try:
        reopened(run(disk), rng, end)
    except BaseException as error:
        error.add_note(f"killed at operation {at}")
        raise


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True], ids=["as POSIX allows", "as ext4 does"])
@pytest.mark.parametrize("end", ["crash", "power_cut"])
def test_what_was_acknowledged_is_there_after_a_kill_and_what_was_synced_after_a_power_cut(
    end: str, ordered: bool
) -> None:
    """At one in ten of the operations; the slow test below covers the others."""
    for at in range(1, operations() + 2, 10):
        killed_at(at, 0, end, ordered)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("end", ["crash", "power_cut"])
def test_it_is_there_whichever_operation_it_was(end: str, seed: int) -> None:
    for at in range(1, operations() + 2):
        killed_at(at, seed, end, ordered=seed % 2 == 1)
