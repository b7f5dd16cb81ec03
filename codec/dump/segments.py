"""Segments: each batch, then its records."""

import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crc32c import crc32c

from ottla.codec import kafka07, messages
from ottla.codec.compression import Compression, decompress
from ottla.codec.dump.items import Broken, Dump, Item, Options, View
from ottla.codec.dump.readable import Plain
from ottla.codec.message_sets import Message
from ottla.codec.records import HEADER_SIZE, MAGIC, Record, RecordBatch, RecordBody, RecordLength
from ottla.codec.stored.control import parse_control
from ottla.codec.stored.internal_topics import parse_internal
from ottla.codec.stored.segments import Batch, Segment, Segment07
from ottla.codec.wire import Buffer
from ottla.errors import CorruptMessage, DecodeError

_CRC_AT = 17
_CRC = "crc"
"""The path of an error in it."""


def dump_segment(pieces: Iterable[Buffer], options: Options) -> Dump:
    """``.log`` and ``.checkpoint`` files.

    Raises:
        Broken: (while iterating) at the first broken byte.
    """
    return _dump(Segment(pieces), options)


def dump_segment_07(pieces: Iterable[Buffer], options: Options) -> Dump:
    """``.kafka`` files of Kafka 0.7 and ``.jafka`` files.

    Raises:
        Broken: (while iterating) at the first broken byte.
    """
    return _dump(Segment07(pieces, options.base_offset or 0), options)


def _dump(segment: Segment, options: Options) -> Dump:
    try:
        for batch in segment:
            if not options.skips(last_offset(batch)):
                yield from _batch_items(batch, View(segment.data, segment.position), options)
    except Broken:
        raise
    except DecodeError as error:
        view = View(segment.data, segment.position)
        raise Broken(error, at=error.offset, within=f"batch at {segment.position}", view=view) from None
    if segment.unused:
        yield Item("unused", {"at": segment.position, "size": segment.unused})


def _batch_items(batch: Batch, view: View, options: Options) -> Dump:
    fields = batch_fields(batch, len(view.data))
    within = f"batch at {view.at} (offsets {fields['base_offset']}-{fields['last_offset']})"
    yield Item("batch", {"at": view.at, **fields})
    records, damage = readable_records(batch) if options.records else ((), None)
    for row, record in enumerate(records):
        if options.skips(record.offset):
            continue
        try:
            item = Item("record", record_fields(record, is_control(batch), options))
        except DecodeError as error:
            damage = in_record(error, batch, row)
            break
        yield item
    if damage is not None:
        raise _located(damage, batch, view, within)
    if not batch.crc_matches:
        raise _located(wrong_crc(batch), batch, view, within)


# ---------------------------------------------------------------------------------------------------------------------
# Batches of any age, as plain values.


def last_offset(batch: Batch) -> int:
    """Of its last record."""
    return batch.offset if isinstance(batch, kafka07.Message) else batch.last_offset


def is_control(batch: Batch) -> bool:
    """Whether its records are markers and the like."""
    return isinstance(batch, RecordBatch) and batch.control


def _crc(batch: Batch) -> int:
    return batch.head.crc if isinstance(batch, kafka07.Message) else batch.crc


def _crc_at(batch: Batch) -> int:
    """Where the CRC stands in the batch."""
    match batch:
        case kafka07.Message():
            return 5 + batch.head.magic
        case Message():
            return 12
    return _CRC_AT


def wrong_crc(batch: Batch) -> DecodeError:
    """What to say of a batch whose CRC does not match."""
    match batch:
        case kafka07.Message():
            computed = zlib.crc32(batch.payload)
        case Message():
            computed = zlib.crc32(memoryview(messages.build(batch, batch.magic))[16:])
        case _:
            computed = crc32c(batch.data[_CRC_AT + 4 :])
    return DecodeError(f"the CRC is {_crc(batch):#010x}, and that of the bytes behind it {computed:#010x}", _CRC)


def batch_fields(batch: Batch, size: int) -> dict[str, Any]:
    """What the header of a batch says."""
    crc = {"crc": _crc(batch), "crc_matches": batch.crc_matches}
    match batch:
        case kafka07.Message():
            fields = {"magic": batch.head.magic, "base_offset": batch.offset, "last_offset": batch.offset}
            return {"size": size, **fields, "compression": _compression(batch), **crc}
        case Message():
            fields = {"magic": batch.magic, "base_offset": batch.offset, "last_offset": batch.offset}
            return {"size": size, **fields, "compression": _compression(batch), **_time(batch, batch.timestamp), **crc}
    fields = {"magic": 2, "base_offset": batch.base_offset, "last_offset": batch.last_offset, "count": batch.count}
    horizon = {} if batch.delete_horizon is None else {"delete_horizon": batch.delete_horizon}
    return {
        "size": size,
        **fields,
        "compression": _compression(batch),
        **_time(batch, batch.max_timestamp),
        "base_timestamp": batch.base_timestamp,
        **horizon,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.transactional,
        "control": batch.control,
        **crc,
    }


def _compression(batch: Batch) -> str | int:
    return Compression(batch.compression).name.lower() if batch.compression in list(Compression) else batch.compression


def _time(batch: RecordBatch | Message, latest: int) -> dict[str, Any]:
    return {"timestamp_type": "LogAppendTime" if batch.log_append_time else "CreateTime", "max_timestamp": latest}


def record_fields(record: Record, control: bool, options: Options) -> dict[str, Any]:
    """A record; in internal topics and control batches key and value are messages.

    Raises:
        DecodeError: they are not the messages that they should be; the path begins with the message's class.
    """
    place = {"offset": record.offset, "timestamp": record.timestamp}
    headers = [{"key": name, "value": value} for name, value in record.headers]
    if not options.raw:
        if control and (marker := parse_control(record.key, record.value)):
            content = {"type": marker.name, "version": marker.version}
            return {**place, **content, "value": _message(marker.value, marker.version, options), "headers": headers}
        if known := parse_internal(options.topic, record.key, record.value):
            content = {"type": known.name, "key": _message(known.key, 0, options), "version": known.version}
            return {**place, **content, "value": _message(known.value, known.version, options), "headers": headers}
    return {**place, "key": record.key, "value": record.value, "headers": headers}


def _message(value: Any, version: int, options: Options) -> Any:
    return Plain(version, options.deep).message(value) if hasattr(value, "__wire__") else value


# ---------------------------------------------------------------------------------------------------------------------
# Damage within a batch.


def readable_records(batch: Batch) -> tuple[Iterable[Record], DecodeError | None]:
    """The records up to the first that is damaged, and what is wrong with that one."""
    try:
        return batch.records(), None
    except CorruptMessage as error:
        return (), DecodeError(f"the CRC of a message within does not match ({error.detail})", "value")
    except DecodeError as error:
        row = _row(error.path)
        if row is None or not isinstance(batch, RecordBatch):
            return (), error
        body = _body(batch)
        return [_record(batch, _parse_record(body, at)[0]) for at in _starts(body, row)[:-1]], error


def _row(path: str) -> int | None:
    """Of the record that a path leads to."""
    number = path.removeprefix("records[").partition("]")[0]
    return int(number) if number.isdecimal() else None


def _body(batch: RecordBatch) -> bytes:
    return bytes(decompress(batch.compression, batch.data[HEADER_SIZE:]))


def _starts(body: bytes, row: int) -> list[int]:
    """Where each record begins, up to ``row``."""
    starts = [0]
    for _ in range(row):
        head, start = messages.parse(RecordLength, MAGIC, body, starts[-1])
        starts.append(start + head.length)
    return starts


def _parse_record(body: bytes, at: int) -> tuple[RecordBody, int]:
    """The record behind the length at ``body[at]``, and where it begins."""
    start = messages.parse(RecordLength, MAGIC, body, at)[1]
    return messages.parse(RecordBody, MAGIC, body, start)[0], start


def _record(batch: RecordBatch, body: RecordBody) -> Record:
    timestamp = batch.max_timestamp if batch.log_append_time else batch.base_timestamp + body.timestamp_delta
    headers = tuple((each.key, each.value) for each in body.headers)
    return Record(batch.base_offset + body.offset_delta, timestamp, body.key, body.value, headers)


def in_record(error: DecodeError, batch: Batch, row: int) -> DecodeError:
    """An error in the message that a record's key or value is, as an error in the batch's records."""
    part = "key" if error.path.partition(".")[0].endswith("Key") else "value"
    path = f"records[{row}].{part} as {error.path}"
    if not isinstance(batch, RecordBatch):
        return DecodeError(error.reason, path)
    body = _body(batch)
    record, start = _parse_record(body, _starts(body, row)[-1])
    if part == "key":  # what stands behind it: an empty value and no headers, one byte each
        size, behind = len(record.key or b""), len(messages.build(replace(record, value=None, headers=()), 2)) - 2
    else:
        size, behind = len(record.value or b""), len(messages.build(replace(record, headers=()), 2)) - 1
    return DecodeError(error.reason, path, start + behind - size + error.offset)


def place(error: DecodeError, batch: Batch) -> int:
    """Where an error that `readable_records`, `in_record` or `wrong_crc` tells is in the batch.

    Of compressed records that is where they begin; of a message, where it begins.
    """
    if error.path == _CRC:
        return _crc_at(batch)
    if not isinstance(batch, RecordBatch):
        return 0
    return HEADER_SIZE + (max(error.offset, 0) if batch.compression == Compression.NONE else 0)


def _located(error: DecodeError, batch: Batch, view: View, within: str) -> Broken:
    """Where an error in a batch is in the file."""
    at = view.at + place(error, batch)
    if error.offset < 0 or not isinstance(batch, RecordBatch) or batch.compression == Compression.NONE:
        return Broken(error, at=at, within=within, view=view)
    within = f"{within}, byte {error.offset} of its decompressed records"
    return Broken(error, at=at, within=within, view=View(_body(batch), of="these"), inner=error.offset)
