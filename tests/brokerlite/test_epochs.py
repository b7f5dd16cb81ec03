"""Leader epochs: the broker raises them where a log may have lost acknowledged records, and readers learn of it."""

import os
from pathlib import Path
from typing import Literal

import pytest
import trio

import ottla
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.machines.partitions.leader_epochs import LeaderEpochs
from ottla.codec.apis.fetch import FetchPartition, PartitionData
from ottla.codec.apis.list_offsets import EARLIEST, LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.codec.records import read_batches
from ottla.codec.stored.checkpoints import LeaderEpoch
from ottla.errors import FencedLeaderEpoch, LogTruncated, OffsetOutOfRange, UnknownLeaderEpoch
from ottla.testing import Broker
from tests.brokerlite.machine import Machine, a_batch, fetching, idempotent, producing
from tests.patience import HUNG

# -- the rules


def test_an_epoch_begins_where_the_log_ends_and_an_empty_one_is_forgotten() -> None:
    epochs = LeaderEpochs([LeaderEpoch(0, 0), LeaderEpoch(2, 100), LeaderEpoch(5, 300)])
    epochs.begin(6, 200)
    assert epochs.entries == [(0, 0), (2, 100), (6, 200)]
    epochs.begin(7, 200)
    assert epochs.entries == [(0, 0), (2, 100), (7, 200)] and epochs.current == 7
    assert [epochs.at(offset) for offset in (0, 99, 100, 199, 200, 999)] == [0, 0, 2, 2, 7, 7]


@pytest.mark.parametrize(
    ("epoch", "end"), [(-1, (-1, -1)), (1, (1, 10)), (2, (2, 100)), (4, (2, 100)), (5, (5, 130)), (6, (-1, -1))]
)
def test_an_epoch_ends_where_the_next_begins(epoch: int, end: tuple[int, int]) -> None:
    assert LeaderEpochs([LeaderEpoch(2, 10), LeaderEpoch(5, 100)]).end_of(epoch, 130) == end


# -- restarts


def epochs_told(machine: Machine) -> tuple[int, int, int, int]:
    """The leader epoch in Metadata, in ListOffsets (both ends), and in OffsetForLeaderEpoch (for a known epoch)."""
    (topic,) = (each for each in machine.ask(MetadataRequest(topics=None)).topics if each.name == "t")
    ends = []
    for timestamp in (EARLIEST, LATEST):
        each = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(each,)),))
        ends.append(machine.ask(request).topics[0].partitions[0].leader_epoch)
    current = topic.partitions[0].leader_epoch
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=current)
    end = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="t", partitions=(asked,)),))
    return current, ends[0], ends[1], machine.ask(end, 4).topics[0].partitions[0].leader_epoch


def test_the_epoch_is_raised_after_a_crash_and_only_then(machine: Machine) -> None:
    machine.produce(a_batch(b"a", b"b"))
    assert epochs_told(machine) == (0, 0, 0, 0)
    for clean, epoch in ((True, 0), (False, 1), (True, 1), (False, 2), (False, 3)):
        machine = machine.restart(clean=clean)
        assert epochs_told(machine) == (epoch, 0, epoch, epoch)
    machine.produce(a_batch(b"c"))
    machine.core.create_topic("new", 1, {})
    machine.produce(a_batch(b"d"), topic="new")
    machine = machine.restart()
    for topic, epochs in (("t", [0, 3]), ("new", [3])):
        batches = read_batches(bytes(machine.log(topic).read(0, 2**20)))
        assert [batch.partition_leader_epoch for batch in batches] == epochs
    data = machine.folder.path
    assert (data / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 2\n"
    assert (data / "new-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"
    machine.folder.abandon()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("text", [None, "", "0\n2\n0 0\n", "rubbish", "0\n1\n0 0\n"])
def test_epochs_that_the_file_has_lost_are_found_in_the_log(machine: Machine, text: str | None, clean: bool) -> None:
    machine.produce(a_batch(b"a", b"b"))
    machine = machine.restart(clean=False)
    machine.produce(a_batch(b"c"))
    (machine.folder.close if clean else machine.folder.abandon)()
    path = machine.folder.path / "t-0" / "leader-epoch-checkpoint"
    if text is None:
        path.unlink()
    elif not (clean and text == "0\n1\n0 0\n"):  # this file is whole, and the disk has it after a clean shutdown
        path.write_text(text)
    machine = Machine(machine.folder.path)
    assert machine.log().epochs.entries == [(0, 0), (1, 2)] + ([] if clean else [(2, 3)])
    machine.folder.abandon()


def test_a_folder_from_before_epochs_gets_them(machine: Machine) -> None:
    for _ in range(2):
        machine = machine.restart(clean=False)
    machine.folder.close()
    state = machine.folder.path / "broker.json"
    state.write_text(state.read_text().replace(' "leader_epoch": 2,\n', ""))
    machine = Machine(machine.folder.path)
    assert epochs_told(machine)[0] == 2, "a partition's file still has the epoch"
    machine.folder.abandon()


def test_a_partition_whose_folder_is_gone_begins_in_an_epoch_of_its_own(machine: Machine) -> None:
    machine.produce(a_batch(b"a"), partition=1)
    machine.folder.close()
    (machine.folder.path / "t-1").rename(machine.folder.path.parent / "elsewhere")
    machine = Machine(machine.folder.path)
    assert machine.log("t", 1).epochs.entries == [(1, 1)], "no offset is given twice"
    machine.folder.abandon()


def test_an_idempotent_producer_goes_on_in_the_next_epoch(machine: Machine) -> None:
    machine.produce(idempotent(0, 3))
    machine = machine.restart(clean=False)
    answer = machine.ask(producing(idempotent(0, 3))).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    machine.produce(idempotent(3))
    assert machine.log().end_offset == 4
    machine.folder.abandon()


# -- responses to readers


def fetched(machine: Machine, offset: int, *, known: int = -1, last: int = -1) -> PartitionData:
    request = fetching(offset, wait=0)
    request.topics[0].partitions = (
        FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=2**20,
            current_leader_epoch=known,
            last_fetched_epoch=last,
        ),
    )
    data: PartitionData = machine.ask(request, 12).responses[0].partitions[0]
    return data


@pytest.fixture
def truncated(machine: Machine) -> Machine:
    """After a power cut: 6 of the 10 records of epoch 0 are left, and 5 records of epoch 1 follow."""
    machine.produce(a_batch(*[b"old"] * 6), a_batch(*[b"lost"] * 4))
    machine.folder.abandon()
    path = machine.folder.path / "t-0" / f"{0:020}.log"
    os.truncate(path, len(a_batch(*[b"old"] * 6)))
    machine = Machine(machine.folder.path)
    machine.produce(a_batch(*[b"new"] * 5))
    return machine


@pytest.mark.parametrize(
    ("known", "error"), [(-1, 0), (0, FencedLeaderEpoch.code), (1, 0), (2, UnknownLeaderEpoch.code)]
)
def test_a_request_with_another_leader_epoch_gets_an_error(truncated: Machine, known: int, error: int) -> None:
    assert fetched(truncated, 0, known=known).error_code == error


@pytest.mark.parametrize(
    ("offset", "last", "told"),
    [(6, 0, None), (3, 0, None), (9, 0, (0, 6)), (10, 0, (0, 6)), (8, 1, None), (11, 1, None), (8, -1, None)],
)
def test_a_reader_of_lost_records_learns_up_to_which_offset_its_log_is_valid(
    truncated: Machine, offset: int, last: int, told: tuple[int, int] | None
) -> None:
    answer = fetched(truncated, offset, known=1, last=last)
    diverging = answer.diverging_epoch
    assert answer.error_code == 0
    assert (diverging.epoch, diverging.end_offset) == (told or (-1, -1))
    assert bool(answer.records) == (told is None and offset < 11)


def test_a_reader_from_an_epoch_that_never_was_is_out_of_range(truncated: Machine) -> None:
    assert fetched(truncated, 6, last=7).error_code == OffsetOutOfRange.code


# -- whole clients


def a_broker(path: Path) -> Broker:
    return Broker(BrokerConfig(port=0, data=path / "data", sync=Sync.NEVER))


async def produced(bootstrap: str, count: int, value: bytes) -> None:
    async with ottla.connect(bootstrap) as client, client.producer() as producer:
        for i in range(count):
            await producer.send("t", value + b"%d" % i)


Seen = list[tuple[int, bytes | None]]


async def consumed(bootstrap: str, count: int, reset: Literal["beginning", "error"] = "error") -> Seen:
    """The offsets and values that a member of a group reads from its committed offset on."""
    seen: Seen = []
    with trio.fail_after(HUNG):
        async with ottla.connect(bootstrap) as client, client.consumer("t", group="g", reset=reset) as consumer:
            async for batch in consumer:
                seen += [(record.offset, record.value) for record in batch]
                await batch.commit()
                if len(seen) >= count:
                    return seen
    return seen


def test_a_group_that_committed_behind_what_a_power_cut_took_skips_nothing_silently(tmp_path: Path) -> None:
    broker = a_broker(tmp_path)
    broker.create_topic("t")
    trio.run(produced, broker.bootstrap, 10, b"old")
    path = broker.data / "t-0" / f"{0:020}.log"
    size = path.stat().st_size
    trio.run(produced, broker.bootstrap, 10, b"lost")
    assert len(trio.run(consumed, broker.bootstrap, 20)) == 20
    broker.kill()
    os.truncate(path, size)
    broker.start()
    trio.run(produced, broker.bootstrap, 15, b"new")
    with pytest.raises(LogTruncated) as raised:
        trio.run(consumed, broker.bootstrap, 1)
    assert "10" in str(raised.value)
    seen = trio.run(lambda: consumed(broker.bootstrap, 15, reset="beginning"))
    broker.stop()
    assert seen == [(10 + i, b"new%d" % i) for i in range(15)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_clean_restart_does_not_disturb_clients(tmp_path: Path, end: str) -> None:
    broker = a_broker(tmp_path)
    broker.create_topic("t")

    async def run() -> list[bytes | None]:
        seen: list[bytes | None] = []
        with trio.fail_after(HUNG):
            async with (
                ottla.connect(broker.bootstrap) as client,
                client.producer() as producer,
                client.consumer("t", group="g") as consumer,
            ):
                for i in range(30):
                    await producer.send("t", b"%d" % i)
                    while len(seen) <= i:
                        batch = await anext(consumer)
                        seen += [record.value for record in batch]
                        await batch.commit()
                    if i % 10 == 9:
                        await trio.to_thread.run_sync(getattr(broker, end))
                        await trio.to_thread.run_sync(broker.start)
        return seen

    assert trio.run(run) == [b"%d" % i for i in range(30)]
    broker.stop()
