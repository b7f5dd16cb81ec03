"""What users give, compared with the signature: an error says which argument does not fit, and what would.

    @checked
    def producer(self, *, linger: float = 0.005, compression: str | Mapping[str, str] = "none") -> Producer: ...

    producer(linger="5")    ConfigurationError: linger must be a number, not '5'

Rules:
- The annotations are the only description of what fits; values are judged by the code that takes them.
- Collections are looked into, iterators are not, for they could be read only once. A string is no collection.
- What cannot be seen from outside (type variables, ``*args``) fits; of a protocol its names count.
"""

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache, partial, wraps
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ottla.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[Any], bool]

_ALMOST = 0.8
"""How much two names are alike of which one may be a slip of the other."""
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
    kinds = inspect.signature(function).parameters
    in_order = [name for name, each in kinds.items() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]

    @cache
    def expected() -> tuple[list[tuple[str, Test]], dict[str, Test], dict[str, Any]]:
        """Once somebody calls: annotations may name what is defined later."""
        hints = get_type_hints(function)
        by_name = {name: fitting(hints.get(name, Any)) for name in kinds if name != "self"}
        return [(name, by_name.get(name, _anything)) for name in in_order], by_name, hints

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # What is too much, or missing, the call itself complains of.
        by_place, by_name, hints = expected()
        for (name, fits), value in zip(by_place, args, strict=False):
            if not fits(value):
                raise ConfigurationError(f"{name} must be {described(hints[name])}, not {value!r}")
        for name, value in kwargs.items():
            if not by_name.get(name, _anything)(value):
                raise ConfigurationError(f"{name} must be {described(hints[name])}, not {value!r}")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    @wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await function(*args, **kwargs)

    return cast(F, call_async if inspect.iscoroutinefunction(function) else call)


@cache
def fitting(hint: Any) -> Test:
    """What tells whether a value is what the annotation says; made once, to be asked at every call."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds, tests = frozenset(parts), [fitting(each) for each in parts]
        return lambda value: type(value) in kinds or any(fits(value) for fits in tests)
    if origin is Literal:
        return lambda value: any(value is each or (_alike(value, each) and value == each) for each in parts)
    if origin is Callable:
        return callable
    if origin is tuple and parts[-1:] != (...,):
        return _tuple_of(parts)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _mapping_of(origin, *parts) if issubclass(origin, Mapping) else _several_of(origin, parts[0])
    hint = origin or hint
    if number := _NUMBERS.get(hint):
        return lambda value: type(value) is hint or (isinstance(value, number) and not isinstance(value, bool))
    if names := _asked_of(hint):
        return lambda value: all(hasattr(value, each) for each in names)
    return (lambda value: isinstance(value, hint)) if isinstance(hint, type) and hint is not Any else _anything


def _anything(value: Any) -> bool:
    return True


def _tuple_of(hints: Sequence[Any]) -> Test:
    kinds, tests = list(hints), [fitting(each) for each in hints]

    def fits(value: Any) -> bool:
        if not isinstance(value, tuple):
            return False
        if [*map(type, value)] == kinds:
            return True  # mostly, and at once
        return len(value) == len(tests) and all(fit(each) for fit, each in zip(tests, value, strict=True))

    return fits


def _several_of(kind: type, hint: Any) -> Test:
    fit = fitting(hint)

    def fits(value: Any) -> bool:
        if not isinstance(value, kind) or isinstance(value, (str, bytes)):
            return False
        return not isinstance(value, Collection) or all(map(fit, value))

    return fits


def _mapping_of(kind: type[Mapping[Any, Any]], key: Any = Any, item: Any = Any) -> Test:
    fit_key, fit_item = fitting(key), fitting(item)

    def fits(value: Any) -> bool:
        return isinstance(value, kind) and all(fit_key(k) and fit_item(v) for k, v in value.items())

    return fits


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
        key, item, *_ = *parts, Any, Any  # of a Counter only the keys are given
        return [f"{{{described(key)}: {described(item)}}}"]
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


def derived(owner: object, base: type) -> None:
    """Refuse an object whose methods are not those that its base class is asked for.

    Each is awaited or not, and takes as many arguments, as the base's. One at least is the owner's own; and what is
    almost named as one that is not, in our words or in Java's, is misspelt. Other methods are the owner's own affair.
    """
    asked = {name: method for name, method in vars(base).items() if not name.startswith("_")}
    for name, method in asked.items():
        _as_awaited_as(method, owner, name)
        _takes_what(method, owner, name)
    left = [name for name, method in asked.items() if getattr(getattr(owner, name), "__func__", None) is method]
    known = {name for each in type(owner).__mro__ if each.__module__.startswith("ottla.") for name in vars(each)}
    *most, last = asked
    names = f"a {base.__name__} has {', '.join(most)} and {last}"
    for name in dir(type(owner)):
        if name.startswith("_") or name in known or not callable(getattr(type(owner), name)):
            continue
        for meant in left:
            if _misspelt(name, meant):
                raise ConfigurationError(
                    f"{type(owner).__name__}.{name} is never called: {names}; do you mean {meant}? What others call is "
                    "better off elsewhere, or with an underscore in front"
                )
    if len(left) == len(asked):
        raise ConfigurationError(f"{type(owner).__name__} is never told anything: {names}; write at least one of them")


def _misspelt(name: str, meant: str) -> bool:
    """Whether the one is likely a slip of the other, as ``onPartitionsAssigned`` is of ``assigned``."""
    if meant.removesuffix("ed") in name.casefold():
        return True
    word, wanted = _gist(name), _gist(meant)
    if word[:1] != wanted[:1]:
        return False  # short words are alike by their ends: of "lost" that would be "post"
    short = len(word) > 2 and wanted.startswith(word)
    return short or SequenceMatcher(None, word, wanted).ratio() >= _ALMOST


def _gist(name: str) -> str:
    """What is left of ``on_commit`` or ``onPartitionsLost`` without what many such names have."""
    return re.sub("^on|partitions?", "", name.casefold().replace("_", ""))


def _as_awaited_as(method: object, owner: object, name: str) -> None:
    where, own = f"{type(owner).__name__}.{name}", getattr(owner, name)
    if is_async(method):
        if not (is_async(own) or is_async(inspect.unwrap(own))):
            raise ConfigurationError(f"{where} is awaited: write it with `async def`")
    elif is_async(own):
        raise ConfigurationError(f"{where} is called and not awaited: write it without `async`")


def _takes_what(method: Callable[..., Any], owner: object, name: str) -> None:
    _, *given = inspect.signature(method).parameters
    try:
        # Of what a decorator made of it, which may pass on more than it is given.
        inspect.signature(getattr(owner, name), follow_wrapped=False).bind(*given)
    except ValueError:  # written in C, and does not tell
        return
    except TypeError as error:
        called = f"{type(owner).__name__}.{name} is called with ({', '.join(given)})"
        raise ConfigurationError(f"{called}, which it does not take: {error}") from None


def refused_coroutine(what: str, returned: object) -> ConfigurationError | None:
    """The error for a function of the user's that is called, and not awaited, and that returned what must be.

    `is_async` sees what is written with ``async def``; ``lambda result: store(result)`` shows only when it is called.
    A coroutine is closed, since nobody will run it: so Python does not warn of it as well.

    Args:
        what: names the function, as ``on_delivery`` or ``Mine.on_acknowledgement``.
        returned: by the call; mostly ``None``.
    """
    if returned is None or not inspect.isawaitable(returned):
        return None
    if inspect.iscoroutine(returned):
        returned.close()
    return ConfigurationError(
        f"{what} is called, and not awaited, but returned {returned!r}, which was not run: write it without `async`; "
        "for what takes long have it hand the result to a task of yours, as by a memory channel's send_nowait"
    )


def is_async(function: object) -> bool:
    """Whether a call of it has to be awaited, as far as that can be seen."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
