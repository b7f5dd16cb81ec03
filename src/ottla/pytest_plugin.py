"""A pytest plugin: the fixture `ottla_broker` gives a test a fresh Kafka-compatible broker of its own.

    def test_orders(ottla_broker):
        ottla_broker.create_topic("orders", partitions=3)
        my_service = start(bootstrap=ottla_broker.bootstrap)

Rule: importing this module is cheap, because every pytest run imports it: the first test that uses the broker imports
the broker.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker


@pytest.fixture
def ottla_broker(tmp_path: Path) -> Iterator[Broker]:
    """A fresh broker: `.bootstrap`, `.create_topic(name, partitions=3)`, `.restart()`, `.kill()`, `.data`.

    Its topics are in pytest's temporary folder, which pytest keeps after a failed test.
    """
    from ottla.brokerlite.config import BrokerConfig, Sync

    config = BrokerConfig(port=0, data=tmp_path / "ottla-broker", sync=Sync.NEVER, group_initial_rebalance_delay=0)
    with Broker(config) as broker:
        yield broker
