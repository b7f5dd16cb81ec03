"""Index files: entries of one size, one after the other, which a broker searches by halves.

``.index`` and ``.timeindex`` lie beside each ``.log`` file, with an entry now and then (`index.interval.bytes`,
4096); offsets are relative to the segment's base offset, which is the file's name. While a broker writes to them they
have their full size, zeros at the end; it cuts them when it is stopped in good order. ``.txnindex`` is written where
transactions were aborted, and grows as it needs.

Source: OffsetIndex.java, TimeIndex.java, TransactionIndex.java.
"""

from collections.abc import Iterator
from typing import Any

from ottla.codec import messages, prefixed
from ottla.codec.wire import Buffer, Declared, Int32, Int64, M, message, wire
from ottla.errors import DecodeError


@message(versions="0")
class OffsetIndexEntry:
    """``.index``: where the batch stands that holds an offset. Offsets and positions rise."""

    relative_offset: int = wire(Int32)
    """Of the batch's last record."""
    position: int = wire(Int32)
    """Of the batch's first byte in the ``.log`` file."""


@message(versions="0")
class TimeIndexEntry:
    """``.timeindex``: up to this offset no record is younger. Timestamps rise, offsets do not fall."""

    timestamp: int = wire(Int64)
    """The largest so far, in milliseconds since 1970."""
    relative_offset: int = wire(Int32)
    """Of the record that has it (with LogAppendTime: of the last of its batch)."""


@message(versions="0")
class AbortedTxn:
    """``.txnindex``: a transaction that was aborted, behind its version. In the order of the markers."""

    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)
    """Of the transaction's first record in this partition."""
    last_offset: int = wire(Int64)
    """Of its marker."""
    last_stable_offset: int = wire(Int64)
    """When the marker was written: who reads from there on need not know of the transaction."""


ENTRY_SIZES: dict[type[Any], int] = {OffsetIndexEntry: 8, TimeIndexEntry: 12, AbortedTxn: 34}
"""In bytes."""


def parse_entry(cls: type[M], data: Buffer, offset: int = 0) -> M:
    """The entry at ``data[offset]``.

    Raises:
        DecodeError: there is not a whole one, or its version is not known.
    """
    if cls is AbortedTxn:
        return prefixed.parse_prefixed(cls, data, offset)[1]
    return messages.parse(cls, 0, data, offset)[0]


def parse_entries(cls: type[M], data: Buffer) -> Iterator[M]:
    """All entries of a file.

    Raises:
        DecodeError: the last one is not whole, or a version is not known.
    """
    for index, offset in enumerate(range(0, len(data), ENTRY_SIZES[cls])):
        try:
            yield parse_entry(cls, data, offset)
        except DecodeError as error:
            error.path = f"[{index}].{error.path}"
            raise


def build_entry(entry: Declared) -> bytes:
    """The opposite of `parse_entry`."""
    return prefixed.build_prefixed(entry, 0) if type(entry) is AbortedTxn else messages.build(entry, 0)
