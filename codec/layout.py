"""Columns of bytes and of headers in Arrow's layout, as the loops over records use them.

Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]


class BinaryColumn:
    """A column of nullable bytes.

    Attributes:
        offsets: 32-bit integers, one more than there are rows: row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
        data: the bytes of all rows.
        validity: bit ``i``, counted from the lowest bit of each byte, is set if row ``i`` is not null; ``None`` if no
            row is null.
    """

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, offsets: Buffer, data: Buffer, validity: Buffer | None = None) -> None:
        self.offsets = view(offsets, "i")
        self.data = view(data, "B")
        self.validity = None if validity is None else view(validity, "B")

    @property
    def buffers(self) -> tuple[memoryview | None, memoryview, memoryview]:
        """Validity, offsets and data, in Arrow's order."""
        return self.validity, self.offsets, self.data

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0)

    def __getitem__(self, row: int) -> bytes | None:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} does not exist, there are {len(self)}")
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]]) if self._valid(row) else None

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.tolist())

    def tolist(self) -> list[bytes | None]:
        """Return all rows."""
        data = bytes(self.data)
        rows: list[bytes | None] = [data[start:end] for start, end in pairwise(self.offsets)]
        if self.validity is not None:
            rows = [value if self._valid(row) else None for row, value in enumerate(rows)]
        return rows

    def slice(self, start: int, stop: int) -> "BinaryColumn":
        """Return the rows from ``start`` up to, not including, ``stop``; they share the data."""
        bits = self.validity
        if bits is not None:
            first, last = start >> 3, (stop + 7) >> 3
            if start & 7:  # rows start in the middle of a byte, so the bits have to be shifted
                shifted = int.from_bytes(bits[first:last], "little") >> (start & 7)
                bits = memoryview(shifted.to_bytes(last - first, "little"))
            else:
                bits = bits[first:last]
        return BinaryColumn(self.offsets[start : stop + 1], self.data, bits)

    def _valid(self, row: int) -> bool:
        return self.validity is None or bool(self.validity[row >> 3] >> (row & 7) & 1)


class HeaderColumn:
    """The headers of each row, as Arrow's list of (name, value).

    Attributes:
        offsets: 32-bit integers, one more than there are rows: row ``i`` has the headers from ``offsets[i]`` up to, not
            including, ``offsets[i + 1]``.
        names: the names of all headers, in UTF-8.
        values: the values of all headers.
    """

    __slots__ = ("names", "offsets", "values")

    def __init__(self, offsets: Buffer, names: BinaryColumn, values: BinaryColumn) -> None:
        self.offsets = view(offsets, "i")
        self.names = names
        self.values = values

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0)

    def __getitem__(self, row: int) -> Headers:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} does not exist, there are {len(self)}")
        headers = range(self.offsets[row], self.offsets[row + 1])
        return tuple(((self.names[each] or b"").decode(), self.values[each]) for each in headers)

    def __iter__(self) -> Iterator[Headers]:
        return iter(self.tolist())

    def slice(self, start: int, stop: int) -> "HeaderColumn":
        """Return the rows from ``start`` up to, not including, ``stop``, and only their headers."""
        first, last = self.offsets[start], self.offsets[stop]
        offsets = array("i", [each - first for each in self.offsets[start : stop + 1]])
        return HeaderColumn(memoryview(offsets), self.names.slice(first, last), self.values.slice(first, last))

    def tolist(self) -> list[Headers]:
        """Return all rows."""
        names = [(name or b"").decode() for name in self.names]
        pairs = list(zip(names, self.values, strict=True))
        return [tuple(pairs[start:end]) for start, end in pairwise(self.offsets)]


def view(buffer: Buffer, letter: str) -> memoryview:
    """View ``buffer`` as numbers of the `struct` format ``letter``."""
    if type(buffer) is memoryview and buffer.format == letter:
        return buffer
    return memoryview(buffer).cast("B").cast(letter)  # type: ignore[call-overload, no-any-return] # wants a literal
