"""The faces of a share consumer: options, blocks, and brokers without share groups."""

from collections.abc import Iterator

import pytest
import trio

import ottla
import ottla.sync
from ottla.brokerlite.handlers import SERVED
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.codec.wire import api
from ottla.errors import (
    ConfigurationError,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    LocalProtocolError,
    UnsupportedVersion,
)
from ottla.testing import Broker
from tests.patience import HUNG


@pytest.fixture
def older_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that does not know ShareGroupHeartbeat."""
    monkeypatch.delitem(SERVED, api(ShareGroupHeartbeatRequest).key)
    with Broker() as broker:
        broker.create_topic("jobs")
        yield broker


async def test_a_broker_without_share_groups_is_refused(older_broker: Broker) -> None:
    async with ottla.connect(older_broker.bootstrap) as client:
        with pytest.raises(
            UnsupportedVersion, match=r"this cluster has no share groups: they need Kafka 4\.2 or newer"
        ):
            async with client.share_consumer("jobs", group="workers") as jobs:
                with trio.fail_after(HUNG):
                    async for _ in jobs:
                        pass


async def test_options_are_checked_at_once(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        for options, says in (
            ({"group": ""}, "needs a group"),
            ({"group": "g", "max_records": 0}, "max_records must be 1 or more"),
            ({"group": "g", "acknowledge": "later"}, "acknowledge must be 'explicit' or 'implicit'"),
            ({"group": "g", "acquire_mode": "all"}, "acquire_mode must be"),
        ):
            with pytest.raises(ConfigurationError, match=says):
                client.share_consumer("jobs", **options)
        with pytest.raises(ConfigurationError, match="name the topics to read"):
            client.share_consumer(group="g")
        with pytest.raises(TypeError, match="do you mean max_records"):
            client.share_consumer("jobs", group="g", max_record=1)  # type: ignore[call-arg] # of the test


async def test_misused_blocks_are_explained(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("jobs")
    async with ottla.connect(ottla_broker.bootstrap) as client:
        jobs = client.share_consumer("jobs", group="g")
        with pytest.raises(LocalProtocolError, match="was not opened"):
            await jobs.flush()
        with pytest.raises(TypeError, match="needs 'async with'"), jobs:  # type: ignore[attr-defined] # of the test
            pass
        async with jobs:
            pass
        with pytest.raises(LocalProtocolError, match="opened only once"):
            async with jobs:
                pass


def test_a_blocking_share_consumer_of_a_broker_without_share_groups(older_broker: Broker) -> None:
    with (
        ottla.sync.connect(older_broker.bootstrap) as client,
        client.share_consumer("jobs", group="workers") as jobs,
        pytest.raises(UnsupportedVersion),
    ):
        jobs.poll(HUNG)


async def test_a_group_of_another_type_is_named(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await client.reset_share_offsets("shared", "beginning", topics=["t"], execute=True)
        await client.reset_offsets("classic", "beginning", topics=["t"], execute=True)
        async with client.consumer("t", group="consumed") as consumer:
            with trio.fail_after(HUNG):
                while not consumer.assignment:
                    await consumer.poll(timeout=0.1)
            with pytest.raises(GroupIdNotFound, match="'consumed' is a consumer group, and this is a share consumer"):
                async with client.share_consumer("t", group="consumed") as jobs:
                    async for _ in jobs:
                        pass
        with pytest.raises(InconsistentGroupProtocol, match="'shared' is a share group, and this is a consumer"):
            async with client.consumer("t", group="shared") as consumer:
                async for _ in consumer:
                    pass
        with pytest.raises(GroupIdNotFound, match="'shared' is not a consumer group, but a share group, or "):
            async with client.consumer("t", group="shared", group_protocol="consumer") as consumer:
                async for _ in consumer:
                    pass
        for name in ("consumed", "classic"):
            with pytest.raises(GroupIdNotFound, match=f"'{name}' is a consumer group: use describe_group"):
                await client.describe_share_group(name)
            with pytest.raises(GroupIdNotFound, match=f"'{name}' is a consumer group: use"):
                await client.reset_share_offsets(name, "beginning", topics=["t"])
        with pytest.raises(GroupIdNotFound, match="'shared' is a share group: use describe_share_group"):
            await client.describe_group("shared")
        with pytest.raises(GroupIdNotFound, match="'shared' is a share group: use"):
            await client.reset_offsets("shared", "beginning", topics=["t"])
        with pytest.raises(GroupIdNotFound, match="not found"):
            await client.describe_group("missing")
