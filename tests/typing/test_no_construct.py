"""construct stays inside the codec: no public name of `ottla.codec` is, takes, returns or inherits its types."""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import ottla.codec

INSIDE = {f"ottla.codec.{name}" for name in ("wire", "trees", "reference", "flatten", "program", "machine")}
"""The language of the declarations, and the code that executes it."""

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(ottla.codec.__path__, "ottla.codec.")
    if found.name not in INSIDE and not found.name.rpartition(".")[2].startswith("_")
)


def types_in(annotation: Any) -> Iterator[Any]:
    """An annotation and all of its parts."""
    yield annotation
    for each in typing.get_args(annotation):
        yield from types_in(each)


def promised(value: Any, module: ModuleType) -> Iterator[Any]:
    """The types that a function, a property or a class shows: its bases, its annotations, and its members'."""
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(getattr(value, "__func__", value))
    if isinstance(value, FunctionType):
        hints = typing.get_type_hints(value, vars(module))
        yield from (part for hint in hints.values() for part in types_in(hint))
    elif isinstance(value, type) and value.__module__ == module.__name__:
        yield from value.__mro__
        yield from (part for hint in typing.get_type_hints(value).values() for part in types_in(hint))
        for name, member in vars(value).items():
            if not name.startswith("_") or name == "__init__":
                yield from promised(member, module)
    else:
        yield type(value)


def leaks(module: ModuleType) -> list[str]:
    names = [name for name in getattr(module, "__all__", vars(module)) if not name.startswith("_")]
    values = ((name, getattr(module, name)) for name in names)
    return [
        f"{module.__name__}.{name}: {each}"
        for name, value in values
        if not isinstance(value, ModuleType)
        for each in promised(value, module)
        if (getattr(each, "__module__", None) or "").partition(".")[0] == "construct"
    ]


@pytest.mark.parametrize("name", ["ottla.codec", *MODULES])
def test_no_construct_leaves_the_codec(name: str) -> None:
    assert leaks(importlib.import_module(name)) == []


def test_a_construct_that_leaks_is_seen() -> None:
    assert leaks(importlib.import_module("ottla.codec.trees"))
