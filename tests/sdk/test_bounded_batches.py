"""Batches of `max_records` at the most: what was fetched together is handed out in parts, each with its commit."""

from itertools import chain

import pytest

from ottla.codec.compression import Compression
from ottla.codec.message_sets import build_message_set, read_record_set
from ottla.codec.records import Record, build_batch, parse_batch, rebased
from ottla.errors import ConfigurationError
from ottla.sdk.consume.positions import Fetched, Offset, Position
from ottla.sdk.consume.record_sets import READ_UNCOMMITTED, AnyBatch
from ottla.sdk.consumer import Batch
from ottla.testing import Broker
from tests.sdk.loops import Loop


def batch(base: int, count: int, compression: Compression = Compression.NONE) -> AnyBatch:
    records = [Record(offset=base + each, timestamp=5, key=None, value=b"%d" % (base + each)) for each in range(count)]
    return parse_batch(rebased(build_batch(records, compression=compression), base, 7))


def old(base: int, count: int) -> list[AnyBatch]:
    """Messages of before Kafka 0.11, in a compressed wrapper."""
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


async def test_a_consumer_hands_out_so_many_records_at_once(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer() as producer:
            for number in range(20):
                await producer.send_soon("t", b"%d" % number, partition=number % 2)
        batches: list[Batch] = []
        async with client.consumer("t", group="g", max_records=3) as consumer:
            with loop.fail_after(10):
                while sum(map(len, batches)) < 9:
                    batches.append(await anext(consumer))
                    await batches[-1].commit()
            assert all(len(each) <= 3 for each in batches)
            assert {each.partition for each in batches} == {0, 1}, "partitions take turns"
        async with client.consumer("t", group="g") as consumer:
            with loop.fail_after(10):
                while sum(map(len, batches)) < 20:
                    batches.append(await anext(consumer))
        values = sorted(int(each.value or b"") for each in chain.from_iterable(batches))
        assert values == list(range(20))
        for wrong in (0, -1, 1.5, True):
            with pytest.raises(ConfigurationError, match="max_records"):
                client.consumer("t", max_records=wrong)  # type: ignore[arg-type] # on purpose
