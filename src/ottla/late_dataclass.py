"""`dataclass`, as in the standard library, but a class gets its generated methods when one of them is first used.

`dataclasses` compiles them, which takes up to a millisecond for each class. Most programs use few of the classes that
they import. So a class is created at once, with its slots, and each attribute that `dataclasses` would compile is a
descriptor, `_Late`. The first use of one has `dataclasses` generate it for a stand-in of the class, and moves it into
the class. Many objects are created, and never compared or shown: so fields and constructor are generated apart from
the rest. The constructor is written here (`_constructor`), because `dataclasses` takes three times as long, for forty
classes before a client's first record.

Rules:
- `dataclasses` finds mistakes of a declaration (a mutable default, a missing one) only when the class is first used.
  `tests/test_late_dataclass.py` generates every class of the repository, and compares it with the standard
  library's.
- Annotations are fields: ``ClassVar`` and ``InitVar`` are not supported. There is no generated docstring.
- A stand-in has what `dataclasses` reads of the class and of its bases, but is no subclass of them.
- In a class with slots ``super()`` needs its arguments, as with the standard library before Python 3.14.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")
Generate = Callable[[], Mapping[str, Any]]
"""Returns attributes by their names."""


def _whole(base: Any) -> dict[str, Any]:
    """The attributes that `dataclasses` reads of a base."""
    return {"__dataclass_fields__": base.__dataclass_fields__, "__dataclass_params__": base.__dataclass_params__}


def _fields(base: Any) -> dict[str, Any]:
    """Only the fields of a base. It may be frozen: that makes no difference to fields."""
    return {"__dataclass_fields__": base.__dataclass_fields__, "__dataclass_params__": SimpleNamespace(frozen=False)}


class _Late:
    """An attribute of a class that is generated, with the others of the same ``generate``, when one is first used."""

    def __init__(self, name: str, generate: Generate) -> None:
        self._name, self._generate = name, generate

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, asked: type[Any]) -> Any:
        owner, made = self._owner, self._generate()
        # Two threads may do this at once: the second replaces the first one's methods by the same.
        for name, late in list(vars(owner).items()):
            if isinstance(late, _Late) and late._generate is self._generate:
                setattr(owner, name, made[name])
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
    """The decorator `dataclasses.dataclass`, with the options that ottla uses."""
    whole = {"init": init, "repr": repr, "eq": eq, "frozen": frozen, "kw_only": kw_only, "slots": slots}
    names = _generated(**whole)

    def decorate(cls: type[T]) -> type[T]:
        declared = {name: each for name, each in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        fields = cls.__annotations__
        read = ("__module__", "__annotations__", "__post_init__", "__setattr__", "__delattr__", *names, *fields)
        copied = {name: declared[name] for name in read if name in declared} | {"__qualname__": cls.__qualname__}
        # Without a docstring `dataclasses` would write one, of the signature, which takes half of its time.
        copied["__doc__"] = "A stand-in."
        for name in ("__post_init__", *fields):  # as it is inherited
            if name not in copied and hasattr(cls, name):
                copied[name] = getattr(cls, name)

        def generate(of_bases: Callable[[Any], dict[str, Any]], **options: bool) -> Mapping[str, Any]:
            bases = [base for base in cls.__mro__[1:] if dataclasses.is_dataclass(base)]
            stand_ins = tuple(type(base.__name__, (), of_bases(base)) for base in bases)
            return vars(dataclasses.dataclass(**options)(type(cls.__name__, stand_ins, dict(copied))))

        fields_alone = {"init": False, "repr": False, "eq": False, "kw_only": kw_only}
        generators: dict[str, Generate] = dict.fromkeys(names, partial(generate, _whole, **whole))
        generators["__dataclass_fields__"] = partial(generate, _fields, **fields_alone)
        if init:
            generators["__init__"] = lambda: {"__init__": _constructor(made, frozen=frozen, slots=slots)}
        late: dict[str, _Late | None] = {
            name: _Late(name, each) for name, each in generators.items() if declared.get(name) is None
        }
        if eq and not frozen and "__hash__" not in declared:
            late["__hash__"] = None
        made = _with_slots(cls, declared, late) if slots else _extended(cls, late)
        if frozen:
            _freeze(made)
        return made

    return decorate


class _Factory:
    """The default of an argument for which the constructor calls the field's factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _constructor(cls: type[Any], *, frozen: bool, slots: bool) -> Callable[..., None]:
    """The constructor that `dataclasses` would compile."""
    fields: dict[str, Field[Any]] = cls.__dataclass_fields__
    known: dict[str, Any] = {"__name__": cls.__module__, "_FACTORY": _FACTORY, "_set": object.__setattr__}
    body: list[str] = []
    for name, each in fields.items():
        given = name
        if each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            given = f"_make_{name}() if {name} is _FACTORY else {name}" if each.init else f"_make_{name}()"
        elif each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            given = name if each.init else f"_default_{name}"
        if each.init or each.default_factory is not MISSING or (slots and each.default is not MISSING):
            body.append(f"_set(self, {name!r}, {given})" if frozen else f"self.{name} = {given}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    taken = {name: each for name, each in fields.items() if each.init}
    parameters = [_parameter(name, each) for name, each in taken.items() if not each.kw_only]
    if keywords := [_parameter(name, each) for name, each in taken.items() if each.kw_only]:
        parameters += ["*", *keywords]
    exec(f"def __init__({', '.join(['self', *parameters])}):\n " + "\n ".join(body or ["pass"]), known)
    method: Callable[..., None] = known["__init__"]
    method.__annotations__ = {name: each.type for name, each in taken.items()} | {"return": None}
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method


def _parameter(name: str, field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return f"{name}=_default_{name}"
    return name if field.default_factory is MISSING else f"{name}=_FACTORY"


def _extended(cls: type[T], late: "dict[str, _Late | None]") -> type[T]:
    """The class itself; a field with a default gets it as class variable, and others none."""
    for name in cls.__annotations__:
        if isinstance(field := vars(cls).get(name), Field):
            if field.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, field.default)
    for name, each in late.items():
        setattr(cls, name, each)
        if each is not None:
            each.__set_name__(cls, name)
    return cls


def _with_slots(cls: type[T], declared: dict[str, Any], late: "dict[str, _Late | None]") -> type[T]:
    """Another class with a slot for each field: an existing class cannot get slots."""
    fields = cls.__annotations__
    inherited = set(chain.from_iterable(vars(each).get("__slots__", ()) for each in cls.__mro__[1:]))
    members = {name: each for name, each in declared.items() if name not in fields}
    members |= {"__slots__": tuple(name for name in fields if name not in inherited), **late}
    members["__qualname__"] = cls.__qualname__
    kind: Any = type(cls)
    return cast("type[T]", kind(cls.__name__, cls.__bases__, members))


def _freeze(cls: type[Any]) -> None:
    """Let objects refuse changes. `dataclasses` would do so for objects of the stand-in."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    for method in (__setattr__, __delattr__):
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, method)


def _generated(*, init: bool, repr: bool, eq: bool, frozen: bool, slots: bool, kw_only: bool) -> list[str]:
    """The names of the attributes that `dataclasses` compiles, or makes of the fields."""
    names = ["__dataclass_fields__", "__dataclass_params__", "__match_args__"]
    names += ["__init__"] * init + ["__repr__"] * repr + ["__eq__"] * eq + ["__hash__"] * (eq and frozen)
    names += ["__getstate__", "__setstate__"] * (frozen and slots)
    return names + ["__replace__"] * (sys.version_info >= (3, 13))
