"""Flattens a construct tree to a program that a machine executes.

Theory of operation. A message is declared once, as a class (`wire.py`). For each version, `wire.tree` makes a construct
tree without conditions: it describes the bytes exactly, and construct can interpret it, slowly. `program` walks the
tree once and records it struct by struct: a `Program` is the list of a struct's fields in the order of their bytes,
each with an `Op` that says how to read and write one value. At run time, only the bytes remain to be interpreted.

Two machines execute programs; they do not depend on anything else of the protocol. `_machine.pyx` copies each program
into an array of C structs, and moves values straight between the bytes and the slots of the message's object.
`machine.py` writes each program as Python source, once, when it is first used. Both are tested against construct's
results.

The declarations alone decide how deep a program can nest, so no input can drive a machine into a deep recursion. Before
an array is allocated, its count is checked against the bytes that are left, divided by the minimal size of an element
(`Op.least`).
"""

import functools
from enum import IntEnum
from typing import Any

from construct import Construct

from ottla.codec import wire
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


INTEGERS = {"b": Code.INT8, "h": Code.INT16, "l": Code.INT32, "q": Code.INT64, "H": Code.UINT16, "L": Code.UINT32}
SIZED = {wire.BlobView: Code.WINDOW, wire.Blob: Code.BYTES, wire.Text: Code.STRING, wire.Sequence: Code.ARRAY}
"""Subclasses come before their bases."""


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


@functools.cache
def program(cls: Any, version: int) -> Program:
    """Return the program of a message class.

    Raises:
        UnknownVersion: the class has no such version.
    """
    return _struct(wire.message_tree(cls, version))


@functools.cache
def _struct(tree: Any) -> Program:
    return Program(
        cls=tree.cls,
        fields=tuple((name, _op(node)) for name, node in tree.members),
        tagged=None
        if tree.tagged is None
        else tuple(
            TaggedField(tag=each.tag, name=each.name, op=_op(each.node), default=each.default) for each in tree.tagged
        ),
        absent=tuple(
            Absent(name=each.name, default=each.absent_value, ignorable=each.ignorable) for each in tree.absent
        ),
    )


def _op(node: Construct) -> Op:
    least = wire.least_size(node)
    match node:
        case wire.Sized():
            code = next(code for kind, code in SIZED.items() if isinstance(node, kind))
            item = _op(node.item) if isinstance(node, wire.Sequence) else None
            length = _integer(node.length)
            return Op(code=code, null=node.null, least=least, length=length, longest=node.longest, item=item)
        case wire.Structure():
            mark = _integer(node.mark)
            return Op(code=Code.STRUCT, null=node.null, least=least, length=mark, program=_struct(node))
        case wire.Bool():
            return Op(code=Code.BOOL, least=least)
        case wire.Id():
            return Op(code=Code.UUID, least=least)
        case wire.Float():
            return Op(code=Code.FLOAT64, least=least)
    return Op(code=_integer(node), least=least)


def _integer(node: Construct) -> Code:
    match node:
        case wire.Integer():
            return INTEGERS[node.fmtstr[1]]
        case wire.Unsigned():
            return Code.UNSIGNED
        case wire.ZigZag(bits=32):
            return Code.ZIGZAG32
        case wire.ZigZag():
            return Code.ZIGZAG64
    raise TypeError(f"{type(node).__name__} is not an integer code: add a code for it to ottla.codec.program")
