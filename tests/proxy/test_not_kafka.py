"""An upstream or bootstrap address without a Kafka: the error names the kind of the server."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

import ottla
from ottla.errors import BrokerUnreachable
from ottla.proxy.config import ProxyConfig
from ottla.proxy.serve import run_proxy
from tests.patience import longer_and_longer

REFUSES = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[str]:
    """An HTTP server that answers bad requests with these bytes; without bytes it waits for the end of a line."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await stream.receive_some(1000)
                if not answer:
                    await stream.receive_some(1000)
                await stream.send_all(answer)
            except trio.BrokenResourceError:
                pass

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def proxy(address: str, timeout: float) -> None:
    await run_proxy(ProxyConfig(upstream=address, listen="127.0.0.1:0", connect_timeout=timeout))


async def client(address: str, timeout: float) -> None:
    async with ottla.connect(address, connect_timeout=timeout):
        pass


@pytest.mark.parametrize("who", [proxy, client])
@pytest.mark.parametrize(
    ("answer", "said"), [(REFUSES, "it looks like an HTTP server"), (b"", "HTTP servers and listeners with TLS")]
)
async def test_an_http_server_is_named(who: Callable[[str, float], Awaitable[None]], answer: bytes, said: str) -> None:
    async with serving(answer) as address:
        for timeout in longer_and_longer(0.5):
            with pytest.raises(BrokerUnreachable) as caught:
                await who(address, timeout)
            if said in str(caught.value):
                break
    assert f"{address}: " in str(caught.value) and said in str(caught.value)


async def test_the_log_does_not_repeat_what_upstream_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(REFUSES) as address:
        for timeout in longer_and_longer(0.5):
            caplog.clear()
            with pytest.raises(BrokerUnreachable):
                await proxy(address, timeout)
            errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            if any("HTTP" in each for each in errors):
                break
    assert len(errors) == 1 and errors[0].endswith("it looks like an HTTP server")
