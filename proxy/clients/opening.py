"""Checks clients' batches, reads their records, and sorts the records by partition.

Rules:
- A batch that is large when decompressed is read in a thread (see `ottla.proxy.threads`).
- If the proxy cannot handle a batch, it refuses it with an error that no client retries and a message that says what to
  do.
"""

import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple

from ottla.codec.compression import decompressed_bound
from ottla.codec.records import COMPRESSION_MASK, HEADER_SIZE, MAGIC, NO_PRODUCER_ID, RecordBatch, Records, parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    DecodeError,
    InvalidRecord,
    InvalidTimestamp,
    UnknownServerError,
    UnsupportedForMessageFormat,
)
from ottla.proxy.routing import Destination
from ottla.proxy.threads import Threads

log = logging.getLogger("ottla.proxy")

DECOMPRESSED_LIMIT = 64 * 2**20
"""The most bytes of a client's batch when decompressed."""
BUG = "the proxy failed to handle these records: see its log"
MAGIC_AT = 16
"""Offset of the format version (magic) in a record set."""
_COUNT_AT, _COUNT = HEADER_SIZE - 4, Struct(">i")
"""Offset of the number of records in a batch, and its encoding."""
ATTRIBUTES_AT = 22
"""Offset of the byte of a batch whose lowest bits are its compression."""
_TRANSACTIONAL = 0x10
"""The bit of that byte for batches of a transaction."""
_PRODUCER_ID = slice(43, 51)
_FARTHEST = 2**63 - 1
"""The most milliseconds between two timestamps of a batch, so that every delta fits, whatever the base timestamp is."""
_LEAST_RECORD = 7
"""Bytes of a record without key, value and headers; bounds the record count, which a batch may overstate."""
_PER_RECORD = 64
"""Approximate bytes of memory for a record, beside its data."""

Divide = Callable[[Records], dict[Destination, Records]]
"""Sorts the records of a batch by destination; a thread may call it."""


class Opened(NamedTuple):
    """The records of a batch, and the same by destination."""

    records: Records
    parts: dict[Destination, Records]


class Opener:
    """Reads the records of batches, at once or in a thread."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def opens_here(self, most: int, compression: int) -> bool:
        """Whether a batch is read at once, and not in a thread."""
        return self._threads.fits(most, compression)

    def open(
        self,
        batch: RecordBatch,
        most: int,
        divide: Divide,
        then: Callable[[Opened | BrokerError, float], None],
        now: float,
    ) -> None:
        """Read the records of a batch, which take up to ``most`` bytes of memory, and call ``then`` with the result."""
        call = partial(opened, batch, divide)
        compression = batch.compression
        if not self.opens_here(most, compression):
            self._threads.run(call, then)
            return
        found = call()
        self._threads.spend(memory_of(batch, found.records) if isinstance(found, Opened) else most, compression)
        then(found, now)


def detached(data: Buffer) -> Buffer:
    """``data``, copied if it is less than half of its request: a view would keep the whole request in memory."""
    whole = memoryview(data).obj
    return bytes(data) if isinstance(whole, bytes | bytearray) and len(whole) > 2 * len(data) else data


def checked(data: Buffer) -> RecordBatch:
    """Parse the one batch in a record set, with a broker's checks.

    Raises:
        BrokerError: the batch is invalid.
    """
    try:
        batch = parse_batch(data)
    except DecodeError as error:
        if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC:
            raise UnsupportedForMessageFormat(f"{error}; use a client that speaks Kafka 0.11 or later") from None
        raise InvalidRecord(str(error)) from None
    if len(batch.data) != len(data):
        raise InvalidRecord("the request has more than one batch for this partition: send one")
    if not batch.crc_matches:
        raise CorruptMessage("the CRC of the batch does not match its bytes")
    if batch.control or batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise InvalidRecord(
            "only brokers may write control batches"
            if batch.control
            else f"the batch has {batch.count} records, but its last offset delta is {batch.last_offset_delta}"
        )
    batch.base_offset = 0  # upstream assigns the real one
    return batch


def opened(batch: RecordBatch, divide: Divide) -> Opened | BrokerError:
    """Read the records, with offsets from 0 on; returns an error if they are damaged, or if their timestamps are too
    far apart for new batches.

    May run in a thread.
    """
    try:
        records = batch.records(DECOMPRESSED_LIMIT, _decompressed(batch))
        if records.time_span > _FARTHEST:
            return InvalidTimestamp("the timestamps of a batch lie more than 63 bits apart")
        return Opened(records, divide(records))
    except DecodeError as error:
        return InvalidRecord(f"the records cannot be read: {error}")
    except Exception:
        log.exception("a bug in the proxy, please report it: the records of a batch")
        return UnknownServerError(BUG)


def memory_of(batch: RecordBatch, records: Records, copies: int = 0) -> int:
    """Bytes of memory for a batch under way: the client's batch, its records, and upstream's batches of each topic.

    Args:
        copies: how many further topics get its records.
    """
    return len(batch.data) + (2 + copies) * records.memory


def max_memory_of(batch: RecordBatch, copies: int = 0) -> int:
    """The upper bound of `memory_of` before the records are read."""
    content = _decompressed(batch)
    opened = content + _PER_RECORD * min(max(batch.count, 0), content // _LEAST_RECORD)
    return len(batch.data) + (2 + copies) * min(opened, DECOMPRESSED_LIMIT)


def count_in(data: Buffer) -> int:
    """The number of records of a batch, as its header says, which may be wrong."""
    count: int = _COUNT.unpack_from(data, _COUNT_AT)[0]
    return count


def plainly_claimed_records(data: Buffer, size: int) -> int | None:
    """The number of records of a batch, as its header says; ``None`` if they may not fit without compression.

    Args:
        data: at least its header.
        size: bytes of the whole batch.
    """
    count = count_in(data)
    return max(count, 0) if count * _LEAST_RECORD <= size - HEADER_SIZE else None


def claimed_records(data: Buffer) -> int:
    """The number of records of a batch, as its header says, but at most as many as its bytes may hold."""
    plainly = plainly_claimed_records(data, len(data))
    if plainly is not None:  # so that most batches need no other look
        return plainly
    content = decompressed_bound(data[ATTRIBUTES_AT] & COMPRESSION_MASK, data[HEADER_SIZE:])
    return min(count_in(data), content // _LEAST_RECORD)


def producer_in(data: Buffer) -> tuple[int, bool]:
    """The producer id of a record set, as the header of its batch says, and whether the batch is transactional."""
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:  # message sets have neither
        return NO_PRODUCER_ID, False
    return int.from_bytes(data[_PRODUCER_ID], "big", signed=True), bool(data[ATTRIBUTES_AT] & _TRANSACTIONAL)


def _decompressed(batch: RecordBatch) -> int:
    """An upper bound of the decompressed bytes, from the headers of the compressed data alone."""
    return decompressed_bound(batch.compression, batch.data[HEADER_SIZE:])
