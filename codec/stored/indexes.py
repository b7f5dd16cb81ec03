"""Index files: entries of equal size, one after the other, which a broker searches by bisection.

``.index`` and ``.timeindex`` are beside each ``.log`` file, with an entry about every 4096 bytes
(`index.interval.bytes`). Their offsets are relative to the segment's base offset, which is the file's name. A broker
preallocates them at full size, with zeros at the end, and truncates them at a clean shutdown. ``.txnindex`` is written
if transactions were aborted, and grows as needed.

Source: OffsetIndex.java, TimeIndex.java, TransactionIndex.java.
"""

from collections.abc import Iterator
from typing import Any

from ottla.codec import messages, prefixed
from ottla.codec.wire import Buffer, Declared, Int32, Int64, M, message, wire
from ottla.errors import DecodeError


@message(versions="0")
class OffsetIndexEntry:
    """``.index``: the position of the batch with an offset. Offsets and positions ascend."""

    relative_offset: int = wire(Int32)
    """Offset of the batch's last record."""
    position: int = wire(Int32)
    """Position of the batch's first byte in the ``.log`` file."""


@message(versions="0")
class TimeIndexEntry:
    """``.timeindex``: up to this offset no record has a later timestamp. Timestamps ascend, offsets never decrease."""

    timestamp: int = wire(Int64)
    """The largest timestamp so far, in milliseconds since 1970."""
    relative_offset: int = wire(Int32)
    """Offset of the record with that timestamp (with LogAppendTime: of the last record of its batch)."""


@message(versions="0")
class AbortedTxn:
    """``.txnindex``: an aborted transaction, which follows its version. In the order of the markers."""

    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)
    """Offset of the transaction's first record in this partition."""
    last_offset: int = wire(Int64)
    """Offset of its marker."""
    last_stable_offset: int = wire(Int64)
    """The last stable offset when the marker was written. Reads from there on can ignore the transaction."""


ENTRY_SIZES: dict[type[Any], int] = {OffsetIndexEntry: 8, TimeIndexEntry: 12, AbortedTxn: 34}
"""Size of an entry in bytes."""


def parse_entry(cls: type[M], data: Buffer, offset: int = 0) -> M:
    """Parse the entry at ``data[offset]``.

    Raises:
        DecodeError: the entry is incomplete, or its version is unknown.
    """
    if cls is AbortedTxn:
        return prefixed.parse_prefixed(cls, data, offset)[1]
    return messages.parse(cls, 0, data, offset)[0]


def parse_entries(cls: type[M], data: Buffer) -> Iterator[M]:
    """Yield all entries of a file.

    Raises:
        DecodeError: the last entry is incomplete, or a version is unknown.
    """
    for index, offset in enumerate(range(0, len(data), ENTRY_SIZES[cls])):
        try:
            yield parse_entry(cls, data, offset)
        except DecodeError as error:
            error.path = f"[{index}].{error.path}"
            raise


def build_entry(entry: Declared) -> bytes:
    """Build an entry."""
    return prefixed.build_prefixed(entry, 0) if type(entry) is AbortedTxn else messages.build(entry, 0)
