"""``.snapshot`` files: the state of a partition's producers at an offset, which is the file's name.

A broker writes one when a segment is full and when it stops. It starts from the newest one and the batches after it.
For each producer a snapshot has only the last batch, so the log's tail is read as well.

A file begins with its version (1, the only one) and a CRC-32C of everything after it.

Source: ProducerStateManager.java (readSnapshot, writeSnapshot).
"""

from collections.abc import Sequence

from ottla.codec import prefixed
from ottla.codec.checksums import crc32c
from ottla.codec.wire import Array, Buffer, Int16, Int32, Int64, UInt32, message, struct, wire
from ottla.errors import DecodeError

VERSION = 1
CRC_AT = prefixed.SIZE
ENTRIES_AT = CRC_AT + 4
"""Where the bytes begin that the CRC covers: after the version and the CRC itself."""


@struct
class ProducerEntry:
    producer_id: int = wire(Int64)
    epoch: int = wire(Int16)
    last_sequence: int = wire(Int32)
    """Sequence of its last record; -1 if it has written only markers here."""
    last_offset: int = wire(Int64)
    """Offset of its last record; -1 for none."""
    offset_delta: int = wire(Int32)
    """For the last batch: the offset of its last record minus its first offset."""
    timestamp: int = wire(Int64)
    """The largest timestamp of the last batch or marker, in milliseconds since 1970."""
    coordinator_epoch: int = wire(Int32)
    """Coordinator epoch of the last marker; -1 for none."""
    current_txn_first_offset: int = wire(Int64)
    """First offset of its open transaction; -1 if none is open."""


@message(versions="1")
class ProducerSnapshot:
    crc: int = wire(UInt32)
    producer_entries: tuple[ProducerEntry, ...] = wire(Array(ProducerEntry))


def parse_snapshot(data: Buffer) -> tuple[ProducerEntry, ...]:
    """Return the producers in a file.

    Raises:
        DecodeError: the file is truncated or damaged, or not of version 1.
    """
    _, snapshot, end = prefixed.parse_prefixed(ProducerSnapshot, data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes left over", "ProducerSnapshot", end)
    if (found := crc32c(memoryview(data)[ENTRIES_AT:])) != snapshot.crc:
        raise DecodeError(
            f"the CRC is {snapshot.crc:#010x}, but that of the bytes after it is {found:#010x}",
            "ProducerSnapshot.crc",
            CRC_AT,
        )
    return snapshot.producer_entries


def build_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """Build the content of a file.

    Raises:
        EncodeError: an entry does not fit.
    """
    data = bytearray(prefixed.build_prefixed(ProducerSnapshot(crc=0, producer_entries=tuple(entries)), VERSION))
    data[CRC_AT:ENTRIES_AT] = crc32c(memoryview(data)[ENTRIES_AT:]).to_bytes(4, "big")
    return bytes(data)
