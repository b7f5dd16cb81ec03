"""Bytes to readable items: all recorded bytes are readable, and for damage an item names the first broken byte."""

import functools
import json
import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from ottla.codec import frames, kafka07, parse, prefixed, trees
from ottla.codec.apis import APIS, NAMES
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.compression import Compression, compress
from ottla.codec.dump import (
    BROKEN,
    DumpOptions,
    Item,
    dump_leader_epochs,
    dump_offset_index,
    dump_offsets,
    dump_partition_metadata,
    dump_requests,
    dump_responses,
    dump_segment,
    dump_segment_07,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
    readable,
    text,
)
from ottla.codec.dump.readable import Named, lines, one_line, quoted, scalar, time_text
from ottla.codec.frames import ResponseHeader
from ottla.codec.message_sets import Message, build_message, build_message_set
from ottla.codec.records import HEADER_SIZE, BatchBuilder, Record
from ottla.codec.stored import classic_groups, indexes, snapshots
from ottla.codec.wire import Buffer
from tests.codec import strategies
from tests.codec.recorded import FILES, Exchange, exchanges

STORED = Path(__file__).parents[1] / "wire" / "stored"
Dump = Callable[[Iterable[Buffer], DumpOptions], Iterable[Item]]


class Broken:
    """The content of the first item about damage."""

    def __init__(self, item: Item) -> None:
        self.offset: int = item.fields["at"]
        self.path: str = item.fields["path"]
        self.within: str = item.fields["within"]
        self.reason: str = item.fields["reason"]
        self.around = bytes.fromhex(item.fields["bytes"])
        self.mark: int = item.fields["first_broken"]
        self.rest: str = item.fields.get("rest", "")
        self.item = item


def dumped(dump: Dump, data: bytes, options: DumpOptions | None = None) -> tuple[list[Item], Broken | None]:
    """The items, and the first that says what is broken. Each must have its text and its JSON."""
    items = list(dump((data[at : at + 1000] for at in range(0, len(data), 1000)), options or DumpOptions()))
    for item in items:
        assert text(item) and text(item, full=True)
        json.dumps(item.fields, default=repr)
    broken = [item for item in items if item.kind == BROKEN]
    return [item for item in items if item.kind != BROKEN], Broken(broken[0]) if broken else None


def kinds(items: list[Item]) -> list[str]:
    return [item.kind for item in items]


def a_batch(*values: bytes, compression: Compression = Compression.NONE, base_offset: int = 0) -> bytes:
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.append(1_700_000_000_000 + number, b"key", value, (("name", b"header"),))
    return builder.build(base_offset=base_offset, compression=compression)


def with_crc(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


SEGMENT = (
    a_batch(b"one", b"two")
    + a_batch(b"three" * 9, compression=Compression.GZIP, base_offset=2)
    + build_message_set([Record(3, 5, b"k", b"four")], magic=1)
    + build_message_set([Record(4, -1, b"k", b"five" * 9)], magic=0, compression=Compression.SNAPPY)
)


# ---------------------------------------------------------------------------------------------------------------------
# Segments.


def test_a_segment_is_batches_each_before_its_records() -> None:
    items, broken = dumped(dump_segment, SEGMENT)
    assert broken is None
    assert "".join(kind[0] for kind in kinds(items)) == "brrbrbrbr"
    assert [item.fields["value"] for item in items if item.kind == "record"][:2] == [b"one", b"two"]
    assert [item.fields["compression"] for item in items if item.kind == "batch"] == ["none", "gzip", "none", "snappy"]
    assert text(items[1]) == '  0  2023-11-14T22:13:20.000Z  "key" → "one"  headers ["name": "header"]'


def test_a_dump_begins_where_it_is_told_and_may_leave_out_records() -> None:
    items, _ = dumped(dump_segment, SEGMENT, DumpOptions(start=1))
    assert [item.fields.get("offset", "batch") for item in items] == ["batch", 1, "batch", 2, "batch", 3, "batch", 4]
    items, _ = dumped(dump_segment, SEGMENT, DumpOptions(start=2, records=False))
    assert kinds(items) == ["batch"] * 3


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_segment_with_any_byte_changed_reads_or_is_reported(flip: int) -> None:
    for at in range(len(SEGMENT)):
        data = bytearray(SEGMENT)
        data[at] ^= flip
        items, broken = dumped(dump_segment, bytes(data))
        first = a_batch(b"one", b"two")
        free = (*range(8), *range(12, 16))  # base offset and leader epoch, which the CRC does not cover
        if at < len(first):
            assert (broken is None) == (at in free), at
        else:
            assert kinds(items)[:3] == ["batch", "record", "record"]
        if broken is not None:
            assert 0 <= broken.offset <= len(SEGMENT)


def test_a_segment_cut_anywhere_is_reported_after_what_is_whole() -> None:
    whole = len(dumped(dump_segment, SEGMENT)[0])
    for size in range(1, len(SEGMENT)):
        items, broken = dumped(dump_segment, SEGMENT[:size])
        assert len(items) < whole
        assert broken is None or broken.offset < size + 12


def test_internal_topics_with_any_byte_changed_read_or_are_reported() -> None:
    log = (STORED / "__share_group_state-24" / "00000000000000000000.log").read_bytes()
    random.seed(1)
    for at in range(HEADER_SIZE, len(log)):
        data = bytearray(log)
        data[at] = random.randrange(256)
        start = 0
        while start < len(data):  # with right CRCs, so that the damage reaches the records
            end = start + 12 + int.from_bytes(log[start + 8 : start + 12], "big")
            data[start:end] = with_crc(data[start:end])
            start = end
        dumped(dump_segment, bytes(data), DumpOptions(topic="__share_group_state", deep=True))


def test_a_broken_record_is_told_to_the_byte_and_those_before_it_are_shown() -> None:
    first, second = a_batch(b"zero"), bytearray(a_batch(b"one", b"two", b"three", base_offset=1))
    place = second.index(b"two") - 1
    second[place] = 0xFF  # with the next byte, a varint of more than 32 bits
    second[place + 1 : place + 5] = b"\xff" * 4
    items, broken = dumped(dump_segment, first + with_crc(second))
    assert [item.fields["value"] for item in items if item.kind == "record"] == [b"zero", b"one"]
    assert broken is not None
    assert (broken.path, broken.within) == ("RecordBatch.records[1].value", f"batch at {len(first)} (offsets 1-3)")
    assert broken.offset == len(first) + place
    assert broken.around[broken.mark :].startswith(b"\xff" * 5)
    assert "[ff] ff ff ff ff" in text(broken.item)


def test_a_broken_record_in_a_compressed_batch_is_told_by_its_place_within() -> None:
    plain = bytearray(a_batch(b"one", b"two"))
    plain[plain.index(b"two") - 1] = 0x7F  # longer than the record
    data = plain[:HEADER_SIZE] + compress(Compression.LZ4, plain[HEADER_SIZE:])
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= Compression.LZ4
    items, broken = dumped(dump_segment, with_crc(data))
    assert [item.fields["value"] for item in items if item.kind == "record"] == [b"one"]
    assert broken is not None
    assert broken.path == "RecordBatch.records[1].value"
    assert "of its decompressed records" in broken.within
    assert broken.offset == HEADER_SIZE
    assert b"two" in broken.around
    assert broken.item.fields["bytes_of"]


def test_a_wrong_crc_is_told_after_the_records_that_can_be_read() -> None:
    data = bytearray(a_batch(b"one"))
    data[-9] ^= 1
    items, broken = dumped(dump_segment, bytes(data))
    assert kinds(items) == ["batch", "record"]
    assert "CRC WRONG" in text(items[0])
    assert broken is not None
    assert (broken.path, broken.offset) == ("RecordBatch.crc", 17)


def test_every_damaged_batch_is_told_and_those_between_are_shown() -> None:
    parts = [bytearray(a_batch(b"value", base_offset=number)) for number in range(5)]
    parts[0][-9] ^= 1  # the CRC
    parts[2][16] = 7  # the format
    parts[3][60] = 9  # the count
    items = list(dump_segment([b"".join([*map(bytes, parts[:3]), with_crc(parts[3]), parts[4]])], DumpOptions()))
    assert [item.kind for item in items if item.kind != "record"] == [
        *("batch", BROKEN, "batch", BROKEN, "batch", BROKEN, "batch"),
    ]
    told = [Broken(item) for item in items if item.kind == BROKEN]
    size = len(parts[0])
    assert [(each.path, each.offset) for each in told] == [
        ("RecordBatch.crc", 17),
        ("magic", 2 * size + 16),
        ("RecordBatch.count", 3 * size + 57),
    ]
    assert [each.within for each in told][1:] == [f"batch at {2 * size}", f"batch at {3 * size} (offsets 3-3)"]
    assert [each.rest for each in told] == ["", "", ""]


def test_every_damaged_frame_is_told_and_those_between_are_shown() -> None:
    damaged = bytearray(METADATA)
    damaged[-4] = 0xFF
    set_ = bytearray(a_batch(b"value"))
    set_[-9] ^= 1
    two = TopicProduceData(
        name="t",
        partition_data=tuple(PartitionProduceData(index=index, records=bytes(set_)) for index in range(2)),
    )
    produce = frames.build_request(ProduceRequest(acks=1, timeout_ms=5, topic_data=(two,)), 9, 8, None)
    capture = bytes(damaged) + METADATA + frames.framed(b"\0") + produce + METADATA
    items = list(dump_requests([capture], DumpOptions()))
    assert [item.kind for item in items] == [
        *("request", BROKEN, "request", BROKEN, "request", BROKEN, BROKEN, "request"),
    ]
    paths = [item.fields["path"] for item in items if item.kind == BROKEN]
    assert paths[1] == "RequestHeader.api_key"
    assert paths[2:] == [
        f"ProduceRequest.topic_data[0].partition_data[{index}].records.batches[0].crc" for index in range(2)
    ]


def test_where_nothing_tells_where_the_next_batch_or_frame_begins_the_dump_ends_and_says_so() -> None:
    lost = bytearray(a_batch(b"one"))
    lost[8:12] = b"\xff" * 4
    whole = a_batch(b"two")
    for dump, data in ((dump_segment, bytes(lost) + whole), (dump_requests, b"\xff" * 4 + METADATA)):
        items, broken = dumped(dump, data)
        assert items == []
        assert broken is not None
        assert broken.rest.startswith("not read, because it is unknown where the next ")
        assert "the rest: not read" in text(broken.item)


def test_a_compression_that_there_is_not_is_told() -> None:
    data = bytearray(a_batch(b"one"))
    data[22] |= 7
    _, broken = dumped(dump_segment, with_crc(data))
    assert broken is not None
    assert (broken.path, broken.offset) == ("RecordBatch.attributes", 21)
    assert "compression" in broken.reason


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_broken_message_in_an_internal_topic_is_told_to_the_byte(part: str) -> None:
    key = prefixed.build_prefixed(classic_groups.GroupMetadataKey(group="a group"), 0)
    key = b"\0\2" + key[2:]
    value = prefixed.build_prefixed(
        classic_groups.GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol=None, leader=None, members=()
        ),
        3,
    )
    whole, broken_key, broken_value = (key, value), (key[:-1], value), (key, value[:-1])
    builder = BatchBuilder()
    for each in (whole, broken_key if part == "key" else broken_value):
        builder.append(0, each[0], each[1], (("h", None),))
    data = builder.build()
    items, broken = dumped(dump_segment, data, DumpOptions(topic="__consumer_offsets"))
    assert kinds(items) == ["batch", "record"]
    assert broken is not None
    if part == "key":
        assert broken.path == "RecordBatch.records[1].key as GroupMetadataKey.group"
        assert broken.offset == data.rindex(b"a grou")
    else:
        assert broken.path == "RecordBatch.records[1].value as GroupMetadataValue.members"
        assert broken.offset == data.rindex(value[:-1]) + len(value) - 4
    assert dumped(dump_segment, data, DumpOptions(topic="__consumer_offsets", raw=True))[1] is None


def test_a_wrapped_message_with_a_wrong_crc_is_told() -> None:
    inner = bytearray(build_message_set([Record(0, -1, None, b"v" * 30)], magic=0))
    inner[-1] ^= 1
    wrapped = build_message_set([Record(0, -1, None, b"v" * 30)], magic=0, compression=Compression.GZIP)
    assert dumped(dump_segment, wrapped)[1] is None
    message = Message(offset=0, magic=0, attributes=1, key=None, value=compress(Compression.GZIP, bytes(inner)))
    _, broken = dumped(dump_segment, build_message(message))
    assert broken is not None
    assert broken.path == "Message.value[0].crc"
    assert broken.within.endswith("byte 12 of its decompressed records")


def test_unused_room_at_the_end_is_told_and_is_no_damage() -> None:
    items, broken = dumped(dump_segment, a_batch(b"one") + bytes(5000))
    assert broken is None
    assert items[-1] == Item("unused", {"at": len(a_batch(b"one")), "size": 5000})


def test_messages_of_kafka_07_are_shown_with_their_places() -> None:
    data = kafka07.build_messages([b"one", b"two"], compression=Compression.GZIP) + kafka07.build_message(b"three")
    items, broken = dumped(dump_segment_07, data, DumpOptions(base_offset=100))
    assert broken is None
    assert [item.fields.get("value", item.fields.get("at")) for item in items] == [
        0,
        b"one",
        b"two",
        len(data) - 15,
        b"three",
    ]
    assert items[-1].fields["offset"] == 100 + len(data) - 15
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        assert dumped(dump_segment_07, bytes(changed))[1] is not None


# ---------------------------------------------------------------------------------------------------------------------
# Other files.


def entries(*made: Any) -> bytes:
    return b"".join(map(indexes.build_entry, made))


OFFSET_INDEX = entries(
    indexes.OffsetIndexEntry(relative_offset=1, position=10), indexes.OffsetIndexEntry(relative_offset=5, position=90)
)


def test_the_entries_of_an_index_count_from_the_files_base_offset() -> None:
    items, _ = dumped(dump_offset_index, OFFSET_INDEX, DumpOptions(base_offset=1000))
    assert [text(item) for item in items] == ["offset 1001  at byte 10", "offset 1005  at byte 90"]
    items, _ = dumped(dump_offset_index, OFFSET_INDEX, DumpOptions(base_offset=1000, start=1002))
    assert [text(item) for item in items] == ["offset 1005  at byte 90"]
    items, _ = dumped(dump_offset_index, OFFSET_INDEX)
    assert text(items[0]) == "relative offset 1  at byte 10"


def test_the_unused_end_of_an_index_is_one_item() -> None:
    items, broken = dumped(dump_offset_index, OFFSET_INDEX + bytes(8 * 1000))
    assert broken is None
    assert kinds(items) == ["entry", "entry", "unused"]
    assert items[-1].fields == {"at": 16, "size": 8000}


def test_an_index_that_falls_or_ends_early_is_broken_there() -> None:
    items, broken = dumped(dump_offset_index, OFFSET_INDEX + OFFSET_INDEX)
    assert kinds(items) == ["entry"] * 4
    assert broken is not None
    assert (broken.offset, broken.path) == (16, "OffsetIndexEntry.relative_offset")
    later = (
        indexes.TimeIndexEntry(timestamp=5, relative_offset=9),
        indexes.TimeIndexEntry(timestamp=6, relative_offset=8),
    )
    _, broken = dumped(dump_time_index, entries(*later))
    assert broken is not None
    assert broken.offset == 12 + 8
    _, broken = dumped(dump_offset_index, OFFSET_INDEX[:-1])
    assert broken is not None
    assert 8 <= broken.offset < 16


def test_zeros_between_entries_are_entries() -> None:
    data = bytes(12) * 3 + entries(indexes.TimeIndexEntry(timestamp=5, relative_offset=9))
    items, broken = dumped(dump_time_index, data)
    assert broken is None
    assert kinds(items) == ["entry"] * 4


def test_zeros_before_an_entry_are_not_held() -> None:
    data = bytes(2**18) + (1).to_bytes(4, "big") * 2
    tracemalloc.start()
    try:
        entries = sum(1 for _ in dump_offset_index([data], DumpOptions(start=1)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert entries == 1


def test_an_aborted_transaction_of_an_unknown_version_is_broken() -> None:
    txn = entries(indexes.AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=4))
    items, broken = dumped(dump_transaction_index, txn + b"\0\1" + txn[2:])
    assert [text(item) for item in items] == ["aborted: producer 1, offsets 2-3, last stable offset 4"]
    assert broken is not None
    assert broken.offset == 34


def test_the_producers_of_a_broken_snapshot_are_shown_before_it_is_told() -> None:
    [path] = (STORED.parent / "segments" / "txn-0").glob("*.snapshot")
    whole = path.read_bytes()
    producers = snapshots.parse_snapshot(whole)
    for size in range(len(whole)):
        items, broken = dumped(dump_snapshot, whole[:size])
        assert broken is not None
        whole_ones = [item for item in items if item.kind == "producer" and len(item.fields) == 8]
        assert len(whole_ones) == max(0, size - 10) // 46
        assert [item.fields["producer_id"] for item in whole_ones] == [
            p.producer_id for p in producers[: len(whole_ones)]
        ]
    items, broken = dumped(dump_snapshot, whole[:-1] + b"\x07")
    assert len(items) == 1 + len(producers)
    assert broken is not None
    assert (broken.offset, broken.path) == (2, "ProducerSnapshot.crc")


def test_the_lines_of_a_broken_checkpoint_are_shown_before_it_is_told() -> None:
    items, broken = dumped(dump_offsets, b"0\n3\nflights 0 17\nflights 1 x\nflights 2 5\n")
    assert [text(item) for item in items] == ["flights-0: 17"]
    assert broken is not None
    assert (broken.offset, broken.path) == (17, "line[3]")
    items, _ = dumped(dump_offsets, b"0\n1\na\x1b[31mb 0 17\n")
    assert text(items[0]) == "a\\u001b[31mb-0: 17"
    items, _ = dumped(dump_leader_epochs, b"0\n1\n4 100\n")
    assert [text(item) for item in items] == ["epoch 4 from offset 100 on"]
    assert dumped(dump_partition_metadata, b"version: 0\ntopic_id: no")[1] is not None


# ---------------------------------------------------------------------------------------------------------------------
# Captured frames.


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("api", FILES)
def test_every_recorded_frame_is_readable_but_those_known_to_be_cut(api: str, step: int) -> None:
    for exchange in exchanges(api)[::step]:
        items, broken = dumped(dump_requests, frames.framed(exchange.request), DumpOptions(deep=True))
        cut = exchange.scenario in ("truncated request", "SASL, SaslHandshake v0 and a raw token") or (
            exchange.client == "kafka-clients-messages" and exchange.scenario.startswith("unsupported api key")
        )
        assert (broken is None) or cut, exchange
        if exchange.response is not None and exchange.key in NAMES:
            read = functools.partial(dump_responses, api_key=exchange.key, version=exchange.version)
            items, broken = dumped(read, frames.framed(exchange.response), DumpOptions(deep=True))
            assert broken is None, exchange
            assert kinds(items) == ["response"]


METADATA = frames.build_request(
    MetadataRequest(topics=(MetadataRequestTopic(name="flights"), MetadataRequestTopic(name="ships"))), 12, 7, "me"
)


def a_produce(records: bytes, acks: int = 1) -> bytes:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=(partition,))
    return frames.build_request(ProduceRequest(acks=acks, timeout_ms=5, topic_data=(topic,)), 9, 8, None)


def recorded_messages(exchange: Exchange) -> Iterator[tuple[bytes, type[Any], int]]:
    """The bytes of a message, its class, and the position of its beginning."""
    yield exchange.request, APIS[exchange.key].request, frames.parse_header(exchange.request)[1]
    if exchange.response is not None:
        header = frames.response_header_version(exchange.key, exchange.version)
        yield exchange.response, APIS[exchange.key].response, parse(ResponseHeader, header, exchange.response)[1]


def test_a_torn_frame_is_shown_as_far_as_it_goes() -> None:
    items, broken = dumped(dump_requests, METADATA[:-8])
    assert '"flights"' in text(items[0])
    assert broken is not None
    assert (broken.offset, broken.path) == (0, "length")
    assert f"a frame of {len(METADATA) - 4} bytes, but only {len(METADATA) - 12} follow" in broken.reason


def test_a_broken_frame_is_shown_up_to_its_first_broken_byte() -> None:
    data = bytearray(METADATA + METADATA)
    place = data.rindex(b"ships") + 2
    data[place] = 0xFF
    items, broken = dumped(dump_requests, bytes(data))
    assert kinds(items) == ["request", "request"]
    shown = text(items[1])
    assert '"flights"' in shown
    assert "ships" not in shown
    assert broken is not None
    assert (broken.path, broken.offset) == ("MetadataRequest.topics[1].name", place)
    assert broken.within == f"request Metadata v12 at {len(METADATA)}"


def test_a_capture_cut_or_changed_anywhere_reads_or_is_reported() -> None:
    capture = METADATA + a_produce(a_batch(b"v"))
    for at in range(len(capture)):
        _, broken = dumped(dump_requests, capture[:at])
        assert (broken is None) == (at in (0, len(METADATA)))
        changed = bytearray(capture)
        changed[at] ^= 0xFF
        dumped(dump_requests, bytes(changed))


def test_a_record_set_in_a_frame_is_shown_and_its_damage_told() -> None:
    records = bytearray(a_batch(b"value") + a_batch(b"other"))
    records[-10] ^= 1
    data = a_produce(bytes(records), acks=-1)
    items, broken = dumped(dump_requests, data)
    shown = text(items[0])
    assert "acks: -1 (all)" in shown
    assert '"value"' in shown and "crc_matches: false" in shown
    assert broken is not None
    assert broken.path == "ProduceRequest.topic_data[0].partition_data[0].records.batches[1].crc"
    assert broken.offset == data.index(bytes(records)) + len(a_batch(b"value")) + 17
    items, again = dumped(dump_requests, data, DumpOptions(records=False))
    assert again is not None and again.offset == broken.offset, "also where records are not shown"


def test_damage_in_a_record_set_is_told_at_the_byte_where_a_segment_has_it() -> None:
    crc, record = bytearray(a_batch(b"one", b"two")), bytearray(a_batch(b"one", b"two"))
    crc[-10] ^= 1
    record[record.index(b"two") - 1] = 0x7F
    compression = bytearray(a_batch(b"one"))
    compression[22] |= 7
    builder = BatchBuilder()
    builder.append(0, b"\0\0\0\1", b"\0\0\0", ())  # a truncated marker
    marker = bytearray(builder.build())
    marker[22] |= 0x20  # a control batch
    for data in (bytes(crc), with_crc(record), with_crc(compression), with_crc(marker)):
        _, there = dumped(dump_segment, data)
        frame = a_produce(data)
        _, here = dumped(dump_requests, frame)
        assert there is not None and here is not None
        assert here.offset == frame.index(data) + there.offset
        assert here.reason == there.reason
        assert here.around[here.mark :].startswith(there.around[there.mark :])
        prefix = "ProduceRequest.topic_data[0].partition_data[0].records.batches[0]"
        assert here.path == prefix + there.path.removeprefix("RecordBatch")


def test_damage_in_a_record_set_is_not_taken_for_the_same_bytes_elsewhere() -> None:
    zeros = bytes(30)
    partitions = tuple(
        PartitionProduceData(index=i, records=each) for i, each in enumerate((a_batch(zeros * 2), zeros))
    )
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=(TopicProduceData(name="t", partition_data=partitions),))
    for version, tags in ((3, 0), (9, 3)):
        data = frames.build_request(request, version, 8, None)
        _, broken = dumped(dump_requests, data)
        assert broken is not None
        assert broken.path.startswith("ProduceRequest.topic_data[0].partition_data[1].records.batches[0]")
        assert broken.offset == len(data) - tags - len(zeros) + 8  # its size


def test_every_recorded_record_set_is_found_where_it_stands() -> None:
    found = 0
    for exchange in [*exchanges("Fetch"), *exchanges("Produce")][::3]:
        for data, cls, start in recorded_messages(exchange):
            sets: list[Buffer] = []
            plain = readable.PlainValues(exchange.version, record_set=functools.partial(noted, sets))
            plain.message(parse(cls, exchange.version, data, start)[0])
            starts = plain.record_sets_at(cls, data, start)
            assert [data[at : at + len(each)] for at, each in zip(starts, sets, strict=True)] == sets
            assert starts == sorted(starts)
            found += len(sets)
    assert found > 10


def noted(sets: list[Buffer], path: str, data: Buffer) -> None:
    sets.append(data)


def test_what_is_not_known_stays_bytes() -> None:
    head = b"\x03\xe8\0\1\0\0\0\7\0\2me"
    items, broken = dumped(dump_requests, frames.framed(head + b"body"))
    assert broken is None
    assert items[0].fields["message"] == b"body"
    assert text(items[0]).startswith("request at 0: ? (key 1000) v1")


def test_tagged_fields_that_nobody_knows_are_shown() -> None:
    topic: Any = MetadataRequestTopic(name="t")
    topic.unknown_tags = {7: b"inner"}
    request: Any = MetadataRequest(topics=(topic,))
    request.unknown_tags = {99: b"\xff"}
    items, broken = dumped(dump_requests, frames.build_request(request, 12, 7, "me"))
    assert broken is None
    assert 'unknown_tags: {7: "inner"}' in text(items[0])
    assert "unknown_tags: {99: 0xff}" in text(items[0])


def test_bytes_behind_a_request_are_shown_and_behind_a_response_are_damage() -> None:
    items, broken = dumped(dump_requests, frames.framed(METADATA[4:] + b"more"))
    assert broken is None
    assert items[0].fields["leftover"] == b"more"
    answer = b"\0\0\0\7" + bytes(6)  # Heartbeat v1: throttle time, error
    read: Any = functools.partial(dump_responses, api_key=12, version=1)
    assert dumped(read, frames.framed(answer))[1] is None
    items, broken = dumped(read, frames.framed(answer + b"more"))
    assert kinds(items) == ["response"]
    assert broken is not None
    assert broken.offset == 4 + len(answer)


def test_a_refused_version_of_api_versions_is_read_as_version_0() -> None:
    answer = b"\0\0\0\7" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"
    read: Any = functools.partial(dump_responses, api_key=18, version=4)
    items, broken = dumped(read, frames.framed(answer))
    assert broken is None
    assert "error_code: 35 (UNSUPPORTED_VERSION)" in text(items[0])
    assert "{api_key: 18 (ApiVersions), min_version: 0, max_version: 4}" in text(items[0])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\1\0\1", "a TLS hello"),
        (b"\xff\xff\xff\xff", "ff ff ff ff is not the length"),
        (b"\0\0", "the stream ends after 2 of the 4 bytes of a length"),
    ],
)
def test_what_is_no_capture_is_told_for_what_it_looks_like(data: bytes, says: str) -> None:
    _, broken = dumped(dump_requests, data)
    assert broken is not None
    assert says in broken.reason


# ---------------------------------------------------------------------------------------------------------------------
# Text.


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (Named(1, "OFFSET_OUT_OF_RANGE"), "1 (OFFSET_OUT_OF_RANGE)"),
        ("naïve 漢", '"naïve 漢"'),
        ('say "a\\b"', '"say \\"a\\\\b\\""'),
        (b"line\n", '"line\\n"'),
        (b"\x1b[31m", "0x1b5b33316d"),
        ("\x1b[31m\u202e", '"\\u001b[31m\\u202e"'),
        (b"\xff\0", "0xff00"),
        (b"", '""'),
        (b"x" * 201, f'"{"x" * 200}"… (1 more characters)'),
        (b"\0" * 101, f"0x{'00' * 100}… (1 more bytes)"),
    ],
)
def test_a_scalar_is_shown_so_that_no_terminal_acts_upon_it(value: object, shown: str) -> None:
    assert scalar(value) == shown
    assert scalar(value).isprintable()


def test_long_values_are_shown_whole_on_demand() -> None:
    assert quoted("x" * 500, full=True) == f'"{"x" * 500}"'
    assert scalar(b"\xff" * 500, full=True) == f"0x{'ff' * 500}"


def test_what_does_not_fit_into_a_line_is_laid_out_below_its_name() -> None:
    fields = {
        "a": 1,
        "b": [1, 2],
        "c": [{"x": 1}, {"x": ["long" * 30]}],
        "d": {"e": {"f": ["y" * 99]}},
        "g": [],
        "h": {},
    }
    assert list(lines(fields)) == [
        "a: 1",
        "b: [1, 2]",
        "c:",
        "  - {x: 1}",
        "  - x:",
        f'      - "{"long" * 30}"',
        "d:",
        "  e:",
        "    f:",
        f'      - "{"y" * 99}"',
        "g: []",
        "h: {}",
    ]
    assert one_line([{"x": 1}]) is None


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(1_700_000_000_123, "2023-11-14T22:13:20.123Z"), (-1, "-1"), (5, "5"), (2**63 - 1, str(2**63 - 1))],
)
def test_a_time_is_shown_in_utc_where_it_can_be_one(milliseconds: int, shown: str) -> None:
    assert time_text(milliseconds) == shown


def test_every_number_and_embedded_message_that_has_a_name_is_a_field_of_some_message() -> None:
    fields = set()
    for cls in strategies.MESSAGES:
        for version in strategies.VERSIONS[cls]:
            fields |= set(_fields(strategies.tree(cls, version)))
    names = fields | {field.partition(".")[2] for field in fields}
    assert not (set(readable._NUMBERS) | set(readable._EMBEDDED)) - names


def _fields(node: Any) -> Iterator[str]:
    for name, member in [*node.members, *((each.name, each.node) for each in node.tagged or ())]:
        yield f"{node.cls.__name__}.{name}"
        inner = getattr(member, "item", member)
        if isinstance(inner, trees.Structure):
            yield from _fields(inner)


def test_rights_are_shown_by_their_names() -> None:
    response = MetadataResponse(brokers=(), topics=(), cluster_authorized_operations=0b11000)
    data = frames.build_response(response, 8, 1)
    [item], _ = dumped(functools.partial(dump_responses, api_key=3, version=8), data)
    assert "cluster_authorized_operations: 24 (read, write)" in text(item)
