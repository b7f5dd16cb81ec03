"""Records as columns: one buffer per field, in Arrow's layout, so that Arrow can use them without a copy.

    columns = read_columns(batch for batch in read_batches(data) if not batch.control)
    offsets = pa.Array.from_buffers(pa.int64(), len(columns), [None, pa.py_buffer(columns.offsets)])
    buffers = [None if each is None else pa.py_buffer(each) for each in columns.values.buffers]
    values = pa.Array.from_buffers(pa.binary(), len(columns), buffers)

Rules:
- Buffers are read-only views. A buffer, or an array made of it, keeps its memory alive; after that, the memory may be
  reused.
- Offsets have 32 bits, as in Arrow's binary and string arrays, so a column holds 2 GiB at most.
- `tolist()` returns Python objects.

Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE
from ottla.codec._loops import Gathered
from ottla.codec.layout import BinaryColumn, Buffer, HeaderColumn, view

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import Records, gather
else:
    from ottla.codec._records import Records, gather

__all__ = ["BinaryColumn", "Columns", "HeaderColumn"]


class Columns:
    """Records, field by field. Every column has one row per record.

    Attributes:
        offsets: 64-bit integers.
        timestamps: 64-bit integers: milliseconds since 1970; -1 if a record has none.
        keys, values: bytes or null.
    """

    __slots__ = ("_headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        offsets: Buffer,
        timestamps: Buffer,
        keys: BinaryColumn,
        values: BinaryColumn,
        headers: HeaderColumn | None = None,
    ) -> None:
        self.offsets = view(offsets, "q")
        self.timestamps = view(timestamps, "q")
        self.keys = keys
        self.values = values
        self._headers = headers

    @staticmethod
    def of(parts: Iterable[Records]) -> "Columns":
        """Collect the records of ``parts``, in order: of one batch, or of everything that a fetch returned.

        Leave out of ``parts`` what you do not want: control batches and batches of aborted transactions; leave out
        offsets with `Records.between`.

        Raises:
            LocalProtocolError: a column would take more than 2 GiB: pass fewer batches at a time.
        """
        return laid_out(gather(list(parts)))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def headers_if_any(self) -> HeaderColumn | None:
        """The headers; ``None`` if it is known that no record has any, which is the usual case."""
        return self._headers

    @property
    def headers(self) -> HeaderColumn:
        """The headers, one row per record; a record without headers has an empty row."""
        if self._headers is None:  # most records have no headers, so this is built on demand
            nothing = BinaryColumn(bytes(4), b"")
            self._headers = HeaderColumn(bytes(4 * len(self) + 4), nothing, nothing)
        return self._headers


def laid_out(gathered: Gathered) -> Columns:
    """Make `Columns` of the buffers that the loops over records return."""
    offsets, timestamps, keys, values, headers = gathered
    column = None
    if headers is not None:
        column = HeaderColumn(headers[0], BinaryColumn(*headers[1]), BinaryColumn(*headers[2]))
    return Columns(offsets, timestamps, BinaryColumn(*keys), BinaryColumn(*values), column)
