"""`ottla.sdk.mdns` for trio: find brokers and proxies by zeroconf, or announce one.

zeroconf has threads and an event loop of its own, so its calls run in a thread; an abandoned search ends by itself.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from ottla.sdk import mdns
from ottla.sdk.mdns import Announcement


async def resolve(bootstrap: str, timeout: float) -> list[str]:
    """Like `mdns.resolve`."""
    return await trio.to_thread.run_sync(mdns.resolve, bootstrap, timeout, abandon_on_cancel=True)


async def find(name: str | None, timeout: float, *, interfaces: Sequence[str] | None = None) -> list[str]:
    """Like `mdns.find`."""
    search = partial(mdns.find, name, timeout, interfaces=interfaces)
    return await trio.to_thread.run_sync(search, abandon_on_cancel=True)


async def browse(timeout: float, *, interfaces: Sequence[str] | None = None) -> list[Announcement]:
    """Like `mdns.browse`."""
    return await trio.to_thread.run_sync(partial(mdns.browse, timeout, interfaces=interfaces), abandon_on_cancel=True)


@asynccontextmanager
async def announced(
    name: str, port: int, *, properties: Mapping[str, str] | None = None, interfaces: Sequence[str] | None = None
) -> AsyncIterator[Announcement]:
    """Like `mdns.announced`."""
    announcing = mdns.announced(name, port, properties=properties, interfaces=interfaces)
    announcement = await trio.to_thread.run_sync(announcing.__enter__)
    try:
        yield announcement
    finally:
        with trio.CancelScope(shield=True):  # zeroconf withdraws the announcement within half a second
            await trio.to_thread.run_sync(announcing.__exit__, None, None, None)


__all__ = ["Announcement", "announced", "browse", "find", "resolve"]
