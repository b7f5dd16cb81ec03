"""A pytest plugin: the fixture `ottla_broker` gives a test a fresh Kafka-compatible broker of its own.

    def test_orders(ottla_broker):
        ottla_broker.create_topic("orders", partitions=3)
        my_service = start(bootstrap=ottla_broker.bootstrap)

A marker passes arguments to `ottla.testing.Broker`, such as users and certificates:

    @pytest.mark.ottla_broker(users={"alice": "secret"}, certificates=True)
    def test_orders(ottla_broker):
        my_service = start(ottla_broker.bootstrap, **ottla_broker.client_options("alice"))

Rules:
- Importing this module is cheap, because every pytest run imports it: the first test that uses the broker imports the
  broker.
- pytest does not rewrite the assertions of ottla. It does so with all modules of a distribution that has a plugin. In a
  fresh environment that took 1.5 s, and two threads that did it at the same time met a bug of Python's before 3.11.8
  (gh-106905).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import Broker


def pytest_addoption(pluginmanager: Any) -> None:
    """Take ottla's packages off pytest's list, as soon as the plugin is registered: pytest has no option for that."""
    hook = getattr(pluginmanager, "rewrite_hook", None)
    getattr(hook, "_must_rewrite", set()).difference_update(("ottla", "pyspark_ottla"))
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    arguments = "users=…, certificates=True, tls=…"
    config.addinivalue_line("markers", f"ottla_broker({arguments}): the arguments of this test's broker (ottla)")


@pytest.fixture
def ottla_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["Broker"]:
    """A fresh broker: `.bootstrap`, `.create_topic(name, partitions=3)`, `.restart()`, `.kill()`, `.data`.

    Its topics are in pytest's temporary folder, which pytest keeps after a failed test. The marker
    ``@pytest.mark.ottla_broker(users={"alice": "secret"}, certificates=True)`` gives it users and certificates, and
    `.client_options("alice")` are the options of a client.
    """
    from ottla.brokerlite.config import BrokerConfig, Sync
    from ottla.testing import Broker

    config = BrokerConfig(
        port=0,
        data=tmp_path / "ottla-broker",
        sync=Sync.NEVER,
        group_initial_rebalance_delay=0,
        group_consumer_heartbeat_interval=0.5,
    )
    marker = request.node.get_closest_marker("ottla_broker")
    if marker is not None and marker.args:
        pytest.fail("the marker ottla_broker takes arguments by name: users, certificates, tls", pytrace=False)
    with Broker(config, **({} if marker is None else marker.kwargs)) as broker:
        yield broker
