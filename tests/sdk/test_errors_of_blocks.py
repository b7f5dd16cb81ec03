"""An error leaves its block unchanged: a single error never becomes a group; programs end without a traceback."""

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.errors import BrokerUnreachable
from ottla.sdk.core import ClientCore
from ottla.testing import Broker
from tests.patience import HUNG
from tests.sdk.loops import Loop

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


async def test_an_error_of_ones_own_comes_out_of_all_blocks_as_it_is(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    mine = KeyError("mine")
    with pytest.raises(KeyError) as raised:
        async with (
            loop.connect(ottla_broker.bootstrap) as client,
            client.producer() as producer,
            client.consumer("t", group="g") as consumer,
        ):
            await producer.send("t", b"x")
            await anext(consumer)
            raise mine
    assert raised.value is mine and mine.__cause__ is None and mine.__context__ is None


async def test_an_error_of_a_listener_comes_out_as_it_is(loop: Loop, ottla_broker: Broker) -> None:
    class Mine(ottla.RebalanceListener):
        async def assigned(self, consumer: object, places: object) -> None:
            raise KeyError("mine")

    ottla_broker.create_topic("t")
    with pytest.raises(KeyError):
        async with (
            loop.connect(ottla_broker.bootstrap) as client,
            client.consumer("t", group="g", listener=Mine()) as consumer,
        ):
            await anext(consumer)


async def test_a_client_that_cannot_connect_raises_the_error_alone(loop: Loop) -> None:
    with pytest.raises(BrokerUnreachable):
        async with loop.connect("localhost:1", connect_timeout=0.1):
            raise AssertionError("a connection succeeded, though no server listens there")


async def test_a_bug_of_the_client_is_raised_alone_where_it_was_opened(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(core: ClientCore, event: object, now: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with loop.connect(ottla_broker.bootstrap) as client:
            monkeypatch.setattr(ClientCore, "handle", bug)
            with contextlib.suppress(ottla.OttlaError):
                await client.list_topics()
            await loop.sleep(5)


@pytest.mark.slow
def test_the_service_of_the_tutorial_ends_cleanly_at_ctrl_c(ottla_broker: Broker, tmp_path: Path) -> None:
    ottla_broker.create_topic("orders", partitions=3)
    [service] = re.findall(r"```python\n(# service\.py\n.*?)```", TUTORIAL.read_text(), re.DOTALL)
    told = "            async for batch in consumer:"
    assert told in service
    service = service.replace("localhost:9092", ottla_broker.bootstrap).replace(
        told, f"            print('reads')\n{told}"
    )
    (tmp_path / "service.py").write_text(service)
    command = [sys.executable, "-u", "-X", "dev", "service.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "reads\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(HUNG) == 0 and running.stderr.read() == ""
