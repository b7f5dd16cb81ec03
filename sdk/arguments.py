"""Checks of arguments that Python itself would accept, or reject too late; each error names the valid values.

Types are declared, and type checkers verify them. This file checks only mistakes that a type checker lets pass, or that
without one would end in something worse than a plain error at the call: a string is an iterable of strings, half a
partition fails only inside a machine, and a method that is misspelt is never called.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, TypeVar

from ottla.errors import ConfigurationError
from ottla.unknown_options import nearest

V = TypeVar("V")

TopicPartition = tuple[str, int]
"""A topic and the number of a partition."""

_ALMOST = 0.8
"""From this similarity on, one name may be a misspelling of the other."""


_PLACE = "(topic, number), as in ('orders', 0)"


def string(name: str, given: str) -> str:
    if not isinstance(given, str):
        raise ConfigurationError(f"{name} must be a string, not {given!r}")
    return given


def integer(name: str, given: int) -> int:
    if not isinstance(given, Integral) or isinstance(given, bool):
        raise ConfigurationError(f"{name} must be an integer, not {given!r}")
    return given


def seconds(name: str, given: float) -> float:
    """Check a duration."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds, 0 or more, not {given!r}")
    return given


def strings(name: str, given: Iterable[str]) -> list[str]:
    """Check several strings."""
    return [string(f"each of {name}", each) for each in _several(name, given)]


def several(name: str, kind: type[V], given: Iterable[V]) -> list[V]:
    """Check several objects of a class."""
    found = list(_several(name, given))
    for each in found:
        if not isinstance(each, kind):
            raise ConfigurationError(f"each of {name} must be an {kind.__name__}, not {each!r}")
    return found


def listed(name: str, given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Check several partitions."""
    return [_place(name, each) for each in _several(name, given)]


def scoped(name: str, given: Iterable[str | TopicPartition]) -> list[str | TopicPartition]:
    """Check several topics, or partitions of topics."""
    return [each if isinstance(each, str) else _place(name, each) for each in _several(name, given)]


def by_topic_partition(name: str, given: Mapping[TopicPartition, V]) -> dict[TopicPartition, V]:
    """Check a mapping from partitions."""
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{name} must be a mapping whose keys are partitions, each {_PLACE}, not {given!r}")
    return {_place(name, place): each for place, each in given.items()}


def known(kind: str, names: Sequence[str], given: Iterable[str]) -> list[str]:
    """Return the given ``names``, case-insensitively; refuse unknown names, and suggest the nearest."""
    folded, wanted = {each.casefold(): each for each in names}, {each.casefold(): each for each in given}
    for fold, each in wanted.items():
        if fold not in folded:
            near = nearest(fold, folded)
            advice = f"do you mean {folded[near]!r}?" if near else f"there are {', '.join(names)}"
            raise ConfigurationError(f"{each!r} is not a known {kind}: {advice}")
    return [name for fold, name in folded.items() if fold in wanted]


def _several(name: str, given: Iterable[V]) -> Iterable[V]:
    """Refuse a single string: its letters would be taken for names."""
    if isinstance(given, (str, bytes)):
        raise ConfigurationError(f"{name} must be a list, as in [{given!r}], not {given!r}")
    return given


def _place(name: str, place: TopicPartition) -> TopicPartition:
    if isinstance(place, tuple) and len(place) == 2:
        topic, number = place
        if isinstance(topic, str) and isinstance(number, Integral) and not isinstance(number, bool):
            return place
    raise ConfigurationError(f"{name}: a partition is {_PLACE}, not {place!r}")


def derived(owner: object, base: type) -> None:
    """Refuse an object whose methods do not match the base class.

    Each method is async if the base's is, and takes as many arguments. The owner has to override at least one. A method
    is misspelt if its name is close to the name of a method that is not overridden, in our naming or in Java's. Other
    methods are left alone.
    """
    if not isinstance(owner, base):
        home = "ottla.sync" if base.__module__.startswith("ottla.sdk.sync") else "ottla"
        derive = f"derive a class from {home}.{base.__name__}"
        raise ConfigurationError(
            f"{owner!r} is not a {base.__name__} of this client: {derive}, and pass an instance of it"
        )
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
                    f"{type(owner).__name__}.{name} is never called: {names}; do you mean {meant}? If other code calls "
                    "it, move it to another class or put an underscore in front"
                )
    if len(left) == len(asked):
        raise ConfigurationError(f"{type(owner).__name__} is never called: {names}; write at least one of them")


def _misspelt(name: str, meant: str) -> bool:
    """Whether one name is likely a misspelling of the other, as ``onPartitionsAssigned`` is of ``assigned``."""
    if meant.removesuffix("ed") in name.casefold():
        return True
    word, wanted = _gist(name), _gist(meant)
    if word[:1] != wanted[:1]:
        return False  # short words are alike by their ends: "post" would count as "lost"
    short = len(word) > 2 and wanted.startswith(word)
    if short:
        return True
    from difflib import SequenceMatcher  # hardly any listener has such a method

    return SequenceMatcher(None, word, wanted).ratio() >= _ALMOST


def _gist(name: str) -> str:
    """Strip from ``on_commit`` or ``onPartitionsLost`` the parts that many such names share."""
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
        # The signature of the decorator's wrapper, which may pass on more arguments than it gets.
        inspect.signature(getattr(owner, name), follow_wrapped=False).bind(*given)
    except ValueError:  # written in C, and has no signature
        return
    except TypeError as error:
        called = f"{type(owner).__name__}.{name} is called with ({', '.join(given)})"
        raise ConfigurationError(f"{called}, which it does not accept: {error}") from None


def refused_coroutine(what: str, returned: object) -> ConfigurationError | None:
    """Return an error if a function of the user's that is not awaited returned an awaitable.

    `is_async` recognises ``async def``; ``lambda result: store(result)`` shows only when it is called. A coroutine is
    closed: it never runs, and Python would warn of that as well.

    Args:
        what: the name of the function, such as ``on_delivery`` or ``Mine.on_acknowledgement``.
        returned: by the call; mostly ``None``.
    """
    if returned is None or not inspect.isawaitable(returned):
        return None
    if inspect.iscoroutine(returned):
        returned.close()
    return ConfigurationError(
        f"{what} is called, and not awaited, but returned {returned!r}, which was not run: write it without `async`; "
        "for slow work pass the result to a task of yours, for example with a memory channel's send_nowait"
    )


def is_async(function: object) -> bool:
    """Whether a call of it has to be awaited, as far as can be known."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
