"""The client on asyncio: see `ottla.sdk.aio`."""

from ottla.sdk.aio import Client, connect

__all__ = ["Client", "connect"]
