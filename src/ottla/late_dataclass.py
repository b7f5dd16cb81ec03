"""`dataclass`, as in the standard library, but a class gets its generated methods when one of them is first used.

`dataclasses` compiles them, which takes up to a millisecond for each class. Most programs use few of the classes that
they import. So a class is created at once, with its slots, and each attribute that `dataclasses` would generate is a
descriptor, `_Late`. The first use of one has `dataclasses` generate it, and moves it into the class. The constructor is
generated apart from the rest, because many objects are created, and never compared or shown.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


class _Late:
    """An attribute of a class that is generated, with the others of the same ``generate``, when one is first used."""

    def __init__(self, name: str, generate: Callable[[], type[Any]]) -> None:
        self._name, self._generate = name, generate

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, asked: type[Any]) -> Any:
        owner, made = self._owner, self._generate()
        # Two threads may do this at once: the second replaces the first one's methods by the same.
        for name, late in list(vars(owner).items()):
            if isinstance(late, _Late) and late._generate is self._generate:
                setattr(owner, name, vars(made)[name])
        found = vars(owner)[self._name]
        return found.__get__(instance, asked) if callable(found) else found


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Callable[[type[T]], type[T]]:
    """The decorator `dataclasses.dataclass`, with the options that ottla uses; class variables have no annotation."""
    whole = {"init": init, "repr": repr, "eq": eq, "frozen": frozen, "kw_only": kw_only, "slots": slots}
    to_create = whole | {"repr": False, "eq": False, "slots": False}

    def decorate(cls: type[T]) -> type[T]:
        declared = {name: each for name, each in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        declared["__qualname__"] = cls.__qualname__

        def generate(options: dict[str, bool]) -> type[Any]:
            return dataclasses.dataclass(**options)(type(cls.__name__, cls.__bases__, dict(declared)))

        creating, others = partial(generate, to_create), partial(generate, whole)
        late: dict[str, _Late | None] = {
            name: _Late(name, creating if name == "__init__" else others)
            for name in _generated(**whole)
            if declared.get(name) is None
        }
        if eq and not frozen and "__hash__" not in declared:
            late["__hash__"] = None
        if not slots:
            for name, each in late.items():
                setattr(cls, name, each)
                if each is not None:
                    each.__set_name__(cls, name)
            return cls
        fields = cls.__annotations__
        inherited = set(chain.from_iterable(vars(each).get("__slots__", ()) for each in cls.__mro__[1:]))
        members = {name: each for name, each in declared.items() if name not in fields}
        members |= {"__slots__": tuple(name for name in fields if name not in inherited), **late}
        return cast("type[T]", type(cls.__name__, cls.__bases__, members))

    return decorate


def _generated(*, init: bool, repr: bool, eq: bool, frozen: bool, slots: bool, kw_only: bool) -> list[str]:
    """The names of the attributes that `dataclasses` generates."""
    names = ["__dataclass_fields__", "__dataclass_params__", "__match_args__"]
    names += ["__init__"] * init + ["__repr__"] * repr + ["__eq__"] * eq + ["__hash__"] * (eq and frozen)
    names += ["__setattr__", "__delattr__"] * frozen + ["__getstate__", "__setstate__"] * (frozen and slots)
    return names + ["__replace__"] * (sys.version_info >= (3, 13))
