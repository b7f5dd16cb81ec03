"""Finds the error codes in a response.

Rules:
- A server does this for every response. So the structs that only have a code themselves, such as the hundreds of
  partitions of a Fetch, are read in a loop of C.
"""

import functools
import operator
import typing
from typing import Any, NamedTuple

_CODE = operator.attrgetter("error_code")


class _Coded(NamedTuple):
    """A field of a struct that contains structs with error codes."""

    name: str
    is_last: bool
    """These structs have no such fields themselves."""


def error_codes(message: Any) -> list[int]:
    """Return the error codes in a response, at any depth; successes, which have the code 0, are left out."""
    found: list[int] = []
    _collect(message, type(message), found)
    return found


def _collect(message: Any, cls: Any, found: list[int]) -> None:
    has_code, fields = _coded(cls)
    if has_code and message.error_code:
        found.append(message.error_code)
    for name, is_last in fields:
        value = getattr(message, name) or ()
        each = value if isinstance(value, tuple | list) else (value,)
        if is_last:
            found += filter(None, map(_CODE, each))
        else:
            for inner in each:
                _collect(inner, type(inner), found)


@functools.cache
def _coded(cls: Any) -> tuple[bool, tuple[_Coded, ...]]:
    """Return whether a struct has an error code, and its fields that contain structs with error codes."""
    hints = typing.get_type_hints(cls)
    fields = []
    for field in cls.__wire__:
        inner = [each for each in map(_coded, _structs(hints[field.name])) if any(each)]
        if inner:
            fields.append(_Coded(field.name, not any(fields for _, fields in inner)))
    return any(field.name == "error_code" for field in cls.__wire__), tuple(fields)


def _structs(hint: Any) -> list[Any]:
    """Return the structs in the type of a field."""
    if hasattr(hint, "__wire__"):
        return [hint]
    return [struct for each in typing.get_args(hint) for struct in _structs(each)]
