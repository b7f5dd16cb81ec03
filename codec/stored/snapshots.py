"""``.snapshot`` files: the producers of a partition as they were at an offset, which is the file's name.

Brokers write one when a segment is full and when they stop, and start from the newest one and the batches after it.
Of each producer a snapshot knows only the last batch; that is why the log's tail is read too.

A file begins with its version (1, the only one) and a CRC-32C of all that follows.

Source: ProducerStateManager.java (readSnapshot, writeSnapshot).
"""

from collections.abc import Sequence

from crc32c import crc32c

from ottla.codec import prefixed
from ottla.codec.wire import Array, Buffer, Int16, Int32, Int64, UInt32, message, struct, wire
from ottla.errors import DecodeError

VERSION = 1
CRC_AT = prefixed.SIZE
ENTRIES_AT = CRC_AT + 4
"""Where the CRC begins to count: behind the version and itself."""


@struct
class ProducerEntry:
    producer_id: int = wire(Int64)
    epoch: int = wire(Int16)
    last_sequence: int = wire(Int32)
    """Of its last record; -1 if it has written only markers here."""
    last_offset: int = wire(Int64)
    """The same; -1 for none."""
    offset_delta: int = wire(Int32)
    """Of the last batch: its last record's offset minus its first's."""
    timestamp: int = wire(Int64)
    """The largest of the last batch or marker, in milliseconds since 1970."""
    coordinator_epoch: int = wire(Int32)
    """Of the last marker; -1 for none."""
    current_txn_first_offset: int = wire(Int64)
    """Where its open transaction begins; -1 if none is open."""


@message(versions="1")
class ProducerSnapshot:
    crc: int = wire(UInt32)
    producer_entries: tuple[ProducerEntry, ...] = wire(Array(ProducerEntry))


def parse_snapshot(data: Buffer) -> tuple[ProducerEntry, ...]:
    """The producers in a file.

    Raises:
        DecodeError: it is damaged: cut short, changed, or not of version 1.
    """
    _, snapshot, end = prefixed.parse_prefixed(ProducerSnapshot, data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes left over", "ProducerSnapshot", end)
    if (found := crc32c(memoryview(data)[ENTRIES_AT:])) != snapshot.crc:
        raise DecodeError(
            f"the CRC is {snapshot.crc:#010x}, and that of the bytes behind it {found:#010x}",
            "ProducerSnapshot.crc",
            CRC_AT,
        )
    return snapshot.producer_entries


def build_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """The opposite.

    Raises:
        EncodeError: an entry does not fit.
    """
    data = bytearray(prefixed.build_prefixed(ProducerSnapshot(crc=0, producer_entries=tuple(entries)), VERSION))
    data[CRC_AT:ENTRIES_AT] = crc32c(memoryview(data)[ENTRIES_AT:]).to_bytes(4, "big")
    return bytes(data)
