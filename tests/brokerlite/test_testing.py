"""`ottla.testing.Broker` in a program of its own, without pytest."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla.sync
from ottla.brokerlite.config import BrokerConfig
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.testing import Broker
from ottla.tls import TLS


def test_a_broker_needs_no_configuration_and_takes_its_folder_along() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        with ottla.sync.connect(broker.bootstrap) as client, client.producer() as producer:
            assert producer.send("orders", b"an order", partition=2).offset == 0
        folder = broker.data
        assert list(folder.glob("orders-*"))
    assert not folder.exists()


def test_the_temporary_folder_outlives_restarts_and_kills() -> None:
    with Broker() as broker, ottla.sync.connect(broker.bootstrap) as client:
        with client.producer() as producer:
            producer.send("orders", b"an order")
        broker.restart()
        broker.kill()
        broker.start()
        with client.consumer("orders") as consumer:
            assert [record.value for record in next(consumer)] == [b"an order"]


def test_a_block_leaves_a_folder_that_it_was_given(tmp_path: Path) -> None:
    with Broker(BrokerConfig(port=0, data=tmp_path / "data")) as broker:
        broker.create_topic("orders")
    assert list((tmp_path / "data").glob("orders-0"))


@pytest.mark.parametrize("config", ["/a/folder", Path("folder"), {"port": 0}])
def test_what_is_no_configuration_is_refused_with_an_example(config: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"as in Broker\(BrokerConfig\("):
        Broker(config)
    with pytest.raises(ConfigurationError, match=r"data is 'folder'; it must be a pathlib\.Path"):
        BrokerConfig(data="folder")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BrokerConfig(prt=1), r"BrokerConfig\(\) has no option prt: do you mean port\?"),  # type: ignore[call-arg]
        (lambda: BrokerConfig(xyz=1), r"BrokerConfig\(\) has no option xyz: there are host, port, "),  # type: ignore[call-arg]
        (lambda: BrokerConfig(segment_bytes=5), "segment_bytes is 5; it must be 1024 to"),
        (lambda: TLS(cafile="secret"), r"TLS\(\) has no option cafile: there are ca, certificate,"),  # type: ignore[call-arg]
        (lambda: ProxyConfig(upstrem="b:1"), r"ProxyConfig\(\) has no option upstrem: do you mean upstream\?"),  # type: ignore[call-arg]
    ],
)
def test_an_option_that_does_not_fit_is_named_as_it_is_written(make: Callable[[], object], says: str) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=says) as raised:
        make()
    assert "secret" not in str(raised.value)


FORGETFUL = """
import sys
sys.modules["pytest"] = None
import ottla
broker = ottla.testing.Broker()
broker.create_topic("orders")
print(broker.data)
"""


def test_a_program_that_never_stops_its_broker_ends_and_leaves_no_folder() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", FORGETFUL], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()
