"""Finds the error codes in a response.

Rules:
- A server does this for every response. So each class is looked at only once, and the codes of an array, such as the
  hundreds of partitions of a Fetch, are read in a loop of C.
- Structs with codes always come in arrays.
"""

import functools
import operator
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

CODES = ("error_code", "partition_error_code", "acknowledge_error_code")
"""The names of fields with an error code. Apache Kafka does not count `topic_config_error_code` of CreateTopics."""


class _Coded(NamedTuple):
    """The error codes of a struct: how to get its own, and the arrays of structs with codes, by name."""

    own: tuple[Callable[[Any], int], ...]
    arrays: "tuple[tuple[str, _Coded], ...]"


def error_codes(message: Any) -> list[int]:
    """Return the error codes in a response, at any depth; successes, which have the code 0, are left out."""
    found: list[int] = []
    cls: Any = type(message)
    _collect((message,), _coded(cls), found)
    return found


def _collect(structs: Iterable[Any], coded: _Coded, found: list[int]) -> None:
    own, arrays = coded
    for code in own:
        found += filter(None, map(code, structs))
    if arrays:
        for each in structs:
            for name, inner in arrays:
                if array := getattr(each, name):
                    _collect(array, inner, found)


@functools.cache
def _coded(cls: Any) -> _Coded:
    hints = typing.get_type_hints(cls)
    names = [field.name for field in cls.__wire__]
    own = tuple(operator.attrgetter(name) for name in names if name in CODES)
    arrays = [(name, _coded(struct)) for name in names for struct in _structs(hints[name])]
    return _Coded(own, tuple((name, inner) for name, inner in arrays if any(inner)))


def _structs(hint: Any) -> list[Any]:
    """Return the structs in the type of a field."""
    if hasattr(hint, "__wire__"):
        return [hint]
    return [struct for each in typing.get_args(hint) for struct in _structs(each)]
