"""The records of a client's batch: judged, opened, and sorted by where they go.

Rules:
- A batch that is large when decompressed is opened in a thread (see `ottla.proxy.threads`).
- What the proxy cannot do right is refused with an error that no client retries and a message that says what to do.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.codec.compression import decompressed_bound
from ottla.codec.records import HEADER_SIZE, MAGIC, RecordBatch, Records, parse_batch
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
from ottla.proxy.routing import Routes
from ottla.proxy.threads import Threads

log = logging.getLogger("ottla.proxy")

DECOMPRESSED_LIMIT = 64 * 2**20
"""Bytes that one batch of a client may take when decompressed."""
BUG = "the proxy failed on these records, as its log says"
_MAGIC = 16
"""Where the format of a record set stands."""
_FARTHEST = 2**63 - 1
"""Milliseconds between two timestamps of a batch at the most, whichever of them its records are counted from."""
_LEAST_RECORD = 7
"""Bytes of a record without key, value and headers: a batch may say that it has more than it can have."""
_PER_RECORD = 64
"""Bytes that a record takes in memory beside its own, about."""


class Opened(NamedTuple):
    """The records of a batch, and sorted by the partitions that they go to."""

    records: Records
    parts: dict[int, Records]


class Opener:
    """Opens batches, here or in a thread."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def opens_here(self, most: int, compression: int) -> bool:
        """Whether a batch is opened at once, and not in a thread."""
        return self._threads.fits(most, compression)

    def open(
        self,
        batch: RecordBatch,
        most: int,
        routes: Routes,
        partition: int,
        then: Callable[[Opened | BrokerError, float], None],
        now: float,
    ) -> None:
        """Open a batch, which takes up to ``most`` bytes; then call ``then``."""
        call = partial(opened, batch, routes, partition)
        compression = batch.compression
        if not self.opens_here(most, compression):
            self._threads.run(call, then)
            return
        found = call()
        self._threads.spend(size_of(batch, found.records) if isinstance(found, Opened) else most, compression)
        then(found, now)


def own(data: Buffer) -> Buffer:
    """``data``, copied where it would keep far more memory than its own: that of the request in which it lies."""
    whole = memoryview(data).obj
    return bytes(data) if isinstance(whole, bytes | bytearray) and len(whole) > 2 * len(data) else data


def checked(data: Buffer) -> RecordBatch:
    """The one batch in a record set, judged as a broker would.

    Raises:
        BrokerError: it cannot be taken.
    """
    try:
        batch = parse_batch(data)
    except DecodeError as error:
        if len(data) > _MAGIC and data[_MAGIC] != MAGIC:
            raise UnsupportedForMessageFormat(f"{error}; use a client that speaks Kafka 0.11 or later") from None
        raise InvalidRecord(str(error)) from None
    if len(batch.data) != len(data):
        raise InvalidRecord("more than one batch for a partition in one request")
    if not batch.crc_matches:
        raise CorruptMessage("the CRC does not match")
    if batch.control or batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise InvalidRecord(
            "a control batch" if batch.control else f"{batch.count} records up to {batch.last_offset_delta}"
        )
    batch.base_offset = 0  # upstream gives it another
    return batch


def opened(batch: RecordBatch, routes: Routes, partition: int) -> Opened | BrokerError:
    """The records, numbered from 0 on, unless they are damaged or may not fit a batch any more once they are parted.

    It may be called in a thread.
    """
    try:
        records = batch.records(DECOMPRESSED_LIMIT, _decompressed(batch))
        if records.time_span > _FARTHEST:
            return InvalidTimestamp("the timestamps of a batch lie more than 63 bits apart")
        return Opened(records, routes.split(records, partition))
    except DecodeError as error:
        return InvalidRecord(f"the records cannot be read: {error}")
    except Exception:
        log.exception("a bug in the proxy, please report it: records for partition %d", partition)
        return UnknownServerError(BUG)


def size_of(batch: RecordBatch, records: Records) -> int:
    """Bytes that a batch takes in memory while it is under way: as it came, opened, sorted and in upstream's batch."""
    return len(batch.data) + 2 * records.memory


def most_of(batch: RecordBatch) -> int:
    """The same before it is opened, at most."""
    content = _decompressed(batch)
    opened = content + _PER_RECORD * min(max(batch.count, 0), content // _LEAST_RECORD)
    return len(batch.data) + 2 * min(opened, DECOMPRESSED_LIMIT)


def _decompressed(batch: RecordBatch) -> int:
    """Bytes that the records are decompressed, at most, by what the batch says of itself; more is not looked at."""
    return decompressed_bound(batch.compression, batch.data[HEADER_SIZE:])
