"""Damaged bytes in the data folder: whole records survive, damaged ones are never returned, and the log names each."""

import logging
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.brokerlite.machines.partitions.compaction import Round
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.records import read_batches
from ottla.errors import CorruptMessage, DecodeError
from tests.brokerlite.machine import TODAY, Machine, a_batch, fetching, idempotent, values_of, work_off
from tests.brokerlite.test_group_log import commit, offsets
from tests.brokerlite.test_storage import OnePartition

COUNT, MANY, PER_BATCH = 40, 50, 3
SIZE = len(idempotent(100, PER_BATCH))
LAST = COUNT - 1

DAMAGES = {
    "base offset": (0, struct.pack(">q", 5000)),
    "base offset before": (0, struct.pack(">q", 1)),
    "length too large": (8, struct.pack(">i", 2**30)),
    "length of some batches": (8, struct.pack(">i", SIZE * 2 + 50)),
    "length too small": (8, struct.pack(">i", 60)),
    "length negative": (8, struct.pack(">i", -1)),
    "magic": (16, b"\1"),
    "last offset": (23, b"\0\0\1\0"),
    "value": (SIZE - 2, b"\0"),
    "zeros": (0, bytes(SIZE)),
    "noise": (0, b"\xa5\2" * (SIZE // 2)),
}


def damage(path: Path, batch: int, what: str) -> bytes:
    """Damage one of the batches, and return the whole file."""
    at, data = DAMAGES[what]
    whole = bytearray(path.read_bytes())
    whole[batch * SIZE + at : batch * SIZE + at + len(data)] = data
    path.write_bytes(whole)
    return bytes(whole)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OnePartition]:
    """A partition of one segment, its batches of the same size."""
    one = OnePartition(tmp_path / "t-0", interval=5 * SIZE)
    one.log.settings = one.settings = type(one.settings)()
    one.append(*(idempotent(100 + i * PER_BATCH, PER_BATCH) for i in range(COUNT)))
    yield one
    one.disk.close()


def log_path(one: OnePartition) -> Path:
    return one.folder / f"{0:020}.log"


def readable(one: OnePartition) -> set[int]:
    """The offsets at which a reader gets its record."""
    found = set()
    for offset in range(one.log.end_offset):
        try:
            records = one.log.read(offset, SIZE, at_least_one=True)
            batch = next(read_batches(bytes(records)))
            assert batch.base_offset <= offset <= batch.last_offset
            found.add(offset)
        except (CorruptMessage, DecodeError):
            continue
    return found


def all_but(*batches: int) -> set[int]:
    return {i * PER_BATCH + j for i in range(COUNT) if i not in batches for j in range(PER_BATCH)}


# -- after a clean shutdown


@pytest.mark.slow
@pytest.mark.parametrize("indexes", [True, False])
@pytest.mark.parametrize("batch", [0, 7, 20, LAST - 1, LAST])
@pytest.mark.parametrize("what", DAMAGES)
def test_damage_cuts_no_log_and_whole_batches_are_served(
    one: OnePartition, what: str, batch: int, indexes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one.close()
    data = damage(log_path(one), batch, what)
    if not indexes:
        for path in (*one.folder.glob("*.index"), *one.folder.glob("*.timeindex")):
            path.unlink()
    end = COUNT * PER_BATCH
    for _ in range(2):
        one.reopen(clean=True, recovery_point=end)
        assert one.log.end_offset == end
        assert readable(one) == all_but(batch)
        assert log_path(one).read_bytes() == data and one.segments.truncated == 0
        one.close()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert readable(one) == all_but(batch)
    if what != "value" or batch == LAST or not indexes:  # otherwise only readers compare its CRC
        assert any(f"t-0 is damaged: offset {batch * PER_BATCH} cannot be read" in each for each in told)
    one.reopen(clean=True, recovery_point=end)
    one.append(a_batch(b"next"))
    assert one.log.end_offset == end + 1, "no offset is given twice"
    one.reopen(clean=False, recovery_point=end)
    assert one.log.end_offset == end + 1 and readable(one) == all_but(batch) | {end}, "and so it is after a crash"


def test_records_missing_at_the_end_are_logged_and_their_offsets_not_given_again(
    one: OnePartition, caplog: pytest.LogCaptureFixture
) -> None:
    one.close()
    log_path(one).write_bytes(log_path(one).read_bytes()[: 30 * SIZE])
    one.reopen(clean=True, recovery_point=COUNT * PER_BATCH)
    assert "t-0 has lost the records from offset 90 to 119" in caplog.text
    one.append(a_batch(b"next"))
    assert one.log.end_offset == COUNT * PER_BATCH + 1
    assert readable(one) == all_but(*range(30, COUNT)) | {COUNT * PER_BATCH}
    with pytest.raises(CorruptMessage, match=r"t-0 is damaged on the broker.s disk at offset 91"):
        one.log.read(91, 100)


# -- whole segments


def remains(one: OnePartition) -> tuple[set[int], set[int]]:
    """The offsets that can be read, and the offsets that are refused."""
    got, refused, offset = set[int](), set[int](), one.log.start_offset
    while offset < one.log.end_offset:
        try:
            batch = next(read_batches(bytes(one.log.read(offset, 1, at_least_one=True))))
        except CorruptMessage:
            refused.add(offset)
            offset += 1
        else:
            got |= set(range(offset, batch.next_offset))
            offset = batch.next_offset
    return got, refused


@pytest.fixture
def segmented(tmp_path: Path) -> OnePartition:
    """A partition of several segments, after a clean shutdown."""
    one = OnePartition(tmp_path / "t-0", settings=LogSettings(segment_bytes=1000))
    one.append(*(idempotent(100 + i * PER_BATCH, PER_BATCH) for i in range(MANY)))
    one.close()
    return one


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("how", ["cut", "empty", "gone"])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_records_of_a_segment_that_is_cut_empty_or_gone_are_refused_and_logged(
    segmented: OnePartition, which: int, how: str, synced: bool, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one, end = segmented, MANY * PER_BATCH
    bases = [int(name[:20]) for name in one.files(".log")]
    path = one.folder / f"{bases[which]:020}.log"
    first, behind = bases[which], [*bases, end][bases.index(bases[which]) + 1]
    if how == "cut":
        path.write_bytes(path.read_bytes()[:SIZE])
        first += PER_BATCH
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    if not (clean or synced) and which in (-1, 0):
        return  # without syncs a power cut explains a missing end, and a missing first segment
    for _ in range(2):
        caplog.clear()
        one.reopen(clean=clean, recovery_point=end, start_offset=0, synced=synced or which == 0)
        assert remains(one) == (set(range(end)) - set(range(first, behind)), set(range(first, behind)))
        assert f"t-0 has lost the records from offset {first} to {behind - 1}: " in caplog.text
        one.close()
    one.append(a_batch(b"next"))
    assert one.log.end_offset == end + 1, "no offset is given twice"


def test_a_log_whose_first_records_were_deleted_has_lost_nothing(
    segmented: OnePartition, caplog: pytest.LogCaptureFixture
) -> None:
    one, end = segmented, MANY * PER_BATCH
    one.reopen(clean=True, recovery_point=end, start_offset=0, synced=True)
    bases = [int(name[:20]) for name in one.files(".log")]
    for start, known in ((bases[1], bases[1]), (bases[2] + 1, bases[2] + 1), (bases[3], None)):
        one.segments.remove(one.segments.set_start_offset(start))
        one.close()
        one.reopen(clean=True, recovery_point=end, start_offset=known, synced=True)
        assert remains(one) == (set(range(start, end)), set())
    assert not caplog.records


def test_a_missing_first_segment_is_refused_from_the_start_offset_on(
    segmented: OnePartition, caplog: pytest.LogCaptureFixture
) -> None:
    one, end = segmented, MANY * PER_BATCH
    bases = [int(name[:20]) for name in one.files(".log")]
    for base in bases[:2]:
        (one.folder / f"{base:020}.log").unlink()
    start = bases[1] + 5
    one.reopen(clean=True, recovery_point=end, start_offset=start, synced=True)
    assert one.log.start_offset == start
    assert remains(one) == (set(range(bases[2], end)), set(range(start, bases[2])))
    gone = one.segments.set_start_offset(bases[2])
    one.segments.remove(gone)
    assert gone and remains(one) == (set(range(bases[2], end)), set()), "it ends when the records are deleted"


def test_compaction_leaves_segments_with_a_loss_as_they_are(segmented: OnePartition) -> None:
    one, end = segmented, MANY * PER_BATCH
    (one.folder / sorted(one.files(".log"))[1]).write_bytes(b"")
    one.settings = LogSettings(segment_bytes=4096, compacted=True, delete=False)
    one.reopen(clean=True, recovery_point=end, start_offset=0, synced=True)
    before = remains(one)
    due = Round(first_dirty_offset=0, end_offset=one.segments.active.base_offset, ratio=1.0)
    work_off(one.segments.compact(due, one.settings, {}, TODAY).job())
    assert before[1] and remains(one)[1] == before[1]


# -- while the broker runs


def test_a_broker_finds_its_end_behind_damage_by_itself(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.produce(*(idempotent(10 + i) for i in range(5)))
    machine.folder.close()
    path = machine.folder.path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[4 * len(data) // 5 + 16] = 9
    path.write_bytes(data)
    machine = Machine(machine.folder.path)
    assert "t-0 is damaged: offset 4 cannot be read" in caplog.text
    machine.produce(a_batch(b"next"))
    assert machine.log().end_offset == 6
    caplog.clear()
    for _ in range(3):
        answer = machine.ask(fetching(4, wait=0)).responses[0].partitions[0]
        assert (answer.error_code, answer.records) == (CorruptMessage.code, b"")
    assert machine.ask(fetching(5, wait=0)).responses[0].partitions[0].error_code == 0
    assert "damaged" not in caplog.text, "the log names it once, at the start"
    machine.folder.abandon()


def test_damage_while_the_broker_runs_is_logged_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.produce(*(idempotent(10 + i) for i in range(5)))
    path = machine.folder.path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[2 * len(data) // 5 + 16] = 9
    with path.open("r+b") as file:
        file.write(data)
    for offset, error in ((1, 0), (2, 2), (3, 0), (2, 2)):
        assert machine.ask(fetching(offset, wait=0)).responses[0].partitions[0].error_code == error
    assert caplog.text.count("t-0 is damaged: offset 2 cannot be read") == 1 and str(path) in caplog.text


def test_a_damaged_batch_is_left_out_when_a_time_is_looked_for(machine: Machine) -> None:
    machine.produce(a_batch(b"a", timestamp=1000), a_batch(b"b", timestamp=2000), a_batch(b"c", timestamp=3000))
    path = machine.folder.path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[2 * len(data) // 3 - 1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    each = ListOffsetsPartition(partition_index=0, timestamp=1500)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(each,)),))
    answer = machine.ask(request).topics[0].partitions[0]
    assert (answer.error_code, answer.offset) == (0, 2)


# -- after a crash


def test_bytes_that_recovery_cuts_off_are_kept_and_logged(one: OnePartition, caplog: pytest.LogCaptureFixture) -> None:
    for number in ("", ".1"):
        data = damage(log_path(one), 30, "length too large")
        one.reopen()
        kept = one.folder / f"{90:020}{number}.damaged"
        (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert line.levelno == logging.ERROR
        assert line.getMessage().startswith(
            f"t-0 is damaged: from offset 90 on, {10 * SIZE} bytes are cut off, kept in {kept} "
        )
        assert kept.read_bytes() == data[30 * SIZE :] and log_path(one).read_bytes() == data[: 30 * SIZE]
        assert readable(one) == all_but(*range(30, COUNT))
        caplog.clear()
        one.append(*(a_batch(b"0", b"1", b"2") for _ in range(9)), a_batch(bytes(SIZE - 68)))
        log_path(one).write_bytes(log_path(one).read_bytes()[: 30 * SIZE] + data[30 * SIZE :])


def test_the_segments_behind_damage_are_kept_too(tmp_path: Path) -> None:
    one = OnePartition(tmp_path / "t-0")
    one.append(*(idempotent(100 + i * PER_BATCH, PER_BATCH) for i in range(100)))
    logs = one.files(".log")
    assert len(logs) > 2
    damage(log_path(one), 7, "magic")
    one.reopen()
    assert one.log.end_offset == 21 and list(one.files(".log")) == [log_path(one).name]
    behind = {name.replace(".log", ".damaged"): data for name, data in list(logs.items())[1:]}
    assert {name: len(data) for name, data in one.files(".damaged").items()} == {
        f"{21:020}.damaged": len(logs[log_path(one).name]) - 7 * SIZE
    } | {name: len(data) for name, data in behind.items()}
    one.append(a_batch(b"next"))
    one.reopen()
    assert one.log.end_offset == 22 and one.segments.truncated == 0, "copies of damaged data are not read"


@pytest.mark.parametrize(
    "tail", [idempotent(100, PER_BATCH)[:50], idempotent(100, PER_BATCH)[:-1], bytes(3), bytes(9999)]
)
def test_a_batch_that_was_not_written_to_its_end_is_a_warning_and_not_kept(
    one: OnePartition, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with log_path(one).open("ab") as file:
        file.write(tail)
    one.reopen()
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.levelno == logging.WARNING
    assert line.getMessage().endswith(f"from offset {COUNT * PER_BATCH} on, {len(tail)} bytes are cut off")
    assert not one.files(".damaged") and one.log.end_offset == COUNT * PER_BATCH


def test_damage_before_the_recovery_point_is_not_blamed_on_the_crash_and_stays(one: OnePartition) -> None:
    data = damage(log_path(one), 7, "magic")
    one.reopen(recovery_point=60)
    assert one.log.end_offset == COUNT * PER_BATCH and readable(one) == all_but(7)
    assert log_path(one).read_bytes() == data


@pytest.mark.parametrize("how", ["a power cut", "another topic of the name"])
def test_a_recovery_point_of_missing_records_does_not_apply_to_later_ones(
    machine: Machine, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine.produce(*(idempotent(100 + i) for i in range(10)))
    machine = machine.restart()
    path = machine.folder.path / "t-0" / f"{0:020}.log"
    if how == "a power cut":
        machine.folder.abandon()
        path.write_bytes(b"")
        machine = Machine(machine.folder.path)
        assert "t-0 ends at offset 0, but the disk had it up to 10" in caplog.text
    else:
        machine.core.delete_topic(machine.core.topics.by_name["t"])
        machine.core.create_topic("t", 1, {})
    machine.produce(a_batch(b"a"), a_batch(b"b"))
    machine.folder.abandon()
    path.write_bytes(path.read_bytes()[:-1])
    machine = Machine(machine.folder.path)
    assert machine.log().end_offset == 1, "a torn batch is still cut off"
    machine.folder.abandon()


def test_a_value_that_looks_like_a_batch_is_not_read_as_one(tmp_path: Path) -> None:
    one = OnePartition(tmp_path / "t-0")
    inner = a_batch(b"not a record of this log", base_offset=1)
    one.append(a_batch(inner), a_batch(b"b"))
    one.close()
    data = bytearray(log_path(one).read_bytes())
    data[40] ^= 1  # a byte that the CRC covers
    log_path(one).write_bytes(data)
    for path in one.folder.glob("*index"):
        path.unlink()
    one.reopen(clean=True, recovery_point=2)
    assert [batch.base_offset for batch in one.log.batches()] == [1]
    assert values_of(one.log.read(1, 2**20)) == [b"b"]


# -- committed offsets


@pytest.mark.parametrize("clean", [True, False])
def test_a_commit_with_a_flipped_bit_does_not_count(
    machine: Machine, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in (1000, 2000):
        commit(machine, offset)
    machine.folder.close()
    path = machine.folder.path / "__consumer_offsets-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    at = data.rindex((2000).to_bytes(8, "big"))
    data[at + 6] ^= 1
    path.write_bytes(data)
    if not clean:
        (machine.folder.path / ".kafka_cleanshutdown").unlink()
    machine = Machine(machine.folder.path)
    assert offsets(machine) == {0: 1000}, "the commit before it counts"
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.getMessage().startswith("__consumer_offsets-0 is damaged: offset 1 cannot be read")
    commit(machine, 3000)
    machine = machine.restart()
    assert offsets(machine) == {0: 3000}
    machine.folder.abandon()
