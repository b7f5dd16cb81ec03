"""Advice for `with` where `async with` is needed, and the reverse; Python's own error names neither.

The methods exist at run time only, so type checkers refuse such a block as before.
"""

from typing import TYPE_CHECKING


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
