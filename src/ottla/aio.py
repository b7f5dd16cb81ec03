"""The client on asyncio: see `ottla.sdk.aio`."""

from ottla.uncollected import uncollected

with uncollected():
    from ottla.sdk.aio import Client, connect

__all__ = ["Client", "connect"]
