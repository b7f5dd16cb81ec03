"""The parts of a program: `program.py` has the theory of operation."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from ottla.codec.wire import Field
from ottla.late_dataclass import dataclass


class Code(IntEnum):
    """How an `Op` reads and writes its value. The integers come first, because lengths are coded as integers too."""

    INT8 = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    UINT16 = 4
    UINT32 = 5
    UNSIGNED = 6
    """An unsigned varint of 32 bits. A length in this code is stored plus one."""
    ZIGZAG32 = 7
    ZIGZAG64 = 8
    FLOAT64 = 9
    BOOL = 10
    UUID = 11
    STRING = 12
    BYTES = 13
    WINDOW = 14
    """Bytes that parse to a view of the input."""
    ARRAY = 15
    STRUCT = 16


LETTERS = {
    Code.INT8: "b",
    Code.INT16: "h",
    Code.INT32: "l",
    Code.INT64: "q",
    Code.UINT16: "H",
    Code.UINT32: "L",
    Code.FLOAT64: "d",
    Code.BOOL: "?",
}
"""The letters of Python's `struct` for values of fixed size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """How to read and write one value: a field of a struct, or an element of an array.

    Attributes:
        code: how the value is coded.
        null: whether it may be ``None``.
        least: the fewest bytes that it can take.
        length: how the length in front of a string, bytes or an array is coded, or the mark (-1 for null) in front of a
            struct that may be null; `Code.INT32` for other values.
        longest: the largest length allowed.
        item: the elements of an array.
        program: the fields of a struct.
    """

    code: Code
    null: bool = False
    least: int
    length: Code = Code.INT32
    longest: int = 0
    item: "Op | None" = None
    program: "Program | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedField:
    """A field among the tagged fields of a struct. It is only sent if it differs from its default."""

    tag: int
    name: str
    op: Op
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A field that the version lacks. It parses to its default; to be built, it must equal that, unless ``ignorable``.

    If the default is a struct, machines leave the slot empty: see `wire.struct`.
    """

    name: str
    default: Any
    ignorable: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A struct at a version. Each struct has one object per version, so programs are hashed by identity.

    Attributes:
        cls: the class of its objects, whose attributes are slots.
        fields: names and ops, in the order of the bytes.
        tagged: known tagged fields in the order of their tags; ``None`` if the version has no tagged fields at all.
        absent: the fields of the class that the version lacks.
    """

    cls: type[Any]
    fields: tuple[tuple[str, Op], ...]
    tagged: tuple[TaggedField, ...] | None
    absent: tuple[Absent, ...]

    @property
    def least(self) -> int:
        """The fewest bytes that the struct can take."""
        return sum(op.least for _, op in self.fields) + (self.tagged is not None)


def absent(fields: Iterable[Field]) -> tuple[Absent, ...]:
    """Return how the fields that a version lacks are read and written."""
    return tuple(Absent(name=each.name, default=each.absent_value, ignorable=each.ignorable) for each in fields)
