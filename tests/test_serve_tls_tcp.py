"""The broker with TLS and ottla's own client, on the network, with the real clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

import ottla
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.serve import run_broker
from ottla.errors import AuthenticationFailed, BrokerUnreachable
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.tls import TLS, ServerTLS
from tests import tls
from tests.patience import longer_and_longer
from tests.serving import LOCAL


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@asynccontextmanager
async def a_broker(its: ServerTLS | None) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        protocol = SecurityProtocol.PLAINTEXT if its is None else SecurityProtocol.SSL
        listeners = (ListenerConfig(protocol=protocol, port=0, tls=its),)
        config = BrokerConfig(listeners=listeners, sync=Sync.NEVER, group_initial_rebalance_delay=0)

        async def run(*, task_status: trio.TaskStatus[object]) -> None:
            await run_broker(config, task_status=task_status)

        running = await nursery.start(run)
        running.create_topic("t", 1, {})
        yield running.bootstrap
        nursery.cancel_scope.cancel()


async def test_our_client_produces_and_consumes_within_tls(ca: trustme.CA) -> None:
    own = ca.issue_cert("app.example.com")
    its = tls.serving(ca, LOCAL, "required")
    values = [bytes([number]) * 200_000 for number in range(20)]
    async with a_broker(its) as bootstrap, ottla.connect(bootstrap, tls=tls.of_client(ca, own)) as client:
        async with client.producer() as producer:
            for value in values:
                await producer.send("t", value)
        got: list[bytes | None] = []
        async with client.consumer("t", start="beginning") as consumer:
            async for batch in consumer:
                got += [record.value for record in batch]
                if len(got) == len(values):
                    break
        assert got == values


async def test_our_client_says_what_is_wrong(ca: trustme.CA) -> None:
    its = tls.serving(ca, LOCAL, "required")
    async with a_broker(its) as bootstrap:
        for options, said in (
            (tls.of_client(ca), "requires a certificate"),
            (TLS(ca=tls.text(trustme.CA().cert_pem)), "the broker's certificate is not trusted"),
            (None, "a TLS alert"),
        ):
            for timeout in longer_and_longer(0.5):
                with pytest.raises((AuthenticationFailed, BrokerUnreachable)) as caught:
                    async with ottla.connect(bootstrap, tls=options, connect_timeout=timeout) as client:
                        await client.list_topics()
                if said in str(caught.value):
                    break
            assert said in str(caught.value)
    async with a_broker(None) as bootstrap:
        with pytest.raises((AuthenticationFailed, BrokerUnreachable)):
            async with ottla.connect(bootstrap, tls=tls.of_client(ca), connect_timeout=0.5) as client:
                await client.list_topics()
