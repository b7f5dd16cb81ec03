"""Advice for misused objects: `with` where `async with` is needed, the reverse, and misspelt methods.

Python's own errors name neither the right block nor, to code that catches them, the right method. The methods here
exist at run time only, so type checkers refuse such code as before.
"""

from typing import TYPE_CHECKING

from ottla.unknown_options import nearest


class Suggesting:
    """Suggests a public attribute whose name is near.

    Not a base of `Producer` and `Transaction`: if a class has `__getattr__`, Python 3.11 creates a bound method for
    each call, which costs 80 ns, a quarter of a `send_soon`. For these, Python's own traceback suggests the name.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if not (name.startswith("_") or hasattr(type(self), name)):
                public = [each for each in dir(type(self)) if not each.startswith("_")]
                if near := nearest(name, public):
                    raise AttributeError(f"a {type(self).__name__} has no {name}: do you mean {near}?")
            return object.__getattribute__(self, name)  # raises Python's error, or the one of a property


class AsyncBlock:
    """A base of the asynchronous classes."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self):
            raise TypeError(
                f"a {type(self).__name__} needs 'async with', not 'with'; for blocking code make the client with "
                "ottla.sync.connect"
            )

        def __exit__(self, *_):
            """Python looks it up before it calls `__enter__`."""


class BlockingBlock:
    """A base of the blocking classes."""

    __slots__ = ()

    if not TYPE_CHECKING:

        async def __aenter__(self):
            raise TypeError(
                f"a {type(self).__name__} of ottla.sync needs 'with', not 'async with'; under trio make the client "
                "with ottla.connect, on asyncio with ottla.aio.connect"
            )

        async def __aexit__(self, *_):
            """Python looks it up before it calls `__aenter__`."""
