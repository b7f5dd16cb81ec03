"""Programs, which the machines execute: one for each message and version.

Theory of operation. A message is declared once, as a class (`wire.py`). For each version, `trees.py` makes a construct
tree without conditions: it describes the bytes exactly, and construct can interpret it, slowly. `flatten.py` walks the
tree once and records it struct by struct: a `Program` is the list of a struct's fields in the order of their bytes,
each with an `Op` that says how to read and write one value. At run time, only the bytes remain to be interpreted.

The trees of the codec's own messages are flattened in advance: `tools/flattened.py` writes their programs, as texts,
into `flattened.py`. So a program that speaks Kafka's protocol makes no tree, and does not import construct, which takes
as long as the import of the whole codec. Programs of all other classes are flattened when they are first used.

Two machines execute programs; they do not depend on anything else of the protocol. `_machine.pyx` copies each program
into an array of C structs, and moves values straight between the bytes and the slots of the message's object.
`machine.py` writes each program as Python source, once, when it is first used. Both are tested against construct's
results.

The declarations alone decide how deep a program can nest, so no input can drive a machine into a deep recursion. Before
an array is allocated, its count is checked against the bytes that are left, divided by the minimal size of an element
(`Op.least`).
"""

import functools
from collections.abc import Iterator
from typing import Any

from ottla.codec.flattened import OPS, PROGRAMS
from ottla.codec.ops import Code, Op, Program, TaggedField, absent
from ottla.codec.wire import Versions, is_flexible


@functools.cache
def program(cls: Any, version: int) -> Program:
    """Return the program of a message class.

    Raises:
        UnknownVersion: the class has no such version.
    """
    return struct_program(cls, version, is_flexible(cls, version))


@functools.cache
def struct_program(cls: Any, version: int, flexible: bool) -> Program:
    """Return the program of a struct in a version of a message, which may be flexible."""
    for key, text in PROGRAMS.get(cls.__module__, {}).get(cls.__name__, {}).items():
        versions, _, kind = key.partition(" ")
        if version in Versions(versions) and flexible == (kind == "flexible"):
            return _read(cls, version, flexible, text)
    from ottla.codec import flatten  # only here: it needs construct

    return flatten.struct(cls, version, flexible)


def _read(cls: Any, version: int, flexible: bool, text: str) -> Program:
    """Read the text of a program: the names of its fields, each with the words of its op; then of its tagged fields."""
    left = {field.name: field for field in cls.__wire__}
    fields: list[tuple[str, Op]] = []
    tagged: list[TaggedField] = []
    for each in filter(None, text.split(", ")):
        name, *words = each.split(" ")
        field = left.pop(name)
        op = _op(iter(words), field.type, version, flexible)
        if field.tag is None:
            fields.append((name, op))
        else:
            tagged.append(TaggedField(tag=field.tag, name=name, op=op, default=field.absent_value))
    return Program(
        cls=cls,
        fields=tuple(fields),
        tagged=tuple(tagged) if flexible else None,
        absent=absent(left.values()),
    )


def _op(words: Iterator[str], type: Any, version: int, flexible: bool) -> Op:
    """Read an op. An array's is followed by its element's; the declared ``type`` has the class of a struct."""
    op = _simple_op(next(words))
    if op.code is Code.ARRAY:
        item = _op(words, type.item, version, flexible)
        return Op(code=op.code, null=op.null, least=op.least, length=op.length, longest=op.longest, item=item)
    if op.code is Code.STRUCT:
        its = struct_program(type if hasattr(type, "__wire__") else type.item, version, flexible)
        return Op(code=op.code, null=op.null, least=op.least or its.least, length=op.length, program=its)
    return op


@functools.cache
def _simple_op(word: str) -> Op:
    code, null, least, length, longest = OPS[word]
    return Op(code=Code(code), null=null, least=least, length=Code(length), longest=longest)
