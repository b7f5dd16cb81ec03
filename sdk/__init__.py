"""The client: `connect`, producers, consumers, administration; and `discovery` by zeroconf."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sdk.client import Client, connect

__all__ = ["Client", "connect"]


def __getattr__(name: str) -> object:
    # Lazily, because the machines and the blocking driver must not bring trio with them.
    if name in __all__:
        from ottla.sdk import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
