"""Configurations whose error for an unknown option names the nearest option.

The error is Python's own, a `TypeError`. It shows no value, which may be a password.
"""

import inspect
from collections.abc import Iterable
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar to ``name``; empty if none is."""
    from difflib import get_close_matches  # only for an error

    return next(iter(get_close_matches(name, list(known), 1)), "")


def naming_options(cls: C) -> C:
    """A decorator of a dataclass."""
    make: Any = cls.__init__
    known = list(inspect.signature(make).parameters)[1:]

    @wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                near = nearest(name, known)
                advice = f"do you mean {near}?" if near else f"there are {', '.join(known)}"
                raise TypeError(f"{cls.__name__}() has no option {name}: {advice}")
        make(self, *args, **kwargs)

    cls.__init__ = init
    return cls
