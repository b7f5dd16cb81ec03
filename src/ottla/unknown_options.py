"""Configurations whose error for an unknown option names the nearest option.

The error is Python's own, a `TypeError`. It shows no value, which may be a password.
"""

import inspect
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])


def naming_options(cls: C) -> C:
    """A decorator of a dataclass."""
    make: Any = cls.__init__
    known = list(inspect.signature(make).parameters)[1:]

    @wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                near = get_close_matches(name, known, 1)
                advice = f"do you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise TypeError(f"{cls.__name__}() has no option {name}: {advice}")
        make(self, *args, **kwargs)

    cls.__init__ = init
    return cls
