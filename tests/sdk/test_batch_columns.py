"""A batch as columns has the same records as a batch of objects, from any source."""

from typing import Any

import pytest

from ottla.codec.apis.fetch import AbortedTransaction, FetchResponse
from ottla.codec.columns import Columns
from ottla.codec.compression import Compression
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import BatchBuilder, Record, parse_batch
from ottla.errors import DecodeError
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Offset
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED
from ottla.sdk.consumer import Batch
from ottla.testing import Broker
from tests.sdk.leaders import NEW, Leaders
from tests.sdk.loops import Loop
from tests.sdk.reading import reader

P = ("t", 0)
Row = tuple[int, int, bytes | None, bytes | None]
ROWS: list[tuple[bytes | None, bytes | None]] = [(b"a", b"first"), (None, b"second"), (b"c", None), (b"", b"")]


def batch_of(fetched: Fetched | None) -> Batch:
    assert fetched is not None
    return Batch(fetched, None, None)  # type: ignore[arg-type] # a batch without a group never uses its consumer


def rows(columns: Columns) -> list[Row]:
    keys, values = columns.keys.tolist(), columns.values.tolist()
    return list(zip(columns.offsets, columns.timestamps, keys, values, strict=True))


def of_records(batch: Batch) -> list[Row]:
    return [(each.offset, each.timestamp, each.key, each.value) for each in batch]


def new_batch(compression: Compression, base: int) -> bytes:
    builder = BatchBuilder()
    builder.extend((5, key, value, ()) for key, value in ROWS)
    return builder.build(compression=compression, base_offset=base)


def old_set(magic: int, compression: Compression, base: int) -> bytes:
    records = [Record(base + index, 5, key, value) for index, (key, value) in enumerate(ROWS)]
    return build_message_set(records, magic=magic, compression=compression)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("start", range(6))
def test_a_batch_has_the_same_records_as_columns_wherever_reading_begins(
    magic: int, compression: Compression, start: int
) -> None:
    leaders = Leaders({"t": 1}, versions=NEW | {1: (0, 2) if magic < 2 else NEW[1]})
    for base in (0, 4):
        data = new_batch(compression, base) if magic == 2 else old_set(magic, compression, base)
        leaders.logs[P].append_batch(data, len(ROWS))
    fetcher = reader(leaders, {P: Offset(start)})
    leaders.run(fetcher.wait())
    batch = batch_of(fetcher.take())
    timestamp = 5 if magic else -1
    wanted = [(base + index, timestamp, *row) for base in (0, 4) for index, row in enumerate(ROWS)][start:]
    assert rows(batch.columns()) == wanted, "before the first record"
    assert len(batch) == len(wanted) and of_records(batch) == wanted
    assert rows(batch.columns()) == wanted, "and after it"


def test_columns_hide_what_records_hide() -> None:
    leaders = Leaders({"t": 1})
    markers = {"abort": b"\x00\x00\x00\x00", "commit": b"\x00\x00\x00\x01"}
    for producer, value in ((1, b"aborted"), (2, b"good"), (1, markers["abort"]), (1, b"good too")):
        builder, control = BatchBuilder(), value in markers.values()
        builder.append(0, value if control else None, value)
        log = leaders.logs[P]
        log.append_batch(
            builder.build(base_offset=log.end, transactional=True, producer_id=producer, control=control), 1
        )

    def tell(node: int, request: Any, answer: Any) -> Any:
        if isinstance(answer, FetchResponse):
            for topic in answer.responses:
                for each in topic.partitions:
                    each.aborted_transactions = (AbortedTransaction(producer_id=1, first_offset=0),)
        return answer

    leaders.bend = tell
    for isolation, wanted in ((READ_COMMITTED, [1, 3]), (0, [0, 1, 3])):
        fetcher = reader(leaders, {P: Offset(0)}, isolation=isolation)
        leaders.run(fetcher.wait())
        assert list(batch_of(fetcher.take()).columns().offsets) == wanted


def test_columns_of_a_damaged_batch_are_an_error_that_names_it() -> None:
    damaged = parse_batch(new_batch(Compression.NONE, 30))
    damaged.count = 7
    batch = batch_of(Fetched("t", 0, 30, [damaged], 34, 34, -1))
    with pytest.raises(DecodeError, match="t-0, batch at offset 30"):
        batch.columns()


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_columns_come_from_a_consumers_loop(loop: Loop, ottla_broker: Broker, compression: str) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer(compression=compression) as producer:
            for number in range(300):
                await producer.send_soon("t", b"%d" % number, headers=(("n", b"%d" % number),))
        got: list[bytes | None] = []
        async with client.consumer(assign={("t", 0): 123}) as consumer:
            async for batch in consumer:
                columns = batch.columns()
                assert list(columns.offsets) == [each.offset for each in batch]
                assert columns.headers.tolist() == [each.headers for each in batch]
                got += columns.values.tolist()
                if len(got) == 177:
                    break
    assert got == [b"%d" % number for number in range(123, 300)]
