"""The port of a node: it depends on the node's id, not on when the proxy found it."""

from collections.abc import Iterator

import pytest

from ottla.brokerlite.config import BrokerConfig
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.proxy.serve import run_proxy
from ottla.testing import Broker
from tests.proxy.running import proxied


@pytest.fixture
def seventh() -> Iterator[Broker]:
    """The only running node of a cluster."""
    broker = Broker(BrokerConfig(port=0, node_id=7))
    try:
        yield broker
    finally:
        broker.stop()


@pytest.mark.parametrize(("first", "port"), [(None, 1000), (7, 1000), (5, 1002), (0, 1007)])
def test_a_nodes_port_is_as_much_above_the_first_as_its_id_is(seventh: Broker, first: int | None, port: int) -> None:
    with proxied(seventh.bootstrap, advertise="proxy.example:1000", first_node=first) as proxy:
        core = proxy.running._core
        assert core is not None and core.cluster.ports == {7: (port,)}


async def test_a_node_below_the_first_has_no_port(seventh: Broker) -> None:
    config = ProxyConfig(upstream=seventh.bootstrap, listen="127.0.0.1:0", first_node=8)
    with pytest.raises(ConfigurationError, match="node 7 is below the first node, 8: set first-node to 7"):
        await run_proxy(config)
