"""Dumps segments: each batch, then its records."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ottla.codec import kafka07, messages
from ottla.codec.compression import DECOMPRESSED, Compression, decompress
from ottla.codec.dump.items import Dump, DumpOptions, Item, View, broken
from ottla.codec.dump.readable import PlainValues
from ottla.codec.message_sets import Message
from ottla.codec.records import HEADER_SIZE, MAGIC, Record, RecordBatch, RecordBody, RecordLength
from ottla.codec.stored.control import parse_control
from ottla.codec.stored.internal_topics import INTERNAL_TOPICS, parse_internal
from ottla.codec.stored.segments import Batch, Segment, Segment07, TornTail
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError

LOST = "not read, because it is unknown where the next {} begins"
"""The ``rest`` of an item at which a dump ends."""


def dump_segment(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump a ``.log`` or ``.checkpoint`` file."""
    return _dump(Segment(pieces), options)


def dump_segment_07(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump a ``.kafka`` file of Kafka 0.7, or a ``.jafka`` file."""
    return _dump(Segment07(pieces, options.base_offset or 0), options)


def _dump(segment: Segment, options: DumpOptions) -> Dump:
    while True:
        try:
            batch = next(segment)
        except StopIteration:
            break
        except DecodeError as error:
            view, within = View(segment.data, segment.position), f"batch at {segment.position}"
            rest = LOST.format("batch") if segment.lost and not isinstance(error, TornTail) else ""
            yield broken(error, at=error.offset, within=within, view=view, rest=rest)
            continue
        if not options.skips(last_offset(batch)):
            yield from _batch_items(batch, View(segment.data, segment.position), options)
    if segment.unused:
        yield Item("unused", {"at": segment.position, "size": segment.unused})


def _batch_items(batch: Batch, view: View, options: DumpOptions) -> Dump:
    fields = batch_fields(batch, len(view.data))
    yield Item("batch", {"at": view.at, **fields})
    records, damage = readable_records(batch) if options.records else ((), None)
    control = is_control(batch)
    for row, record in enumerate(records):
        if options.skips(record.offset):
            continue
        try:
            item = Item("record", record_fields(record, control, options))
        except DecodeError as error:
            damage = in_record(error, batch, row)
            break
        yield item
    damage = damage or wrong_crc(batch)
    if damage is not None:
        within = f"batch at {view.at} (offsets {fields['base_offset']}-{fields['last_offset']})"
        yield _located(damage, batch, view, within)


# ---------------------------------------------------------------------------------------------------------------------
# Batches of any format as plain values.


def last_offset(batch: Batch) -> int:
    """Return the offset of the last record."""
    return batch.offset if isinstance(batch, kafka07.Message) else batch.last_offset


def is_control(batch: Batch) -> bool:
    """Whether the batch holds control records, for example markers."""
    return isinstance(batch, RecordBatch) and batch.control


def _crc(batch: Batch) -> int:
    return batch.head.crc if isinstance(batch, kafka07.Message) else batch.crc


def wrong_crc(batch: Batch) -> DecodeError | None:
    """Return the error if the CRC does not match."""
    try:
        batch.check_crc()
    except DecodeError as error:
        return error
    return None


def batch_fields(batch: Batch, size: int) -> dict[str, Any]:
    """Return the header fields of a batch."""
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


def record_fields(record: Record, control: bool, options: DumpOptions) -> dict[str, Any]:
    """Return the fields of a record; in internal topics and control batches its key and value are parsed.

    Raises:
        DecodeError: they are not the expected messages; the path begins with the message's class.
    """
    place = {"offset": record.offset, "timestamp": record.timestamp}
    headers = [{"key": name, "value": value} for name, value in record.headers]
    if not options.raw and (control or options.topic in INTERNAL_TOPICS):
        if control and (marker := parse_control(record.key, record.value)):
            content = {"type": marker.name, "version": marker.version}
            return {**place, **content, "value": _message(marker.value, marker.version, options), "headers": headers}
        if known := parse_internal(options.topic, record.key, record.value):
            content = {"type": known.name, "key": _message(known.key, 0, options), "version": known.version}
            return {**place, **content, "value": _message(known.value, known.version, options), "headers": headers}
    return {**place, "key": record.key, "value": record.value, "headers": headers}


def _message(value: Any, version: int, options: DumpOptions) -> Any:
    return PlainValues(version, options.deep).message(value) if hasattr(value, "__wire__") else value


# ---------------------------------------------------------------------------------------------------------------------
# Damage within a batch.


def readable_records(batch: Batch) -> tuple[Iterable[Record], DecodeError | None]:
    """Return the records before the first damaged one, and the error of that one."""
    try:
        return batch.records(), None
    except DecodeError as error:
        row = _row(error.path)
        if row is None or not isinstance(batch, RecordBatch):
            return (), error
        body = _body(batch)
        return (_record(batch, _parse_record(body, at)[0]) for at in _starts(body, row)[:-1]), error


def _row(path: str) -> int | None:
    """Return the row of the record in a path."""
    number = path.removeprefix("RecordBatch.records[").partition("]")[0]
    return int(number) if number.isdecimal() else None


def _body(batch: RecordBatch) -> bytes:
    return bytes(decompress(batch.compression, batch.data[HEADER_SIZE:]))


def _starts(body: bytes, row: int) -> list[int]:
    """Return the start of each record, up to ``row``."""
    starts = [0]
    for _ in range(row):
        head, start = messages.parse(RecordLength, MAGIC, body, starts[-1])
        starts.append(start + head.length)
    return starts


def _parse_record(body: bytes, at: int) -> tuple[RecordBody, int]:
    """Return the record whose length is at ``body[at]``, and where the record begins."""
    start = messages.parse(RecordLength, MAGIC, body, at)[1]
    return messages.parse(RecordBody, MAGIC, body, start)[0], start


def _record(batch: RecordBatch, body: RecordBody) -> Record:
    timestamp = batch.max_timestamp if batch.log_append_time else batch.base_timestamp + body.timestamp_delta
    headers = tuple((each.key, each.value) for each in body.headers)
    return Record(batch.base_offset + body.offset_delta, timestamp, body.key, body.value, headers)


def in_record(error: DecodeError, batch: Batch, row: int) -> DecodeError:
    """Turn an error in a parsed key or value into an error in the batch's records."""
    part = "key" if error.path.partition(".")[0].endswith("Key") else "value"
    path = f"records[{row}].{part} as {error.path}"
    if not isinstance(batch, RecordBatch):
        return DecodeError(error.reason, path)
    body = _body(batch)
    record, start = _parse_record(body, _starts(body, row)[-1])
    if part == "key":  # after the key come a null value and no headers, one byte each
        size, behind = len(record.key or b""), len(messages.build(replace(record, value=None, headers=()), 2)) - 2
    else:
        size, behind = len(record.value or b""), len(messages.build(replace(record, headers=()), 2)) - 1
    return batch.in_records(DecodeError(error.reason, path, start + behind - size + error.offset))


def place(error: DecodeError, batch: Batch) -> int:
    """Return the position in the batch of an error from `readable_records`, `in_record` or `wrong_crc`.

    For an error in decompressed data, that is where the compressed data begins.
    """
    if not error.within.startswith(DECOMPRESSED):
        return max(error.offset, 0)
    match batch:
        case kafka07.Message():
            return batch.payload_at
        case Message():
            return len(batch.data) - len(batch.value or b"")
    return HEADER_SIZE


def _located(error: DecodeError, batch: Batch, view: View, within: str) -> Item:
    """Report an error in a batch, with its position in the file."""
    at = view.at + place(error, batch)
    if error.within.startswith(DECOMPRESSED):
        within = f"{within}, byte {error.offset} of its decompressed records"
        if isinstance(batch, RecordBatch):
            return broken(error, at=at, within=within, view=View(_body(batch), of="these"), inner=error.offset)
    return broken(error, at=at, within=within, view=view)
