"""The exercises: one copy of the codec reads arbitrary bytes, writes the result, and reads it again.

An exercise takes a copy and the bytes, and returns its results as plain values. The fuzzer compares them with the
results of the other copy. Properties of a single copy are checked here; a violation raises `Failure`.

Rules:
- Bytes may be refused, with the errors that the documentation names. Any other exception is a finding.
- A value that was read can be written, and then read again as the same value.
- Limits are small: the codec uses little memory as long as it respects them.
"""

import dataclasses
import functools
import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from ottla.errors import DecodeError, EncodeError, RemoteProtocolError
from tests.fuzz.codecs import Codec

Exercise = Callable[[Codec, bytes], Any]

LIMIT = 1 << 18
"""The largest size, in bytes, that compressed data may decompress to."""


class Failure(Exception):
    """The codec broke a promise."""


def check(holds: bool, what: object) -> None:
    """Raise `Failure` unless it ``holds``."""
    if not holds:
        raise Failure(what)


def attempt(read: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """``(None, value)``, or the fields of the error and ``None``."""
    try:
        return None, read(*arguments)
    except DecodeError as error:
        return refusal(error), None
    except RemoteProtocolError as error:
        return (type(error).__name__, str(error)), None


def refusal(error: DecodeError) -> tuple[Any, ...]:
    """The fields of an error, all of which the copies must agree on."""
    check("changed" not in error.reason, f"nothing has changed: {error}")
    check(error.offset >= -1, f"an error at byte {error.offset}: {error}")
    return type(error).__name__, error.within, error.path, error.offset, error.reason


def shape(value: Any) -> Any:
    """``value`` in a form that can be compared across copies; two forms are equal only if the types are, too."""
    kind: Any = type(value)
    if kind is int or kind is str or kind is bytes or value is None:
        return value
    if kind is tuple:
        return tuple(map(shape, value))
    if kind is list:
        return list(map(shape, value))
    if kind is float:
        return "float", struct.pack(">d", value)  # by its bytes: NaN is unequal to itself, and 0.0 equals -0.0
    if kind is memoryview:
        return "memoryview", bytes(value)
    if isinstance(value, Mapping):
        return "Mapping", *((key, shape(item)) for key, item in sorted(value.items()))
    if names := _names(kind):
        return kind.__name__, *[shape(getattr(value, name)) for name in names]
    return kind.__name__, value


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


# ---------------------------------------------------------------------------------------------------------------------
# Messages.


def message(codec: Codec, name: str, data: bytes) -> Any:
    """A message of the class and version ``name``."""
    cls, version = codec.declared[name]
    error, parsed = attempt(codec.messages.parse, cls, version, data)
    if codec.engine == "c":
        _ask_reference(codec, name, data, parsed)
    if error:
        return error
    value, end = parsed
    check(end <= len(data), f"{end} of {len(data)} bytes were used")
    rebuilt = codec.messages.build(value, version)
    again, size = codec.messages.parse(cls, version, rebuilt)
    check(size == len(rebuilt) and shape(again) == shape(value), "the message differs when it is built and read again")
    check(codec.messages.build(again, version) == rebuilt, "the same message was built to different bytes")
    return end, shape(value), rebuilt


def _ask_reference(codec: Codec, name: str, data: bytes, parsed: tuple[Any, int] | None) -> None:
    """Interpreted construct must give the same verdict, value and bytes."""
    cls, version = codec.declared[name]
    error, wanted = attempt(codec.reference.parse, cls, version, data)
    check((wanted is None) == (parsed is None), f"the reference says {error or wanted}")
    if wanted is not None and parsed is not None:
        check(shape(wanted[0]) == shape(parsed[0]) and wanted[1] == parsed[1], f"the reference reads {wanted}")
        built = codec.messages.build(parsed[0], version)
        check(codec.reference.build(parsed[0], version) == built, "the reference builds different bytes")


# ---------------------------------------------------------------------------------------------------------------------
# Records.


def batch(codec: Codec, data: bytes) -> Any:
    """A record batch."""
    error, parsed = attempt(codec.records.parse_batch, data)
    return error or _batch(codec, parsed)


def body(codec: Codec, data: bytes) -> Any:
    """The records of a batch with a valid header; the first three bytes choose the header."""
    if len(data) < 3:
        return None
    edges = (0, -1, 5, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 63) - 100, -(1 << 63) + 100)
    header = codec.records.BatchHeader(
        base_offset=edges[data[1] & 7],
        length=codec.records.HEADER_SIZE - codec.records.LENGTH_END + len(data) - 3,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=data[2] & 0xF8 if data[1] & 64 else 0,
        last_offset_delta=data[0] - 1,
        base_timestamp=edges[data[1] >> 3 & 7],
        max_timestamp=77,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=data[0],
    )
    return _batch(codec, codec.records.parse_batch(codec.messages.build(header, 2) + data[3:]))


def _batch(codec: Codec, batch: Any) -> Any:
    fields = codec.records.BatchHeader.__wire__
    head = [getattr(batch, each.name) for each in fields if each.name not in ("length", "magic")]
    told = (*head, batch.crc_matches, batch.next_offset, batch.last_sequence, batch.delete_horizon)
    error, records = attempt(batch.records, LIMIT)
    if codec.engine == "c":
        _ask_declaration(codec, batch, records)
    _read_columns(codec, batch, error, records)
    return told, error or _records(codec, records)


def _read_columns(codec: Codec, batch: Any, error: Any, records: Any) -> None:
    """The columns, which one pass decodes, must equal the records, or fail with the same error."""
    failed, columns = attempt(batch.columns, LIMIT)
    check(failed == error, f"columns fail with {failed}, records with {error}")
    if records is None:
        return
    rows = [_row(each) for each in records]
    _check_columns(columns, rows)
    start = rows[len(rows) // 2][0] if rows else 0
    later = [_row(each) for each in records.between(start, 1 << 63)]
    _check_columns(codec.records.read_columns([batch, batch], start, LIMIT), later + later)


def _ask_declaration(codec: Codec, batch: Any, records: Any) -> None:
    """The declaration of a record must accept and refuse the same bytes, and give the same values."""
    error, content = attempt(codec.compression.decompress, batch.compression, batch.data[61:], LIMIT)
    rows = None if error else _declared_rows(codec, batch, bytes(content))
    check((rows is None) == (records is None), f"the declaration reads {rows}")
    if records is not None:
        check(rows == [_row(each) for each in records], f"the declaration reads {rows}")


def _declared_rows(codec: Codec, batch: Any, content: bytes) -> list[Any] | None:
    rows, at = [], 0
    stamp = batch.max_timestamp if batch.log_append_time else None
    if batch.count < 0:
        return None
    try:
        for _ in range(batch.count):
            head, at = codec.reference.parse(codec.records.RecordLength, 2, content, at)
            if not 0 <= head.length <= len(content) - at:
                return None
            read, end = codec.reference.parse(codec.records.RecordBody, 2, content[at : at + head.length])
            at += head.length
            offset, timestamp = batch.base_offset + read.offset_delta, batch.base_timestamp + read.timestamp_delta
            timestamp = timestamp if stamp is None else stamp
            if end != head.length or not all(-(1 << 63) <= each < 1 << 63 for each in (offset, timestamp)):
                return None
            headers = tuple((header.key, header.value) for header in read.headers)
            rows.append((offset, timestamp, read.key, read.value, headers))
    except DecodeError:
        return None
    return rows if at == len(content) else None


def _row(record: Any) -> Any:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def _records(codec: Codec, records: Any) -> Any:
    rows = [_row(each) for each in records]
    count = len(records)
    check(count == len(rows), f"{count} records and {len(rows)} rows")
    middle = count // 2
    parts = [[_row(each) for each in part] for part in (records[:middle], records[middle:], records[1:-1])]
    check(parts[0] + parts[1] == rows and parts[2] == rows[1:-1], "slices are not parts of the records")
    ends = (rows[0][0], rows[-1][0]) if rows else (0, 0)
    between = [_row(each) for each in records.between(*ends)]
    split = {place: [_row(each) for each in part] for place, part in records.split("murmur2", 5, 2).items()}
    check(
        sorted(map(repr, chain.from_iterable(split.values()))) == sorted(map(repr, rows)),
        "a split differs from the records",
    )
    columns = codec.columns.Columns.of((records, records[middle:]))
    _check_columns(columns, rows + rows[middle:])
    return (
        rows,
        between,
        split,
        repr(records),
        records.size,
        repr(list(records)),
        _appended(codec, records, rows, columns),
    )


def _check_columns(columns: Any, rows: list[Any]) -> None:
    found = zip(
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        columns.keys.tolist(),
        columns.values.tolist(),
        columns.headers.tolist(),
        strict=True,
    )
    check(list(found) == rows, "the columns differ from the records")


def _appended(codec: Codec, records: Any, rows: list[Any], columns: Any) -> Any:
    """Build a batch of the records in each of the four ways, and return it, or the error that all give."""
    builders = [codec.records.BatchBuilder() for _ in range(4)]
    part = codec.columns.Columns.of((records,))
    ways: list[Callable[[], Any]] = [
        lambda: builders[0].extend(records),
        lambda: builders[1].extend(list(records)),
        lambda: [builders[2].append(*row[1:]) for row in rows],
        lambda: builders[3].extend_columns(part.timestamps, part.keys, part.values, part.headers),
    ]
    outcomes = []
    for builder, way in zip(builders, ways, strict=True):
        try:
            way()
            outcomes.append(builder.build())
        except EncodeError as error:  # the timestamps may be too far apart
            outcomes.append(str(error))
    check(len(set(outcomes)) == 1, f"the ways to append give different batches: {outcomes}")
    if isinstance(outcomes[0], bytes):
        again = codec.records.parse_batch(outcomes[0])
        check(again.crc_matches, "a batch was built with a wrong CRC")
        check([_row(each)[1:] for each in again.records()] == [row[1:] for row in rows], "records differ when reread")
    return outcomes[0]


def record_set(codec: Codec, data: bytes) -> Any:
    """Batches and messages of any version, with and without a check of their CRCs."""
    outcomes: list[Any] = [attempt(list, codec.message_sets.read_record_set(data))[0]]
    outcomes.append(attempt(list, codec.records.read_batches(data, verify=False))[0])
    error, batches = attempt(list, codec.message_sets.read_record_set(data, verify=False))
    for each in batches or ():
        is_batch = isinstance(each, codec.records.RecordBatch)
        outcomes.append(_batch(codec, each) if is_batch else _old_message(codec, each))
    return error, outcomes


def _old_message(codec: Codec, each: Any) -> Any:
    told = (shape(each), each.crc_matches, each.compression, each.log_append_time, each.next_offset)
    sealed = codec.message_sets.build_message(each)
    again = codec.message_sets.parse_message(sealed)
    check(again.crc_matches and again.value == each.value, "a message differs when read again")
    error, inner = attempt(each.unwrapped, LIMIT)
    if error:
        return told, error, attempt(each.records, LIMIT)[0]
    first = inner[0].offset
    records = each.records(LIMIT)
    check([_row(record)[:4] for record in records] == [(m.offset, m.timestamp, m.key, m.value) for m in inner], inner)
    return told, first, _records(codec, records)


def wrapped(codec: Codec, data: bytes) -> Any:
    """The messages of a wrapper, each with a valid size and CRC, so that the codec reads the rest of it."""
    if len(data) < 3:
        return None
    magic, compression = data[0] & 1, codec.message_sets.COMPRESSIONS[data[0] % 3]
    sealed, at = [], 2
    while at < len(data):
        part = data[at + 1 : at + 1 + data[at]]
        at += 1 + len(part)
        head, rest = part[:8], part[8:]
        crc = codec.message_sets.zlib.crc32(rest).to_bytes(4, "big")
        sealed.append(head + (len(rest) + 4).to_bytes(4, "big") + crc + rest)
    value = codec.compression.compress(compression, b"".join(sealed))
    if compression == codec.compression.Compression.LZ4 and magic == 0:
        value = codec.compression.lz4_rechecked(value, old=True)
    outer = codec.message_sets.Message(
        offset=data[1],
        magic=magic,
        attributes=int(compression) | data[0] & 8,
        timestamp=data[1] << 32,
        key=None,
        value=value,
    )
    return record_set(codec, codec.message_sets.build_message(outer))


# ---------------------------------------------------------------------------------------------------------------------
# Kafka 0.7.


def kafka07_messages(codec: Codec, data: bytes) -> Any:
    """A message set of Kafka 0.7, bare and as the content of a wrapper."""
    module = codec.kafka07
    outcomes: list[Any] = [attempt(list, module.read_messages(data))[0]]
    error, messages = attempt(list, module.read_messages(data, 7, verify=False))
    outcomes.append(error)
    wrapper = module.build_message(codec.compression.compress(codec.compression.Compression.GZIP, data), attributes=1)
    messages = [*(messages or ()), *module.read_messages(wrapper)]
    for each in messages:
        told = each.offset, each.next_offset, shape(each.head), bytes(each.payload), each.crc_matches
        error, records = attempt(each.records, LIMIT)
        outcomes.append((told, error or [_row(record) for record in records]))
    return outcomes


def kafka07_frames(codec: Codec, data: bytes) -> Any:
    """Requests and responses of Kafka 0.7."""
    module = codec.kafka07
    outcomes: list[Any] = []
    error, request = attempt(module.parse_request, data)
    if not error:
        check(module.build_request(request)[4:] == data, "a request differs when built again")
    outcomes.append(error or shape(request))
    for parse in (module.parse_fetch_response, module.parse_multi_fetch_response, module.parse_offsets_response):
        error, response = attempt(parse, data)
        if not error:
            check(
                shape(parse(module.build_response(response)[4:])) == shape(response), "a response differs when reread"
            )
        outcomes.append(error or shape(response))
    return outcomes


# ---------------------------------------------------------------------------------------------------------------------
# Compressions and frames.


def decompress(codec: Codec, data: bytes) -> Any:
    """Compressed bytes; the first two bytes choose the compression and the limit."""
    if len(data) < 2:
        return None
    limit = (0, 1, 100, LIMIT)[data[1] & 3]
    error, plain = attempt(codec.compression.decompress, data[0] % 6, data[2:], limit)
    if error:
        return error
    check(data[0] % 6 == 0 or len(plain) <= limit, f"{len(plain)} bytes, but the limit was {limit}")
    again = codec.compression.compress(codec.compression.Compression(data[0] % 6), plain)
    check(codec.compression.decompress(data[0] % 6, again) == plain, "bytes differ when compressed again")
    rechecked = codec.compression.lz4_rechecked(data[2:], old=True)
    check(codec.compression.lz4_rechecked(rechecked, old=True) == rechecked, "a second rewrite changes the checksums")
    return plain


def frames(codec: Codec, data: bytes) -> Any:
    """A request, a response, and a stream of frames."""
    outcomes: list[Any] = []
    try:
        error, request = attempt(codec.frames.parse_request, data)
        outcomes.append(error or (shape(request.header), shape(request.message), request.leftover))
        if not error:
            header = request.header
            codec.frames.build_request(request.message, header.api_version, header.correlation_id, header.client_id)
    except codec.frames.UnknownApi as unknown:
        outcomes.append(shape(unknown.header))
    streams = []
    for step in (1, 5, max(1, len(data))):
        reader, found = codec.frames.FrameReader(limit=100), []
        try:
            for at in range(0, len(data), step):
                found += reader.feed(data[at : at + step])
            streams.append((found, reader.pending))
        except RemoteProtocolError:  # without its text, which depends on how many bytes had arrived
            streams.append((found, "refused"))
    check(streams[0] == streams[1], "frames depend on how the stream is cut into pieces")
    return outcomes, streams


def response(codec: Codec, data: bytes) -> Any:
    """A response frame; the first two bytes choose API and version."""
    if len(data) < 2:
        return None
    apis = list(codec.apis.APIS.values())
    cls = apis[data[0] % len(apis)].response
    versions = cls.__api__.versions
    version = versions.low + data[1] % (versions.high - versions.low + 1)
    error, parsed = attempt(codec.frames.parse_response, cls, version, data[2:])
    if error:
        return error
    correlation_id, value = parsed
    frame = codec.frames.build_response(value, version, correlation_id)
    again = codec.frames.parse_response(cls, version, frame[4:])
    check(shape(again) == shape(parsed), "a response differs when read again")
    return shape(parsed)


# ---------------------------------------------------------------------------------------------------------------------
# Stored files and records.


def stored(codec: Codec, data: bytes) -> Any:
    """A file of a data folder, or a record of an internal topic; the first byte chooses."""
    if not data:
        return None
    kind, data = data[0] % 9, data[1:]
    points, module = codec.modules["stored.checkpoints"], codec.modules
    match kind:
        case 0:
            return _both_ways(lambda d: tuple(points.parse_leader_epochs(d)), points.build_leader_epochs, data)
        case 1:
            return _both_ways(lambda d: tuple(points.parse_offsets(d)), points.build_offsets, data)
        case 2:
            return _both_ways(points.parse_partition_metadata, points.build_partition_metadata, data)
        case 3:
            points.build_properties(points.parse_properties(data))  # not compared as bytes: spaces get lost
            return shape(points.parse_properties(data))
        case 4:
            snapshots = module["stored.snapshots"]
            return _both_ways(snapshots.parse_snapshot, snapshots.build_snapshot, data)
        case 5:
            return _indexes(codec, data)
        case 6:
            return _control(codec, data)
        case 7:
            return _internal(codec, data)
    consumers = codec.consumer_protocol
    return [
        error or shape(value)
        for error, value in (
            attempt(parse, data)
            for parse in (consumers.parse_subscription, consumers.parse_assignment, consumers.parse_sticky)
        )
    ]


def _both_ways(parse: Callable[[bytes], Any], build: Callable[[Any], bytes], data: bytes) -> Any:
    error, value = attempt(parse, data)
    if not error:
        check(shape(parse(build(value))) == shape(value), "a file differs when read again")
    return error or shape(value)


def _indexes(codec: Codec, data: bytes) -> Any:
    outcomes: list[Any] = []
    indexes = codec.modules["stored.indexes"]
    for cls in indexes.ENTRY_SIZES:
        error, entries = attempt(list, indexes.parse_entries(cls, data))
        if not error:
            check(b"".join(map(indexes.build_entry, entries)) == data, "an index differs when built again")
        outcomes.append(error or shape(entries))
    return outcomes


def _key_and_value(data: bytes) -> tuple[bytes, bytes | None]:
    """Key and value: the first byte holds the key's length, and in its highest bit whether the value is null."""
    end = 1 + (data[0] & 0x7F if data else 0)
    return data[1:end], None if data and data[0] > 0x7F else data[end:]


def _control(codec: Codec, data: bytes) -> Any:
    control = codec.modules["stored.control"]
    key, value = _key_and_value(data)
    error, record = attempt(control.parse_control, key, value)
    if error or record is None:
        return error
    again = control.parse_control(*control.build_control(record))
    check(shape(again) == shape(record), "a control record differs when read again")
    return record.name, shape(record)


def _internal(codec: Codec, data: bytes) -> Any:
    topics = codec.modules["stored.internal_topics"]
    outcomes: list[Any] = []
    for topic in topics.INTERNAL_TOPICS:
        error, record = attempt(topics.parse_internal, topic, *_key_and_value(data))
        if record is not None:
            again = topics.parse_internal(topic, *topics.build_internal(record))
            check(shape(again) == shape(record), "a record differs when read again")
        outcomes.append(error or shape(record))
    return outcomes


# ---------------------------------------------------------------------------------------------------------------------
# Dumps.


def dump(codec: Codec, data: bytes) -> Any:
    """A dump of a file or a stream; the first four bytes choose its kind and the options."""
    if len(data) < 4:
        return None
    kind, flags, api, version, data = data[0] % 10, data[1], data[2], data[3], data[4:]
    module = codec.modules["dump"]
    options = module.DumpOptions(
        topic=("__consumer_offsets", "__transaction_state", "__share_group_state", "other")[flags & 3],
        base_offset=None if flags & 4 else 1 << 40,
        start=3 if flags & 8 else 0,
        records=not flags & 16,
        deep=bool(flags & 32),
        raw=bool(flags & 64),
    )
    if kind == 0:
        apis = codec.apis.APIS
        key = list(apis)[api % len(apis)]
        versions = apis[key].response.__api__.versions
        version = versions.low + version % (versions.high - versions.low + 1)
        return _dumped(codec, lambda pieces: module.dump_responses(pieces, options, api_key=key, version=version), data)
    functions = [
        *(module.dump_requests, module.dump_segment, module.dump_segment_07, module.dump_offset_index),
        *(module.dump_time_index, module.dump_transaction_index, module.dump_snapshot, module.dump_leader_epochs),
        *(module.dump_offsets, module.dump_partition_metadata, module.dump_properties),
    ]
    return _dumped(codec, lambda pieces: functions[kind - 1 if kind < 9 else 8 + api % 3](pieces, options), data)


def _dumped(codec: Codec, items_of: Callable[[Iterable[bytes]], Iterable[Any]], data: bytes) -> Any:
    whole = _texts(codec, items_of([data]))
    pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
    check(_texts(codec, items_of(pieces)) == whole, "a dump depends on how its input is cut into pieces")
    return whole


def _texts(codec: Codec, items: Iterable[Any]) -> list[str]:
    module = codec.modules["dump"]
    texts, ended = [], False
    for item in items:
        check(not ended, "a dump continues after an item that says the rest is unreadable")
        texts += [module.text(item), module.text(item, full=True)]
        if item.kind == module.BROKEN:
            mark, around = item.fields["first_broken"], bytes.fromhex(item.fields["bytes"])
            check(0 <= mark <= len(around), f"byte {mark} of {len(around)}")
            ended = "rest" in item.fields
    for text in texts:
        check(text.replace("\n", "").isprintable(), f"the text contains control characters: {text!r}")
    return texts


OTHERS: dict[str, Exercise] = {
    "batch": batch,
    "body": body,
    "record_set": record_set,
    "wrapped": wrapped,
    "kafka07_messages": kafka07_messages,
    "kafka07_frames": kafka07_frames,
    "decompress": decompress,
    "frames": frames,
    "response": response,
    "stored": stored,
    "dump": dump,
}
"""The exercises for everything but messages."""
