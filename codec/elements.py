"""Counts the elements of a request's arrays without parsing them, so that a server can refuse a request of too many.

A server needs 5 to 10 µs for each name of a request, and 500,000 names fit into a few megabytes. Counting stops at the
bound, and skips the bytes of all other fields.
"""

import functools
from typing import Any, cast

from ottla.codec.apis import APIS
from ottla.codec.frames import RequestHeader, asked, header_version, is_known
from ottla.codec.ops import Code, Op, Program
from ottla.codec.program import program
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError

_FIXED = frozenset(Code) - {
    Code.UNSIGNED, Code.ZIGZAG32, Code.ZIGZAG64, Code.STRING, Code.BYTES, Code.WINDOW, Code.ARRAY, Code.STRUCT,
}  # fmt: skip
"""What takes as many bytes whatever its value."""


def check_elements(frame: Buffer, most: int) -> None:
    """Refuse a request (without its length) whose arrays have more than ``most`` elements.

    Raises:
        RemoteProtocolError: they have.
    """
    if len(frame) > most and has_more_elements(frame, most):  # an element takes at least a byte
        name = APIS[asked(frame)[0]].request.__name__.removesuffix("Request")
        raise RemoteProtocolError(f"{name} names more than {most} topics, partitions or groups")


def has_more_elements(frame: Buffer, most: int) -> bool:
    """Whether the arrays of a request (without its length) have more than ``most`` elements, tagged fields among them.

    Requests that break off, make no sense or are not known are for the parser to refuse.
    """
    key, version = asked(frame)
    if not is_known(key, version):
        return False
    walk = _ElementCounter(memoryview(frame), most)
    try:
        walk.struct(program(cast(Any, RequestHeader), header_version(key, version)))
        walk.struct(program(cast(Any, APIS[key].request), version))
    except IndexError:
        return False
    except _TooManyElements:
        return True
    return False


class _TooManyElements(Exception):
    pass


class _ElementCounter:
    def __init__(self, data: memoryview, most: int) -> None:
        self._data, self._left, self._at = data, most, 0

    def struct(self, its: Program) -> None:
        for step in _steps(its):
            if isinstance(step, int):
                self._at += step
            else:
                self._value(step)
        if its.tagged is not None:
            for _ in range(self._counted(self._varint())):
                tag, size = self._varint(), self._varint()
                end = self._at + size
                for each in its.tagged:
                    if each.tag == tag:
                        self._value(each.op)
                self._at = end

    def _value(self, op: Op) -> None:
        match op.code:
            case Code.STRING | Code.BYTES | Code.WINDOW:
                size = self._length(op.length)
                self._at += max(0, size)
            case Code.ARRAY:
                item = cast(Op, op.item)
                count = self._counted(self._length(op.length))
                if item.code in _FIXED:
                    self._at += count * item.least
                else:
                    for _ in range(count):
                        self._value(item)
            case Code.STRUCT:
                if not op.null or self._length(op.length) >= 0:
                    self.struct(cast(Program, op.program))
            case Code.UNSIGNED | Code.ZIGZAG32 | Code.ZIGZAG64:
                self._varint()
            case _:
                self._at += op.least

    def _counted(self, elements: int) -> int:
        elements = max(0, elements)
        self._left -= elements
        if self._left < 0:
            raise _TooManyElements
        return elements

    def _length(self, code: Code) -> int:
        """What stands in front of strings, bytes, arrays and structs that may be null; -1 for null."""
        if code == Code.UNSIGNED:
            return self._varint() - 1
        begin, self._at = self._at, self._at + _SIZES[code]
        if self._at > len(self._data):
            raise IndexError
        return int.from_bytes(self._data[begin : self._at], "big", signed=True)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._data[self._at]) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            self._at += 1
            if shift > 63:
                raise IndexError
        self._at += 1
        return value | byte << shift


_SIZES = {Code.INT8: 1, Code.INT16: 2, Code.INT32: 4}


@functools.cache
def _steps(its: Program) -> tuple[int | Op, ...]:
    """The fields of a struct: bytes to skip, and ops of varying size."""
    steps: list[int | Op] = []
    for _, op in its.fields:
        if op.code not in _FIXED:
            steps.append(op)
        elif steps and isinstance(last := steps[-1], int):
            steps[-1] = last + op.least
        else:
            steps.append(op.least)
    return tuple(steps)
