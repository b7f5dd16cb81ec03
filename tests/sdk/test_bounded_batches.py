"""Batches with at most `max_records`, and with bounded memory: the records of one fetch are handed out in parts, each
with its own commit.
"""

import sys
import tracemalloc
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

import ottla
from ottla.codec._engine import ENGINE
from ottla.codec.columns import Columns
from ottla.codec.compression import Compression
from ottla.codec.message_sets import build_message_set, read_record_set
from ottla.codec.records import Record, build_batch, parse_batch, rebased
from ottla.errors import ConfigurationError, MemoryLimitExceeded
from ottla.sdk.calls import How, fetch_many
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Offset, Position
from ottla.sdk.consume.partitions.record_sets import READ_UNCOMMITTED, AnyBatch
from ottla.sdk.consumer import Batch
from ottla.sdk.options import Options
from ottla.testing import Broker
from tests.patience import HUNG
from tests.sdk.leaders import Leaders
from tests.sdk.loops import Loop


def batch(base: int, count: int, compression: Compression = Compression.NONE) -> AnyBatch:
    records = [Record(offset=base + each, timestamp=5, key=None, value=b"%d" % (base + each)) for each in range(count)]
    return parse_batch(rebased(build_batch(records, compression=compression), base, 7))


def old(base: int, count: int) -> list[AnyBatch]:
    """Messages from before Kafka 0.11, in a compressed wrapper."""
    records = [Record(offset=base + each, timestamp=5, key=None, value=b"%d" % (base + each)) for each in range(count)]
    return list(read_record_set(build_message_set(records, magic=1, compression=Compression.GZIP)))


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("first", [0, 4])
def test_the_parts_hold_each_record_once_and_say_where_to_go_on(most: int, first: int) -> None:
    batches = [batch(0, 7, Compression.GZIP), batch(7, 1), batch(8, 2), *old(10, 6), batch(16, 4)]
    position = Position(("t", 0), Offset(first))
    position.go(first)
    position.add(batches, batches, 1000)
    values: list[bytes | None] = []
    sizes = 0
    while position.buffer:
        assert position.check(READ_UNCOMMITTED) is None
        begin = position.position
        fetched = position.take(most)
        records = fetched.records()
        assert 0 < len(records) <= most
        assert records[0].offset >= begin and records[-1].offset < fetched.next_offset == position.position
        assert fetched.columns().values.tolist() == [each.value for each in records]
        values += [each.value for each in records]
        sizes += fetched.size
    assert values == [b"%d" % each for each in range(first, 20)]
    assert position.position == 20 and sizes == 1000 and position.buffered == 0


def test_a_part_within_a_batch_has_its_leader_epoch_and_a_rewind_goes_on_behind_it() -> None:
    position = Position(("t", 0), Offset(0))
    position.go(0)
    position.add([batch(0, 10)], [batch(0, 10)], 100)
    fetched = position.take(4)
    assert (fetched.next_offset, fetched.leader_epoch, fetched.size) == (4, 7, 40)
    assert (position.position, position.position_epoch, position.buffered) == (4, 7, 60)
    position.rewind()
    assert position.fetch_offset == 4 and not position.buffer


def test_what_is_damaged_stays_whole() -> None:
    good = bytearray(bytes(batch(0, 3).data))
    good[-5] ^= 0xFF
    fetched = Fetched("t", 0, 0, [parse_batch(bytes(good))], 3, 3, 7, 100)
    assert fetched.split(1) == [fetched]


@pytest.mark.parametrize("most", [1, 3, 2000])
def test_the_work_of_parting_grows_with_the_batches_and_not_with_their_square(most: int) -> None:
    batches = [batch(each, 1) for each in range(1000)]
    calls = 0

    def count_calls(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_calls)
    try:
        _, parts = holding(batches, most)
    finally:
        sys.setprofile(None)
    assert sum(each.count for each in parts) == 1000
    assert calls < 60 * len(batches)


# --- memory

LIMIT = 4 * 2**20


def large(base: int, size: int, compression: Compression = Compression.ZSTD, key: bytes | None = None) -> AnyBatch:
    """Two records with so many zero bytes in total."""
    records = [Record(base + each, 5, key, bytes(size // 2)) for each in range(2)]
    return parse_batch(rebased(build_batch(records, compression=compression), base, 7))


def holding(batches: list[AnyBatch], most: int | None = None, limit: int = LIMIT) -> tuple[Position, list[Fetched]]:
    """A position at the end of the batches, and the parts in which it handed them out."""
    position = Position(("t", 0), Offset(0))
    position.go(0)
    position.add(batches, batches, sum(len(each.data) for each in batches), limit)
    parts = []
    while position.buffer:
        assert position.check(READ_UNCOMMITTED) is None
        parts.append(position.take(most))
        assert (position.position, position.position_epoch) == (parts[-1].next_offset, parts[-1].leader_epoch)
    return position, parts


OPENED: dict[str, Callable[[Fetched], Any]] = {
    "records": lambda fetched: fetched.records(),
    "columns": lambda fetched: fetched.columns(),
    "parts": lambda fetched: fetched.parts(),
}


@pytest.mark.slow
@pytest.mark.parametrize("opened", OPENED.values(), ids=list(OPENED))
@pytest.mark.parametrize("compression", [each for each in Compression if each], ids=lambda each: each.name.lower())
def test_what_is_handed_out_together_takes_no_more_than_one_limit(
    compression: Compression, opened: Callable[[Fetched], Any]
) -> None:
    batches = [large(2 * each, 2_000_000, compression) for each in range(30)]
    position, parts = holding(batches)
    offsets: list[int] = []
    tracemalloc.start()
    try:
        for fetched in parts:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            found = opened(fetched)
            held, most = (each - before for each in tracemalloc.get_traced_memory())
            del found
            assert held < 1.5 * LIMIT and most < 2 * LIMIT
            offsets += [each.offset for each in fetched]
    finally:
        tracemalloc.stop()
    assert offsets == list(range(60))
    assert position.position == 60 and position.buffered == 0


def test_memory_that_is_used_again_is_no_more_than_new_memory_would_be() -> None:
    def columns(size: int) -> Columns:
        return Fetched("t", 0, 0, [large(0, size)], 2, 2, 0, 0).columns()

    kept = [columns(2_000_000) for _ in range(20)]  # more memory than the pool keeps
    columns(4_000_000)
    tracemalloc.start()
    try:
        kept.append(columns(2_000_000))
        assert tracemalloc.get_traced_memory()[1] < 6_500_000
    finally:
        tracemalloc.stop()


def test_small_batches_stay_together_and_large_ones_part_them() -> None:
    batches = [batch(each, 1, Compression.ZSTD) for each in range(20)]
    batches += [large(20, 3 * 2**20), large(22, 10), large(24, 3 * 2**20), large(26, 3 * 2**20)]
    batches += [large(28 + 2 * each, 20, Compression.NONE) for each in range(6)]
    _, parts = holding(batches)
    assert [(each.first_offset, each.next_offset, each.count) for each in parts] == [
        (0, 20, 20), (20, 22, 2), (22, 24, 2), (24, 26, 2), (26, 28, 2), (28, 40, 12),
    ]  # fmt: skip
    assert {each.leader_epoch for each in parts} == {7}
    assert sum(each.size for each in parts) == sum(len(each.data) for each in batches)


def test_records_without_compression_are_parted_too_where_their_objects_take_more() -> None:
    small = [Record(each, 5, None, b"") for each in range(2000)]
    batches: list[AnyBatch] = [parse_batch(rebased(build_batch(small), 2000 * each, 7)) for each in range(30)]
    _, parts = holding(batches)
    assert 2 < len(parts) < 15
    assert [each.offset for part in parts for each in part] == list(range(60_000))


def test_an_ordinary_answer_is_handed_out_whole() -> None:
    text = b" ".join(b"%x" % (number * number % 65_521) for number in range(3000))  # 16 kB
    for compression in Compression:
        records = [Record(each, 5, b"%d" % each, text[100 * each : 100 * each + 100]) for each in range(150)]
        built = build_batch(records, compression=compression)
        batches: list[AnyBatch] = [parse_batch(rebased(built, 150 * each, 7)) for each in range(2**20 // len(built))]
        _, parts = holding(batches, limit=Options().fetch_batch_memory)
        assert len(parts) <= (1 if ENGINE == "c" else 8), compression


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_both_bounds_hold_together(most: int) -> None:
    batches = [large(0, 2 * 2**20), batch(2, 5), large(7, 2 * 2**20), large(9, 3 * 2**20), *old(11, 6), batch(17, 3)]
    _, parts = holding(batches, most)
    assert [each.offset for part in parts for each in part] == list(range(20))
    for part in parts:
        assert 0 < len(part.records()) <= most
        assert sum(len(each.value or b"") for each in part) <= LIMIT


def turns(batches: list[AnyBatch]) -> list[tuple[int, int]]:
    """The partition and offset of each record, handed out one by one, if three partitions have these batches."""
    buffers = FetchBuffers(Options(fetch_batch_memory=LIMIT), READ_UNCOMMITTED)
    for partition in range(3):
        position = Position(("t", partition), Offset(0))
        position.go(0)
        buffers.add(position, batches, batches, 100)
    order = []
    while (turn := buffers.next()) is not None:
        fetched, damage = buffers.take(turn, 1)
        assert fetched is not None and damage is None
        order += [(fetched.partition, each.offset) for each in fetched]
    assert buffers.size == 0
    return order


def test_no_more_large_batches_are_open_at_a_time_than_fit_into_memory() -> None:
    assert turns([large(0, 2 * 2**20), large(2, 2 * 2**20)]) == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (2, 3),
    ]  # fmt: skip
    assert turns([large(0, 200), large(2, 200)]) == [(each, offset) for offset in range(4) for each in range(3)]


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_are_parted_between_their_wrappers(magic: int, compression: Compression) -> None:
    batches: list[AnyBatch] = []
    for base in range(0, 20, 2):
        records = [Record(base + each, -1 if magic == 0 else 5, None, bytes(2**20)) for each in range(2)]
        batches += read_record_set(build_message_set(records, magic=magic, compression=compression))
    _, parts = holding(batches)
    assert [[each.offset for each in part] for part in parts] == [[base, base + 1] for base in range(0, 20, 2)]


def test_a_batch_that_needs_more_than_the_limit_says_how_to_read_it_and_hides_no_other() -> None:
    huge = large(1, LIMIT + 2)
    _, parts = holding([batch(0, 1), huge, batch(3, 2)])
    first, second, third = parts
    assert [each.value for part in (first, third) for each in part] == [b"0", b"3", b"4"]
    advice = "; raise fetch_batch_memory, an option of connect, or seek to offset 3"
    for opened in OPENED.values():
        with pytest.raises(
            MemoryLimitExceeded, match=rf"zstd data would grow over the limit of {LIMIT} .*{advice}$"
        ) as caught:
            opened(second)
        assert caught.value.within == "t-0, batch at offset 1"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_higher_limit_reads_any_batch(magic: int) -> None:
    records = [Record(each, -1 if magic == 0 else 5, None, bytes(2**20)) for each in range(5)]
    if magic == 2:
        batches: list[AnyBatch] = [parse_batch(build_batch(records, compression=Compression.GZIP))]
    else:
        batches = list(read_record_set(build_message_set(records, magic=magic, compression=Compression.GZIP)))
    fetched = Fetched("t", 0, 0, batches, 5, 5, 0, 0, LIMIT)
    with pytest.raises(MemoryLimitExceeded):
        fetched.records()
    fetched = Fetched("t", 0, 0, batches, 5, 5, 0, 0, 2 * LIMIT)
    assert [each.offset for each in fetched.records()] == fetched.columns().offsets.tolist() == [0, 1, 2, 3, 4]


async def test_a_consumer_reads_a_batch_above_the_limit_with_a_higher_one_or_goes_on_behind_it(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(compression="zstd", linger=5) as producer,
    ):
        for size in (100, 2**17, 2**17):
            await producer.send_soon("t", bytes(size))
        await producer.flush()
        await producer.send("t", b"behind it")
    sizes: dict[int, list[int]] = {}
    for memory in (2**17, 2**19):
        async with (
            loop.connect(ottla_broker.bootstrap, fetch_batch_memory=memory) as client,
            client.consumer("t") as consumer,
        ):
            sizes[memory] = []
            with loop.fail_after(HUNG):
                while 9 not in sizes[memory]:
                    try:
                        sizes[memory] += [len(each.value or b"") for each in await anext(consumer)]
                    except MemoryLimitExceeded:
                        sizes[memory].append(-1)
    assert sizes == {2**17: [-1, 9], 2**19: [100, 2**17, 2**17, 9]}


def test_a_single_fetch_returns_what_may_be_opened_together_and_where_to_go_on() -> None:
    leaders = Leaders({"t": 1}, options=Options(fetch_batch_memory=LIMIT))
    for _ in range(5):
        leaders.logs["t", 0].append_batch(bytes(large(leaders.logs["t", 0].end, 3 * 2**20).data), 2)
    offset, offsets = 0, []
    while offset < 10:
        outcome = fetch_many(leaders.core, {("t", 0): offset}, leaders.now, How(2**20, 0.5, 0))
        leaders.run(outcome)
        fetched = outcome.result()["t", 0]
        assert isinstance(fetched, Fetched)
        records = fetched.records()
        assert sum(len(each.value or b"") for each in records) <= LIMIT
        offsets += [each.offset for each in records]
        offset = fetched.next_offset
    assert offsets == list(range(10))


async def test_a_consumer_gets_all_of_a_topic_whose_records_become_many_bytes(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap, fetch_batch_memory=LIMIT) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer(compression="zstd") as producer:
            for number in range(12):
                await producer.send("t", b"%02d" % number + bytes(1_000_000), partition=number % 2)
        sizes: list[int] = []
        values: list[bytes] = []
        async with client.consumer("t", group="g") as consumer:
            with loop.fail_after(HUNG):
                while len(values) < 6:
                    got = await anext(consumer)
                    sizes.append(got.columns().values.data.nbytes)
                    values += [(each.value or b"")[:2] for each in got]
                    await got.commit()
        async with client.consumer("t", group="g") as consumer:
            with loop.fail_after(HUNG):
                while len(values) < 12:
                    got = await anext(consumer)
                    sizes.append(got.columns().values.data.nbytes)
                    values += [(each.value or b"")[:2] for each in got]
        assert sorted(values) == [b"%02d" % number for number in range(12)]
        assert all(0 < each <= LIMIT for each in sizes)


async def test_a_consumer_hands_out_so_many_records_at_once(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer() as producer:
            for number in range(20):
                await producer.send_soon("t", b"%d" % number, partition=number % 2)
        batches: list[Batch] = []
        async with client.consumer("t", group="g", max_records=3) as consumer:
            with loop.fail_after(HUNG):
                while sum(map(len, batches)) < 9:
                    batches.append(await anext(consumer))
                    await batches[-1].commit()
            assert all(len(each) <= 3 for each in batches)
            assert {each.partition for each in batches} == {0, 1}, "partitions take turns"
        async with client.consumer("t", group="g") as consumer:
            with loop.fail_after(HUNG):
                while sum(map(len, batches)) < 20:
                    batches.append(await anext(consumer))
        values = sorted(int(each.value or b"") for each in chain.from_iterable(batches))
        assert values == list(range(20))
        for wrong in (0, -1, 1.5, True):
            with pytest.raises(ConfigurationError, match="max_records"):
                client.consumer("t", max_records=wrong)  # type: ignore[arg-type] # on purpose


async def test_a_batch_that_takes_too_much_memory_can_be_printed(ottla_broker: Broker) -> None:
    async with (
        ottla.connect(ottla_broker.bootstrap, fetch_batch_memory=200_000) as client,
        client.producer(compression="zstd", batch_size=2**20, linger=0.1) as producer,
    ):
        await client.create_topic("t", partitions=1)
        await producer.send_many("t", [bytes(100_000)] * 9)
        await producer.flush()
        async with client.transform("t", group="g", transactional_id="x") as transform:
            batches = await anext(transform)
            assert repr(batches) == "<Batches: t-0, records that cannot be opened (MemoryLimitExceeded)>"
            assert repr(batches.batches[0]) == "<Batch of t-0, records that cannot be opened (MemoryLimitExceeded)>"
            async with transform.transaction(batches):
                pass
