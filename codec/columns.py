"""Records as columns: one buffer per field, laid out as Arrow wants it, so that nothing is copied to get there.

    columns = read_columns(batch for batch in read_batches(data) if not batch.control)
    offsets = pa.Array.from_buffers(pa.int64(), len(columns), [None, pa.py_buffer(columns.offsets)])
    buffers = [None if each is None else pa.py_buffer(each) for each in columns.values.buffers]
    values = pa.Array.from_buffers(pa.binary(), len(columns), buffers)

Rules:
- Buffers are read-only views. Whoever holds one, or an array made of it, keeps its memory; once nobody does, it is used
  again.
- Offsets have 32 bits, as those of Arrow's binary and string arrays: a column holds 2 GiB at most.
- `tolist()` gives Python objects, to whom wants them.

Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE
from ottla.codec._loops import Buffer, Gathered, Headers

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import Records, gather
else:
    from ottla.codec._records import Records, gather

__all__ = ["BinaryColumn", "Columns", "HeaderColumn"]


class BinaryColumn:
    """Nullable bytes.

    Attributes:
        offsets: integers of 32 bits, one more than there are rows: row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
        data: the bytes of all rows.
        validity: bit ``i``, counted from the lowest of each byte, says that row ``i`` is not null; ``None`` where no
            row is null.
    """

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, offsets: Buffer, data: Buffer, validity: Buffer | None = None) -> None:
        self.offsets = _view(offsets, "i")
        self.data = _view(data, "B")
        self.validity = None if validity is None else _view(validity, "B")

    @property
    def buffers(self) -> tuple[memoryview | None, memoryview, memoryview]:
        """Validity, offsets, data: Arrow's order."""
        return self.validity, self.offsets, self.data

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0)

    def __getitem__(self, row: int) -> bytes | None:
        if not 0 <= row < len(self):
            raise IndexError(f"there is no row {row} among {len(self)}")
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]]) if self._valid(row) else None

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.tolist())

    def tolist(self) -> list[bytes | None]:
        """All rows."""
        data = bytes(self.data)
        rows: list[bytes | None] = [data[start:end] for start, end in pairwise(self.offsets)]
        if self.validity is not None:
            rows = [value if self._valid(row) else None for row, value in enumerate(rows)]
        return rows

    def _valid(self, row: int) -> bool:
        return self.validity is None or bool(self.validity[row >> 3] >> (row & 7) & 1)


class HeaderColumn:
    """The headers of each row: Arrow's list of (name, value).

    Attributes:
        offsets: integers of 32 bits, one more than there are rows: row ``i`` has the headers from ``offsets[i]`` up to
            ``offsets[i + 1]``.
        names: of all headers, UTF-8.
        values: of all headers.
    """

    __slots__ = ("names", "offsets", "values")

    def __init__(self, offsets: Buffer, names: BinaryColumn, values: BinaryColumn) -> None:
        self.offsets = _view(offsets, "i")
        self.names = names
        self.values = values

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0)

    def __getitem__(self, row: int) -> Headers:
        if not 0 <= row < len(self):
            raise IndexError(f"there is no row {row} among {len(self)}")
        headers = range(self.offsets[row], self.offsets[row + 1])
        return tuple(((self.names[each] or b"").decode(), self.values[each]) for each in headers)

    def __iter__(self) -> Iterator[Headers]:
        return iter(self.tolist())

    def tolist(self) -> list[Headers]:
        """All rows."""
        names = [(name or b"").decode() for name in self.names]
        pairs = list(zip(names, self.values, strict=True))
        return [tuple(pairs[start:end]) for start, end in pairwise(self.offsets)]


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
        self.offsets = _view(offsets, "q")
        self.timestamps = _view(timestamps, "q")
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


def _view(buffer: Buffer, letter: str) -> memoryview:
    """``buffer`` as numbers of the kind that `struct` knows by ``letter``."""
    if type(buffer) is memoryview and buffer.format == letter:
        return buffer
    return memoryview(buffer).cast("B").cast(letter)  # type: ignore[call-overload, no-any-return] # wants a literal
