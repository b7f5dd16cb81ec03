"""Flattens construct trees to programs: `program.py` has the theory of operation."""

import functools
from typing import Any

from construct import Construct

from ottla.codec import trees
from ottla.codec.ops import Code, Op, Program, TaggedField, absent

INTEGERS = {"b": Code.INT8, "h": Code.INT16, "l": Code.INT32, "q": Code.INT64, "H": Code.UINT16, "L": Code.UINT32}
SIZED = {trees.BlobView: Code.WINDOW, trees.Blob: Code.BYTES, trees.Text: Code.STRING, trees.Sequence: Code.ARRAY}
"""Subclasses come before their bases."""


@functools.cache
def struct(cls: Any, version: int, flexible: bool) -> Program:
    """Return the program of a struct, of its tree."""
    tree = trees.tree(cls, version, flexible)
    return Program(
        cls=cls,
        fields=tuple((name, op_of(node)) for name, node in tree.members),
        tagged=None
        if tree.tagged is None
        else tuple(
            TaggedField(tag=each.tag, name=each.name, op=op_of(each.node), default=each.default) for each in tree.tagged
        ),
        absent=absent(tree.absent),
    )


def op_of(node: Construct) -> Op:
    """Return the op of a node."""
    least = trees.least_size(node)
    match node:
        case trees.Sized():
            code = next(code for kind, code in SIZED.items() if isinstance(node, kind))
            item = op_of(node.item) if isinstance(node, trees.Sequence) else None
            length = _integer(node.length)
            return Op(code=code, null=node.null, least=least, length=length, longest=node.longest, item=item)
        case trees.Structure():
            its = struct(node.cls, node.version, node.tagged is not None)
            return Op(code=Code.STRUCT, null=node.null, least=least, length=_integer(node.mark), program=its)
        case trees.Bool():
            return Op(code=Code.BOOL, least=least)
        case trees.Id():
            return Op(code=Code.UUID, least=least)
        case trees.Float():
            return Op(code=Code.FLOAT64, least=least)
    return Op(code=_integer(node), least=least)


def _integer(node: Construct) -> Code:
    match node:
        case trees.Integer():
            return INTEGERS[node.fmtstr[1]]
        case trees.Unsigned():
            return Code.UNSIGNED
        case trees.ZigZag(bits=32):
            return Code.ZIGZAG32
        case trees.ZigZag():
            return Code.ZIGZAG64
    raise TypeError(f"{type(node).__name__} is not an integer code: add a code for it to ottla.codec.ops")
