"""A construct tree, flattened to a program that a machine executes.

Theory of operation. A message is declared once, as a class (`wire.py`). For a version of it, `wire.tree` makes a
construct tree without conditions: that is what the bytes are, and construct can interpret it, slowly. `program` walks
the tree once and writes down what it met, struct by struct: a `Program` is the list of a struct's fields in the order
of their bytes, each an `Op` that says how to read and write one value. Nothing is left to decide at run time but
what the bytes themselves say.

Two machines execute programs, and know nothing else of the protocol. `_machine.pyx` copies each program into an array
of C structs and runs through it, straight between the bytes and the slots of the message's object. `machine.py`
writes each program out as Python source, once, when it is first used. Both are tested to give what construct gives.

How deep a program can nest is a matter of the declarations, so no bytes can drive a machine into a deep recursion;
and an array's count is held against the bytes that are left, divided by the least that an element takes (`Op.least`),
before anything is allocated.
"""

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from construct import Construct

from ottla.codec import wire


class Code(IntEnum):
    """What an `Op` reads and writes. The integers come first, as they are also what lengths are made of."""

    INT8 = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    UINT16 = 4
    UINT32 = 5
    UNSIGNED = 6
    """An unsigned varint of 32 bits. A length so coded is one higher than what it says."""
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
SIZED = {wire.Window: Code.WINDOW, wire.Blob: Code.BYTES, wire.Text: Code.STRING, wire.Sequence: Code.ARRAY}
"""Subclasses first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One value: of a field of a struct, or of an element of an array.

    Attributes:
        code: how it is coded.
        null: it may be ``None``.
        least: the fewest bytes it can take.
        length: how the length in front of strings, bytes and arrays is coded, and the mark (-1 for null) in front of a
            struct that may be null; `Code.INT32` for the rest.
        longest: the most that such a length may say.
        item: of an array: what each element is.
        program: of a struct.
    """

    code: Code
    null: bool = False
    least: int
    length: Code = Code.INT32
    longest: int = 0
    item: "Op | None" = None
    program: "Program | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A field that travels among the tagged fields of a struct, and only if it differs from its default."""

    tag: int
    name: str
    op: Op
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A field that the version lacks: it parses to its default, and must equal it to be built, unless ``ignorable``.

    Where the default is a struct, machines leave the slot empty: see `wire.struct`.
    """

    name: str
    default: Any
    ignorable: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A struct at a version. There is one object for each, so that it can be looked up by itself.

    Attributes:
        cls: the class of its objects, whose attributes are slots.
        fields: names and ops, in the order of the bytes.
        tagged: known tagged fields by rising tag; ``None`` where the version has no tagged fields at all.
        absent: the fields of the class that the version lacks.
    """

    cls: type[Any]
    fields: tuple[tuple[str, Op], ...]
    tagged: tuple[Tagged, ...] | None
    absent: tuple[Absent, ...]


@functools.cache
def program(cls: Any, version: int) -> Program:
    """The program of a message class.

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
            Tagged(tag=each.tag, name=each.name, op=_op(each.node), default=each.default) for each in tree.tagged
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
    raise TypeError(f"no machine knows what a {type(node).__name__} is: add a code for it to ottla.codec.program")
