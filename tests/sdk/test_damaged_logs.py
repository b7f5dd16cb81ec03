"""Damaged logs: records before the damage are read once; the error says where, whose fault, what to do; no loop."""

import struct
from typing import Any

import pytest

from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.list_offsets import LATEST
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.records import BatchBuilder, RecordBatch
from ottla.errors import ChecksumMismatch, CorruptMessage, DataLoss, DecodeError, OttlaError, RecordTooLarge
from ottla.sdk.calls.reads import How, fetch_many
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.reading.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Fetcher, Offset, Time
from ottla.sdk.options import Options
from tests.sdk.leaders import NEW, Leaders
from tests.sdk.reading import read, reader, values

T = ("t", 0)
LENGTH, BASE_OFFSET, LAST_DELTA, COUNT, VALUE = 8, 0, 23, 57, -2
"""Byte positions in a batch of one record."""


def log_of(*records: bytes) -> Leaders:
    leaders = Leaders({"t": 1})
    for value in records:
        leaders.logs[T].append(value)
    return leaders


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the batches whose checksums were verified."""
    offsets: list[int] = []
    check = RecordBatch.check_crc

    def noted(self: RecordBatch, at: int = 0) -> None:
        offsets.append(self.base_offset)
        check(self, at)

    monkeypatch.setattr(RecordBatch, "check_crc", noted)
    return offsets


def test_the_next_fetch_goes_out_before_checksums_are_compared(compared: list[int]) -> None:
    leaders = log_of(b"a", b"b")
    fetcher = reader(leaders, {T: Offset(0)})
    leaders.run(1.0)
    asked = [topic.partitions[0].fetch_offset for each in leaders.asked(FetchRequest) for topic in each.topics]
    assert asked == [0, 2]
    assert compared == []
    read(leaders, fetcher, 2)
    assert compared == [0, 1], "each verified once"


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_the_checksum_of_a_transactional_batch_is_compared_once(isolation: int, compared: list[int]) -> None:
    leaders, builder = Leaders({"t": 1}), BatchBuilder()
    builder.append(0, None, b"a")
    leaders.logs[T].append_batch(builder.build(base_offset=0, transactional=True, producer_id=7), 1)
    read(leaders, reader(leaders, {T: Offset(0)}, isolation=isolation), 1)
    assert compared == [0]


def test_a_recreated_topic_is_told_of_behind_the_good_batches_before_a_damaged_one() -> None:
    leaders = log_of(b"a", b"b", b"c")
    leaders.logs[T].damage(1, VALUE, b"!")
    fetcher = reader(leaders, {T: Offset(0)})
    leaders.run(fetcher.wait())
    leaders.cluster.recreate("t")
    for value in (b"x0", b"x1", b"x2"):
        leaders.logs[T].append(value)
    leaders.drop_sessions()
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(3.0)
    assert read(leaders, fetcher, 1) == {T: [b"a"]}
    with pytest.raises(DataLoss, match="recreated"):
        read(leaders, fetcher, 1)


@pytest.mark.parametrize("versions", [(4, 18), (4, 11)], ids=["diverging epochs", "out of range"])
def test_a_batch_that_seems_to_end_behind_the_log_is_no_truncated_log(
    versions: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    leaders = Leaders({"t": 1}, versions=NEW | {1: versions})
    for value in (b"a", b"b", b"c"):
        leaders.logs[T].append(value)
    leaders.logs[T].damage(2, LAST_DELTA, struct.pack(">i", 1 << 20))
    fetcher = reader(leaders, {T: Offset(0)}, reset=Time(LATEST))
    leaders.run(30.0)
    assert (len(leaders.asked(FetchRequest)), len(leaders.asked(MetadataRequest))) <= (3, 3), "no endless retries"
    assert read(leaders, fetcher, 2) == {T: [b"a", b"b"]}
    with pytest.raises(ChecksumMismatch, match="t-0 from offset 2, batch at offset 2"):
        read(leaders, fetcher, 1)
    assert caplog.messages == []


def test_what_is_wrong_says_where_to_go_on() -> None:
    leaders = log_of(b"a", b"b", b"c")
    leaders.logs[T].damage(1, VALUE, b"!")
    fetcher = reader(leaders, {T: Offset(0)})
    assert read(leaders, fetcher, 1) == {T: [b"a"]}
    for _ in range(2):
        with pytest.raises(
            ChecksumMismatch, match=r"t-0 from offset 1, batch at .*; to skip the batch, seek to 2"
        ) as caught:
            read(leaders, fetcher, 1)
        assert not caught.value.retriable
    fetcher.assign({T: Offset(2)}, leaders.now)
    assert read(leaders, fetcher, 1) == {T: [b"c"]}


def taken(leaders: Leaders, fetcher: Fetcher, count: int) -> list[bytes | str]:
    """The next results of a read loop: values, and the names of errors."""
    seen: list[bytes | str] = []
    while len(seen) < count:
        try:
            fetched = fetcher.take()
        except OttlaError as error:
            seen.append(type(error).__name__)
            continue
        if fetched is None:
            leaders.run(fetcher.wait())
        else:
            seen += values(fetched)
    return seen


def test_a_partition_in_trouble_stops_no_other_and_its_error_is_raised_once_until_a_seek() -> None:
    leaders = Leaders({"t": 3})
    for index in range(3):
        for number in range(2):
            leaders.logs["t", index].append(b"%d-%d" % (index, number))
    leaders.logs[T].damage(1, VALUE, b"!")  # in the first partition
    fetcher = reader(leaders, {("t", index): Offset(0) for index in range(3)})
    seen = taken(leaders, fetcher, 6)
    assert sorted(map(str, seen)) == sorted(
        map(str, [b"0-0", b"1-0", b"1-1", b"2-0", b"2-1", ChecksumMismatch.__name__])
    )
    assert seen.index(b"0-0") < seen.index(ChecksumMismatch.__name__), "after the records before it"
    [line] = fetcher.explain(leaders.now)
    assert line.startswith("t-0: cannot be read until a seek: t-0 from offset 1")
    assert fetcher.take() is None and not fetcher.wait().done
    for index in range(1, 3):
        leaders.logs["t", index].append(b"more")
    assert taken(leaders, fetcher, 2) == [b"more", b"more"]
    fetcher.assign({T: Offset(1)}, leaders.now)
    assert taken(leaders, fetcher, 1) == [ChecksumMismatch.__name__], "the error is raised again"
    fetcher.assign({T: Offset(2)}, leaders.now)
    leaders.logs[T].append(b"0-2")
    assert taken(leaders, fetcher, 1) == [b"0-2"]
    assert list(fetcher.explain(leaders.now)) == []


def test_the_error_of_a_paused_partition_waits_for_its_turn() -> None:
    leaders = Leaders({"t": 2})
    damaged = leaders.logs[T]
    damaged.append(b"a")
    leaders.logs[T].damage(0, VALUE, b"!")
    fetcher = reader(leaders, {T: Offset(0), ("t", 1): Offset(0)})
    leaders.run(fetcher.wait())
    fetcher.pause([T])
    assert fetcher.take() is None
    fetcher.resume([T])
    assert taken(leaders, fetcher, 1) == [ChecksumMismatch.__name__]
    fetcher.pause([T])
    fetcher.resume([T])
    assert fetcher.take() is None, "it was already raised"


def test_where_no_partition_is_left_to_read_the_error_is_raised_each_time() -> None:
    leaders = Leaders({"t": 2})
    for index in range(2):
        leaders.logs["t", index].append(b"a")
        leaders.logs["t", index].damage(0, VALUE, b"!")
    fetcher = reader(leaders, {("t", index): Offset(0) for index in range(2)})
    assert taken(leaders, fetcher, 5) == [ChecksumMismatch.__name__] * 5
    assert fetcher.wait().done


def test_counts_are_of_what_the_user_got() -> None:
    leaders = log_of(b"a", b"b", b"c")
    leaders.logs[T].damage(1, COUNT, struct.pack(">i", -5000))
    fetcher = reader(leaders, {T: Offset(0)})
    leaders.run(fetcher.wait())
    fetched = fetcher.take()
    assert fetched is not None
    assert (fetched.count, fetched.next_offset, values(fetched)) == (1, 1, [b"a"])
    assert fetched.size == len(fetched.batches[0].data)
    with pytest.raises(ChecksumMismatch):
        read(leaders, fetcher, 1)
    totals = {each.name: each.value for each in leaders.core.metrics.snapshot(leaders.now) if "topic" not in each.tags}
    assert (totals["records-consumed-total"], totals["bytes-consumed-total"]) == (1, fetched.size)
    assert totals["records-per-request-avg"] >= 0


def test_the_leader_epoch_is_that_of_the_last_good_batch() -> None:
    leaders = log_of(b"a")
    leaders.logs[T].lead(1, 3)
    leaders.logs[T].append(b"b")
    leaders.logs[T].damage(1, VALUE, b"!")
    fetcher = reader(leaders, {T: Offset(0)})
    leaders.run(fetcher.wait())
    fetched = fetcher.take()
    assert fetched is not None
    assert (fetched.leader_epoch, fetcher.position_epoch(T)) == (0, 0)


def test_batches_that_overlap_are_neither_read_twice_nor_backwards() -> None:
    leaders = log_of(b"a", b"b", b"c", b"d")
    leaders.logs[T].damage(2, BASE_OFFSET, struct.pack(">q", 0))  # the checksum does not cover it
    fetcher = reader(leaders, {T: Offset(0)})
    assert read(leaders, fetcher, 1) == {T: [b"a"]}
    with pytest.raises(
        DecodeError,
        match=r"t-0 from offset 1: .*a batch has offsets 1 to 1, the next has 0 to 0: one of them is damaged",
    ):
        read(leaders, fetcher, 1)


@pytest.mark.parametrize("size", [1000, 1 << 30])
def test_a_batch_that_says_it_is_longer_than_all_that_comes_is_an_error_and_no_loop(size: int) -> None:
    leaders = log_of(b"a", b"b")
    leaders.logs[T].damage(1, LENGTH, struct.pack(">i", size))
    fetcher = reader(leaders, {T: Offset(0)})
    assert read(leaders, fetcher, 1) == {T: [b"a"]}
    with pytest.raises((DecodeError, RecordTooLarge), match=r"t-0 from offset 1: .*its length is damaged"):
        read(leaders, fetcher, 1)
    assert len(leaders.asked(FetchRequest)) <= 4


def test_what_a_near_replica_has_damaged_is_read_from_the_leader() -> None:
    leaders = Leaders({"t": 1}, nodes=2, options=Options(rack="r2"))
    log = leaders.logs[T]
    leaders.prefer[T] = 2
    for value in (b"a", b"b", b"c"):
        log.append(value)
    good = log.batches[1].data

    def rot(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest) and node == 2:
            for each in (each for topic in answer.responses for each in topic.partitions if each.records):
                each.records = bytes(each.records).replace(good, good[:-2] + b"!" + good[-1:])
        return answer

    leaders.bend = rot
    fetcher = reader(leaders, {T: Offset(0)})
    assert read(leaders, fetcher, 3) == {T: [b"a", b"b", b"c"]}
    assert len(leaders.asked(FetchRequest)) < 12
    leaders.run(3.0)
    log.append(b"d")
    assert read(leaders, fetcher, 1) == {T: [b"d"]}
    assert leaders.requests[-1][0] == 2, "the near replica serves again"


def corrupt_at(offset: int) -> Any:
    """A `bend` with which the leader itself finds damage, from this offset on."""

    def bend(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest):
            asked = [each.fetch_offset for topic in request.topics for each in topic.partitions]
            for each in (each for topic in answer.responses for each in topic.partitions):
                if asked and asked[0] >= offset:
                    each.error_code, each.records = CorruptMessage.code, b""
        return answer

    return bend


def test_damage_that_the_broker_finds_is_an_error_too_and_not_asked_for_again_and_again() -> None:
    leaders = log_of(b"a")
    fetcher = reader(leaders, {T: Offset(0)})
    assert read(leaders, fetcher, 1) == {T: [b"a"]}
    leaders.bend = corrupt_at(1)
    leaders.logs[T].append(b"b")
    asked = len(leaders.asked(FetchRequest))
    with pytest.raises(CorruptMessage, match="t-0 from offset 1: the broker cannot read its log there") as caught:
        read(leaders, fetcher, 1)
    assert not caught.value.retriable, "though Kafka marks the code as retriable, for producers"
    leaders.run(30.0)
    assert len(leaders.asked(FetchRequest)) <= asked + 2
    with pytest.raises(CorruptMessage, match="t-0 from offset 1: the broker cannot read"):
        fetched_once(leaders, 1)


def fetched_once(leaders: Leaders, offset: int) -> Fetched:
    outcome = fetch_many(leaders.core, {T: offset}, leaders.now, How(1 << 20, 0.1, READ_UNCOMMITTED))
    leaders.run(outcome)
    if isinstance(fetched := outcome.result()[T], OttlaError):
        raise fetched
    return fetched


def test_a_single_fetch_gives_what_is_good_and_then_the_error() -> None:
    leaders = log_of(b"a", b"b")
    leaders.logs[T].damage(1, VALUE, b"!")
    assert values(fetched_once(leaders, 0)) == [b"a"]
    with pytest.raises(ChecksumMismatch, match="t-0 from offset 1, batch at offset 1"):
        fetched_once(leaders, 1)


def test_a_single_fetch_of_a_batch_that_lies_about_its_length_ends() -> None:
    leaders = log_of(b"a")
    leaders.logs[T].damage(0, LENGTH, struct.pack(">i", 1000))
    with pytest.raises(
        DecodeError, match=r"t-0 from offset 0: .*the batch says it has 1012 bytes.*its length is damaged"
    ):
        fetched_once(leaders, 0)
