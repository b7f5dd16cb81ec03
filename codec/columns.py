"""Records as columns: one buffer per field, laid out as Arrow wants it, so that nothing is copied to get there.

    columns = read_columns(batch for batch in read_batches(data) if not batch.control)
    offsets = pa.Array.from_buffers(pa.int64(), len(columns), [None, pa.py_buffer(columns.offsets)])
    buffers = [None if each is None else pa.py_buffer(each) for each in columns.values.buffers]
    values = pa.Array.from_buffers(pa.binary(), len(columns), buffers)

Rules:
- Buffers are read-only views. One that is held, or an array made of it, keeps its memory, which is reused after
  that.
- Offsets have 32 bits, as those of Arrow's binary and string arrays: a column holds 2 GiB at most.
- `tolist()` gives Python objects, to whom wants them.

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
    """Records, field by field. Every column has a row for each.

    Attributes:
        offsets: integers of 64 bits.
        timestamps: integers of 64 bits: milliseconds since 1970; -1 where there is none.
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
        """The records of ``parts``, one behind the other: of one batch, or of all that a fetch brought.

        What is not wanted stays out of ``parts``: control batches and those of aborted transactions by not being
        there, offsets by `Records.between`.

        Raises:
            LocalProtocolError: a column would take more than 2 GiB: take fewer batches at a time.
        """
        return laid_out(gather(list(parts)))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def headers_if_any(self) -> HeaderColumn | None:
        """The headers; ``None`` where it is known that no record has any, as of most."""
        return self._headers

    @property
    def headers(self) -> HeaderColumn:
        """The headers, a row for each record; empty rows where there are none."""
        if self._headers is None:  # as of most records: made for whom asks
            nothing = BinaryColumn(bytes(4), b"")
            self._headers = HeaderColumn(bytes(4 * len(self) + 4), nothing, nothing)
        return self._headers


def laid_out(gathered: Gathered) -> Columns:
    """Columns of buffers, as the loops over records give them."""
    offsets, timestamps, keys, values, headers = gathered
    column = None
    if headers is not None:
        column = HeaderColumn(headers[0], BinaryColumn(*headers[1]), BinaryColumn(*headers[2]))
    return Columns(offsets, timestamps, BinaryColumn(*keys), BinaryColumn(*values), column)
