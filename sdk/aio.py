"""The client on asyncio, with asyncio's own loops and uvloop: `connect`, and everything else as under trio.

    import asyncio

    import ottla.aio

    async def main() -> None:
        async with ottla.aio.connect("localhost:9092") as client, client.producer() as producer:
            await producer.send("events", b"hello", key=b"k")

    asyncio.run(main())

Names, errors and guarantees are the same as of `ottla.connect`, and so is the code: only the driver differs. To shorten
a call's timeout, use `asyncio.timeout`.
"""

from ottla.sdk.client import Client
from ottla.sdk.drivers.asyncio import AsyncioDriver
from ottla.sdk.options import ClientOptions
from ottla.sdk.signatures import declared_by

__all__ = ["Client", "connect"]


@declared_by(ClientOptions)
def connect(options: ClientOptions) -> Client:
    """A client for asyncio; use it as ``async with ottla.aio.connect("localhost:9092") as client``.

    Raises:
        ConfigurationError: an option or an address is invalid; raised at once.
        BrokerUnreachable: no broker answered within ``connect_timeout``; names the addresses tried. Raised on entering
            the block.
    """
    return Client(options, AsyncioDriver)
