"""The loops over records in Python. `ottla.codec._records` does the same in C, with the same names.

They are written by hand because a table-driven machine is too slow for records. `ottla.codec.records.RecordBody`
declares the format, and the tests compare the loops with it.

Rules:
- A body is checked as a whole before the caller sees a record of it. If a record is damaged, the loops only report
  which one (`DamagedRecord`). The declaration then parses that record again and describes the error. So both engines
  report the same error.
- Records are never appended in part: a record, or a list of records, is in the batch or it is not. After a failure
  `refuse` checks the record again, to say why. So good records cost nothing extra, and both engines report the same
  error.
"""

import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import accumulate, chain, islice, repeat
from operator import gt
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, final, overload

from ottla.codec.layout import BinaryColumn, Buffer, HeaderColumn, Headers
from ottla.errors import EncodeError, LocalProtocolError
from ottla.late_dataclass import dataclass
from ottla.misnamed import Misnamed

Head = TypeVar("Head", bound="BatchHead")

LEAST_RECORD = 7
"""Size of the shortest record in bytes: a length and six fields of one byte."""
RECORD_MEMORY = 96
"""Bytes of memory for a record besides its key and value. In C: 48 for its position, and 48 for the `Record`. In
Python 40, and up to 48 each for key and value."""
HEADER_MEMORY = 176
"""Bytes of memory for a header besides its name and value, at most: a tuple, its place in a tuple, and two objects."""
WIDE = 4
"""Most bytes of memory for each byte of a header name that is not ASCII."""
NO_TIMESTAMP = -1
BEYOND = 1 << 63
"""Higher than any offset."""
_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
_INT32_MAX = (1 << 31) - 1


class DamagedRecord(Exception):
    """Record ``row``, which begins at byte ``at``, does not parse; or extra bytes follow the last record."""

    def __init__(self, row: int, at: int) -> None:
        super().__init__(row, at)
        self.row = row
        self.at = at


class TooMuchMemory(Exception):
    """The records of a batch would take more memory than allowed."""


# ---------------------------------------------------------------------------------------------------------------------
# Reading.

_HEAD = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEAD.size
"""Size of a batch header in bytes."""
_LENGTH_END = 12
_MAGIC = 2
LOG_APPEND_TIME = 0x08
MIX_MULTIPLIER, SECOND_MIX_MULTIPLIER = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9
"""Multipliers for fingerprints: random-looking odd numbers."""
FARTHEST = _INT64_MAX - (1 << 32)
"""The largest base offset to which the offset deltas of a batch can be added without overflow."""


class BatchHead:
    """The fields of a `ottla.codec.records.BatchHeader` except length and magic, and the batch's bytes in `data`."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "data",
        "last_offset_delta",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )
    base_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    data: memoryview

    def read(self, data: memoryview, offset: int) -> bool:
        """Read the header of the batch at ``data[offset]``; return whether a complete batch of magic 2 begins there."""
        if len(data) - offset < HEADER_SIZE:
            return False
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEAD.unpack_from(data, offset)
        end = offset + _LENGTH_END + length
        if magic != _MAGIC or end > len(data) or end - offset < HEADER_SIZE:
            return False
        self.data = data[offset:end]
        return True

    def parse(self, body: Buffer, room: int) -> "Records":
        """Parse the records of this batch from ``body``, their decompressed bytes.

        Raises:
            DamagedRecord, TooMuchMemory: see `parse_records`.
        """
        stamp = self.max_timestamp if self.attributes & LOG_APPEND_TIME else None
        return parse_records(body, self.count, self.base_offset, self.base_timestamp, stamp, room)


def read_heads(make: type[Head], data: memoryview, end: int, mask: int) -> tuple[list[Head], int]:
    """Return the consecutive batches of magic 2 at the beginning of ``data``, and where they end.

    Stops at the first batch with an attribute of ``mask``, and at a batch that ends before offset ``end`` or overlaps
    with the previous one. More batches may follow.
    """
    heads: list[Head] = []
    at = 0
    while (head := make()).read(data, at) and not head.attributes & mask and 0 <= head.base_offset <= FARTHEST:
        last_offset = head.base_offset + head.last_offset_delta
        if (at and head.base_offset < end) or last_offset < end:
            break
        end = last_offset + 1
        heads.append(head)
        at += len(head.data)
    return heads, at


@final
@dataclass(frozen=True, slots=True, init=False)
class Record:
    """One record as a consumer sees it.

    It keeps the bytes of its whole batch alive. Key, value and headers are created each time they are read (in C; in
    Python they already exist), so keep a value in a variable if you use it twice.

    Attributes:
        offset: its position in the partition.
        timestamp: milliseconds since 1970; -1 if the record has none.
        key, value: bytes, or ``None`` (a null value is a tombstone in compacted topics).
        headers: pairs in the producer's order; names may repeat.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def __init__(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        # Setting the slots directly takes half the time of a frozen dataclass's own __init__.
        _set_offset(self, offset)
        _set_timestamp(self, timestamp)
        _set_key(self, key)
        _set_value(self, value)
        _set_headers(self, headers)

    if not TYPE_CHECKING:
        topic = Misnamed("its batch has it")
        partition = Misnamed("its batch has it")

    def __reduce__(self) -> tuple[Any, ...]:
        return make_record, (self.offset, self.timestamp, self.key, self.value, self.headers)


_set_offset, _set_timestamp, _set_key, _set_value, _set_headers = (
    vars(Record)[name].__set__ for name in ("offset", "timestamp", "key", "value", "headers")
)


def make_record(*fields: Any) -> Any:
    """Make a `Record` of the running engine. Pickle calls this, so that one engine can read the other's pickles.

    The class is looked up by name, because the engine is chosen in a module that imports this one.
    """
    return import_module("ottla.codec.records").Record(*fields)


def refuse_pickling() -> NoReturn:
    raise TypeError("Records are not pickled: pickle the bytes of their batch, or a list of them")


_NO_NUMBERS = array("q")


@final
class Records:
    """The records of one batch, in order; made by `RecordBatch.records`. A slice is `Records` too."""

    __slots__ = ("_headers", "_keys", "_offsets", "_timestamps", "_values")

    def __init__(
        self,
        offsets: "array[int]" = _NO_NUMBERS,
        timestamps: "array[int]" = _NO_NUMBERS,
        keys: Sequence[bytes | None] = (),
        values: Sequence[bytes | None] = (),
        headers: Sequence[Headers] = (),
    ) -> None:
        self._offsets, self._timestamps = offsets, timestamps
        self._keys, self._values, self._headers = keys, values, headers

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self._offsets, self._timestamps, self._keys, self._values, self._headers)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "Record | Records":
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("records have no slices with steps")
            return self._slice(start, stop)
        try:
            offset = self._offsets[index]
        except IndexError:
            raise IndexError(f"there is no record {index} among {len(self)}") from None
        return Record(offset, self._timestamps[index], self._keys[index], self._values[index], self._headers[index])

    def __repr__(self) -> str:
        return f"<{len(self)} records from offset {self._offsets[0]} on>" if self._offsets else "<0 records>"

    @property
    def size(self) -> int:
        """Total size of all keys and values in bytes."""
        return sum(map(len, filter(None, self._keys))) + sum(map(len, filter(None, self._values)))

    @property
    def keyless(self) -> int:
        """Number of records without a key."""
        return self._keys.count(None)

    @property
    def time_span(self) -> int:
        """Milliseconds between the smallest timestamp and the largest."""
        return max(self._timestamps) - min(self._timestamps) if self._timestamps else 0

    def without_key(self, most: int) -> list[int]:
        """Indexes of records without a key; of ``most`` at most, the first ones."""
        return list(islice((row for row, key in enumerate(self._keys) if key is None), most))

    def outside(self, first: int, last: int, most: int) -> list[int]:
        """Indexes of records with a timestamp before ``first`` or after ``last``; as `without_key`."""
        return list(islice((row for row, each in enumerate(self._timestamps) if not first <= each <= last), most))

    def larger(self, size: int, most: int) -> list[int]:
        """Indexes of records whose key, value and encoded headers have more than ``size`` bytes; as `without_key`."""
        rows = enumerate(zip(self._keys, self._values, self._headers, strict=True))
        sizes = (
            (row, len(key or b"") + len(value or b"") + _headers_size(headers)) for row, (key, value, headers) in rows
        )
        return list(islice((row for row, each in sizes if each > size), most))

    @property
    def memory(self) -> int:
        """Approximate memory in bytes: of the decompressed batch, and of the parsed records."""
        size = self.size + RECORD_MEMORY * len(self)
        for headers in filter(None, self._headers):
            size += sum(
                HEADER_MEMORY + len(name) * (1 if name.isascii() else WIDE) + len(value or b"")
                for name, value in headers
            )
        return size

    def between(self, start: int, stop: int) -> "Records":
        """Return the records with offsets from ``start`` up to, not including, ``stop``, as a fetch wants them."""
        offsets = self._offsets
        return self._slice(bisect_left(offsets, start), bisect_left(offsets, stop))

    def split(self, partitioner: str, partitions: int, keyless: int) -> "dict[int, Records]":
        """Divide the records by the partitions of their keys; in the order of partitions, without empty ones.

        Args:
            keyless: the partition for records without a key.

        Raises:
            ValueError: the partitioner does not exist, or ``partitions`` is less than 1, or ``keyless`` less than 0.
        """
        place = hash_named(partitioner)
        positive(partitions)
        positive(keyless + 1)
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(self._keys):
            rows.setdefault(keyless if key is None else place(key, partitions), []).append(row)
        return {partition: self._pick(rows[partition]) for partition in sorted(rows)}

    def fingerprints(self, stamps: Sequence[int] | None = None) -> list[int]:
        """Return for each record a hash of everything but its offset: 64 bits, the same in every process and engine.

        Different records hardly ever have the same hash by chance, but an attacker can construct such records.

        Args:
            stamps: for each record a number in [-2**63, 2**63) that is hashed instead of its timestamp.
        """
        return list(
            map(_fingerprint, self._timestamps if stamps is None else stamps, self._keys, self._values, self._headers)
        )

    def __reduce__(self) -> NoReturn:
        refuse_pickling()

    def _pick(self, rows: list[int]) -> "Records":
        return Records(
            array("q", [self._offsets[row] for row in rows]),
            array("q", [self._timestamps[row] for row in rows]),
            [self._keys[row] for row in rows],
            [self._values[row] for row in rows],
            [self._headers[row] for row in rows],
        )

    def _slice(self, start: int, stop: int) -> "Records":
        return Records(
            self._offsets[start:stop],
            self._timestamps[start:stop],
            self._keys[start:stop],
            self._values[start:stop],
            self._headers[start:stop],
        )


def _fingerprint(timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    mixed = _mix(_mix_bytes(_mix_bytes(_mix(0, timestamp), key), value), len(headers))
    for name, content in headers:
        mixed = _mix_bytes(_mix_bytes(mixed, name.encode()), content)
    return mixed if mixed <= _INT64_MAX else mixed - _UINT64_MAX - 1


def _mix_bytes(mixed: int, data: bytes | None) -> int:
    if data is None:
        return _mix(mixed, -1)
    mixed = _mix(mixed, len(data))
    for at in range(0, len(data), 8):
        mixed = _mix(mixed, int.from_bytes(data[at : at + 8], "big"))
    return mixed


def _mix(mixed: int, number: int) -> int:
    """Bijective in each of the two arguments, so a difference in one number always changes the result."""
    number = number * MIX_MULTIPLIER & _UINT64_MAX
    mixed = ((mixed ^ number ^ (number >> 29)) * SECOND_MIX_MULTIPLIER) & _UINT64_MAX
    return mixed ^ (mixed >> 32)


def parse_records(
    body: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    room: int = _INT64_MAX,
) -> Records:
    """Parse the ``count`` records of a decompressed body.

    Args:
        append_time: the timestamp of all records, if the broker has set it.
        room: bytes of memory that their headers may take.

    Raises:
        DamagedRecord: they are damaged, their number differs, or an offset or timestamp does not fit 64 bits.
        TooMuchMemory: the headers of the records before the first damaged one would take more.
    """
    data = body if type(body) is bytes else bytes(body)
    if not 0 <= count <= len(data) // LEAST_RECORD:
        raise DamagedRecord(0, 0)
    offsets, timestamps = list[int](), list[int]()
    keys, values, headers = list[bytes | None](), list[bytes | None](), list[Headers]()
    damaged, too_much = None, False
    try:
        if _fill(offsets, timestamps, keys, values, headers, data, count, room) != len(data):
            damaged = count
    except (IndexError, _Damaged):
        damaged = len(headers)
    except TooMuchMemory:
        too_much = True
    read = len(headers) + too_much  # the record that exceeds the limit is read except for its headers
    overflow = _rebase(offsets, base_offset, read)
    if append_time is not None:
        timestamps = [append_time] * read
    else:
        overflow = min(overflow, _rebase(timestamps, base_timestamp, read))
    if overflow < read:
        damaged = overflow
    if damaged is not None:
        raise DamagedRecord(damaged, _end_of(data, damaged))
    if too_much:
        raise TooMuchMemory
    return Records(array("q", offsets), array("q", timestamps), keys, values, headers)


def scan_records(body: Buffer, count: int, base_timestamp: int) -> tuple[int, int, int, int]:
    """Return where the last of ``count`` records ends, their smallest and largest timestamp, and how many have no key.

    Keys, values and headers are skipped by their sizes. The smallest timestamp ignores records with `NO_TIMESTAMP`; if
    there are no others, both are `NO_TIMESTAMP`.

    The end is -1 if the bytes end too early, a record is damaged, or a record's offset delta differs from its index.
    """
    end, size, keyless = 0, len(body), 0
    smallest, largest = _INT64_MAX, NO_TIMESTAMP
    try:
        for row in range(count):
            length, start = _read_varint(body, end)
            end = start + length
            if not start < end <= size:
                return _NO_SCAN
            delta, behind = body[start + 1], start + 2
            if delta > 0x7F:
                delta, behind = _long_varint(body, behind, 64)
            offset, behind = _read_varint(body, behind)
            key_size, behind = _step_over(body, behind)
            _, behind = _step_over(body, behind)
            headers, behind = _read_varint(body, behind)
            if headers < 0 or headers > end - behind:
                return _NO_SCAN
            for _ in range(headers):
                name_size, behind = _step_over(body, behind)
                _, behind = _step_over(body, behind)
                if name_size < 0 or behind > end:
                    return _NO_SCAN
            timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
            if offset != row or behind != end or not _INT64_MIN <= timestamp <= _INT64_MAX:
                return _NO_SCAN
            if timestamp > largest:
                largest = timestamp
            if timestamp < smallest and timestamp != NO_TIMESTAMP:
                smallest = timestamp
            keyless += key_size == -1
    except (IndexError, _Damaged):
        return _NO_SCAN
    return end, NO_TIMESTAMP if smallest > largest else smallest, largest, keyless


_NO_SCAN = -1, NO_TIMESTAMP, NO_TIMESTAMP, 0


def scan_keys(
    data: Buffer,
    start: int,
    count: int,
    partitioner: str,
    partitions: int,
    own: int,
    most: int = 0,
    stride: int = 1,
) -> tuple[int, int, int, list[tuple[int, bytes, int]]]:
    """Return where the last of ``count`` records ends, how many have no key, how many keys belong to another partition
    than ``own``, and some of the latter: the index of the record, the key, and its partition.

    Values and headers are skipped by the records' sizes. The end is -1 if the bytes end too early, or a record is
    damaged before its value.

    Args:
        start: where the first record begins.
        own: -1: all keys belong to another partition.
        most: how many misplaced records to return at most: every ``stride``-th.

    Raises:
        ValueError: the partitioner does not exist, or ``partitions`` is less than 1.
    """
    place, size, end = hash_named(partitioner), len(data), start
    positive(partitions)
    keyless = misplaced = 0
    found: list[tuple[int, bytes, int]] = []
    if not 0 <= start <= size:
        return -1, 0, 0, []
    try:
        for row in range(count):
            length, at = _read_varint(data, end)
            end = at + length
            if not at < end <= size:
                return -1, 0, 0, []
            if data[at + 1] > 0x7F:
                _, at = _long_varint(data, at + 2, 64)
            else:
                at += 2
            _, at = _read_varint(data, at)
            key_size, behind = _step_over(data, at)
            if behind > end:
                return -1, 0, 0, []
            if key_size < 0:
                keyless += 1
                continue
            key = bytes(data[behind - key_size : behind])
            if (partition := place(key, partitions)) != own:
                if len(found) < most and misplaced % max(stride, 1) == 0:
                    found.append((row, key, partition))
                misplaced += 1
    except (IndexError, _Damaged):
        return -1, 0, 0, []
    return end, keyless, misplaced, found


def count_keys(batches: Iterable[tuple[int, Buffer]], partitioner: str, partitions: int) -> tuple[int, int, int]:
    """Count the records of uncompressed batches, how many have no key, and how many keys belong to another partition
    than the batch.

    Damaged batches are left out, and batches with bytes behind their last record.

    Args:
        batches: each with its partition.

    Raises:
        ValueError: the partitioner does not exist, or ``partitions`` is less than 1.
    """
    hash_named(partitioner)
    positive(partitions)
    records = keyless = misplaced = 0
    for own, data in batches:
        if len(data) < HEADER_SIZE:
            continue
        count = _HEAD.unpack_from(data)[-1]
        end, without_key, elsewhere, _ = scan_keys(data, HEADER_SIZE, count, partitioner, partitions, own)
        if end == len(data):
            records += count
            keyless += without_key
            misplaced += elsewhere
    return records, keyless, misplaced


def _end_of(body: bytes, count: int) -> int:
    """Return where the first ``count`` records, which are intact, end."""
    end = 0
    for _ in range(count):
        length, start = _read_varint(body, end)
        end = start + length
    return end


class _Damaged(Exception):
    pass


def _rebase(deltas: list[int], base: int, count: int) -> int:
    """Replace ``deltas`` by absolute values; return the index of the first that does not fit 64 bits."""
    deltas[:] = [base + delta for delta in deltas]
    if not deltas or _INT64_MIN <= min(deltas) <= max(deltas) <= _INT64_MAX:
        return count
    return next(row for row, value in enumerate(deltas) if not _INT64_MIN <= value <= _INT64_MAX)


def _fill(
    offsets: list[int],
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: list[Headers],
    body: bytes,
    count: int,
    room: int,
) -> int:
    """Parse ``count`` records, with offsets and timestamps as deltas; return where the last record ends."""
    # Varints of two bytes are read in place: a call would cost more than the rest of the field. Lengths need not be
    # compared with what is left: a slice stops at the end of the body, and then the record ends at the wrong place.
    add_offset, add_timestamp = offsets.append, timestamps.append
    add_key, add_value, add_headers = keys.append, values.append, headers.append
    at = 0
    for _ in range(count):
        n, at = body[at], at + 1
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 32)
        end = at + ((n >> 1) ^ -(n & 1))
        n, at = body[at + 1], at + 2  # after the attributes
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 64)
        add_timestamp((n >> 1) ^ -(n & 1))
        n, at = body[at], at + 1
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 32)
        add_offset((n >> 1) ^ -(n & 1))
        n, at = body[at], at + 1
        if n > 0x7F:
            n, at = _long_varint(body, at, 32)
        if n & 1:
            if n != 1:
                raise _Damaged
            add_key(None)
        else:
            add_key(body[at : (at := at + (n >> 1))])
        n, at = body[at], at + 1
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 32)
        if n & 1:
            if n != 1:
                raise _Damaged
            add_value(None)
        else:
            add_value(body[at : (at := at + (n >> 1))])
        found: Headers = ()
        if body[at]:
            if end > len(body):
                raise _Damaged
            found, at, room = _read_headers(body, at, end, room)
        else:
            at += 1
        if at != end:
            raise _Damaged
        add_headers(found)
    return at


def _long_varint(body: Buffer, position: int, bits: int) -> tuple[int, int]:
    """Return the raw varint of several bytes whose first byte is before ``position``, and where it ends."""
    value, shift = body[position - 1] & 0x7F, 7
    while shift < bits:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, position
        shift += 7
    raise _Damaged


def _read_varint(body: Buffer, position: int) -> tuple[int, int]:
    value, position = body[position], position + 1
    if value > 0x7F:
        value, position = _long_varint(body, position, 32)
    return (value >> 1) ^ -(value & 1), position


def _step_over(body: Buffer, position: int) -> tuple[int, int]:
    """Return the size of the bytes field there, -1 for null, and where it ends."""
    size, start = _read_varint(body, position)
    if size < -1:
        raise _Damaged
    return size, start + max(size, 0)


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, start = _read_varint(body, position)
    if size == -1:
        return None, start
    if not 0 <= size <= end - start:
        raise _Damaged
    return body[start : start + size], start + size


def _read_headers(body: bytes, position: int, end: int, room: int) -> tuple[Headers, int, int]:
    count, position = _read_varint(body, position)
    if not 0 <= count <= end - position:
        raise _Damaged
    room -= count * HEADER_MEMORY
    if room < 0:
        raise TooMuchMemory
    headers = []
    for _ in range(count):
        data, position = _read_bytes(body, position, end)
        if data is None:
            raise _Damaged
        try:
            name = data.decode()
        except UnicodeDecodeError:
            raise _Damaged from None
        if len(name) < len(data) and (room := room - (WIDE - 1) * len(data)) < 0:
            raise TooMuchMemory
        value, position = _read_bytes(body, position, end)
        headers.append((name, value))
    return tuple(headers), position, room


# ---------------------------------------------------------------------------------------------------------------------
# Columns.


Parts = tuple[memoryview, memoryview, memoryview | None]
"""The buffers of a `BinaryColumn`: offsets, data, validity."""
Gathered = tuple[memoryview, memoryview, Parts, Parts, tuple[memoryview, Parts, Parts] | None]
"""The buffers of `Columns`: offsets, timestamps, keys, values, headers; ``None`` if no record has any header."""


def gather(parts: Sequence[Records]) -> Gathered:
    """Return the records of ``parts``, in order, as columns.

    Raises:
        LocalProtocolError: keys, values, header names or header values take more than 2 GiB: offsets have 32 bits.
        TypeError: a part is not `Records`.
    """
    for part in parts:
        if not isinstance(part, Records):
            raise no_records(part)
    of_all = [each for part in parts for each in part._headers]
    headers = None
    if any(of_all):
        pairs = list(chain.from_iterable(of_all))
        names, values = [name.encode() for name, _ in pairs], [value for _, value in pairs]
        headers = _offsets(map(len, of_all)), _column(names), _column(values)
    return (
        memoryview(array("q", chain.from_iterable(part._offsets for part in parts))).toreadonly(),
        memoryview(array("q", chain.from_iterable(part._timestamps for part in parts))).toreadonly(),
        _column([key for part in parts for key in part._keys]),
        _column([value for part in parts for value in part._values]),
        headers,
    )


def lay_out(heads: Sequence[BatchHead], bodies: Sequence[tuple[Buffer, int]], start: int) -> Gathered:
    """Return the records of batches, from offset ``start`` on, as columns; the same as to `parse` and `gather` them.

    Args:
        heads: the batches.
        bodies: for each batch, the decompressed bytes of its records, and the memory that their headers may take.

    Raises:
        DamagedRecord, TooMuchMemory: see `parse_records`; in one of the batches.
        LocalProtocolError: see `gather`.
    """
    return gather([head.parse(*each).between(start, BEYOND) for head, each in zip(heads, bodies, strict=True)])


def too_large() -> LocalProtocolError:
    return LocalProtocolError("a column would take more than 2 GiB: take fewer batches at a time")


def no_records(part: object) -> TypeError:
    return TypeError(f"columns are made of Records, not of {type(part).__name__}")


def _offsets(sizes: Iterable[int]) -> memoryview:
    return memoryview(array("i", accumulate(sizes, initial=0))).toreadonly()


def _column(items: Sequence[bytes | None]) -> Parts:
    present = [item for item in items if item is not None]
    validity = None
    if len(present) != len(items):
        bits = "".join("0" if item is None else "1" for item in reversed(items))
        validity = memoryview(int(bits, 2).to_bytes((len(items) + 7) // 8, "little"))
    data = b"".join(present)
    if len(data) > _INT32_MAX:
        raise too_large()
    return _offsets(0 if item is None else len(item) for item in items), memoryview(data), validity


# ---------------------------------------------------------------------------------------------------------------------
# Writing.


def _headers_size(headers: Headers) -> int:
    """Bytes of encoded headers with their count; 0 if there are none."""
    size = len(_varint(len(headers))) if headers else 0
    for name, value in headers:
        known = len(name.encode())
        size += len(_varint(known)) + known + len(_varint(-1 if value is None else len(value))) + len(value or b"")
    return size


def _encode_varint(value: int) -> bytes:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise ValueError
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes((2 * value,)) if value < 64 else bytes((2 * value & 0x7F | 0x80, value >> 6)) for value in range(8192)]


def _varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < 8192 else _encode_varint(value)


def _sized(data: object) -> bytes:
    """Return ``data`` with its length in front."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError
    data = memoryview(data).tobytes()  # bytes(data) could call a method of a subclass
    return _varint(len(data)) + data


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of a record, with their count in front.

    Raises:
        EncodeError: they are not pairs of str and bytes.
    """
    if not isinstance(headers, tuple | list):
        hint = ": give tuple(headers.items())" if isinstance(headers, dict) else ""
        raise EncodeError(f"headers are a list or tuple of (name, value) pairs, not {type(headers).__name__}{hint}")
    parts = [_varint(len(headers))]
    for header in headers:
        match header:
            case (str(name), None | bytes() | bytearray() | memoryview() as value):
                try:
                    parts += (_sized(name.encode()), b"\1" if value is None else _sized(value))
                except UnicodeEncodeError as error:
                    raise EncodeError(f"the header name {name!r:.80} is not encodable: {error.reason}") from None
                except ValueError as error:
                    raise EncodeError(f"the value of header {name!r:.80} cannot be read: {error}") from None
            case _:
                hint = (
                    ": encode the value"
                    if isinstance(header, tuple) and all(isinstance(x, str) for x in header)
                    else ""
                )
                raise EncodeError(f"headers are pairs of a str and bytes or None, not {header!r:.80}{hint}")
    return b"".join(parts)


class Appender:
    """Encodes records, one after the other.

    Attributes:
        count: number of records so far.
        base_timestamp, max_timestamp: the first and the largest timestamp; -1 before the first record.
    """

    __slots__ = ("_whole", "base_timestamp", "count", "max_timestamp")

    def __init__(self) -> None:
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self._whole = bytearray(HEADER_SIZE)

    @property
    def body(self) -> memoryview:
        """The encoded records; while the caller holds this view, no record can be appended."""
        return memoryview(self._whole)[HEADER_SIZE:]

    def _seal(self, header: bytes) -> Buffer:
        """Return the records with a batch header in front: in place, or a copy if a view of the records exists.

        While the caller holds a result that is not a copy, no record can be appended.
        """
        if len(header) != HEADER_SIZE:
            raise ValueError(f"a header has {HEADER_SIZE} bytes, not {len(header)}")
        try:
            self._whole.append(0)  # raises if a view exists
        except BufferError:
            return b"".join((header, self.body))
        del self._whole[-1]
        self._whole[:HEADER_SIZE] = header
        return memoryview(self._whole).toreadonly()

    def expect(self, size: int) -> None:
        """Reserve memory for ``size`` more bytes of records, which would otherwise be copied as the batch grows."""

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add a record; return its index in the batch. ``timestamp`` is in milliseconds since 1970.

        Raises:
            EncodeError: a key, value or header is not bytes, or the timestamp is not a 64-bit integer or too far from
                the first one; the record is not added.
        """
        index = self.count
        try:
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise ValueError
            record = b"".join(
                (
                    b"\0",
                    _varint(timestamp - (self.base_timestamp if index else timestamp)),
                    _varint(index),
                    b"\1" if key is None else _varint(len(key)) + key if type(key) is bytes else _sized(key),
                    b"\1" if value is None else _varint(len(value)) + value if type(value) is bytes else _sized(value),
                    b"\0" if headers == () else encode_headers(headers),
                )
            )
        except (TypeError, ValueError):  # checked only after a failure, so that good records cost nothing extra
            refuse(timestamp, key, value, headers, self.base_timestamp if index else None)
        try:
            self._whole += _varint(len(record)) + record
        except BufferError:
            raise BufferError("the records are being read") from None
        if index == 0:
            self.base_timestamp = self.max_timestamp = int(timestamp)
        elif timestamp > self.max_timestamp:
            self.max_timestamp = int(timestamp)
        self.count = index + 1
        return index

    def extend(self, records: "Iterable[Record | tuple[Any, ...]]") -> int:
        """Add many records, or none if one is invalid; return the index of the first.

        Args:
            records: `Record`s, whose offsets are ignored, or tuples ``(timestamp, key, value)`` or
                ``(timestamp, key, value, headers)``. `Records` are copied without checking each record.

        Raises:
            EncodeError: see `append`.
        """
        before = (len(self._whole), self.count, self.base_timestamp, self.max_timestamp)
        try:
            for record in records:
                if type(record) is Record:
                    self.append(record.timestamp, record.key, record.value, record.headers)
                elif isinstance(record, tuple) and 3 <= len(record) <= 4:
                    self.append(*record)
                else:
                    refuse_record(record)
        except BaseException:  # an interrupt too: add all of the records or none
            self._whole = self._whole[: before[0]]  # a copy: the old one cannot shrink if a view of it exists
            _, self.count, self.base_timestamp, self.max_timestamp = before
            raise
        return before[1]

    def extend_columns(
        self, timestamps: Buffer, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn | None = None
    ) -> int:
        """Add a record for each row of some columns, or none if one is invalid; return the index of the first.

        Args:
            timestamps: 64-bit integers, in milliseconds since 1970.

        Raises:
            EncodeError: the columns do not fit together, or see `append`.
        """
        check_columns(timestamps, keys, values, headers)
        stamps = memoryview(timestamps).cast("B").cast("q")
        return self.extend(zip(stamps, keys, values, repeat(()) if headers is None else headers, strict=False))


def check_bytes(key: object, value: object, headers: object) -> None:
    """Raise an `EncodeError` with advice, unless key and value are bytes and headers pairs of str and bytes."""
    for what, given in (("key", key), ("value", value)):
        if given is None:
            continue
        if isinstance(given, bytes | bytearray | memoryview):
            try:
                memoryview(given)
            except ValueError as error:
                raise EncodeError(f"the {what} cannot be read: {error}") from None
        elif isinstance(given, str):
            raise EncodeError(f"the {what} is a str: encode it first, as in {given[:20]!r}.encode()")
        else:
            raise EncodeError(f"the {what} is {type(given).__name__}, and must be bytes or None")
    encode_headers(headers)  # type: ignore[arg-type] # it checks the type


def refuse(timestamp: object, key: object, value: object, headers: object, first: int | None) -> NoReturn:
    """Say why a record cannot be appended to a batch whose first timestamp is ``first``.

    Raises:
        EncodeError: always.
    """
    check_bytes(key, value, headers)
    if not isinstance(timestamp, int):
        raise EncodeError(f"the timestamp is {timestamp!r:.80}, and must be an int of milliseconds")
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise EncodeError(f"the timestamp {timestamp!r:.80} does not fit 64 bits")
    raise EncodeError(f"the timestamp {int(timestamp)} is more than 64 bits away from the first of the batch, {first}")


def refuse_record(record: object) -> NoReturn:
    """Say that ``record`` is not a record. Always raises `EncodeError`."""
    shapes = "a Record, (timestamp, key, value) or (timestamp, key, value, headers)"
    raise EncodeError(f"a record is {shapes}, not {record!r:.80}")


def check_columns(timestamps: Buffer, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn | None) -> None:
    """Raise `EncodeError` unless the columns have equal lengths, and their offsets are within their data."""
    rows, odd = divmod(memoryview(timestamps).nbytes, 8)
    if odd or not rows == len(keys) == len(values):
        raise EncodeError(f"{rows} timestamps, {len(keys)} keys and {len(values)} values")
    check_offsets("keys", keys, rows)
    check_offsets("values", values, rows)
    if headers is None:
        return
    pairs = len(headers.names)
    if len(headers) != rows or len(headers.values) != pairs:
        raise EncodeError(f"headers of {len(headers)} rows for {rows}: {pairs} names, {len(headers.values)} values")
    _check_steps("headers", headers.offsets, pairs)
    check_offsets("names of headers", headers.names, pairs)
    check_offsets("values of headers", headers.values, pairs)
    if None in headers.names:
        raise EncodeError("a header without a name")
    try:
        headers.tolist()
    except UnicodeDecodeError as error:
        raise EncodeError(f"a header's name is not UTF-8: {error.reason}") from None


def check_offsets(what: str, column: BinaryColumn, rows: int) -> None:
    """Raise `EncodeError` unless the offsets of a column are within its data, and its validity covers all rows."""
    if column.validity is not None and 8 * len(column.validity) < rows:
        raise EncodeError(f"the validity of the {what} has {8 * len(column.validity)} bits for {rows} rows")
    _check_steps(what, column.offsets, len(column.data))


def _check_steps(what: str, offsets: memoryview, end: int) -> None:
    steps = offsets.tolist() or [0]
    if steps[0] < 0 or steps[-1] > end or any(map(gt, steps, steps[1:])):
        raise EncodeError(f"the offsets of the {what} do not rise from 0 to {end} at most")


# ---------------------------------------------------------------------------------------------------------------------
# Hashes; `ottla.codec.partitioners` says which clients use them.

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), unsigned. Source: Utils.java."""
    size = len(key)
    h = 0x9747B28C ^ size
    for k in struct.unpack_from(f"<{size >> 2}I", key):
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    if tail := size & 3:
        h = ((h ^ int.from_bytes(key[size - tail :], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def fnv1a(key: bytes) -> int:
    """32-bit FNV-1a, unsigned."""
    h = 0x811C9DC5
    for byte in key:
        h = ((h ^ byte) * 0x01000193) & _MASK
    return h


def murmur2_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % positive(partitions)


def crc32_partition(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % positive(partitions)


def fnv1a_partition(key: bytes, partitions: int) -> int:
    h = fnv1a(key)
    return ((1 << 32) - h if h >> 31 else h) % positive(partitions)


def fnv1a_reference_partition(key: bytes, partitions: int) -> int:
    return (fnv1a(key) & 0x7FFFFFFF) % positive(partitions)


def positive(partitions: int) -> int:
    """Return ``partitions``. Raises `ValueError` if it is less than 1, or more than Kafka allows."""
    if not 0 < partitions <= _INT32_MAX:
        raise ValueError(f"{partitions} partitions: there are 1 to {_INT32_MAX}")
    return partitions


def partition_column(partitioner: str, keys: BinaryColumn, partitions: int) -> memoryview:
    """Return the partition of each key by the named partitioner, as 32-bit integers; -1 for null keys.

    Raises:
        ValueError: the partitioner does not exist, or ``partitions`` is less than 1.
        EncodeError: the column's offsets are not within its data.
    """
    place = hash_named(partitioner)
    positive(partitions)
    check_offsets("keys", keys, len(keys))
    places = array("i", (-1 if key is None else place(key, partitions) for key in keys))
    return memoryview(places).toreadonly()


_BY_NAME: dict[str, Callable[[bytes, int], int]] = {
    "murmur2": murmur2_partition,
    "crc32": crc32_partition,
    "fnv1a": fnv1a_partition,
    "fnv1a_reference": fnv1a_reference_partition,
}


def hash_named(name: str) -> Callable[[bytes, int], int]:
    """Return the partitioner. Raises `ValueError` if the name is unknown."""
    if (place := _BY_NAME.get(name)) is None:
        raise no_partitioner(name)
    return place


def no_partitioner(name: object) -> ValueError:
    return ValueError(f"partitioner {name!r} is not one of {', '.join(_BY_NAME)}")
