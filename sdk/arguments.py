"""What users give, compared with the signature: whoever calls with something else hears which argument, and what fits.

    @checked
    def producer(self, *, linger: float = 0.005, compression: str | Mapping[str, str] = "none") -> Producer: ...

    producer(linger="5")    ConfigurationError: linger must be a number, not '5'

Rules:
- The annotations are the only description of what fits; values are judged by whoever takes them.
- Collections are looked into, iterators are not, for they could be read only once. A string is no collection.
- What cannot be told from outside (type variables, ``*args``) fits; of a protocol its names count.
"""

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial, wraps
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ottla.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

_NUMBERS: dict[object, type] = {float: Real, int: Integral}
_WORDS: dict[object, str] = {
    float: "a number",
    int: "an integer",
    str: "a string",
    bool: "True or False",
    bytes: "bytes",
    type(None): "None",
    Any: "anything",
}


def checked(function: F) -> F:
    """``function``, which raises `ConfigurationError` before anything else where an argument does not fit."""
    signature = inspect.signature(function)
    hints = cache(lambda: get_type_hints(function))  # once somebody calls: they may name what is defined later
    skipped = {each.name for each in signature.parameters.values() if each.kind is each.VAR_POSITIONAL} | {"self"}

    def check(*args: Any, **kwargs: Any) -> None:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name not in skipped and not fits(value, hints()[name]):
                raise ConfigurationError(f"{name} must be {described(hints()[name])}, not {value!r}")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    @wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return await function(*args, **kwargs)

    return cast(F, call_async if inspect.iscoroutinefunction(function) else call)


def fits(value: Any, hint: Any) -> bool:
    """Whether the value is what the annotation says."""
    if type(value) is hint:
        return True  # mostly, and at once
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in parts)
    if origin is Literal:
        return any(value is each or (_alike(value, each) and value == each) for each in parts)
    if origin is Callable:
        return callable(value)
    if origin is tuple and parts[-1:] != (...,):
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(fits, value, parts))
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if not isinstance(value, origin) or isinstance(value, str | bytes):
            return False
        if isinstance(value, Mapping):
            return len(parts) < 2 or all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
        return not isinstance(value, Collection) or all(fits(each, parts[0]) for each in value)
    hint = origin or hint
    if kind := _NUMBERS.get(hint):
        return isinstance(value, kind) and not isinstance(value, bool)
    if names := _asked_of(hint):
        return all(hasattr(value, each) for each in names)
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def described(hint: Any) -> str:
    """The annotation in words."""
    *most, last = _words(hint)
    return f"{', '.join(most)} or {last}" if most else last


def _words(hint: Any) -> list[str]:
    """Words for each thing that fits."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return [word for part in parts for word in _words(part)]
    if origin is Literal:
        return list(map(repr, parts))
    if origin is Callable:
        return ["a function"]
    if origin is tuple and parts[-1:] != (...,):
        return [f"({', '.join(map(described, parts))})"]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [f"{{{described(parts[0])}: {described(parts[1])}}}"]
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return [f"several, each {described(parts[0])}"]
    if names := _asked_of(hint):
        return [f"an object with {', '.join(names)}"]
    return [_WORDS.get(hint) or f"a {(origin or hint).__name__}"]


def _alike(value: Any, literal: Any) -> bool:
    """Whether the one is of the other's type, as the members of a `StrEnum` are strings, and True is no number."""
    return isinstance(value, type(literal)) and isinstance(value, bool) == isinstance(literal, bool)


def _asked_of(hint: Any) -> list[str]:
    """The names of a protocol."""
    return [each for each in vars(hint) if not each.startswith("_")] if getattr(hint, "_is_protocol", False) else []


def all_async(owner: object, *names: str) -> None:
    """Refuse methods that are awaited, and were not written with ``async def``."""
    for name in names:
        method = getattr(owner, name)
        if not (is_async(method) or is_async(inspect.unwrap(method))):
            raise ConfigurationError(f"{type(owner).__name__}.{name} is awaited: write it with `async def`")


def none_async(owner: object, *names: str) -> None:
    """Refuse methods that nobody awaits, and that were written with ``async def``."""
    for name in names:
        if is_async(getattr(owner, name)):
            where = f"{type(owner).__name__}.{name}"
            raise ConfigurationError(f"{where} is called and not awaited: write it without `async`")


def is_async(function: object) -> bool:
    """Whether a call of it has to be awaited, as far as that can be seen."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
